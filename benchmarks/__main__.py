"""Run table_command.py as `python benchmarks`."""

import sys

from table_command import main

if __name__ == "__main__":
    sys.exit(main())
