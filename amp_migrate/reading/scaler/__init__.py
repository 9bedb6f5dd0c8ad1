"""Where the scaler of a unit is created, and how each piece of code reaches it."""
