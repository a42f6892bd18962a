"""The recipes' command lines: help that answers at once, and numbers that mean what they say."""

import subprocess
import sys
from pathlib import Path

import pytest

from recipes.milco_mini.__main__ import main

HEAVY = ("torch", "numba", "scipy", "transformers", "tokenizers", "sentencepiece")
PROGRAM = f"""
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_module(sys.argv[0], run_name="__main__")
finally:
    sys.stderr.write(" ".join(name for name in {HEAVY} if name in sys.modules))
"""


@pytest.mark.parametrize("recipe", ["recipes.milco_mini", "recipes.configurations"])
def test_help_of_a_recipe_loads_nothing_heavy(recipe: str) -> None:
    """--help answers on stdout with exit code 0, without torch, numba, scipy or compiled tokenizers."""
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", PROGRAM, recipe, "--help"], capture_output=True, text=True, cwd=root)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--sap-steps" in done.stdout


@pytest.mark.parametrize("option", ["--sap-steps", "--sct-steps", "--epochs", "--threads"])
def test_no_steps_at_all_are_refused(option: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """0 is no other word for the recipe's own value: exit code 2 before anything is made."""
    (tmp_path / "bitext").mkdir()
    argv = ["--data", tmp_path, "--work", tmp_path / "work", "--output", tmp_path / "model", option, 0]
    assert main([str(value) for value in argv]) == 2
    assert f"{option} 0: must be at least 1" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()
