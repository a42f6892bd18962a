"""The objects that Pyserini calls: texts in, {term: whole number} out (its encoder contract, versions 1.6 and 2)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode.encoder import MilcoEncoder, as_texts, open_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse.quantization import SCALE, quantize, quantize_vector, validate_scale


class _Contract:
    """An encoder, the views and spelling to encode with, and the scale of the impacts."""

    def __init__(
        self,
        encoder: str | MilcoEncoder = DEFAULT_ENCODER,
        device: str = "auto",
        dtype: str = "auto",
        scale: float = SCALE,
        max_length: int | None = None,
        views: Sequence[str] | None = None,
        lowercase: bool = False,
        english_prefix: str = "",
    ) -> None:
        validate_scale(scale)
        if isinstance(encoder, str):
            encoder = open_encoder(encoder, device, dtype, english_prefix)
        self.encoder = encoder
        self.scale = scale
        self.max_length = self._default_length() if max_length is None else max_length
        encoder.validate_length(self.max_length)
        self.views = encoder.resolve_views(views)
        self.lowercase = lowercase

    def _default_length(self) -> int:
        raise NotImplementedError

    def _vectors(self, texts: Sequence[str], max_length: int | None) -> Any:
        return self.encoder.encode(texts, max_length or self.max_length, self.views, self.lowercase).batch


class MilcoDocumentEncoder(_Contract):
    """Pyserini's document encoder: lists of texts to lists of {term: impact}, impact = round(weight x scale) >= 1.

    encoder: what open_encoder() takes, or what it gives. max_length: in tokens; the checkpoint's passage length if not
    given. Raises MilcoError as open_encoder() does.
    """

    def encode(
        self,
        texts: str | Sequence[str | None],
        titles: str | Sequence[str | None] | None = None,
        max_length: int | None = None,
        **_: Any,
    ) -> list[dict[str, int]]:
        """Vectors of texts, each behind its title where it has one.

        A str is one text, as for Pyserini's encoders. Pyserini passes None for an empty field, and further arguments
        (fp16, add_sep) that mean nothing to this model. max_length: None or 0 for the one that the encoder was made
        with.
        """
        contents = as_texts(texts if isinstance(texts, str) else ["" if text is None else text for text in texts])
        if titles is not None:
            titles = [titles] if isinstance(titles, str) else titles
            contents = [f"{title} {text}" if title else text for title, text in zip(titles, contents, strict=True)]
        kept, impacts = quantize(self._vectors(contents, max_length), self.scale)
        terms = self.encoder.vocabulary.terms
        return [
            dict(zip(terms[kept.columns[start:stop]].tolist(), impacts[start:stop].tolist(), strict=True))
            for start, stop in zip(kept.indptr[:-1].tolist(), kept.indptr[1:].tolist(), strict=True)
        ]

    def _default_length(self) -> int:
        return self.encoder.model.config.passage_max_length


class MilcoQueryEncoder(_Contract):
    """Pyserini's query encoder: one text to {term: impact}; goes into LuceneImpactSearcher(index, encoder, min_idf=-1).

    Arguments as for MilcoDocumentEncoder; max_length is the checkpoint's query length if not given.
    """

    def encode(self, text: str, max_length: int | None = None, **_: Any) -> dict[str, int]:
        """Impacts of one query's terms."""
        vector = self._vectors([text], max_length).to_dicts(self.encoder.vocabulary)[0]
        return quantize_vector(vector, self.scale)

    def encode_batch(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """Float weights of many queries' terms, for searchers that quantise themselves."""
        return self._vectors(texts, None).to_dicts(self.encoder.vocabulary)

    def _default_length(self) -> int:
        return self.encoder.model.config.query_max_length


def open_query_encoder(
    manifest: dict, encoder: str | Path | MilcoEncoder | None = None, device: str = "auto", dtype: str = "auto"
) -> MilcoQueryEncoder:
    """The query encoder that fits the vectors of a manifest: same weights, same views, same spelling.

    encoder: where the manifest's encoder is now, if it moved, or the loaded encoder; needed for vectors that others
    wrote. Raises MilcoError if there is none, or if its weights are not those that made the vectors.
    """
    name = encoder or manifest.get("encoder")
    if name is None:
        raise MilcoError("these vectors were written by others: say with --encoder what encodes the queries")
    loaded = encoder
    if not isinstance(loaded, MilcoEncoder):
        loaded = open_encoder(str(name), device, dtype, manifest.get("english_prefix", ""))
    validate_encoder(loaded, manifest)
    return MilcoQueryEncoder(
        loaded,
        scale=manifest["scale"],
        views=manifest.get("views"),
        lowercase=manifest.get("lowercase", False),
    )


def validate_encoder(encoder: Any, manifest: dict) -> None:
    """Raise MilcoError if the vectors of a manifest were made with other weights, or another tokenizer."""
    for field in ("weight_hash", "tokenizer_hash"):
        value = getattr(encoder, field)
        if manifest.get(field) not in (None, value):
            raise MilcoError(
                f"encoder {encoder.name!r} does not fit: the vectors were made by {manifest['encoder']!r} with {field} "
                f"{manifest[field]}, this one's is {value}"
            )
