"""The paper's tables as data: published figures, and the commands of each cell."""

from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from experiments.cells import QUOTED, Cell, Key, Plan, plan_all, plan_table, quoted_cells
from experiments.steps import CORPUS, QRELS, TOPICS, Pipeline, Step
from experiments.tables import find_table, paper, task_datasets
from milco_pyserini.cli.parser import parse
from milco_pyserini.corpora import catalog

pytestmark = pytest.mark.slow

PUBLISHED = dict(paper().checkpoints)
EVERY = {str(system.checkpoint): f"models/{name}" for name, system in paper().systems.items()} | PUBLISHED
# The options of each command that steps run.
OPTIONS = {
    "milco encode": "milco_pyserini.cli.encode:EncodeOptions",
    "milco index": "milco_pyserini.cli.index:IndexOptions",
    "milco search": "milco_pyserini.cli.search:SearchOptions",
    "milco search fuse": "milco_pyserini.cli.search:FuseOptions",
    "milco eval": "milco_pyserini.cli.eval:EvalOptions",
    "milco analyze statistics": "milco_pyserini.analysis.cli:StatisticsOptions",
    "python -m experiments.bm25": "experiments.bm25:Bm25Options",
    "python -m experiments.dense": "experiments.dense:DenseOptions",
    "python -m experiments.judge": "experiments.judge:JudgeOptions",
    "python -m experiments.latency": "experiments.latency:LatencyOptions",
}


def command_of(step: Step) -> str:
    """The words before the options."""
    return " ".join(step.argv).partition(" --")[0]


@pytest.fixture(scope="module")
def cells() -> dict[Key, Cell]:
    """The cells of every table with every system, as if there were a checkpoint for each."""
    pipeline = Pipeline(Path("reproduction"), EVERY)
    plans = [plan_table(table, pipeline, list(paper().systems)) for table in paper().tables.values()]
    return {cell.key: cell for plan in plans for _, cells in plan for cell in cells}


@pytest.fixture(scope="module")
def steps(cells: dict[Key, Cell]) -> set[Step]:
    """All their steps."""
    return {step for cell in cells.values() for step in cell.pipeline()}


@pytest.mark.parametrize(
    ("key", "figure"),
    [
        (("miracl", "6: noMILCO (SCT KD, MLM m)", "yo"), 46.9),
        (("miracl-hn", "MILCO", "avg"), 72.66),
        (("mldr", "MILCO", "th"), 45.8),
        (("mkqa", "MILCO", "zh_hk"), 75.3),
        (("mteb-v2", "MILCO", "Statcan"), 24.0),
        (("neuclir", "MILCO", "mlir_2024"), 42.7),
        (("beir", "SPLADE v3", "Avg (Large)"), 53.3),
        (("limit", "BM25", "recall@2"), 85.7),
        (("pruning-top-k", "500", "te"), 87.92),
        (("pruning-mass", "99", "terms"), 6.5),
        (("alpha", "0.50", "avg"), 72.66),
        (("latency", "MILCO (p=60)", "avg ms"), 0.44),
        (("latency", "Qwen3-Embed-0.6B", "queries/s"), 777),
        (("coverage", "fa", "gain on dense"), -1.09),
        (("coverage", "de", "bitext pairs"), 24_431_450),
        (("coverage", "mean, below 1 %", "gain on dense"), 0.77),
    ],
)
def test_published_figures_are_in_the_units_of_the_table(cells: dict[Key, Cell], key: Key, figure: float) -> None:
    """One of each table, and of each layout of the paper's files."""
    assert cells[key].published == pytest.approx(figure)


@pytest.mark.parametrize("systems", [(), ("m3-dense",), tuple(paper().systems)])
def test_every_published_figure_is_in_a_cell(systems: tuple[str, ...]) -> None:
    """Figures of systems that are not measured are quoted; a system is one row, measured or not."""
    count = 0
    for name in paper().by_cost:
        table = find_table(name)
        if table.milco_only and systems and "milco" not in systems:
            continue
        plan = {own.name: cells for own, cells in plan_table(table, Pipeline(Path("out"), EVERY), systems)}
        cells = plan.get(name, [])
        quoted = quoted_cells(table, cells)
        assert len({cell.key for cell in (*cells, *quoted)}) == len(cells) + len(quoted)
        assert not any(cell.pipeline() or cell.lack != QUOTED for cell in quoted)
        shown = Counter((cell.column, cell.published) for cell in (*cells, *quoted))
        columns = {cell.column for cell in cells}
        published = Counter((column, figure) for (_, column), figure in table.figures.items() if column in columns)
        assert published <= shown
        count += published.total()
    assert count > (1000 if systems == ("m3-dense",) else 2080)


def test_a_query_has_the_instruction_of_its_dataset_for_systems_that_take_one(cells: dict[Key, Cell]) -> None:
    """The paper's Qwen3 has one for each task; where it is not known, the row names it."""
    encode = cells["beir", "Qwen3-Embed-0.6B", "ArguAna"].pipeline()[0]
    prompt = encode.argv[encode.argv.index("--query-prompt") + 1]
    assert prompt.startswith("Instruct: Given a claim") and prompt.endswith("\nQuery:")
    assert "--query-prompt" not in cells["beir", "MILCO", "ArguAna"].pipeline()[0].argv
    assert cells["beir", "Qwen3-Embed-0.6B", "ArguAna"].note == ""
    assert cells["miracl", "Qwen3-Embed-0.6B", "ar"].note == "generic instruction"


@pytest.mark.parametrize(
    ("key", "note"),
    [
        (("mldr", "M3-Dense+Sparse", "avg"), "fused by ranks"),
        (("latency", "MILCO (p=10)", "avg ms"), "another machine"),
        (("latency", "MILCO (p=10)", "nDCG@10"), ""),
        (("miracl", "BM25", "ar"), "another tokenizer"),
        (("limit", "BM25", "recall@2"), ""),
    ],
)
def test_a_figure_that_is_not_the_papers_has_a_note(cells: dict[Key, Cell], key: Key, note: str) -> None:
    """Figures of other systems on hard negatives are not published: the paper's are of all passages."""
    assert cells[key].note == note
    assert cells["miracl-hn", "BM25", "ar"].published is None


def test_every_command_is_valid(steps: set[Step]) -> None:
    """Its options are those of the command, its data are known by name, and no two steps write the same file."""
    assert len(steps) > 5000 and {command_of(step) for step in steps} == OPTIONS.keys()
    shapes = {(command_of(step), *(word for word in step.argv if word[:2] == "--")): step for step in steps}
    for step in shapes.values():
        module, name = OPTIONS[command_of(step)].split(":")
        options = getattr(import_module(module), name)
        words = step.argv[len(command_of(step).split()) :]
        assert step.prints or parse(options, words, "milco").output == step.output or step.done.name == "latency.json"
    assert max(Counter(step.done for step in steps).values()) == 1
    known = {CORPUS: catalog.CORPORA, TOPICS: catalog.TOPICS, QRELS: catalog.TOPICS}
    for kind, name in {source for step in steps for source in step.reads if source[0] in known}:
        assert name in known[kind], name


def test_a_command_line_is_quoted_for_a_shell() -> None:
    """Paths with spaces; a command that prints its output is redirected to the file."""
    step = Step(("milco", "analyze", "statistics", "--vectors", "a b"), Path("out dir/x.json"), Path("x"))
    assert step.line == "milco analyze statistics --vectors 'a b' > 'out dir/x.json'"


def test_long_documents_are_split_for_models_that_read_512_tokens(cells: dict[Key, Cell]) -> None:
    """Their best passage counts. BGE-M3 reads complete documents."""
    encode, _, search, _ = [step.line for step in cells["mldr", "MILCO", "ar"].pipeline()]
    assert "--split-passages" in encode and "--lowercase" not in encode and "--max-passage" in search
    encode, search, _ = [step.line for step in cells["mldr", "M3-Dense", "ar"].pipeline()]
    assert encode.startswith("python -m experiments.dense --corpus") and "--max-length 8192" in encode
    assert search.startswith("python -m experiments.dense --vectors") and "--max-passage" not in search


def test_mkqa_is_judged_by_answers_on_one_english_index(cells: dict[Key, Cell]) -> None:
    """25 languages of topics, one index of passages, Success@100."""
    first, second = cells["mkqa", "MILCO", "ar"].pipeline(), cells["mkqa", "MILCO", "zh_tw"].pipeline()
    assert first[:2] == second[:2]
    assert [command_of(step) for step in first[2:]] == ["milco search", "python -m experiments.judge", "milco eval"]
    assert "--measures Success@100" in second[-1].line and "mkqa-zh-tw-test" in second[2].line


def test_mteb_tasks_have_the_languages_of_its_definitions() -> None:
    """Belebele: each language with itself, with English both ways, and six with their other script."""
    counts = {task: len(datasets) for task, datasets in task_datasets().items()}
    assert counts == {"Belebele": 376, "MIRACL-HN": 18, "MLQA": 98, "Statcan": 4, "Twitter": 1, "Wiki": 16}
    assert {dataset.measure for dataset in task_datasets()["Statcan"].values()} == {"R@10"}


def names(plan: Plan) -> set[str]:
    """The names of its tables."""
    return {table.name for table, _ in plan}


def test_all_is_every_table_of_the_paper_that_has_what_was_asked_for() -> None:
    """Swahili is in MIRACL's tables, not in BEIR's; analyses of MILCO need it among the systems."""
    assert set(paper().by_cost) == paper().tables.keys() - {"sample"}
    assert len(set(paper().by_cost)) == len(paper().by_cost)
    pipeline = Pipeline(Path("out"), EVERY)
    assert names(plan_all(pipeline, ["m3-dense"], ["sw"])) == {"miracl-hn", "miracl"}
    swahili = names(plan_all(pipeline, [], ["sw"]))
    assert {"alpha", "pruning-mass", "coverage", "lengths-sw"} < swahili and "beir" not in swahili


def test_the_sample_has_analyses_only_with_milco_and_no_published_figure() -> None:
    """Figures of other systems need not wait for them; the paper's figures are of other collections."""
    pipeline = Pipeline(Path("out"), EVERY)
    assert names(plan_table(find_table("sample"), pipeline, ["m3-dense"])) == {"sample", "sample-pool"}
    plan = plan_table(find_table("sample"), pipeline, ["m3-dense", "milco"])
    assert len(plan) == 7 and {cell.published for _, cells in plan for cell in cells} == {None}


def test_local_copies_are_named_in_the_commands() -> None:
    """Copies are given for a benchmark or one of its names; outputs have the same names as without copies."""
    pipeline = Pipeline(Path("out"), PUBLISHED, {"mldr": "copies/mldr", "mldr-ar-test": "copies/ar"})
    ((_, (cell,)),) = plan_table(find_table("mldr"), pipeline, ["milco"], ["ar"])
    encode, _, search, _ = cell.pipeline()
    assert "mldr-ar@copies/mldr" in encode.argv and "mldr-ar-test@copies/ar" in search.argv
    assert search.output == Path("out/runs/mldr-ar-test.milco.txt")
