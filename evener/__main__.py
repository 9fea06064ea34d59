"""Run the command line: ``python -m evener``."""

import sys

from evener.cli import main

if __name__ == "__main__":
    sys.exit(main())
