"""milco upstream: what it writes, and that Pyserini and Anserini themselves reproduce our figures from it."""

import csv
import gzip
import hashlib
import importlib.metadata
import importlib.util
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.version import Version
from upstream_services import DRIVER, ROOT, github, patched_pyserini, run_python, served_files

import milco_pyserini
from milco_pyserini.cli.main import main
from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
from milco_pyserini.encode.contract import MilcoDocumentEncoder, MilcoQueryEncoder
from milco_pyserini.eval import evaluate
from milco_pyserini.integrations.pyserini import start_java

MODEL = Path(milco_pyserini.__file__).parent / "resources" / "milco-mini"
GOLDEN = ROOT / "tests" / "data" / "golden" / "ckpt_distillation"
NAME = "miracl-v1.0-sw-dev"
INDEX = "miracl-v1.0-sw.milco-650m"
LANGUAGES = ("de", "sw")
# Documents and topics of each language.
DOCUMENTS, TOPICS = 8, 6

pytestmark = pytest.mark.integration
newest = pytest.mark.skipif(
    Version(importlib.metadata.version("pyserini")) < Version("2.4"), reason="needs Pyserini 2.4: make pyserini-2"
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory, with a measured run and the files of milco upstream."""
    place = tmp_path_factory.mktemp("upstream")
    documents = [document for code in LANGUAGES for document in list(open_corpus(f"sample-{code}"))[:DOCUMENTS]]
    lines = [json.dumps({"id": document.id, "text": document.text, "lang": document.id[:2]}) for document in documents]
    (place / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    topics = [topic for code in LANGUAGES for topic in list(open_topics(f"sample-{code}"))[:TOPICS]]
    lines = [f"{topic.id}\t{topic.text}\n" for topic in topics]
    (place / f"topics.{NAME}.tsv").write_text("".join(lines), encoding="utf-8")
    qrels, ids = open_qrels("sample"), {document.id for document in documents}
    lines = [
        f"{topic.id} 0 {docid} {grade}\n"
        for topic in topics
        for docid, grade in qrels[topic.id].items()
        if docid in ids
    ]
    (place / f"qrels.{NAME}.txt").write_text("".join(lines), encoding="utf-8")
    with pytest.MonkeyPatch.context() as changed:
        changed.chdir(place)
        for command in (
            f"encode --corpus corpus.jsonl --encoder {MODEL} --output vectors/corpus",
            "index --vectors vectors/corpus --output indexes/corpus.lucene --threads 2",
            f"search --index indexes/corpus.lucene --topics topics.{NAME}.tsv --output runs/run.txt --k 100",
            f"upstream runs/run.txt --qrels qrels.{NAME}.txt --topics {NAME} --model milco-650m --output up",
        ):
            assert main(command.split()) == 0
        yield place


def figures(workspace: Path) -> dict[str, float]:
    mean = evaluate(workspace / "runs" / "run.txt", workspace / f"qrels.{NAME}.txt").mean
    return {measure: round(value, 4) for measure, value in mean.items()}


def test_conditions_and_configuration_have_the_figures_of_the_run(workspace: Path) -> None:
    """Two conditions: one encodes topics, the other has encoded ones. The counts are those of the vectors."""
    conditions = yaml.safe_load((workspace / "up/pyserini/2cr/milco-650m.yaml").read_text(encoding="utf-8"))
    first, second = conditions["conditions"]
    assert (first["name"], second["name"]) == ("milco-650m.sw", "milco-650m-cached.sw")
    assert first["splits"] == second["splits"] == [{"split": "dev", "scores": [figures(workspace)]}]
    assert f"--topics miracl-v1.0-sw-${{split}} --encoder {MODEL} --index {INDEX} " in first["command"]
    anserini = workspace / "up/anserini/reproduce/from-document-collection"
    config = yaml.safe_load((anserini / "configs" / f"{INDEX}.yaml").read_text(encoding="utf-8"))
    vectors = [json.loads(line) for line in (workspace / "vectors/corpus/parts/part-00000.jsonl").open("rb")]
    total = sum(sum(record["vector"].values()) for record in vectors)
    count = len(vectors)
    assert config["index_stats"] == {"documents": count, "documents (non-empty)": count, "total terms": total}
    assert config["models"][0]["results"] == {name: [value] for name, value in figures(workspace).items()}
    page = (anserini / "docgen" / f"{INDEX}.template").read_text(encoding="utf-8")
    assert "${index_cmds}" in page and "{{" not in page


def test_the_record_describes_the_archive(workspace: Path) -> None:
    """MD5, bytes and counts; one segment; the README has the same."""
    (record,) = json.loads((workspace / "up/prebuilt-indexes/lucene/milco-650m-impact.json").read_text("utf-8"))
    archive = (workspace / "up" / "archives" / record["filename"]).read_bytes()
    assert (record["md5"], record["size"]) == (hashlib.md5(archive).hexdigest(), len(archive))
    vectors = [json.loads(line)["vector"] for line in (workspace / "vectors/corpus/parts/part-00000.jsonl").open("rb")]
    assert record["unique_terms"] == len(set().union(*vectors))
    assert record["documents"] == len(vectors)
    readme = (workspace / "up/pyserini/resources/index-metadata" / record["readme"]).read_text(encoding="utf-8")
    assert record["md5"] in readme and f"{record['size']:,}" in readme


def test_encoded_topics_repeat_terms_by_impact(workspace: Path) -> None:
    """The topics of the run, as the query encoder encodes them."""
    encoder = MilcoQueryEncoder(str(MODEL))
    with gzip.open(workspace / "up" / "eval" / "topics" / f"topics.{NAME}.milco-650m.tsv.gz", "rt", "utf-8") as lines:
        found = {topic: Counter(terms.split(" ")) for topic, terms in csv.reader(lines, "excel-tab", quoting=3)}
    topics = open_topics(str(workspace / f"topics.{NAME}.tsv"))
    assert found == {topic.id: encoder.encode(topic.text) for topic in topics}


def test_runs_that_upstream_cannot_reproduce_are_refused(workspace: Path, capsys: pytest.CaptureFixture) -> None:
    """One line that names the reason, and nothing is written."""
    (workspace / "runs/bare.txt").write_bytes((workspace / "runs/run.txt").read_bytes())
    search = f"search --topics topics.{NAME}.tsv --index indexes/corpus.lucene --output"
    assert main(f"{search} runs/filtered.txt --filter lang=de".split()) == 0
    assert main(f"{search} runs/short.txt --k 10".split()) == 0
    assert main(f"{search} runs/zero.txt --k 100 --alpha 0".split()) == 0
    assert main("index --vectors vectors/corpus --engine exact --output indexes/corpus.exact".split()) == 0
    assert main(f"search --topics topics.{NAME}.tsv --index indexes/corpus.exact --output runs/exact.txt".split()) == 0
    for arguments, expected in (
        ("runs/bare.txt", "runs/bare.txt has no record of a search in one Lucene index"),
        ("runs/exact.txt", "runs/exact.txt has no record of a search in one Lucene index"),
        ("runs/filtered.txt", "was searched with filters, which upstream's commands do not have"),
        ("runs/zero.txt", "was searched with alpha, which upstream's commands do not have"),
        ("runs/short.txt", "runs/short.txt has 10 hits a topic, and its figures need 100"),
        ("runs/missing.txt", "runs/missing.txt does not exist: give a run"),
        ("runs/run.txt --topics sample", "does not end in -LANGUAGE-SPLIT"),
        ("runs/run.txt runs/run.txt", "has 1 names for 2 runs"),
        ("runs/run.txt --model milco.650m", "only letters, digits, _ and -"),
    ):
        capsys.readouterr()
        given = "" if "--topics" in arguments else f"--topics {NAME}"
        command = f"upstream {arguments} {given} --qrels qrels.{NAME}.txt --output never"
        assert main(command.split()) == 2, arguments
        assert expected in capsys.readouterr().err
    assert not Path("never").exists()


def test_an_alpha_of_one_language_leaves_only_encoded_topics(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Upstream's encoder weighs no views, so a condition with it would have other figures."""
    lines = (workspace / "corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (workspace / "de.jsonl").write_text("".join(lines[:DOCUMENTS]), encoding="utf-8")
    for command in (
        f"encode --corpus de.jsonl --encoder {MODEL} --output vectors/de --reuse vectors/corpus",
        "index --vectors vectors/de --output indexes/de.lucene",
        f"search --index indexes/de.lucene --topics topics.{NAME}.tsv --output runs/de.txt",
        f"upstream runs/de.txt --qrels qrels.{NAME}.txt --topics {NAME} --output {tmp_path / 'de'}",
    ):
        assert main(command.split()) == 0
    assert "runs/de.txt: only with encoded topics" in capsys.readouterr().err
    conditions = yaml.safe_load((tmp_path / "de/pyserini/2cr/milco-mini.yaml").read_text(encoding="utf-8"))
    assert [condition["name"] for condition in conditions["conditions"]] == ["milco-mini-cached.sw"]


@newest
def test_pyserini_reproduces_both_conditions(workspace: Path) -> None:
    """Its runner opens the index by our record, and gets our figures, with the encoder and with encoded topics."""
    patched_pyserini(workspace / "patched", (workspace / "up/pyserini/2cr/milco-650m.yaml").read_text(encoding="utf-8"))
    files = served_files(workspace / "up", workspace / f"topics.{NAME}.tsv", workspace / f"qrels.{NAME}.txt", NAME)
    with github(files) as port:
        for condition in ("milco-650m", "milco-650m-cached"):
            arguments = ["-m", "pyserini.2cr.miracl", "--condition", condition, "--language", "sw"]
            output = run_python(workspace, port, *arguments, path=workspace / "patched")
            for measure, value in figures(workspace).items():
                assert f"{measure:7}: {value:.4f} [OK]" in output
    assert list((workspace / "cache" / "indexes").glob(f"lucene-inverted.{INDEX}.*"))


@newest
def test_anserini_reproduces_the_configuration(workspace: Path) -> None:
    """Its driver indexes our JSONL, verifies our counts, and gets our figures with the encoded topics."""
    files = served_files(workspace / "up", workspace / f"topics.{NAME}.tsv", workspace / f"qrels.{NAME}.txt", NAME)
    resources = workspace / "up/anserini/"
    steps = ["--index", "--verify", "--search", "--config", INDEX]
    options = ["--corpus-path", str(workspace / "vectors/corpus/parts"), "--index-threads", "1"]
    with github(files) as port:
        output = run_python(workspace, port, "-c", DRIVER, str(resources), *steps, *options)
    assert "Index statistics successfully verified!" in output
    for measure, value in figures(workspace).items():
        assert f"expected: {value:.4f} actual: {value:.4f} (delta=0.0000) - metric: {measure}" in output
    assert "[FAIL]" not in output


def upstream_encoder() -> ModuleType:
    """Return deploy/upstream/_milco.py, loaded as a module of Pyserini."""
    start_java()
    spec = importlib.util.spec_from_file_location("pyserini_milco", ROOT / "deploy" / "upstream" / "_milco.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", [MODEL, GOLDEN], ids=["own-layout", "authors-layout"])
def test_the_encoder_for_upstream_encodes_as_ours(path: Path) -> None:
    """Queries and documents, long, empty, in capitals, with titles: at most one impact differs, by 1."""
    module = upstream_encoder()
    texts = [
        "Wer entdeckte Penicillin?",
        "",
        "古典音乐在北京",
        "WHO DISCOVERED PENICILLIN AND WHY",
        "старый зал " * 150,
    ]
    titles = ["Medizin", "", "音乐", "Title", ""]
    queries, documents = module.MilcoQueryEncoder(str(path)), module.MilcoDocumentEncoder(str(path), device="cpu")
    ours = MilcoQueryEncoder(str(path), dtype="float32"), MilcoDocumentEncoder(str(path), dtype="float32")
    pairs = [(queries.encode(text), ours[0].encode(text)) for text in texts]
    pairs += zip(documents.encode(texts, titles), ours[1].encode(texts, titles), strict=True)
    for theirs, expected in pairs:
        differing = {term: theirs.get(term, 0) - expected.get(term, 0) for term in {*theirs, *expected}}
        assert sum(map(abs, differing.values())) <= 1


@newest
def test_the_test_for_upstream_passes(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """deploy/upstream/test_encoder_model_milco.py in a Pyserini that has taken the patch."""
    monkeypatch.setenv("MILCO_MODEL", str(MODEL))
    patched_pyserini(workspace / "tested", "")
    with github({}) as port:
        test = str(ROOT / "deploy" / "upstream" / "test_encoder_model_milco.py")
        assert "OK" in run_python(workspace, port, test, path=workspace / "tested").split()
