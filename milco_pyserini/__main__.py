"""Run the milco command: python -m milco_pyserini COMMAND."""

from milco_pyserini.cli.main import start

if __name__ == "__main__":
    raise SystemExit(start())
