"""The project's wording: words that its glossary (docs/glossary.md) replaces do not occur in code and documentation."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BANNED = re.compile(
    r"\b(whole|said|says?|told|tells|stands?(?! for)|stood|lies|at hand|of ours|beside|the road|house|rooms|"
    r"kept all the same|goes on|going on|left away|judgements?|licences?|colours?|tokenis\w+|"
    r"normalis\w+|optimis\w+|initialis\w+|whole numbers?)\b",
    re.IGNORECASE,
)
CODE = sorted(
    path
    for name in ("milco_pyserini", "recipes", "benchmarks", "experiments", "tests")
    for path in (ROOT / name).rglob("*.py")
)
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring and comment of a file, and of each message of the package."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from enumerate(source.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            yield getattr(node, "lineno", 1), f"{getattr(node, 'name', '').replace('_', ' ')} {ast.get_docstring(node)}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "milco_pyserini" in path.parts:
            # One word is data or a key, several are a message or a help text.
            yield (node.lineno, node.value) if " " in node.value.strip() else (node.lineno, "")


@pytest.mark.parametrize("path", [*CODE, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_uses_the_words_of_the_glossary(path: Path) -> None:
    """One word for one thing, the word that the field uses."""
    found = [f"{line}: {match[0]}" for line, text in prose(path) for match in BANNED.finditer(text)]
    assert not found, f"{path.relative_to(ROOT)}: {'; '.join(found)}"
