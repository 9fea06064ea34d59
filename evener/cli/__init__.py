from evener.cli.main import main

__all__ = ["main"]
