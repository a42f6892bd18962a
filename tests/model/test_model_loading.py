"""Loading a checkpoint never runs its code, whichever command loads it, and each failure is one line."""

import ast
import json
import shutil
from pathlib import Path

import pytest
from golden_set import GOLDEN

import milco_pyserini
import recipes
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.search.reranking import CrossEncoder
from milco_pyserini.train.config import StartOptions
from milco_pyserini.train.start import load_start
from milco_pyserini.train.teachers import MaskedLanguageModelTeacher
from recipes.dense.encoder import DenseEncoder

pytestmark = pytest.mark.golden


def test_every_loader_of_transformers_refuses_a_checkpoints_own_code() -> None:
    """Each call of an Auto class, and that of Checkpoint.load_model(), has trust_remote_code=False."""
    lacking, calls = [], 0
    for path in (path for module in (milco_pyserini, recipes) for path in Path(module.__path__[0]).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            function = getattr(node, "func", None)
            if not isinstance(function, ast.Attribute) or function.attr not in ("from_pretrained", "from_config"):
                continue
            if not ast.unparse(function.value).rpartition(".")[2].startswith(("Auto", "loader")):
                continue
            calls += 1
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if given.get("trust_remote_code") != "False":
                lacking.append(f"{path.name}:{node.lineno}")
    assert calls >= 5 and not lacking


AUTO = ("AutoConfig", "AutoModel", "AutoModelForMaskedLM", "AutoModelForSequenceClassification", "AutoTokenizer")


def start(path: Path) -> object:
    """Load an encoder and an English head as training does."""
    return load_start(StartOptions(encoder=str(path), english=str(path)), 1, [])


LOADERS = {
    "train": start,
    "teacher": MaskedLanguageModelTeacher.from_pretrained,
    "cross-encoder": lambda path: CrossEncoder(str(path), device="cpu"),
    "dense": lambda path: DenseEncoder(str(path), device="cpu"),
    "sparse": load_encoder,
}


@pytest.mark.parametrize(
    ("load", "own"),
    # A sparse encoder's tokenizer is read without transformers.
    [(name, own) for name in LOADERS for own in ("model", "tokenizer") if (name, own) != ("sparse", "tokenizer")],
)
def test_code_of_a_checkpoint_never_runs(load: str, own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked for consent, and the line has the reason and the fix."""
    directory = shutil.copytree(GOLDEN / "en_lsr", tmp_path / "evil")
    mark = tmp_path / "code-has-run"
    (directory / "evil.py").write_text(f"open({str(mark)!r}, 'w')\n")
    code = {name: ["evil.Evil", "evil.Evil"] if name == "AutoTokenizer" else "evil.Evil" for name in AUTO}
    if own == "model":
        names, change = ["config.json"], {"model_type": "evil", "auto_map": code}
    else:
        # transformers know this model and do not know this tokenizer.
        names, change = ["tokenizer_config.json"], {"tokenizer_class": "Evil", "auto_map": code}
    for name in names:
        path = directory / name
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda *text: asked.append(str(text)) or "y")
    with pytest.raises(MilcoError, match="code from its own repository") as error:
        LOADERS[load](directory)
    assert "\n" not in str(error.value) and "trust_remote_code" not in str(error.value)
    assert not asked and not mark.exists()
