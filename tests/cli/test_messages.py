"""Messages on stderr after typical mistakes, word by word."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic_stores import synthetic_batch, write_store

from milco_pyserini.cli.main import main
from milco_pyserini.index import Index

# A command, and the line that it prints. Tests of one option look for the value and its parameter.
MESSAGES = {
    "serach": "milco: error: unknown command 'serach': did you mean 'search'?",
    "encode": "milco encode: error: give exactly one of --corpus, --topics, --text",
    "encode --corpus docs.csv": (
        "milco encode: error: docs.csv is CSV, which is not read: write JSONL, or TSV with a tab between id and text"
    ),
    "encode --corpus latin.tsv --encoder mini": (
        "milco encode: error: latin.tsv:1: not UTF-8 (byte 7 of the line): convert the file from its encoding "
        "(Shift_JIS, GBK, windows-1256 ...) by iconv -f ... -t utf-8"
    ),
    "encode --corpus sample-german --encoder mini": (
        "milco encode: error: unknown corpus 'sample-german': did you mean 'sample-de'? 'milco corpora show "
        "sample' lists sample, sample-LANG (ar de en es fi fr ...)"
    ),
    "encode docs.tsv": (
        "milco encode: error: unexpected argument 'docs.tsv' (see milco encode --help). Write --corpus docs.tsv."
    ),
    "encode --corpus docs.tsv --encoder mini --max-length 2": "milco encode: error: --max-length 2: must be at least 3",
    "encode --corpus docs.tsv --encoder mini --dtype float31": (
        "milco encode: error: --dtype float31: must be one of auto, fast, float32, bfloat16, int8. "
        "Did you mean float32?"
    ),
    "encode --corpus docs.tsv --encoder mini --views pivot --prune source:top-k:3": (
        "milco encode: error: --prune source:top-k:3: the source view is not encoded by --views pivot"
    ),
    "encode --corpus docs.tsv --encoder mini --prune top-k": (
        "milco encode: error: pruning 'top-k': top-k takes a number, as in top-k:100"
    ),
    "encode --corpus docs.tsv --encoder ./nothing": (
        "milco encode: error: no encoder at './nothing': give a checkpoint directory, a hub name such as "
        "omai-research/milco-650m, or 'mini' ('mini-query' for queries)"
    ),
    "encode --corpus docs.tsv --encoder mini --device gpu": (
        "milco encode: error: --device gpu: must be auto, cpu, cuda, mps or xpu, or a numbered one, as in cuda:1"
    ),
    "encode --corpus docs.tsv --encoder mini --output notes": (
        "milco encode: error: notes was not written by this command, so it is never replaced. Choose another --output."
    ),
    "index": "milco index: error: which --vectors? there are vectors/a, vectors/b",
    "index --vectors docs.tsv": (
        "milco index: error: docs.tsv is a file, not a directory of vectors: make them of texts with milco "
        "encode --corpus docs.tsv (or --topics), or index external vectors as they are (milco index --plain)"
    ),
    "index --vectors vectors/c": (
        "milco index: error: no vectors at vectors/c: make them with milco encode --corpus CORPUS (or "
        "--topics TOPICS) --output vectors/c"
    ),
    "index --vectors vectors/a --engine lucine": (
        "milco index: error: unknown engine 'lucine': did you mean 'lucene'? valid are exact, lucene, "
        "qdrant, seismic. milco export --url fills the server of another search engine."
    ),
    "index --vectors vectors/a --engine remote": (
        "milco index: error: --engine remote: engine remote cannot build indexes here, exact, lucene, qdrant and "
        "seismic can. Fill the server by milco export --url."
    ),
    "index --vectors vectors/a --engine bm25": (
        "milco index: error: only version 0.3 builds and reads indexes of engine bm25. BM25 is an encoder: milco "
        "encode --encoder bm25"
    ),
    "index --no-store": "milco index: error: which --vectors? there are vectors/a, vectors/b",
    "index --vectors vectors/a --engine exact --prune top-k:3": (
        "milco index: error: indexes/a.exact was begun without --prune, not with --prune top-k:3. Choose "
        "another --output, or start over with --overwrite."
    ),
    "index --vectors vectors/a --views pivot --prune source:top-k:2": (
        "milco index: error: --prune source:top-k:2: the source view is dropped by --views pivot"
    ),
    "index --vectors vectors/a --plain": (
        "milco index: error: --plain is for external vectors, and vectors/a is a vector store of milco encode. Omit it."
    ),
    "index --vectors floats.jsonl --plain --engine exact --output indexes/f": (
        "milco index: error: floats.jsonl:1: weight 0.5 of term 'a' is not an integer, which an impact index "
        "needs: give a scale, such as --scale 100"
    ),
    "index --vectors vectors/a --shard-num 2": (
        "milco index: error: --shard-num 2: vectors/a has 1 part, and each shard needs one. Use fewer shards, "
        "or smaller parts (milco encode --part-size)."
    ),
    "index update --index indexes/a.exact": (
        "milco index update: error: an update needs documents to add (--vectors or --corpus) or ids to delete "
        "(--delete)"
    ),
    "index tune --index indexes/a.exact": (
        "milco index tune: error: --index indexes/a.exact: engine exact cannot trade recall for speed, remote and "
        "seismic can"
    ),
    "search": "milco search: error: give exactly one of --topics, --query",
    "search --query x --index indexes/b": (
        "milco search: error: no index at indexes/b: build it with milco index --vectors vectors/b --output indexes/b"
    ),
    "search topics.tsv": (
        "milco search: error: unexpected argument 'topics.tsv' (see milco search --help). Write --topics topics.tsv."
    ),
    "search 'a question'": (
        "milco search: error: unexpected argument 'a question' (see milco search --help). Write --query 'a question'."
    ),
    "search --top-k 3 --query x": "milco search: error: unknown option '--top-k': did you mean '--k'?",
    "search --query x --filter lang==de": (
        "milco search: error: --filter lang==de: has two equals signs. Write lang=de, or, for a value that begins with "
        "=, {'lang': '=de'}."
    ),
    "search --topics topics.tsv --tag 'a b'": (
        "milco search: error: --tag 'a b': must not be empty or contain white space, which separates the "
        "columns of a run"
    ),
    "search --topics indexes/a.exact": (
        "milco search: error: --topics indexes/a.exact: this is an index, which holds documents. Give a name, "
        "a file of texts, or vectors of topics, as milco encode --topics writes them."
    ),
    "search --topics topics.tsv --output run.txt": (
        "milco search: error: run.txt exists. Choose another --output, or replace it with --overwrite."
    ),
    "search --query x --filter lang": (
        "milco search: error: --filter lang: expected FIELD=VALUE, such as lang=de, or a range: year>=2000"
    ),
    "search fuse --runs run.txt": "milco search fuse: error: fusion takes two runs or more, got 1",
    "export --to qdrant --vectors vectors/a --collection 'A b'": (
        "milco export: error: --collection 'A b': must be a lower-case letter and up to 62 lower-case "
        "letters, digits and _, a name that every target accepts"
    ),
    "export --to ciff --vectors vectors/a --url http://localhost": (
        "milco export: error: --url http://localhost: CIFF cannot be filled while it runs, elasticsearch, milvus, "
        "opensearch, pgvector and qdrant can. Omit it, and load the files as their README.md shows."
    ),
    "export --to ciff --vectors vectors/a --output notes": (
        "milco export: error: notes was not written by this command, so it is never replaced. Choose another --output."
    ),
    "eval run.txt qrels.txt": (
        "milco eval: error: unexpected argument 'run.txt' (see milco eval --help). Write --run run.txt."
    ),
    "eval --run none.txt --qrels qrels.txt": (
        "milco eval: error: --run none.txt does not exist: it expects TREC or MS MARCO run files"
    ),
    "eval --run run.txt --qrels qrels.txt -m nDCG@x": (
        "milco eval: error: measure 'nDCG@x' is not written like nDCG@10 or P(rel=2)@10"
    ),
    "explain --query x --html page.html": (
        "milco explain: error: page.html exists. Choose another --html, or replace it with --overwrite."
    ),
    "serve --k 500": "milco serve: error: --k 500: must be from 1 to 100",
    "analyze sweep --vectors vectors/a --topics vectors/a --qrels qrels.txt --prune top-k:5 top-k:5": (
        "milco analyze sweep: error: --prune top-k:5 is given twice. Once is enough."
    ),
    "train sct --data pairs.jsonl": "milco train sct: error: --output is required without --preset",
    "train sct --preset paper-sct --data pairs.jsonl --group-size 1": (
        "milco train sct: error: --group-size 1: --loss kd compares the passages of a query. Give 2 or more."
    ),
    "train sct --preset paper-sct --data pairs.jsonl --model mini --output notes": (
        "milco train sct: error: notes was not written by this command, so it is never replaced. Choose another "
        "--output."
    ),
}


# A command, and a part of its line.
PARTS = {
    "encode --corpus docs.tsv --split-passages 0": "unexpected argument '0'",
    "index --vectors vectors/a --engine elastic": "milco export",
    "index --vectors vectors/a --store yes": "unexpected argument 'yes'",
    "index update --index indexes/a.exact --delete zzz": "--delete zzz: no such file",
    "eval --run run.txt --qrels header.txt": "(TREC)",
    "verify docs.tsv": "neither a vector store nor an index",
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory: a vector store, its index, a run, and files of the wrong kind."""
    path, before = tmp_path_factory.mktemp("work"), Path.cwd()
    os.chdir(path)
    ids, batch = synthetic_batch(8)
    write_store(Path("vectors/a"), ids, batch)
    Index.build("vectors/a", "indexes/a.exact", "exact")
    for name, text in {
        "docs.tsv": "d1\ttext\n",
        "docs.csv": "id,text\n",
        "vectors/b/manifest.json": "{}",
        "vectors/a.topics/manifest.json": "{}",
        "floats.jsonl": '{"id": "1", "contents": "", "vector": {"a": 0.5}}\n',
        "topics.tsv": "q\twords\n",
        "run.txt": "q Q0 d1 1 2.0 tag\n",
        "qrels.txt": "q 0 d1 1\n",
        "header.txt": "q1 0 b\n",
        "pairs.jsonl": '{"query": "q", "positives": ["p"], "negatives": ["n"]}\n',
        "page.html": "mine",
        "notes/mine.txt": "mine",
    }.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    Path("latin.tsv").write_bytes(b"d1\tcaf\xe9\n")
    yield path
    os.chdir(before)


@pytest.mark.parametrize("command", MESSAGES)
def test_a_mistake_is_one_line_with_the_fix(command: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The value, the rule and the fix, in the options of the command; exit code 2, nothing on stdout or on disk."""
    before = sorted(directory.rglob("*"))
    capsys.readouterr()
    assert main(shlex.split(command)) == 2
    assert capsys.readouterr() == ("", f"{MESSAGES[command]}\n")
    assert sorted(directory.rglob("*")) == before


@pytest.mark.parametrize("command", PARTS)
def test_a_mistake_names_what_helps(command: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 2."""
    capsys.readouterr()
    assert main(shlex.split(command)) == 2
    line = capsys.readouterr().err
    assert PARTS[command] in line and line.count("\n") == 1
