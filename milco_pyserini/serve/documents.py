"""The documents of a server's index, for many lookups."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence

from milco_pyserini.console import Progress
from milco_pyserini.corpora import Corpus, Document
from milco_pyserini.corpora.records import PASSAGE_DELIMITER


class CachedDocuments:
    """All documents of a corpus in a temporary database, which is removed by close(), or with the process.

    One thread may use it at a time, which need not be the one that created it.

    Args:
        passages: Docids are those of passages, ID#0, ID#1, ...: their document is found.
    """

    def __init__(self, corpus: Corpus, passages: bool = False) -> None:
        self._passages = passages
        # A database without a name is SQLite's own temporary file.
        self._database = sqlite3.connect("", check_same_thread=False)
        self._database.execute("CREATE TABLE documents (id TEXT PRIMARY KEY, contents BLOB) WITHOUT ROWID")
        progress = Progress("documents")

        def rows() -> Iterator[tuple[str, bytes]]:
            for document in corpus:
                yield document.id, document.contents.encode("utf-8", "surrogatepass")
                progress.add(1)

        self._database.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?)", rows())
        self._database.commit()
        progress.close(f"Read {corpus.name}")

    def find(self, docids: Sequence[str]) -> Mapping[str, Document]:
        """Return the documents of those docids that the corpus has."""
        found = {}
        for docid in docids:
            name, _, number = docid.rpartition(PASSAGE_DELIMITER)
            name = name if self._passages and number.isdecimal() else docid
            row = self._database.execute("SELECT contents FROM documents WHERE id = ?", (name,)).fetchone()
            if row is not None:
                found[docid] = Document(name, "", row[0].decode("utf-8", "surrogatepass"))
        return found

    def close(self) -> None:
        """Remove the database."""
        self._database.close()
