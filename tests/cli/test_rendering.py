"""Messages of the library in Python's words, and as commands print them."""

from dataclasses import dataclass

import pytest

from milco_pyserini.cli.main import main
from milco_pyserini.cli.parser import run_command
from milco_pyserini.cli.rendering import PARAMETERS, flags_of, with_flags
from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option, validate


@dataclass(frozen=True)
class Options:
    """Do something."""

    inputs: tuple[str, ...] = option((), positional=True, metavar="FILE", help="files")
    max_length: int = option(5, minimum=3, help="a length")
    prune: tuple[str, ...] = option((), help="rules")
    overwrite: bool = option(False, help="replacement")
    log_terms: bool = option(True, help="log terms")
    set: tuple[str, ...] = option((), synonyms=("--query-cut",), metavar="NAME=VALUE", help="settings")


def test_python_reads_parameters() -> None:
    """An object that is built in Python is validated in Python's words."""
    with pytest.raises(MilcoError, match=r"^`max_length=2`: must be at least 3$"):
        validate(Options(max_length=2))


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ("`max_length=2`: must be at least 3", "--max-length 2: must be at least 3"),
        ("omit `max_length`, or pass `overwrite=True`", "omit --max-length, or pass --overwrite"),
        ("`inputs` is empty", "FILE is empty"),
        ("omit `log_terms`", "omit --no-log-terms"),
        ("`prune=top-k:9`", "--prune top-k:9"),
        ("`prune='top-k:9'`", "--prune top-k:9"),
        ("`prune=['top-k:9', 'mass:.9']`", "--prune top-k:9 mass:.9"),
        ("`prune='a b'` is 'a b'", "--prune 'a b' is 'a b'"),
        ("`prune=it's`", "--prune it's"),
        ("`max_length=1,000`", "--max-length 1,000"),
        ("`query_cut=0`: pass another `query_cut`", "--set query_cut=0: pass another --set query_cut=..."),
        ("pass `views` or `k=5`: `Index.build()`, ``", "pass `views` or `k=5`: `Index.build()`, ``"),
    ],
)
def test_a_command_prints_its_options(message: str, printed: str) -> None:
    """A parameter that is not an option of the command is unchanged."""
    assert with_flags(message, flags_of("milco test", Options)) == printed


@pytest.mark.parametrize("argv", [["--max-length", "2"], ["--max-length", "9"]], ids=["parser", "library"])
def test_errors_and_log_lines_are_printed_with_options(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Whether the parser or the library finds the error."""

    def command(options: Options) -> None:
        log("`overwrite=True` is not given")
        raise MilcoError(f"`max_length={options.max_length}`: too long", "Pass another `max_length`.")

    assert run_command("milco test", Options, command, argv) == 2
    lines = {
        "2": "milco test: error: --max-length 2: must be at least 3\n",
        "9": "--overwrite is not given\nmilco test: error: --max-length 9: too long. Pass another --max-length.\n",
    }
    assert capsys.readouterr().err == lines[argv[1]]


@pytest.mark.parametrize("prog", PARAMETERS)
def test_other_names_of_parameters_are_those_of_options(prog: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each parameter that a command calls otherwise is mapped to one of the command's options."""
    with pytest.raises(SystemExit):
        main([*prog.split()[1:], "--help"])
    page = capsys.readouterr().out
    for name in PARAMETERS[prog].values():
        assert f"--{name.replace('_', '-')}" in page
