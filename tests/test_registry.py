"""Engines, targets and commands are found by entry points, of this package and of others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from milco_pyserini.cli.main import COMMANDS, MAINS, main
from milco_pyserini.errors import MilcoError
from milco_pyserini.export.protocol import TARGETS
from milco_pyserini.index import find_engine
from milco_pyserini.index.protocol import ENGINES
from milco_pyserini.registry import Registry

PLUGIN = """
from milco_pyserini.index.exact import Exact

class Scan(Exact):
    name = "scan"

def main(arguments):
    print("crawled", *arguments)
    return 7
"""
ENTRY_POINTS = """
[milco.engines]
scan = scan_plugin:Scan
exact = scan_plugin:Scan
broken = scan_plugin:Missing
[milco.commands]
crawl = scan_plugin:main
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a distribution that adds an engine and a command."""
    (tmp_path / "scan_plugin.py").write_text(PLUGIN)
    about = tmp_path / "scan_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: scan-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_other_packages_add_engines(plugin: None) -> None:
    """An engine of another package is found, and does not replace a built-in one; one that fails names its package."""
    engines: Registry = Registry("milco.engines")
    assert engines["scan"].name == "scan" and engines["exact"].name == "exact"
    assert set(engines) >= {"scan", "lucene", "seismic"} and "nothing" not in engines
    with pytest.raises(MilcoError, match="broken of the package scan-plugin cannot be imported"):
        engines["broken"]


def test_other_packages_add_commands(
    plugin: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command of another package runs, and the help page names the package."""
    monkeypatch.setattr("milco_pyserini.cli.main.MAINS", Registry("milco.commands"))
    assert main(["crawl", "--depth", "2"]) == 7
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("crawled --depth 2\n") and "crawl      from the package scan-plugin" in out


BROKEN = {
    "import error": "import nothing_of_this_name",
    "attribute error": "from milco_pyserini import errors; errors.nothing_of_this_name",
    "no such object": "",
    "syntax error": "def Plugin(:",
    "exception": "raise RuntimeError('two\\nlines')",
    "exit": "import sys; sys.exit(3)",
    "base exception": "class Stop(BaseException): pass\nraise Stop",
    "failing class": "class Plugin:\n    def __init__(self): raise ValueError('no')",
    "wrong class": "class Plugin: pass",
}
# A command that does not ask for the plug-in, its exit code, and what it prints.
COMMANDS_WITHOUT = {
    "--help": (0, "from the package broken-plugin"),
    "encoed": (2, "unknown command 'encoed': did you mean 'encode'?"),
    "index --set help": (0, "lucene: store_vectors"),
    "index --engine lucen --vectors x": (2, "unknown engine 'lucen': did you mean 'lucene'?"),
    "export --to cif --vectors x": (2, "unknown target 'cif': did you mean 'ciff'?"),
    "export --to ciff --store --vectors x": (2, "cannot store documents, elasticsearch"),
}


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install a distribution with an engine, a target and a command that cannot be loaded; return their name."""
    name = request.param.replace(" ", "_")
    (tmp_path / f"{name}_plugin.py").write_text(BROKEN[request.param])
    about = tmp_path / "broken_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    groups = {"milco.engines": ENGINES, "milco.targets": TARGETS, "milco.commands": MAINS}
    points = [f"[{group}]\n{name} = {name}_plugin:Plugin\n" for group in groups]
    (about / "entry_points.txt").write_text("".join(points))
    monkeypatch.syspath_prepend(str(tmp_path))
    for group, registry in groups.items():
        monkeypatch.setattr(registry, "others", Registry(group).others)
    return name


def test_a_broken_plugin_breaks_no_other_command(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Lists leave it out, and report it once."""
    reports: list[str] = []
    for command, (code, text) in COMMANDS_WITHOUT.items():
        assert main(command.split()) == code, command
        streams = capsys.readouterr()
        assert text in streams.out + streams.err, command
        reports += [line for line in streams.err.splitlines() if line.startswith("warning: ")]
    # One of the engine, and one of the target.
    warning = f"warning: {broken} of the package broken-plugin cannot be imported: "
    assert len(reports) == 2 and all(report.startswith(warning) for report in reports)


@pytest.mark.parametrize("command", ["{}", "index --engine {} --vectors x", "export --to {} --vectors x"])
def test_a_broken_plugin_is_named_if_it_is_used(broken: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, with exit code 2, whatever it raises."""
    assert main(command.format(broken).split()) == 2
    err = capsys.readouterr().err
    assert f"error: {broken} of the package broken-plugin cannot be imported: " in err and err.count("\n") == 1


@pytest.mark.parametrize("group", ["milco.engines", "milco.targets", "milco.commands"])
def test_every_name_can_be_loaded(group: str) -> None:
    """Each entry of entry_points.txt exists; engines and targets have their listed name, commands a purpose."""
    registry: Registry = Registry(group)
    for name in registry.own:
        assert getattr(registry[name], "name", name) == name
    assert group != "milco.commands" or COMMANDS.keys() == registry.own.keys()


def test_an_engine_can_be_added_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the process ends."""
    monkeypatch.setitem(ENGINES, "mine", ENGINES["exact"])
    assert find_engine("mine") is ENGINES["exact"]
    monkeypatch.undo()
    assert "mine" not in ENGINES


MISSING = """
import sys
for name in ("pyarrow", "ir_datasets", "fastapi", "uvicorn", "sentencepiece", "google.protobuf", "yaml"):
    sys.modules[name] = None
from milco_pyserini.cli.main import main
codes = [main(command.split()) for command in (
    "encode --corpus docs.tsv --encoder mini --output vectors --device cpu",
    "index --vectors vectors --output index --engine exact",
    "search --index index --query river",
)]
assert codes == [0, 0, 0], codes
for command in (
    "encode --corpus docs.tsv --encoder bm25 --output words",
    "encode --corpus docs.tsv --encoder mini --output floats --format parquet",
    "encode --corpus ir_datasets:vaswani --encoder mini --output named",
    "encode --corpus mr-tydi-sw --encoder mini --output named",
    "encode --corpus vaswani --encoder mini --output named",
    "export --vectors vectors --to parquet --output exported",
    "serve --index index",
):
    assert main(command.split()) == 2, command
"""
FIXES = ["parquet"] * 2 + ["ir-datasets"] * 3 + ["parquet", "serve"]


def test_the_core_works_without_extras(tmp_path: Path) -> None:
    """A command that needs an extra prints one line with the pip command, and writes nothing."""
    (tmp_path / "docs.tsv").write_text("d1\tThe river begins in the mountains.\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", MISSING], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    assert [line.rpartition("pip install ")[2] for line in errors] == [f"'.[{extra}]'." for extra in FIXES]
    assert {path.name for path in tmp_path.iterdir()} == {"docs.tsv", "vectors", "index"}
