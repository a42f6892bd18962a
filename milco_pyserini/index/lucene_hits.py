"""Lucene's hits into Python: a thousand of them cross as two arrays of bytes, not one by one.

Crossing one by one takes five times as long as the search itself, and Python's lock. In Java it would be a small
loop; but a Java that only runs has no compiler, and a source tree is no place for a binary. So the loop is put
together from method handles, which Java compiles as it would the source:

    for (ScoreDoc hit : topDocs.scoreDocs) {
        Object[] values = ((FieldDoc) hit).fields;
        scores.writeFloat((float) values[0]);
        BytesRef docid = (BytesRef) values[1];
        docids.write(docid.bytes, docid.offset, docid.length);
        docids.write(0xff);
    }
"""

from typing import Any

import numpy as np

from milco_pyserini.index.protocol import Hits

# No byte of UTF-8, whatever an id may hold.
_END = b"\xff"


class HitReader:
    """Docids and scores of hits that Lucene sorted by score and docid. Several threads may call it at once."""

    def __init__(self) -> None:
        from jnius import autoclass

        self._loop = _Loop().build()
        self._make_bytes = autoclass("java.io.ByteArrayOutputStream")
        self._make_data = autoclass("java.io.DataOutputStream")

    def __call__(self, top_docs: Any) -> Hits:
        """top_docs: a Java TopFieldDocs, whose sort values are the score and the bytes of the docid."""
        scores, docids = self._make_bytes(), self._make_bytes()
        self._loop.invokeWithArguments(top_docs, self._make_data(scores), self._make_data(docids))
        return Hits(
            [docid.decode() for docid in docids.toByteArray().tostring().split(_END)[:-1]],
            np.frombuffer(scores.toByteArray().tostring(), ">f4").astype(np.float32),
        )


class _Loop:
    """The loop above, from the inside out. A comment says what a handle takes; java.lang.invoke has the rest."""

    def __init__(self) -> None:
        from jnius import autoclass

        find = autoclass("java.lang.Class").forName
        # Without what is protected or private, which is most of it.
        self._handles = autoclass("java.lang.invoke.MethodHandles", False, False)
        self._lookup = self._handles.publicLookup()
        self._type = autoclass("java.lang.invoke.MethodType").methodType
        # An object, because pyjnius passes a Python 0 as null where Java takes any object.
        self._integer = autoclass("java.lang.Integer")
        self._int = self._integer.TYPE
        self._float = autoclass("java.lang.Float").TYPE
        self._void = autoclass("java.lang.Void").TYPE
        self._bytes, self._objects = find("[B"), find("[Ljava.lang.Object;")
        self._stream = find("java.io.DataOutputStream")
        self._docid = find("org.apache.lucene.util.BytesRef")
        self._hit = find("org.apache.lucene.search.FieldDoc")
        self._hits = find("[Lorg.apache.lucene.search.ScoreDoc;")
        self._top_docs = find("org.apache.lucene.search.TopDocs")

    def build(self) -> Any:
        """A method handle of (TopDocs, DataOutputStream scores, DataOutputStream docids)."""
        handles = self._handles
        # (scores, docids, values): folding puts a step before those that are there.
        step = self._type(self._void, self._stream, self._stream, self._objects)
        body = handles.permuteArguments(self._write_end(), step, 1)
        body = handles.foldArguments(body, handles.permuteArguments(self._write_docid(), step, 1, 2))
        body = handles.foldArguments(body, handles.permuteArguments(self._write_score(), step, 0, 2))
        # (scores, docids, hits, number), and then in the order that a loop's body must have.
        body = handles.collectArguments(body, 2, self._values())
        order = self._type(self._void, self._int, self._hits, self._stream, self._stream)
        body = handles.permuteArguments(body, order, 2, 3, 1, 0)
        loop = handles.countedLoop(handles.arrayLength(self._hits), None, body)
        return handles.filterArguments(loop, 0, self._lookup.findGetter(self._top_docs, "scoreDocs", self._hits))

    def _values(self) -> Any:
        # (hits, number)
        hit = self._handles.arrayElementGetter(self._hits).asType(self._type(self._hit, self._hits, self._int))
        return self._handles.filterReturnValue(hit, self._lookup.findGetter(self._hit, "fields", self._objects))

    def _value(self, place: int, kind: Any) -> Any:
        # (values)
        get = self._handles.arrayElementGetter(self._objects)
        return self._handles.insertArguments(get, 1, self._integer(place)).asType(self._type(kind, self._objects))

    def _write_score(self) -> Any:
        # (scores, values)
        write = self._lookup.findVirtual(self._stream, "writeFloat", self._type(self._void, self._float))
        return self._handles.filterArguments(write, 1, self._value(0, self._float))

    def _write_docid(self) -> Any:
        # (docids, values)
        signature = self._type(self._void, self._bytes, self._int, self._int)
        fields = (("bytes", self._bytes), ("offset", self._int), ("length", self._int))
        write = self._handles.filterArguments(
            self._lookup.findVirtual(self._stream, "write", signature),
            1,
            *(self._lookup.findGetter(self._docid, name, kind) for name, kind in fields),
        )
        write = self._handles.permuteArguments(write, self._type(self._void, self._stream, self._docid), 0, 1, 1, 1)
        return self._handles.filterArguments(write, 1, self._value(1, self._docid))

    def _write_end(self) -> Any:
        # (docids)
        write = self._lookup.findVirtual(self._stream, "write", self._type(self._void, self._int))
        return self._handles.insertArguments(write, 1, self._integer(_END[0]))
