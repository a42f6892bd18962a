"""The suite "server" of faults.py: commands meet the answers of evil_server.py.

A command has to end in time and memory, with the results of an honest server or with exit code 2 and one line that
names the server, without words of Python or HTML and without a fix that does not help. Nothing may be left at its
output, and no secret be printed, stored, or sent to a host that the user did not name.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import orjson
from evil_server import (
    ABOUT,
    ANSWERS,
    BULK,
    CLOSED,
    COUNT,
    COUNTED,
    CREATE,
    DOCIDS,
    DOCUMENTS,
    EXISTS,
    FAILED,
    FILLED,
    GARBLED,
    HITS,
    IMPACTS,
    INFO,
    MATCHED,
    OPENED,
    REDIRECT,
    SCORES,
    SEARCH,
    SETTINGS,
    STATUS,
    STORED,
    Answer,
)

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.manifest import MANIFEST, read_checked, write_checked

# Runs a command in a directory, as faults.py does; its result has code, printed, seconds and peak.
Run = Callable[..., Any]
# Kind, fault, and how it was not handled.
Row = tuple[str, str, str]


def server_trials(workdir: Path, inputs: Path, run: Run) -> Iterator[Row]:
    """Play each answer for the commands that meet it; then milco serve, other services, odd addresses and secrets."""
    with PlayedServer.started(workdir, inputs, run) as played:
        for name, step, command in meetings():
            yield ANSWERS[name].kind, *played.trial(name, step, command)
        yield from played.serve()
        yield from (("other services", *trial) for trial in played.others())
        yield from (("addresses", *trial) for trial in played.addresses())
        yield from (("secrets", *trial) for trial in played.secrets())


def meetings() -> Iterator[tuple[str, str, str]]:
    """Yield the name of each answer, a step that it is played at, and a command that meets it there."""
    for name, answer in ANSWERS.items():
        for step in answer.steps:
            met = [command for command, about in SERVER_COMMANDS.items() if about.meets(step, answer)]
            # A command waits; each step is enough once.
            yield from ((name, step, command) for command in (met[:1] if answer.is_slow else met))


class ServerCommand(NamedTuple):
    """A command, and the kinds of answers that are played for it at each step; () for all."""

    line: str
    kinds: Mapping[str, tuple[str, ...]]

    def meets(self, step: str, answer: Answer) -> bool:
        """Return whether an answer is played for it at a step."""
        return step in self.kinds and (not self.kinds[step] or answer.kind in self.kinds[step])


_SEARCH, _FILL = "search --topics {inputs}/topics --k 5 --output out --index", "export --vectors {inputs}/vectors --to"
_STORE = "--store"
# Steps that depend on the client of a service.
_OF_CLIENTS = (CLOSED, GARBLED, STATUS, REDIRECT, OPENED)
SERVER_COMMANDS = {
    "search": ServerCommand(f"{_SEARCH} {{opensearch}}", dict.fromkeys((INFO, EXISTS, ABOUT, COUNT, SEARCH), ())),
    "search, Elasticsearch": ServerCommand(f"{_SEARCH} {{elasticsearch}}", dict.fromkeys((INFO, SEARCH), _OF_CLIENTS)),
    "search --query": ServerCommand("search --query river --k 3 --index {opensearch}", {SEARCH: (DOCIDS,), STORED: ()}),
    "search --hybrid": ServerCommand(
        "search --topics {inputs}/topics.tsv --k 5 --output out --index {opensearch} --hybrid",
        {SEARCH: (SCORES, HITS)},
    ),
    "explain": ServerCommand("explain --query river --k 2 --index {opensearch}", {IMPACTS: ()}),
    "export": ServerCommand(
        f"{_FILL} opensearch {_STORE} --url {{url}} --collection fresh --output out",
        dict.fromkeys((BULK, COUNT, CREATE, SETTINGS), ())
        | {INFO: (STATUS, REDIRECT, OPENED), EXISTS: (), ABOUT: (STATUS,), SEARCH: (SCORES, HITS, FAILED)},
    ),
}
# Seconds that a search is given, and has by default; that a command may take beyond them; and that filling may take. On
# a busy machine it is more: so many times what commands take with an honest server.
_TIMEOUT, _DEFAULT, _SLACK, _FILLED, _TIMES = 5, 30, 10, 60, 4
# torch's hint on its threads would be a second line.
_SILENT = {"OMP_WAIT_POLICY": "passive", "no_proxy": "*"}
_MORE_MEMORY, _LONGEST = 500_000_000, 1_000
_CONTROLS = r"[\x00-\x09\x0b-\x1f\x7f\x9b\u202e]"
# Noise in an error: Python's words and representations, HTML, and bytes that a terminal obeys.
ARTIFACTS = re.compile(
    r"Traceback|NoneType|KeyError|\w+(?:Error|Exception)\(|[A-Z]\w+\((?:'|host=)|\('|object is not|subscriptable|"
    r"indices must be|zip\(\)|: '\w+'(?:\.|$)|</?\w+[ />]|<!DOCTYPE|has no attribute|argument must be|convert|"
    r"Expecting|invalid literal|unexpected keyword|multiply|must be str|unpack|recursion|codec can't|object at 0x|"
    + _CONTROLS,
    re.MULTILINE,
)
# A fix, the kinds of answers that it does not help with, and words of such answers.
_WRONG_FIXES = (
    ("MILCO_URL", (SCORES, DOCIDS, HITS, FAILED, COUNTED, MATCHED, DOCUMENTS, FILLED), ("429", "413", "block", "405")),
    ("tart the nodes", (SCORES, DOCIDS, HITS), ("429", "413", "403", "filter", "clauses", "closed index", "deleted")),
)
_KEY, _PASSWORD = "S3cretKey", "S3cretPw"
_SECRETS = re.compile("S3c|3cret|cret x")


class PlayedServer:
    """A server process, indexes of what it holds, and what commands answer while it is honest."""

    def __init__(self, urls: Sequence[str], workdir: Path, inputs: Path, run: Run) -> None:
        self.urls, self.workdir, self.inputs, self._run = urls, workdir, inputs, run
        self.values: dict[str, Any] = {"inputs": inputs, "url": urls[0]} | {
            name: workdir / f"docs.{name}" for name in ("opensearch", "elasticsearch", "qdrant", "milvus", "pgvector")
        }
        self.timeout: list[str] = []
        self.slowest = 60.0
        self.references: dict[str, tuple[Any, bytes]] = {}

    @classmethod
    @contextlib.contextmanager
    def started(cls, workdir: Path, inputs: Path, run: Run) -> Iterator["PlayedServer"]:
        """Start the process, fill its indexes, and run the commands once."""
        program = [sys.executable, str(Path(__file__).with_name("evil_server.py"))]
        process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None and process.stdout is not None
        try:
            played = cls(process.stdout.readline().split(), workdir, inputs, run)
            played.prepare()
            yield played
        finally:
            process.stdin.close()
            process.terminate()
            process.wait()

    def prepare(self) -> None:
        """Fill the indexes, and run the commands."""
        for name, url in zip(("opensearch", "elasticsearch"), self.urls, strict=False):
            line = f"{_FILL} {name} {_STORE} --url {url} --collection docs --output {self.values[name]}"
            _expect_success(self.run(line, self.workdir), line)
        for name, place in (("qdrant", "local"), ("milvus", "local.db")):
            line = f"{_FILL} {name} --url {self.workdir / place} --collection docs --output {self.values[name]}"
            _expect_success(self.run(line, self.workdir), line)
        path = Path(shutil.copytree(self.values["qdrant"], self.values["pgvector"]))
        write_checked(path / MANIFEST, read_checked(path / MANIFEST) | {"target": "pgvector"})
        for option in (["--timeout", str(_TIMEOUT)], ["--set", f"timeout={_TIMEOUT}"]):
            line = SERVER_COMMANDS["search"].line
            with self.directory() as directory:
                if not self.timeout and not self.run(" ".join([line, *option]), directory).code:
                    self.timeout = option
        for command, about in SERVER_COMMANDS.items():
            with self.directory() as directory:
                ended = self.run(about.line, directory)
                _expect_success(ended, about.line)
                self.references[command] = ended, _content(directory / "out")
        self.slowest = max(ended.seconds for ended, _ in self.references.values())

    def run(self, line: str | Sequence[str], directory: Path, **environment: str) -> Any:
        """Run a command with a home and an environment of its own."""
        words = line.split() if isinstance(line, str) else line
        arguments = [word.format(**self.values) if isinstance(line, str) else word for word in words]
        is_search = arguments[0] == "search"
        limit = _SLACK + (_TIMEOUT if is_search and self.timeout else _DEFAULT)
        limit = _FILLED if arguments[0] == "export" else limit
        home = str(directory / "home")
        environment = {"HOME": home, "XDG_CONFIG_HOME": f"{home}/.config", **_SILENT, **environment}
        return self._run(
            [*arguments, *(self.timeout if is_search else [])],
            directory,
            moment=limit + _TIMES * self.slowest,
            prepare=partial(os.environ.update, environment),
        )

    @contextlib.contextmanager
    def directory(self) -> Iterator[Path]:
        """Yield a new working directory."""
        with tempfile.TemporaryDirectory(dir=self.workdir, prefix="trial-") as name:
            yield Path(name)

    def control(self, path: str, method: str = "GET") -> dict[str, Any]:
        """Send a request to the server process itself."""
        with urllib.request.urlopen(urllib.request.Request(self.urls[2] + path, method=method), timeout=60) as answer:
            return orjson.loads(answer.read())

    def play(self, name: str = "", step: str = "") -> None:
        """Play an answer from now on."""
        self.control(f"/_play/{quote(name)}?{urlencode({'step': step})}", "PUT")

    def trial(self, name: str, step: str, command: str) -> tuple[str, str]:
        """Play an answer for a command."""
        fault, answer = f"{name}, for {step} of {command}", ANSWERS[name]
        is_fill, secrets = command == "export", {}
        if answer.kind == REDIRECT and not is_fill:
            place = self.urls["Elasticsearch" in command].replace("//", f"//reader:{_PASSWORD}@")
            secrets = {"MILCO_URL": place}
        with self.directory() as directory:
            self.play(name, step)
            ended = self.run(SERVER_COMMANDS[command].line, directory, **secrets)
            log_of = self.control("/_requests")
            self.play()
            out = directory / "out"
            problem = self.problem(ended, command, answer, name, _content(out))
            if any(request["port"] == urlsplit(self.urls[2]).port for request in log_of["requests"]):
                problem = problem or "was redirected to another host"
            problem = problem or leaked(ended, directory)
            if not log_of["played"] and not problem:
                return (f"{fault} (never asked)", "")
            if is_fill and ended.code and not problem:
                again = self.run(SERVER_COMMANDS[command].line, directory)
                if again.code or not out.is_dir():
                    problem = f"the same command then ended with {again.code}: {_last_line(again)}"
        return (fault, problem)

    def problem(self, ended: Any, command: str, answer: Answer, name: str, out: bytes) -> str:
        """Return how a command failed to handle an answer."""
        reference, expected = self.references[command]
        if ended.code < 0:
            return f"has not ended after {ended.seconds:.0f} s"
        if ended.peak > reference.peak + _MORE_MEMORY:
            return f"took {(ended.peak - reference.peak) / 1e6:,.0f} MB"
        if ended.code:
            problem = self.misreported(ended, reference.printed, command == "export") or wrong_fix(ended, answer, name)
            return problem or ("left output" if out else "")
        if found := re.search(f"Traceback|{_CONTROLS}", ended.printed):
            return f"printed {found[0]!r}"
        if answer.true == "unknown":
            is_run = all(re.fullmatch(rb"\S+ Q0 \S+ \d+ \S+ \S+", line) for line in out.splitlines())
            return "" if is_run or command == "export" else "wrote a run of another form"
        if command != "export" and (out != expected or (not out and reference.printed not in ended.printed)):
            return "other hits and no error"
        is_warned = ended.printed.count("\n") > reference.printed.count("\n")
        if not answer.true and answer.kind in (FAILED, COUNTED) and not is_warned:
            return "neither error nor warning"
        return ""

    def misreported(self, ended: Any, usual: str = "", logs: bool = False, names: bool = True) -> str:
        """Return the problem of an error.

        Args:
            usual: lines that the command prints anyway.
            logs: other lines before the error are allowed.
            names: it has to name the server.
        """
        printed = [line for line in ended.printed.split("\n") if line and line not in usual.split("\n")]
        # The log line of an index that takes long to open.
        printed = [line for line in printed if not line.startswith("Loaded ")]
        lines = [line for line in printed if "error: " in line]
        if ended.code != 2 or len(lines) != 1 or (len(printed) > 1 and not logs):
            return f"ended with {ended.code} and {len(printed):,} lines: {printed[:1]} ... {_last_line(ended)}"
        if found := ARTIFACTS.search(ended.printed if not logs else lines[0]):
            return f"contains {found[0]!r}: {lines[0][:300]}"
        if len(lines[0]) > _LONGEST:
            return f"a line of {len(lines[0]):,} characters: {lines[0][:100]}"
        places = [urlsplit(url).netloc for url in self.urls]
        return f"does not name the server: {lines[0]}" if names and not any(one in lines[0] for one in places) else ""

    def serve(self) -> Iterator[Row]:
        """Ask milco serve while its index is on a server that fails."""
        program = [sys.executable, "-m", "milco_pyserini", "serve", "--port", "0", "--device", "cpu"]
        with subprocess.Popen(
            [*program, "--index", str(self.values["opensearch"])], stderr=subprocess.PIPE, encoding="utf-8"
        ) as process:
            assert process.stderr is not None
            url = next((found[0] for line in process.stderr if (found := re.search(r"http://[\d.:]+/", line))), "")
            threading.Thread(target=process.stderr.read, daemon=True).start()
            try:
                honest = ask(f"{url}search?q=river&k=3")
                for name in _SERVED:
                    self.play(name, SEARCH)
                    problem = unserved(ask(f"{url}search?q=river&k=3"), honest, ANSWERS[name])
                    self.play()
                    after = ask(f"{url}search?q=river&k=3")
                    if not problem and after != honest:
                        problem = f"the next search has status {after[0]}: {after[1][:200]!r}"
                    yield ANSWERS[name].kind, f"{name}, for milco serve", problem
                yield ANSWERS["hung twice"].kind, *self.hung_threads(f"{url}search?q=river&k=3", honest)
                self.play("503 as JSON", INFO)
                status, content = ask(f"{url}healthz")
                problem = "" if status in (200, 503) else f"status {status}: {content[:200]!r}"
                yield ANSWERS["503 as JSON"].kind, "503 as JSON, for /healthz of milco serve", problem
                self.play()
            finally:
                process.terminate()

    def hung_threads(self, url: str, honest: tuple[int, bytes]) -> tuple[str, str]:
        """Let the searches of both threads hang, and ask once more."""
        self.play("hung twice", SEARCH)
        waiting = [threading.Thread(target=ask, args=(url,)) for _ in range(2)]
        for thread in waiting:
            thread.start()
        started = time.monotonic()
        while self.control("/_requests")["played"] < 2 and time.monotonic() < started + _SLACK:
            time.sleep(0.1)
        status, content = ask(url)
        self.play()
        for thread in waiting:
            thread.join()
        problem = "" if (status, content) == honest else f"status {status}: {content[:200]!r}"
        return ("both threads hung, for milco serve", problem)

    def others(self) -> Iterator[tuple[str, str]]:
        """Take another service than the one that is named."""
        opensearch, elasticsearch, _ = self.urls
        for target, url in (("elasticsearch", opensearch), ("opensearch", elasticsearch), ("qdrant", opensearch)):
            with self.directory() as directory:
                self.play()
                ended = self.run(f"{_FILL} {target} --url {url} --collection any --output out", directory)
                yield (f"export --to {target} at {url}", self.misreported(ended))
                if target != "qdrant":
                    ended = self.run(f"{_SEARCH} {{{target}}}", directory, MILCO_URL=url)
                    yield (f"search of {target} at {url}", self.misreported(ended))

    def addresses(self) -> Iterator[tuple[str, str]]:
        """Open indexes whose manifest has another address: a search must not create that path."""
        elasticsearch = self.urls[1]
        for target in ("opensearch", "elasticsearch", "qdrant", "milvus"):
            for address in (*_ADDRESSES, f"{elasticsearch}\nX", "{directory}/made/deep", "{directory}/made.db"):
                with self.directory() as directory:
                    ended = self.run_tampered(target, address.format(directory=directory), directory)
                    left = [path.name for path in directory.iterdir() if path.name.startswith("made")]
                    problem = "ended with 0" if not ended.code else self.misreported(ended, names=False)
                    yield (f"{address!r} in an index of {target}", f"made {left[0]}" if left else problem)

    def run_tampered(self, target: str, address: str, directory: Path, command: str = "", **more: str) -> Any:
        """Search an index whose manifest has another address."""
        path = Path(shutil.copytree(self.values[target], directory / f"other.{target}"))
        write_checked(path / MANIFEST, read_checked(path / MANIFEST) | {"urls": [address]})
        return self.run(f"{command or _SEARCH} {path}", directory, **more)

    def secrets(self) -> Iterator[tuple[str, str]]:
        """Put passwords into URLs, and let an index name a host that the user did not name."""
        for target, url in _SECRET_URLS:
            with self.directory() as directory:
                self.play("hung twice", "")
                given = url.format(host=urlsplit(self.urls[target == "elasticsearch"]).netloc)
                line = f"export --to {target} --vectors {self.inputs}/vectors --collection fresh --output out --url"
                ended = self.run([*line.split(), given], directory)
                yield (f"export --to {target} --url {url!r}", leaked(ended, directory) or self._traced(ended))
            with self.directory() as directory:
                ended = self.run(f"{_SEARCH} {{{target}}}", directory, MILCO_URL=url.format(host="127.0.0.1:1"))
                yield (f"search of {target} with MILCO_URL={url!r}", leaked(ended, directory) or self._traced(ended))
        for target in ("elasticsearch", "qdrant", "milvus"):
            for command in ("", "explain --query river --k 2 --index"):
                with self.directory() as directory:
                    self.play("hung twice", "")
                    ended = self.run_tampered(target, self.urls[2], directory, command, MILCO_API_KEY=_KEY)
                    problem = "the key was sent to another host" if self.sent(_KEY) else leaked(ended, directory)
                    yield (f"{command.split()[0] if command else 'search'} of {target} at another host", problem)
        for what in ("MILCO_URL", "an export"):
            with self.directory() as directory:
                self.play("hung twice", "")
                url = self.urls[1]
                more = {"MILCO_API_KEY": _KEY} | ({"MILCO_URL": url} if what == "MILCO_URL" else {})
                if what == "an export":
                    self.run(f"{_FILL} elasticsearch --url {url} --collection fresh --output fresh", directory, **more)
                    self.play()
                ended = self.run(
                    f"{_SEARCH} {'fresh' if what == 'an export' else '{elasticsearch}'}", directory, **more
                )
                problem = leaked(ended, directory) or ("" if self.sent(_KEY) else "the key was not sent")
                yield (f"the key of a host that {what} named", problem)

    def sent(self, secret: str) -> bool:
        """Return whether a request since the last play had a secret in its headers."""
        return any(secret in str(request["headers"]) for request in self.control("/_requests")["requests"])

    @staticmethod
    def _traced(ended: Any) -> str:
        return f"ended with {ended.code}: {_last_line(ended)}" if ended.code not in (0, 2) else ""


def _content(path: Path) -> bytes:
    """Return what a command wrote: a run, or the name of a directory."""
    return path.read_bytes() if path.is_file() else bytes(path.name, "utf-8") if path.exists() else b""


def wrong_fix(ended: Any, answer: Answer, name: str) -> str:
    """Return the problem of an error whose fix does not help."""
    for fix, kinds, words in _WRONG_FIXES:
        if fix in ended.printed and (answer.kind in kinds or any(word in name for word in words)):
            return f"a fix that does not help: {_last_line(ended)}"
    return ""


def leaked(ended: Any, directory: Path) -> str:
    """Return where a secret was printed or written."""
    if found := _SECRETS.search(ended.printed):
        return f"printed a secret: {ended.printed[max(0, found.start() - 60) : found.end() + 20]!r}"
    for path in (path for path in directory.rglob("*") if path.is_file()):
        if _SECRETS.search(path.read_bytes().decode(errors="replace")):
            return f"wrote a secret to {path.relative_to(directory)}"
    return ""


def ask(url: str) -> tuple[int, bytes]:
    """Return status and content of an answer of milco serve; status 0 if there is none in time."""
    try:
        with urllib.request.urlopen(url, timeout=_DEFAULT + _SLACK) as answer:
            return answer.status, orjson.dumps(orjson.loads(answer.read()).get("hits"))
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError as error:
        return 0, str(error).encode()


def unserved(found: tuple[int, bytes], honest: tuple[int, bytes], answer: Answer) -> str:
    """Return the problem of an answer of milco serve."""
    status, content = found
    if found == honest and answer.true:
        return ""
    if status not in (502, 504) or answer.true == "right":
        return f"status {status}: {content[:200]!r}"
    text = content.decode(errors="replace")
    return f"answers {text[:200]}" if ARTIFACTS.search(text) or "127.0.0.1" in text else ""


_SERVED = (
    *("hung before the first byte", "one byte a second", "1 GB of blanks", "600 MB of blanks, compressed"),
    *(
        "closed before the head",
        "truncated JSON",
        "a page with 200",
        "a page with 502",
        "401",
        "429 once",
        "429 always",
    ),
    *("302 to another host", "a list", "hits.hits is null", "a score of NaN", "a score of 1e400", "a docid twice"),
    *("a docid with a line of a run", "a docid with a lone surrogate", "missing shards", "an error without reason"),
)
_ADDRESSES = (
    *("", " ", "http://", "http://[::1", "http://127.0.0.1:99999999", "http://127.0.0.1:port", "//127.0.0.1:1"),
    *("file:///etc/passwd", "ftp://127.0.0.1:1", "javascript:alert(1)", "http://127.0.0.1:1/\x1b[31m", "127.0.0.1:1"),
)
_SECRET_URLS = (
    *(
        ("opensearch", url)
        for url in (
            "http://me:S3cretPw@{host}",
            "http://me@corp.com:S3cretPw@{host}",
            "me:S3cretPw@{host}",
            "http://{host}/?token=S3cretPw",
            "http://{host}/?api_key=S3cretPw",
            "http://{host}/#token=S3cretPw",
            "http://me:S3c ret@{host}",
            "http://me:S3c%20ret@{host}",
            "http://me:S3cret/Pw@{host}",
            "http://me:S3cret?Pw@{host}",
            "http://me:S3cret#Pw@{host}",
            "http://S3cretToken@{host}",
            "https://S3cretToken@{host}",
            "http://:S3cretPw@{host}",
            "HTTP://me:S3cretPw@{host}",
            "http:me:S3cretPw@{host}",
            "//me:S3cretPw@{host}",
            "http://me:S3cretPw@{host}:x",
            "http://me:S3cretPw@[{host}",
        )
    ),
    *(
        ("elasticsearch", url)
        for url in (
            "http://me:S3cretPw@{host}",
            "http://me@corp.com:S3cretPw@{host}",
            "http://{host}/?api_key=S3cretPw",
        )
    ),
    *(
        ("qdrant", url)
        for url in ("http://me:S3cretPw@{host}", "http://{host}/?api-key=S3cretPw", "me:S3cretPw@{host}")
    ),
    *(
        ("pgvector", url)
        for url in (
            "postgresql://me:S3cretPw@127.0.0.1:1/db",
            "postgresql://me:S3c ret@127.0.0.1:1/db",
            "postgresql://127.0.0.1:1/db?password=S3cretPw",
            "postgresql://127.0.0.1:1/db?passw%6Frd=S3cretPw",
            "postgresql://127.0.0.1:1/db?PASSWORD=S3cretPw",
            "postgresql://127.0.0.1:1/db?sslpassword=S3cretPw",
            "host=127.0.0.1 port=1 password=S3cretPw",
            "host=127.0.0.1 port=1 PASSWORD=S3cretPw",
            "host=127.0.0.1 port=1 password = 'S3cret Pw'",
            "host=127.0.0.1 port=1 password='S3\\'cret x'",
            "host=127.0.0.1 port=1 password=S3\\ cret",
            "host=127.0.0.1 port=1 sslpassword=S3cretPw",
        )
    ),
)


def _expect_success(ended: Any, line: str) -> None:
    if ended.code:
        raise MilcoError(f"milco {line} ended with {ended.code}: {ended.printed.strip()[-500:]}")


def _last_line(ended: Any) -> str:
    return next(reversed(ended.printed.strip().splitlines()), "")[:300]
