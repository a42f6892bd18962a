"""A training run's options, and recipes: YAML files that give them other defaults."""

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.options import option

RECIPES = Path(__file__).parent / "recipes"
SCHEDULES = ("cosine", "linear", "constant")
DTYPES = ("auto", "float32", "bfloat16")

# What check() asks of numbers; of the others, at least 0.
_AT_LEAST_1 = ("temperature", "steps", "batch_size", "accumulation", "log_steps", "save_steps", "keep", "group_size")
_ABOVE_0 = ("epochs", "learning_rate", "score_temperature")
# Processes; beyond the processors they only take memory.
_MOST_WORKERS = 256
# What a run starts from: a checkpoint, or an encoder and an English head.
_PARTS = ("encoder", "english")
# As of every integer option.
_LARGEST_SEED = 2**31 - 1

OptionsT = TypeVar("OptionsT", bound="TrainingOptions")


@dataclass(frozen=True)
class TrainingOptions:
    """What both stages have in common."""

    config: str = option(help="recipe: a name, or a YAML file; every other option overrides it")
    output: Path | None = option(None, help="run directory (default: checkpoints/RECIPE); a run there goes on")
    overwrite: bool = option(False, help="replace the run that stands at --output")
    model: str | None = option(None, help=f"MILCO checkpoint to start from: a directory, a hub name, or {MINI!r}")
    encoder: str | None = option(None, help="without --model: multilingual encoder to start from (XLM-R type)")
    english: str | None = option(None, help="without --model: English masked LM that gives head and vocabulary")
    languages: tuple[str, ...] = option((), help="only these (default: every one in the data)")
    temperature: float = option(1.0, help="languages are drawn by size to the power 1 / temperature")
    epochs: float = option(1.0, help="passes over the data")
    steps: int | None = option(None, help="optimiser steps, instead of --epochs")
    batch_size: int = option(32, help="examples a step on one device")
    accumulation: int = option(1, help="batches whose gradients make one step")
    learning_rate: float = option(2e-5, help="highest learning rate")
    part_rates: tuple[str, ...] = option(
        (), metavar="PART=RATE", help="other learning rates, by the start of a parameter's name; 0 freezes the part"
    )
    weight_decay: float = option(0.0, help="AdamW's, for matrices")
    schedule: str = option("linear", choices=SCHEDULES, help="of the learning rate behind the warm-up")
    warmup: float = option(0.0, help="steps of warm-up; below 1, their share of all steps")
    max_grad_norm: float = option(1.0, help="gradients are clipped at this norm")
    dtype: str = option("auto", choices=DTYPES, help="of matrix products; auto is bfloat16 where it is native")
    gradient_checkpointing: bool = option(False, help="spend time to save the memory of the encoder's layers")
    device: str = option("auto", choices=("auto", "cpu"), help="auto is the GPU where there is one")
    workers: int = option(0, help="processes that prepare batches; 0 prepares them in the main one")
    lowercase: bool = option(False, help="fold the texts' case")
    log_steps: int = option(500, help="steps between two log entries")
    save_steps: int = option(1000, help="steps between two checkpoints")
    keep: int = option(2, help="newest checkpoints that are kept")
    probe: tuple[str, ...] = option(
        (),
        metavar="SOURCE",
        help="sentence pairs for the alarms, not trained on: are terms grounded in the translation?",
    )
    seed: int = option(42, help="of the order of the data and of every random number")


@dataclass(frozen=True)
class SapOptions(TrainingOptions):
    """Sparse alignment pretraining: sentences in any language towards the English terms of their translations."""

    bitext: tuple[str, ...] = option(
        (), metavar="SOURCE[=SHARE]", help="sentence pairs: files, directories, collections by name"
    )
    teacher: str = option("naver/splade-v3", help="English masked LM, a lexical teacher's file, or 'lexical'")
    concatenate: float = option(0.0, help="share of examples that join 2, 4 or 8 pairs")
    max_length: int = option(256, help="tokens of a text")
    padding: str = option("-inf", choices=("-inf", "zero"), help="logits of padding; zero as in the authors' loss")
    english_weight: float = option(1.0, help="weight of the English side's loss")
    margin: float = option(0.0, help="logits below 0 that still count as active")
    mean: str = option("active", choices=("active", "teacher"), help="terms that the squared error is divided by")


@dataclass(frozen=True)
class SctOptions(TrainingOptions):
    """Sparse contrastive training: queries towards their passages, away from others."""

    data: tuple[str, ...] = option((), metavar="SOURCE", help="training sets: JSONL files, directories, names")
    loss: str = option("kd", choices=("kd", "infonce"), help="towards a cross-encoder's scores, or the positive")
    direction: str = option(
        "teacher-student", choices=("teacher-student", "student-teacher"), help="of the KL divergence"
    )
    views: tuple[str, ...] = option(
        ("pivot", "source"), choices=("pivot", "source"), help="views that are trained; source adds a LexEcho head"
    )
    group_size: int = option(8, help="passages of a query: one positive, the others negatives")
    query_max_length: int = option(64, help="tokens of a query")
    passage_max_length: int = option(512, help="tokens of a passage")
    score_temperature: float = option(1.0, help="divides the student's scores")
    regularizer: str = option("l1", choices=("l1", "flops"), help="of the vectors' lengths")
    lambda_query: float = option(1e-3, help="weight of the queries' regularizer")
    lambda_passage: float = option(1e-5, help="weight of the passages' regularizer")
    regularize_source: bool = option(False, help="regularize the source view as well as the pivot view")


def check(options: TrainingOptions) -> None:
    """Raise MilcoError for a number that nothing can be trained with, an unknown name, or a broken part rate."""
    for field in dataclasses.fields(options):
        name, value = f"--{field.name.replace('_', '-')}", getattr(options, field.name)
        choices = field.metadata["choices"]
        for one in value if isinstance(value, tuple) else (value,):
            if choices and one not in choices:
                raise unknown_name(f"value for {name}", one, choices)
        if isinstance(value, int | float):
            good, limit = _within(field.name, value)
            if not good:
                raise MilcoError(f"{name} {value}: must be {limit}")
    for part in _PARTS:
        if options.model is not None and getattr(options, part) is not None:
            raise MilcoError(f"--model and --{part}: a run starts from one of them. Leave one out.")
    part_rates(options)


def _within(name: str, value: float) -> tuple[bool, str]:
    """Whether a number is one that its option takes, and in words which it takes."""
    if not abs(value) < math.inf:
        return False, "a finite number"
    if name == "seed":
        return 0 <= value <= _LARGEST_SEED, f"at least 0 and at most {_LARGEST_SEED:,}"
    if name == "workers":
        return 0 <= value <= _MOST_WORKERS, f"at least 0 and at most {_MOST_WORKERS}"
    if name in _AT_LEAST_1:
        return value >= 1, "at least 1"
    return (value > 0, "above 0") if name in _ABOVE_0 else (value >= 0, "at least 0")


def with_recipe(options_class: type[OptionsT], argv: Sequence[str]) -> type[OptionsT]:
    """The options with the defaults of the recipe that argv names (--config).

    A model in argv replaces the recipe's encoder and English head, and the other way round. Raises MilcoError naming
    the recipe and the key if one is unknown or of the wrong kind.
    """
    name = _config_name(argv)
    if name is None:
        return options_class
    values = read_recipe(options_class, name)
    given = {argument.partition("=")[0] for argument in argv}
    replaced = _PARTS if "--model" in given else ("model",) if given & {f"--{part}" for part in _PARTS} else ()
    return _with_defaults(options_class, {key: values[key] for key in values if key not in replaced})


def from_recipe(options_class: type[OptionsT], name: str, **values: Any) -> OptionsT:
    """The options of a recipe, by name or path, with values instead of some of its own."""
    return options_class(config=name, **{**read_recipe(options_class, name), **values})


def read_recipe(options_class: type[TrainingOptions], name: str) -> dict[str, Any]:
    """The values of a recipe, by name or path, each of its option's type."""
    known = sorted(path.stem for path in RECIPES.glob("*.yaml"))
    path = RECIPES / f"{name}.yaml" if name in known else Path(name)
    if not path.is_file():
        raise unknown_name("recipe", name, known, "Or give a YAML file.")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise MilcoError(f"{path} is not YAML: {error}") from None
    if not isinstance(values, Mapping):
        raise MilcoError(f"{path} holds no keys and values")
    hints = typing.get_type_hints(options_class)
    fields = {field.name.replace("_", "-"): field.name for field in dataclasses.fields(options_class)}
    read = {}
    for key, value in values.items():
        if key not in fields or key == "config":
            raise unknown_name(f"key in {path}:", str(key), sorted(set(fields) - {"config"}))
        read[fields[key]] = _value(hints[fields[key]], value, f"{path}: {key}")
    return read


def write_recipe(options: TrainingOptions) -> str:
    """The options as a recipe that gives them again, as YAML."""
    values = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name not in ("config", "output", "overwrite") and value is not None:
            values[field.name.replace("_", "-")] = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def shares(sources: Sequence[str]) -> dict[str, float | None]:
    """SOURCE or SOURCE=SHARE to its share of the examples, None where it is not given."""
    return dict(_pair(source, "source") for source in sources)


def part_rates(options: TrainingOptions) -> dict[str, float]:
    """Learning rates by the start of a parameter's name."""
    rates = {}
    for text in options.part_rates:
        part, rate = _pair(text, "part")
        if rate is None or not 0 <= rate < math.inf:
            raise MilcoError(f"--part-rates {text}: expected PART=RATE, at least 0 and finite, as in decoder=1e-4")
        rates[part] = rate
    return rates


def _pair(text: str, what: str) -> tuple[str, float | None]:
    name, equals, number = text.rpartition("=")
    if not equals:
        return text, None
    try:
        return name, float(number)
    except ValueError:
        raise MilcoError(f"{what} {text!r}: {number!r} behind = is not a number") from None


def _config_name(argv: Sequence[str]) -> str | None:
    names = [after for argument, after in zip(argv, [*argv[1:], ""], strict=True) if argument == "--config"]
    names += [argument.partition("=")[2] for argument in argv if argument.startswith("--config=")]
    if len(names) > 1:
        raise MilcoError(f"--config {' --config '.join(names)}: a run has one recipe. Leave the others out.")
    return names[0] if names and names[0] else None


def _value(hint: Any, value: Any, where: str) -> Any:
    """A YAML value as the option's type; a mapping becomes KEY=VALUE."""
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
    kind = kinds[0]
    if typing.get_origin(hint) is tuple:
        if isinstance(value, Mapping):
            return tuple(f"{name}={inner}" for name, inner in value.items())
        return tuple(str(inner) for inner in (value if isinstance(value, list) else [value]))
    if kind is float and isinstance(value, str | int) and not isinstance(value, bool):
        try:
            return float(value)  # YAML 1.1 reads 2e-5 as a string.
        except ValueError:
            pass
    if kind is Path and isinstance(value, str):
        return Path(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(
            kind, kind.__name__
        )
        raise MilcoError(f"{where} takes {wanted}, not {value!r}")
    return value


def _with_defaults(options_class: type[OptionsT], values: Mapping[str, Any]) -> type[OptionsT]:
    """The same options with other defaults."""
    hints = typing.get_type_hints(options_class)
    fields = [
        (
            field.name,
            hints[field.name],
            dataclasses.field(default=values.get(field.name, field.default), metadata=field.metadata),
        )
        for field in dataclasses.fields(options_class)
    ]
    made = dataclasses.make_dataclass(options_class.__name__, fields, frozen=True, bases=(options_class,))
    made.__doc__ = options_class.__doc__
    return made
