"""Run milco export."""

import sys

from milco_pyserini.cli.main import start

if __name__ == "__main__":
    sys.exit(start("export"))
