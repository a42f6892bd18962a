"""Run milco explain."""

from milco_pyserini.cli.main import start

if __name__ == "__main__":
    raise SystemExit(start("explain"))
