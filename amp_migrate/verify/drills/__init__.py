"""Runs that force what training rarely meets, on both sides, from equal states; each is a verdict of its own.

`plan` lists them, `verdicts` makes verdicts of their runs; `strikes` plans what overflows, or becomes nan, and `skips`
compares it; `growth`, `resume`, `switch` and `evaluation` do both. What is forced, and how: `recording/drills.py`.
"""
