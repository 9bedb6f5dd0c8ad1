"""Which sites belong to one training set-up, and what it was configured with: the migration units."""
