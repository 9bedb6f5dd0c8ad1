"""Backward, unscale, step, update and zero_grad of a program, followed over every path.

`objects.py` says which optimizer or scaler an expression is, `bodies.py` what of a function matters to the step,
`machine.py` what each event does to optimizers and scalers, `runs.py` follows the paths through all functions,
`traces.py` lists what one function does to optimizers, to be compared with what it did before.
"""
