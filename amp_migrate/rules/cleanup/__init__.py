"""What is left once nothing uses Apex: imports, guards, options."""
