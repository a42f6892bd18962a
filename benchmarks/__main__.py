"""python benchmarks: the table of table_command.py."""

import sys

from table_command import main

if __name__ == "__main__":
    sys.exit(main())
