"""Evener plans, simulates and runs the training of large models when nothing is equal."""

__version__ = "0.1.0"
