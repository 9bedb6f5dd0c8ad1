"""Whether calls fit what is called, torch's above all."""
