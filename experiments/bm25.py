"""python -m experiments.bm25: the paper's BM25 baseline, by Anserini's analyzers or on the tokens of a tokenizer.

Anserini's SimpleIndexer and SimpleSearcher are called without Pyserini's wrappers, whose analyzers differ for some
languages: LuceneIndexer uses the English one for Yoruba, where LuceneSearcher splits at white space.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from milco_pyserini.cli import program
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, log
from milco_pyserini.corpora import Document, open_corpus, open_topics
from milco_pyserini.encode.analyzers import WHITE_SPACE, find_analyzer
from milco_pyserini.encode.bm25 import K1, B
from milco_pyserini.index import Hits
from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.runs import write_hits
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.tokenization import replace_lone_surrogates
from milco_pyserini.options import MAX_THREADS, option

PROG = "python -m experiments.bm25"
_CHUNK = 1000


@dataclass(frozen=True)
class Bm25Options:
    """Index a corpus in a temporary directory, and search for topics by BM25 (k1 = 0.9, b = 0.4).

    python -m experiments.bm25 --corpus sample-sw --language sw --topics sample-sw --output runs/bm25.txt
    """

    corpus: str = option(metavar="NAME|PATH", help="documents")
    topics: str = option(metavar="NAME|PATH", help="queries")
    output: Path = option(metavar="RUN", help="TREC run to write")
    language: str | None = option(None, metavar="CODE", help="language of Anserini's analyzer, such as ar")
    tokenizer: str | None = option(None, metavar="NAME|DIR", help="checkpoint whose tokens are words of any language")
    k: int = option(1000, minimum=1, help="documents per topic")
    remove_query: bool = option(False, help="leave out the document with the topic's id")
    threads: int = option(1, minimum=1, maximum=MAX_THREADS, help="threads that index")

    def conflicts(self) -> Iterator[str]:
        """Yield messages about options that exclude each other."""
        if (self.language is None) == (self.tokenizer is None):
            yield "give one of --language and --tokenizer"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 2 for bad input, 130 for Ctrl-C."""
    return run_command(PROG, Bm25Options, bm25_command, argv, "nothing was written")


def bm25_command(options: Bm25Options) -> None:
    """Write the run."""
    topics = list(open_topics(options.topics))
    words = Words(options.language, options.tokenizer)
    rankings = bm25_hits(
        open_corpus(options.corpus), [topic.text for topic in topics], words, options.k, options.threads
    )
    with atomic_file(options.output, "w") as file:
        for topic, hits in zip(topics, rankings, strict=True):
            if options.remove_query:
                kept = [place for place, docid in enumerate(hits.docids) if docid != topic.id]
                hits = Hits([hits.docids[place] for place in kept], hits.scores[kept])
            write_hits(file, topic.id, hits, "trec", "bm25")
    log(f"Searched {options.corpus} by BM25 into {options.output}: {counted(len(topics), 'topic')}")


class Words:
    """How texts are split into words: by Anserini's analyzer for a language, or into the tokens of a checkpoint.

    Raises MilcoError, with the valid codes, if Anserini has no analyzer, or if this Java cannot split the language.
    """

    def __init__(self, language: str | None, tokenizer: str | None = None) -> None:
        # Numbers of tokens are split at white space, as the words of some languages.
        at_spaces = language is None or language in WHITE_SPACE
        self.analyzer = find_analyzer(language or WHITE_SPACE[0])
        self.arguments = ["-pretokenized"] if at_spaces else ["-language", str(language)]
        self._tokenizer = Checkpoint.open(tokenizer).fetch().tokenizer if tokenizer else None

    def __call__(self, texts: Sequence[str]) -> list[str]:
        """Return texts as they are, or as the ids of their tokens."""
        if self._tokenizer is None:
            return list(map(replace_lone_surrogates, texts))
        special = set(self._tokenizer.special_ids)
        return [" ".join(str(token) for token in ids if token not in special) for ids in self._tokenizer.ids(texts)]


def bm25_hits(
    documents: Iterable[Document], texts: Sequence[str], words: Words, k: int, threads: int = 1
) -> list[Hits]:
    """Return the k best documents of each text; ties by docid. Scores have four digits, as Anserini's."""
    from jnius import autoclass

    make = autoclass("io.anserini.collection.JsonCollection$Document").fromFields
    with tempfile.TemporaryDirectory() as directory:
        arguments = ["-input", "", "-collection", "JsonCollection", "-index", directory, "-threads", str(threads)]
        indexer: Any = autoclass("io.anserini.index.SimpleIndexer")([*arguments, *words.arguments])
        stream = iter(documents)
        while chunk := list(islice(stream, _CHUNK)):
            pairs = zip(chunk, words([document.contents for document in chunk]), strict=True)
            # Anserini refuses documents that have only spaces and control characters.
            filled = [make(document.id, text) for document, text in pairs if any(letter > " " for letter in text)]
            indexer.addJsonDocuments(filled)
        indexer.close()
        searcher: Any = autoclass("io.anserini.search.SimpleSearcher")(directory)
        searcher.set_analyzer(words.analyzer)
        searcher.set_bm25(K1, B)
        # A query has as many clauses as words.
        autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(2**31 - 1)
        rankings = [searcher.search(text, k) for text in words(texts)]
        searcher.close()
    return [
        Hits([hit.docid for hit in ranking], np.array([hit.score for hit in ranking], np.float32))
        for ranking in rankings
    ]


if __name__ == "__main__":
    raise SystemExit(program.start(main, PROG))
