"""Command lines derived from dataclasses: values, help pages and errors."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from milco_pyserini.cli import parser as options_module
from milco_pyserini.cli.parser import parse, run_command
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.options import option, validate


@dataclass(frozen=True)
class Options:
    """Search something."""

    corpus: str = option(help="what to search", names=("-c",))
    output: Path | None = option(None, help="where to")
    hits: int = option(1000, minimum=1, help="how many", metavar="N")
    alpha: float | None = option(None, minimum=0, maximum=1, help="a share of 100%")
    shift: float = option(0.0, help="a number that may be zero")
    share: float = option(0.5, above=0, maximum=1, help="another share")
    engine: str = option("exact", help="which engine", choices=("exact", "lucene"))
    measures: tuple[str, ...] = option(("nDCG@10", "R@100"), help="which measures", names=("-m",))
    sizes: tuple[int, ...] | None = option(None, help="some sizes")
    dry_run: bool = option(False, help="report without changing anything")


def read(*argv: str) -> Options:
    """Parse a command line."""
    return parse(Options, argv, "milco test")


def test_defaults_are_the_dataclass() -> None:
    """Omitted options have the default of their field."""
    assert read("--corpus", "x") == Options("x")


def test_types_decide_how_values_are_parsed() -> None:
    """Strings, paths, numbers, flags, several values, short names, --name=value."""
    ours = read(
        *"-c x --output a/b --hits 5 --alpha=.5 --shift -1.5 --engine lucene -m RR --sizes 1 2 --dry-run".split()
    )
    assert ours == Options("x", Path("a/b"), 5, 0.5, -1.5, 0.5, "lucene", ("RR",), (1, 2), True)


def test_an_empty_path_is_not_the_working_directory() -> None:
    """A variable that is not set, as in --output "$STORE", would fill it."""
    with pytest.raises(MilcoError, match=r"output is empty\. Give a path"):
        read("-c", "x", "--output", "")


def test_a_string_in_place_of_several_values_is_refused() -> None:
    """In Python, its letters would be the values."""
    validate(Options("x", measures=["RR"]))  # type: ignore[arg-type]
    with pytest.raises(MilcoError, match=r"measures='RR': must be a list"):
        validate(Options("x", measures="RR"))  # type: ignore[arg-type]


def test_a_value_may_look_like_an_option() -> None:
    """A query that starts with two dashes is a value if it contains a space."""
    assert read("--corpus", "--what is this").corpus == "--what is this"


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--corpus", "x", "--hit", "5"], "unknown option '--hit': did you mean '--hits'?"),
        (["--corpsu", "x"], "unknown option '--corpsu': did you mean '--corpus'?"),
        (["--corpsu=x"], "unknown option '--corpsu': did you mean '--corpus'?"),
        ([], "--corpus is required"),
        (["--corpus", "caf\udce9.tsv"], "--corpus 'caf\\udce9.tsv': must be UTF-8"),
        (["--corpus", "x", "--hits", "many"], "--hits many: must be an integer"),
        (["--corpus", "x", "--alpha", "half"], "--alpha half: must be a number"),
        (["--corpus", "x", "--sizes", "1", "b"], "--sizes b: must be an integer"),
        (["--corpus", "x", "--hits"], "expected one argument"),
        (["--corpus", "x", "--hits", "5", "--hits=6"], "--hits is given twice"),
        (
            ["--corpus", "x", "--engine", "lucine"],
            "--engine lucine: must be one of exact, lucene. Did you mean lucene?",
        ),
        (["--corpus", "x", "y"], "unexpected argument 'y' (see milco test --help)"),
        (["docs.jsonl"], "unexpected argument 'docs.jsonl' (see milco test --help)"),
        (["--corpus", "x", "--hits", "0"], "--hits 0: must be at least 1"),
        (["--corpus", "x", "--hits", "9" * 20], f"--hits {'9' * 20}: must be from 1 to 2,147,483,647"),
        (["--corpus", "x", "--sizes", "3", "2147483648"], "--sizes 2147483648: must be at most 2,147,483,647"),
        (["--corpus", "x", "--alpha", "1.5"], "--alpha 1.5: must be from 0 to 1"),
        (["--corpus", "x", "--alpha", "nan"], "--alpha nan: must be from 0 to 1"),
        (["--corpus", "x", "--shift", "inf"], "--shift inf: must be a finite number"),
        (["--corpus", "x", "--share", "0"], "--share 0: must be above 0 and at most 1"),
    ],
)
def test_an_invalid_option_is_one_line_and_exit_code_2(
    argv: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The value and the rule on stderr, nothing on stdout."""
    assert run_command("milco test", Options, lambda options: pytest.fail("must not run"), argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("milco test: error: ")
    assert reason in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MilcoError("two\nlines"), "two lines"),
        (PermissionError(13, "Permission denied", "/x/y"), "/x/y: Permission denied"),
        (
            OSError(28, "No space left on device", "/x/y"),
            "/x/y: No space left on device. Free some space, then run the same command again (half is kept)",
        ),
        (OSError("odd"), "odd"),
    ],
)
def test_errors_of_a_command_are_one_line(error: Exception, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors that users can fix have no traceback."""

    def command(options: Options) -> None:
        raise error

    assert run_command("milco test", Options, command, ["--corpus", "x"], interrupted="half is kept") == 2
    assert capsys.readouterr().err == f"milco test: error: {line}\n"


def test_a_bug_stays_a_traceback() -> None:
    """Unexpected exceptions are not converted."""

    def command(options: Options) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_command("milco test", Options, command, ["--corpus", "x"])


def test_ctrl_c_ends_with_exit_code_130(capsys: pytest.CaptureFixture[str]) -> None:
    """The message states what the command leaves."""

    def command(options: Options) -> None:
        raise KeyboardInterrupt

    assert run_command("milco test", Options, command, ["--corpus", "x"]) == 130
    assert capsys.readouterr().err == "\nmilco test: interrupted\n"
    assert run_command("milco test", Options, command, ["--corpus", "x"], interrupted="no run was written") == 130
    assert capsys.readouterr().err == "\nmilco test: interrupted; no run was written\n"


def test_help_lists_defaults_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    """The help page has the docstring and every option with its default and choices."""
    with pytest.raises(SystemExit) as ended:
        read("--help")
    assert ended.value.code == 0
    page = " ".join(capsys.readouterr().out.split())
    for part in (
        "Search something.",
        "--hits N how many (default: 1000)",
        "--shift X a number that may be zero (default: 0.0)",
        "a share of 100%",
        "--engine exact|lucene which engine (default: exact)",
        "which measures (default: nDCG@10 R@100)",
        "--dry-run report without changing anything",
    ):
        assert part in page
    assert "default: None" not in page
    assert "default: False" not in page


PIPE = """
import sys
from dataclasses import dataclass
from milco_pyserini.cli.parser import run_command
@dataclass(frozen=True)
class Nothing:
    "Nothing."
sys.exit(run_command("test", Nothing, lambda options: sys.stdout.write("line\\n" * {lines}), []))
"""


@pytest.mark.parametrize("lines", [1, 100_000], ids=["in the buffer", "beyond the buffer"])
def test_a_closed_pipe_is_not_an_error(lines: int) -> None:
    """`milco ... | head -1` exits with 0 and no message, whatever remains unwritten."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", PIPE.format(lines=lines)],
        stdout=writing,
        stderr=subprocess.PIPE,
        # Unbuffered, nothing would remain unwritten at the end.
        env={**os.environ, "PYTHONPATH": str(Path(options_module.__file__).parents[1]), "PYTHONUNBUFFERED": ""},
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_unknown_name_lists_the_valid_ones() -> None:
    """The nearest match if there is one, all valid names, and a hint."""
    error = unknown_name("engine", "lucine", {"lucene", "exact"}, "Or a path.")
    assert str(error) == "unknown engine 'lucine': did you mean 'lucene'? valid are exact, lucene. Or a path."
    assert str(unknown_name("engine", "qqq", ("b", "a"))) == "unknown engine 'qqq': valid are a, b."
    many = [f"name{number}" for number in range(20)]
    assert str(unknown_name("thing", "name0x", many)) == "unknown thing 'name0x': did you mean 'name0'?"
    assert "valid are name0, name1, " in str(unknown_name("thing", "qqq", many))
