"""milco_pyserini.eval reproduce: the paper's figures, the road of each cell, and what happens where data is lacking."""

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import torch
from golden_set import GOLDEN

from milco_pyserini.cli.eval import main
from milco_pyserini.cli.parser import parse
from milco_pyserini.corpora import catalog
from milco_pyserini.errors import MilcoError, Unreachable
from milco_pyserini.io.files import read_json, write_json
from milco_pyserini.reproduce import reach, runner, sample
from milco_pyserini.reproduce.assembly import assemble
from milco_pyserini.reproduce.cells import Cell, Table, effect, evaluated, mean_cells, nothing
from milco_pyserini.reproduce.groups import BY_COST, GROUPS, all_tables, chosen_tables
from milco_pyserini.reproduce.mteb_tasks import belebele_pairs
from milco_pyserini.reproduce.published import ROOT, published
from milco_pyserini.reproduce.reasons import reasons
from milco_pyserini.reproduce.records import (
    ANOTHER_MACHINE,
    DONE,
    FAILED,
    OPEN,
    STATUSES,
    UNPUBLISHED,
    UNREACHABLE,
    CellResult,
    Reproduction,
    cell_from_json,
    cell_to_json,
    from_json,
    table_of,
    to_json,
)
from milco_pyserini.reproduce.roads import CORPUS, QRELS, TOPICS, Collection, Need, Roads, Step
from milco_pyserini.reproduce.runner import Runner, run_step
from milco_pyserini.reproduce.systems import DENSE, PUBLIC, SYSTEMS, read_checkpoints
from milco_pyserini.reproduce.tables import MIRACL
from milco_pyserini.reproduce.text import reproduction_text

PAPER = Path("/work/shared/paper")
EVERY = {key: f"models/{key}" for key in ("2", "3", "4", "5", "6", "milco-dense", "milco-dense-aligned")} | PUBLIC
# The modules of commands whose first words are no verb of their own.
WITHIN = {
    ("analyze", "latency"): ("milco_pyserini.analysis.latency", "LatencyOptions"),
    ("analyze", "statistics"): ("milco_pyserini.analysis.stats", "StatsOptions"),
    ("corpora", "judge"): ("milco_pyserini.cli.corpora", "JudgeOptions"),
    ("search", "fuse"): ("milco_pyserini.cli.fuse", "Options"),
    ("eval",): ("milco_pyserini.cli.eval", "EvalOptions"),
}


def everything(roads: Roads) -> list[Table]:
    """Every table of every group, with every system."""
    return [table for group in GROUPS.values() for table in chosen_tables(group, roads, tuple(SYSTEMS), ())]


@pytest.fixture(scope="module")
def tables() -> list[Table]:
    """All of them, with a checkpoint for every system."""
    return everything(Roads(Path("reproduction"), EVERY))


def figures(tables: Sequence[Table]) -> dict[tuple[str, str, str], float | None]:
    return {cell.key: cell.published for table in tables for cell in table.cells}


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
def test_a_cell_stands_beside_the_papers_figure(tables: list[Table], key: tuple[str, str, str], figure: float) -> None:
    """One of each table and each way in which the paper lays one out, in our units."""
    assert figures(tables)[key] == pytest.approx(figure)


# Table -> its files, how many of their columns name a row, and what turns their figures into ours.
FILES: dict[str, tuple[tuple[str, ...], int, float]] = {
    "miracl": (("miracl",), 1, 1),
    "miracl-hn": (("miracl",), 1, 1),
    "mldr": (("mldr", "mldr_avg"), 1, 1),
    "mkqa": (("mkqa",), 1, 1),
    "mteb-v2": (("mteb_v2", "mteb_v2_avg"), 1, 1),
    "neuclir": (("neuclir",), 1, 100),
    "beir": (("beir",), 3, 1),
    "limit": (("limit",), 2, 1),
    "pruning-top-k": (("pruning_top_k",), 1, 1),
    "pruning-mass": (("pruning_mass",), 1, 1),
    "alpha": (("lexecho_alpha",), 1, 1),
    "latency": (("latency_miracl_en",), 2, 1),
    "coverage": (("alignment_coverage",), 1, 1),
}


def in_the_files(group: str) -> list[float]:
    """The figures of a table's files, one that both of two files have once."""
    files, labels, factor = FILES[group]
    found = {
        (row.replace(" - ", "-"), column.lower().rstrip(".")): 1000 * figure if column == "index_size" else figure
        for file in files
        for (row, column), figure in published(file, labels, factor).items()
        if column not in ("size", "max_length")
    }
    return sorted(found.values())


@pytest.mark.parametrize("group", FILES)
def test_the_whole_table_of_the_paper_stands_beside_what_was_asked_for(group: str, tmp_path: Path) -> None:
    """Every figure of its files once, quoted where it was not asked for, each with the reason."""
    roads = Roads(tmp_path, PUBLIC)
    chosen = chosen_tables(GROUPS[group], roads, ["milco"], GROUPS[group].columns[:1])
    shown = {table.name: table for table in assemble(roads, Runner(tmp_path), chosen, "mini").tables}
    cells = list(shown[group].cells.values())
    there = sorted(cell.published for cell in cells if cell.published is not None)
    assert there == pytest.approx(in_the_files(group))
    quoted = [cell for cell in cells if cell.verdict == "quoted"]
    assert quoted and all(cell.reason and not cell.commands for cell in quoted)
    rows = tuple(dict.fromkeys(cell.row for cell in cells if cell.verdict != "quoted"))
    assert shown[group].rows[: len(rows)] == rows


def test_a_quoted_row_says_how_it_is_measured(tmp_path: Path) -> None:
    """By naming it, by a checkpoint, or not at all; two systems of ours for one published row quote it once."""
    roads = Roads(tmp_path, PUBLIC)
    (chosen,) = chosen_tables(GROUPS["miracl"], roads, ["milco", "bm25"], ["bn", "ar"])
    (table,) = assemble(roads, Runner(tmp_path), [chosen], "mini").tables
    assert table.rows[:2] == ("MILCO", "BM25") and "BM25 on BGE-M3's pieces" not in table.rows
    assert table.columns[:3] == ("ar", "bn", "en") and table.columns[-1] == "avg"
    why = {row: table.cells[row, "avg"].reason for row in table.rows if (row, "avg") in table.cells}
    assert why["M3-Dense"] == "not asked for: --systems m3-dense measures it"
    assert why["4: MILCO (SAP, MLM en)"].startswith("needs --checkpoints 4=PATH")
    assert why["mSPLADEsTok"] == why["T-Splade"] == "not among the systems that this command measures"
    assert table.cells["MILCO", "en"].reason == "not asked for"


def test_reasons_that_differ_in_a_word_are_told_once() -> None:
    """With the word; what is not alike is another reason, and so is one of another verdict."""
    texts = [f"the passages in miracl/{code}/docs.jsonl of {code}, cannot be reached" for code in MIRACL]
    cells = [CellResult("t", "MILCO", text, "m", 1.0, None, UNREACHABLE, text) for text in texts]
    cells += [replace(cells[0], status=FAILED), replace(cells[0], reason="no room left on the disk")]
    one, failed, other = reasons(cells)
    likewise = ", ".join(f"miracl/{code}/docs.jsonl" for code in MIRACL[1:7])
    assert one.text == f"{texts[0]}; likewise {likewise} and 11 more"
    assert (len(one.cells), failed.verdict, other.text) == (18, FAILED, "no room left on the disk")


@pytest.mark.skipif(not PAPER.is_dir(), reason="the paper's tables are not beside the repository")
def test_the_packages_tables_are_the_papers() -> None:
    """Byte for byte."""
    assert sorted(path.name for path in ROOT.glob("*.tsv"))
    for path in ROOT.glob("*.tsv"):
        assert path.read_bytes() == (PAPER / path.name).read_bytes(), path.name


def test_a_table_that_is_not_there_is_an_error() -> None:
    """Not an empty table."""
    with pytest.raises(MilcoError, match="is not there"):
        published("nothing")


def test_every_command_is_one_that_the_command_line_takes(tables: list[Table]) -> None:
    """Each step of each cell of all tables is read by its command without an error."""
    steps = {step for table in tables for cell in table.cells for step in cell.steps}
    assert len(steps) > 5000
    shapes = {tuple(word for word in step.argv if word.startswith("--")): step for step in steps}
    for step in shapes.values():
        words = next((step.argv[:count] for count in (2, 1) if step.argv[:count] in WITHIN), step.argv[:1])
        module, options = WITHIN.get(words, (f"milco_pyserini.{words[0]}.__main__", "Options"))
        parse(getattr(import_module(module), options), step.argv[len(words) :], " ".join(words))


def test_no_two_steps_write_the_same_and_no_two_cells_share_a_record(tables: list[Table]) -> None:
    """Or one would take the other's output, or figure, for its own."""
    unique = {table.name: table for table in tables}.values()
    steps = {step for table in unique for cell in table.cells for step in cell.steps}
    outputs: dict[Path, Step] = {}
    for step in steps:
        assert outputs.setdefault(step.done, step) == step, step.command
    keeper = Runner(Path("reproduction"))
    cells = {cell.key: cell for table in tables for cell in table.cells if cell.steps}
    assert len({keeper._record(cell) for cell in cells.values()}) == len(cells)


def test_every_name_is_one_that_corpora_knows(tables: list[Table]) -> None:
    """Of documents and of topics; nothing is fetched."""
    known = {CORPUS: catalog.CORPORA, TOPICS: catalog.TOPICS}
    known[QRELS] = known[TOPICS]
    needs = {need for table in tables for cell in table.cells for step in cell.steps for need in step.needs}
    for need in needs:
        assert need.name in known.get(need.kind, [need.name]) or need.kind == "answers", need


def test_a_collection_is_encoded_once_for_all_its_cells(tables: list[Table]) -> None:
    """MIRACL's hard negatives serve their own table, pruning, the sweep, coverage, lengths and MTEB's task."""
    steps = {step for table in tables for cell in table.cells for step in cell.steps}
    mine = [
        step for step in steps if step.argv[:3] == ("encode", "--corpus", "miracl-hn-ar") and "--dense" not in step.argv
    ]
    assert sum(step.done.parent.name == "miracl-hn-ar.milco" for step in mine) == 1


def test_long_documents_are_cut_for_those_who_read_512_tokens(tables: list[Table]) -> None:
    """And a document's best passage counts; BGE-M3 reads them whole."""
    cells = {cell.key: cell for table in tables for cell in table.cells}
    milco = cells["mldr", "MILCO", "ar"].commands
    assert "--split-passages" in milco[0] and "--max-passage" in milco[2] and "--lowercase" in milco[0]
    whole = cells["mldr", "M3-Dense", "ar"].commands
    assert "--max-length 8192 --dense" in whole[0] and "--max-passage" not in whole[2] and "--engine flat" in whole[1]


def test_mkqa_is_judged_by_answers_on_one_english_index(tables: list[Table]) -> None:
    """25 languages, one index of passages, Success@100."""
    cells = {cell.key: cell for table in tables for cell in table.cells}
    first, second = cells["mkqa", "MILCO", "ar"], cells["mkqa", "MILCO", "zh_tw"]
    assert first.steps[:2] == second.steps[:2]
    assert [step.argv[:2] for step in first.steps[3:]] == [("corpora", "judge"), ("eval", "--run")]
    assert "--measures Success@100" in second.commands[-1] and "mkqa-zh-tw-test" in second.commands[2]


def test_belebele_has_mtebs_376_pairs() -> None:
    """Each language with itself, with English both ways, and six with their other script."""
    from milco_pyserini.corpora.benchmarks.belebele import LANGUAGES

    assert len(set(belebele_pairs(LANGUAGES))) == len(belebele_pairs(LANGUAGES)) == 376


def test_the_costly_tables_come_last_and_none_is_forgotten() -> None:
    """--all is all tables of the paper."""
    assert set(BY_COST) == GROUPS.keys() - {"sample"} and len(set(BY_COST)) == len(BY_COST)


def test_all_tables_are_those_that_have_what_was_asked_for() -> None:
    """Swahili is in MIRACL's tables, not in BEIR's; analyses of MILCO are left out where it is."""
    roads = Roads(Path("out"), EVERY)
    assert {table.name for table in all_tables(roads, ["m3-dense"], ["sw"])} == {"miracl-hn", "miracl"}
    swahili = {table.name for table in all_tables(roads, [], ["sw"])}
    assert {"alpha", "pruning-mass", "coverage", "lengths-sw"} < swahili and "beir" not in swahili


@pytest.mark.parametrize(
    ("measured", "unlike", "verdict"),
    [
        (72.8, "", "reproduced"),
        (71.8, "", "reproduced"),
        (72.81, "", "near"),
        (70.3, "", "near"),
        (70.29, "", "differs"),
        (72.3, "another model", "another model"),
        (None, "", "quoted"),
    ],
)
def test_a_verdict_follows_from_the_difference(measured: float | None, unlike: str, verdict: str) -> None:
    """Up to half a point, up to two, more; and another model is never held against the paper."""
    assert CellResult("t", "r", "c", "nDCG@10", 72.3, measured, DONE, unlike=unlike).verdict == verdict


def test_a_cell_that_is_not_done_has_its_status_for_a_verdict() -> None:
    """Even if a figure is known; and one that nobody published is measured."""
    for status in (UNREACHABLE, FAILED, OPEN):
        assert CellResult("t", "r", "c", "m", 72.3, None, status).verdict == status
    assert CellResult("t", "r", "c", "m", None, 72.3, DONE).verdict == "measured"


def test_records_come_back_from_json_as_they_were(tmp_path: Path) -> None:
    """A cell, and everything at once."""
    cell = CellResult(
        "t", "r", "c", "m", 1.5, None, UNREACHABLE, "gone", ("milco encode",), "runs/x.txt", 2.5, "another"
    )
    assert cell_from_json(cell_to_json(cell)) == cell
    roads = Roads(tmp_path, PUBLIC)
    (table,) = chosen_tables(GROUPS["neuclir"], roads, (), ())
    whole = assemble(roads, Runner(tmp_path), [table], "mini")
    assert from_json(to_json(whole)) == whole
    assert [one.name for one in whole.tables] == ["neuclir"]


@pytest.mark.parametrize("change", [{"status": "lost"}, {"more": 1}])
def test_a_record_of_another_kind_is_refused(change: dict) -> None:
    """Rather than shown."""
    record = cell_to_json(CellResult("t", "r", "c", "m", 1.5, None, STATUSES[0]))
    with pytest.raises(MilcoError, match="record"):
        cell_from_json(record | change)


# What follows runs steps.


class Fake:
    """Stands for milco: writes what each command would, and remembers the commands."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, ...]] = []
        self.broken: set[str] = set()

    def __call__(self, argv: Sequence[str]) -> int:
        self.ran.append(tuple(argv))
        output = Path(argv[argv.index("--output") + 1])
        if output.name in self.broken:
            sys.stderr.write(f"milco_pyserini.{argv[0]}: error: {output} is broken\n")
            return 2
        if argv[0] == "eval":
            measures = argv[argv.index("--measures") + 1 : argv.index("--format")]
            write_json(output, {"results": [{"measures": {name: {"mean": 0.5} for name in measures}}]})
        elif argv[0] == "search":
            output.parent.mkdir(exist_ok=True)
            output.write_text("q Q0 d 1 1.0 t\n")
        else:
            write_json(output / "manifest.json", {})
        return 0


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """In the place of all our commands."""
    import milco_pyserini.cli.main

    made = Fake()
    monkeypatch.setattr(milco_pyserini.cli.main, "main", made)
    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Need]:
    """What was asked for; whatever is called "gone" in its name cannot be had."""
    needs: list[Need] = []

    def opened(need: Need) -> None:
        needs.append(need)
        if "gone" in need.name:
            raise MilcoError(f"{need.name} is not to be had. Copy it")

    monkeypatch.setattr(reach, "_open", opened)
    return needs


def cell_of(directory: Path, name: str, column: str = "ar", system: str = "milco") -> Cell:
    """A cell of a collection of that name."""
    collection = Collection(name, f"{name}-dev", "ar")
    return effect("t", "MILCO", column, Roads(directory, EVERY), SYSTEMS[system], collection, 50.3)


def test_a_cell_is_measured_once_and_its_record_stays(tmp_path: Path, fake: Fake, asked: list[Need]) -> None:
    """Encode, index, search, eval; the next run of the command reads the record."""
    cell = cell_of(tmp_path, "some")
    result = Runner(tmp_path).measure(cell)
    assert [argv[0] for argv in fake.ran] == ["encode", "index", "search", "eval"]
    assert (result.status, result.measured, result.verdict) == (DONE, 50.0, "reproduced")
    assert result.run == "runs/some-dev.milco.txt" and result.seconds is not None
    assert Runner(tmp_path).measure(cell) == result
    assert len(fake.ran) == 4


def test_what_stands_there_is_passed_over(tmp_path: Path, fake: Fake, asked: list[Need]) -> None:
    """Vectors and index of another cell; a run that was removed is made again."""
    Runner(tmp_path).measure(cell_of(tmp_path, "some"))
    (tmp_path / "runs" / "some-dev.milco.txt").unlink()
    (tmp_path / "evaluations" / "some-dev.milco.json").unlink()
    fake.ran.clear()
    asked.clear()
    assert Runner(tmp_path).measure(cell_of(tmp_path, "some")).status == DONE
    assert [argv[0] for argv in fake.ran] == ["search", "eval"]
    assert CORPUS not in {need.kind for need in asked}


def test_data_that_cannot_be_had_is_marked_and_asked_for_once(
    tmp_path: Path, fake: Fake, asked: list[Need], capsys: pytest.CaptureFixture
) -> None:
    """The reason is in the record, its first sentence on stderr; nothing is run; another day it is tried again."""
    measure = Runner(tmp_path).measure
    gone = [measure(cell_of(tmp_path, "gone", column)) for column in ("ar", "bn")]
    assert {(cell.status, cell.reason) for cell in gone} == {(UNREACHABLE, "gone is not to be had. Copy it")}
    assert fake.ran == [] and asked.count(Need(CORPUS, "gone")) == 1
    assert capsys.readouterr().err == "t: MILCO, ar: unreachable: gone is not to be had\n"
    assert measure(cell_of(tmp_path, "some")).status == DONE
    Runner(tmp_path).measure(cell_of(tmp_path, "gone", "bn"))
    assert asked.count(Need(CORPUS, "gone")) == 2


def test_a_step_that_fails_is_told_and_not_run_twice(
    tmp_path: Path, fake: Fake, asked: list[Need], capsys: pytest.CaptureFixture
) -> None:
    """Its own error is the reason of every cell that needs it; mended, the same command goes on."""
    fake.broken = {"some.milco"}
    measure = Runner(tmp_path).measure
    failed = [measure(cell_of(tmp_path, "some", column)) for column in ("ar", "bn")]
    assert {cell.status for cell in failed} == {FAILED} and "some.milco is broken" in failed[1].reason
    assert len(fake.ran) == 1
    assert "error: " in capsys.readouterr().err
    fake.broken = set()
    assert Runner(tmp_path).measure(cell_of(tmp_path, "some")).status == DONE


def test_ctrl_c_ends_the_command_and_not_the_cell_alone(tmp_path: Path, fake: Fake, asked: list[Need]) -> None:
    """No record is kept of what was stopped."""
    cell = cell_of(tmp_path, "some")
    interrupted = Runner(tmp_path)
    fake.__class__.__call__, before = (lambda self, argv: 130), fake.__class__.__call__
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted.measure(cell)
    finally:
        fake.__class__.__call__ = before
    assert interrupted.recorded(cell) is None


def test_a_step_that_prints_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """To its file, and shown as a person types it; what others print goes to stderr."""
    import milco_pyserini.cli.main

    monkeypatch.setattr(milco_pyserini.cli.main, "main", lambda argv: min(sys.stdout.write("{}\n"), 0))
    step = Step(("analyze", "statistics"), tmp_path / "a b.json", tmp_path / "a b.json", printed=True)
    run_step(step)
    assert step.output.read_text() == "{}\n"
    run_step(Step(("analyze", "latency"), tmp_path, tmp_path))
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("{}") == 1
    assert f"$ milco analyze statistics > '{tmp_path}/a b.json'" in shown.err


def test_a_mean_waits_for_all_of_its_cells(tmp_path: Path, fake: Fake, asked: list[Need]) -> None:
    """Open as long as one is, unreachable if one is, and then the mean; one of fewer columns is none at all."""
    roads, milco = Roads(tmp_path, EVERY), [SYSTEMS["milco"]]
    (mean,) = mean_cells("t", roads, milco, ("ar", "bn"), ("ar", "bn"), nothing)
    assert mean_cells("t", roads, milco, ("ar",), ("ar", "bn"), nothing) == []
    measure = Runner(tmp_path).measure
    known = {("t", "MILCO", "ar"): measure(cell_of(tmp_path, "some"))}
    assert runner.combined(mean, known).status == OPEN
    lost = known | {("t", "MILCO", "bn"): measure(cell_of(tmp_path, "gone", "bn"))}
    assert runner.combined(mean, lost).status == UNREACHABLE
    assert runner.combined(mean, lost).reason == "1 of 2 cells is not measured"
    of_one = replace(mean, table="u", parts=(("t", "MILCO", "bn"),))
    assert runner.combined(of_one, lost).reason == "MILCO, bn of t is not measured"
    whole = known | {("t", "MILCO", "bn"): measure(cell_of(tmp_path, "other", "bn"))}
    assert runner.combined(mean, whole).measured == 50.0


def test_a_system_without_a_checkpoint_says_how_to_give_one(tmp_path: Path) -> None:
    """Configurations 2 to 6 were not published."""
    cell = effect("t", "2", "ar", Roads(tmp_path, PUBLIC), SYSTEMS["2"], Collection("some", "some-dev", "ar"))
    result = Runner(tmp_path).measure(cell)
    assert result.status == UNREACHABLE and "--checkpoints 2=PATH" in result.reason


def test_without_a_network_the_hub_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its library tries for half a minute; what it has stored is found all the same."""
    from huggingface_hub import constants

    seen: list[bool] = []

    def opened(need: Need) -> None:
        seen.append(constants.HF_HUB_OFFLINE)
        if need.name != "stored":
            raise Unreachable(f"{need.name} cannot be reached")

    monkeypatch.setattr(reach, "_open", opened)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    asks = reach.Reach()
    assert [asks.why_not(Need(CORPUS, name)) for name in ("far", "far", "away", "stored")] == [
        "far cannot be reached",
        "far cannot be reached",
        "away cannot be reached",
        None,
    ]
    assert seen == [False, True, True] and constants.HF_HUB_OFFLINE is False


def test_the_corpora_say_that_they_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the words by which a lack of network is known."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    reason = reach.Reach().why_not(Need(CORPUS, "mldr-ar"))
    assert reason is not None and reach._NO_NETWORK in reason


# The command line.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give tables, such as reproduce miracl, or --all"),
        (["miracl", "--all"], "not both"),
        (["--all", "--lang", "xx"], "unknown column (--lang) 'xx'"),
        (["mirakl"], "did you mean 'miracl'"),
        (["miracl", "--lang", "xx"], "unknown column of miracl"),
        (["miracl", "--systems", "milko"], "did you mean 'milco'"),
        (["alpha", "--systems", "bm25"], "alpha is an analysis of milco alone"),
        (["miracl", "--checkpoints", "2"], "NAME=PATH"),
        (["miracl", "--checkpoints", "milco=x"], "given as --encoder"),
        (["miracl", "--checkpoints", "7=x"], "unknown checkpoint '7'"),
        (["miracl", "--checkpoints", "2=/absent"], "no encoder at '/absent'"),
        (["sample", "--encoder", "minni"], "no encoder at 'minni'"),
        (["miracl", "--local", "miracl"], "NAME=PATH"),
        (["miracl", "--local", "mirakl=."], "did you mean 'miracl'"),
        (["miracl", "--local", "miracl=nowhere"], "nowhere is not there"),
        (["limit", "--local", "limit-small=/"], "no table that was asked for reads limit-small"),
        (["miracl", "--threads", "0"], "must be from 1 to 1,024"),
        (["miracl", "--device", "tpu"], "tpu"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_written(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Exit code 2, and no directory."""
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def reproduce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Callable[..., str]:
    """Run the command in an empty directory without drawing a page; returns stdout."""
    import milco_pyserini.reproduce.page as page

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(page, "write_page", lambda reproduction, directory: directory / "index.html")

    def run(*arguments: str, code: int = 0) -> str:
        assert main(["reproduce", *arguments]) == code
        shown = capsys.readouterr()
        return shown.out if code == 0 else shown.err

    return run


def test_measured_stands_beside_published(reproduce: Callable[..., str], fake: Fake, asked: list[Need]) -> None:
    """A line for each cell, with the difference and a verdict; an average of one language is none."""
    lines = [line.split() for line in reproduce("miracl", "--lang", "ar", "--encoder", "mini").splitlines()]
    assert lines[0] == ["MIRACL", "(miracl)"]
    assert lines[2] == ["MILCO", "ar", "nDCG@10", "80.40", "50.00", "-30.40", "another", "model"]
    assert lines[3] == ["BM25", "ar", "nDCG@10", "39.50", "50.00", "+10.50", "another", "tokenizer"]
    assert len(lines) == 4
    # A day later, another language: what was measured before is in the figures too.
    reproduce("miracl", "--lang", "bn", "--systems", "milco", "--encoder", "mini")
    (table,) = from_json(read_json(Path("reproduction/figures.json"))).tables
    measured = {key for key, cell in table.cells.items() if cell.measured is not None}
    assert measured == {("MILCO", "ar"), ("MILCO", "bn"), ("BM25", "ar")}


def test_a_mean_appears_when_its_last_language_is_there(
    reproduce: Callable[..., str], fake: Fake, asked: list[Need]
) -> None:
    """Measured one year after the other."""
    for year in ("mlir_2023", "mlir_2024"):
        reproduce("neuclir", "--lang", year, "--systems", "milco")
    (table,) = from_json(read_json(Path("reproduction/figures.json"))).tables
    assert table.cells["MILCO", "avg"].measured == 50.0 and table.cells["MILCO", "avg"].published == 41.1


def test_two_encoders_never_share_a_directory(
    reproduce: Callable[..., str], fake: Fake, asked: list[Need], tmp_path: Path
) -> None:
    """Nor two states of one; and nothing is written where somebody else's files are."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "weights").write_text("1")
    reproduce("neuclir", "--encoder", "mine")
    assert "holds figures of milco with mine, not mini" in reproduce("neuclir", "--encoder", "mini", code=2)
    (tmp_path / "mine" / "weights").write_text("22")
    assert "with another state of mine" in reproduce("neuclir", "--encoder", "mine", code=2)
    assert "was not written by this command" in reproduce("neuclir", "--output", "mine", code=2)


def test_a_copy_of_the_publishers_files_is_named_in_the_commands(tmp_path: Path) -> None:
    """Of a whole benchmark, or of one of its names; files are called as without it."""
    roads = Roads(Path("out"), PUBLIC, {"mldr": "copies/mldr", "mldr-ar-test": "copies/ar"})
    road = roads.run(SYSTEMS["milco"], Collection("mldr-ar", "mldr-ar-test", "ar"))
    assert road.steps[0].argv[2] == "mldr-ar@copies/mldr" and "mldr-ar-test@copies/ar" in road.steps[-1].command
    assert road.output == Path("out/runs/mldr-ar-test.milco.txt")


def test_reasons_are_told_once_for_a_table(
    reproduce: Callable[..., str], fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the number of cells, and the names for which it is the same."""

    def opened(need: Need) -> None:
        raise MilcoError(f"{need.kind} {need.name} is away")

    monkeypatch.setattr(reach, "_open", opened)
    reproduce("mldr", "--systems", "milco", "bm25", code=1)
    (table,) = from_json(read_json(Path("reproduction/figures.json"))).tables
    text = reproduction_text(Reproduction("", "", "", "", "", (table,)), ["mldr"])
    assert "  unreachable (26): corpus mldr-ar is away; likewise mldr-de, mldr-en" in text
    assert "  unreachable (2): 13 of 13 cells are not measured" in text


def test_the_exit_code_is_1_if_nothing_could_be_measured(
    reproduce: Callable[..., str], fake: Fake, asked: list[Need]
) -> None:
    """Where one cell of those asked for is there, it is 0; the figures are written in both cases."""
    reproduce("miracl", "--lang", "ar", "--systems", "2", code=1)
    assert Path("reproduction/figures.json").is_file()
    reproduce("miracl", "--lang", "ar", "--systems", "2", "milco")


def test_the_terminal_and_the_page_count_the_same_cells(
    reproduce: Callable[..., str], fake: Fake, asked: list[Need], capsys: pytest.CaptureFixture
) -> None:
    """Means among them, quoted figures not."""
    assert main(["reproduce", "neuclir", "--systems", "milco", "bm25"]) == 0
    (table,) = from_json(read_json(Path("reproduction/figures.json"))).tables
    shown = sum(number for verdict, number in table.counts().items() if verdict != "quoted")
    heard = capsys.readouterr().err
    assert shown == 6 and "6 cells of 1 table\n" in heard and "[1/6]" in heard


def test_the_samples_analyses_are_left_out_without_milco() -> None:
    """They are MILCO's: the figures of other systems need not wait for them."""
    roads = Roads(Path("out"), EVERY)
    found = [table.name for table in chosen_tables(GROUPS["sample"], roads, ["m3-dense"], ())]
    assert found == ["sample", "sample-pool"]
    assert len(chosen_tables(GROUPS["sample"], roads, ["m3-dense", "milco"], ())) == 7


def test_the_sample_is_not_compared_with_other_collections(tmp_path: Path, fake: Fake, asked: list[Need]) -> None:
    """No cell has a published figure, not even where an earlier version recorded one."""
    tables = chosen_tables(GROUPS["sample"], Roads(tmp_path, EVERY), ["milco"], ())
    cells = [cell for table in tables for cell in table.cells]
    assert {cell.published for cell in cells} == {None}
    before = replace(cells[0], published=72.7)
    assert Runner(tmp_path).measure(before).difference is not None
    known = Runner(tmp_path).measure(cells[0])
    assert (known.published, known.difference, known.verdict) == (None, None, UNPUBLISHED)
    assert "published" not in reproduction_text(
        Reproduction("", "", "", "", "", (table_of([known], "t", "", ""),)), ["t"]
    )


def test_times_are_another_machines(tables: list[Table]) -> None:
    """A latency is never reproduced or not; the effectiveness beside it is."""
    cells = {cell.key: cell for table in tables for cell in table.cells}
    assert cells["latency", "MILCO (p=10)", "avg ms"].unlike == ANOTHER_MACHINE
    assert cells["latency", "MILCO (p=10)", "nDCG@10"].unlike == ""


# For real, on the sample.


def small_m3(directory: Path) -> Path:
    """A random checkpoint in BGE-M3's layout."""
    from milco_pyserini.encode.m3 import HEAD

    shutil.copytree(GOLDEN / "m_encoder", directory)
    torch.manual_seed(5)
    layer = torch.nn.Linear(read_json(directory / "config.json")["hidden_size"], 1)
    torch.nn.init.normal_(layer.weight, std=0.5)
    torch.save(layer.state_dict(), directory / HEAD)
    return directory


def small_splade(directory: Path) -> Path:
    """A random masked language model of BERT's kind, as SPLADE v3 is."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = BertForMaskedLM(BertConfig(vocab_size=360, max_position_embeddings=48, initializer_range=0.4, **sizes))
    torch.nn.init.normal_(model.get_output_embeddings().bias, std=0.5)
    model.save_pretrained(directory)
    for file in (GOLDEN / "en_lsr").iterdir():
        if "token" in file.name or file.name == "vocab.txt":
            shutil.copy(file, directory)
    return directory


def small_qwen3(directory: Path) -> Path:
    """A random decoder whose last token speaks for the text, as in Qwen3's embedding models."""
    from tokenizers import processors
    from transformers import AutoTokenizer, Qwen3Config, Qwen3Model

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(GOLDEN / "m_encoder")
    end = tokenizer.eos_token
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, tokenizer.eos_token_id)]
    )
    tokenizer.save_pretrained(directory)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    Qwen3Model(Qwen3Config(vocab_size=len(tokenizer), intermediate_size=64, head_dim=16, **sizes)).save_pretrained(
        directory
    )
    (directory / "1_Pooling").mkdir()
    pooling = {"pooling_mode_lasttoken": True, "pooling_mode_cls_token": False}
    write_json(directory / "1_Pooling" / "config.json", pooling)
    return directory


# Checkpoint -> a tiny one in its layout.
SMALL: dict[str, Callable[[Path], Path]] = {
    "m3": small_m3,
    "splade": small_splade,
    "qwen3": small_qwen3,
    "milco-dense": lambda _: GOLDEN / "ckpt_alignment",
}


@pytest.mark.integration
@pytest.mark.parametrize("system", ["m3-sparse", "m3-dense", "bm25-pieces", "splade", "qwen3", "milco-dense"])
def test_baselines_go_the_same_road(system: str, tmp_path: Path) -> None:
    """Tiny checkpoints in the layout of each baseline's: a figure between 0 and 100 from commands alone."""
    if SYSTEMS[system].kind == DENSE and importlib.util.find_spec("faiss") is None:
        pytest.skip("faiss-cpu is not installed")
    output, checkpoint = tmp_path / "out", str(SYSTEMS[system].checkpoint)
    collection = Collection("sample-en", "sample-en", "en", lowercase=False)
    small = SMALL[checkpoint](tmp_path / "checkpoint")
    roads = Roads(output, read_checkpoints("mini", [f"{checkpoint}={small}"]))
    result = Runner(output).measure(effect("t", "r", "en", roads, SYSTEMS[system], collection))
    assert result.status == DONE, result.reason
    assert result.measured is not None and 0 < result.measured <= 100
    assert (output / str(result.run)).is_file()


@pytest.fixture(scope="module")
def sample_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The sample's page of one language, with few rules of pruning: every kind of table, offline."""
    directory = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample, "TOP_K", (10, 100))
        patch.setattr(sample, "PERCENTILES", (50, 90))
        patch.setattr("milco_pyserini.reproduce.analyses.ALPHAS", ("0.00", "0.50", "1.00"))
        patch.setattr("milco_pyserini.reproduce.analyses.MASSES", (0, 50))
        # Whole paths: Java stays in the directory where it was started.
        arguments = ["sample", "--lang", "ar", "--encoder", "mini", "--output", str(directory)]
        assert main(["reproduce", *arguments]) == 0
    yield directory


@pytest.mark.integration
def test_the_samples_page_is_made_offline(sample_page: Path) -> None:
    """Every cell done; what can be checked by hand is right: k terms, and alpha 0.5 as without."""
    whole = from_json(read_json(sample_page / "figures.json"))
    cells = {(table.name, *key): cell for table in whole.tables for key, cell in table.cells.items()}
    seismic = importlib.util.find_spec("seismic") is not None
    assert {cell.status for key, cell in cells.items() if seismic or key[0] != "sample-latency"} == {DONE}
    assert cells["sample-top-k", "10", "terms"].measured == 10
    pool = cells["sample-pool", "MILCO", "nDCG@10"].measured
    assert pool is not None and cells["sample-alpha", "0.50", "nDCG@10"].measured == pytest.approx(pool, abs=0.3)
    assert cells["sample", "MILCO", "ar"].measured > 90  # type: ignore[operator]
    run = sample_page / str(cells["sample-pool", "MILCO + BM25 (RRF)", "nDCG@10"].run)
    assert run.is_file() and evaluated(sample_page / "evaluations" / f"{run.stem}.json", "nDCG@10") > 0
    assert "published" not in reproduction_text(whole, [table.name for table in whole.tables])
    assert "published<" not in "".join(path.read_text() for path in (sample_page / "figures").glob("*.svg"))


@pytest.mark.integration
def test_the_samples_page_is_read_in_a_browser(browser: Any, sample_page: Path) -> None:
    """A heading, a picture and a command for every table, and a link to each run that leads to a file."""
    whole = from_json(read_json(sample_page / "figures.json"))
    page = browser.new_page()
    page.goto((sample_page / "index.html").as_uri())
    text = page.inner_text("body")
    links = page.eval_on_selector_all("a[href*='runs/']", "found => found.map(one => one.getAttribute('href'))")
    pictures = page.eval_on_selector_all("svg", "found => found.length")
    for table in whole.tables:
        assert table.title in text
    assert pictures >= len(list((sample_page / "figures").glob("*.svg"))) == len(whole.tables)
    assert links and all((sample_page / unquote(link)).is_file() for link in links)
