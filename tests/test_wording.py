"""The project's wording: words that its glossary (docs/glossary.md) replaces, and sentences without subject and verb.

Words are looked for in every line of the pages, in docstrings, comments and messages; sentences in their paragraphs.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
BANNED = re.compile(
    r"\b(whole|said|says?|told|tells|stands?(?! for)|stood|lies|at hand|of ours|beside|the road|house|rooms|"
    r"kept all the same|goes on|going on|left away|judgements?|licences?|colours?|tokenis\w+|"
    r"normalis\w+|optimis\w+|initialis\w+|whole numbers?)\b",
    re.IGNORECASE,
)
# Openings of a sentence that put a fragment or a relative clause in the place of its subject; questions may begin with
# What. "There is no X" and "is no longer" are good English, "X is no Y" is not.
TURNS = re.compile(
    r"""(?:^|(?<=[.!?]\ ))\*{0,2}(?:Of\ (?!course\b|\d)|Those\b|That\ (?:of|which)\b|In\ place\ of\b
    |(?:Whose|Whoever|What|(?:By|In|Of|With)\ which)\b(?![^.!?]*\?))
    |(?<![Tt]here\ )\b(?:is|are|was|were)\ no\ (?!(?:longer|more|such|better|other|less|fewer|further)\b)(?=[a-z])
    |\b(?:[Tt]hat|[Tt]hose)\ of\ (?:which|them|since)\b
    |\b[Tt]hose\ \w+\ (?:that|whose|of\ which)\b
    |\bif\ (?:it|they)\ (?:is|are)\ none\b""",
    re.VERBOSE,
)
CODE = sorted(
    path
    for name in ("milco_pyserini", "recipes", "benchmarks", "experiments", "tests")
    for path in (ROOT / name).rglob("*.py")
)
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]


class Prose(NamedTuple):
    """A line of a page, or a name, docstring, comment line or message of a Python file."""

    kind: str
    line: int
    text: str


@cache
def prose(path: Path) -> tuple[Prose, ...]:
    """Return the lines of a page, or the prose of a Python file, with the messages of the package."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return tuple(Prose("line", line, text) for line, text in enumerate(source.splitlines(), 1))
    found = [
        Prose("comment", token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            line, docstring = getattr(node, "lineno", 1), ast.get_docstring(node)
            found.append(Prose("name", line, getattr(node, "name", "").replace("_", " ")))
            found += [Prose("docstring", line, docstring)] if docstring else []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "milco_pyserini" in path.parts:
            # One word is data or a key, several are a message or a help text.
            found += [Prose("message", node.lineno, node.value)] if " " in node.value.strip() else []
    return tuple(found)


@pytest.mark.parametrize("path", [*CODE, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_uses_the_words_of_the_glossary(path: Path) -> None:
    """One word for one thing, the word that the field uses."""
    found = [f"{line}: {match[0]}" for _, line, text in prose(path) for match in BANNED.finditer(text)]
    assert not found, f"{path.relative_to(ROOT)}: {'; '.join(found)}"


def paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each paragraph, item, cell and argument of prose(), without headings and code."""
    comment, start, last, is_code = "", 0, 0, False
    for kind, line, text in prose(path):
        if kind in ("docstring", "message"):
            yield from ((line, part) for part in re.split(r"\n\s*\n|\n(?=\s+[\w*][\w*, ]*: )", text))
        if kind not in ("comment", "line"):
            continue
        text = text.strip()
        is_fence = text.startswith("```")
        is_code ^= is_fence
        begins = kind == "line" and (not text or re.match(r"[-*#|] |\d+\. ", text) is not None)
        if is_code or is_fence or begins or line != last + 1:
            yield start, comment
            comment, start = "", line
        is_prose = not (is_code or is_fence or (kind == "line" and text.startswith("#")))
        comment, last = f"{comment} {text.lstrip('#: ') if is_prose else ''}", line
    yield start, comment


@pytest.mark.parametrize("path", [*CODE, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_have_a_subject_and_a_verb(path: Path) -> None:
    """Subject, verb, object; one fact a sentence."""
    found = [
        f"{line}: {match[0]!r} in {text[max(0, match.start() - 20) : match.end() + 60]!r}"
        for line, paragraph in paragraphs(path)
        for text in re.split(
            r" \| ", " ".join(re.sub(r"^\s*([\w*][\w*, ]*:|[-*|]|\d+\.) (?=[A-Z])", "", paragraph).split())
        )
        for match in TURNS.finditer(text)
    ]
    assert not found, f"{path.relative_to(ROOT)}: {'; '.join(found)}"


@pytest.mark.parametrize("path", [path for path in CODE if "milco_pyserini" in path.parts[len(ROOT.parts) :]], ids=str)
def test_a_docstring_begins_with_its_thing_or_a_verb(path: Path) -> None:
    """The first word is not a pronoun or a conjunction: 'True if it is open', not 'Whether it is open'."""
    riddles = ("As", "That", "Those", "What", "Where", "Whether", "Which", "Who")
    found = [
        f"{line}: {text}"
        for kind, line, text in prose(path)
        if kind == "docstring" and text.startswith(tuple(f"{word} " for word in riddles))
    ]
    assert not found, "; ".join(found)


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        ("Of a field with more values, no range is found.", False),
        ("Read them. Those of a shard have a directory.", False),
        ("What the network says of a batch.", False),
        ("In place of its text, a passage names another.", False),
        ("A lone surrogate is no character.", False),
        ("Return those documents that the index has.", False),
        ("Of course. Of 182 checkpoints 40 were accepted.", True),
        ("What does a score mean? There is no model, and it is no longer needed.", True),
        ("Fields with more values support neither counts nor ranges.", True),
    ],
)
def test_good_english_passes(text: str, is_good: bool) -> None:
    """The patterns find the habit and nothing else."""
    assert (TURNS.search(text) is None) is is_good
