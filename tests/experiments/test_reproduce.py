"""python -m experiments.reproduce: what is run once, resumed, left out and combined; and the command."""

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from golden_set import GOLDEN

from experiments import cells, reproduce, tables, timing
from experiments.cells import Cell, plan_table
from experiments.report import Result
from experiments.reproduce import Runner, main
from experiments.steps import CORPUS, Pipeline, Source, Step
from experiments.tables import Dataset, Table, find_system, paper
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval.fairness import FAIRNESS_MEASURES
from milco_pyserini.io.files import write_json

pytestmark = pytest.mark.slow

PUBLISHED = dict(paper().checkpoints)


class FakeCommands:
    """Replaces the commands: writes their outputs and remembers them. broken: names of outputs that fail."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.broken: set[str] = set()

    def __call__(self, step: Step) -> None:
        command = " ".join(step.argv).partition(" --")[0]
        self.ran.append(command)
        if step.output.name in self.broken:
            raise MilcoError(f"{step.output} is broken", hint="Mend it.")
        if command == "milco eval":
            words = list(step.argv)
            named = words[words.index("--measures") + 1 : words.index("--format")]
            named += FAIRNESS_MEASURES if "--fairness" in words else ()
            write_json(step.output, {"results": [{"measures": {name: {"mean": 0.5} for name in named}}]})
        else:
            write_json(step.done, {})


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCommands:
    """Replace the commands."""
    commands = FakeCommands()
    monkeypatch.setattr(reproduce, "run", commands)
    monkeypatch.setattr(reproduce, "corpus_size", lambda name: 0)
    return commands


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Source]:
    """The sources that are opened; a name with "gone" is not available."""
    sources: list[Source] = []

    def open_source(kind: str, name: str) -> None:
        sources.append((kind, name))
        if "gone" in name:
            raise MilcoError(f"{name} is not available", hint="Copy it.")

    monkeypatch.setattr(reproduce, "open_source", open_source)
    return sources


def cell_of(directory: Path, corpus: str, column: str = "ar", system: str = "milco") -> Cell:
    """A cell of a corpus of that name, published at 50.3."""
    figures = {(find_system(system).published_as.get("miracl", ""), column): 50.3}
    columns = {column: Dataset(corpus, f"{corpus}-dev", "ar")}
    table = Table("t", "effectiveness", "T", "", columns, figures=figures, source="miracl")
    ((_, (cell,)),) = plan_table(table, Pipeline(directory, PUBLISHED), [system])
    return cell


def test_a_cell_is_measured_once(tmp_path: Path, fake: FakeCommands, asked: list[Source]) -> None:
    """Encode, index, search, eval; the next run reads the evaluation. A run that was removed is made again."""
    cell = cell_of(tmp_path, "some")
    assert cell.figure() is None
    assert Runner().measure(cell) == Result(cell, 50.0)
    assert fake.ran == ["milco encode", "milco index", "milco search", "milco eval"]
    assert cell.published == 50.3
    assert Runner().measure(cell).figure == 50.0
    assert len(fake.ran) == 4
    (tmp_path / "runs" / "some-dev.milco.txt").unlink()
    (tmp_path / "evaluations" / "some-dev.milco.json").unlink()
    fake.ran.clear()
    asked.clear()
    assert Runner().measure(cell).figure == 50.0
    assert fake.ran == ["milco search", "milco eval"]
    assert CORPUS not in {kind for kind, _ in asked}


def test_data_that_cannot_be_had_are_asked_for_once_and_again_in_the_next_run(
    tmp_path: Path, fake: FakeCommands, asked: list[Source], capsys: pytest.CaptureFixture
) -> None:
    """The result has the reason and the fix; stderr has the reason once; nothing is run."""
    measure = Runner().measure
    gone = [measure(cell_of(tmp_path, "gone", column)) for column in ("ar", "bn")]
    assert {(result.figure, result.reason) for result in gone} == {(None, "gone is not available. Copy it.")}
    assert fake.ran == [] and asked.count((CORPUS, "gone")) == 1
    assert capsys.readouterr().err == "t: MILCO, ar: not measured: gone is not available. Copy it.\n"
    assert measure(cell_of(tmp_path, "some")).figure == 50.0
    Runner().measure(cell_of(tmp_path, "gone", "bn"))
    assert asked.count((CORPUS, "gone")) == 2


def test_a_failed_step_is_not_run_twice(tmp_path: Path, fake: FakeCommands, asked: list[Source]) -> None:
    """Its error is the reason of every cell that needs it; once mended, the same command continues."""
    fake.broken = {"some.milco"}
    measure = Runner().measure
    failed = [measure(cell_of(tmp_path, "some", column)) for column in ("ar", "bn")]
    assert "some.milco is broken. Mend it." in failed[1].reason and len(fake.ran) == 1
    fake.broken = set()
    assert Runner().measure(cell_of(tmp_path, "some")).figure == 50.0


def test_a_mean_needs_all_of_its_cells(tmp_path: Path, fake: FakeCommands, asked: list[Source]) -> None:
    """Then it is their mean, or their difference; else it has the reason of the one that is missing."""
    some, other = (cell_of(tmp_path, name) for name in ("some", "other"))
    mean = Cell("t", "MILCO", "avg", "nDCG@10", None, lambda *figures: sum(figures) / 2, parts=(some, other))
    assert mean.figure() is None
    assert Runner().measure(mean).figure == 50.0
    assert Runner().measure(replace(mean, read=lambda first, second: first - second)).figure == 0.0
    lost = replace(mean, parts=(some, cell_of(tmp_path, "gone")))
    assert Runner().measure(lost).reason == "gone is not available. Copy it."


# The command.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no table is given: name one, such as miracl, or pass --all"),
        (["miracl", "--all"], "--all selects every table: omit the others"),
        (["mirakl"], "did you mean 'miracl'"),
        (["miracl", "--lang", "xx"], "unknown column of miracl"),
        (["alpha", "--systems", "bm25"], "alpha is an analysis of milco only"),
        (["miracl", "--checkpoints", "7=x"], "unknown checkpoint '7'"),
        (["miracl", "--checkpoints", "2=/absent"], "no encoder at '/absent'"),
        (["miracl", "--local", "miracl=/"], "miracl is not read from a copy. Set IR_DATASETS_HOME=/ "),
        (["limit", "--local", "limit-small=/"], "none of the tables reads limit-small"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_written(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Exit code 2, and no directory."""
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    fake: FakeCommands,
    asked: list[Source],
) -> Callable[..., tuple[str, str]]:
    """Run the command in an empty directory; returns stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert main(arguments) == code
        shown = capsys.readouterr()
        return shown.out, shown.err

    return run


def lines_of(text: str) -> list[list[str]]:
    """The cells of the lines of Markdown tables."""
    return [[word.strip() for word in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def test_measured_is_shown_next_to_published(command: Callable[..., tuple[str, str]]) -> None:
    """A line for each cell, with the difference, then other systems' figures; there is no average of one language."""
    out, _ = command("miracl", "--lang", "ar", "--encoder", "mini")
    assert out.startswith("## MIRACL (miracl)") and "Published: experiments/paper/miracl.tsv." in out
    heads, _, *lines = lines_of(out)
    assert heads == ["row", "column", "measure", "published", "measured", "difference", "note"]
    assert lines[:2] == [
        ["MILCO", "ar", "nDCG@10", "80.40", "50.00", "-30.40", "another model"],
        ["BM25", "ar", "nDCG@10", "39.50", "50.00", "+10.50", "another tokenizer"],
    ]
    assert ["M3-Multi-vec", "ar", "nDCG@10", "79.60", "-", "", "quoted"] in lines
    assert {line[1] for line in lines} == {"ar"} and {line[6] for line in lines[2:]} == {"quoted"}


def test_tables_md_has_what_earlier_runs_measured(command: Callable[..., tuple[str, str]]) -> None:
    """A day later, another language, and another table; with the commands, and the encoder of the day before."""
    command("miracl", "--lang", "ar", "--encoder", "mini")
    command("miracl", "--lang", "bn", "--systems", "milco", "--encoder", "mini")
    command("limit", "--systems", "bm25")
    page = Path("reproduction/tables.md").read_text()
    measured = {
        (row, column): note
        for row, column, _, _, _, _, note in lines_of(page)
        if column in ("ar", "bn") and note != "quoted"
    }
    assert measured == {
        ("MILCO", "ar"): "another model",
        ("MILCO", "bn"): "another model",
        ("BM25", "ar"): "another tokenizer",
    }
    assert "MILCO is mini." in page and "## LIMIT (limit)" in page
    assert "milco encode --corpus miracl-bn --encoder mini --output" in page


def test_lowercasing_is_that_of_the_authors_evaluation_or_a_choice(command: Callable[..., tuple[str, str]]) -> None:
    """By default only the hard negatives, whose loader is known; figures of two choices do not share a directory."""
    command("miracl", "miracl-hn", "--lang", "ar", "--encoder", "mini", "--systems", "milco")
    page = Path("reproduction/tables.md").read_text()
    assert "milco encode --corpus miracl-hn-ar --encoder mini --lowercase --output" in page
    assert "milco encode --corpus miracl-ar --encoder mini --output" in page
    choice = ("miracl", "--lang", "ar", "--encoder", "mini", "--lowercase", "always")
    assert "has figures with --lowercase authors, not always" in command(*choice, code=2)[1]
    command(*choice, "--output", "other")
    assert "--corpus miracl-ar --encoder mini --lowercase" in Path("other/tables.md").read_text()


def test_vectors_that_do_not_fit_on_the_disk_are_refused(
    command: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written; --drop-vectors needs the space of one corpus' vectors."""
    sizes = {"miracl-ar": 10**8, "miracl-bn": 10**8}
    monkeypatch.setattr(reproduce, "corpus_size", lambda name: sizes[name])
    monkeypatch.setattr(reproduce.shutil, "disk_usage", lambda place: SimpleNamespace(free=1.3e12))
    columns = ("miracl", "--lang", "ar", "bn", "--systems", "milco")
    error = command(*columns, code=2)[1]
    assert "need about 1,880 GB" in error and "1,300 GB free" in error and "--drop-vectors" in error
    assert not Path("reproduction").exists()
    command(*columns, "--drop-vectors")


def test_vectors_are_dropped_after_the_last_figure_that_needs_them(command: Callable[..., tuple[str, str]]) -> None:
    """Indexes, runs and vectors of topics stay, and the figures can be shown again."""
    command("miracl-hn", "alpha", "pruning-top-k", "--lang", "ar", "--systems", "milco", "--drop-vectors")
    assert {path.name for path in Path("reproduction/vectors").iterdir()} == {"miracl-hn-ar-dev.topics.milco"}
    assert "50.00" in command("alpha", "--lang", "ar", "--drop-vectors")[0]


def test_two_encoders_never_share_a_directory(command: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    """Nor two versions of one; and nothing is written into a directory of other files."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "weights").write_text("1")
    command("neuclir", "--encoder", "mine")
    assert "has figures of milco with mine, not mini" in command("neuclir", "--encoder", "mini", code=2)[1]
    (tmp_path / "mine" / "weights").write_text("22")
    assert "with another version of mine" in command("neuclir", "--encoder", "mine", code=2)[1]
    command("neuclir", "--output", "mine", code=2)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["weights"]


def test_the_exit_code_is_1_if_nothing_could_be_measured(
    command: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 as soon as one cell is measured; reasons are printed once, with the number of cells."""

    def away(kind: str, name: str) -> None:
        if name != "neuclir-bench-multi-2024":
            raise MilcoError(f"{kind} {name} is away")

    out, err = command("miracl", "--lang", "ar", "--systems", "2", code=1)
    assert "- Not measured (1): needs --checkpoints 2=PATH" in out
    monkeypatch.setattr(reproduce, "open_source", away)
    out, err = command("neuclir", code=1)
    assert "- Not measured (10): corpus neuclir-multi is away" in out and err.count("is away") == 1
    assert "10 cells of 1 table; 10 could not be measured\n" in err


# With the commands, on the sample.


@pytest.mark.integration
def test_the_samples_tables_are_made_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """One language, one row for each analysis; pruning to k leaves k terms, alpha 0.5 ranks as no alpha does."""
    few = {
        "sample-top-k": {"10": "top-k:10"},
        "sample-percentile": {"50": "percentile:50"},
        "sample-alpha": {"0.50": "0.50"},
        "sample-latency": {"MILCO (p=50)": "mass:50"},
    }
    sample = paper().tables["sample"]
    german = {"corpus": "sample-de", "topics": "sample-de", "language": "de"}
    parts = []
    for part in sample.parts:
        settings = part.settings | ({"rows": few[part.name]} if part.name in few else {})
        columns = {name: replace(dataset, **german) for name, dataset in part.columns.items()}
        parts.append(replace(part, settings=settings, columns=columns))
    small = replace(paper(), tables={"sample": replace(sample, parts=parts), "mteb-v2": paper().tables["mteb-v2"]})
    for module in (cells, reproduce, tables):
        monkeypatch.setattr(module, "paper", lambda: small)
    monkeypatch.setattr(timing, "WARM_UP_SECONDS", 0.0)
    # Absolute paths: Java stays in the directory where it was started.
    checkpoint = str(GOLDEN / "ckpt_distillation")
    assert main(["sample", "--lang", "ar", "--encoder", checkpoint, "--output", str(tmp_path)]) == 0
    table, figures = "", {}
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("## "):
            table = line.rpartition("(")[2].strip(")")
        for row, column, _, published, measured, *_ in lines_of(line):
            figures[table, row, column] = measured
            assert published in ("published", "-") or set(published) <= set("-:")
    lacking = {table for (table, _, _), measured in figures.items() if measured == "-"}
    assert lacking <= (set() if importlib.util.find_spec("seismic") else {"sample-latency"})
    assert figures["sample-top-k", "10", "terms"] == "10.00"
    pool = float(figures["sample-pool", "MILCO", "nDCG@10"])
    assert float(figures["sample-alpha", "0.50", "nDCG@10"]) == pytest.approx(pool, abs=0.3)
    assert float(figures["sample", "MILCO", "ar"]) > 0
    assert float(figures["sample-pool", "MILCO + BM25 (RRF)", "nDCG@10"]) > 0
    assert "## Latency: sample" in (tmp_path / "tables.md").read_text()
