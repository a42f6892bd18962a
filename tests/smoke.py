"""Test the installed package on the embedded sample: python -I tests/smoke.py [--encoder NAME].

Run it with the interpreter that has the wheel. It runs the commands in a temporary directory and uses nothing from this
source tree. The default encoder is mini.
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
    *("export", "train", "pyserini", "demo", "doctor"),
)
ENGINES = ("exact", "lucene")
# Far below the results of mini, far above those of a defect.
MINIMUM = {"nDCG@10": 0.3, "R@100": 0.4}


def main() -> None:
    """Check the installation, then run the pipeline. The first failure raises AssertionError."""
    encoder = sys.argv[2] if sys.argv[1:2] == ["--encoder"] else "mini"
    check_installed()
    check_files()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        os.environ["HF_HUB_OFFLINE"] = "1"
        check_pages()
        if encoder == "mini":
            check_doctor()
        check_pipeline(encoder)
    log("The installed package works")


def check_installed() -> None:
    """The imported package is the installed one, not the source tree."""
    import milco_pyserini

    where = Path(milco_pyserini.__file__).resolve()
    site = Path(sysconfig.get_path("purelib")).resolve()
    assert where.is_relative_to(site), f"milco_pyserini comes from {where}, not from {site}"
    assert MILCO.is_file(), f"the wheel installed no {MILCO}"
    stated = importlib.metadata.version("milco-pyserini")
    assert stated == milco_pyserini.__version__, (
        f"version {stated} in the metadata, {milco_pyserini.__version__} in the package"
    )


def check_files() -> None:
    """The wheel has every file of the package and nothing else: no tests, no recipes."""
    recorded = importlib.metadata.files("milco-pyserini") or []
    installed = {str(path) for path in recorded if path.parts[0] == "milco_pyserini" and path.suffix != ".pyc"}
    package = SOURCE / "milco_pyserini"
    wanted = {
        str(path.relative_to(SOURCE))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    assert not wanted - installed, f"the wheel lacks {sorted(wanted - installed)}"
    assert not installed - wanted, f"the wheel contains {sorted(installed - wanted)}"
    others = {path.parts[0] for path in recorded} - {"milco_pyserini", ".."}
    assert all(name.endswith(".dist-info") for name in others), f"the wheel contains {sorted(others)}"
    log(f"The wheel has all {len(installed)} files and no others")


def check_pages() -> None:
    """milco and its commands have help pages."""
    page = milco("--help")
    for command in COMMANDS:
        assert f"  {command} " in page, f"milco --help does not name {command}"
        assert "usage:" in milco(command, "--help"), f"milco {command} --help shows no usage"


def check_doctor() -> None:
    """The wheel's requirements, with Java from a wheel, are complete."""
    report = milco("doctor")
    assert "Nothing is missing." in report, report


def check_pipeline(encoder: str) -> None:
    """encode, index, search and eval give good results that agree between engines."""
    milco("encode", "--corpus", "sample", "--encoder", encoder)
    results = {}
    for engine in ENGINES:
        milco("index", "--vectors", "vectors/sample", "--engine", engine)
        run = f"runs/{engine}.txt"
        milco("search", "--index", f"indexes/sample.{engine}", "--topics", "sample", "--k", "100", "--output", run)
        lines = Path(run).read_text(encoding="utf-8").splitlines()
        assert len(lines[0].split()) == 6, f"{run} does not begin with a line of six columns: {lines[0]}"
        table = json.loads(milco("eval", "--run", run, "--qrels", "sample", "-m", *MINIMUM, "--format", "json"))
        results[engine] = {name: value["mean"] for name, value in table["results"][0]["measures"].items()}
    log(f"Results: {results}")
    for name, minimum in MINIMUM.items():
        exact, lucene = (results[engine][name] for engine in ENGINES)
        assert exact >= minimum, f"{name} of the exact engine is {exact:.4f}, below {minimum}"
        assert abs(exact - lucene) < 0.01, f"{name} differs between engines: {results}"


def milco(*arguments: str) -> str:
    """Run a command and return its stdout; its stderr is passed through."""
    log(f"milco {' '.join(arguments)}")
    done = subprocess.run([MILCO, *arguments], stdout=subprocess.PIPE, encoding="utf-8", check=False)
    assert done.returncode == 0, f"milco {' '.join(arguments)} exited with {done.returncode}:\n{done.stdout}"
    return done.stdout


def log(message: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
