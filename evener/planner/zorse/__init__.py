"""Zorse (arXiv 2507.10392, MLSys 2026): groups of unequal GPUs, several mini-stages per group."""
