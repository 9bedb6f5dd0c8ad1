"""Trust in the verdict: faults planted into right migrations, and right migrations that must pass."""
