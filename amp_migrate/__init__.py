"""Migrate NVIDIA Apex mixed precision training code to native PyTorch AMP, and verify the result."""

__version__ = "0.1.0"
