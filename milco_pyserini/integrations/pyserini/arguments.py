"""Read some options of a command line that is otherwise Pyserini's."""

import argparse
from collections.abc import Sequence

PROG = "milco pyserini"


def known_options(
    arguments: Sequence[str], options: Sequence[str], flags: Sequence[str] = (), lists: Sequence[str] = ()
) -> tuple[argparse.Namespace, list[str]]:
    """Return the values of some options, and the arguments without them.

    Args:
        options: options with a value; None if they are not given.
        flags: options without one.
        lists: options with several; [] if they are not given.
    """
    parser = argparse.ArgumentParser(prog=PROG, usage=argparse.SUPPRESS, add_help=False, allow_abbrev=False)
    for option in options:
        parser.add_argument(option)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    for option in lists:
        parser.add_argument(option, nargs="+", default=[])
    return parser.parse_known_args(arguments)
