"""The read side: what does this code mean? Uses the standard library's `ast` alone."""
