"""Where a value may come from."""
