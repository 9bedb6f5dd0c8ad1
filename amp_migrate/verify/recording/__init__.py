"""Inside the child process: run a script unmodified and write down, step by step, what its training did."""
