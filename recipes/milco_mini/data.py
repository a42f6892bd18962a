"""Training data of milco-mini: what is read of DATA, and what is held out.

The layout is bitext/SOURCE/LANG-en.tsv.gz, lexicon/SOURCE/LANG-en.tsv.gz and retrieval/SOURCE.LANG.jsonl.gz. Evaluation
data (eval/) is never read, nor are the held-out articles of retrieval/, also not for the vocabulary and for idf.
"""

import gzip
import hashlib
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from milco_pyserini.corpora.bitext import open_bitext
from milco_pyserini.io.files import atomic_directory, atomic_file
from milco_pyserini.train.data.retrieval import RetrievalExample, RetrievalSource, dump_example, open_retrieval

# Shares of the examples of SAP; the rest, ENGLISH_SHARE, is English text as its own translation.
SAP_SHARES = {"bitext": 0.75, "lexicon": 0.15}
ENGLISH_SHARE = 0.1
# Shares of the batches of contrast across languages; the rest are queries with passages.
PARALLEL = {
    "bitext/bible": 0.1,
    "bitext/tico19": 0.14,
    "bitext/mkqa-queries": 0.12,
    "bitext/talpco": 0.02,
    "bitext/tatoeba-anki": 0.14,
    "bitext/wikipedia-indic": 0.06,
    "bitext/python-docs": 0.03,
    "bitext/korean-news": 0.04,
    "lexicon/omw": 0.03,
    "lexicon/wiktionary": 0.03,
    "lexicon/cldr-names": 0.03,
}
# It has the same source as the validation set cmrc2018.
NOT_TRAINED_ON = "cmrc2018dev"
# English sentences per file, queries per set, lines per file whose tokens are counted.
_SENTENCES, _QUERIES, _LINES = 3_000, 8_000, 60_000
# Share of articles, by hash, that are never trained on: passages of one article overlap.
_HELD_OUT = 0.1


def texts(data: Path) -> Iterator[str]:
    """Yield texts of all languages, in which the pieces of the vocabulary occur."""
    for source in open_bitext([data / "bitext", data / "lexicon"]):
        for pair in islice(source.pairs(), _LINES):
            yield f"{pair.text} {pair.english}"
    for _, examples in training_sets(data):
        for example in examples:
            yield f"{example.query} {example.positives[0]}"


def write_english(data: Path, directory: Path, seed: int) -> None:
    """Write en-en.tsv.gz: English sentences of every source, as their own translations."""
    generator, found = random.Random(seed), set[str]()
    for source in open_bitext([data / "bitext"]):
        sentences = [pair.english for pair in source.pairs()]
        found.update(generator.sample(sentences, min(len(sentences), _SENTENCES)))
    lines = sorted(found)
    generator.shuffle(lines)
    with atomic_directory(directory, overwrite=False, is_owned=lambda _: False) as partial:
        text = "".join(f"{line}\t{line}\n" for line in lines)
        (partial / "en-en.tsv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def write_queries(data: Path, directory: Path) -> None:
    """Write NAME.LANG.jsonl.gz of every training set of queries."""
    with atomic_directory(directory, overwrite=False, is_owned=lambda _: False) as partial:
        for source, examples in training_sets(data):
            lines = [dump_example(example) + b"\n" for example in islice(examples, _QUERIES)]
            with atomic_file(partial / Path(source.name).name) as handle:
                handle.write(gzip.compress(b"".join(lines), mtime=0))


def training_sets(data: Path) -> Iterator[tuple[RetrievalSource, Iterator[RetrievalExample]]]:
    """Yield the sets of queries that are trained on, each with its examples, without those that are held out."""
    for path in sorted((data / "retrieval").glob("*.jsonl.gz")):
        if not path.name.startswith(NOT_TRAINED_ON):
            (source,) = open_retrieval([path])
            yield source, filter(is_for_training, source.examples())


def is_for_training(example: RetrievalExample) -> bool:
    """Return whether the example's article is not held out, which is the same for all its passages in all sets.

    An article is named by its title, a passage without a title by its text.
    """
    article = example.title.strip() or example.positives[0]
    digest = hashlib.blake2b(article.encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64 >= _HELD_OUT
