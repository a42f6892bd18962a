"""The files that Pyserini and Anserini download from GitHub, served on this machine."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyserini

from milco_pyserini import jvm

ROOT = Path(__file__).parents[1]
# Python programs ask this machine for https addresses, and have Java as milco starts it.
SITE = """
import os, urllib.request

def redirected(method):
    def call(url, *arguments, **options):
        address = url if isinstance(url, str) else url.full_url
        if address.startswith("https://"):
            url = f"http://127.0.0.1:{os.environ['LOCAL_PORT']}/{address.rpartition('/')[2]}"
        return method(url, *arguments, **options)
    return call

urllib.request.urlopen = redirected(urllib.request.urlopen)
urllib.request.urlretrieve = redirected(urllib.request.urlretrieve)
from milco_pyserini.integrations.pyserini import start_java
start_java()
"""
# Topics and qrels for which Anserini's jar has other names.
ALIASED = ("msmarco-passage.dev-subset", "msmarco-doc-dev")
# Java asks this machine for https addresses, without encryption, as it would ask a proxy.
DRIVER = """
import os, sys
from jnius import PythonJavaClass, autoclass, java_method

handler = autoclass("sun.net.www.protocol.http.Handler")()
for name, value in (("Host", "127.0.0.1"), ("Port", os.environ["LOCAL_PORT"])):
    autoclass("java.lang.System").setProperty(f"https.proxy{name}", value)

class Factory(PythonJavaClass):
    __javainterfaces__ = ["java/net/URLStreamHandlerFactory"]

    @java_method("(Ljava/lang/String;)Ljava/net/URLStreamHandler;")
    def createURLStreamHandler(self, protocol):
        return handler if protocol == "https" else None

factory = Factory()
autoclass("java.net.URL").setURLStreamHandlerFactory(factory)
autoclass("java.net.URL")("https://localhost/")
resources = autoclass("java.io.File")(sys.argv[1]).toURI().toURL()
autoclass("java.lang.Thread").currentThread().setContextClassLoader(autoclass("java.net.URLClassLoader")([resources]))
autoclass("io.anserini.reproduce.ReproduceFromDocumentCollection").main(sys.argv[2:])
"""


@contextlib.contextmanager
def github(files: Mapping[str, bytes]) -> Iterator[int]:
    """Serve files by the last part of a path, [] for other lists; yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2].partition("?")[0]
            content = files.get(name, b"[]" if name.endswith(".json") else None)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def served_files(written: Path, topics: Path, qrels: Path, name: str) -> dict[str, bytes]:
    """Return what upstream's repositories hold once they have taken what milco upstream has written."""
    record = next((written / "prebuilt-indexes" / "lucene").glob("*-impact.json"))
    own = json.loads((written / "eval" / "topics.json").read_text(encoding="utf-8"))
    reader = "io.anserini.search.topicreader.TsvStringTopicReader"
    listing = [{"name": record.name, "type": "file", "download_url": f"https://local/{record.name}"}]
    lists = {
        "lucene": listing,
        "topics.json": own | {key: {"path": f"topics.{key}.tsv", "reader_class": reader} for key in (name, *ALIASED)},
        "qrels.json": {key: f"qrels.{key}.txt" for key in (name, *ALIASED)},
        "topics-aliases.json": {},
        "qrels-aliases.json": {},
    }
    paths = [record, topics, qrels, *(written / "archives").iterdir(), *(written / "eval" / "topics").iterdir()]
    return {path.name: path.read_bytes() for path in paths} | {
        name: json.dumps(value).encode() for name, value in lists.items()
    }


def patched_pyserini(directory: Path, conditions: str) -> None:
    """Copy Pyserini into a directory, take deploy/upstream into it, and append conditions to its MIRACL table."""
    original, copy = Path(pyserini.__file__).parent, directory / "pyserini"
    for path in original.rglob("*"):
        if "__pycache__" not in path.parts and path.is_file():
            place = copy / path.relative_to(original)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path)
    upstream = ROOT / "deploy" / "upstream"
    (copy / "encode" / "_milco.py").symlink_to(upstream / "_milco.py")
    patch = (upstream / "pyserini.patch").read_text(encoding="utf-8")
    for line in patch.splitlines():
        if line.startswith("+++ b/pyserini/"):
            place = copy / line.removeprefix("+++ b/pyserini/")
            place.write_bytes(taken(place))
    subprocess.run(["patch", "-p1", "--fuzz=0"], input=patch, text=True, cwd=directory, check=True, capture_output=True)
    table = copy / "2cr" / "miracl.yaml"
    table.write_bytes(taken(table) + conditions.partition("\n")[2].encode())


def taken(link: Path) -> bytes:
    """Return the content of a link, and remove it, so that it can be written."""
    content = link.read_bytes()
    link.unlink()
    return content


def run_python(directory: Path, port: int, *arguments: str, path: Path | None = None) -> str:
    """Run Python in a directory with Pyserini's cache in it; return its output. path: of another Pyserini."""
    (directory / "site").mkdir(exist_ok=True)
    (directory / "site" / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    paths = [*([] if path is None else [path]), directory / "site", ROOT]
    environment = os.environ | {
        "LOCAL_PORT": str(port),
        "PYSERINI_CACHE": str(directory / "cache"),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PATH": os.pathsep.join(
            [str(Path(sys.executable).parent), str(jvm.java_home() / "bin"), os.environ.get("PATH", "")]
        ),
    }
    done = subprocess.run(
        [sys.executable, *arguments], cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, output
    return output
