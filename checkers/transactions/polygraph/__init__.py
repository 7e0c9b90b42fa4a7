"""Complete judging: whether some order of the versions that nobody observed makes a history possible at a level."""
