"""Prove that a migrated program trains as the original did.

`recording` runs a program in a child process and writes down what it did; `verdicts` compare two such records;
`judge` decides which runs are needed; `report` shows the outcome. Only `recording` imports torch while a program runs.
"""
