"""How much of a migration the runs executed: which changed statements ran, and what would reach the others."""
