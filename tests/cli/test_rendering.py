"""Messages of the library with Python's names, and as commands print them."""

import pickle
from dataclasses import dataclass

import pytest

from milco_pyserini.cli.main import main
from milco_pyserini.cli.parser import flags_of, run_command
from milco_pyserini.cli.program import with_flags
from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError, Parameter, ParameterError, parameter
from milco_pyserini.options import option, validate


@dataclass(frozen=True)
class Options:
    """Do something."""

    inputs: tuple[str, ...] = option((), positional=True, metavar="FILE", help="files")
    max_length: int = option(5, minimum=3, help="a length")
    prune: tuple[str, ...] = option((), help="rules")
    overwrite: bool = option(False, requires="output", parameters=("replace",), help="replacement")
    output: str | None = option(None, help="a path")
    log_terms: bool = option(True, help="log terms")
    method: str = option("rrf", choices=("rrf", "rsf", "mean"), excludes=("prune",), help="a method")
    weight: float = option(1.0, requires=Parameter("method", ("rsf", "mean")), help="a weight")
    set: tuple[str, ...] = option((), parameters=("query_cut",), metavar="NAME=VALUE", help="settings")


def test_an_error_carries_parameter_value_and_rule() -> None:
    """A program reads them from the error, also if it crossed processes; its text has Python's names."""
    with pytest.raises(ParameterError) as raised:
        validate(Options(max_length=2))
    for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
        assert (error.parameter, error.value, error.rule) == ("max_length", 2, "must be at least 3")
        assert str(error) == "max_length=2: must be at least 3"
        assert with_flags(str(error), flags_of(Options)) == "--max-length 2: must be at least 3"


@pytest.mark.parametrize(
    ("message", "python", "printed"),
    [
        ("omit " + parameter("max_length") + ", or more", "omit max_length, or more", "omit --max-length, or more"),
        (parameter("overwrite", True), "overwrite=True", "--overwrite"),
        (parameter("replace", True), "replace=True", "--overwrite"),
        (parameter("inputs") + " is empty", "inputs is empty", "FILE is empty"),
        (parameter("log_terms", False), "log_terms=False", "--no-log-terms"),
        (parameter("prune", "top-k:9"), "prune='top-k:9'", "--prune top-k:9"),
        (parameter("prune", ("top-k:9", "mass:.9")), "prune=['top-k:9', 'mass:.9']", "--prune top-k:9 mass:.9"),
        (parameter("prune", "a b"), "prune='a b'", "--prune 'a b'"),
        (parameter("max_length", 2.0), "max_length=2", "--max-length 2"),
        (parameter("query_cut", 0), "query_cut=0", "--set query_cut=0"),
        ("another " + parameter("query_cut"), "another query_cut", "another --set query_cut"),
        ("pass " + parameter("views") + " or " + parameter("k", 5), "pass views or k=5", "pass views or k=5"),
    ],
)
def test_a_command_prints_its_options(message: str, python: str, printed: str) -> None:
    """A parameter that is not an option of the command keeps its Python name."""
    assert message == python
    assert with_flags(message, flags_of(Options)) == printed


@pytest.mark.parametrize("argv", [["--max-length", "2"], ["--max-length", "9"]], ids=["parser", "library"])
def test_errors_and_log_lines_are_printed_with_options(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Whether the parser or the library finds the error."""

    def command(options: Options) -> None:
        log(parameter("overwrite", True) + " is not given")
        raise ParameterError("max_length", options.max_length, "too long", "Pass another " + parameter("max_length"))

    assert run_command("milco test", Options, command, argv) == 2
    lines = {
        "2": "milco test: error: --max-length 2: must be at least 3\n",
        "9": "--overwrite is not given\nmilco test: error: --max-length 9: too long. Pass another --max-length\n",
    }
    assert capsys.readouterr().err == lines[argv[1]]


@pytest.mark.parametrize(
    ("argv", "printed"),
    [
        ("--overwrite", "--overwrite requires --output"),
        ("--weight 2", "--weight requires --method rsf or --method mean"),
        ("--prune a --method rsf", "--method and --prune exclude each other. Omit one."),
        ("--prune a --method rsf --overwrite", "--overwrite requires --output"),
    ],
)
def test_combinations_are_declared(argv: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that requires or excludes another one is refused by its declaration, all invalid ones together."""
    assert run_command("milco test", Options, lambda options: pytest.fail("must not run"), argv.split()) == 2
    assert f"milco test: error: {printed}\n" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["search", "search fuse", "search rerank", "explain", "serve"])
def test_pyserinis_word_for_k_is_accepted(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--hits is --k: the error of a value that is out of its range names it."""
    assert main([*command.split(), "--hits", "0"]) == 2
    assert "--k 0: must be " in capsys.readouterr().err


def test_a_message_without_parameters_is_printed_as_it_is() -> None:
    """Whatever it has in backticks."""
    assert with_flags(str(MilcoError("run `milco demo`", "Or `k=5`")), {"k": "--k"}) == "run `milco demo`. Or `k=5`"
