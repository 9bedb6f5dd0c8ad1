"""What the gradients are between backward and step: who reads them, where they are unscaled, when the scale is updated."""
