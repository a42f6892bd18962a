"""milco pyserini COMMAND: run Pyserini's own commands with MILCO's encoders."""

import sys
from collections.abc import Sequence

from milco_pyserini.cli import program
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.integrations.pyserini.arguments import PROG
from milco_pyserini.integrations.pyserini.commands import COMMANDS, run_pyserini

PAGE = f"""usage: {PROG} COMMAND ARGUMENTS

Run Pyserini's own command, python -m pyserini.COMMAND ARGUMENTS, unchanged: with a suitable Java, and with
MILCO's encoder for --encoder NAME if NAME is a MILCO checkpoint ({MINI}, a directory, a hub name).

commands:
{{commands}}
and every other module of Pyserini that is a program, such as 2cr.miracl or search.faiss

Defaults where MILCO encodes:
  search.lucene --impact   --encoder: that of an index made by milco index (not with --pretokenized, where topics are
                           terms); --min-idf -1, because Pyserini's 0 drops every term that is in all documents
  encode, encode.query     --max-length: the checkpoint's
  encode.query             --weight-range 1 --quant-range 100, the scale that documents are encoded with
  server.rest, server.mcp  --index DIR ... serves indexes made by milco index; or --config FILE, Pyserini's own
  server.rest              --host 127.0.0.1

{PROG} COMMAND --help prints Pyserini's own page.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        commands = "\n".join(f"  {name:<15} {purpose}" for name, purpose in COMMANDS.items())
        sys.stdout.write(PAGE.format(commands=commands))
        return 0
    try:
        run_pyserini(arguments[0], arguments[1:])
    except MilcoError as error:
        return program.fail(PROG, str(error), {name: f"--{name}" for name in ("encoder", "index", "topics")})
    return 0
