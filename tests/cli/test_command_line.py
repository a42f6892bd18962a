"""milco COMMAND: dispatch, help pages that load nothing heavy, and help texts of all options."""

import dataclasses
import json
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

from milco_pyserini import __version__
from milco_pyserini.cli.main import COMMANDS, MAINS, main
from milco_pyserini.options import option_fields

HEAVY = "torch transformers numba jnius pyserini scipy pyarrow ir_datasets ir_measures matplotlib seismic".split()
# Prints for each command: its exit code, its page, and the modules of HEAVY that were loaded.
HELP = """
import contextlib, io, json, sys
from milco_pyserini.cli.main import main
found = {}
for command in json.loads(sys.argv[1]):
    page = io.StringIO()
    with contextlib.redirect_stdout(page):
        try:
            code = main([*command.split(), "--help"])
        except SystemExit as ended:
            code = ended.code
    found[command] = code, page.getvalue(), [name for name in sys.argv[2:] if name in sys.modules]
print(json.dumps(found))
"""

MODULES = {command: import_module(MAINS[command].__module__) for command in COMMANDS}
SUBCOMMANDS = {command: getattr(module, "SUBCOMMANDS", {}) for command, module in MODULES.items()}
# Without a subcommand, these print their help page.
GROUPS = ("analyze", "corpora", "train")
ALL_COMMANDS = [*COMMANDS, *(f"{command} {name}" for command, table in SUBCOMMANDS.items() for name in table)]


def options_of(module: ModuleType) -> list[type]:
    """Return the options classes that a command's module defines."""
    found = [
        value for name, value in vars(module).items() if name.endswith("Options") and dataclasses.is_dataclass(value)
    ]
    return [value for value in found if isinstance(value, type) and value.__module__ == module.__name__]


@pytest.fixture(scope="module")
def pages() -> dict[str, tuple[int, str, list[str]]]:
    """The output of HELP, for all commands, in one process."""
    program = [sys.executable, "-c", HELP, json.dumps(ALL_COMMANDS), *HEAVY]
    ended = subprocess.run(program, capture_output=True, encoding="utf-8", timeout=300, check=True)
    assert ended.stderr == ""
    return json.loads(ended.stdout)


@pytest.mark.parametrize("command", ALL_COMMANDS)
def test_help_of_every_command_loads_nothing_heavy(command: str, pages: dict) -> None:
    """--help prints to stdout and exits with 0, without loading torch, Java or compiled kernels."""
    code, page, loaded = pages[command]
    assert (code, loaded) == (0, [])
    assert "usage: " in page


@pytest.mark.parametrize("command", [command for command, table in SUBCOMMANDS.items() if table])
def test_the_help_page_of_a_command_lists_its_subcommands(
    command: str, pages: dict, capsys: pytest.CaptureFixture
) -> None:
    """Each with its purpose; a misspelled one is answered with the nearest."""
    page = " ".join(pages[command][1].split())
    for name, subcommand in SUBCOMMANDS[command].items():
        assert f" {name} {subcommand.options.__doc__.splitlines()[0].rstrip('.')} " in f"{page} "
        assert main([command, name[:-1]]) == 2
        assert f"unknown subcommand {name[:-1]!r}: did you mean {name!r}?" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_text(command: str) -> None:
    """Every command has a description, and every option a help text."""
    train = [subcommand.options for subcommand in SUBCOMMANDS["train"].values()]
    for options in train if command == "train" else options_of(MODULES[command]):
        assert (options.__doc__ or "").strip()
        for field in option_fields(options).values():
            assert field.metadata["help"].strip(), f"{command} --{field.name} has no help"


@pytest.mark.parametrize("command", [command for command in ALL_COMMANDS if command not in ("pyserini", *GROUPS)])
def test_an_unknown_option_suggests_the_nearest(command: str, capsys: pytest.CaptureFixture) -> None:
    """A misspelled option is one line on stderr, with the valid names, and exit code 2."""
    assert main([*command.split(), "--hepl"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "did you mean '--help'?" in captured.err


def test_a_value_that_begins_with_dashes_is_written_with_an_equals_sign(capsys: pytest.CaptureFixture) -> None:
    """The line of the error has it."""
    assert main(["search", "--query", "--foo"]) == 2
    assert "follows an equals sign" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_the_help_page_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    """Without arguments, milco prints its help page and succeeds."""
    assert main(arguments) == 0
    page = capsys.readouterr().out
    for command, purpose in COMMANDS.items():
        assert command in page
        assert purpose in page


def test_help_accepts_a_command(capsys: pytest.CaptureFixture) -> None:
    """milco help search equals milco search --help."""
    with pytest.raises(SystemExit) as ended:
        main(["help", "search"])
    assert ended.value.code == 0
    assert "--max-passage" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["--version", "-V", "-v", "version"])
def test_prints_the_version(word: str, capsys: pytest.CaptureFixture) -> None:
    """--version prints the name and version of the package, also by python -m if the script is not on the path."""
    assert main([word]) == 0
    expected = f"milco_pyserini {__version__}\n"
    assert capsys.readouterr().out == expected
    if word == "--version":
        program = [sys.executable, "-m", "milco_pyserini", word]
        ended = subprocess.run(program, capture_output=True, encoding="utf-8", timeout=60, check=True)
        assert ended.stdout == expected
