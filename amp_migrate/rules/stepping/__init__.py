"""`optimizer.step` and what belongs to it: update, accumulation, closures, skipped steps, `zero_grad`."""
