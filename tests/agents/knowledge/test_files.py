"""From entries to files."""

import os
from pathlib import Path

import pytest

from agents.knowledge import files
from agents.knowledge.content import UnreadableError
from agents.knowledge.files import Found, find_files, read_file
from tests.agents.knowledge.support import carry_on, write


def paths(found: Found) -> list[str]:
    return [file.path for file in found.files]


def messages(found: Found) -> list[str]:
    return [str(problem) for problem in found.problems]


def test_files_and_folders_in_the_order_of_the_entries(tmp_path: Path) -> None:
    write(
        tmp_path, {"b.md": "b", "docs/z.txt": "z", "docs/a/x.HTML": "x", "docs/.git/c.md": "c", "docs/photo.png": "p"}
    )
    found = find_files(tmp_path, ["b.md", "docs/", "docs/z.txt", "./b.md"])
    assert paths(found) == ["b.md", "docs/a/x.HTML", "docs/z.txt"]
    assert messages(found) == []


def test_an_entry_may_be_absolute_as_long_as_it_is_within(tmp_path: Path) -> None:
    write(tmp_path, {"docs/a.md": "a"})
    assert paths(find_files(tmp_path, [str(tmp_path / "docs" / ".." / "docs")])) == ["docs/a.md"]


def test_what_cannot_be_used_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "project"
    write(tmp_path, {"secret.md": "s", "project/a.md": "a", "project/code.py": "c"})
    (root / "empty").mkdir()
    (root / "link.md").symlink_to(tmp_path / "secret.md")
    (root / "folder").symlink_to(tmp_path)
    (root / "circle.md").symlink_to(root / "circle.md")
    os.mkfifo(root / "pipe.md")
    entries = [
        "../secret.md",
        "link.md",
        "folder",
        "circle.md",
        "pipe.md",
        "code.py",
        "gone.md",
        "a\0b",
        "empty",
        "a.md",
    ]
    found = find_files(root, [*entries, "/"])
    assert paths(found) == ["a.md"]
    said = messages(found)
    for name in ("../secret.md", "link.md", "folder", "/"):
        assert f"{name} leads out of the project's directory, and is left out" in said
    assert "pipe.md is no ordinary file" in said
    assert "code.py is of no kind that can be read (.htm, .html, .markdown, .md, .pdf, .text, .txt)" in said
    assert "gone.md cannot be read: No such file or directory" in said
    assert "empty holds no documents" in said
    assert [message for message in said if message.startswith("circle.md cannot be read: ")]
    assert len(said) == len(entries)


def test_links_within_are_followed_once(tmp_path: Path) -> None:
    write(tmp_path, {"docs/a.md": "a", "shared/b.md": "b"})
    (tmp_path / "docs" / "again").symlink_to(tmp_path / "docs")
    (tmp_path / "docs" / "c.md").symlink_to(tmp_path / "docs" / "a.md")
    (tmp_path / "docs" / "shared").symlink_to(tmp_path / "shared")
    found = find_files(tmp_path, ["docs"])
    assert paths(found) == ["docs/a.md", "docs/shared/b.md"]
    assert messages(found) == []


def test_names_that_cannot_be_shown(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    with open(os.path.join(os.fsencode(tmp_path / "docs"), b"\xff.md"), "wb") as file:
        file.write(b"a")
    found = find_files(tmp_path, ["docs"])
    assert paths(found) == []
    assert messages(found)[0] == "docs/?.md has a name that cannot be shown, and is left out"


def test_there_are_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {f"docs/{number}.md": "a" for number in range(9)} | {f"deep/{'x/' * 40}a.md": "a"})
    monkeypatch.setattr(files, "MAX_FILES", 5)
    found = find_files(tmp_path, ["docs"])
    assert len(found.files) == 5
    assert messages(found) == ["knowledge is too much: of more than 5 files the first are used"]
    monkeypatch.setattr(files, "MAX_LOOKED_AT", 3)
    found = find_files(tmp_path, ["docs"])
    assert len(found.files) == 3
    assert messages(found) == ["knowledge is too much: of more than 3 names the first are looked at"]
    monkeypatch.undo()
    (message,) = messages(find_files(tmp_path, ["deep"]))
    assert message.endswith("is more than 32 folders deep, and is left out")


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("a.md", 0, "is empty"),
        ("a.md", files.MAX_TEXT_BYTES + 1, "is larger than 4 MiB"),
        ("a.pdf", files.MAX_PDF_BYTES + 1, "is larger than 64 MiB"),
        ("gone.md", None, "cannot be read: No such file or directory"),
        ("../out.md", 5, "leads out of the project's directory"),
    ],
)
def test_files_that_are_not_read(tmp_path: Path, name: str, size: int | None, message: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    if size is not None:
        with (root / name).open("wb") as file:
            file.truncate(size)
    with pytest.raises(UnreadableError, match=message):
        read_file(root, name, carry_on)


def test_what_has_become_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.md")
    with pytest.raises(UnreadableError, match="is no ordinary file"):
        read_file(tmp_path, "a.md", carry_on)
