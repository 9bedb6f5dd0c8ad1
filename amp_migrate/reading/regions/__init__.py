"""Which statements Apex ran in mixed precision: where autocast goes."""
