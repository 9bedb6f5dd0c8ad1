"""Functions and weights that were told their precision: registrations, decorators, `.half()`, disabled casts."""
