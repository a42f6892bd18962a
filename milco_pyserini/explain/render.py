"""Formatting that terminal and HTML output share, and the Jinja environment of the pages."""

import base64
import hashlib
import re
import shutil
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate
from wcwidth import clip, width, wrap

from milco_pyserini.console import counted, printable

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

# Kana, Hangul, Han: browsers draw a Han character differently in Japanese and in Chinese fonts.
_SCRIPTS = [re.compile(script) for script in ("[\u3040-\u30ff]", "[\uac00-\ud7a3]", "[\u3400-\u9fff]")]
_DETECTED_CHARACTERS = 500


def format_number(value: float, unit: float) -> str:
    """Format a number of an engine: as an integer if the engine computes with impacts (unit != 1), else with 4 digits.

    A number other than 0 is never shown as 0.
    """
    if unit != 1:
        return f"{value:z,.0f}"
    return f"{value:,.4f}" if value == 0 or abs(value) >= 0.00005 else f"{value:.0e}"


def format_exactly(value: float, unit: float) -> str:
    """Format a number as format_number() does, but a balanced score below 1,000 with 4 digits."""
    return format_number(value, unit if abs(value) >= 1000 or float(value).is_integer() else 1)


def format_score(score: float) -> str:
    """Format a score: sums of impacts, and numbers from 1,000, as integers, others with 4 digits."""
    return format_exactly(score, unit=0)


def format_alpha(alpha: float) -> str:
    """Describe the weights of the query's views."""
    return f"alpha {alpha:g}: the query is {alpha:g} x its pivot view + {1 - alpha:g} x its source view"


def terminal_width() -> int:
    """Return the number of columns of the terminal; 100 if stdout is not a terminal."""
    return shutil.get_terminal_size((100, 24)).columns


def wrap_lines(lines: Iterable[str], columns: int, max_lines: int = 6) -> str:
    """Wrap lines to the columns of a terminal, with continuations indented by 4; drop what exceeds max_lines."""
    wrapped: list[str] = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        wrapped += wrap(
            printable(line.strip()),
            max(columns, 20),
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            max_lines=max_lines,
            placeholder=" …",
        ) or [""]
    return "".join(f"{line}\n" for line in wrapped)


def text_table(rows: Sequence[Sequence[str]], headers: Sequence[str], align: str, columns: int) -> str:
    """Lay out a table, indented by 2, that fits the columns of a terminal: the last cell of each row is clipped.

    align: "r" or "l" for each column. Cells of scripts with unknown display widths belong into the last column.
    """
    names = {"r": "right", "l": "left"}
    table = tabulate(
        [[printable(cell) for cell in row] for row in rows],
        headers,
        "plain",
        colalign=[names[side] for side in align],
        disable_numparse=True,
        preserve_whitespace=True,
    )
    lines = [f"  {line}".rstrip() for line in table.split("\n")]
    return "".join(f"{line if width(line) <= columns else clip(line, 0, columns - 1) + '…'}\n" for line in lines)


def language_of(text: str) -> str:
    """Return "ja", "ko" or "zh" for a text mostly in those scripts, so that a browser picks the right font; else ""."""
    start = text[:_DETECTED_CHARACTERS]
    kana, hangul, han = (len(script.findall(start)) for script in _SCRIPTS)
    if 2 * (kana + hangul + han) <= sum(map(str.isalpha, start)):
        return ""
    return "ko" if hangul > kana + han else "ja" if kana else "zh"


@cache
def interfaces() -> dict[str, dict[str, str]]:
    """Return the words of the search pages by language, "en" first: templates/interface.toml."""
    return tomllib.loads((Path(__file__).parent / "templates" / "interface.toml").read_text(encoding="utf-8"))


def accepted_language(languages: Iterable[str], header: str = "") -> str:
    """Return the first of some languages that the pages have, else the best of an Accept-Language header, else "en"."""
    # A region or script after the language does not matter, and a weight of 0 refuses it. No browser's is longer.
    pattern = r"([a-z]+)(?:-[\w-]+)?\s*(?:;\s*q=(\d(?:\.\d*)?))?\s*(?:,|$)"
    weights = [(float(weight or 1), name) for name, weight in re.findall(pattern, header[:500].lower(), re.ASCII)]
    preferred = [name for weight, name in sorted(weights, key=lambda item: -item[0]) if weight > 0]
    return next((name for name in (*languages, *preferred) if name in interfaces()), "en")


@dataclass(frozen=True)
class Interface:
    """The words of a page in one language, as templates call them: ui("found", first=1, last=10, total=112)."""

    language: str
    words: Mapping[str, str]

    def __call__(self, name: str, **values: Any) -> "Markup":
        """Return one of the strings with its values, escaped unless they are markup; integers as number() has them."""
        from markupsafe import escape

        shown = {key: self.number(f"{value:,}") if isinstance(value, int) else value for key, value in values.items()}
        return escape(self.words[name]).format(**shown)

    def number(self, text: str) -> str:
        """Return a formatted number with the separators of the language."""
        return text.translate({ord(","): self.words["thousands"], ord("."): self.words["decimal"]})

    def percent(self, share: float, digits: int = 0) -> str:
        """Return a share as the language writes percents."""
        return self.words["percent"].format(number=self.number(f"{100 * share:.{digits}f}"))


def render(template: str, language: str = "en", **values: Any) -> str:
    """Render a template of this package to HTML in the language of an interface; every value is escaped."""
    return environment().get_template(template).render(ui=Interface(language, interfaces()[language]), **values)


@cache
def environment() -> "Environment":
    """Return the environment of the templates. Autoescape is on: no text becomes markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("milco_pyserini.explain"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": format_number,
        "exactly": format_exactly,
        "alpha": format_alpha,
        "score": format_score,
        "counted": counted,
        "language": language_of,
    }
    return made


@cache
def content_security_policy() -> str:
    """Return the header that allows a page its own script and style, and requests to its own server only."""
    script = environment().get_template("page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
