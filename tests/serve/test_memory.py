"""The memory of agents, as MCP's own client uses it: notes are remembered, recalled and forgotten, and none is lost."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
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
        # As Python and REST take them.
        for filters in ({"lang": "en"}, {"year": 2025}, {"year": {">": 2020}}, "year>2020", ["lang=en", "year<2030"]):
            notes = (await tool("recall", query="the river Nile", filters=filters))["notes"]
            assert [note["id"] for note in notes] == [nile["id"]], filters
        assert (await tool("document", docid=bell["id"]))["text"] == BELL
        hits = {hit["docid"]: hit["why"] for hit in (await tool("search", query="Telefon Patent"))["hits"]}
        assert "%" in hits[bell["id"]]
        assert (await tool("explain", query="Telefon", docid=f"{bell['id']}#0"))["terms"]
        assert (await tool("forget", id=bell["id"]))["forgotten"] == [bell["id"]]
        gone = await tool("forget", filters={"year": {">=": "2020"}})
        assert gone["forgotten"] == [nile["id"]]
        return [note["fields"] for note in (await tool("recall", query="Nile"))["notes"]]

    assert ask(tmp_path / "notes", steps) == [{"lang": "xx"}]
    # Another server reads what the first has written; nothing else is left next to it.
    index = Index.open(tmp_path / "notes")
    assert index.manifest.fields == {"lang": "string", "project": "string", "tags": "strings", "year": "number"}
    assert verify([str(index.path)]) == 0 and [path.name for path in tmp_path.iterdir()] == ["notes"]


SHIPS = "The harbor master counts ships of many nations and writes their names into a book. "
BANK = "Ruth Oyelaran takes over our bank account. "


def test_long_notes_are_recalled_by_each_passage(tmp_path: Path) -> None:
    """The end of a long note is found, is read, and is gone with the note; a repeated call adds no second note."""
    long = SHIPS * 40 + BANK * 40

    async def steps(tool: Call) -> Any:
        await tool("remember", text=BELL)
        note = await tool("remember", text=long, fields={"project": "harbor"})
        assert note["passages"] > 1 and await tool("remember", text=long, fields={"project": "harbor"}) == note
        first, second = (await tool("recall", query="Ruth Oyelaran", k=5))["notes"]
        assert (first["id"], first["passage"]) == (note["id"], f"{note['id']}#{note['passages'] - 3}")
        assert BANK in first["text"] and SHIPS not in first["text"] and first["text"] in long
        assert 0 < second["share"] < first["share"] <= 1 and first["fields"]["project"] == "harbor"
        assert (second["text"], second["passage"]) == (BELL, f"{second['id']}#0")
        assert (await tool("document", docid=note["id"]))["text"] == long
        assert (await tool("explain", query="Ruth Oyelaran", docid=first["passage"]))["score"] > 0
        assert [hit["docid"] for hit in (await tool("search", query="Ruth Oyelaran"))["hits"]] == [
            note["id"],
            second["id"],
        ]
        documents = Index.open(tmp_path / "notes").manifest.documents
        assert documents == 1 + note["passages"]
        assert (await tool("forget", filters={"project": ["harbor"]}))["forgotten"] == [note["id"]]
        again = await tool("remember", text=long)
        assert (await tool("forget", id=again["id"]))["forgotten"] == [again["id"]]

    ask(tmp_path / "notes", steps)
    index = Index.open(tmp_path / "notes")
    assert index.manifest.documents == 1
    # A command and the library replace and delete documents with all of their passages, too.
    index = index.add([("n", long)])
    assert index.manifest.documents > 2
    with pytest.raises(MilcoError, match="has a document 'n'"):
        index.add([("n", NILE)])
    index = index.update([("n", NILE)])
    assert index.manifest.documents == 2
    with pytest.raises(MilcoError, match="document 'n#0' is in"):
        index.update([("n", NILE)], delete=["n"])
    index = index.delete(["n", "zzz"])
    assert (index.manifest.documents, index.manifest.updates[-1].deleted) == (1, 1)
    assert index.delete(["zzz"]).manifest.updates[-1].deleted == 0


def test_notes_of_an_older_version_keep_their_ids(tmp_path: Path) -> None:
    """They were not split: they are recalled, replaced and forgotten by the same ids, which may be numbers."""
    notes = [("1", NILE), ("note", BELL)]
    Index.build(notes, tmp_path / "notes", "exact", encoder=CHECKPOINT, store_documents=True)

    async def steps(tool: Call) -> Any:
        found = (await tool("recall", query=NILE))["notes"]
        assert next((note["id"], note["passage"], note["text"]) for note in found) == ("1", "1", NILE)
        assert (await tool("explain", query=NILE, docid="1"))["score"] > 0
        Index.open(tmp_path / "notes").update([("note", SHIPS * 60)])
        assert (await tool("document", docid="note"))["text"] == SHIPS * 60
        return (await tool("forget", id="1"))["forgotten"], (await tool("forget", id="note"))["forgotten"]

    assert ask(tmp_path / "notes", steps) == (["1"], ["note"])
    assert Index.open(tmp_path / "notes").manifest.documents == 0
    Index.build([("a#1", NILE)], tmp_path / "other", "exact", encoder=CHECKPOINT, store_documents=True)
    with pytest.raises(MilcoError, match="has a note 'a#1': the ids of passages end in # and a number"):
        open_memory(tmp_path / "other")


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
            ("recall", {"query": " "}, "the query is empty"),
            ("recall", {}, "query is required"),
            ("recall", {"text": "x"}, "unknown argument 'text': did you mean 'query'?"),
            ("recall", {"query": "x", "limit": 3}, "unknown argument 'limit': did you mean 'k'?"),
            ("recall", {"query": "x", "k": "many"}, "k expects an integer, got 'many'"),
            ("recall", {"query": "x", "filters": 5}, """filters expects {"lang": "de"}, {"year": {">=": 2000}}, or"""),
            ("recall", {"query": "x", "filters": {"n": [[1]]}}, """"year>=2000"], got {"n": [[1]]}"""),
            ("recall", {"query": "x", "filters": "n"}, "expected FIELD=VALUE"),
            ("recall", {"query": "x", "filters": "lang==de"}, "has two equals signs. Write lang=de"),
            ("forget", {}, "either the id of a note or filters"),
            ("forget", {"id": "no"}, "has no note 'no'"),
        ):
            answer = await tool(name, **arguments)
            assert str(answer).startswith("error") and message in answer and "Traceback" not in answer, answer
            assert "pydantic" not in answer and len(answer.splitlines()) == 1

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
    assert index.searcher().documents(["n#0"])["n#0"].fields == {"lang": "de"}


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
        text = f"The note of agent {name} about the river has the number {number}. "
        note = await memory.remember(text * (1 + 19 * (number % 2)))
        assert note["passages"] == 1 + number % 2
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


@pytest.mark.slow
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
        first = []
        for agent in agents:
            assert agent.stdout is not None and agent.stdout.readline() == "begins\n"
            first.append(agent.stdout.readline())
        time.sleep(random.uniform(0, 2))
        for agent in agents:
            agent.send_signal(signal.SIGKILL)
        for agent, start in zip(agents, first, strict=True):
            assert agent.stdout is not None
            for line in (start + agent.stdout.read()).splitlines():
                what, _, docid = line.partition(" ")
                {"remembered": kept, "forgets": unknown, "forgotten": gone}[what].add(docid)
            agent.wait()
        searcher = open_memory(notes).searcher()
        passages = Counter(name.partition("#")[0] for name in searcher.matching({}))
        # A note is complete or absent: that of an odd number has two passages.
        assert kept - unknown <= passages.keys() and gone.isdisjoint(passages)
        texts = {
            name: document.text for name, document in searcher.documents([f"{name}#0" for name in passages]).items()
        }
        assert texts.keys() == {f"{name}#0" for name in passages}
        assert {name: passages[name[:-2]] for name in texts} == {
            name: 1 + (len(text) > 1000) for name, text in texts.items()
        }
        assert verify([str(notes)]) == 0
    assert kept
    open_memory(notes).delete(["none"])
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
