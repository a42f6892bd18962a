"""Measuring cells: what is run once, resumed, unreachable, failed and combined; and the command."""

import errno
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import torch
from browsing import opened
from golden_set import GOLDEN
from huggingface_hub.errors import LocalEntryNotFoundError

from experiments import actions, conditions, runner
from experiments.conditions import Dataset, TableSpec, find_condition, paper, resolve_checkpoints
from experiments.records import DONE, FAILED, OPEN, UNREACHABLE, CellResult, cell_from_json
from experiments.reproduce import main
from experiments.runner import Availability, Runner, combine
from experiments.steps import CORPUS, Pipeline, Requirement
from experiments.tables import Cell, Combination, plan_tables
from milco_pyserini.analysis import timing
from milco_pyserini.errors import MilcoError, Unreachable
from milco_pyserini.eval.fairness import FAIRNESS_MEASURES
from milco_pyserini.io.files import read_json, write_json
from milco_pyserini.io.hub import fetch_hub_file

PUBLISHED = dict(paper().checkpoints)


class FakeActions(dict):
    """Calls that write what the library would, and remember the steps. broken: outputs that fail."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.broken: set[str] = set()
        self.interrupt = False
        super().__init__({command: self._action(command) for command in actions.ACTIONS})

    def _action(self, command: str) -> Callable[..., None]:
        def run(output: Path, measures: tuple[str, ...] = (), fairness: bool = False, **arguments: Any) -> None:
            self.ran.append(command)
            if self.interrupt:
                raise KeyboardInterrupt
            if output.name in self.broken:
                raise MilcoError(f"{output} is broken", hint="Mend it.")
            if command == "eval":
                named = (*measures, *FAIRNESS_MEASURES) if fairness else measures
                write_json(output, {"results": [{"measures": {name: {"mean": 0.5} for name in named}}]})
            elif command.startswith("search"):
                output.parent.mkdir(exist_ok=True)
                output.write_text("q Q0 d 1 1.0 t\n")
            else:
                write_json(output / "manifest.json", {})

        return run


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeActions:
    """In place of the library."""
    made = FakeActions()
    monkeypatch.setattr(actions, "ACTIONS", made)
    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Requirement]:
    """The requirements that are opened; a name with "gone" is not available."""
    requirements: list[Requirement] = []

    def open_requirement(requirement: Requirement) -> None:
        requirements.append(requirement)
        if "gone" in requirement.name:
            raise MilcoError(f"{requirement.name} is not available", hint="Copy it.")

    monkeypatch.setattr(runner, "open_requirement", open_requirement)
    return requirements


def cell_of(directory: Path, corpus: str, column: str = "ar", condition: str = "milco") -> Cell:
    """A cell of a corpus of that name, published at 50.3."""
    spec = TableSpec(
        "t",
        "effectiveness",
        "T",
        "",
        {column: Dataset(corpus, f"{corpus}-dev", "ar")},
        None,
        figures={(find_condition(condition).published_as.get("miracl", ""), column): 50.3},
        source="miracl",
    )
    (plan,) = plan_tables(spec, Pipeline(directory, PUBLISHED), [condition])
    return plan.cells[0]


def test_a_cell_is_measured_once_and_its_record_stays(
    tmp_path: Path, fake: FakeActions, asked: list[Requirement]
) -> None:
    """Encode, index, search, eval; the next run of the command reads the record."""
    cell = cell_of(tmp_path, "some")
    result = Runner(tmp_path, fake).measure(cell)
    assert fake.ran == ["encode", "index", "search", "eval"]
    assert (result.status, result.measured, result.verdict) == (DONE, 50.0, "reproduced")
    assert result.run == "runs/some-dev.milco.txt" and result.seconds is not None
    assert Runner(tmp_path, fake).measure(cell) == result
    assert len(fake.ran) == 4


def test_existing_outputs_are_used(tmp_path: Path, fake: FakeActions, asked: list[Requirement]) -> None:
    """A run that was removed is made again, from the vectors and the index that exist."""
    Runner(tmp_path, fake).measure(cell_of(tmp_path, "some"))
    (tmp_path / "runs" / "some-dev.milco.txt").unlink()
    (tmp_path / "evaluations" / "some-dev.milco.json").unlink()
    fake.ran.clear()
    asked.clear()
    assert Runner(tmp_path, fake).measure(cell_of(tmp_path, "some")).status == DONE
    assert fake.ran == ["search", "eval"]
    assert CORPUS not in {requirement.kind for requirement in asked}


def test_what_a_complete_output_was_made_of_may_be_removed(
    tmp_path: Path, fake: FakeActions, asked: list[Requirement]
) -> None:
    """Vectors and indexes are large; of a complete run only the evaluation is missing."""
    Runner(tmp_path, fake).measure(cell_of(tmp_path, "some"))
    for name in ("vectors", "indexes", "evaluations", "results"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    fake.ran.clear()
    assert Runner(tmp_path, fake).measure(cell_of(tmp_path, "some")).status == DONE
    assert fake.ran in (["eval"], [])


def test_an_error_of_a_library_fails_one_cell_and_a_full_disk_all(
    tmp_path: Path, fake: FakeActions, asked: list[Requirement], capsys: pytest.CaptureFixture
) -> None:
    """Days of work must not end with one benchmark, nor go on where nothing can be written."""

    def fail(error: Exception) -> Callable[..., None]:
        def run(**_: Any) -> None:
            raise error

        return run

    fake["index"] = fail(RuntimeError("CUDA error"))
    result = Runner(tmp_path, fake).measure(cell_of(tmp_path, "some"))
    assert (result.status, result.reason) == (FAILED, "RuntimeError: CUDA error")
    assert "Traceback" in capsys.readouterr().err
    fake["index"] = fail(OSError(errno.ENOSPC, "No space left"))
    with pytest.raises(OSError, match="No space left"):
        Runner(tmp_path, fake).measure(cell_of(tmp_path, "other"))


def test_unreachable_data_is_asked_for_once_and_again_in_the_next_run(
    tmp_path: Path, fake: FakeActions, asked: list[Requirement], capsys: pytest.CaptureFixture
) -> None:
    """The record has the reason and the fix; stderr has the reason once; nothing is run."""
    measure = Runner(tmp_path, fake).measure
    gone = [measure(cell_of(tmp_path, "gone", column)) for column in ("ar", "bn")]
    assert {(cell.status, cell.reason) for cell in gone} == {(UNREACHABLE, "gone is not available. Copy it.")}
    assert fake.ran == [] and asked.count(Requirement(CORPUS, "gone")) == 1
    assert capsys.readouterr().err == "t: MILCO, ar: unreachable: gone is not available\n"
    assert measure(cell_of(tmp_path, "some")).status == DONE
    Runner(tmp_path, fake).measure(cell_of(tmp_path, "gone", "bn"))
    assert asked.count(Requirement(CORPUS, "gone")) == 2


def test_a_failed_step_is_not_run_twice(tmp_path: Path, fake: FakeActions, asked: list[Requirement]) -> None:
    """Its error is the reason of every cell that needs it; once mended, the same command continues."""
    fake.broken = {"some.milco"}
    measure = Runner(tmp_path, fake).measure
    failed = [measure(cell_of(tmp_path, "some", column)) for column in ("ar", "bn")]
    assert {cell.status for cell in failed} == {FAILED} and "some.milco is broken. Mend it." in failed[1].reason
    assert len(fake.ran) == 1
    fake.broken = set()
    assert Runner(tmp_path, fake).measure(cell_of(tmp_path, "some")).status == DONE


def test_ctrl_c_ends_the_command_without_a_record(tmp_path: Path, fake: FakeActions, asked: list[Requirement]) -> None:
    """The cell is tried again by the next run."""
    fake.interrupt = True
    interrupted, cell = Runner(tmp_path, fake), cell_of(tmp_path, "some")
    with pytest.raises(KeyboardInterrupt):
        interrupted.measure(cell)
    assert interrupted.recorded(cell) is None


def test_a_mean_waits_for_all_of_its_cells(tmp_path: Path, fake: FakeActions, asked: list[Requirement]) -> None:
    """Open while one is, unreachable if one is; then the mean, or the difference."""
    measure = Runner(tmp_path, fake).measure
    columns = {"some": "ar", "other": "bn", "gone": "th"}
    some, other, gone = (measure(cell_of(tmp_path, name, column)) for name, column in columns.items())
    combination = Combination((("t", "MILCO", "ar"), ("t", "MILCO", "bn")))
    mean = Cell("t", "MILCO", "avg", "nDCG@10", None, combination)
    known = {("t", "MILCO", "ar"): some}
    assert combine(mean, combination, known).status == OPEN
    lost = combine(mean, combination, known | {("t", "MILCO", "bn"): gone})
    assert (lost.status, lost.reason) == (UNREACHABLE, "1 of 2 cells is not measured")
    one = Combination((("t", "MILCO", "bn"),))
    assert combine(replace(mean, table="u"), one, {}).reason == "MILCO, bn of t is not measured"
    complete = known | {("t", "MILCO", "bn"): replace(other, measured=40.0)}
    assert combine(mean, combination, complete).measured == 45.0
    assert combine(mean, replace(combination, is_difference=True), complete).measured == 10.0


def test_a_system_without_a_published_checkpoint_states_how_to_give_one(tmp_path: Path, fake: FakeActions) -> None:
    """Configurations 2 to 6 have to be trained."""
    result = Runner(tmp_path, fake).measure(cell_of(tmp_path, "some", condition="2"))
    assert result.status == UNREACHABLE and "--checkpoints 2=PATH" in result.reason


def test_without_a_network_the_hub_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its library retries for half a minute; what is in its cache is still found."""
    waited: list[str] = []

    def download(repository: str, path: str, local_files_only: bool = False, **options: object) -> str:
        if repository == "cached" and local_files_only:
            return path
        if not local_files_only:
            waited.append(repository)
        raise LocalEntryNotFoundError(f"no {path}")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr(runner, "open_requirement", lambda requirement: fetch_hub_file(requirement.name, "file"))
    availability = Availability()
    errors = [availability.find_error(Requirement(CORPUS, name)) for name in ("far", "far", "away", "cached")]
    assert [type(error) for error in errors] == [Unreachable, Unreachable, Unreachable, type(None)]
    assert waited == ["far"]


def test_a_corpus_on_the_hub_is_unreachable_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A corpus that is not in the cache, where there is no network."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert isinstance(Availability().find_error(Requirement(CORPUS, "mldr-ar")), Unreachable)


@pytest.mark.parametrize(
    ("measured", "caveat", "verdict"),
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
def test_the_verdict_follows_from_the_difference(measured: float | None, caveat: str, verdict: str) -> None:
    """Up to half a point, up to two, more; a figure with a caveat is never held against the paper."""
    assert CellResult("t", "r", "c", "nDCG@10", 72.3, measured, DONE, caveat=caveat).verdict == verdict


def test_a_cell_that_is_not_done_has_its_status_as_verdict() -> None:
    """Even if a figure is published; one that nobody published is measured."""
    for status in (UNREACHABLE, FAILED, OPEN):
        assert CellResult("t", "r", "c", "m", 72.3, None, status).verdict == status
    assert CellResult("t", "r", "c", "m", None, 72.3, DONE).verdict == "measured"


def test_records_are_read_as_they_were_written_and_others_are_refused() -> None:
    """Those of version 0.1 too, whose caveat had another name."""
    cell = CellResult("t", "r", "c", "m", 1.5, None, UNREACHABLE, "gone", ("milco encode",), "runs/x.txt", 2.5, "why")
    record = asdict(cell)
    assert cell_from_json(record) == cell
    assert cell_from_json({("unlike" if key == "caveat" else key): record[key] for key in record}) == cell
    for change in ({"status": "lost"}, {"more": 1}):
        with pytest.raises(MilcoError, match="record of a cell"):
            cell_from_json(record | change)


def test_a_record_is_compared_with_the_tables_of_today(
    tmp_path: Path, fake: FakeActions, asked: list[Requirement]
) -> None:
    """Not with the published figure of the day of the record."""
    cell = cell_of(tmp_path, "some")
    Runner(tmp_path, fake).measure(replace(cell, published=72.7))
    known = Runner(tmp_path, fake).measure(replace(cell, published=None))
    assert (known.published, known.difference, known.verdict) == (None, None, "measured")


# The command.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no table is given: name one, such as miracl, or pass --all"),
        (["miracl", "--all"], "--all selects every table: omit the others"),
        (["--all", "--lang", "xx"], "unknown column (--lang) 'xx'"),
        (["mirakl"], "did you mean 'miracl'"),
        (["miracl", "--lang", "xx"], "unknown column of miracl"),
        (["miracl", "--systems", "milko"], "did you mean 'milco'"),
        (["alpha", "--systems", "bm25"], "alpha is an analysis of milco only"),
        (["miracl", "--checkpoints", "2"], "expects NAME=PATH"),
        (["miracl", "--checkpoints", "milco=x"], "given as --encoder"),
        (["miracl", "--checkpoints", "7=x"], "unknown checkpoint '7'"),
        (["miracl", "--checkpoints", "2=/absent"], "no encoder at '/absent'"),
        (["sample", "--encoder", "minni"], "no encoder at 'minni'"),
        (["miracl", "--local", "miracl"], "expects NAME=PATH"),
        (["miracl", "--local", "mirakl=."], "did you mean 'miracl'"),
        (["miracl", "--local", "miracl=nowhere"], "the path does not exist"),
        (["miracl", "--local", "miracl=/"], "miracl is not read from a copy. Set IR_DATASETS_HOME=/ "),
        (["limit", "--local", "limit-small=/"], "none of the tables reads limit-small"),
        (["miracl", "--threads", "0"], "must be from 1 to 1,024"),
        (["miracl", "--device", "tpu"], "tpu"),
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
def reproduce(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    fake: FakeActions,
    asked: list[Requirement],
) -> Callable[..., tuple[str, str]]:
    """Run the command in an empty directory without drawing a page; returns stdout and stderr."""
    from experiments import page

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(page, "write_page", lambda reproduction, directory: directory / "index.html")

    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert main(arguments) == code
        shown = capsys.readouterr()
        return shown.out, shown.err

    return run


def figures() -> dict[tuple[str, str], CellResult]:
    """The cells that the command wrote, of its only table."""
    (table,) = read_json(Path("reproduction/figures.json"))["tables"]
    return {(cell.row, cell.column): cell for cell in map(cell_from_json, table["cells"])}


def test_measured_is_shown_next_to_published(reproduce: Callable[..., tuple[str, str]]) -> None:
    """A line for each cell, with the difference and a verdict; there is no average of one language."""
    lines = [line.split() for line in reproduce("miracl", "--lang", "ar", "--encoder", "mini")[0].splitlines()]
    assert lines[0] == ["MIRACL", "(miracl)"]
    assert lines[2] == ["MILCO", "ar", "nDCG@10", "80.40", "50.00", "-30.40", "another", "model"]
    assert lines[3] == ["BM25", "ar", "nDCG@10", "39.50", "50.00", "+10.50", "another", "tokenizer"]
    assert len(lines) == 4
    # A day later, another language: what was measured before is in the figures too.
    reproduce("miracl", "--lang", "bn", "--systems", "milco", "--encoder", "mini")
    measured = {key for key, cell in figures().items() if cell.measured is not None}
    assert measured == {("MILCO", "ar"), ("MILCO", "bn"), ("BM25", "ar")}


def test_a_mean_appears_with_its_last_column(reproduce: Callable[..., tuple[str, str]]) -> None:
    """The two years were measured one after the other."""
    for year in ("mlir_2023", "mlir_2024"):
        reproduce("neuclir", "--lang", year, "--systems", "milco")
    mean = figures()["MILCO", "avg"]
    assert (mean.measured, mean.published) == (50.0, 41.1)


def test_two_encoders_never_share_a_directory(reproduce: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    """Nor two versions of one; and nothing is written into a directory of other files."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "weights").write_text("1")
    reproduce("neuclir", "--encoder", "mine")
    assert "has figures of milco with mine, not mini" in reproduce("neuclir", "--encoder", "mini", code=2)[1]
    (tmp_path / "mine" / "weights").write_text("22")
    assert "with another version of mine" in reproduce("neuclir", "--encoder", "mine", code=2)[1]
    reproduce("neuclir", "--output", "mine", code=2)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["weights"]


def test_two_local_copies_never_share_a_directory(reproduce: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    """The figures of one would be shown for the other."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "corpus.jsonl").write_text(name)
    reproduce("limit", "--local", "limit=first", "--systems", "milco")
    assert "has figures of limit with first, not second" in reproduce("limit", "--local", "limit=second", code=2)[1]


def test_the_exit_code_is_1_if_nothing_could_be_measured(
    reproduce: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 as soon as one cell is measured; reasons are printed once, with the number of cells."""

    def open_requirement(requirement: Requirement) -> None:
        if requirement.name != "neuclir-bench-multi-2024":
            raise MilcoError(f"{requirement.kind} {requirement.name} is away")

    out, err = reproduce("miracl", "--lang", "ar", "--systems", "2", code=1)
    assert "unreachable (1): needs --checkpoints 2=PATH" in out
    monkeypatch.setattr(runner, "open_requirement", open_requirement)
    out, err = reproduce("neuclir", code=1)
    assert "unreachable (8): corpus neuclir-multi is away" in out and err.count("is away") == 1
    monkeypatch.undo()


def test_the_terminal_and_the_page_count_the_same_cells(reproduce: Callable[..., tuple[str, str]]) -> None:
    """Means are counted, quoted figures are not."""
    _, err = reproduce("neuclir", "--systems", "milco", "bm25")
    assert sum(cell.verdict != "quoted" for cell in figures().values()) == 10
    assert "10 cells of 1 table\n" in err and "[1/10]" in err


# With the library, on the sample.


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
    """A random decoder with last-token pooling, as Qwen3's embedding models have it."""
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
def test_baselines_take_the_same_pipeline(system: str, tmp_path: Path) -> None:
    """Tiny checkpoints in the layout of each baseline's: a figure between 0 and 100."""
    condition = find_condition(system)
    if condition.kind == conditions.DENSE and importlib.util.find_spec("faiss") is None:
        pytest.skip("faiss-cpu is not installed")
    checkpoint = str(condition.checkpoint)
    small = SMALL[checkpoint](tmp_path / "checkpoint")
    output = tmp_path / "out"
    pipeline = Pipeline(output, resolve_checkpoints("mini", {checkpoint: str(small)}))
    dataset = Dataset("sample-en", "sample-en", "en", lowercase=False)
    (plan,) = plan_tables(TableSpec("t", "effectiveness", "T", "", {"en": dataset}, None), pipeline, [system])
    result = Runner(output, actions.ACTIONS).measure(plan.cells[0])
    assert result.status == DONE, result.reason
    assert result.measured is not None and 0 < result.measured <= 100
    assert (output / str(result.run)).is_file()


@pytest.fixture(scope="module")
def sample_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The page of the sample in one language, with one row for each analysis: every kind of table, offline."""
    directory = tmp_path_factory.mktemp("page")
    few = {
        "sample-top-k": {"10": "top-k:10"},
        "sample-percentile": {"50": "percentile:50"},
        "sample-alpha": {"0.50": "0.50"},
        "sample-latency": {"MILCO (p=50)": "mass:50"},
    }
    spec = paper().tables["sample"]
    german = {"corpus": "sample-de", "topics": "sample-de", "language": "de"}
    parts = []
    for part in spec.parts:
        settings = part.settings | ({"rows": few[part.name]} if part.name in few else {})
        columns = {name: replace(dataset, **german) for name, dataset in part.columns.items()}
        parts.append(replace(part, settings=settings, columns=columns))
    small = replace(paper(), tables={**paper().tables, "sample": replace(spec, parts=tuple(parts))})
    with pytest.MonkeyPatch.context() as patch:
        for module in (conditions, runner):
            patch.setattr(module, "paper", lambda: small)
        patch.setattr(timing, "WARM_UP_SECONDS", 0.0)
        # Absolute paths: Java stays in the directory where it was started.
        arguments = ["sample", "--lang", "ar", "--encoder", "mini", "--output", str(directory)]
        assert main(arguments) == 0
    yield directory


@pytest.mark.integration
def test_the_samples_page_is_made_offline(sample_page: Path) -> None:
    """All cells are done; pruning to k leaves k terms, and alpha 0.5 ranks as no alpha does."""
    tables = read_json(sample_page / "figures.json")["tables"]
    cells = {(one["name"], c["row"], c["column"]): cell_from_json(c) for one in tables for c in one["cells"]}
    seismic = importlib.util.find_spec("seismic") is not None
    assert {cell.status for key, cell in cells.items() if seismic or key[0] != "sample-latency"} == {DONE}
    assert cells["sample-top-k", "10", "terms"].measured == 10
    pool = cells["sample-pool", "MILCO", "nDCG@10"].measured
    assert pool is not None and cells["sample-alpha", "0.50", "nDCG@10"].measured == pytest.approx(pool, abs=0.3)
    assert cells["sample", "MILCO", "ar"].measured > 90  # type: ignore[operator]
    fused = cells["sample-pool", "MILCO + BM25 (RRF)", "nDCG@10"]
    assert fused.measured is not None and (sample_page / str(fused.run)).is_file()
    assert "<title>MILCO, measured</title>" in (sample_page / "index.html").read_text(encoding="utf-8")
    assert "published<" not in "".join(path.read_text() for path in (sample_page / "figures").glob("*.svg"))


@pytest.mark.integration
def test_the_samples_page_is_read_in_a_browser(browser: Any, sample_page: Path) -> None:
    """A heading and a picture for every table, and a link to each run that leads to a file."""
    tables = read_json(sample_page / "figures.json")["tables"]
    with opened(browser, (sample_page / "index.html").as_uri()) as page:
        text = page.inner_text("body")
        links = page.eval_on_selector_all("a[href*='runs/']", "found => found.map(one => one.getAttribute('href'))")
        widths = page.eval_on_selector_all("figure img", "found => found.map(one => one.naturalWidth)")
    assert all(table["title"] in text for table in tables)
    assert len(widths) == len(list((sample_page / "figures").glob("*.svg"))) == len(tables) and all(widths)
    assert links and all((sample_page / unquote(link)).is_file() for link in links)
