"""A directory of capsules: what its list tells without reading them, and what a name may lead to."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.capsule.codec import CapsuleError
from engine.capsule.file import MAGIC, Kind, chunk
from engine.capsule.shelf import NAME, NoSuchCapsuleError, glance, glances, open_capsule
from tests.engine.capsule.scenario import Script, cafe

FIRST = "20300517T093000-s-1-1.capsule"


def test_a_list_is_newest_first_and_comes_in_pages(tmp_path: Path) -> None:
    for hour in range(5):
        cafe().write(tmp_path / f"20300517T0{hour}3000-s-{hour}-1.capsule")
    (tmp_path / "notes.txt").write_text("no capsule")
    (tmp_path / ".hidden.capsule").write_text("no capsule")
    found, following = glances(tmp_path, limit=2)
    assert [each.session_id for each in found] == ["s-4", "s-3"]
    assert following == found[-1].name
    found, following = glances(tmp_path, after=found[-1].name, limit=3)
    assert [each.session_id for each in found] == ["s-2", "s-1", "s-0"]
    assert following is None
    assert glances(tmp_path / "not-there-yet") == ([], None)


def test_a_glance_tells_what_it_was(tmp_path: Path) -> None:
    path = cafe().write(tmp_path / FIRST)
    found = glance(path)
    assert (found.agent, found.session_id, found.seconds, found.state) == ("agent:barista", "s-1", 12.5, "whole")
    assert (found.began, found.reason) == ("2030-05-17T09:30:00+00:00", "the client ended it")
    assert (found.bytes, found.redacted) == (path.stat().st_size, False)


def test_a_glance_at_what_is_being_written_or_was_cut(tmp_path: Path) -> None:
    script = cafe()
    script.records = script.records[:100]
    assert glance(script.write(tmp_path / FIRST)).state == "cut"
    script.put(Kind.FULL, "the disk is too slow", at=90.0)
    full = glance(script.write(tmp_path / FIRST))
    assert (full.state, full.reason, full.seconds) == ("full", "the disk is too slow", 90.0)
    cut = Script()
    for _ in range(2600):  # two records each, a thousand in a chunk
        cut.command("noise", at=cut.at + 0.01)
    looked = glance(cut.write(tmp_path / FIRST, cut_bytes=3))  # its last chunk is not whole
    assert looked.state == "cut"
    assert looked.seconds == pytest.approx(25.0)


@pytest.mark.parametrize(
    "data",
    [b"", b"something else", MAGIC, MAGIC + b"rubbish", MAGIC + chunk(b"\xc1\xc1", b""), MAGIC + chunk(b"\x01", b"")],
)
def test_a_damaged_file_is_told_of_as_such(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FIRST).write_bytes(data)
    assert glance(tmp_path / FIRST).state == "damaged"
    with pytest.raises(CapsuleError):
        open_capsule(tmp_path, FIRST)


@given(data=st.binary(max_size=200))
def test_no_file_is_more_than_damaged(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("shelf", numbered=True) / FIRST
    path.write_bytes(MAGIC + data)
    assert glance(path).state in ("damaged", "cut", "whole", "full")


def test_a_capsule_is_read_by_its_name(tmp_path: Path) -> None:
    cafe().write(tmp_path / FIRST)
    assert open_capsule(tmp_path, FIRST).is_whole
    with pytest.raises(NoSuchCapsuleError):
        open_capsule(tmp_path, "another.capsule")


@pytest.mark.parametrize(
    "name",
    [
        "../a.capsule", "a/b.capsule", "..", ".capsule", "a.capsule/..", "a", "", "a.capsule\n", "a\0.capsule", "\\a.capsule",
        "x" * 300 + ".capsule", "é.capsule",
    ],
)  # fmt: skip
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    cafe().write(tmp_path / "a.capsule")
    with pytest.raises(NoSuchCapsuleError):
        open_capsule(inside, name)
    assert not NAME.fullmatch(name)


def test_links_and_directories_are_no_capsules(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    cafe().write(tmp_path / FIRST)
    (inside / FIRST).symlink_to(tmp_path / FIRST)
    (inside / "directory.capsule").mkdir()
    for name in (FIRST, "directory.capsule"):
        with pytest.raises(NoSuchCapsuleError):
            open_capsule(inside, name)
    assert glances(inside) == ([], None)


def test_what_is_too_large_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.capsule.shelf.MAX_FILE_BYTES", 1000)
    cafe().write(tmp_path / FIRST)
    with pytest.raises(CapsuleError, match="a page shows up to 0 MB"):
        open_capsule(tmp_path, FIRST)
