"""What is read without a value."""
