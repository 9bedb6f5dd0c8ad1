"""How a process comes to a place, and under which conditions."""
