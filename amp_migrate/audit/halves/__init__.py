"""Which values are float32, half or integer, under Apex before and under autocast now, followed through statements.

Each expression gets a pair: its dtype as the program computed it under Apex, and as it computes it now. "maybe" stands for
the output of a model whose last layer is out of sight, "partly" for what is half on one way only. Statements are
run in order, branches are joined, loops gone through twice; calls of functions of the program that are
given half values are followed.
"""
