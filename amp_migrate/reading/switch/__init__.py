"""When mixed precision is on in a unit, and which branches die with Apex."""
