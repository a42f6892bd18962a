"""Prepare the two training stages for the training loop: model, data, teachers and loss."""

from collections.abc import Callable, Sequence
from itertools import zip_longest

import torch
from torch import nn

from milco_pyserini.console import counted, log
from milco_pyserini.corpora.bitext import BitextSource, open_bitext
from milco_pyserini.corpora.languages import UNDETERMINED
from milco_pyserini.encode.encoder import MilcoEncoder, choose_dtype
from milco_pyserini.errors import Message, ParameterError
from milco_pyserini.sparse import SOURCE
from milco_pyserini.train.batches import AlignmentCollator, ContrastCollator, TextCollator
from milco_pyserini.train.config import LEXICAL, START, BitextOptions, SapConfig, SctConfig
from milco_pyserini.train.data.parallel import MixedStream, ParallelCollection, ParallelStream
from milco_pyserini.train.data.retrieval import open_retrieval
from milco_pyserini.train.data.streams import BitextStream, ExampleStream, RetrievalStream
from milco_pyserini.train.lexical_teacher import LexicalTeacher
from milco_pyserini.train.losses import LOSSES
from milco_pyserini.train.monitor import GroundingProbe
from milco_pyserini.train.objectives import AlignmentLoss, ContrastiveLoss
from milco_pyserini.train.optimization import freeze_parts
from milco_pyserini.train.start import load_start
from milco_pyserini.train.teachers import (
    AlignmentTeacher,
    MaskedLanguageModelTeacher,
    SimilarityTeacher,
    StartTeacher,
    validate_vocabulary,
)
from milco_pyserini.train.trainer import TrainingTask, is_first_process, join_processes


def prepare_sap(config: SapConfig) -> TrainingTask:
    """Prepare sparse alignment pretraining."""
    data, loop = config.training_data, config.loop
    sources = open_bitext(list(data.shares), data.languages or None)
    encoder = load_start(config.start, loop.seed, [data.max_length])
    freeze_parts(encoder.model, config.optimizer)
    texts = TextCollator.of(encoder)
    probe = open_probe(config.probe, data.languages, encoder, texts)
    stream = bitext_stream(data, sources, loop.seed)
    teacher = open_aligner(config.objective.teacher, encoder, sources, config.objective.padding, data.max_length)
    device = join_processes(loop.device)
    if isinstance(teacher, nn.Module):
        teacher.to(device)
    objective = AlignmentLoss(encoder.model, teacher, config.objective, choose_dtype(loop.dtype, device))
    collate = AlignmentCollator(texts, teacher, data.max_length)
    digests = {f"digest of {source.name}": source.index.digest for source in sources}
    described = {"examples": sum(stream.sizes), **digests}
    return TrainingTask(encoder, objective, stream, described, collate, probe, device, data.group_by_length)


def bitext_stream(data: BitextOptions, sources: Sequence[BitextSource], seed: int) -> BitextStream:
    """Return the pairs of the sources in the shares of the options, and report rows that are skipped."""
    weights = {name: share for name, share in data.shares.items() if share is not None}
    stream = BitextStream(sources, data.temperature, seed, data.concatenate, weights)
    if (skipped := sum(source.index.skipped for source in sources)) and is_first_process():
        rows = counted(skipped, "row")
        log(f"Skipped {rows} of the bitext, in which one side is empty: {sum(stream.sizes):,} pairs remain")
    return stream


def prepare_sct(
    config: SctConfig, similarity: Callable[[ExampleStream, torch.device], SimilarityTeacher] | None = None
) -> TrainingTask:
    """Prepare sparse contrastive training. similarity: makes a teacher whose scores are distilled besides."""
    data, loop, loss = config.training_data, config.loop, config.objective
    pairs = open_bitext(list(data.shares), data.languages or None) if data.shares else []
    stream, described = contrast_stream(config, pairs)
    lengths = data.query_max_length, data.passage_max_length
    encoder = load_start(config.start, loop.seed, lengths, loss if SOURCE in loss.views else None)
    freeze_parts(encoder.model, config.optimizer)
    texts = TextCollator.of(encoder)
    probe = open_probe(config.probe, data.languages, encoder, texts)
    if not config.probe and loss.teacher != START and is_first_process():
        log(Message("Grounding is not monitored: pass {probe} with held-out sentence pairs (de-en.tsv)", probe="FILE"))
    device = join_processes(loop.device)
    dtype = choose_dtype(loop.dtype, device)
    aligner: AlignmentTeacher | None = None
    with_start = loss.teacher == START
    if loss.alignment_weight and with_start:
        aligner = StartTeacher(encoder.model, texts, data.passage_max_length, encoder.vocabulary.english)
    elif loss.alignment_weight and pairs:
        aligner = open_aligner(loss.teacher, encoder, pairs, "-inf", data.passage_max_length)
    elif loss.alignment_weight and is_first_process():
        log(Message("Nothing is aligned: {alignment_weight} is the weight of a loss on the texts of {parallel}"))
    if isinstance(aligner, nn.Module):
        aligner.to(device)
    scored = similarity and similarity(stream, device)
    dropped_ids = encoder.tokenizer.special_ids if encoder.model.config.source_drop_special else ()
    objective = ContrastiveLoss(encoder.model, loss, dtype, dropped_ids, scored, aligner)
    collate = ContrastCollator(texts, *lengths, scored is not None, aligner, aligns_groups=with_start)
    return TrainingTask(encoder, objective, stream, described, collate, probe, device)


def contrast_stream(config: SctConfig, pairs: Sequence[BitextSource]) -> tuple[ExampleStream, dict]:
    """Return the examples of contrastive training, and their number and digests.

    Args:
        pairs: the sentence pairs whose translations are contrasted.

    Raises:
        MilcoError: the data cannot be read, is too small, or has no examples in a language.
    """
    data, seed, block = config.training_data, config.loop.seed, config.loop.batch_size
    sources = open_retrieval(data.data, data.languages or None) if data.data else []
    known = {source.language for source in sources} | {source.language for source in pairs}
    for language in data.languages:
        if language not in known and UNDETERMINED not in known:
            others = ", ".join(sorted(known))
            raise ParameterError("languages", language, f"the data has no examples in it, only in {others}")
    parallel_share = sum(share or 0 for share in data.shares.values())
    streams: list[tuple[float, ExampleStream]] = []
    examples, digests = 0, dict[str, str]()
    if data.shares:
        collections = [
            ParallelCollection.join(name, [source for source in pairs if source.collection == name])
            for name in data.shares
        ]
        digests |= {f"digest of {collection.name}": collection.digest for collection in collections}
        parallel = ParallelStream(
            collections, data.shares, data.translations, seed, data.temperature, data.concatenate, block
        )
        streams.append((parallel_share, parallel))
        examples += parallel.size
    if sources:
        scored = LOSSES[config.objective.loss].needs_scores
        passages = RetrievalStream(sources, data.group_size, seed, data.temperature, block=block, scored=scored)
        streams.append((1 - parallel_share, passages))
        examples += sum(passages.sizes)
        digests |= {f"digest of {source.name}": source.stats.digest for source in sources}
    stream = MixedStream(streams, block, seed) if len(streams) > 1 else streams[0][1]
    return stream, {"examples": examples, **digests}


def open_probe(
    names: Sequence[str], languages: Sequence[str], encoder: MilcoEncoder, texts: TextCollator
) -> GroundingProbe:
    """Return the held-out pairs of a run in its languages. Raises MilcoError if there are none."""
    sources = open_bitext(names, ids=True)
    if languages:
        sources = [source for source in sources if source.language in languages]
    if names and not sources:
        raise ParameterError("probe", names, f"no pairs in {', '.join(languages)}")
    return GroundingProbe(sources, texts, encoder.english_tokenizer, encoder.model.config.query_max_length)


def open_aligner(
    name: str, encoder: MilcoEncoder, sources: Sequence[BitextSource], padding: str, max_length: int
) -> AlignmentTeacher:
    """Open the teacher of alignment: "lexical", which is fitted to the sources, or a masked language model.

    Raises MilcoError if it cannot be read or downloaded, or its vocabulary is not the encoder's.
    """
    teacher: LexicalTeacher | MaskedLanguageModelTeacher
    if name == LEXICAL:
        # The sources in turn, because the teacher reads a limited number of texts.
        rows = zip_longest(*(source.pairs() for source in sources))
        english = (pair.english for row in rows for pair in row if pair)
        teacher = LexicalTeacher.fit(english, encoder.english_tokenizer, max_length)
    else:
        teacher = MaskedLanguageModelTeacher.from_pretrained(name, padding, max_length)
    validate_vocabulary(teacher.vocabulary, encoder.vocabulary.english)
    return teacher
