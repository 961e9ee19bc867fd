"""The index of a project's documents: what gets in, what gets out, and who may write when."""

import multiprocessing
import sqlite3
from collections.abc import Callable
from contextlib import closing
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.knowledge.content import Content
from agents.knowledge.files import read_content
from agents.knowledge.index import Document, Hits, KnowledgeIndex
from tests.agents.knowledge.support import carry_on, headings, make_index, make_pdf, paths_of, write

MENU = "# Menu\n## Tea\nGreen tea is 60 crowns.\n## Juice\nOrange juice is 70 crowns.\n"


def rows(index: KnowledgeIndex) -> tuple[int, int, int]:
    """How many files, passages and entries of the index of grams there are."""
    with closing(sqlite3.connect(index.path)) as connection:
        tables = ("files", "passages", "grams_docsize")
        files, passages, grams = (connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)
        connection.execute("INSERT INTO grams (grams) VALUES ('integrity-check')")
    return files, passages, grams


def test_documents_of_every_format_are_found(tmp_path: Path) -> None:
    root = write(
        tmp_path / "project",
        {
            "menu.md": MENU,
            "rules.txt": "Dogs are welcome.",
            "place.html": "<title>Where</title><h1>Parking</h1><p>Behind the theatre.",
            "manual.pdf": make_pdf(["Switch it on.", "Replace the battery."], title="Manual"),
        },
    )
    index = make_index(root, tmp_path / "cache")
    assert index.update(["."], carry_on) == []
    assert index.documents(paths_of(index)) == [
        Document("manual.pdf", "Manual", "Switch it on."),
        Document("menu.md", "Menu", "Green tea is 60 crowns."),
        Document("place.html", "Where", "Behind the theatre."),
        Document("rules.txt", "Rules", "Dogs are welcome."),
    ]
    assert headings(index, "green tea") == ["Tea"]
    assert headings(index, "where can I park the car") == ["Parking"]
    (battery,) = index.search("batteries", paths_of(index), 5).passages
    assert (battery.document.title, battery.page, battery.text) == ("Manual", 2, "Replace the battery.")
    (dogs,) = index.search("dog", paths_of(index), 5).passages
    assert dogs.headings == ()


def test_only_the_documents_asked_for_are_searched(tmp_path: Path) -> None:
    root = write(tmp_path / "project", {"a.md": MENU, "b.md": "# Cellar\nGreen tea is stored here.\n"})
    index = make_index(root, tmp_path / "cache")
    index.update(["."], carry_on)
    assert [each.document.path for each in index.search("green tea", ["b.md"], 5).passages] == ["b.md"]
    assert index.search("green tea", [], 5) == Hits()
    assert index.documents(["b.md", "c.md", "a.md"])[0].title == "Cellar"


def test_before_there_is_an_index_nothing_is_known(tmp_path: Path) -> None:
    index = make_index(tmp_path, tmp_path / "cache")
    for _ in range(2):
        assert index.documents(["a.md"]) == []
        assert index.search("tea", ["a.md"], 5) == Hits()
        assert index.around("key", ["a.md"], 1000) is None
        index.path.touch()  # a file that nobody has written to is none either


def test_what_has_changed_is_taken_in_again_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path / "project", {"menu.md": MENU, "other.md": "# Other\nSomething else.\n"})
    index = make_index(root, tmp_path / "cache")
    read: list[str] = []

    def counted(path: str, data: bytes, check: Callable[[], None]) -> Content:
        read.append(path)
        return read_content(path, data, check)

    monkeypatch.setattr("agents.knowledge.index.read_content", counted)
    index.update(["."], carry_on)
    index.update(["."], carry_on)
    assert read == ["menu.md", "other.md"]
    key = index.search("green tea", ["menu.md"], 1).passages[0].key
    write(root, {"menu.md": MENU.replace("Orange", "Apple")})
    index.update(["."], carry_on)
    assert read == ["menu.md", "other.md", "menu.md"]
    assert headings(index, "orange") == []
    assert headings(index, "apple juice") == ["Juice"]
    assert index.search("green tea", ["menu.md"], 1).passages[0].key == key  # that passage says what it said
    (root / "menu.md").touch()
    index.update(["."], carry_on)
    assert len(read) == 3  # only its time has changed
    assert rows(index) == (2, 3, 3)


def test_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    root = write(tmp_path / "project", {"menu.md": MENU, "docs/other.md": "# Other\nSomething else.\n"})
    index = make_index(root, tmp_path / "cache")
    index.update(["."], carry_on)
    index.update(["docs"], carry_on)  # another agent, who does not know the menu
    assert rows(index) == (2, 3, 3)
    (root / "menu.md").unlink()
    index.update(["docs"], carry_on)
    assert rows(index) == (1, 1, 1)


def test_a_bad_document_is_told_until_it_is_mended(tmp_path: Path) -> None:
    root = write(tmp_path / "project", {"menu.md": MENU, "old.txt": "Čaj".encode("cp1250")})
    index = make_index(root, tmp_path / "cache")
    for _ in range(2):
        assert [str(problem) for problem in index.update(["."], carry_on)] == ["old.txt is not UTF-8 text (line 1)"]
    assert [document.path for document in index.documents(paths_of(index))] == ["menu.md"]
    assert headings(index, "green tea") == ["Tea"]
    write(root, {"old.txt": "Čaj"})
    assert index.update(["."], carry_on) == []
    write(root, {"menu.md": b"\xff"})
    assert len(index.update(["."], carry_on)) == 1
    assert headings(index, "green tea") == []
    assert rows(index) == (2, 1, 1)


def test_what_is_left_out_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path / "project", {"menu.md": MENU})
    index = make_index(root, tmp_path / "cache")
    monkeypatch.setattr("agents.knowledge.index.MAX_PASSAGES", 1)
    (problem,) = index.update(["."], carry_on)
    assert str(problem) == "menu.md is left out: the project's documents have more than 1 passages"
    assert rows(index) == (1, 0, 0)
    monkeypatch.undo()
    assert index.update(["."], carry_on) == []
    assert rows(index) == (1, 2, 2)


def test_the_same_passage_twice_has_two_keys(tmp_path: Path) -> None:
    root = write(tmp_path / "project", {"a.txt": "\n\n".join(["Green tea. " * 60] * 3)})
    index = make_index(root, tmp_path / "cache")
    index.update(["."], carry_on)
    keys = [passage.key for passage in index.search("green tea", ["a.txt"], 5).passages]
    assert len(set(keys)) == 3


def test_a_passage_with_its_neighbours(tmp_path: Path) -> None:
    text = "".join(f"## Part {number}\nPart {number} is about {'abcdefghij'[number] * 40}.\n" for number in range(10))
    root = write(tmp_path / "project", {"a.md": text})
    index = make_index(root, tmp_path / "cache")
    index.update(["."], carry_on)

    def around(part: int, characters: int) -> tuple[list[str], str]:
        (passage,) = index.search("abcdefghij"[part] * 40, ["a.md"], 1).passages
        excerpt = index.around(passage.key, ["a.md"], characters)
        assert excerpt is not None
        assert excerpt.passage == passage
        following = excerpt.following.headings[0] if excerpt.following else ""
        return [each.headings[0][-1] for each in excerpt.passages], following

    assert around(4, 10) == (["4"], "Part 5")
    assert around(4, 250) == (["3", "4", "5", "6"], "Part 7")
    assert around(0, 250) == (["0", "1", "2", "3"], "Part 4")
    assert around(9, 250) == (["6", "7", "8", "9"], "")
    assert around(4, 10_000) == (list("0123456789"), "")
    (passage,) = index.search("a" * 40, ["a.md"], 1).passages
    assert index.around(passage.key, ["b.md"], 1000) is None
    assert index.around("no such key", ["a.md"], 1000) is None


def has_tables(index: KnowledgeIndex) -> bool:
    with closing(sqlite3.connect(index.path)) as connection:
        return bool(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])


class Cancelled(BaseException):
    pass


@pytest.mark.parametrize("after", range(1, 12))
def test_whoever_is_cancelled_leaves_nothing_of_the_document_under_way(tmp_path: Path, after: int) -> None:
    root = write(tmp_path / "project", {"a.md": "# A\nFirst.\n", "b.pdf": make_pdf(["One.", "Two.", "Three."])})
    index = make_index(root, tmp_path / "cache")
    left = after

    def check() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Cancelled

    try:
        index.update(["."], check)
    except Cancelled:
        if index.path.exists() and has_tables(index):
            assert rows(index) in ((0, 0, 0), (1, 1, 1), (2, 4, 4))
    assert index.update(["."], carry_on) == []
    assert rows(index) == (2, 4, 4)


def take_in(root: Path, directory: Path, barrier: Barrier, counts: "Queue[tuple[int, int, int]]") -> None:
    read: list[str] = []

    def counted(path: str, data: bytes, check: Callable[[], None]) -> Content:
        read.append(path)
        return read_content(path, data, check)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agents.knowledge.index.read_content", counted)
        index = KnowledgeIndex.within(root, directory)
        barrier.wait()
        problems = index.update(["."], carry_on)
        counts.put((len(read), len(problems), len(index.search("green tea", paths_of(index), 5).passages)))


def test_several_processes_take_each_document_in_once(tmp_path: Path) -> None:
    root = write(tmp_path / "project", {f"{number}.md": f"# {number}\n{MENU}" for number in range(20)})
    (tmp_path / "cache").mkdir()
    context = multiprocessing.get_context("spawn")
    barrier, counts = context.Barrier(3), cast("Queue[tuple[int, int, int]]", context.Queue())
    processes = [context.Process(target=take_in, args=(root, tmp_path / "cache", barrier, counts)) for _ in range(3)]
    for process in processes:
        process.start()
    results = [counts.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert sum(read for read, _, _ in results) == 20
    assert {result[1:] for result in results} == {(0, 5)}
    assert rows(make_index(root, tmp_path / "cache"))[0] == 20


def test_whoever_searches_waits_for_no_writer(tmp_path: Path) -> None:
    root = write(tmp_path / "project", {"menu.md": MENU})
    index = make_index(root, tmp_path / "cache")
    index.update(["."], carry_on)
    with closing(sqlite3.connect(index.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM passages")
        assert headings(index, "green tea") == ["Tea"]
        looks: list[int] = []

        def check() -> None:
            looks.append(1)
            if len(looks) == 6:
                writer.execute("ROLLBACK")

        write(root, {"menu.md": MENU + "## Cake\nCarrot cake.\n"})
        index.update(["."], check)
    assert headings(index, "carrot cake") == ["Cake"]


@pytest.fixture(scope="module")
def menu_index(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeIndex:
    base = tmp_path_factory.mktemp("menu")
    index = make_index(write(base / "project", {"menu.md": MENU}), base / "cache")
    index.update(["."], carry_on)
    return index


@settings(max_examples=50, deadline=None)  # each opens the file, which takes as long as a busy disk takes
@given(query=st.text(st.characters(exclude_categories=())))
def test_any_query_is_answered(query: str, menu_index: KnowledgeIndex) -> None:
    assert len(menu_index.search(query, ["menu.md"], 5).passages) <= 5


@pytest.mark.parametrize(
    "query", ['"', 'tea" OR "', "NEAR(tea)", "outer:tea", "-tea*", "tea AND", "^tea", "''", "\0", "%_"]
)
def test_the_syntax_of_the_engine_is_not_spoken(menu_index: KnowledgeIndex, query: str) -> None:
    found = menu_index.search(query, ["menu.md"], 5).passages
    assert [each.headings[-1] for each in found if "Tea" in each.headings] == (["Tea"] if "tea" in query else [])


def test_what_only_has_a_word_in_common_is_told_apart(tmp_path: Path) -> None:
    index = make_index(write(tmp_path / "project", {f"{n}.md": MENU for n in range(9)}), tmp_path / "cache")
    index.update(["."], carry_on)
    hits = index.search("anything worth knowing about tea", paths_of(index), 5)
    assert (hits.fit, [passage.headings[-1] for passage in hits.passages]) == (False, ["Tea", "Tea"])
    assert index.search("is it so", paths_of(index), 5) == Hits(fit=False)
