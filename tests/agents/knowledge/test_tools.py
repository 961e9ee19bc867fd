"""What sessions and planners have of knowledge. The index works in threads, so the clock is the real one."""

import json
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import trio
import trio.testing

from agents.knowledge.citations import Citations, Source
from agents.knowledge.content import Content
from agents.knowledge.files import read_content
from agents.knowledge.index import KnowledgeIndex
from agents.knowledge.library import (
    KnowledgeError,
    KnowledgeLibrary,
    KnownSource,
    Names,
    cache_directory,
    ingesting,
)
from agents.knowledge.passages import MAX_CHARACTERS
from agents.knowledge.tools import READ_CHARACTERS, RESULTS, KnowledgeToolBox
from engine.elements import JsonObject
from engine.interfaces import ToolError, UnknownToolError
from tests.agents.knowledge.support import DOCUMENTS, make_pdf, write
from tests.agents.support import make_context

CONTEXT = make_context()


async def call(box: KnowledgeToolBox, name: str, **arguments: JsonObject | str) -> JsonObject:
    result = await box.call(name, dict(arguments), CONTEXT)
    json.dumps(result.output)
    found: JsonObject = result.output
    return found


def make_box(tmp_path: Path, *entries: str) -> KnowledgeToolBox:
    return KnowledgeToolBox(KnowledgeLibrary(DOCUMENTS, tmp_path / "cache").of(entries or (".",)))


# --- the tools ---------------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_with_its_source(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    found = await call(box, "search_knowledge", query="kolik stojí káva bez kofeinu")
    assert found["results"][0] == {
        "id": "k1",
        "source": "Kavárna U Divadla",
        "heading": "Kavárna U Divadla › Nabídka › Káva",
        "url": "https://kavarna.example/cs",
        "text": "Espresso stojí 55 korun, flat white 79 korun. Kávu bez kofeinu připravíme za stejnou cenu. Rostlinné mléko je "
        "za příplatek deset korun.",
    }
    assert box.citations.source("[K1]") == Source(
        "Kavárna U Divadla", "kavarna.md, Kavárna U Divadla › Nabídka › Káva", "https://kavarna.example/cs"
    )
    again = await call(box, "search_knowledge", query="espresso")
    assert again["results"][0]["id"] == "k1"


async def test_one_source_can_be_searched(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    for source in ("Stadtbibliothek", "stadtBIBL", "bibliothek.md", "Bibliothek"):
        found = await call(box, "search_knowledge", query="Euro Kosten", source=source)
        assert {result["source"] for result in found["results"]} == {"Stadtbibliothek"}
    found = await call(box, "search_knowledge", query="Euro", source="Rathaus")
    assert found["results"] == []
    assert found["note"] == "There is no such source."
    assert found["sources"][0] == "Stadtbibliothek"


async def test_it_is_said_when_nothing_fits(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    found = await call(box, "search_knowledge", query="ψψψψ")
    assert (found["results"], found["note"][:32]) == ([], "Nothing in the knowledge fits. T")
    found = await call(box, "search_knowledge", query="what is the capital of France")
    assert (len(found["results"]), found["note"][:37]) == (2, "Nothing in the knowledge fits well; t")
    for query in ("", " ", "?!", "\0"):
        assert (await call(box, "search_knowledge", query=query))["results"] == []


async def test_reading_on(tmp_path: Path) -> None:
    paragraphs = [
        f"Rule {number} says that {'abcdefghijklmnopqrstuvwxyz'[number] * 20} is forbidden. " for number in range(26)
    ]
    text = "# Rules\n" + "".join(f"## Part {n}\n{paragraph * 5}\n" for n, paragraph in enumerate(paragraphs))
    root = write(tmp_path / "project", {"rules.md": text, "manual.pdf": make_pdf(["One.", "Two.", "Three."])})
    box = KnowledgeToolBox(KnowledgeLibrary(root, tmp_path / "cache").of(["."]))
    found = await call(box, "search_knowledge", query="rule " + "f" * 20)
    read = await call(box, "read_knowledge", passage_id=found["results"][0]["id"])
    assert read["text"].startswith("[Rules › Part 4]\nRule 4 says")
    assert "\n\n[Rules › Part 5]\nRule 5 says" in read["text"]
    assert READ_CHARACTERS / 2 < len(read["text"]) < READ_CHARACTERS + 500
    seen = read["text"]
    while "read_on" in read:
        read = await call(box, "read_knowledge", passage_id=read["read_on"])
        seen += read["text"]
    assert all(f"Rule {number} says" in seen for number in range(4, 26))
    found = await call(box, "search_knowledge", query="two", source="manual")
    assert found["results"][0]["page"] == 2
    read = await call(box, "read_knowledge", passage_id=found["results"][0]["id"])
    assert read["text"] == "[page 1]\nOne.\n\n[page 2]\nTwo.\n\n[page 3]\nThree."
    source = box.citations.source(read["id"])
    assert source is not None
    assert source.location == "manual.pdf, page 2"


async def test_what_overlaps_is_read_once(tmp_path: Path) -> None:
    sentences = [f"Sentence {number} has nothing to say about anything at all." for number in range(40)]
    root = write(tmp_path / "project", {"a.txt": " ".join(sentences)})
    box = KnowledgeToolBox(KnowledgeLibrary(root, tmp_path / "cache").of(["a.txt"]))
    found = await call(box, "search_knowledge", query="sentence 1")
    read = await call(box, "read_knowledge", passage_id=found["results"][0]["id"])
    assert read["text"].replace("\n", " ") == " ".join(sentences)


async def test_ids_that_lead_nowhere(tmp_path: Path) -> None:
    root = write(tmp_path / "project", {"a.md": "# Tea\nGreen tea.\n"})
    box = KnowledgeToolBox(KnowledgeLibrary(root, tmp_path / "cache").of(["a.md"]))
    with pytest.raises(ToolError, match="There is no passage k1; use an id"):
        await call(box, "read_knowledge", passage_id="k1")
    await call(box, "search_knowledge", query="green tea")
    write(root, {"a.md": "# Tea\nBlack tea.\n"})
    await box.knowledge.prepare()
    with pytest.raises(ToolError, match="The document has changed since"):
        await call(box, "read_knowledge", passage_id="k1")
    assert box.citations.source("k1") == Source("Tea", "a.md, Tea")


async def test_results_are_bounded(tmp_path: Path) -> None:
    text = "\n\n".join(f"{number} " + "green tea " * 2000 for number in range(20))
    root = write(tmp_path / "project", {"a.txt": text})
    box = KnowledgeToolBox(KnowledgeLibrary(root, tmp_path / "cache").of(["a.txt"]))
    found = await call(box, "search_knowledge", query="green tea " * 5000)
    assert len(found["results"]) == RESULTS
    assert all(len(result["text"]) <= MAX_CHARACTERS for result in found["results"])


async def test_the_tools_there_are(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    search, read = box.specifications
    assert (search.name, search.parameters["required"]) == ("search_knowledge", ["query"])
    assert (read.name, read.parameters["required"]) == ("read_knowledge", ["passage_id"])
    empty = KnowledgeToolBox(KnowledgeLibrary(tmp_path, tmp_path / "cache").of([]))
    assert empty.specifications == ()
    with pytest.raises(UnknownToolError):
        await empty.call("search_knowledge", {"query": "tea"}, CONTEXT)


# --- names -------------------------------------------------------------------------------------------------------------


async def test_names_for_prompts_do_not_wait_for_documents_to_be_taken_in(tmp_path: Path) -> None:
    knowledge = KnowledgeLibrary(DOCUMENTS, tmp_path / "cache").of(["kavarna.md", "laptop.md", "fahrrad.md"])
    assert await knowledge.names(2) == Names((KnownSource("Kavarna"), KnownSource("Laptop")), 1)
    assert await knowledge.prepare() == ()
    assert await knowledge.names(2) == Names(
        (
            KnownSource("Kavárna U Divadla", "Co nabízíme a za kolik."),
            KnownSource(
                "Laptop X200 manual",
                "The battery charges fully in ninety minutes. Do not leave it in the sun. It keeps eighty percent of its capacity "
                "after a thousand cycles.",
            ),
        ),
        1,
    )


# --- many at once ------------------------------------------------------------------------------------------------------


class Reading:
    """Counts what is read, and may hold it up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        self.began, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()
        monkeypatch.setattr("agents.knowledge.index.read_content", self.read_content)

    def read_content(self, path: str, data: bytes, check: Callable[[], None]) -> Content:
        self.paths.append(path)
        self.began.set()
        while not self.may_go_on.wait(0.01):
            check()
        return read_content(path, data, check)


async def idle() -> None:
    """Until the thread that takes documents in has gone."""
    async with ingesting:
        pass


async def test_two_sessions_at_once_take_documents_in_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    library = KnowledgeLibrary(DOCUMENTS, tmp_path / "cache")
    found: list[JsonObject] = []

    async def session() -> None:
        box = KnowledgeToolBox(library.of(["."]))
        found.append(await call(box, "search_knowledge", query="warranty"))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(session)
    assert sorted(reading.paths) == sorted(path.name for path in DOCUMENTS.iterdir())
    assert [each["results"][0]["heading"] for each in found] == ["Laptop X200 manual › Warranty"] * 5


async def test_agents_share_what_they_both_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    library = KnowledgeLibrary(DOCUMENTS, tmp_path / "cache")
    await library.prepare(["laptop.md", "theatre.md"])
    await library.prepare(["theatre.md", "fahrrad.md"])
    assert reading.paths == ["laptop.md", "theatre.md", "fahrrad.md"]
    other = KnowledgeToolBox(library.of(["theatre.md", "fahrrad.md"]))
    found = await call(other, "search_knowledge", query="warranty of the laptop battery")
    assert "Laptop X200 manual" not in {result["source"] for result in found["results"]}


async def test_a_start_finds_the_index_of_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    await KnowledgeLibrary(DOCUMENTS, tmp_path / "cache").prepare(["."])
    reading.paths.clear()
    box = make_box(tmp_path)
    assert (await call(box, "search_knowledge", query="warranty"))["results"]
    assert reading.paths == []


async def test_the_next_session_knows_what_has_changed(tmp_path: Path) -> None:
    root = write(tmp_path / "project", {"a.md": "# Tea\nGreen tea.\n"})
    library = KnowledgeLibrary(root, tmp_path / "cache")
    first = KnowledgeToolBox(library.of(["."]))
    assert len((await call(first, "search_knowledge", query="green tea"))["results"]) == 1
    write(root, {"a.md": "# Tea\nBlack tea.\n", "b.md": "# Cake\nCarrot cake.\n"})
    second = KnowledgeToolBox(library.of(["."]))
    assert len((await call(second, "search_knowledge", query="carrot cake"))["results"]) == 1
    assert len((await call(second, "search_knowledge", query="black tea"))["results"]) == 1
    os.unlink(root / "b.md")
    third = KnowledgeToolBox(library.of(["."]))
    assert (await call(third, "search_knowledge", query="carrot cake"))["results"] == []
    assert (await call(second, "search_knowledge", query="carrot cake"))["results"] == []


async def test_cancelled_while_taking_in_it_leaves_nothing_and_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(monkeypatch)
    reading.may_go_on.clear()
    library = KnowledgeLibrary(DOCUMENTS, tmp_path / "cache")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(library.prepare, ["laptop.md"])
        await trio.to_thread.run_sync(reading.began.wait)
        nursery.cancel_scope.cancel(reason="barge-in")
    await idle()
    (path,) = (tmp_path / "cache").glob("*.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(
            "SELECT (SELECT count(*) FROM files), (SELECT count(*) FROM passages)"
        ).fetchone() == (0, 0)
    assert [each.name for each in (tmp_path / "cache").iterdir()] == [path.name]
    reading.may_go_on.set()
    box = KnowledgeToolBox(library.of(["laptop.md"]))
    assert (await call(box, "search_knowledge", query="warranty"))["results"]


async def test_when_one_is_cancelled_the_other_who_waits_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(monkeypatch)
    reading.may_go_on.clear()
    library = KnowledgeLibrary(DOCUMENTS, tmp_path / "cache")
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                inner.start_soon(library.prepare, ["laptop.md"])
                await trio.to_thread.run_sync(reading.began.wait)
                nursery.start_soon(library.prepare, ["laptop.md"])
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel(reason="barge-in")
        reading.may_go_on.set()
    assert [document.title for document in await library.of(["laptop.md"]).documents()] == ["Laptop X200 manual"]


# --- when something is wrong -------------------------------------------------------------------------------------------


async def test_problems_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = write(tmp_path / "project", {"a.md": "# Tea\nGreen tea.\n", "b.md": b"\xff"})
    library = KnowledgeLibrary(root, tmp_path / "cache")
    with caplog.at_level(logging.WARNING):
        await library.of([".", "gone"]).prepare()
        problems = await library.of([".", "gone"]).prepare()
    said = ["gone cannot be read: No such file or directory", "b.md is not UTF-8 text (line 1)"]
    assert [str(problem) for problem in problems] == said
    assert caplog.messages == [f"knowledge: {message}" for message in said]


async def test_a_damaged_index_is_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await make_box(tmp_path).knowledge.prepare()
    (path,) = (tmp_path / "cache").glob("*.sqlite")
    path.write_bytes(b"no database at all" * 1000)
    with caplog.at_level(logging.WARNING):
        assert (await call(make_box(tmp_path), "search_knowledge", query="warranty"))["results"]
    assert "is damaged (file is not a database) and is made anew" in caplog.messages[0]


async def test_without_a_directory_the_process_has_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    for directory, warnings in ((None, 0), (tmp_path / "file" / "cache", 1)):
        caplog.clear()
        library = KnowledgeLibrary(DOCUMENTS, directory)
        with caplog.at_level(logging.WARNING):
            found = await library.of(["."]).search("warranty")
        assert found is not None
        assert found.fit
        assert len(caplog.messages) == warnings
        place = await library.ask(lambda index: index.path)
        assert place.exists()
        del library
        assert not place.parent.exists()


async def test_when_the_index_cannot_be_used_the_model_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = make_box(tmp_path)
    await box.knowledge.prepare()
    await call(box, "search_knowledge", query="warranty")

    def fail(self: KnowledgeIndex, *rest: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(KnowledgeIndex, "search", fail)
    monkeypatch.setattr(KnowledgeIndex, "around", fail)
    monkeypatch.setattr(KnowledgeIndex, "update", fail)
    for name, arguments in (("search_knowledge", {"query": "tea"}), ("read_knowledge", {"passage_id": "k1"})):
        with pytest.raises(ToolError, match="The knowledge cannot be reached now"):
            await box.call(name, arguments, CONTEXT)
    with pytest.raises(KnowledgeError):
        await box.knowledge.prepare()


async def test_a_project_that_has_gone(tmp_path: Path) -> None:
    root = write(tmp_path / "project", {"a.md": "# Tea\nGreen tea.\n"})
    library = KnowledgeLibrary(root, tmp_path / "cache")
    await library.prepare(["a.md"])
    shutil.rmtree(root)
    (problem,) = await library.prepare(["a.md"])
    assert str(problem) == "a.md cannot be read: No such file or directory"
    assert await library.of(["a.md"]).documents() == []


# --- small things ------------------------------------------------------------------------------------------------------


def test_citations_are_bounded_and_never_given_twice() -> None:
    citations = Citations(2)
    source = Source("Tea", "a.md")
    assert [citations.cite(key, source) for key in "abacab"] == ["k1", "k2", "k1", "k3", "k1", "k4"]
    assert [citations.key(f"k{number}") for number in range(1, 5)] == ["a", None, None, "b"]
    assert citations.source("k2") is None


def test_where_indexes_are_kept() -> None:
    assert cache_directory({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/souffleur/knowledge")
    assert cache_directory({"XDG_CACHE_HOME": "c", "HOME": "/h"}) == Path("/h/.cache/souffleur/knowledge")
    assert cache_directory({}).is_absolute()
