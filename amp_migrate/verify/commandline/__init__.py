"""The command line of a program, as its files tell it: which options its parsers define, and what an argument list says."""
