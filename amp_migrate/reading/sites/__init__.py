"""Where a program touches Apex, or names that torch deprecated."""
