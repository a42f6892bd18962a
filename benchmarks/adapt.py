"""Hold the word of recipes.adapt against questions that it has never seen, on real documents in several languages.

python benchmarks/adapt.py --data DIR --output adapted
python benchmarks/adapt.py --data DIR --set packages --languages en de fr --output adapted-packages

help: LibreOffice's help. DIR holds the unpacked Debian packages libreoffice-help-en-us, -es, -fi, -id, -ja, -ko, -ru,
    -tr and -vi (apt-get download; dpkg -x FILE.deb DIR). Titles search for their pages. A page is only used in a
    language if seven of ten paragraphs are translated.
packages: descriptions of Debian's packages. DIR holds the files *_i18n_Translation-LANG (apt-get update -o
    Acquire::Languages=de,en,ja,... -o Acquire::GzipIndexes=false). A description's first line searches for its
    paragraphs. A package is only used if it has a description in every language.

--seed splits the pages into halves, the same in all languages. The recipe gets one half, and the pairs of paragraphs
with their English ones; it decides by its gate. On the other half, both models search with titles for pages without
titles, and what is a translation is known. The table has the gate's legs next to these; agreement is that the gate
keeps the model if and only if a leg has gained there, and none has lost. The sample is the same in both.
"""

import html
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import repository  # noqa: F401

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import Document, Query
from milco_pyserini.defaults import MINI
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import ReportTable, render
from milco_pyserini.eval.evaluation import HELD_OUT
from milco_pyserini.eval.known_items import TITLE, KnownItems, fraction
from milco_pyserini.io.files import read_json
from milco_pyserini.io.qrels import Qrels
from milco_pyserini.options import option
from recipes.adapt.__main__ import main as adapt
from recipes.adapt.report import (
    AFTER,
    BEFORE,
    SAMPLE,
    JudgedCollection,
    LegResult,
    Measured,
    have_gained,
    leg_sets,
    search_all,
)
from recipes.adapt.run import MANIFEST, REJECTED

LANGUAGES = ("en", "es", "fi", "id", "ja", "ko", "ru", "tr", "vi")
MODULES = ("swriter/01", "swriter/guide", "scalc/guide", "shared/guide")
FIGURES = ("topics", "before", "after", "low", "high")
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
    languages: tuple[str, ...] = option(LANGUAGES, metavar="LANG", help="languages of the documents")
    pages: int = option(1500, minimum=100, metavar="N", help="pages or packages of a language, at most")
    text_bytes: int = option(_BYTES, minimum=100, metavar="N", help="bytes of a page's text, at most")
    encoder: str = option(MINI, help="checkpoint to adapt")
    steps: int = option(600, minimum=1, help="training steps")
    batch_size: int = option(16, minimum=2, help="queries of a step")
    held_out: float = option(HELD_OUT, metavar="SHARE", above=0, maximum=0.5, help="share that the gate measures on")
    seed: int = option(1, minimum=0, help="of the halves and of the training")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")


@dataclass(frozen=True)
class Page:
    """A page in one language.

    name: the same in all languages. heading: repeats or varies the title. size: bytes of the text.
    """

    name: str
    language: str
    title: str
    paragraphs: list[str]
    heading: str = ""
    size: int = _BYTES

    @property
    def text(self) -> str:
        """The beginning of the paragraphs, without the title."""
        text = beginning(part for part in self.paragraphs if part != self.title)
        return text.encode()[: self.size].decode(errors="ignore")


def beginning(paragraphs: Iterable[str]) -> str:
    """Return as many of the first paragraphs as a passage has."""
    kept, size = [], 0
    for part in paragraphs:
        if part and size < _BYTES:
            kept.append(part)
            size += len(part.encode())
    return "\n".join(kept)


def read_help(data: Path, languages: Sequence[str] = (), modules: Sequence[str] = ()) -> dict[str, dict[str, Page]]:
    """Return language -> name -> page of LibreOffice's help. Raises MilcoError if a language is not there.

    languages: the first is English (default: LANGUAGES). modules: patterns of directories (default: MODULES).
    """
    pages: dict[str, dict[str, Page]] = {}
    for language in languages or LANGUAGES:
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


def read_packages(data: Path, languages: Sequence[str]) -> dict[str, dict[str, Page]]:
    """Return language -> package -> its description, of packages that have one in every language.

    Raises MilcoError if a language has none.
    """
    pages: dict[str, dict[str, Page]] = {}
    for language in languages:
        found = pages[language] = {}
        record = re.compile(rf"^Package: (\S+)\n(?:.+\n)*?Description-{language}: (.*)\n((?: .*\n?)*)", re.MULTILINE)
        for path in sorted(data.glob(f"*Translation-{language}")):
            for name, title, described in record.findall(path.read_text(encoding="utf-8")):
                text = " ".join(line.strip() for line in described.splitlines()).replace(" . ", "\n")
                if len(text) > 10 * _LEAST:
                    found[name] = Page(name, language, title, text.split("\n"))
        if not found:
            raise MilcoError(f"{data} has no file *Translation-{language} with descriptions")
    common = set.intersection(*map(set, pages.values()))
    return {language: {name: found[name] for name in sorted(common)} for language, found in pages.items()}


def chosen_pages(pages: dict[str, dict[str, Page]], most: int, size: int) -> dict[str, dict[str, Page]]:
    """Return at most so many pages of each language, with texts of a size; a page is chosen in all its languages."""
    chosen = {}
    for language, listed in pages.items():
        names = sorted(listed, key=lambda name: fraction("pages", name))[:most]
        chosen[language] = {name: replace(listed[name], size=size) for name in names}
    return chosen


def write_documents(pages: dict[str, dict[str, Page]], directory: Path, seed: int = 1) -> None:
    """Write the training half: docs.jsonl, and pairs/LANG-en.tsv where paragraphs have translations."""
    (directory / "pairs").mkdir(parents=True, exist_ok=True)
    chosen = [page for language in pages.values() for page in language.values() if is_trained(page, seed)]
    with (directory / "docs.jsonl").open("w", encoding="utf-8") as file:
        for page in chosen:
            record = {
                "id": _id(page),
                "title": page.title,
                "text": page.text,
                "lang": page.language,
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    for language in pages.keys() - {"en"}:
        lines: dict[str, None] = {}
        for page in (page for page in pages[language].values() if is_trained(page, seed)):
            english = pages.get("en", {}).get(page.name)
            if english and len(english.paragraphs) == len(page.paragraphs):
                for text, translation in zip(page.paragraphs, english.paragraphs, strict=True):
                    if text != translation and len(translation) > _LEAST:
                        lines[f"{text}\t{translation}\n"] = None
        if lines:
            (directory / "pairs" / f"{language}-en.tsv").write_text("".join(lines), encoding="utf-8")


def is_trained(page: Page, seed: int = 1) -> bool:
    """Return whether a page is in the half that the model is adapted to: the same for all its translations."""
    return fraction("half", seed, page.name) < 0.5


def unseen_items(pages: dict[str, dict[str, Page]], seed: int) -> KnownItems:
    """Return the half that is not trained on: titles search for the page and its translations, without titles."""
    tested = [page for listed in pages.values() for page in listed.values() if not is_trained(page, seed) and page.text]
    documents = [Document(_id(page), "", page.text, {"lang": page.language}) for page in tested]
    counts = Counter((page.language, page.title) for page in tested)
    groups: dict[str, dict[str, int]] = {}
    for page in tested:
        groups.setdefault(page.name, {})[_id(page)] = 1
    topics: list[Query] = []
    qrels: Qrels = {}
    for page in tested:
        if page.title and counts[page.language, page.title] == 1:
            topics.append(Query(f"{page.language}-{TITLE}-{len(topics)}", page.title))
            qrels[topics[-1].id] = groups[page.name]
    return KnownItems(documents, frozenset(document.id for document in documents), 0, 0, topics, qrels)


def command(options: AdaptTrialOptions) -> int:
    """Adapt, measure and print a table. Return the code of the recipe if it fails."""
    read = read_help if options.set == "help" else read_packages
    pages = chosen_pages(read(options.data, options.languages), options.pages, options.text_bytes)
    write_documents(pages, options.output, options.seed)
    model, documents, pairs = (options.output / name for name in ("model", "docs.jsonl", "pairs"))
    parallel = ["--parallel", str(pairs)] if any(pairs.iterdir()) else []
    arguments = [str(documents), "--output", str(model), "--encoder", options.encoder, "--keep-rejected"]
    for name in ("steps", "batch_size", "seed", "held_out", "device"):
        arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    if code := adapt([*arguments, *parallel]):
        return code
    gate = read_json(model / MANIFEST)
    legs = {
        (record["leg"], record["measure"]): LegResult(**{name: record[name] for name in FIGURES})
        for record in gate["legs"]
    }
    made = unseen_items(pages, options.seed)
    collections = [JudgedCollection(made.documents, leg_sets(made))]
    runs = {}
    for system, name in ((BEFORE, options.encoder), (AFTER, str(model if gate["gain"] else model / REJECTED))):
        encoder = MilcoEncoder.from_pretrained(name, device=options.device)
        # Vectors that are there may be those of a model that was deleted.
        shutil.rmtree(options.output / system, ignore_errors=True)
        runs[system] = search_all(encoder, collections, options.output / system, options.batch_size)
    # The sample is the same in both.
    unseen = {leg: found for leg, found in legs.items() if leg[0] == SAMPLE} | Measured(made, collections, runs).legs
    rows = []
    for leg in legs | unseen:
        found = legs.get(leg), unseen.get(leg)
        figures = [getattr(side, name, None) for side in found for name in FIGURES]
        rows.append([*leg, *(side.word if side else "not judged" for side in found), *figures])
    words = ["the model stays" if is_kept else "no model" for is_kept in (gate["gain"], have_gained(unseen))]
    agreement = "they agree" if words[0] == words[1] else "they DISAGREE"
    columns = [f"{side}: {name}" for side in ("gate", "unseen") for name in ("topics", "before", "after", "from", "to")]
    notes = [
        f"gate: {words[0]}; unseen questions: {words[1]}; {agreement}",
        "from, to: 95 % interval of the difference",
    ]
    table = ReportTable(["leg", "measure", "gate", "unseen"], columns, rows, 2 * (0, 3, 3, 3, 3), notes)
    sys.stdout.write(render(table, "markdown"))
    return 0


def _id(page: Page) -> str:
    return f"{page.language}:{page.name}"


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
