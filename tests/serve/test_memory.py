"""The memory of agents, as MCP's own client uses it: notes are remembered, recalled and forgotten, and none is lost."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from golden_set import GOLDEN

pytest.importorskip("mcp.server.mcpserver", reason="needs mcp 2 (pip install mcp)")
pytest.importorskip("py3langid", reason="needs py3langid (pip install '.[detect]')")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from milco_pyserini.cli.verify import main as verify
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index
from milco_pyserini.serve.agents import create_mcp_server
from milco_pyserini.serve.cli import main
from milco_pyserini.serve.memory import Memory, open_memory
from milco_pyserini.serve.opened import IndexSnapshot
from milco_pyserini.serve.service import SearchService

CHECKPOINT = str(GOLDEN / "ckpt_distillation")
NILE = "The Nile is a long river that flows north through Egypt."
BELL = "Alexander Graham Bell hat das Telefon erfunden und im Jahr 1876 ein Patent erhalten."

Call = Callable[..., Awaitable[Any]]


@contextmanager
def served(path: Path) -> Iterator[Any]:
    """Yield the MCP server of a memory."""
    index = open_memory(path, CHECKPOINT)
    with closing(SearchService(IndexSnapshot.open(index.path, device="cpu"))) as service:
        yield create_mcp_server(service, Memory(service))


async def call(client: Client, name: str, **arguments: Any) -> Any:
    """Call a tool; return what it gave, or its error."""
    result = await client.call_tool(name, arguments)
    text = result.content[0].text
    return f"error: {text}" if result.is_error else json.loads(text)


def ask(path: Path, steps: Callable[[Call], Awaitable[Any]]) -> Any:
    """Run steps that call tools of a server of a memory."""

    async def run(server: Any) -> Any:
        async with Client(server) as client:

            async def tool(name: str, **arguments: Any) -> Any:
                return await call(client, name, **arguments)

            return await steps(tool)

    with served(path) as server:
        return anyio.run(run, server)


def test_notes_are_remembered_recalled_and_forgotten(tmp_path: Path) -> None:
    """Fields appear when they first occur, a language is detected unless it is given, and each hit has its reason."""

    async def steps(tool: Call) -> Any:
        assert (await tool("recall", query="river"))["notes"] == []
        nile = await tool("remember", text=NILE, fields={"project": "atlas", "year": 2025})
        bell = await tool("remember", text=BELL, fields={"tags": ["phone", "patent"]})
        assert (nile["fields"]["lang"], bell["fields"]["lang"]) == ("en", "de")
        assert (await tool("remember", text=NILE, fields={"lang": "xx"}))["fields"] == {"lang": "xx"}
        # The same note once more is one note.
        assert await tool("remember", text=NILE, fields={"project": "atlas", "year": 2025}) == nile
        first, *_ = (await tool("recall", query="the river Nile", filters={"lang": ["en"]}))["notes"]
        assert (first["id"], first["text"], first["fields"]["project"]) == (nile["id"], NILE, "atlas")
        assert "%" in first["why"] and len(first["why"].splitlines()) == 1
        assert len((await tool("recall", query="the river Nile"))["notes"]) == 3
        assert (await tool("document", docid=bell["id"]))["text"] == BELL
        hits = {hit["docid"]: hit["why"] for hit in (await tool("search", query="Telefon Patent"))["hits"]}
        assert "%" in hits[bell["id"]]
        assert (await tool("explain", query="Telefon", docid=bell["id"]))["terms"]
        assert (await tool("forget", id=bell["id"]))["forgotten"] == [bell["id"]]
        gone = await tool("forget", filters={"year": {">=": "2020"}})
        assert gone["forgotten"] == [nile["id"]]
        return [note["fields"] for note in (await tool("recall", query="Nile"))["notes"]]

    assert ask(tmp_path / "notes", steps) == [{"lang": "xx"}]
    # Another server reads what the first has written; nothing else is left next to it.
    index = Index.open(tmp_path / "notes")
    assert index.manifest.fields == {"lang": "string", "project": "string", "tags": "strings", "year": "number"}
    assert verify([str(index.path)]) == 0 and [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_calls_that_cannot_be_answered_are_one_line(tmp_path: Path) -> None:
    """Which names the argument, so that a model can correct it."""

    async def steps(tool: Call) -> Any:
        for name, arguments, message in (
            ("remember", {"text": " "}, "text is empty"),
            ("remember", {"text": "x" * 20_001}, "20,001 characters"),
            ("remember", {"text": NILE, "fields": {"text": "x"}}, "is a name that every note has of itself"),
            ("remember", {"text": NILE, "fields": {"a": {"b": [1]}}}, "fields are"),
            ("remember", {"text": NILE, "tags": ["x"]}, "unknown argument 'tags'"),
            ("recall", {"query": "x", "k": 1000}, "k=1000"),
            ("recall", {"query": "x", "filters": {"no": ["x"]}}, "no"),
            ("forget", {}, "either the id of a note or filters"),
            ("forget", {"id": "no"}, "has no note 'no'"),
        ):
            answer = await tool(name, **arguments)
            assert str(answer).startswith("error") and message in answer and "Traceback" not in answer, answer

    ask(tmp_path / "notes", steps)
    assert Index.open(tmp_path / "notes").manifest.documents == 0


def test_agents_share_a_memory(tmp_path: Path) -> None:
    """Each finds the notes of the other in its next call."""

    async def run(one: Any, other: Any) -> None:
        async with Client(one) as first, Client(other) as second:
            for number in range(3):
                for writer, reader in ((first, second), (second, first)):
                    note = await call(writer, "remember", text=f"{NILE} {number} {writer is first}")
                    assert (await call(reader, "document", docid=note["id"]))["fields"] == {"lang": "en"}
            assert len((await call(first, "recall", query="Nile", k=9))["notes"]) == 6

    with ExitStack() as stack:
        anyio.run(run, *[stack.enter_context(served(tmp_path / "notes")) for _ in range(2)])


def test_texts_that_a_command_adds_are_notes(tmp_path: Path) -> None:
    """Their language is detected, too."""
    index = open_memory(tmp_path / "notes", CHECKPOINT).add([{"id": "n", "text": BELL}])
    assert index.searcher().documents(["n"])["n"].fields == {"lang": "de"}


def test_other_directories_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, before a server starts."""
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    Index.build([NILE], tmp_path / "plain", "exact", encoder=CHECKPOINT, store_documents=False)
    for name, message in (("file", "no index at"), ("full", "it is not an index"), ("plain", "is not a memory")):
        with pytest.raises(MilcoError, match=message):
            open_memory(tmp_path / name)
    assert main(["--memory", str(tmp_path / "plain"), "--mcp"]) == 2
    assert "is not a memory" in capsys.readouterr().err
    assert main(["--memory", "notes", "--index", "x"]) == 2
    assert "--memory and --index exclude each other" in capsys.readouterr().err


@pytest.mark.integration
def test_an_agent_starts_the_memory_as_a_command(tmp_path: Path) -> None:
    """On stdin and stdout, with nothing but the protocol on stdout."""
    arguments = ["-m", "milco_pyserini", "serve", "--memory", str(tmp_path / "notes"), "--encoder", CHECKPOINT, "--mcp"]

    async def run() -> Any:
        parameters = StdioServerParameters(
            command=sys.executable, args=arguments, env={"PYTHONPATH": ":".join(sys.path)}
        )
        async with Client(stdio_client(parameters)) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            note = await call(client, "remember", text=NILE)
            return names, note, await call(client, "recall", query="Nile")

    names, note, found = anyio.run(run)
    assert {"remember", "recall", "forget", "search", "explain", "document"} <= names
    assert [hit["id"] for hit in found["notes"]] == [note["id"]]


AGENT = """
import asyncio, contextlib, sys
from milco_pyserini.serve.memory import Memory, open_memory
from milco_pyserini.serve.opened import IndexSnapshot
from milco_pyserini.serve.service import SearchService

async def write(service, name):
    memory, ids = Memory(service), []
    print("begins", flush=True)
    for number in range(1000):
        note = await memory.remember(f"The note of agent {name} about the river has the number {number}.")
        ids.append(note["id"])
        print("remembered", note["id"], flush=True)
        if number % 3 == 2:
            gone = ids.pop(0)
            print("forgets", gone, flush=True)
            await memory.forget(gone)
            print("forgotten", gone, flush=True)

path, encoder, name = sys.argv[1:]
index = open_memory(path, encoder)
with contextlib.closing(SearchService(IndexSnapshot.open(path, device="cpu"))) as service:
    asyncio.run(write(service, name))
"""


@pytest.mark.integration
def test_nothing_is_lost_by_kills(tmp_path: Path) -> None:
    """SIGKILL of two agents that write at the same time: what was acknowledged is there, and both can go on."""
    notes, kept, gone, unknown = tmp_path / "notes", set(), set(), set()
    open_memory(notes, CHECKPOINT)
    for turn in range(2):
        agents = [
            subprocess.Popen(
                [sys.executable, "-c", AGENT, str(notes), CHECKPOINT, f"{name}{turn}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for name in "ab"
        ]
        for agent in agents:
            assert agent.stdout is not None and agent.stdout.readline() == "begins\n"
        time.sleep(random.uniform(0.5, 2))
        for agent in agents:
            agent.send_signal(signal.SIGKILL)
        for agent in agents:
            assert agent.stdout is not None
            for line in agent.stdout.read().splitlines():
                what, _, docid = line.partition(" ")
                {"remembered": kept, "forgets": unknown, "forgotten": gone}[what].add(docid)
            agent.wait()
        searcher = open_memory(notes).searcher()
        assert all(searcher.weights(docid, ()) is not None for docid in kept - unknown)
        assert all(searcher.weights(docid, ()) is None for docid in gone)
        assert verify([str(notes)]) == 0
    assert kept
    open_memory(notes).delete(["none"])
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
