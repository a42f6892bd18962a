"""milco VERB: dispatch, help pages that load nothing heavy, and options that explain themselves."""

import dataclasses
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

from milco_pyserini import __version__
from milco_pyserini.cli.main import COMMANDS, main
from milco_pyserini.cli.train import STAGES, stage_options

HEAVY = (
    "torch",
    "transformers",
    "numba",
    "jnius",
    "pyserini",
    "scipy",
    "pyarrow",
    "ir_datasets",
    "matplotlib",
    "seismic",
)
HELP = """
import sys
from milco_pyserini.cli.main import main
try:
    code = main([*sys.argv[1].split(), "--help"])
except SystemExit as ended:
    code = ended.code
sys.stderr.write(" ".join(name for name in sys.argv[2:] if name in sys.modules))
sys.exit(code)
"""

ALL_COMMANDS = [*COMMANDS, *(f"train {stage}" for stage in STAGES), "analyze sweep", "analyze latency", "index tune"]
ALL_COMMANDS += ["corpora list", "corpora judge", "explain serve", "analyze statistics", "eval reproduce"]
ALL_COMMANDS += ["search fuse"]


def options_of(module: ModuleType) -> list[type]:
    """The options dataclasses that a verb's module defines."""
    found = [
        value for name, value in vars(module).items() if name.endswith("Options") and dataclasses.is_dataclass(value)
    ]
    return [value for value in found if isinstance(value, type) and value.__module__ == module.__name__]


@pytest.mark.parametrize("command", ALL_COMMANDS)
def test_help_of_every_command_loads_nothing_heavy(command: str) -> None:
    """--help answers on stdout with exit code 0, without torch, Java or compiled kernels."""
    program = [sys.executable, "-c", HELP, command, *HEAVY]
    ended = subprocess.run(program, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "usage: " in ended.stdout


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_option_has_a_help_text(verb: str) -> None:
    """A command's page says what it does, and what each option is for."""
    found = options_of(import_module(COMMANDS[verb][0]))
    for options in found or [stage_options(stage) for stage in STAGES]:
        assert (options.__doc__ or "").strip()
        for field in dataclasses.fields(options):
            assert field.metadata["help"].strip(), f"{verb} --{field.name} has no help"


def test_every_verb_has_options() -> None:
    """pyserini hands its arguments on, train has stages; every other command line is derived from a dataclass."""
    without = [verb for verb, (module, _) in COMMANDS.items() if not options_of(import_module(module))]
    assert without == ["analyze", "train", "pyserini"]


@pytest.mark.parametrize(
    "command", [command for command in ALL_COMMANDS if command not in ("pyserini", "train", "corpora", "analyze")]
)
def test_an_unknown_option_gives_the_nearest(command: str, capsys: pytest.CaptureFixture) -> None:
    """A misspelt option is one line on stderr and exit code 2, with the valid names."""
    assert main([*command.split(), "--hepl"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "did you mean '--help'?" in captured.err


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_the_page_names_every_verb(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    """milco alone is a question, not an error."""
    assert main(arguments) == 0
    page = capsys.readouterr().out
    for verb, (_, purpose) in COMMANDS.items():
        assert verb in page
        assert purpose in page


def test_help_is_a_verb_too(capsys: pytest.CaptureFixture) -> None:
    """milco help search is milco search --help."""
    with pytest.raises(SystemExit) as ended:
        main(["help", "search"])
    assert ended.value.code == 0
    assert "--max-passage" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_version_is_the_packages(word: str, capsys: pytest.CaptureFixture) -> None:
    """--version prints the name and the version that setup.cfg reads."""
    assert main([word]) == 0
    assert capsys.readouterr().out == f"milco_pyserini {__version__}\n"


def test_an_unknown_verb_gives_the_nearest(capsys: pytest.CaptureFixture) -> None:
    """serach: did you mean search? Exit code 2, one line on stderr."""
    assert main(["serach", "--topics", "x"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("milco: error: unknown command 'serach': did you mean 'search'?")
    assert captured.err.count("\n") == 1


def test_a_verb_that_is_like_no_other_is_not_guessed(capsys: pytest.CaptureFixture) -> None:
    """A wrong guess is worse than the list."""
    assert main(["versions-of"]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_arguments_and_exit_codes_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """milco VERB A B calls the verb with A B and ends with its code."""
    from milco_pyserini.cli import doctor

    seen: list[list[str]] = []
    monkeypatch.setattr(doctor, "main", lambda argv: seen.append(list(argv)) or 7)
    assert main(["doctor", "one", "--two"]) == 7
    assert seen == [["one", "--two"]]


def test_python_dash_m_is_the_same_command() -> None:
    """python -m milco_pyserini --version, for where no script is on the path."""
    program = [sys.executable, "-m", "milco_pyserini", "--version"]
    ended = subprocess.run(program, capture_output=True, encoding="utf-8", timeout=60, check=True)
    assert ended.stdout == f"milco_pyserini {__version__}\n"
