"""Pages: what is counted is where a reader finds it, whoever has ended."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.observe.page import HEADER, Page, PageFullError, entries, entry_size, read_page

ENTRIES = st.lists(st.tuples(st.binary(max_size=40), st.lists(st.floats(allow_nan=False), max_size=20)), max_size=20)


@given(ENTRIES)
def test_entries_come_out_as_they_went_in(expected: list[tuple[bytes, list[float]]]) -> None:
    page = Page.in_memory(HEADER.size + sum(entry_size(len(key), len(numbers)) for key, numbers in expected))
    for key, numbers in expected:
        at = page.add(key, len(numbers))
        for offset, number in enumerate(numbers):
            page.numbers[at + offset] = number
    assert [(key, list(numbers)) for key, numbers in entries(page.content())] == expected
    with pytest.raises(PageFullError):
        page.add(b"", 1)  # the sizes were exact


def test_a_file_is_read_while_it_is_written(tmp_path: Path) -> None:
    page = Page.in_file(tmp_path / "page", 4096)
    at = page.add(b"turns", 2)
    page.numbers[at + 1] += 3.0
    content, lives = read_page(tmp_path / "page")
    assert lives
    assert list(entries(content)) == [(b"turns", (0.0, 3.0))]
    page.numbers[at + 1] += 1.0
    page.add(b"tools", 1)
    assert list(entries(read_page(tmp_path / "page")[0])) == [(b"turns", (0.0, 4.0)), (b"tools", (0.0,))]
    page.close()
    content, lives = read_page(tmp_path / "page")
    assert not lives
    assert dict(entries(content))[b"turns"] == (0.0, 4.0)


def test_reading_does_not_take_the_lock_away(tmp_path: Path) -> None:
    page = Page.in_file(tmp_path / "page", 4096)
    assert [read_page(tmp_path / "page")[1] for _ in range(3)] == [True, True, True]
    page.close()
    assert [read_page(tmp_path / "page")[1] for _ in range(3)] == [False, False, False]


def test_a_name_is_used_once(tmp_path: Path) -> None:
    page = Page.in_file(tmp_path / "page", 4096)
    (tmp_path / ".page").write_bytes(b"")  # another one on the way
    with pytest.raises(FileExistsError):
        Page.in_file(tmp_path / "page", 4096)
    page.close()


@pytest.mark.parametrize("content", [b"", b"short", b"no such page, but long"])
def test_what_is_no_page_has_no_entries(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "page").write_bytes(content)
    assert list(entries(read_page(tmp_path / "page")[0])) == []
