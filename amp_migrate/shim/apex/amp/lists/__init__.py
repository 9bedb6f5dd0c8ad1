"""Which functions run in fp16, in fp32, or in the widest type of their arguments under O1.

Each module names its target in MODULE. The lists are read when casts are installed, so a program may edit
them before `amp.initialize`.
"""
