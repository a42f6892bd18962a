"""Adapt a model to real documents in nine languages, and measure what that is worth on pages that it has never seen.

python benchmarks/adapt.py --data DIR --output adapted
python benchmarks/adapt.py --data DIR --set packages --output adapted-packages

help: LibreOffice's help. DIR holds the unpacked Debian packages libreoffice-help-en-us, -es, -fi, -id, -ja, -ko, -ru,
    -tr and -vi (apt-get download; dpkg -x FILE.deb DIR). The pages of some modules are split into halves, the same in
    all languages. The recipe gets one half, and the pairs of paragraphs with their English ones. On the other half,
    titles search for their pages, without titles: in their own language, among the pages of that language, and in
    every other language, among the pages of that one.
packages: descriptions of Debian's packages. DIR holds the files *_i18n_Translation-LANG (apt-get update -o
    Acquire::Languages=de,en,ja,... -o Acquire::GzipIndexes=false). A description's first line searches for its
    paragraphs.

A page is only used in a language if seven of ten paragraphs are translated.
"""

import html
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import repository  # noqa: F401

from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import MINI
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import ReportTable, evaluate, render
from milco_pyserini.eval.known_items import fraction
from milco_pyserini.eval.significance import paired_test
from milco_pyserini.options import option
from recipes.adapt.__main__ import main as adapt

LANGUAGES = ("en", "es", "fi", "id", "ja", "ko", "ru", "tr", "vi")
MODULES = ("swriter/01", "swriter/guide", "scalc/guide", "shared/guide")
MEASURE = "nDCG@10"
# Bytes of a page that are searched: what a passage has.
_TRANSLATED, _LEAST, _BYTES = 0.7, 15, 1000
_BODY = re.compile(r'<div id="DisplayArea"[^>]*>(.*)', re.DOTALL)
_PARAGRAPH = re.compile(r"<(?:p|h[1-6])\b[^>]*>(.*?)</(?:p|h[1-6])>", re.DOTALL)
_HEADING = re.compile(r"<h1\b[^>]*>(.*?)</h1>", re.DOTALL)
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)


@dataclass(frozen=True)
class AdaptTrialOptions:
    """Run recipes.adapt on half of some documents, and compare both models on the other half."""

    data: Path = option(metavar="DIR", help="directory with unpacked packages, or with files Translation-LANG")
    output: Path = option(metavar="DIR", help="directory of the documents and the adapted model")
    set: str = option("help", choices=("help", "packages"), help="documents")
    encoder: str = option(MINI, help="checkpoint to adapt")
    steps: int = option(600, minimum=1, help="training steps")
    packages: int = option(1500, minimum=100, metavar="N", help="descriptions of a language, at most")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")


@dataclass(frozen=True)
class Page:
    """A page in one language. name: the same in all languages. heading: repeats or varies the title."""

    name: str
    language: str
    title: str
    paragraphs: list[str]
    heading: str = ""

    @property
    def text(self) -> str:
        """The first paragraphs, without the title."""
        return beginning(part for part in self.paragraphs if part != self.title)


def beginning(paragraphs: Iterable[str]) -> str:
    """Return as many of the first paragraphs as a passage has."""
    kept, size = [], 0
    for part in paragraphs:
        if part and size < _BYTES:
            kept.append(part)
            size += len(part.encode())
    return "\n".join(kept)


def read_help(data: Path, modules: Sequence[str] = ()) -> dict[str, dict[str, Page]]:
    """Return language -> name -> page of LibreOffice's help. Raises MilcoError if a language is not there.

    modules: patterns of directories (default: MODULES).
    """
    pages: dict[str, dict[str, Page]] = {}
    for language in LANGUAGES:
        base = data / "usr/share/libreoffice/help" / ("en-US" if language == "en" else language) / "text"
        if not base.is_dir():
            raise MilcoError(f"{base} does not exist: unpack libreoffice-help-{language} in {data}")
        pages[language] = {}
        for path in sorted(path for module in modules or MODULES for path in base.glob(f"{module}/*.html")):
            text, name = path.read_text(encoding="utf-8"), path.relative_to(base).as_posix()
            body, title = _BODY.search(text), _TITLE.search(text)
            paragraphs = [_plain(part) for part in _PARAGRAPH.findall(body[1])] if body else []
            heading = _HEADING.search(body[1]) if body else None
            page = Page(
                name, language, _plain(title[1]) if title else "", paragraphs, _plain(heading[1]) if heading else ""
            )
            english = pages["en"].get(name)
            if language == "en" or (english and _is_translated(page.paragraphs, english.paragraphs)):
                pages[language][name] = page
    return pages


def read_packages(data: Path, most: int) -> dict[str, dict[str, Page]]:
    """Return language -> package -> its description. Raises MilcoError if there is none."""
    pages: dict[str, dict[str, Page]] = {}
    for path in sorted(data.glob("*Translation-*")):
        language = path.name.rpartition("-")[2]
        found = {}
        for record in path.read_text(encoding="utf-8").split("\n\n"):
            name, description = (
                re.search(r"^Package: (.+)$", record, re.M),
                re.search(r"^Description-\S+: (.*)", record, re.M | re.S),
            )
            if name and description:
                title, *rest = description[1].splitlines()
                text = " ".join(line.strip() for line in rest).replace(" . ", "\n")
                if len(text) > 10 * _LEAST:
                    found[name[1]] = Page(name[1], language, title, text.split("\n"))
        chosen = sorted(found, key=lambda name: fraction("packages", name))[:most]
        pages[language] = {name: found[name] for name in chosen}
    if not pages:
        raise MilcoError(f"{data} has no files Translation-LANG")
    return pages


def write_documents(pages: dict[str, dict[str, Page]], directory: Path) -> None:
    """Write the training half: docs.jsonl, and pairs/LANG-en.tsv where paragraphs have translations."""
    (directory / "pairs").mkdir(parents=True, exist_ok=True)
    chosen = [page for language in pages.values() for page in language.values() if is_trained(page)]
    with (directory / "docs.jsonl").open("w", encoding="utf-8") as file:
        for page in chosen:
            record = {
                "id": f"{page.language}:{page.name}",
                "title": page.title,
                "text": page.text,
                "lang": page.language,
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    for language in pages.keys() - {"en"}:
        lines: dict[str, None] = {}
        for page in (page for page in pages[language].values() if is_trained(page)):
            english = pages.get("en", {}).get(page.name)
            if english and len(english.paragraphs) == len(page.paragraphs):
                for text, translation in zip(page.paragraphs, english.paragraphs, strict=True):
                    if text != translation and len(translation) > _LEAST:
                        lines[f"{text}\t{translation}\n"] = None
        if lines:
            (directory / "pairs" / f"{language}-en.tsv").write_text("".join(lines), encoding="utf-8")


def is_trained(page: Page) -> bool:
    """Return whether a page is in the half that the model is adapted to: the same for all its translations."""
    return fraction("half", page.name) < 0.5


def measure(encoder: MilcoEncoder, pages: dict[str, dict[str, Page]]) -> dict[tuple[str, str], dict[str, float]]:
    """Return (language of titles, language of pages) -> name -> nDCG@10, on the half that is not trained on."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    tested = {
        language: [page for page in listed.values() if not is_trained(page) and page.title and page.text]
        for language, listed in pages.items()
    }
    tested = {language: listed for language, listed in tested.items() if listed}
    queries = {language: encoder.encode_query([page.title for page in listed]) for language, listed in tested.items()}
    for target, listed in tested.items():
        documents, names = encoder.encode_document([page.text for page in listed]), [page.name for page in listed]
        for source in tested:
            rows = encoder.similarity(queries[source], documents)
            run = {
                page.name: dict(zip(names, map(float, row), strict=True))
                for page, row in zip(tested[source], rows, strict=True)
                if page.name in names
            }
            if run:
                qrels = {name: {name: 1} for name in run}
                found[source, target] = evaluate(run, qrels, [MEASURE]).per_query[MEASURE]
    return found


def command(options: AdaptTrialOptions) -> int:
    """Adapt, measure and print a table. Return the code of the recipe if it fails."""
    pages = read_help(options.data) if options.set == "help" else read_packages(options.data, options.packages)
    write_documents(pages, options.output)
    model, documents, pairs = (options.output / name for name in ("model", "docs.jsonl", "pairs"))
    parallel = ["--parallel", str(pairs)] if any(pairs.iterdir()) else []
    arguments = [str(documents), "--output", str(model), "--encoder", options.encoder]
    arguments += ["--steps", str(options.steps), "--device", options.device, *parallel]
    if code := adapt(arguments):
        return code
    if not (model / "config.json").is_file():
        return 0
    results = [
        measure(MilcoEncoder.from_pretrained(name, device=options.device), pages)
        for name in (options.encoder, str(model))
    ]
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for source, target in results[0]:
        groups[f"{source}, own language" if source == target else f"{source}, other languages"].append((source, target))
        groups["all, own language" if source == target else "all, other languages"].append((source, target))
    rows: list[list[Any]] = []
    p_values = {}
    for name, pairs_of in sorted(groups.items()):
        before, after = ([value for pair in pairs_of for value in result[pair].values()] for result in results)
        p_values[len(rows), 2] = paired_test("t", before, after)
        rows.append([name, len(before), fmean(before), fmean(after)])
    notes = [f"{MEASURE}; * differs from before: paired t-test, p < 0.05, not corrected"]
    table = ReportTable(["titles"], ["searches", "before", "after"], rows, (0, 3, 3), notes, p_values)
    sys.stdout.write(render(table, "markdown"))
    return 0


def _plain(text: str) -> str:
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text))).strip()


def _is_translated(texts: Sequence[str], english: Sequence[str]) -> bool:
    same = sum(text == other for text, other in zip(texts, english, strict=False))
    return bool(texts) and len(texts) == len(english) and same <= (1 - _TRANSLATED) * len(texts)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command("benchmarks/adapt.py", AdaptTrialOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
