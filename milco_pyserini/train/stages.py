"""What the two training stages hand to the training loop: their model, data, teachers and loss."""

from collections.abc import Sequence
from itertools import zip_longest

from torch import nn

from milco_pyserini.console import counted, log
from milco_pyserini.encode.dense import DenseEncoder
from milco_pyserini.encode.encoder import MilcoEncoder, choose_dtype
from milco_pyserini.errors import MilcoError
from milco_pyserini.train.batches import AlignmentCollator, ContrastCollator, TextCollator
from milco_pyserini.train.config import SapConfig, SctConfig, TrainingConfig, parse_shares
from milco_pyserini.train.data import UNDETERMINED
from milco_pyserini.train.data.bitext import BitextSource, open_bitext
from milco_pyserini.train.data.parallel import MixedStream, ParallelCollection, ParallelStream
from milco_pyserini.train.data.retrieval import open_retrieval
from milco_pyserini.train.data.streams import BitextStream, ExampleStream, RetrievalStream
from milco_pyserini.train.dense import DenseAlignment, DenseAlignmentTeacher, DenseContrast
from milco_pyserini.train.dense_teacher import DenseTeacher
from milco_pyserini.train.monitor import GroundingProbe
from milco_pyserini.train.objectives import Alignment, Contrast
from milco_pyserini.train.start import load_start
from milco_pyserini.train.teachers import AlignmentTeacher, open_teacher, validate_vocabulary
from milco_pyserini.train.trainer import TrainingTask, is_first_process, join_processes


def prepare_sap(config: SapConfig) -> TrainingTask:
    """Prepare sparse alignment pretraining, or with config.dense that of a dense encoder."""
    shares = parse_shares(config.bitext)
    sources = open_bitext(list(shares), config.languages or None)
    encoder = load_start(config, config.max_length)
    texts = TextCollator(encoder.tokenizer, encoder.model.config.encoder.pad_token_id, config.lowercase)
    probe = open_probe(config, encoder, texts)
    stream = BitextStream(
        sources,
        config.temperature,
        config.seed,
        concatenate=config.concatenate,
        weights={name: share for name, share in shares.items() if share is not None},
    )
    teacher: AlignmentTeacher
    if config.dense:
        teacher = DenseAlignmentTeacher(config.teacher, config.max_length)
    else:
        teacher = open_aligner(config.teacher, encoder, sources, config.padding, config.max_length)
    examples = sum(stream.sizes)
    if (skipped := sum(source.stats().skipped for source in sources)) and is_first_process():
        log(f"Skipped {counted(skipped, 'row')} of the bitext, in which one side is empty: {examples:,} pairs remain")
    device = join_processes(config.device)
    if isinstance(teacher, nn.Module):
        teacher.to(device)
    dtype = choose_dtype(config.dtype, device)
    objective: nn.Module
    if isinstance(teacher, DenseAlignmentTeacher):
        objective = DenseAlignment(encoder.model, teacher, config, dtype)
    else:
        objective = Alignment(encoder.model, teacher, config, dtype)
    collate = AlignmentCollator(texts, teacher, config.max_length)
    data = {"examples": examples, **{f"digest of {source.name}": source.stats().digest for source in sources}}
    return TrainingTask(encoder, objective, stream, data, collate, probe, device, config.group_by_length)


def prepare_sct(config: SctConfig) -> TrainingTask:
    """Prepare sparse contrastive training, or with config.dense that of a dense encoder."""
    sources = open_retrieval(config.data, config.languages or None) if config.data else []
    shares = parse_shares(config.parallel)
    pairs = open_bitext(list(shares), config.languages or None) if shares else []
    known = {source.language for source in sources} | {source.language for source in pairs}
    for language in config.languages:
        if language not in known and UNDETERMINED not in known:
            others = ", ".join(sorted(known))
            raise MilcoError(f"`languages={language}`: the data has no examples in it, only in {others}")
    encoder = load_start(config, config.query_max_length, config.passage_max_length)
    texts = TextCollator(encoder.tokenizer, encoder.model.config.encoder.pad_token_id, config.lowercase)
    probe = open_probe(config, encoder, texts)
    if not config.probe and not config.dense and is_first_process():
        log("Grounding is not monitored: pass `probe=FILE` with held-out sentence pairs (de-en.tsv)")
    parallel_share = sum(share or 0 for share in shares.values())
    streams: list[tuple[float, ExampleStream]] = []
    examples, digests = 0, dict[str, str]()
    if shares:
        collections = [
            ParallelCollection.join(name, [source for source in pairs if source.collection == name]) for name in shares
        ]
        digests |= {f"digest of {collection.name}": collection.digest for collection in collections}
        parallel = ParallelStream(
            collections,
            shares,
            config.translations,
            config.seed,
            config.temperature,
            config.concatenate,
            config.batch_size,
        )
        streams.append((parallel_share, parallel))
        examples += parallel.size
    if sources:
        passages = RetrievalStream(
            sources,
            config.group_size,
            config.seed,
            config.temperature,
            block=config.batch_size,
            scored=config.loss == "kd",
        )
        streams.append((1 - parallel_share, passages))
        examples += sum(passages.sizes)
        digests |= {f"digest of {source.name}": source.stats().digest for source in sources}
    stream = MixedStream(streams, config.batch_size, config.seed) if len(streams) > 1 else streams[0][1]
    device = join_processes(config.device)
    aligner = None
    if config.alignment_weight and pairs:
        aligner = open_aligner(config.teacher, encoder, pairs, "-inf", config.passage_max_length)
        if isinstance(aligner, nn.Module):
            aligner.to(device)
    dtype = choose_dtype(config.dtype, device)
    objective: Contrast
    if config.dense:
        objective = DenseContrast(encoder.model, config, dtype)
    else:
        dropped_ids = encoder.tokenizer.special_ids if encoder.model.config.source_drop_special else ()
        teacher = None
        if config.dense_teacher is not None:
            dense = DenseEncoder(config.dense_teacher, device=device, dtype=dtype)
            teacher = DenseTeacher(dense, stream, config.teacher_temperature)
        objective = Contrast(encoder.model, config, dtype, dropped_ids, teacher, aligner)
    collate = ContrastCollator(
        texts, config.query_max_length, config.passage_max_length, config.dense_teacher is not None, aligner
    )
    return TrainingTask(encoder, objective, stream, {"examples": examples, **digests}, collate, probe, device)


def open_probe(config: TrainingConfig, encoder: MilcoEncoder, texts: TextCollator) -> GroundingProbe:
    """Return the held-out pairs of a run in its languages. Raises MilcoError if there are none."""
    sources = open_bitext(config.probe, ids=True)
    if config.languages:
        sources = [source for source in sources if source.language in config.languages]
    if config.probe and not sources:
        raise MilcoError(f"`probe={' '.join(config.probe)}`: no pairs in {', '.join(config.languages)}")
    return GroundingProbe(sources, texts, encoder.english_tokenizer, encoder.model.config.query_max_length)


def open_aligner(
    name: str, encoder: MilcoEncoder, sources: Sequence[BitextSource], padding: str, max_length: int
) -> AlignmentTeacher:
    """Open the teacher of alignment; a lexical one is fitted to the sources.

    Raises MilcoError as open_teacher() does, and if its vocabulary is not the encoder's.
    """
    # The sources in turn, because the teacher reads a limited number of texts.
    rows = zip_longest(*(source.pairs() for source in sources))
    english = (pair.english for row in rows for pair in row if pair)
    teacher = open_teacher(name, encoder.english_tokenizer, english, padding, max_length)
    validate_vocabulary(teacher.vocabulary, encoder.vocabulary.english)
    return teacher
