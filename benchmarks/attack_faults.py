"""Suites of faults.py that attack servers, stored values, search pages, mapped files and plug-ins.

connections: holds more slow connections to milco serve than it may have descriptors. Searches must have status 200 or
    503 meanwhile, the process must live, and a search must have 200 within five seconds after the last is closed.
ranges: deletes documents of a field with over 100,000 values. Ranges, counts and filters must be exact or refused.
values: exports documents with and without an empty value as a search page. The page must count what milco search does.
site: mixes the files of two exports, and damages them. The page must answer as before, or name a file.
headers: lets Python's parser fail once while a .npy file is opened, as it does at random in threads. The same results,
    or an error that reports no damage.
impacts: indexes more than 65,536 different impacts. The weights of each document must be those that were indexed.
plugins: installs plug-ins that cannot be loaded. Commands that do not ask for them must end as without them; those that
    do must end in one line that names the package.
"""

import ast
import asyncio
import gzip
import json
import multiprocessing
import random
import re
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from repository import ROOT

from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index
from milco_pyserini.sparse import SparseBatch, Vocabulary

# Runs a command in a directory, as faults.py does; its result has code and printed.
Run = Callable[..., Any]
# Name, fault, and how it was not handled.
Row = tuple[str, str, str]
CHECKPOINT = f"{ROOT}/tests/data/golden/ckpt_distillation"
SEED = 20264


def _in_process(work: Callable[..., list[Any]], *arguments: Any) -> list[Any]:
    """Run a function in a process of its own: commands that are forked later must not inherit Java or threads."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


# Descriptors of the server, connections of the client, and searches meanwhile.
_DESCRIPTORS, _CONNECTIONS, _SEARCHES = 200, 400, 6
_RECOVERY, _PATIENCE = 5.0, 30.0
_HEAD = b"GET /search?q=river HTTP/1.1\r\nHost: 127.0.0.1\r\n"
SLOW_CLIENTS = {"half a head": _HEAD, "no byte": b"", "an answered request": _HEAD + b"\r\n"}


def connections(workdir: Path, inputs: Path, run: Run) -> Iterator[Row]:
    """Hold connections in every state, each against a server of its own."""
    index = workdir / "texts.exact"
    _in_process(_build_texts, index)
    for name, sent in SLOW_CLIENTS.items():
        with _server(index) as (process, port), ExitStack() as stack:
            for _ in range(_CONNECTIONS):
                # A server may refuse them.
                with suppress(OSError):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port), 1)).sendall(sent)
            for number in range(_SEARCHES):
                status = _status(port)
                problem = "" if status in (200, 503) else f"status {status}"
                yield name, f"search {number} next to {_CONNECTIONS:,} connections", problem
                time.sleep(0.5)
            stack.close()
            started = time.monotonic()
            while (status := _status(port)) != 200 and time.monotonic() < started + _RECOVERY:
                time.sleep(0.2)
            problem = "" if status == 200 else f"status {status} after {_RECOVERY:.0f} s"
            yield name, "a search after the connections are closed", problem
            with suppress(subprocess.TimeoutExpired):
                # A server that does not answer may be about to end.
                process.wait(20 if problem else 0.1)
            code = process.poll()
            yield name, "the process", "" if code is None else f"ended with {code}"


def _build_texts(path: Path) -> list[Row]:
    Index.build([f"The river {number} flows." for number in range(20)], path, "exact", encoder=CHECKPOINT)
    return []


@contextmanager
def _server(index: Path) -> Iterator[tuple[Any, int]]:
    """Run milco serve with few descriptors; yield the process and its port when it answers."""
    program = [sys.executable, "-m", "milco_pyserini", "serve", "--port", "0", "--device", "cpu", "--index", str(index)]
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))
    with subprocess.Popen(program, stderr=subprocess.PIPE, encoding="utf-8", preexec_fn=limit) as process:
        assert process.stderr is not None
        try:
            port = next((int(found[1]) for line in process.stderr if (found := re.search(r":(\d+)/", line))), 0)
            threading.Thread(target=process.stderr.read, daemon=True).start()
            if _status(port) != 200:
                raise MilcoError("milco serve does not answer before the attack")
            yield process, port
        finally:
            process.kill()


def _status(port: int) -> int | str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/search?q=river", timeout=_PATIENCE) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return str(error)


# More than an index counts, by as many as are deleted: the last but one deletion leaves just as many.
_STAMPS, _DELETIONS, _FIRST = 100_200, (100, 200, 210), 1_700_000_000


def ranges(workdir: Path, inputs: Path, run: Run) -> Iterator[Row]:
    """Ask for documents by their stamps, which all differ, after deletions of the first."""
    for engine in ("exact", "lucene"):
        yield from _in_process(_delete_stamps, engine, workdir / engine)


def _delete_stamps(engine: str, path: Path) -> list[Row]:
    from milco_pyserini.encode.opening import load_encoder

    encoder = load_encoder(CHECKPOINT)
    term = encoder.vocabulary.terms[0]
    batch = SparseBatch.from_dicts([{term: 1.0}] * _STAMPS, encoder.vocabulary)
    ids = [f"d{number:06}" for number in range(_STAMPS)]
    documents = [{"id": docid, "text": "x", "stamp": _FIRST + number} for number, docid in enumerate(ids)]
    index = Index.build(batch, path, engine, ids=documents, encoder=encoder)
    rows: list[Row] = []
    deleted = 0
    for count in _DELETIONS:
        index = index.delete(ids[deleted:count])
        deleted = count
        with index.searcher() as searcher:
            wanted = {f"{_FIRST + number}" for number in range(count, _STAMPS)}
            found = _refused(searcher.values, "stamp")
            problem = "" if found is None or set(found) == wanted else f"{len(found):,} of {len(wanted):,} values"
            rows.append((engine, f"values after {count} deletions", problem))
            # Ranges of few values, each of which is looked up.
            for first in (count - 25, _STAMPS // 2, _STAMPS - 50):
                filters = {"stamp": {">=": _FIRST + first, "<": _FIRST + first + 50}}
                right = 50 - max(0, count - first)
                where = f"stamps {first:,} to {first + 50:,} after {count} deletions"
                hits = _refused(partial(_first_hits, searcher, term), filters)
                problem = "" if hits is None or hits.total == right else f"{hits.total:,} of {right:,} documents"
                rows.append((engine, f"search of {where}", problem))
                if engine == "exact":
                    docids = _refused(searcher.matching, filters)
                    problem = (
                        "" if docids is None or len(docids) == right else f"{len(docids):,} of {right:,} documents"
                    )
                    rows.append((engine, f"matching() of {where}", problem))
    return rows + (_forget_stamps(path) if engine == "exact" else [])


def _first_hits(searcher: Any, term: str, filters: Any) -> Any:
    return searcher.search([{term: 1.0}], 1, filters=filters)[0]


def _refused(ask: Callable[[Any], Any], given: Any) -> Any:
    """Return an answer; None if it is refused."""
    try:
        return ask(given)
    except MilcoError:
        return None


def _forget_stamps(path: Path) -> list[Row]:
    from milco_pyserini.serve.memory import Memory, open_memory
    from milco_pyserini.serve.opened import IndexSnapshot
    from milco_pyserini.serve.service import SearchService

    open_memory(path)

    async def forget() -> list[str]:
        memory = Memory(SearchService(IndexSnapshot.open(path, device="cpu")))
        return await memory.forget(filters={"stamp": {">=": _FIRST + _STAMPS - 50}})

    found = _refused(asyncio.run, forget())
    problem = "" if found is None or len(found) == 50 else f"forgot {len(found)} of 50 notes"
    return [("exact", "forget() of the last 50 stamps", problem)]


_QUERY, _ANY_FILE = "the river in the mountains", r"\b(site|interface)\.json|\bdata/"
_LANGUAGES: dict[str, Sequence[str | None]] = {
    "all have a value": ("de", "en"),
    "one is empty": ("de", "en", "de", "en", "de", "en", ""),
    "some are empty or missing": ("de", "", None, "en"),
}


def values(workdir: Path, inputs: Path, run: Run) -> Iterator[Row]:
    """Search pages of documents whose languages are filtered by."""
    for number, (name, languages) in enumerate(_LANGUAGES.items()):
        place = workdir / f"{number}"
        place.mkdir()
        for value, (expected, fault) in enumerate(_in_process(_export_site, place, 40, languages)):
            site = json.loads((place / "site" / "site.json").read_bytes())
            address = {"q": _QUERY} | ({"value": fault} if value else {})
            if value and fault not in site["values"]:
                continue
            shown = _shown(place / "site", address)["about"]
            problem = "" if re.search(rf" of {expected}\b", shown) else f"{expected} documents, the page: {shown}"
            yield name, f"value {fault!r}" if value else "no value", problem


def _export_site(place: Path, documents: int, languages: Sequence[str | None]) -> list[Any]:
    """Export a search page; return how many documents a search finds without a filter, and with each value."""
    sys.path.insert(0, f"{ROOT}/tests")
    from network_set import write_model, write_network

    from milco_pyserini import Searcher
    from milco_pyserini.encode.opening import load_encoder
    from milco_pyserini.export.web import export_page

    draw = random.Random(documents)
    encoder = write_model(place / "model")
    network: Any = load_encoder(write_network(encoder, place / "network"))
    corpus: list[dict[str, Any]] = []
    for number in range(documents):
        words = draw.choices("the river flows mountains in snow bridge of a city near old stone".split(), k=400)
        language = languages[number % len(languages)]
        field = {} if language is None else {"lang": language}
        corpus.append({"id": f"d{number}", "text": f"the river {' '.join(words)}", **field})
    index = Index.build(corpus, place / "docs.lucene", "lucene", encoder=encoder)
    export_page(index, network, place / "site", field="lang")
    with Searcher.open(place / "docs.lucene", network) as searcher:
        found = [(searcher.search(_QUERY).total, "")]
        given = sorted({language for language in languages if language is not None})
        return found + [(searcher.search(_QUERY, filters={"lang": value}).total, value) for value in given]


def _shown(site: Path, address: Mapping[str, str]) -> dict[str, Any]:
    """Open a page in Node; return what it shows: about, and the texts of its hits."""
    if (node := shutil.which("node")) is None:
        raise MilcoError("the page needs Node.js (apt-get install nodejs)")
    program = [node, str(Path(__file__).with_name("open_page.mjs")), str(site), json.dumps(address)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    if ended.returncode:
        error = f"Node ended with {ended.returncode}: {' '.join(ended.stderr.split())[-300:]}"
        return {"about": error, "hits": [], "error": error}
    return json.loads(ended.stdout)


def site(workdir: Path, inputs: Path, run: Run) -> Iterator[Row]:
    """Damage each file of a page that its data are in, and take it from an older export or another file."""
    for name, documents in (("old", 30), ("new", 60)):
        (workdir / name).mkdir()
        _in_process(_export_site, workdir / name, documents, ("de", "en"))
    old, new = workdir / "old" / "site", workdir / "new" / "site"
    address = {"q": _QUERY, "value": "de"}
    expected = _shown(new, address)
    if not expected["hits"]:
        raise MilcoError(f"the page finds nothing: {expected['about']}")
    data = sorted((new / "data").iterdir())
    files = [new / "site.json", new / "interface.json", *data]
    contents = {path: path.read_bytes() for path in files}

    def problem(named: str) -> str:
        shown = _shown(new, address)
        if shown == expected:
            return ""
        if shown["hits"] or "error" in shown:
            return f"other hits and no error: {shown['about']}" if shown["hits"] else shown["error"]
        return "" if re.search(named, shown["about"]) else f"does not name the file: {shown['about']}"

    for path in files:
        for kind, damage, damaged in _site_damages(path, contents, old / path.relative_to(new)):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            # An older site.json may be intact: then the data are of another export.
            yield kind, f"{path.name}: {damage}", problem(_ANY_FILE if kind == "mixed" else re.escape(path.name))
            path.write_bytes(contents[path])
    for kind, names in (("data", [path.name for path in data]), ("postings and texts", ["postings-0", "texts-0"])):
        for name in names:
            if (old / "data" / name).exists():
                shutil.copy(old / "data" / name, new / "data")
        yield "mixed", f"{kind} of an older export", problem(_ANY_FILE)
        for path, content in contents.items():
            path.write_bytes(content)


def _site_damages(path: Path, contents: Mapping[Path, bytes], older: Path) -> Iterator[tuple[str, str, bytes | None]]:
    """Yield kind, name and content of each damage; None: the file is missing."""
    content, draw = contents[path], random.Random(SEED)
    if older.exists() and older.read_bytes() != content:
        yield "mixed", "of an older export", older.read_bytes()
    for other in contents:
        if other != path:
            yield "mixed", f"content of {other.name}", contents[other]
    if path.suffix != ".json":
        unpacked = bytearray(gzip.decompress(content))
        size = len(unpacked)
        for number in range(8):
            flipped = unpacked.copy()
            flipped[draw.randrange(size)] ^= 1 << number
            yield "damaged", f"bit {number} of a byte flipped, then compressed", gzip.compress(flipped)
        for name, body in (("zeros", bytes(size)), ("random bytes", draw.randbytes(size)), ("no bytes", b"")):
            yield "damaged", f"{name}, compressed", gzip.compress(body)
    for number in range(8):
        flipped = bytearray(content)
        flipped[draw.randrange(len(content))] ^= 1 << number
        yield "damaged", f"bit {number} of a byte flipped", bytes(flipped)
    yield "damaged", "truncated", content[: len(content) // 2]
    yield "damaged", "empty", b""
    yield "damaged", "a page of HTML", b"<!DOCTYPE html><title>Not found</title>"
    yield "damaged", "missing", None


_HEADERS = 8
_HEADER_COMMANDS = {
    "search": "search --index index --topics {inputs}/topics --output out",
    "update": "index update --index index --delete {inputs}/ids1",
}


def headers(workdir: Path, inputs: Path, run: Run) -> Iterator[Row]:
    """Let headers that numpy reads raise SystemError, one at a time."""
    updated = workdir / "updated"
    shutil.copytree(inputs / "index", updated / "index")
    if run(f"index update --index index --delete {inputs}/ids0".split(), updated).code:
        raise MilcoError("the index cannot be updated")
    for name, line in _HEADER_COMMANDS.items():
        count, expected = 0, b""
        for number in range(_HEADERS + 1):
            place = Path(shutil.copytree(updated, workdir / f"{name}{number}"))
            # The first run counts; the others raise at places spread over all.
            failing = -(-count * number // _HEADERS)
            prepare = partial(_fail_once, failing, place / "count")
            ended = run(line.format(inputs=inputs).split(), place, prepare=prepare)
            printed = (place / "out").read_bytes() if (place / "out").exists() else b""
            problem = ""
            if ended.code == 2 and "damaged" not in ended.printed and "Traceback" not in ended.printed:
                problem = ""
            elif ended.code or (printed != expected and number):
                problem = f"ended with {ended.code}: {' '.join(ended.printed.split())[-200:]}"
            if number:
                yield name, f"SystemError of header {failing} of {count}", problem
            else:
                count, expected = int((place / "count").read_text()), printed


def _fail_once(number: int, place: Path) -> None:
    """Count the headers that numpy parses, and raise at one of them."""
    parse, calls = ast.literal_eval, 0
    place.write_text("0")

    def failing(node: Any) -> Any:
        nonlocal calls
        if sys._getframe(1).f_globals["__name__"].startswith("numpy"):
            calls += 1
            place.write_text(str(calls))
            if calls == number:
                raise SystemError("AST constructor recursion depth mismatch (before=72, after=53)")
        return parse(node)

    ast.literal_eval = failing  # type: ignore[assignment]


# Impacts are coded in pages of 256 if the most frequent 256 are three quarters of all: here 1 is.
_ROWS, _DISTINCT, _ONES = 352, 200, 620


def impacts(workdir: Path, inputs: Path, run: Run) -> Iterator[Row]:
    """Compare the weights of documents with those that the index was built of."""
    yield from _in_process(_weigh, workdir / "index")


def _weigh(path: Path) -> list[Row]:
    width = _DISTINCT + _ONES
    vocabulary = Vocabulary([f"t{number}" for number in range(width)], [])
    matrix = np.ones((_ROWS, width), np.float32)
    distinct = np.random.default_rng(SEED).permutation(_ROWS * _DISTINCT) + 2
    matrix[:, :_DISTINCT] = distinct.reshape(_ROWS, _DISTINCT)
    matrix /= np.float32(100)
    indptr = np.arange(0, matrix.size + 1, width)
    batch = SparseBatch(indptr, np.tile(np.arange(width, dtype=np.int32), _ROWS), matrix.ravel(), width, vocabulary)
    index = Index.build(batch, path, "exact", ids=[f"d{row}" for row in range(_ROWS)])
    with index.searcher() as searcher:
        rows = []
        for row in range(0, _ROWS, _ROWS // 32):
            found = searcher.weights(f"d{row}", vocabulary.english) or {}
            wrong = sum(found.get(term) != weight for term, weight in zip(vocabulary.english, matrix[row], strict=True))
            rows.append(("weights()", f"document {row}", f"{wrong} of {width} weights are wrong" if wrong else ""))
        return rows


_PACKAGE, _BROKEN = "milco-broken", "broken"
# Content of the module, and the value of the entry points.
PLUGINS = {
    "import error": ("import nothing_has_this_name", "broken_plugin:Broken"),
    "syntax error": ("def", "broken_plugin:Broken"),
    "exception at import": ("1 / 0", "broken_plugin:Broken"),
    "wrong attributes": ("class Broken:\n    pass", "broken_plugin:Broken"),
    "class whose init raises": ("class Broken:\n    def __init__(self):\n        1 / 0", "broken_plugin:Broken"),
    "bad value": ("", "broken plugin, no value"),
    "sys.exit at import": ("import sys\nsys.exit(3)", "broken_plugin:Broken"),
}
# Commands by what they print: "" if they do not ask for the plug-in, otherwise a word of their one line.
PLUGIN_COMMANDS = {
    "--help": "",
    "verify {inputs}/index": "",
    "index --vectors {inputs}/vectors --engine exact --output out": "",
    "search --index {inputs}/index --topics {inputs}/topics --output out": "",
    "export --vectors {inputs}/vectors --to ciff --output out": "",
    "index --set help": "",
    "TYPO": "TYPO",
    "index --vectors {inputs}/vectors --engine TYPO --output out": "TYPO",
    "export --vectors {inputs}/vectors --to TYPO --output out": "TYPO",
    "export --vectors {inputs}/vectors --to ciff --store --output out": "--store",
    "broken": _PACKAGE,
    "index --vectors {inputs}/vectors --engine broken --output out": _PACKAGE,
    "export --vectors {inputs}/vectors --to broken --output out": _PACKAGE,
}


def plugins(workdir: Path, inputs: Path, run: Run) -> Iterator[Row]:
    """Run commands with each broken plug-in installed."""

    def ended(line: str, place: Path) -> Any:
        place.mkdir(exist_ok=True)
        shutil.rmtree(place / "out", ignore_errors=True)
        # The first on the path, as a directory in PYTHONPATH.
        return run(line.format(inputs=inputs).split(), place, prepare=partial(sys.path.insert, 0, str(place)))

    expected = {line: ended(line, workdir / "without") for line in PLUGIN_COMMANDS}
    for number, (name, (module, value)) in enumerate(PLUGINS.items()):
        place = workdir / f"plugin{number}"
        about = place / "milco_broken-1.0.dist-info"
        about.mkdir(parents=True)
        (place / "broken_plugin.py").write_text(module)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_PACKAGE}\nVersion: 1.0\n")
        groups = "".join(f"[milco.{group}]\n{_BROKEN} = {value}\n" for group in ("engines", "targets", "commands"))
        (about / "entry_points.txt").write_text(groups)
        for line, word in PLUGIN_COMMANDS.items():
            yield name, f"milco {line}", _plugin_problem(line, ended(line, place), expected[line], word)


def _plugin_problem(line: str, ended: Any, expected: Any, word: str) -> str:
    last = " ".join(ended.printed.split())[-200:] or "no word"
    if ended.code != (2 if word == _PACKAGE else expected.code) or "Traceback" in ended.printed:
        return f"ended with {ended.code}: {last}"
    if word:
        lines = [printed for printed in ended.printed.splitlines() if "error:" in printed]
        return "" if len(lines) == 1 and word in lines[0] else f"{len(lines)} lines: {last}"
    missing = set(expected.printed.splitlines()) - set(ended.printed.splitlines()) if "help" in line else ()
    return f"does not print {min(missing)}" if missing else ""


# They need no inputs of faults.py.
SELF_CONTAINED = ("connections", "ranges", "values", "site", "impacts")
ATTACKS = {suite.__name__: suite for suite in (connections, ranges, values, site, headers, impacts, plugins)}
