"""One module a verdict; each takes recordings and returns a `Verdict`."""
