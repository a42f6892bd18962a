"""Encoders with Pyserini's interface (versions 1.6 and 2): texts to {term: impact}."""

import copy
import os
from collections.abc import Sequence
from typing import Any, Self

from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode.encoder import MilcoEncoder, as_texts
from milco_pyserini.encode.opening import open_encoder
from milco_pyserini.errors import Message, MilcoError, ParameterError
from milco_pyserini.io.records import StoreManifest
from milco_pyserini.model.checkpoint import ST, Checkpoint
from milco_pyserini.model.tokenization import TextTokenizer, hash_tokenizers
from milco_pyserini.options import validate_number
from milco_pyserini.request import SearchRequest
from milco_pyserini.sparse import PIVOT, VIEWS, SparseBatch, Vocabulary
from milco_pyserini.sparse.quantization import SCALE, quantize_vector, quantized_vectors, validate_scale

__all__ = ["MilcoDocumentEncoder", "MilcoQueryEncoder"]

# A name or path, an opened checkpoint, or a loaded encoder.
GivenEncoder = str | os.PathLike | Checkpoint | MilcoEncoder


def as_encoder(
    encoder: GivenEncoder, device: str = "auto", dtype: str = "auto", english_prefix: str = ""
) -> MilcoEncoder:
    """Open an encoder, or return one that is open. Raises MilcoError if an option is given for one that is open."""
    if not isinstance(encoder, MilcoEncoder):
        return open_encoder(Checkpoint.open(encoder), device, dtype, english_prefix)
    for name, value, default in (
        *(("device", device, "auto"), ("dtype", dtype, "auto")),
        ("english_prefix", english_prefix, encoder.vocabulary.english_prefix),
    ):
        if value not in ("", default):
            raise ParameterError(name, value, f"encoder {encoder.name} is loaded already, with its own {name}")
    return encoder


class _PyseriniEncoder:
    """An encoder with the options of its vectors: length, views, lowercasing, scale of the impacts."""

    _default_length = "passage_max_length"

    def __init__(
        self,
        encoder: GivenEncoder = DEFAULT_ENCODER,
        device: str = "auto",
        dtype: str = "auto",
        scale: float = SCALE,
        max_length: int | None = None,
        views: str | Sequence[str] | None = None,
        lowercase: bool = False,
        english_prefix: str = "",
    ) -> None:
        validate_scale(scale)
        self.encoder = encoder = as_encoder(encoder, device, dtype, english_prefix)
        self.scale = scale
        self.max_length = getattr(encoder.config, self._default_length) if max_length is None else max_length
        encoder.network.validate_length(self.max_length)
        self.views = encoder.network.resolve_views(views)
        self.lowercase = lowercase

    def _encode(self, encoder: MilcoEncoder, texts: Sequence[str], max_length: int | None) -> SparseBatch:
        return encoder.encode(
            texts, max_length=max_length or self.max_length, views=self.views, lowercase=self.lowercase
        )


class MilcoDocumentEncoder(_PyseriniEncoder):
    """Pyserini's document encoder: texts to {term: impact}, impact = round(weight x scale) >= 1.

    >>> from milco_pyserini.encode.contract import MilcoDocumentEncoder
    >>> encoder = MilcoDocumentEncoder("mini")
    >>> vectors = encoder.encode(["The Nile is a river."], titles=["Nile"])

    Args:
        encoder: what load_encoder() accepts or returns.
        device, dtype, english_prefix: as for load_encoder().
        scale: factor from weights to impacts.
        max_length: in tokens (default: the checkpoint's passage length).
        views, lowercase: as for MilcoEncoder.encode().

    Raises:
        MilcoError: as load_encoder() does; scale, max_length or views are not possible.
    """

    def encode(
        self,
        texts: str | Sequence[str | None],
        titles: str | Sequence[str | None] | None = None,
        max_length: int | None = None,
        **_: Any,
    ) -> list[dict[str, int]]:
        """Return the impacts of each text's terms; a title is put before its text.

        Args:
            texts: a str is one text, as for Pyserini's encoders; None is an empty field.
            titles: as many as texts; None for none.
            max_length: None or 0 for the encoder's own.

        Further arguments of Pyserini's callers (fp16, add_sep) have no effect.
        """
        if isinstance(texts, list | tuple):
            texts = ["" if text is None else text for text in texts]
        contents = as_texts(texts)  # type: ignore[arg-type]
        if titles is not None:
            titles = [titles] if isinstance(titles, str) else titles
            if len(titles) != len(contents):
                raise MilcoError(
                    f"{len(titles):,} titles for {len(contents):,} texts: give one title, or None, per text"
                )
            contents = [f"{title} {text}" if title else text for title, text in zip(titles, contents, strict=True)]
        vectors = self._encode(self.encoder, contents, max_length)
        return list(quantized_vectors(vectors, self.scale, self.encoder.vocabulary.terms))


class MilcoQueryEncoder(_PyseriniEncoder):
    """Pyserini's query encoder: one text to {term: impact}.

    >>> from milco_pyserini.encode.contract import MilcoQueryEncoder
    >>> encoder = MilcoQueryEncoder("mini")
    >>> impacts = encoder.encode("Wer erfand das Telefon?")

    Pass it to Pyserini as LuceneImpactSearcher(index, encoder, min_idf=-1). Arguments as for MilcoDocumentEncoder, but
    max_length defaults to the checkpoint's query length.
    """

    _default_length = "query_max_length"
    alpha: float | None = None

    def with_alpha(self, alpha: float | None) -> Self:
        """Return the same encoder with weighted views: alpha x pivot + (1 - alpha) x source; None for both as they are.

        Raises MilcoError unless alpha is in [0, 1] and queries have two views.
        """
        if alpha is not None:
            validate_number("alpha", alpha, 0, 1)
            if len(self.views) < 2:
                only = "this encoder only has" if len(self.encoder.views) < 2 else "this search only uses"
                raise ParameterError("alpha", alpha, f"it weighs two views, but {only} the {self.views[0]} view")
        other = copy.copy(self)
        other.alpha = alpha
        return other

    def with_views(self, views: Sequence[str]) -> Self:
        """Return the same encoder for fewer views of its own; a single view has no alpha.

        Raises MilcoError for a view that the encoder or its index lacks.
        """
        other = copy.copy(self)
        other.views = self.encoder.network.resolve_views(views)
        for view in other.views:
            if view not in self.views:
                raise ParameterError("views", view, f"the documents only have the {self.views[0]} view")
        other.alpha = self.alpha if len(other.views) > 1 else None
        return other

    def of_request(self, request: SearchRequest) -> Self:
        """Return the same encoder with the views and alpha of a request. Raises MilcoError as the other two do."""
        encoder = self.with_views(request.views) if request.views else self
        return encoder if request.alpha is None else encoder.with_alpha(request.alpha)

    def encode(self, text: str, max_length: int | None = None, **_: Any) -> dict[str, int]:
        """Return the impacts of one query's terms. max_length: None or 0 for the encoder's own."""
        return quantize_vector(self._vectors([text], max_length).to_dicts()[0], self.scale)

    def encode_batch(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """Return the float weights of the terms of several queries, for searchers that quantize themselves."""
        return self._vectors(texts, None).to_dicts()

    def _vectors(self, texts: Sequence[str], max_length: int | None) -> SparseBatch:
        encoder = self.encoder.query_encoder
        batch = encoder.network.limit_terms(self._encode(encoder, texts, max_length), is_query=True)
        return batch if self.alpha is None else batch.weighted(self.alpha)


def open_query_encoder(
    manifest: StoreManifest, encoder: GivenEncoder | None = None, device: str = "auto", dtype: str = "auto"
) -> MilcoQueryEncoder:
    """Return the encoder of the vectors of a manifest for queries: same weights, views and prefix.

    encoder: the current path of the manifest's encoder, or the loaded encoder; required for external vectors. Raises
    MilcoError if it is missing, or if its weights, tokenizer or prefix are not those that encoded the vectors.
    """
    loaded = encoder or manifest.encoder
    if loaded is None:
        fix = Message("Pass {encoder} to encode the queries.")
        raise MilcoError("these are external vectors, whose encoder is not known", fix)
    if not isinstance(loaded, MilcoEncoder):
        loaded = open_encoder(Checkpoint.open(loaded), device, dtype, manifest.english_prefix or "")
    validate_encoder(loaded, manifest)
    prefix = manifest.english_prefix
    # External vectors do not state theirs.
    if prefix not in (None, loaded.vocabulary.english_prefix):
        raise MilcoError(
            f"encoder {loaded.name!r} was loaded with english_prefix {loaded.vocabulary.english_prefix!r}, but the "
            f"vectors were encoded with {prefix!r}",
            Message("Load it with {english_prefix}.", english_prefix=prefix),
        )
    return MilcoQueryEncoder(loaded, scale=manifest.scale, views=manifest.views, lowercase=bool(manifest.lowercase))


def open_english_query_encoder(
    manifest: StoreManifest,
    query_encoder: GivenEncoder,
    encoder: str | os.PathLike | MilcoEncoder | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> MilcoQueryEncoder:
    """Return another encoder for queries to the English terms of the vectors of a manifest, such as an English SPLADE.

    Its pivot terms get the prefix of the vectors, and its impacts their scale; it has no other view. encoder: that of
    the vectors, as for open_query_encoder(). Raises MilcoError as validate_english_terms().
    """
    if not isinstance(query_encoder, MilcoEncoder):
        query_encoder = open_encoder(Checkpoint.open(query_encoder), device, dtype, manifest.english_prefix or "")
    validate_english_terms(query_encoder.vocabulary, query_encoder.name, manifest, encoder)
    return MilcoQueryEncoder(query_encoder, scale=manifest.scale, views=PIVOT)


def validate_english_terms(
    vocabulary: Vocabulary,
    name: str | os.PathLike,
    manifest: StoreManifest,
    encoder: str | os.PathLike | MilcoEncoder | None = None,
) -> None:
    """Raise MilcoError unless a vocabulary of queries has the English terms of the vectors of a manifest.

    Only the tokenizers of the vectors' encoder are read. name: of the queries' encoder or store, for messages.
    """
    own = encoder or manifest.encoder
    if own is None:
        fix = Message("Pass {encoder}, not {query_encoder}.")
        raise MilcoError("these are external vectors, whose encoder is not known", fix)
    if PIVOT not in (manifest.views or VIEWS):
        rule = f"searches English terms: these vectors of {own} only have the source view"
        raise ParameterError("query_encoder", None, rule)
    prefix = manifest.english_prefix or ""
    if vocabulary.english_prefix != prefix:
        raise MilcoError(
            f"English terms of {name} have the prefix {vocabulary.english_prefix!r}, those of the index {prefix!r}: "
            f"encode the topics again with milco encode --english-prefix {prefix!r}"
        )
    if isinstance(own, MilcoEncoder):
        english, tokenizer_hash = own.vocabulary.english, own.hashes["tokenizer_hash"]
    else:
        checkpoint = Checkpoint.open(own)
        english = TextTokenizer(checkpoint.english_tokenizer, f"the English tokenizer of {checkpoint.directory}").pieces
        tokenizer_hash = hash_tokenizers(checkpoint.tokenizer.tokenizer, checkpoint.english_tokenizer)
    # sentence-transformers' tokenizers are changed when they are loaded.
    is_changed = manifest.tokenizer_hash not in (None, tokenizer_hash)
    if is_changed and not str(manifest.encoder).startswith(ST):
        fix = Message("Pass its encoder's path as {encoder}.")
        raise MilcoError(f"the tokenizers of {own} are not those of the index", fix)
    if set(vocabulary.english) != set(english):
        common = len(set(vocabulary.english) & set(english))
        raise MilcoError(
            f"{name} has {len(vocabulary.english):,} English pieces, of which {common:,} are among the "
            f"{len(english):,} of the index: its queries need an encoder with the same pieces"
        )


def validate_encoder(encoder: Any, manifest: StoreManifest) -> None:
    """Raise MilcoError if the vectors of a manifest were encoded with other weights, or another tokenizer."""
    for field, value in encoder.hashes.items():
        if (recorded := getattr(manifest, field)) not in (None, value):
            raise MilcoError(
                f"encoder {encoder.name!r} does not fit: the vectors were encoded by {manifest.encoder!r} with "
                f"{field} {recorded}, not {value}"
            )
