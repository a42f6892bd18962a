"""milco keywords: English words of any text as a query of another engine, or searched in a BM25 index."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from milco_pyserini.cli.parser import run_command
from milco_pyserini.cli.runs import make_record
from milco_pyserini.console import Progress, counted, log
from milco_pyserini.defaults import DEFAULT_ENCODER, RUNS, directory_name
from milco_pyserini.errors import MilcoError, ParameterError, shown
from milco_pyserini.io.files import STDOUT, text_output, validate_output_file
from milco_pyserini.keywords.english_index import K1, B, EnglishIndex
from milco_pyserini.keywords.extraction import keywords
from milco_pyserini.keywords.queries import FIELD, QUERY_LANGUAGES, write_query
from milco_pyserini.options import DeviceOptions, one_of, option

_TOP_K = 10
_BATCH = 64
_INDEX = "BM25 index"
# The format of a corpus, whose documents get this field.
_DOCUMENTS, _FIELD = "documents", "keywords_en"


@dataclass(frozen=True)
class KeywordsOptions(DeviceOptions):
    """Write weighted English words of texts in any language, in the query language of an engine that knows only words.

    With --index, a BM25 index of English texts, as Anserini builds it, is searched for the words.

      milco keywords "Wer entdeckte das Penicillin?" --encoder mini --format fts5
      milco keywords --topics sample-sw --encoder mini --format lucene --output topics.tsv
      milco keywords --topics sample-sw --encoder mini --index indexes/english --output run.txt
    """

    text: str | None = option(None, positional=True, metavar="TEXT", help="a text in any language")
    topics: str | None = option(None, metavar="NAME|FILE", help="topics in place of TEXT")
    corpus: str | None = option(None, metavar="NAME|PATH", excludes=("index",), help="documents in place of TEXT")
    top_k: int | None = option(
        None, minimum=1, metavar="K", help=f"words of a text (default: {_TOP_K}; all with --index)"
    )
    words: Path | None = option(None, metavar="FILE", help="words of the collection, into which pieces are joined")
    format: str = option(
        "tsv",
        choices=(*QUERY_LANGUAGES, _DOCUMENTS),
        excludes=("index",),
        help=f"query language; or the documents of --corpus with the field {_FIELD}",
    )
    field: str = option(FIELD, metavar="NAME", excludes=("index",), help="field that query_string and bool search")
    output: Path | None = option(
        None, metavar="FILE", excludes=("text",), help="file (default: stdout; with --index, runs/INDEX.TOPICS.txt)"
    )
    overwrite: bool = option(False, requires="output", help="replace an existing file at --output")
    encoder: str = option(DEFAULT_ENCODER, group="encoder", metavar="NAME|DIR", help="encoder with English terms")
    index: Path | None = option(None, group=_INDEX, metavar="DIR", help="BM25 index of English texts to search")
    k: int | None = option(
        None, group=_INDEX, minimum=1, names=("--hits",), requires="index", help="documents (default: 10; topics 1000)"
    )
    k1: float = option(K1, group=_INDEX, minimum=0, requires="index", help="how soon repetitions count less")
    b: float = option(B, group=_INDEX, minimum=0, maximum=1, requires="index", help="how much length counts")
    tag: str | None = option(None, group=_INDEX, requires="index", help="last column of the run")

    def conflicts(self) -> Iterator[MilcoError]:
        """Yield an error unless there is one source of texts, and for a blank one."""
        yield from one_of(self, "text", "topics", "corpus")
        if self.text is not None and not self.text.strip():
            yield ParameterError("text", None, "is empty")
        if self.format == _DOCUMENTS and self.corpus is None:
            yield ParameterError("format", _DOCUMENTS, "needs documents", "Give --corpus.")


def command(options: KeywordsOptions) -> None:
    """Write keywords or hits. Raises MilcoError before the encoder is loaded if something does not fit."""
    from milco_pyserini.corpora import open_corpus, open_topics
    from milco_pyserini.encode.opening import load_encoder
    from milco_pyserini.io.lines import numbered_lines
    from milco_pyserini.io.runs import validate_run_output

    output = options.output or STDOUT
    if options.index is not None and options.topics is not None:
        output = options.output or RUNS / f"{options.index.resolve().name}.{directory_name(options.topics)}.txt"
        validate_run_output(output, options.overwrite, options.tag)
    elif output != STDOUT:
        validate_output_file(output, options.overwrite)
    name = options.topics or options.corpus
    records = name and (open_topics if options.topics else open_corpus)(name)
    words = (
        [str(line, "utf-8", "replace").strip() for _, line in numbered_lines(options.words)] if options.words else ()
    )
    with EnglishIndex(options.index, options.k1, options.b) if options.index else nullcontext() as index:
        if index and records:
            records.check()
        top_k = options.top_k if index else options.top_k or _TOP_K
        encoder = load_encoder(options.encoder, options.device, options.dtype)
        find = partial(keywords, encoder, top_k=top_k, documents=options.corpus is not None, words=words)
        if records:
            _write(options, output, records, find, index)
        else:
            _answer(options, find, index)


def _answer(options: KeywordsOptions, find: partial, index: EnglishIndex | None) -> None:
    """Print the keywords of one text, or its hits. Raises MilcoError if it has none."""
    text = options.text or ""
    (found,) = find(text)
    if not found:
        raise MilcoError(f"{shown(text)} has no words: give a text with letters or digits")
    if index is None:
        sys.stdout.write(write_query(found, options.format, options.field) + "\n")
        return
    hits = index.search(found, options.k or 10)
    for rank, (docid, score) in enumerate(zip(hits.docids, hits.scores, strict=True), 1):
        sys.stdout.write(f"{rank:>4} {score:>9.4f} {docid}\n")


def _write(
    options: KeywordsOptions, output: Path, records: Iterable[Any], find: partial, index: EnglishIndex | None
) -> None:
    """Write the keywords of topics or documents, lines that begin with the id, or a run; texts without are left out."""
    from milco_pyserini.corpora.records import document_line, encoded_text
    from milco_pyserini.io.runs import run_output, write_hits
    from milco_pyserini.search.topics import SearchTopics

    topics = None
    if index:
        records = list(records)
        ids, texts = [record.id for record in records], [record.text for record in records]
        topics = SearchTopics(ids, texts, name=options.topics or "").record()
    about = make_record(options, "keywords", topics=topics)
    empty, progress, stream = 0, Progress("texts"), iter(records)
    with run_output(output, about) if index else text_output(output) as file:
        while batch := list(islice(stream, _BATCH)):
            for record, found in zip(batch, find(list(map(encoded_text, batch))), strict=True):
                empty += not found
                if index and found:
                    write_hits(file, record.id, index.search(found, options.k or 1000), "trec", about.tag)
                elif options.format == _DOCUMENTS:
                    if _FIELD in record.fields:
                        raise MilcoError(
                            f"document {shown(record.id)} has a field {_FIELD} already: rename or remove it"
                        )
                    words = {_FIELD: write_query(found, "words")} if found else {}
                    file.write(document_line(replace(record, fields={**record.fields, **words})) + "\n")
                elif found and options.format == "json":
                    file.write(f'{{"id": {json.dumps(record.id)}, "keywords": {write_query(found, "json")}}}\n')
                elif found:
                    query = write_query(found, options.format, options.field)
                    file.writelines(f"{record.id}\t{line}\n" for line in query.split("\n"))
            progress.add(len(batch))
    progress.close(f"Searched {options.index} into {output}" if index else "Found keywords")
    if empty:
        log(f"{counted(empty, 'text')} without words, " + ("unchanged" if options.format == _DOCUMENTS else "left out"))


main = partial(run_command, "milco keywords", KeywordsOptions, command, interrupted="nothing was written")
