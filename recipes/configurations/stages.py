"""The training runs of a configuration, each resumable in its own directory."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import IterableDataset

from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.sparse import SOURCE
from milco_pyserini.train.batches import TextCollator, contrast_collator, pair_length
from milco_pyserini.train.config import SapConfig, SctConfig, TrainingConfig, parse_shares
from milco_pyserini.train.data.bitext_stream import BitextStream, open_bitext
from milco_pyserini.train.data.retrieval_stream import RetrievalStream, open_retrieval
from milco_pyserini.train.monitor import GroundingProbe
from milco_pyserini.train.run import MODEL, run_directory, run_training, train_sap, train_sct
from milco_pyserini.train.start import load_start
from milco_pyserini.train.trainer import TrainingTask, training_arguments

from .catalogue import DENSE, MULTILINGUAL_HEAD, Configuration
from .dense import DenseAlignment, DenseDistillation, pair_collator

QUERY_LENGTH, PASSAGE_LENGTH = 32, 96
_SENTENCE_LENGTH = 96
_LEXICON_SHARE = 0.1
_GROUP_SIZE = 4
_DENSE_TEMPERATURE = 0.03
# By the size of the weights: embeddings are around 1, layers around .05, the English head below .03.
_CONTRAST_RATES = ("encoder.embeddings=5e-4", "decoder=2e-5")
_COMMAND = "python -m recipes.configurations"


@dataclass(frozen=True)
class StagePlan:
    """Paths and sizes of the runs. lexicon: may not exist."""

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
        """Return the options that all runs share."""
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


def train(plan: StagePlan, configuration: Configuration) -> Path:
    """Run the stages of a configuration that are not complete; return the directory of its model."""
    model = plan.multilingual_start if configuration.output == MULTILINGUAL_HEAD else plan.start
    if configuration.aligned:
        model = align(plan, configuration.output == DENSE)
    if configuration.contrast is None:
        return model
    config = contrast_config(plan, configuration, model)
    if configuration.output == DENSE:
        distill_dense(config)
    else:
        train_sct(config)
    return run_directory(config) / MODEL


def align(plan: StagePlan, dense: bool) -> Path:
    """Run SAP, once for all configurations that have it, or the dense alignment; return the model's directory."""
    bitext = (f"{plan.bitext}={1 - _LEXICON_SHARE}", f"{plan.lexicon}={_LEXICON_SHARE}")
    config = SapConfig(
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
        # The new connector has everything to learn. A trainable head does the easiest thing first: it silences every
        # text, and takes hundreds of steps to recover.
        part_rates=() if dense else ("connector=2e-3", "decoder=0"),
    )
    if dense:
        align_dense(config)
    else:
        train_sap(config)
    return run_directory(config) / MODEL


def contrast_config(plan: StagePlan, configuration: Configuration, model: Path) -> SctConfig:
    """Return the second stage's options."""
    rates = ["echo=3e-3"] if SOURCE in configuration.views else []
    rates += ["connector.projector=0"] if configuration.output == MULTILINGUAL_HEAD else []
    return SctConfig(
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


def align_dense(config: SapConfig) -> None:
    """Run the dense alignment."""
    if (run_directory(config) / MODEL).exists():
        return
    shares = parse_shares(config.bitext)
    stream = BitextStream(
        open_bitext(list(shares)),
        config.temperature,
        config.seed,
        concatenate=config.concatenate,
        weights={name: share for name, share in shares.items() if share is not None},
    )
    encoder = load_start(config, echo=False)
    texts = TextCollator(encoder.tokenizer, encoder.model.config.encoder.pad_token_id)
    collate = pair_collator(texts, config.max_length)
    _train_dense(config, encoder, DenseAlignment(encoder.model), stream, collate, pair_length)


def distill_dense(config: SctConfig) -> None:
    """Run the dense distillation."""
    if (run_directory(config) / MODEL).exists():
        return
    sources = open_retrieval(config.data)
    stream = RetrievalStream(
        sources, config.group_size, config.seed, config.temperature, block=config.batch_size, scored=True
    )
    encoder = load_start(config, echo=False)
    texts = TextCollator(encoder.tokenizer, encoder.model.config.encoder.pad_token_id)
    collate = contrast_collator(texts, config.query_max_length, config.passage_max_length)
    objective = DenseDistillation(encoder.model, config.score_temperature)
    _train_dense(config, encoder, objective, stream, collate, None)


def _train_dense(
    config: TrainingConfig,
    encoder: MilcoEncoder,
    objective: nn.Module,
    stream: IterableDataset,
    collate: Callable[[list], dict],
    length: Callable[[Any], int] | None,
) -> None:
    # There are no terms for the alarms to watch.
    probe = GroundingProbe([], TextCollator(encoder.tokenizer, 0), encoder.english_tokenizer, QUERY_LENGTH)
    task = TrainingTask(encoder, objective, stream, collate, probe, length)
    run_training(config, task, training_arguments(config, run_directory(config), config.steps or 0), _COMMAND)
