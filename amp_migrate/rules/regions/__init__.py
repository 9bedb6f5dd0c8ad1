"""Autocast regions, and what must not run in them or leave them in half precision."""
