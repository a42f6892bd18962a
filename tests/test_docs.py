"""README.md and docs/: commands print the output that is shown, options exist, links resolve.

The console blocks of a page are run in order, in a directory of their own and in lines of 100 characters: milco and
Python code in this process. If a page of docs/ reads files that README's commands write, it starts with a copy of them.
Every line of the shown output must be printed, in order: words and counts exactly, other numbers within 2 percent,
times and rates with any value. `...` matches anything, and a line `...` omitted lines. Commands that need a network,
GPUs, a cluster or hours are in sh blocks, which are only parsed.
"""

import ast
import contextlib
import functools
import importlib
import io
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from milco_pyserini.cli import parser
from milco_pyserini.cli.main import main
from milco_pyserini.corpora.catalog import BENCHMARKS, CORPORA, TOPICS
from milco_pyserini.index.registry import ENGINES
from milco_pyserini.integrations.pyserini.commands import is_command

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
PAGES = [README, *sorted(set(DOCS.glob("*.md")) - {INDEX})]
# Optional packages that the commands of a page need.
NEEDS = {
    "adapt.md": ("py3langid",),
    "indexing.md": ("qdrant_edge", "py3langid"),
    "memory.md": ("mcp.server.mcpserver", "py3langid"),
    "onnx.md": ("onnx", "onnxscript", "fastembed"),
    "seismic.md": ("seismic", "faiss"),
    "reproducing.md": ("faiss",),
    "training.md": ("accelerate", "tensorboard"),
    "sentence-transformers.md": ("sentence_transformers", "mteb"),
    "pyterrier.md": ("pyterrier", "pyterrier_pisa"),
    "spark.md": ("pyspark",),
    "frameworks.md": ("langchain_qdrant", "llama_index.vector_stores.qdrant", "haystack_integrations"),
}
LANGUAGES = ("console", "sh", "python", "json", "text", "yaml")
SECONDS = 240

# Relative tolerance of numbers, because processors round differently.
NEAR = 0.02

# The parts of a shown line that may differ. Integers below 1,000 are counts, which may not.
_MAY_BE = {
    "time": r"(?:\d[\d,.]* m?s\b|\d+(?::\d\d)+)",
    "rate": r"\d[\d,.]*+(?= \w+/s\b)",
    "bar": "[\u2580-\u259f]+",
    "figure": r"(\d+(?:,\d{3})+(?:\.\d+)?|\d+\.\d+)",
    "rest": ".*",
}
_VARIES = re.compile(
    rf"(?P<time>{_MAY_BE['time']})|(?P<rate>{_MAY_BE['rate']})|(?P<bar>{_MAY_BE['bar']})|"
    r"(?P<figure>\d++(?:,\d{3})++(?:\.\d++)?+(?!\.\.\.)|\d++\.\d++(?!\.\.\.))|(?P<rest>\.\.\.)"
)
_BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\n")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
# Files of README's commands that pages read.
_README_FILES = re.compile(r"(vectors/sample|indexes/sample\.lucene|runs/sample\.txt)(?![\w.-])")
# Programs of `python -m NAME` whose options are parsed without files.
_PROGRAMS = ("experiments.", "recipes.adapt")
_VARIABLE = re.compile(r"\$\{?\w+\}?")


@dataclass(frozen=True)
class Step:
    """A command of a page with the output that is shown, or a file that the reader saves."""

    command: str = ""
    shown: tuple[str, ...] = ()
    file: str = ""
    content: str = ""


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the language and the text of every fenced block."""
    return [(found[1], found[2]) for found in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def steps(page: Path) -> list[Step]:
    """Return what a reader of the page does, in order.

    A Python block is run, or saved if it begins with a file name. A text block after one that is run is its output.
    """
    found: list[Step] = []
    before = ""
    for language, text in blocks(page):
        named = _FILE.match(text)
        if language == "python" and named:
            found.append(Step(file=named[1], content=text))
        elif language == "python":
            found.append(Step(command=f"python -c {shlex.quote(text)}"))
        elif language == "text" and before == "python":
            found[-1] = replace(found[-1], shown=tuple(text.splitlines()))
        elif language == "console":
            found += console_steps(text)
        before = language
    return found


def console_steps(text: str) -> Iterator[Step]:
    """Yield the commands of a console block: lines that begin with `$ `, with their continuation lines."""
    for part in re.split(r"^\$ ", text.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield Step(command=command, shown=tuple(shown))


def missing_lines(step: Step, output: str) -> list[str]:
    """Return the shown lines that the output lacks after those before them. White space counts as one space."""
    lines, missing, place = [" ".join(line.split()) for line in output.splitlines()], [], 0
    for shown in step.shown:
        if shown.strip() == "...":
            continue
        found = next((at for at in range(place, len(lines)) if is_like(shown, lines[at])), None)
        if found is None:
            missing.append(shown)
        else:
            place = found + 1
    return missing


def is_like(shown: str, line: str) -> bool:
    """Return whether a line matches the shown one: words and counts exactly, other numbers nearly."""
    text, pattern, figures, end = " ".join(shown.split()), "", [], 0
    for part in _VARIES.finditer(text):
        pattern += re.escape(text[end : part.start()]) + _MAY_BE[str(part.lastgroup)]
        figures += [number(part[0])] if part.lastgroup == "figure" else []
        end = part.end()
    found = re.fullmatch(pattern + re.escape(text[end:]), line)
    return found is not None and all(
        abs(number(there) - figure) <= NEAR * figure for figure, there in zip(figures, found.groups(), strict=True)
    )


def number(text: str) -> float:
    """Parse a number that may have thousands separators."""
    return float(text.replace(",", ""))


def failure(page: Path) -> str:
    """Run the steps of a page in the working directory; return what differed from the page, or ""."""
    for step in steps(page):
        if step.file:
            Path(step.file).write_text(step.content, encoding="utf-8")
            continue
        code, output = ran(step.command)
        missing = missing_lines(step, output)
        if code or missing:
            shown = "".join(f"\n  missing: {line}" for line in missing)
            return f"$ {step.command}\n  exit code {code}{shown}\n{output}"
    return ""


def ran(command: str) -> tuple[int, str]:
    """Run a command; return its exit code, and its stdout and stderr.

    milco, experiments, the recipe of the docs, Python code, and programs that extend milco are run in this process,
    where Python and Java have started; Pyserini is not: its Java reads relative paths in the directory in which Java
    was started.
    """
    if command.startswith("python -c "):
        return here(lambda: exec(shlex.split(command)[2], {"__name__": "__main__"}))
    is_program = re.match(r"milco (?!pyserini )|python -m (?:experiments|recipes)\.", command)
    if is_program and not re.search(r"[;&|<>$]", command):
        return here(lambda: run_command(invoked(shlex.split(command))))
    if extended := re.fullmatch(r"python (\w+\.py) ([^;&|<>$]+)", command):
        with patch.dict(ENGINES), patch.dict(BENCHMARKS), patch.dict(CORPORA), patch.dict(TOPICS):
            return here(lambda: runpy.run_path(extended[1])["main"](shlex.split(extended[2])))
    shell = ["bash", "-c", command]
    ended = subprocess.run(
        shell, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=SECONDS, check=False
    )
    return ended.returncode, ended.stdout


def run_command(arguments: list[str]) -> int:
    """Run a command of milco, or a module of experiments or recipes, in this process; return its exit code."""
    if arguments[0].startswith(_PROGRAMS):
        module = importlib.import_module(arguments[0])
        program = importlib.import_module(f"{arguments[0]}.__main__") if hasattr(module, "__path__") else module
        return program.main(arguments[1:])
    return main(arguments)


def here(program: Callable[[], int | None]) -> tuple[int, str]:
    """Call a program; return its exit code, and its stdout and stderr."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code = program() or 0
        except Exception:
            code = 1
            traceback.print_exc()
    return code, output.getvalue()


@pytest.fixture(scope="module")
def failure_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], str]]:
    """Return failure() of a page, which is run once, in a directory of its own."""
    place = tmp_path_factory.mktemp("docs")

    @functools.cache
    def run(page: Path) -> str:
        directory = place / page.stem
        if page != README and reads_readme_files(page):
            run(README)
            shutil.copytree(place / README.stem, directory)
        directory.mkdir(exist_ok=True)
        with contextlib.chdir(directory):
            return failure(page)

    with pytest.MonkeyPatch.context() as environment:
        # For the commands of a shell.
        environment.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        environment.setenv("OMP_NUM_THREADS", "1")
        environment.setenv("PYTHONIOENCODING", "utf-8")
        environment.setenv("COLUMNS", "100")
        for name in ("MILCO_DATA", "IR_DATASETS_HOME"):
            environment.setenv(name, str(place / "home"))
        yield run


def reads_readme_files(page: Path) -> bool:
    """Return whether the commands of a page read files that README's commands write."""
    return any(_README_FILES.search(step.command + step.content) for step in steps(page))


@pytest.mark.pages
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_print_the_shown_output(page: Path, failure_of: Callable[[Path], str]) -> None:
    """Every command succeeds, and every shown line is printed."""
    for name in NEEDS.get(page.name, ()):
        pytest.importorskip(name)
    assert not failure_of(page)


@pytest.mark.pages
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code cells of docs/quickstart.ipynb, in order; the last one has a value."""
    cells = json.loads((DOCS / "quickstart.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    *_, last = code[-1].splitlines()
    monkeypatch.chdir(tmp_path)
    ended, output = here(lambda: exec("\n".join([*code, f"print({last})"]), {"__name__": "__main__"}))
    assert ended == 0, output
    assert "top-k:30" in output


def test_a_missing_line_is_reported() -> None:
    """White space counts as one space, `...` matches anything; another count or word does not match."""
    step = Step("milco", ("a  0.49...", "...", "b 12 in ... s", "gone"))
    assert missing_lines(step, "warning\n a 0.4973\nb 12 in 3.5 s\n") == ["gone"]
    assert missing_lines(step, "a 0.5012\nb 13 in 3.5 s\ngone\n") == ["a  0.49...", "b 12 in ... s"]


@pytest.mark.parametrize(
    ("line", "like"),
    [
        ("s: 650/650 documents, 31.5 tokens/s, 157.0 terms each, score 54,500, ███ 27.6%, 1:02:03 in all", True),
        ("s: 649/650 documents, 7,140 tokens/s, 159.4 terms each, score 53,907, ██ 27.4%, 7 s in all", False),
        ("s: 650/650 documents, 7,140 tokens/s, 159.4 terms each, score 55,907, ██ 27.4%, 7 s in all", False),
    ],
)
def test_times_may_differ_and_numbers_nearly_match(line: str, like: bool) -> None:
    """Everything else must match, so that a page can show lines as they were printed."""
    shown = "s: 650/650 documents, 7,140 tokens/s, 159.4 terms each, score 53,907, ██ 27.4%, 7 s in all"
    assert is_like(shown, line) is like


def shell_commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of milco, or of a module of experiments or recipes, in commands of a shell block."""
    lines = iter(_VARIABLE.sub("1", text.replace("\\\n", " ")).splitlines())
    for line in lines:
        # A quoted argument may have several lines.
        while line.split("#")[0].count("'") % 2:
            line += next(lines)
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";&|<>()"):
                if arguments := invoked(words):
                    yield arguments
                words = []
            else:
                words.append(word)


def invoked(words: list[str]) -> list[str]:
    """Return the arguments of milco in a command, which torchrun or srun may precede; none for other commands."""
    for place, word in enumerate(words):
        if word == "milco" or (word == "milco_pyserini" and words[place - 1] == "-m"):
            return words[place + 1 :]
        if word.startswith(_PROGRAMS) and words[place - 1] == "-m":
            return words[place:]
    return []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_in_shell_blocks_exist(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Commands of sh blocks are parsed, and not run."""

    parse = parser.parse

    def read_only(*arguments: Any) -> None:
        parse(*arguments)
        raise SystemExit(0)

    monkeypatch.setattr(parser, "parse", read_only)
    for language, text in blocks(page):
        for arguments in shell_commands(text) if language == "sh" else ():
            if arguments[0] == "pyserini":
                assert is_command(arguments[1]), arguments
            else:
                with contextlib.suppress(SystemExit):
                    run_command(arguments)
                    pytest.fail(f"{' '.join(arguments)}\n{capsys.readouterr().err}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_has_a_language(page: Path) -> None:
    """The language decides what is run; Python must parse."""
    for language, text in blocks(page):
        assert language in LANGUAGES, f"{page.name}: {text.splitlines()[0]}"
        if language == "python":
            ast.parse(text)


@pytest.mark.parametrize("page", [*PAGES, INDEX], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_resolve(page: Path) -> None:
    """Relative links point to files and directories of the repository."""
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in link and not link.startswith("#"):
            assert (page.parent / link.partition("#")[0]).exists(), f"{page.name}: {link}"


def test_the_index_lists_every_page() -> None:
    """docs/README.md has a line for each page, and README.md links to it."""
    listed = set(_LINK.findall(INDEX.read_text(encoding="utf-8")))
    assert {page.name for page in PAGES[1:]} <= listed
    assert "docs/README.md" in _LINK.findall(README.read_text(encoding="utf-8"))
