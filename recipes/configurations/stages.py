"""The training runs of a configuration, each in a directory that goes on where it stopped."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import IterableDataset

from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.sparse import SOURCE
from milco_pyserini.train.batches import Texts, contrast_collator, pair_length
from milco_pyserini.train.data.bitext_stream import BitextStream, open_bitext
from milco_pyserini.train.data.retrieval_stream import RetrievalStream, open_retrieval
from milco_pyserini.train.probe import Probe
from milco_pyserini.train.recipe import SapOptions, SctOptions, TrainingOptions, shares
from milco_pyserini.train.run import MODEL, run_directory, sap_command, sct_command, train_objective
from milco_pyserini.train.start import starting_encoder
from milco_pyserini.train.trainer import training_arguments

from .catalogue import DENSE, MULTILINGUAL_HEAD, Configuration
from .dense import DenseAlignment, DenseDistillation, pair_collator

QUERY_LENGTH, PASSAGE_LENGTH = 32, 96
_SENTENCE_LENGTH = 96
_LEXICON_SHARE = 0.1
_GROUP_SIZE = 4
_DENSE_TEMPERATURE = 0.03
# By the size of a part's weights: an embedding's are around 1, a layer's around .05, the English head's below .03.
_CONTRAST_RATES = ("encoder.embeddings=5e-4", "decoder=2e-5")
_COMMAND = "python -m recipes.configurations"


@dataclass(frozen=True)
class Plan:
    """Where everything stands and how long it takes. bitext, lexicon: directories; lexicon may not be there."""

    work: Path
    bitext: Path
    lexicon: Path
    start: Path
    multilingual_start: Path
    scored: Path
    sap_steps: int
    sct_steps: int
    sap_batch: int
    sct_batch: int
    seed: int

    def common(self, run: str, model: Path, steps: int) -> dict[str, Any]:
        """The options that all runs share."""
        return {
            "config": _COMMAND,
            "output": self.work / "runs" / run,
            "model": str(model),
            "steps": steps,
            "schedule": "cosine",
            "warmup": 0.05,
            "log_steps": 25,
            "save_steps": 100,
            "keep": 1,
            "seed": self.seed,
        }


def train(plan: Plan, configuration: Configuration) -> Path:
    """Run what of the configuration's stages is not finished. Returns the directory of its model."""
    model = plan.multilingual_start if configuration.output == MULTILINGUAL_HEAD else plan.start
    if configuration.aligned:
        model = _align(plan, configuration.output == DENSE)
    if configuration.contrast is None:
        return model
    if configuration.output == DENSE:
        return _distill(plan, configuration, model)
    options = _contrast_options(plan, configuration, model)
    sct_command(options)
    return run_directory(options) / MODEL


def _align(plan: Plan, dense: bool) -> Path:
    """SAP is one run for all the configurations that have it; the dense alignment has its own."""
    bitext = (f"{plan.bitext}={1 - _LEXICON_SHARE}", f"{plan.lexicon}={_LEXICON_SHARE}")
    options = SapOptions(
        **plan.common("align-dense" if dense else "align", plan.start, plan.sap_steps),
        bitext=bitext if plan.lexicon.is_dir() else (str(plan.bitext),),
        teacher="lexical",
        temperature=2.0,
        concatenate=0.3,
        max_length=_SENTENCE_LENGTH,
        margin=0.3,
        mean="teacher",
        batch_size=plan.sap_batch,
        learning_rate=2e-4,
        # The new connector has everything to learn. A head that may move does the easiest thing first, which is to
        # fall silent for every text, and takes hundreds of steps to come back.
        part_rates=() if dense else ("connector=2e-3", "decoder=0"),
    )
    if dense:
        _align_dense(options)
    else:
        sap_command(options)
    return run_directory(options) / MODEL


def _contrast_options(plan: Plan, configuration: Configuration, model: Path) -> SctOptions:
    rates = ["echo=3e-3"] if SOURCE in configuration.views else []
    rates += ["connector.projector=0"] if configuration.output == MULTILINGUAL_HEAD else []
    return SctOptions(
        **plan.common(f"contrast-{configuration.number}", model, plan.sct_steps),
        data=(str(plan.scored),),
        temperature=2.0,
        loss=configuration.contrast or "",
        views=configuration.views,
        group_size=_GROUP_SIZE,
        query_max_length=QUERY_LENGTH,
        passage_max_length=PASSAGE_LENGTH,
        score_temperature=_DENSE_TEMPERATURE if configuration.output == DENSE else 1.0,
        lambda_query=3e-3,
        lambda_passage=3e-4,
        batch_size=plan.sct_batch,
        learning_rate=1e-4,
        part_rates=(*rates, *_CONTRAST_RATES),
    )


def _align_dense(options: SapOptions) -> None:
    run = run_directory(options)
    if (run / MODEL).exists():
        return
    weights = shares(options.bitext)
    given = {name: share for name, share in weights.items() if share is not None}
    stream = BitextStream(
        open_bitext(list(weights)),
        options.temperature,
        options.seed,
        concatenate=options.concatenate,
        weights=given or None,
    )
    encoder = starting_encoder(options, echo=False)
    texts = Texts(encoder.tokenizer, encoder.model.config.encoder.pad_token_id)
    collate = pair_collator(texts, options.max_length)
    _train(options, encoder, DenseAlignment(encoder.model), stream, collate, pair_length)


def _distill(plan: Plan, configuration: Configuration, model: Path) -> Path:
    options = _contrast_options(plan, configuration, model)
    run = run_directory(options)
    if not (run / MODEL).exists():
        sources = open_retrieval(options.data)
        stream = RetrievalStream(
            sources, options.group_size, options.seed, options.temperature, block=options.batch_size, scored=True
        )
        encoder = starting_encoder(options, echo=False)
        texts = Texts(encoder.tokenizer, encoder.model.config.encoder.pad_token_id)
        collate = contrast_collator(texts, options.query_max_length, options.passage_max_length)
        objective = DenseDistillation(encoder.model, options.score_temperature)
        _train(options, encoder, objective, stream, collate, None)
    return run / MODEL


def _train(
    options: TrainingOptions,
    encoder: MilcoEncoder,
    objective: nn.Module,
    stream: IterableDataset,
    collate: Callable[[list], dict],
    length: Callable[[Any], int] | None,
) -> None:
    run = run_directory(options)
    arguments = training_arguments(options, run, options.steps or 0)
    # The alarms are about terms, and there are none.
    probe = Probe([], Texts(encoder.tokenizer, 0), encoder.english_tokenizer, QUERY_LENGTH)
    train_objective(options, run, encoder, objective, arguments, stream, collate, length, probe, _COMMAND)
