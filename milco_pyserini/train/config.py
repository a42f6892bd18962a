"""The options of a training run: each part of training has its own class, and a configuration holds all of them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from milco_pyserini.defaults import MINI
from milco_pyserini.encode.devices import DTYPES
from milco_pyserini.errors import Message, MilcoError, Parameter, ParameterError, parameter, validate_unique
from milco_pyserini.model.configuration import ECHO_VARIANTS
from milco_pyserini.options import option, option_values, options_of
from milco_pyserini.train.losses import DIRECTIONS, LOSSES, MEANS

# The teacher without a download, of both stages; and the model that a run starts from, as its own teacher.
LEXICAL, START = "lexical", "start"

# Options that do not determine the result of a run.
_OWN = ("preset", "output", "overwrite")

# Options by their heading on the help page.
_start = partial(option, group="starting point")
_data = partial(option, group="data")
_loss = partial(option, group="loss")
_source_view = partial(_loss, requires=Parameter("views", ("source",)))
_optimization = partial(option, group="optimization")
_hardware = partial(option, group="hardware")
_logs = partial(option, group="logs and checkpoints")


@dataclass(frozen=True, kw_only=True)
class StartOptions:
    """The model that a run starts from."""

    model: str | None = _start(None, metavar="CHECKPOINT", help=f"MILCO checkpoint: directory, hub name, or {MINI!r}")
    encoder: str | None = _start(
        None, metavar="CHECKPOINT", excludes=("model",), help="multilingual encoder (XLM-R type), without --model"
    )
    english: str | None = _start(
        None, metavar="CHECKPOINT", excludes=("model",), help="English masked LM of the terms, without --model"
    )


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Training data of both stages."""

    languages: tuple[str, ...] = _data((), metavar="LANG", help="training languages (default: all in the data)")
    temperature: float = _data(1.0, metavar="T", minimum=1, help="languages are sampled by size ** (1 / T)")
    concatenate: float = _data(
        0.0, metavar="SHARE", minimum=0, maximum=1, help="share of sentence pairs that are joined with further ones"
    )


@dataclass(frozen=True, kw_only=True)
class BitextOptions(DataOptions):
    """Sentence pairs for alignment."""

    bitext: tuple[str, ...] = _data((), metavar="SOURCE[=SHARE]", help="sentence pairs: files, directories, names")
    max_length: int = _data(256, minimum=1, help="tokens per text, at most")
    group_by_length: int = _data(
        0, metavar="N", minimum=0, help="sort each N batches of a process by length: less padding, no random batches"
    )

    @cached_property
    def shares(self) -> dict[str, float | None]:
        """The sources of sentence pairs, and the share of each; None where it has none."""
        return _shares(self.bitext)

    def conflicts(self) -> Iterator[MilcoError | str]:
        """Yield what is wrong with combinations of options."""
        yield from _share_errors("bitext", self.shares)


@dataclass(frozen=True, kw_only=True)
class RetrievalOptions(DataOptions):
    """Queries with passages, and translations, for contrastive training."""

    data: tuple[str, ...] = _data((), metavar="SOURCE", help="training sets: JSONL files, directories, names")
    group_size: int = _data(8, minimum=1, help="passages per query: one positive and negatives")
    parallel: tuple[str, ...] = _data(
        (), metavar="SOURCE[=SHARE]", help="sentence pairs to contrast across languages; with --data, SHARE of batches"
    )
    translations: int = _data(4, minimum=2, help="languages per sentence of --parallel, at most")
    query_max_length: int = _data(64, minimum=1, help="tokens per query, at most")
    passage_max_length: int = _data(512, minimum=1, help="tokens per passage, at most")

    @cached_property
    def shares(self) -> dict[str, float | None]:
        """The sources of sentence pairs, and the share of batches of each; None where it has none."""
        return _shares(self.parallel)

    def conflicts(self) -> Iterator[MilcoError | str]:
        """Yield what is wrong with combinations of options."""
        for name, share in self.shares.items():
            if share is None and self.data:
                rule = "next to " + parameter("data") + f" it needs a share of the batches, as in {name}=.5"
                yield ParameterError("parallel", name, rule)
        yield from _share_errors("parallel", self.shares)
        if self.data and (total := sum(share or 0 for share in self.shares.values())) >= 1:
            rule = f"has shares that sum to {total:g}, which leaves nothing for " + parameter("data")
            yield ParameterError("parallel", None, rule)


@dataclass(frozen=True, kw_only=True)
class AlignmentOptions:
    """The loss of alignment, and its teacher."""

    teacher: str = _loss("naver/splade-v3", metavar="NAME", help="English masked LM: directory, hub name, or 'lexical'")
    padding: str = _loss("-inf", choices=("-inf", "zero"), help="logits of padding; zero as in the authors' loss")
    english_weight: float = _loss(1.0, metavar="W", minimum=0, help="loss weight of the English side; 0 skips it")
    margin: float = _loss(0.0, metavar="M", minimum=0, help="distance below 0 at which logits still count as active")
    mean: str = _loss(MEANS[0], choices=MEANS, help="terms over which the squared error is averaged")


@dataclass(frozen=True, kw_only=True)
class ContrastOptions:
    """The loss of contrastive training, the source view, and teachers in addition to the scores of the data."""

    loss: str = _loss(
        "kd", choices=tuple(LOSSES), help="; ".join(f"{name} {loss.help}" for name, loss in LOSSES.items())
    )
    direction: str = _loss(
        DIRECTIONS[0],
        choices=DIRECTIONS,
        requires=Parameter("loss", [name for name, loss in LOSSES.items() if "direction" in loss.options]),
        help="direction of the KL divergence",
    )
    views: tuple[str, ...] = _loss(("pivot", "source"), choices=("pivot", "source"), help="views; source adds LexEcho")
    score_temperature: float = _loss(1.0, metavar="T", above=0, help="divisor of the student's scores")
    alignment_weight: float = _loss(
        0.0,
        metavar="W",
        minimum=0,
        help="weight of SAP's loss on the texts of --parallel; with --teacher start, on all",
    )
    regularizer: str = _loss("l1", choices=("l1", "flops"), help="sparsity regularizer")
    lambda_query: float = _loss(1e-3, metavar="W", minimum=0, help="regularization weight of queries")
    lambda_passage: float = _loss(1e-5, metavar="W", minimum=0, help="regularization weight of passages")
    regularize_source: bool = _loss(False, help="regularize the source view as well as the pivot view")
    echo_variant: str | None = _source_view(
        None,
        choices=ECHO_VARIANTS,
        help="new LexEcho head (default: linear, as the authors'; paper: LogSat; token: a weight of each token)",
    )
    source_pool: str | None = _source_view(
        None, choices=("sum", "max"), help="weight of repeated tokens (default: model's)"
    )
    source_drop_special: bool = _source_view(False, help="leave <s>, </s> and unknown tokens out of the source view")
    within_limits: bool = _loss(False, help="contrast only the strongest terms that the checkpoint's limits leave")
    teacher: str = _loss(
        LEXICAL,
        metavar="NAME",
        help="teacher of --alignment-weight: as in milco train sap, or 'start', the model that the run starts from",
    )


@dataclass(frozen=True, kw_only=True)
class OptimizerOptions:
    """Optimizer and learning rates."""

    learning_rate: float = _optimization(2e-5, metavar="RATE", above=0, help="peak learning rate")
    part_rates: tuple[str, ...] = _optimization(
        (), metavar="PART=RATE", help="learning rates of modules by name, such as encoder.embeddings; 0 freezes"
    )
    weight_decay: float = _optimization(0.0, metavar="RATE", minimum=0, help="AdamW weight decay of matrices")
    schedule: str = _optimization(
        "linear", choices=("cosine", "linear", "constant"), help="learning rate schedule after the warm-up"
    )
    warmup: float = _optimization(0.0, metavar="N", minimum=0, help="warm-up steps; below 1: share of all steps")

    @cached_property
    def rates(self) -> dict[str, float]:
        """The learning rates of part_rates by the name of a module or parameter."""
        parsed = dict[str, float]()
        for text in self.part_rates:
            part, rate = _split_number(text, "part")
            if not part or rate is None or not 0 <= rate < math.inf:
                raise ParameterError(
                    "part_rates", text, "expected PART=RATE, at least 0 and finite, as in decoder=1e-4"
                )
            if part in parsed:
                raise ParameterError("part_rates", text, f"{part} is given twice")
            parsed[part] = rate
        return parsed

    def conflicts(self) -> Iterator[MilcoError | str]:
        """Yield what is wrong with combinations of options."""
        if self.warmup > 1 and not self.warmup.is_integer():
            yield ParameterError("warmup", self.warmup, "must be a number of steps, or below 1 their share")
        _ = self.rates


@dataclass(frozen=True, kw_only=True)
class LoopOptions:
    """The training loop: steps, batches, hardware, logs and checkpoints."""

    epochs: float = _optimization(1.0, metavar="N", above=0, help="passes over the data")
    steps: int | None = _optimization(None, minimum=1, help="optimizer steps, instead of --epochs")
    batch_size: int = _optimization(32, minimum=1, help="examples per device and forward pass")
    accumulation: int = _optimization(1, minimum=1, help="forward passes per optimizer step")
    max_grad_norm: float = _optimization(1.0, metavar="NORM", minimum=0, help="norm at which gradients are clipped")
    seed: int = _optimization(42, minimum=0, help="random seed")
    dtype: str = _hardware("auto", choices=DTYPES, help="matrix product precision; auto is bfloat16 where it is native")
    gradient_checkpointing: bool = _hardware(False, help="recompute encoder activations to save memory")
    device: str = _hardware("auto", choices=("auto", "cpu"), help="auto is a GPU if there is one")
    workers: int = _hardware(0, minimum=0, maximum=256, help="data loader processes; 0 uses the main process")
    log_steps: int = _logs(500, minimum=1, help="steps between log entries")
    save_steps: int = _logs(1000, minimum=1, help="steps between checkpoints")
    keep: int = _logs(2, minimum=1, help="number of latest checkpoints to keep")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Options of both training stages."""

    preset: str = option(
        "",
        metavar="NAME|FILE",
        help="options by name, or a JSON file such as a run's config.json; all other options override them",
    )
    output: Path | None = option(None, metavar="DIR", help="run directory, resumed (default: checkpoints/PRESET)")
    overwrite: bool = option(False, help="replace an existing run")
    start: StartOptions = options_of(StartOptions)
    optimizer: OptimizerOptions = options_of(OptimizerOptions)
    loop: LoopOptions = options_of(LoopOptions)
    probe: tuple[str, ...] = _logs((), metavar="SOURCE", help="held-out sentence pairs: are terms grounded in them?")

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.output or Path("checkpoints") / Path(self.preset).stem

    def sources(self) -> Iterator[str]:
        """Yield the names or paths of everything that the run reads."""
        values = option_values(self)
        for name in ("model", "encoder", "english", "teacher"):
            if value := values.get(name):
                yield value
        for name in ("bitext", "parallel"):
            yield from _shares(values.get(name, ()))
        yield from (*values.get("data", ()), *self.probe)

    def conflicts(self) -> Iterator[MilcoError | str]:
        """Yield what is wrong with combinations of options."""
        if self.output is None and not self.preset:
            yield Message("{output} is required without {preset}")
        for part in vars(self).values():
            try:
                yield from getattr(part, "conflicts", list)()
            except MilcoError as error:
                yield error


@dataclass(frozen=True, kw_only=True)
class SapConfig(TrainingConfig):
    """Sparse alignment pretraining: align texts in any language with the English terms of their translations.

    A run that exists in --output is resumed from its latest checkpoint.

      milco train sap --preset paper-sap
    """

    training_data: BitextOptions = options_of(BitextOptions)
    objective: AlignmentOptions = options_of(AlignmentOptions)

    def conflicts(self) -> Iterator[MilcoError | str]:
        """Yield what is wrong with combinations of options."""
        if not self.training_data.bitext:
            yield Message("{bitext} is required: files or directories of sentence pairs, or collections by name")
        yield from super().conflicts()


@dataclass(frozen=True, kw_only=True)
class SctConfig(TrainingConfig):
    """Sparse contrastive training: score queries' positive passages above negative ones.

    A run that exists in --output is resumed from its latest checkpoint.

      milco train sct --preset paper-sct --model checkpoints/paper-sap/model
    """

    training_data: RetrievalOptions = options_of(RetrievalOptions)
    objective: ContrastOptions = options_of(ContrastOptions)

    def conflicts(self) -> Iterator[MilcoError | str]:
        """Yield what is wrong with combinations of options."""
        data, loss = self.training_data, self.objective
        if not data.data and not data.parallel:
            yield Message("{data} is required: files or directories of queries and passages, or collections by name")
        yield from super().conflicts()
        if data.data and data.group_size < (least := LOSSES[loss.loss].group_size):
            rule = parameter("loss", loss.loss) + " compares the passages of a query"
            yield ParameterError("group_size", data.group_size, rule, f"Give {least} or more.")
        if data.parallel and self.loop.batch_size == 1:
            rule = parameter("parallel") + " contrasts the texts of a batch"
            yield ParameterError("batch_size", 1, rule, "Give 2 or more.")


def config_values(config: TrainingConfig) -> dict[str, Any]:
    """Return the options that determine the result of a run, as JSON values by name."""
    values = {name: value for name, value in option_values(config).items() if name not in _OWN}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _shares(sources: Sequence[str]) -> dict[str, float | None]:
    shares = [_split_number(source, "source") for source in sources]
    validate_unique("source", [name for name, _ in shares])
    return dict(shares)


def _share_errors(option: str, shares: Mapping[str, float | None]) -> Iterator[MilcoError]:
    for name, share in shares.items():
        if share is not None and not 0 < share < math.inf:
            yield ParameterError(option, f"{name}={share:g}", "a share must be above 0")


def _split_number(text: str, what: str) -> tuple[str, float | None]:
    name, equals, number = text.rpartition("=")
    if not equals:
        return text, None
    try:
        return name, float(number)
    except ValueError:
        raise MilcoError(f"{what} {text!r}: expected a number after =, got {number!r}") from None
