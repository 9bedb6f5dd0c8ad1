"""What the rewriter writes for training frameworks, given to the real ones: `make frameworks`."""
