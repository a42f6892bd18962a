"""SAP and SCT of milco-mini, by milco_pyserini.train with the recipes mini-sap and mini-sct.

What is particular to a network that starts as a table: its teacher knows whole words (teacher.py); its weights at the
end are the mean of where it started and where SAP led (Wortsman et al., Model Soups, 2022), because the start knows
rare words that SAP never saw and SAP knows the frequent ones better; and SCT moves the LexEcho head alone, because
contrast on a few thousand questions would pull the terms away from their words.
"""

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import cast

import torch

from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.io.files import atomic_directory, atomic_file
from milco_pyserini.model import MilcoModel
from milco_pyserini.model.modeling import LexEcho
from milco_pyserini.train.data.retrieval import RetrievalExample, dump_example, file_language
from milco_pyserini.train.data.retrieval_stream import open_retrieval
from milco_pyserini.train.recipe import SapOptions, SctOptions, from_recipe
from milco_pyserini.train.run import MODEL, sap_command, sct_command

from . import corpus
from .teacher import WordTeacher

# Of the examples of SAP.
SHARES = {"bitext": 0.85, "lexicon": 0.15}
# Sentence pairs that stand among the questions, so that the echo learns what two languages do not share: one source
# with the same sentences in many languages, one of questions.
_BITEXT = ("tico19", "mkqa-queries")
# Of every set.
_MOST_QUESTIONS = 5_000
# Passages whose hash falls here, and their questions, are never trained on.
_HELD_OUT = 0.1
_START_SHARE = 0.5
# Of the echo that questions within one language ask for: across languages it finds little and hides the pivot view's
# hits (measured: FLORES against cmrc2018).
_ECHO_SHARE = 0.6


def align(data: Path, work: Path, start: Path, steps: int | None) -> Path:
    """SAP from a checkpoint, with the word table as teacher; returns the mean of both, a checkpoint directory."""
    options = from_recipe(
        SapOptions,
        "mini-sap",
        model=str(start),
        teacher="word table",
        bitext=tuple(f"{data / name}={share}" for name, share in SHARES.items()),
        languages=tuple(corpus.languages(data)),
        output=work / "sap",
    )
    sap_command(replace(options, steps=options.steps if steps is None else steps), WordTeacher(work))
    averaged = work / "averaged"
    if not averaged.exists():
        with atomic_directory(averaged, overwrite=False, is_owned=lambda _: False) as directory:
            average(start, work / "sap" / MODEL, _START_SHARE).save_pretrained(directory)
    return averaged


def average(start: Path, trained: Path, start_share: float) -> MilcoEncoder:
    """A model whose every weight is start_share of one checkpoint's and the rest of the other's."""
    encoders = [MilcoEncoder.from_pretrained(path, device="cpu", dtype="float32") for path in (start, trained)]
    before, after = (encoder.model.state_dict() for encoder in encoders)
    mixed = {name: torch.lerp(after[name], tensor, start_share) for name, tensor in before.items()}
    encoders[0].model.load_state_dict(mixed)
    return encoders[0]


def contrast(data: Path, work: Path, start: Path, steps: int | None) -> MilcoModel:
    """SCT from a checkpoint on questions and their passages; returns the model that mini becomes."""
    pairs = work / "contrast"
    if not pairs.exists():
        with atomic_directory(pairs, overwrite=False, is_owned=lambda _: False) as directory:
            write_pairs(data, directory)
    options = from_recipe(SctOptions, "mini-sct", model=str(start), data=(str(pairs),), output=work / "sct")
    sct_command(replace(options, steps=options.steps if steps is None else steps))
    trained = MilcoEncoder.from_pretrained(work / "sct" / MODEL, device="cpu", dtype="float32")
    with torch.no_grad():
        cast(LexEcho, trained.model.echo).scale.mul_(_ECHO_SHARE)
    return trained.model


def write_pairs(data: Path, directory: Path) -> None:
    """NAME.LANG.jsonl.gz of every set of questions that may be trained on, and of the bitext beside them."""
    spoken = corpus.languages(data)
    for name in (name for names in corpus.PASSAGES.values() for name in names):
        path = data / "retrieval" / f"{name}.jsonl.gz"
        if path.exists() and file_language(path).partition("-")[0] in spoken:
            found = (example for source in open_retrieval([path]) for example in source.examples())
            _write(directory / path.name, filter(is_for_training, found))
    for language in spoken:
        pairs = corpus.bitext(data, language)
        for name in _BITEXT:
            examples = (
                RetrievalExample(language, pair.text, (pair.english,), ()) for pair in pairs if pair.source == name
            )
            _write(directory / f"{name}.{language}.jsonl.gz", examples)


def is_for_training(example: RetrievalExample) -> bool:
    """Whether the example's passage is not held out; the same for every question about it."""
    digest = hashlib.blake2b(example.positives[0].encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64 >= _HELD_OUT


def _write(path: Path, examples: Iterator[RetrievalExample]) -> None:
    first = list(islice(examples, _MOST_QUESTIONS))
    if first:
        with atomic_file(path) as handle:
            handle.write(gzip.compress(b"".join(dump_example(example) + b"\n" for example in first), mtime=0))
