"""The training runs of a configuration, each resumable in its own directory."""

from pathlib import Path
from typing import Any

from milco_pyserini.options import replace_options
from milco_pyserini.sparse import SOURCE
from milco_pyserini.train.config import LEXICAL, SapConfig, SctConfig
from milco_pyserini.train.run import MODEL, run_stage

from .catalogue import DENSE, MULTILINGUAL_HEAD, Configuration, ConfigurationsOptions
from .dense import prepare_alignment, prepare_contrast

# Directories of the work directory: starting checkpoints, and training data with negatives and scores.
START, MULTILINGUAL_START, SCORED = "start", "start-multilingual", "scored"
QUERY_LENGTH, PASSAGE_LENGTH = 32, 96
_SENTENCE_LENGTH = 96
_LEXICON_SHARE = 0.1
_GROUP_SIZE = 4
_DENSE_TEMPERATURE = 0.03
# By the size of the weights: embeddings are around 1, layers around .05, the English head below .03.
_CONTRAST_RATES = ("encoder.embeddings=5e-4", "decoder=2e-5")


def train(options: ConfigurationsOptions, configuration: Configuration) -> Path:
    """Run the stages of a configuration that are not complete; return the directory of its model."""
    model = options.work / (MULTILINGUAL_START if configuration.output == MULTILINGUAL_HEAD else START)
    if configuration.aligned:
        model = align(options, configuration.output == DENSE)
    if configuration.contrast is None:
        return model
    config = contrast_config(options, configuration, model)
    run_stage(config, prepare_contrast if configuration.output == DENSE else None)
    return config.run / MODEL


def align(options: ConfigurationsOptions, dense: bool) -> Path:
    """Run SAP, once for all configurations that have it, or the dense alignment; return the model's directory."""
    bitext, lexicon = options.data / "bitext", options.data / "lexicon"
    shares = (f"{bitext}={1 - _LEXICON_SHARE}", f"{lexicon}={_LEXICON_SHARE}")
    config = replace_options(
        SapConfig(),
        **_common(options, "align-dense" if dense else "align", options.work / START, options.sap_steps),
        bitext=shares if lexicon.is_dir() else (str(bitext),),
        # The paper's dense teacher is thenlper/gte-base; there is no English one without a download.
        teacher=str(options.work / START) if dense else LEXICAL,
        temperature=2.0,
        concatenate=0.3,
        max_length=_SENTENCE_LENGTH,
        group_by_length=32,
        margin=0.3,
        mean="teacher",
        batch_size=options.sap_batch,
        learning_rate=2e-4,
        # The new connector has everything to learn. A trainable head does the easiest thing first: it silences every
        # text, and takes hundreds of steps to recover.
        part_rates=() if dense else ("connector=2e-3", "decoder=0"),
    )
    run_stage(config, prepare_alignment if dense else None)
    return config.run / MODEL


def contrast_config(options: ConfigurationsOptions, configuration: Configuration, model: Path) -> SctConfig:
    """Return the second stage's options."""
    rates = ["echo=3e-3"] if SOURCE in configuration.views else []
    rates += ["connector.projector=0"] if configuration.output == MULTILINGUAL_HEAD else []
    return replace_options(
        SctConfig(),
        **_common(options, f"contrast-{configuration.number}", model, options.sct_steps),
        data=(str(options.work / SCORED),),
        temperature=2.0,
        loss=configuration.contrast or "",
        views=configuration.views,
        group_size=_GROUP_SIZE,
        query_max_length=QUERY_LENGTH,
        passage_max_length=PASSAGE_LENGTH,
        score_temperature=_DENSE_TEMPERATURE if configuration.output == DENSE else 1.0,
        lambda_query=3e-3,
        lambda_passage=3e-4,
        batch_size=options.sct_batch,
        learning_rate=1e-4,
        part_rates=(*rates, *_CONTRAST_RATES),
    )


def _common(options: ConfigurationsOptions, run: str, model: Path, steps: int) -> dict[str, Any]:
    """Return the options that all runs share."""
    return {
        "output": options.work / "runs" / run,
        "model": str(model),
        "steps": steps,
        "schedule": "cosine",
        "warmup": 0.05,
        "log_steps": 25,
        "save_steps": 100,
        "keep": 1,
        "seed": options.seed,
    }
