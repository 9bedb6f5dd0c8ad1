"""In which order the statements of a body run, and what is known on the way."""
