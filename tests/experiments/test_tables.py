"""The paper's tables as data: published figures, the pipeline of each cell, and what a table quotes."""

import re
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

from experiments.actions import ACTIONS
from experiments.conditions import find_table, paper, published_figures, task_datasets
from experiments.records import QUOTED, TableResult
from experiments.runner import Runner, assemble
from experiments.steps import CORPUS, QRELS, TOPICS, Pipeline, Step
from experiments.tables import Cell, TablePlan, plan_all, plan_tables
from milco_pyserini.cli.parser import parse
from milco_pyserini.corpora import catalog
from milco_pyserini.errors import MilcoError

PUBLISHED = dict(paper().checkpoints)
EVERY = {condition.checkpoint: f"models/{name}" for name, condition in paper().conditions.items()} | PUBLISHED
# The options of each command that steps run.
OPTIONS = {
    "encode": "milco_pyserini.cli.encode:EncodeOptions",
    "index": "milco_pyserini.cli.index:IndexOptions",
    "search": "milco_pyserini.cli.search:SearchOptions",
    "search fuse": "milco_pyserini.cli.search:FuseOptions",
    "experiments.judge": "experiments.judge:JudgeOptions",
    "eval": "milco_pyserini.cli.eval:EvalOptions",
    "experiments.latency": "experiments.latency:LatencyOptions",
    "analyze statistics": "milco_pyserini.cli.analyze:StatisticsOptions",
}


@pytest.fixture(scope="module")
def plans() -> list[TablePlan]:
    """Every table with every system, as if there were a checkpoint for each."""
    pipeline = Pipeline(Path("reproduction"), EVERY)
    specs = paper().tables.values()
    return [plan for spec in specs for plan in plan_tables(spec, pipeline, tuple(paper().conditions))]


@pytest.fixture(scope="module")
def cells(plans: list[TablePlan]) -> dict[tuple[str, str, str], Cell]:
    """Their cells."""
    return {cell.key: cell for plan in plans for cell in plan.cells}


@pytest.fixture(scope="module")
def steps(cells: dict[tuple[str, str, str], Cell]) -> set[Step]:
    """All their steps."""
    return {step for cell in cells.values() for step in cell.steps}


def assembled(directory: Path, table: str, systems: Sequence[str], columns: Sequence[str]) -> TableResult:
    """The table as the page shows it, before anything is measured."""
    pipeline = Pipeline(directory, PUBLISHED)
    asked = plan_tables(find_table(table), pipeline, systems, columns)
    tables = assemble(pipeline, Runner(directory, ACTIONS), asked, "mini").tables
    return {one.name: one for one in tables}[table]


@pytest.mark.parametrize(
    ("key", "figure"),
    [
        (("miracl", "MILCO", "ar"), 80.4),
        (("miracl", "MILCO", "avg"), 72.3),
        (("miracl", "6: noMILCO (SCT KD, MLM m)", "yo"), 46.9),
        (("miracl-hn", "M3-Dense", "zh"), 62.7),
        (("mldr", "MILCO", "th"), 45.8),
        (("mldr", "2: MILCO (SAP, SCT KD, MLM en)", "avg"), 69.9),
        (("mkqa", "MILCO", "zh_hk"), 75.3),
        (("mkqa", "M3-Sparse", "avg"), 45.3),
        (("mteb-v2", "MILCO", "Statcan"), 24.0),
        (("mteb-v2", "M3-Dense", "Avg."), 62.02),
        (("neuclir", "MILCO", "mlir_2024"), 42.7),
        (("beir", "MILCO", "NQ"), 64.9),
        (("beir", "SPLADE v3", "Avg (Large)"), 53.3),
        (("limit", "BM25", "recall@2"), 85.7),
        (("pruning-top-k", "500", "te"), 87.92),
        (("pruning-mass", "99", "terms"), 6.5),
        (("pruning-mass", "99", "avg"), 39.5),
        (("alpha", "0.50", "avg"), 72.66),
        (("latency", "MILCO (p=60)", "avg ms"), 0.44),
        (("latency", "MILCO (p=0)", "index MB"), 61_000),
        (("latency", "Qwen3-Embed-0.6B", "queries/s"), 777),
        (("coverage", "fa", "gain on dense"), -1.09),
        (("coverage", "de", "bitext pairs"), 24_431_450),
    ],
)
def test_published_figures_are_in_the_units_of_the_table(
    cells: dict[tuple[str, str, str], Cell], key: tuple[str, str, str], figure: float
) -> None:
    """One of each table, and of each layout of the paper's files."""
    assert cells[key].published == pytest.approx(figure)


@pytest.mark.parametrize("table", [name for name, spec in paper().tables.items() if spec.figures])
def test_every_published_figure_is_shown_once_next_to_what_was_asked_for(table: str, tmp_path: Path) -> None:
    """Quoted with a reason where it was not asked for; rows that were asked for come first."""
    spec = find_table(table)
    shown = assembled(tmp_path, table, ["milco"], list(spec.columns)[:1])
    cells = shown.cells.values()
    figures = [figure for (_, column), figure in spec.figures.items() if column not in ("size", "max_length")]
    assert sorted(cell.published for cell in cells if cell.published is not None) == pytest.approx(sorted(figures))
    quoted = [cell for cell in cells if cell.verdict == QUOTED]
    assert quoted and all(cell.reason and not cell.commands for cell in quoted)
    asked = tuple(dict.fromkeys(cell.row for cell in cells if cell.verdict != QUOTED))
    assert shown.rows[: len(asked)] == asked


def test_quoted_rows_state_how_they_are_measured(tmp_path: Path) -> None:
    """By an option, by a checkpoint, or not at all. A published row that two systems measure is quoted once."""
    table = assembled(tmp_path, "miracl", ["milco", "bm25"], ["bn", "ar"])
    assert table.rows[:2] == ("MILCO", "BM25") and "BM25 on BGE-M3's tokens" not in table.rows
    assert table.columns[:3] == ("ar", "bn", "en") and table.columns[-1] == "avg"
    reasons = {row: table.cells[row, "avg"].reason for row in table.rows if (row, "avg") in table.cells}
    assert reasons["M3-Dense"] == "not asked for: --systems m3-dense measures it"
    assert reasons["4: MILCO (SAP, MLM en)"].startswith("needs --checkpoints 4=PATH")
    assert reasons["mSPLADEsTok"] == reasons["T-Splade"] == "not among the systems that this command measures"
    assert table.cells["MILCO", "en"].reason == "not asked for"


def test_a_missing_published_table_is_an_error() -> None:
    """Not an empty table."""
    with pytest.raises(MilcoError, match="no published table 'nothing'"):
        published_figures("nothing")


def test_a_step_is_the_same_as_a_command_line_and_as_a_call(steps: set[Step]) -> None:
    """What a user types is parsed to the arguments that the library is called with."""
    assert len(steps) > 5000 and {step.command for step in steps} == ACTIONS.keys()
    shapes = {(step.command, *(name for name, _ in step.arguments)): step for step in steps}
    for step in shapes.values():
        module, name = OPTIONS[step.command].split(":")
        options = getattr(import_module(module), name)
        words = step.argv[len(step.command.split()) :]
        assert parse(options, words, "milco") == options(**dict(step.arguments)), step.command_line


def test_a_command_line_is_quoted_for_a_shell() -> None:
    """Paths with spaces; a command that prints its output is redirected to the file."""
    step = Step("analyze statistics", (("vectors", Path("a b")),), Path("out dir/x.json"), Path("x"), stdout=True)
    assert step.command_line == "milco analyze statistics --vectors 'a b' > 'out dir/x.json'"


def test_no_two_steps_write_the_same_file(steps: set[Step], cells: dict[tuple[str, str, str], Cell]) -> None:
    """One would take the other's output for its own. Records differ by table, row and column."""
    assert max(Counter(step.done for step in steps).values()) == 1
    assert len({tuple(re.sub(r"[^\w.-]+", "-", part) for part in key) for key in cells}) == len(cells)


def test_every_corpus_and_topics_are_known_by_name(steps: set[Step]) -> None:
    """Nothing is downloaded."""
    known = {CORPUS: catalog.CORPORA, TOPICS: catalog.TOPICS, QRELS: catalog.TOPICS}
    for requirement in {each for step in steps for each in step.requires if each.kind in known}:
        assert requirement.name in known[requirement.kind], requirement


def test_a_corpus_is_encoded_once_for_all_tables(steps: set[Step]) -> None:
    """MIRACL's hard negatives serve their own table, pruning, alpha, coverage, lengths and MTEB's task."""
    encoded = [step.output.name for step in steps if step.command == "encode" and "miracl-hn-ar" in step.output.name]
    assert encoded.count("miracl-hn-ar.milco") == 1


def test_long_documents_are_split_for_models_that_read_512_tokens(cells: dict[tuple[str, str, str], Cell]) -> None:
    """Their best passage counts. BGE-M3 reads complete documents."""
    encode, index, search, _ = [step.command_line for step in cells["mldr", "MILCO", "ar"].steps]
    assert "--split-passages" in encode and "--lowercase" in encode and "--max-passage" in search
    encode, index, search, _ = [step.command_line for step in cells["mldr", "M3-Dense", "ar"].steps]
    assert "--max-length 8192 --dense" in encode and "--max-passage" not in search and "--engine flat" in index


def test_mkqa_is_judged_by_answers_on_one_english_index(cells: dict[tuple[str, str, str], Cell]) -> None:
    """25 languages of topics, one index of passages, Success@100."""
    first, second = cells["mkqa", "MILCO", "ar"].steps, cells["mkqa", "MILCO", "zh_tw"].steps
    assert first[:2] == second[:2]
    assert [step.command for step in first[2:]] == ["search", "experiments.judge", "eval"]
    assert "--measures Success@100" in second[-1].command_line and "mkqa-zh-tw-test" in second[2].command_line


def test_columns_of_one_run_are_evaluated_together(cells: dict[tuple[str, str, str], Cell]) -> None:
    """LIMIT's three depths: one evaluation, whichever column is asked for."""
    evaluation = cells["limit", "MILCO", "recall@2"].steps[-1]
    assert evaluation == cells["limit", "MILCO", "recall@100"].steps[-1]
    assert "--measures R@2 R@10 R@100" in evaluation.command_line


def test_mteb_tasks_have_the_languages_of_its_definitions() -> None:
    """Belebele: each language with itself, with English both ways, and six with their other script."""
    counts = {task: len(datasets) for task, datasets in task_datasets().items()}
    assert counts == {"Belebele": 376, "MIRACL-HN": 18, "MLQA": 98, "Statcan": 4, "Twitter": 1, "Wiki": 16}
    assert {dataset.measure for dataset in task_datasets()["Statcan"].values()} == {"R@10"}


def test_times_are_another_machines(cells: dict[tuple[str, str, str], Cell]) -> None:
    """A latency is never held against the paper; the effectiveness in the same row is."""
    assert cells["latency", "MILCO (p=10)", "avg ms"].caveat == "another machine"
    assert cells["latency", "MILCO (p=10)", "nDCG@10"].caveat == ""


def test_bm25_is_compared_with_a_caveat_where_the_paper_tokenizes_otherwise(
    cells: dict[tuple[str, str, str], Cell],
) -> None:
    """The paper's BM25 is of BGE-M3's tokens; LIMIT's is Pyserini's."""
    assert cells["miracl", "BM25", "ar"].caveat == cells["miracl", "BM25", "avg"].caveat == "another tokenizer"
    assert cells["miracl", "BM25 on BGE-M3's tokens", "ar"].caveat == cells["limit", "BM25", "recall@2"].caveat == ""


def test_all_is_every_table_of_the_paper_that_has_what_was_asked_for() -> None:
    """Swahili is in MIRACL's tables, not in BEIR's; analyses of MILCO need it among the systems."""
    assert set(paper().by_cost) == paper().tables.keys() - {"sample"}
    assert len(set(paper().by_cost)) == len(paper().by_cost)
    pipeline = Pipeline(Path("out"), EVERY)
    assert {plan.name for plan in plan_all(pipeline, ["m3-dense"], ["sw"])} == {"miracl-hn", "miracl"}
    swahili = {plan.name for plan in plan_all(pipeline, [], ["sw"])}
    assert {"alpha", "pruning-mass", "coverage", "lengths-sw"} < swahili and "beir" not in swahili


def test_the_sample_has_analyses_only_with_milco_and_no_published_figure() -> None:
    """Figures of other systems need not wait for them; the paper's figures are of other collections."""
    pipeline = Pipeline(Path("out"), EVERY)
    assert [plan.name for plan in plan_tables(find_table("sample"), pipeline, ["m3-dense"])] == [
        "sample",
        "sample-pool",
    ]
    plans = plan_tables(find_table("sample"), pipeline, ["m3-dense", "milco"])
    assert len(plans) == 7 and {cell.published for plan in plans for cell in plan.cells} == {None}


def test_local_copies_are_named_in_the_commands() -> None:
    """Of a benchmark, or of one of its names; outputs are named as without them."""
    pipeline = Pipeline(Path("out"), PUBLISHED, {"mldr": "copies/mldr", "mldr-ar-test": "copies/ar"})
    (plan,) = plan_tables(find_table("mldr"), pipeline, ["milco"], ["ar"])
    encode, _, search, _ = plan.cells[0].steps
    assert "mldr-ar@copies/mldr" in encode.argv and "mldr-ar-test@copies/ar" in search.argv
    assert search.output == Path("out/runs/mldr-ar-test.milco.txt")
