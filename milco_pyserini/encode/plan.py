"""What decides the bytes of a store, as its manifest says: what was asked, and what the encoder and the machine are."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from milco_pyserini.encode.engines import RAY
from milco_pyserini.encode.kinds import DenseWork, TermWork
from milco_pyserini.encode.parts import Work
from milco_pyserini.encode.prompts import DOCUMENTS, QUERIES
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.sparse.pruning import PruningRule
from milco_pyserini.sparse.store import FORMAT_VERSION

if TYPE_CHECKING:
    from milco_pyserini.cli.encode import Options
    from milco_pyserini.corpora import Corpus, Topics
    from milco_pyserini.encode.encoder import MilcoEncoder


def pruning(options: "Options") -> tuple[PruningRule, ...]:
    """The rules of --prune."""
    return tuple(map(PruningRule.parse, options.prune))


def asked(options: "Options", opened: "Corpus | Topics") -> dict[str, Any]:
    """What the options alone decide: the part of the manifest that is known before any work."""
    common = {
        "format_version": FORMAT_VERSION,
        "kind": "documents" if options.topics is None else "topics",
        "corpus": opened.name,
        "field_rule": getattr(opened, "field_rule", "text"),
        "encoder": options.encoder,
        "lowercase": options.lowercase,
        "split_passages": options.split_passages,
        "batch_size": options.batch_size,
        **(_asked_of_dense(options) if options.dense else _asked_of_terms(options)),
        "part_size": options.part_size,
    }
    return common if options.max_length is None else common | {"max_length": options.max_length}


def _asked_of_terms(options: "Options") -> dict[str, Any]:
    return {
        "pruning": " ".join(map(str, pruning(options))) or None,
        "scale": options.scale,
        "english_prefix": options.english_prefix,
        "format": options.format,
    }


def _asked_of_dense(options: "Options") -> dict[str, Any]:
    given = {name: getattr(options, name) for name in ("pooling", "query_prompt", "document_prompt")}
    return {"dense": True} | {name: value for name, value in given.items() if value is not None}


def open_work(options: "Options", devices: Sequence[str]) -> Work:
    """How the texts become vectors: the encoder is loaded. Raises MilcoError if it cannot give what is asked."""
    return _dense_work(options, devices) if options.dense else _term_work(options, devices)


def _term_work(options: "Options", devices: Sequence[str]) -> TermWork:
    encoder = open_term_encoder(options, devices)
    config = encoder.model.config
    common = _common(options, config.query_max_length, config.passage_max_length)
    encoder.validate_length(common["max_length"])
    views = encoder.resolve_views(options.views)
    return TermWork(
        encoder=encoder, views=views, pruning=pruning(options), scale=options.scale, format=options.format, **common
    )


def _dense_work(options: "Options", devices: Sequence[str]) -> DenseWork:
    from milco_pyserini.encode.dense import DenseEncoder

    device, dtype = _where(options, devices)
    prompts = {QUERIES: options.query_prompt, DOCUMENTS: options.document_prompt}
    encoder = DenseEncoder(options.encoder, options.pooling, device, dtype, prompts)
    common = _common(options, encoder.query_max_length, encoder.passage_max_length)
    encoder.validate_length(common["max_length"])
    if options.split_passages and encoder.prompts[DOCUMENTS]:
        raise MilcoError(
            f"--split-passages: only the first passage would stand behind the documents' prompt "
            f"{shown(encoder.prompts[DOCUMENTS])}: leave it out, or the prompt with --document-prompt ''"
        )
    return DenseWork(encoder=encoder, **common)


def _common(options: "Options", query_length: int, passage_length: int) -> dict[str, Any]:
    default = query_length if options.topics else passage_length
    return {
        "max_length": default if options.max_length is None else options.max_length,
        "lowercase": options.lowercase,
        "split_passages": options.split_passages,
        "batch_size": options.batch_size,
        "topics": options.topics is not None,
    }


def open_term_encoder(options: "Options", devices: Sequence[str]) -> "MilcoEncoder":
    """The encoder of term vectors that the options name."""
    from milco_pyserini.encode.encoder import open_encoder

    return open_encoder(options.encoder, *_where(options, devices), options.english_prefix)


def _where(options: "Options", devices: Sequence[str]) -> tuple[str, str]:
    """Device and dtype of this process's encoder."""
    device, dtype = devices[0], options.dtype
    if options.engine == RAY:
        # Only looked at here: the workers have devices of their own, which multiply bfloat16 if they are GPUs.
        dtype = "bfloat16" if device == "cuda" and dtype == "auto" else dtype
        device = "cpu"
    return device, dtype


def made_by(work: Work, devices: Sequence[str]) -> dict[str, Any]:
    """What the encoder and the machine decide: the rest of the first half of the manifest."""
    import numpy
    import torch
    import transformers

    from milco_pyserini import __version__

    return {
        "weight_hash": work.encoder.weight_hash,
        "tokenizer_hash": work.encoder.tokenizer_hash,
        **work.described,
        "max_length": work.max_length,
        "dtype": str(work.encoder.dtype).removeprefix("torch."),
        "device": devices[0].partition(":")[0],
        "versions": {
            "milco_pyserini": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": numpy.__version__,
        },
    }
