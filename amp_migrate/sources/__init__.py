"""Files in and out: finding them, decoding them, replacing them atomically."""
