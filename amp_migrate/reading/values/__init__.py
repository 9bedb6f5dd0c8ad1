"""What an expression holds or a call returns, as far as the text tells."""
