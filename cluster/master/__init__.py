"""Masters: the metadata plane (mechanisms M1 to M14 of `mechanisms.md`)."""
