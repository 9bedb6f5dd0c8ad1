"""Deprecated `torch.cuda.amp` names, written with their current ones."""
