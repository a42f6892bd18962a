"""python -I tests/smoke.py [--encoder NAME]: the installed package, from the embedded sample to figures.

Run it with the interpreter that has the wheel: everything happens in a temporary directory, through the command line,
and nothing may come from this source tree. mini is the encoder unless another is named.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
MILCO = Path(sys.executable).parent / "milco"
COMMANDS = (
    *("corpora", "encode", "index", "search", "verify", "explain", "serve", "eval", "analyze"),
    *("reproduce", "train", "pyserini", "demo", "doctor"),
)
ENGINES = ("exact", "lucene")
# Far below what mini reaches, far above what a broken part would.
LEAST = {"nDCG@10": 0.3, "R@100": 0.4}


def main() -> None:
    """Check the installation, then take the road. The first thing that is wrong ends it with an AssertionError."""
    encoder = sys.argv[2] if sys.argv[1:2] == ["--encoder"] else "mini"
    check_installed()
    check_files()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        os.environ["HF_HUB_OFFLINE"] = "1"
        check_pages()
        if encoder == "mini":
            check_doctor()
        check_road(encoder)
    log("the installed package works")


def check_installed() -> None:
    """The package is the installed one, not this tree's."""
    import milco_pyserini

    where = Path(milco_pyserini.__file__).resolve()
    site = Path(sysconfig.get_path("purelib")).resolve()
    assert where.is_relative_to(site), f"milco_pyserini comes from {where}, not from {site}"
    assert MILCO.is_file(), f"the wheel installed no {MILCO}"
    stated = importlib.metadata.version("milco-pyserini")
    assert stated == milco_pyserini.__version__, f"metadata says {stated}, the package {milco_pyserini.__version__}"


def check_files() -> None:
    """Every file of the package is there, and nothing beside it: no tests, no recipes."""
    recorded = importlib.metadata.files("milco-pyserini") or []
    installed = {str(path) for path in recorded if path.parts[0] == "milco_pyserini" and path.suffix != ".pyc"}
    package = SOURCE / "milco_pyserini"
    wanted = {
        str(path.relative_to(SOURCE))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    assert not wanted - installed, f"the wheel lacks {sorted(wanted - installed)}"
    assert not installed - wanted, f"the wheel carries {sorted(installed - wanted)}"
    others = {path.parts[0] for path in recorded} - {"milco_pyserini", ".."}
    assert all(name.endswith(".dist-info") for name in others), f"the wheel carries {sorted(others)}"
    log(f"{len(installed)} files, all of them and no others")


def check_pages() -> None:
    """milco and each of its commands have a help page."""
    page = milco("--help")
    for command in COMMANDS:
        assert f"  {command} " in page, f"milco --help does not name {command}"
        assert "usage:" in milco(command, "--help"), f"milco {command} --help shows no usage"


def check_doctor() -> None:
    """The wheel's requirements, and Java from a wheel, are all that is needed."""
    report = milco("doctor")
    assert "everything needed is here" in report, report


def check_road(encoder: str) -> None:
    """encode, index, search, eval: both engines find what the judgements ask for, and agree."""
    milco("encode", "--corpus", "sample", "--encoder", encoder)
    figures = {}
    for engine in ENGINES:
        milco("index", "--vectors", "vectors/sample", "--engine", engine)
        run = f"runs/{engine}.txt"
        milco("search", "--index", f"indexes/sample.{engine}", "--topics", "sample", "--hits", "100", "--output", run)
        lines = Path(run).read_text(encoding="utf-8").splitlines()
        assert len(lines[0].split()) == 6, f"{run} does not begin with a line of six columns: {lines[0]}"
        table = json.loads(milco("eval", "--run", run, "--qrels", "sample", "-m", *LEAST, "--format", "json"))
        figures[engine] = {name: value["mean"] for name, value in table["results"][0]["measures"].items()}
    log(f"figures: {figures}")
    for name, least in LEAST.items():
        exact, lucene = (figures[engine][name] for engine in ENGINES)
        assert exact >= least, f"{name} of the exact engine is {exact:.4f}, not even {least}"
        assert abs(exact - lucene) < 0.01, f"{name} differs between engines: {figures}"


def milco(*arguments: str) -> str:
    """What a command writes to stdout; its stderr goes to ours."""
    log(f"milco {' '.join(arguments)}")
    ended = subprocess.run([MILCO, *arguments], stdout=subprocess.PIPE, encoding="utf-8", check=False)
    assert ended.returncode == 0, f"milco {' '.join(arguments)} ended with {ended.returncode}:\n{ended.stdout}"
    return ended.stdout


def log(message: str) -> None:
    """One line on stderr, as the commands themselves write."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
