"""What is written: the files of one state of a program, its names, functions and classes, and what changed between two states."""
