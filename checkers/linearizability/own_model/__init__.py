"""Models of the user's own: any sequential specification, whose steps are numbers to the compiled search."""
