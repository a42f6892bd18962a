"""Training configurations: the options of a run, and their defaults in YAML files."""

import dataclasses
import itertools
import math
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from milco_pyserini.defaults import MINI
from milco_pyserini.encode.devices import DTYPES
from milco_pyserini.errors import MilcoError, unknown_name, validate_unique
from milco_pyserini.options import option

# The teacher without a download, of both stages.
LEXICAL = "lexical"
CONFIGS = Path(__file__).parent / "configs"

# Options by their heading on the help page.
_start = partial(option, group="starting point")
_data = partial(option, group="data")
_loss = partial(option, group="loss")
_optimization = partial(option, group="optimization")
_hardware = partial(option, group="hardware")
_logs = partial(option, group="logs and checkpoints")
_START_PARTS = ("encoder", "english")

ConfigT = TypeVar("ConfigT", bound="TrainingConfig")


@dataclass(frozen=True)
class TrainingConfig:
    """Options of both training stages. Fields are the keys of a YAML file, with dashes."""

    config: str = option(
        metavar="NAME|FILE", help="training configuration by name, or a YAML file; all other options override it"
    )
    output: Path | None = option(
        None, metavar="DIR", help="run directory (default: checkpoints/CONFIG); a run in it is resumed"
    )
    overwrite: bool = option(False, help="replace an existing run")
    model: str | None = _start(
        None, metavar="CHECKPOINT", help=f"MILCO checkpoint to start from: directory, hub name, or {MINI!r}"
    )
    encoder: str | None = _start(
        None, metavar="CHECKPOINT", help="multilingual encoder to start from (XLM-R type), if there is no --model"
    )
    english: str | None = _start(
        None, metavar="CHECKPOINT", help="English masked LM for head and vocabulary, if there is no --model"
    )
    dense: str | None = _loss(
        None,
        choices=("cls", "mean"),
        help="train the paper's dense baseline: one vector per text, the encoder's first state or the mean of all",
    )
    languages: tuple[str, ...] = _data((), metavar="LANG", help="training languages (default: all in the data)")
    temperature: float = _data(1.0, metavar="T", minimum=1, help="languages are sampled by size ** (1 / T)")
    epochs: float = _optimization(1.0, metavar="N", above=0, help="passes over the data")
    steps: int | None = _optimization(None, minimum=1, help="optimizer steps, instead of --epochs")
    batch_size: int = _optimization(32, minimum=1, help="examples per device and forward pass")
    accumulation: int = _optimization(1, minimum=1, help="forward passes per optimizer step")
    learning_rate: float = _optimization(2e-5, metavar="RATE", above=0, help="peak learning rate")
    part_rates: tuple[str, ...] = _optimization(
        (), metavar="PART=RATE", help="learning rates of modules by name, such as encoder.embeddings; 0 freezes"
    )
    weight_decay: float = _optimization(0.0, metavar="RATE", minimum=0, help="AdamW weight decay of matrices")
    schedule: str = _optimization(
        "linear", choices=("cosine", "linear", "constant"), help="learning rate schedule after the warm-up"
    )
    warmup: float = _optimization(
        0.0, metavar="N", minimum=0, help="warm-up steps, or below 1 their share of all steps"
    )
    max_grad_norm: float = _optimization(1.0, metavar="NORM", minimum=0, help="norm at which gradients are clipped")
    dtype: str = _hardware("auto", choices=DTYPES, help="matrix product precision; auto is bfloat16 where it is native")
    gradient_checkpointing: bool = _hardware(False, help="recompute encoder activations to save memory")
    device: str = _hardware("auto", choices=("auto", "cpu"), help="auto is a GPU if there is one")
    workers: int = _hardware(
        0, minimum=0, maximum=256, help="data loader processes; 0 prepares batches in the main process"
    )
    lowercase: bool = _data(False, help="lowercase all texts")
    log_steps: int = _logs(500, minimum=1, help="steps between log entries")
    save_steps: int = _logs(1000, minimum=1, help="steps between checkpoints")
    keep: int = _logs(2, minimum=1, help="number of latest checkpoints to keep")
    evaluate: str | None = _logs(
        None,
        metavar="NAME",
        help="small collection, such as sample, whose nDCG@10 is logged at each checkpoint; the best one is kept",
    )
    probe: tuple[str, ...] = _logs(
        (), metavar="SOURCE", help="held-out sentence pairs for the alarms: are terms grounded in the translation?"
    )
    seed: int = _optimization(42, minimum=0, help="random seed")

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.output or Path("checkpoints") / Path(self.config).stem

    def sources(self) -> Iterator[str]:
        """Yield the names or paths of everything that the run reads."""
        for name in ("model", "encoder", "english", "teacher", "dense_teacher"):
            if value := getattr(self, name, None):
                yield value
        for name in ("bitext", "parallel"):
            yield from parse_shares(getattr(self, name, ()))
        for name in ("data", "probe"):
            yield from getattr(self, name, ())

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with combinations of options."""
        if self.warmup > 1 and not self.warmup.is_integer():
            yield f"`warmup={self.warmup:g}`: give a number of steps, or below 1 their share"
        for part in _START_PARTS:
            if self.model is not None and getattr(self, part) is not None:
                yield f"`model` and `{part}`: a run starts from one of them. Leave one out."
        if self.dense is not None and self.probe:
            yield f"`dense={self.dense}` and `probe`: a dense vector has no terms that are grounded. Leave one out."
        try:
            parse_part_rates(self.part_rates)
        except MilcoError as error:
            yield str(error)


@dataclass(frozen=True)
class SapConfig(TrainingConfig):
    """Sparse alignment pretraining: align texts in any language with the English terms of their translations.

    A run that exists in --output is resumed from its latest checkpoint.

      milco train sap --config paper-sap
    """

    bitext: tuple[str, ...] = _data(
        (), metavar="SOURCE[=SHARE]", help="sentence pairs: files, directories, collections by name"
    )
    teacher: str = _loss(
        "naver/splade-v3",
        metavar="NAME|FILE",
        help="English masked LM, a lexical teacher's file, or 'lexical'; with --dense, an English dense encoder",
    )
    concatenate: float = _data(
        0.0, metavar="SHARE", minimum=0, maximum=1, help="share of examples that join 2, 4 or 8 pairs"
    )
    max_length: int = _data(256, minimum=1, help="tokens per text, at most")
    group_by_length: int = _data(
        0,
        metavar="N",
        minimum=0,
        help="sort each N batches of a process by length: less padding, but batches are no random samples",
    )
    padding: str = _loss("-inf", choices=("-inf", "zero"), help="logits of padding; zero as in the authors' loss")
    english_weight: float = _loss(1.0, metavar="W", minimum=0, help="loss weight of the English side; 0 skips it")
    margin: float = _loss(0.0, metavar="M", minimum=0, help="distance below 0 at which logits still count as active")
    mean: str = _loss("active", choices=("active", "teacher"), help="terms over which the squared error is averaged")

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with combinations of options."""
        if not self.bitext:
            yield "`bitext` is required: files or directories of sentence pairs, or collections by name"
        yield from super().conflicts()


@dataclass(frozen=True)
class SctConfig(TrainingConfig):
    """Sparse contrastive training: score queries' positive passages above negative ones.

    A run that exists in --output is resumed from its latest checkpoint.

      milco train sct --config paper-sct --model checkpoints/paper-sap/model
    """

    data: tuple[str, ...] = _data((), metavar="SOURCE", help="training sets: JSONL files, directories, names")
    loss: str = _loss(
        "kd", choices=("kd", "infonce"), help="kd distills a teacher's scores; infonce contrasts with the positive"
    )
    direction: str = _loss(
        "teacher-student", choices=("teacher-student", "student-teacher"), help="direction of the KL divergence"
    )
    views: tuple[str, ...] = _loss(
        ("pivot", "source"), choices=("pivot", "source"), help="views to train; source adds a LexEcho head"
    )
    echo_variant: str | None = _loss(
        None,
        choices=("linear", "paper"),
        help="new LexEcho head: linear as in the authors' code, or LogSat of an extra decoder row as in the paper "
        "(default: linear)",
    )
    source_pool: str | None = _loss(
        None, choices=("sum", "max"), help="weight of a token that is repeated in a text (default: the model's)"
    )
    source_drop_special: bool = _loss(False, help="leave <s>, </s> and unknown tokens out of the source view")
    group_size: int = _data(8, minimum=1, help="passages per query: one positive and negatives")
    parallel: tuple[str, ...] = _data(
        (),
        metavar="SOURCE[=SHARE]",
        help="sentence pairs whose translations are contrasted across languages; next to --data, with their shares of "
        "the batches",
    )
    translations: int = _data(4, minimum=2, help="languages per sentence of --parallel, at most")
    concatenate: float = _data(
        0.0, metavar="SHARE", minimum=0, maximum=1, help="share of texts of --parallel that are joined to passages"
    )
    query_max_length: int = _data(64, minimum=1, help="tokens per query, at most")
    passage_max_length: int = _data(512, minimum=1, help="tokens per passage, at most")
    score_temperature: float = _loss(1.0, metavar="T", above=0, help="divisor of the student's scores")
    dense_teacher: str | None = _loss(
        None,
        metavar="NAME",
        help="dense encoder whose cosines of a batch's texts, centered per language, are distilled as well",
    )
    teacher_temperature: float = _loss(0.05, metavar="T", above=0, help="divisor of the dense teacher's cosines")
    alignment_weight: float = _loss(
        0.0, metavar="W", minimum=0, help="weight of SAP's loss on the texts of --parallel, which keeps terms grounded"
    )
    teacher: str = _loss(LEXICAL, metavar="NAME|FILE", help="teacher of --alignment-weight, as in milco train sap")
    regularizer: str = _loss("l1", choices=("l1", "flops"), help="sparsity regularizer")
    lambda_query: float = _loss(1e-3, metavar="W", minimum=0, help="regularization weight of queries")
    lambda_passage: float = _loss(1e-5, metavar="W", minimum=0, help="regularization weight of passages")
    regularize_source: bool = _loss(False, help="regularize the source view as well as the pivot view")

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with combinations of options."""
        if not self.data and not self.parallel:
            yield "`data` is required: files or directories of queries and passages, or collections by name"
        yield from super().conflicts()
        if self.data and self.loss == "kd" and self.group_size == 1:
            yield "`group_size=1`: `loss=kd` compares the passages of a query, give 2 or more"
        trains_source = "source" in self.views and self.dense is None
        for name in ("echo_variant", "source_pool", "source_drop_special"):
            if not trains_source and getattr(self, name):
                yield f"`{name}`: it is of the source view, which is trained with `views=source`"
        for name in ("parallel", "dense_teacher"):
            if self.dense is not None and getattr(self, name):
                yield f"`dense={self.dense}` and `{name}`: it compares sparse vectors. Leave one out."
        if self.parallel and self.batch_size == 1:
            yield "`batch_size=1`: `parallel` contrasts the texts of a batch, give 2 or more"
        try:
            shares = parse_shares(self.parallel)
        except MilcoError as error:
            yield str(error)
            return
        for name, share in shares.items():
            if share is None and self.data:
                yield f"`parallel={name}`: next to `data` it needs a share of the batches, as in {name}=.5"
            elif share is not None and not 0 < share < math.inf:
                yield f"`parallel={name}={share:g}`: a share must be above 0"
        if self.data and (total := sum(share or 0 for share in shares.values())) >= 1:
            yield f"`parallel`: its shares sum to {total:g}, which leaves nothing for `data`"


def load_config(config_class: type[ConfigT], name: str, **values: Any) -> ConfigT:
    """Return the configuration of that name or path; values override its own. Arguments as for read_config()."""
    return config_class(config=name, **{**read_config(config_class, name, values), **values})


def read_config(config_class: type[TrainingConfig], name: str, given: Collection[str]) -> dict[str, Any]:
    """Read the values of a configuration by name or path, converted to the types of their fields.

    Args:
        given: names of options that override it. A model replaces its encoder and its English head, and vice versa.

    Raises:
        MilcoError: the file is unknown or not YAML, or a key is unknown or of the wrong type.
    """
    known = sorted(path.stem for path in CONFIGS.glob("*.yaml"))
    path = CONFIGS / f"{name}.yaml" if name in known else Path(name)
    if not path.is_file():
        raise unknown_name("training configuration", name, known, "A YAML file is accepted too.")
    content = path.read_bytes()
    try:
        values = yaml.load(content.decode(), _UniqueKeyLoader)
    except Exception as error:
        # PyYAML also raises what fails within it: RecursionError for many brackets, KeyError for !!bool x.
        raise MilcoError(f"{path} is not YAML: {error}") from None
    if not isinstance(values, Mapping):
        raise MilcoError(f"{path} is not a YAML mapping: expected lines of KEY: VALUE")
    hints = typing.get_type_hints(config_class)
    fields = {field.name.replace("_", "-"): field.name for field in dataclasses.fields(config_class)}
    read = {}
    for key, value in values.items():
        for stage, other in (("sap", SapConfig), ("sct", SctConfig)):
            if key not in fields and any(key == field.name.replace("_", "-") for field in dataclasses.fields(other)):
                raise MilcoError(f"{path}: {key} is an option of milco train {stage} only")
        if key not in fields or key == "config":
            raise unknown_name(f"key in {path}:", str(key), sorted(set(fields) - {"config"}))
        if value is not None:
            read[fields[key]] = _convert(value, hints[fields[key]], f"{path}: {key}")
    for replaced in _START_PARTS if "model" in given else ("model",) if {*given} & {*_START_PARTS} else ():
        read.pop(replaced, None)
    return read


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that is given twice, of which YAML keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [self.construct_object(key, deep) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Convert a YAML value to a field's type; a mapping becomes a tuple of KEY=VALUE. where: for the error."""
    if typing.get_origin(hint) is tuple:
        items = value if isinstance(value, list) else [value]
        if isinstance(value, Mapping):
            items = [item for pair in value.items() for item in pair]
        if any(isinstance(item, bool) for item in items):
            raise MilcoError(f"{where} has an unquoted yes, no, on or off, a truth value in YAML: write it in quotes")
        for item in items:
            if not isinstance(item, str | int | float):
                raise MilcoError(
                    f"{where} expects a list or mapping of strings and numbers, got a {type(item).__name__}"
                )
        if isinstance(value, Mapping):
            return tuple(f"{key}={number}" for key, number in value.items())
        return tuple(map(str, items))
    kind = next((kind for kind in typing.get_args(hint) if kind is not type(None)), hint)
    if kind is float and isinstance(value, str | int) and not isinstance(value, bool):
        try:
            return float(value)  # YAML 1.1 reads 2e-5 as a string.
        except (ValueError, OverflowError):
            pass
    if kind is Path and isinstance(value, str):
        return Path(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        names = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}
        raise MilcoError(f"{where} expects {names.get(kind, kind.__name__)}, got {value!r}")
    return value


def config_values(config: TrainingConfig) -> dict[str, Any]:
    """Return what determines the result of a run, by the keys of a YAML file."""
    given = {name: value for name, value in vars(config).items() if name not in ("config", "output", "overwrite")}
    return {name.replace("_", "-"): list(value) if isinstance(value, tuple) else value for name, value in given.items()}


def with_config_defaults(config_class: type[ConfigT], argv: Sequence[str]) -> type[ConfigT]:
    """Return config_class with the defaults of the configuration that argv names (--config)."""
    names = [value for option, value in itertools.pairwise(argv) if option == "--config"]
    names += [argument.partition("=")[2] for argument in argv if argument.startswith("--config=")]
    # The parser refuses a second one.
    if not names or not names[0]:
        return config_class
    given = {argument.partition("=")[0][2:] for argument in argv if argument.startswith("--")}
    values = read_config(config_class, names[0], given)
    hints = typing.get_type_hints(config_class)
    fields = [
        (
            field.name,
            hints[field.name],
            dataclasses.field(default=values.get(field.name, field.default), metadata=field.metadata),
        )
        for field in dataclasses.fields(config_class)
    ]
    made = dataclasses.make_dataclass(config_class.__name__, fields, frozen=True, bases=(config_class,))
    made.__doc__ = config_class.__doc__
    return made


def parse_shares(sources: Sequence[str]) -> dict[str, float | None]:
    """Return the share of each SOURCE[=SHARE]; None where it has none."""
    shares = [_split_number(source, "source") for source in sources]
    validate_unique("source", [name for name, _ in shares])
    return dict(shares)


def parse_part_rates(rates: Sequence[str]) -> dict[str, float]:
    """Return learning rates by the name of a module or parameter, from PART=RATE."""
    parsed = {}
    for text in rates:
        part, rate = _split_number(text, "part")
        if not part or rate is None or not 0 <= rate < math.inf:
            raise MilcoError(f"`part_rates={text}`: expected PART=RATE, at least 0 and finite, as in decoder=1e-4")
        if part in parsed:
            raise MilcoError(f"`part_rates={text}`: {part} is given twice")
        parsed[part] = rate
    return parsed


def _split_number(text: str, what: str) -> tuple[str, float | None]:
    name, equals, number = text.rpartition("=")
    if not equals:
        return text, None
    try:
        return name, float(number)
    except ValueError:
        raise MilcoError(f"{what} {text!r}: expected a number after =, got {number!r}") from None
