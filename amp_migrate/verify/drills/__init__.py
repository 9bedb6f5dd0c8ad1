"""Runs that force what training rarely meets, on both sides, from equal states; each is a verdict of its own.

`plan` says which drills a program lets be tried and with which runs, `verdicts` compares them, `skips`, `growth`,
`switch` hold what is particular to each kind. What is forced, and how, is in `recording/drills.py`.
"""
