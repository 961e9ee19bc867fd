"""Skills: which folders are some, what of them is read, and what the planner does with them."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.skills.folders import (
    MAX_DESCRIPTION,
    MAX_INSTRUCTIONS,
    MAX_RESOURCE_BYTES,
    MAX_RESOURCES,
    MAX_SKILL_BYTES,
    ResourceError,
    Skill,
    load_skills,
    read_resource,
    read_skills,
)
from agents.skills.tools import MAX_ACTIVE, ActiveSkills, SkillsToolBox
from engine.errors import ConfigurationError
from engine.interfaces import ToolError, UnknownToolError
from tests.agents.support import make_context

GOOD = "---\nname: refunds\ndescription: How to refund an order.\n---\n\n# Refunds\n\nAsk for the number.\n"


def write_skill(root: Path, text: str | bytes = GOOD, folder: str = "refunds") -> Path:
    place = root / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / "SKILL.md").write_bytes(text.encode() if isinstance(text, str) else text)
    return place


def faults_of(root: Path, *entries: str) -> list[str]:
    return [str(fault) for fault in read_skills(root, entries or ("refunds",))[1]]


def make_skill(folder: Path, name: str = "refunds") -> Skill:
    return load_skills(folder, [write_skill(folder, GOOD.replace("refunds", name, 1), name).name])[0]


# --- reading skills ----------------------------------------------------------------------------------------------------


def test_a_skill_is_read(tmp_path: Path) -> None:
    place = write_skill(tmp_path, folder="skills/refunds")
    (place / "forms").mkdir()
    for name in ("z.txt", "forms/letter.md", ".hidden", "forms/.DS_Store"):
        (place / name).write_text("x")
    (skill,) = load_skills(tmp_path, ["skills/refunds/"])
    assert (skill.name, skill.description) == ("refunds", "How to refund an order.")
    assert skill.instructions == "# Refunds\n\nAsk for the number."
    assert skill.folder == place.resolve()
    assert skill.resources == ("forms/letter.md", "z.txt")


def test_front_matter_may_hold_more_and_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    write_skill(
        tmp_path,
        b"\xef\xbb\xbf---\r\nname: refunds\r\ndescription: >\r\n  Over two\r\n  lines.\r\nlicense: MIT\r\n---\r\nDo.\r\n---\r\nMore.",
    )
    (skill,) = load_skills(tmp_path, ["refunds"])
    assert (skill.name, skill.description) == ("refunds", "Over two lines.")
    assert skill.instructions == "Do.\r\n---\r\nMore."


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("# Refunds", "1:1: must begin with its name and description, between two lines of ---"),
        ("", "1:1: must begin with its name and description, between two lines of ---"),
        ("\n" + GOOD, "1:1: must begin with its name and description, between two lines of ---"),
        ("---\nname: a\n", "1:1: must begin with its name and description, between two lines of ---"),
        ("---\n---\nDo.", "2:1: is empty"),
        ("---\nname\n---\nDo.", "2:1: must hold name and description, each with its text"),
        ("---\ndescription: d\n---\nDo.", "2:1: missing field 'name'"),
        ("---\nname: a\n---\nDo.", "2:1: missing field 'description'"),
        ("---\nname: a\ndescription: ' '\n---\nDo.", "3:14: description must not be blank"),
        ("---\nname: 12\ndescription: d\n---\nDo.", "2:7: name must be text; put it in quotes"),
        (
            "---\nname: a b\ndescription: d\n---\nDo.",
            "2:7: name may hold only letters, digits and . _ -, at most 64",
        ),
        (
            "---\nname: a\nname: b\ndescription: d\n---\nDo.",
            "3:1: the key 'name' is here twice; the first one is on line 1",
        ),
        ("---\nname: [\n---\nDo.", "2:8: "),
        ("---\nname: a\ndescription: d\n---\n \n", "4:1: has no instructions below its front matter"),
        (b"---\nname: a\ndescription: \xff\n---\nDo.", "3:1: is not UTF-8 text"),
        (
            f"---\nname: a\ndescription: {'d' * (MAX_DESCRIPTION + 1)}\n---\nDo.",
            f"3:14: description is longer than {MAX_DESCRIPTION} characters",
        ),
        (
            "---\nname: a\ndescription: d\n---\n" + "D" * (MAX_INSTRUCTIONS + 1),
            f"5:1: has more than {MAX_INSTRUCTIONS} characters of instructions; put what is not always needed into a file beside it",
        ),
        (
            GOOD + "x" * MAX_SKILL_BYTES,
            "1:1: is larger than 64 KiB; put what is not always needed into a file beside it",
        ),
    ],
)
def test_what_is_no_skill(tmp_path: Path, text: str | bytes, fault: str) -> None:
    write_skill(tmp_path, text)
    (found,) = faults_of(tmp_path)
    assert found.startswith(f"refunds/SKILL.md:{fault}")


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    write_skill(tmp_path)
    write_skill(tmp_path, folder="copy")
    write_skill(tmp_path, "---\nname: a b\n---\n", folder="bad")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "fifo").mkdir()
    os.mkfifo(tmp_path / "fifo" / "SKILL.md")
    entries = ["refunds", "copy", "bad", "empty", "nowhere", "file", "fifo", "..", "a\0b"]
    skills, faults = read_skills(tmp_path, entries)
    assert [skill.name for skill in skills] == ["refunds"]
    assert [(fault.place, str(fault)) for fault in faults] == [
        (1, "copy/SKILL.md:2:7: the name refunds is taken by refunds"),
        (2, "bad/SKILL.md:2:1: missing field 'description'"),
        (2, "bad/SKILL.md:2:7: name may hold only letters, digits and . _ -, at most 64"),
        (2, "bad/SKILL.md:3:1: has no instructions below its front matter"),
        (3, "empty/SKILL.md:1:1: cannot be read: No such file or directory"),
        (4, "nowhere:1:1: cannot be read: No such file or directory"),
        (5, "file:1:1: is no folder; a skill is a folder with a SKILL.md"),
        (6, "fifo/SKILL.md:1:1: is no file"),
        (7, "..:1:1: leads out of the project's directory"),
        (8, "a\0b:1:1: cannot be read: embedded null byte"),
    ]
    with pytest.raises(ConfigurationError, match=r"the skills cannot be loaded:\ncopy/SKILL\.md:2:7: the name"):
        load_skills(tmp_path, entries)


def test_links_do_not_lead_out(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    write_skill(outside)
    project.mkdir()
    (project / "linked").symlink_to(outside / "refunds")
    (project / "circle").symlink_to(project / "circle")
    (project / "half").mkdir()
    (project / "half" / "SKILL.md").symlink_to(outside / "refunds" / "SKILL.md")
    assert faults_of(project, "linked", "half", str(outside / "refunds")) == [
        "linked:1:1: leads out of the project's directory",
        "half/SKILL.md:1:1: leads out of the skill's folder",
        f"{outside / 'refunds'}:1:1: leads out of the project's directory",
    ]
    assert "circle:1:1: cannot be read" in faults_of(project, "circle")[0]


def test_only_so_many_resources_are_told_of(tmp_path: Path) -> None:
    place = write_skill(tmp_path)
    for number in range(MAX_RESOURCES + 10):
        (place / f"{number:03}.txt").write_text("x")
    (place / "loop").symlink_to(place)
    (skill,) = load_skills(tmp_path, ["refunds"])
    assert len(skill.resources) == MAX_RESOURCES


# --- resources ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def skill(tmp_path: Path) -> Skill:
    place = write_skill(tmp_path / "project")
    (tmp_path / "project" / "secret.txt").write_text("secret")
    (place / "sub").mkdir()
    (place / "sub" / "a.md").write_text("žluť", encoding="utf-8")
    (place / "binary").write_bytes(b"\x89PNG\0")
    (place / "latin").write_bytes("žluť".encode("cp1250"))
    (place / "large").write_bytes(b"x" * (MAX_RESOURCE_BYTES + 1))
    (place / "full").write_bytes(b"x" * MAX_RESOURCE_BYTES)
    (place / "out").symlink_to(tmp_path / "project" / "secret.txt")
    (place / "inside").symlink_to("sub/a.md")
    (place / "up").symlink_to("..")
    (place / "circle").symlink_to("circle")
    os.mkfifo(place / "pipe")
    return load_skills(tmp_path / "project", ["refunds"])[0]


def test_resources_are_read(skill: Skill) -> None:
    assert skill.resources == ("binary", "full", "inside", "large", "latin", "sub/a.md")
    assert read_resource(skill, "sub/a.md") == "žluť"
    assert read_resource(skill, " ./sub//a.md ") == "žluť"
    assert read_resource(skill, "inside") == "žluť"
    assert len(read_resource(skill, "full")) == MAX_RESOURCE_BYTES


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("../secret.txt", "A resource is named by its path inside the skill's folder. There are: binary, full, "),
        ("sub/../../secret.txt", "A resource is named by its path inside the skill's folder."),
        ("/etc/passwd", "A resource is named by its path inside the skill's folder."),
        ("..\\secret.txt", "A resource is named by its path inside the skill's folder."),
        ("a\0", "A resource is named by its path inside the skill's folder."),
        ("", "A resource is named by its path inside the skill's folder."),
        ("out", "out leads out of the skill's folder; it may not be read."),
        ("up/secret.txt", "up/secret.txt leads out of the skill's folder; it may not be read."),
        ("circle", "circle cannot be read."),
        ("nothing.md", "The skill refunds has no resource nothing.md. There are: binary, "),
        ("sub/a.md/b", "The skill refunds has no resource sub/a.md/b."),
        ("x" * 300, "x"),
        ("sub", "sub is no file."),
        ("pipe", "pipe is no file."),
        ("binary", "binary is no text, and only text can be read."),
        ("latin", "latin is no text, and only text can be read."),
        ("large", "large is larger than 64 KiB; that is too much to be read here."),
    ],
)
def test_what_is_no_resource(skill: Skill, path: str, message: str) -> None:
    with pytest.raises(ResourceError) as caught:
        read_resource(skill, path)
    assert str(caught.value).startswith(message)


@given(
    st.lists(st.sampled_from(["..", ".", "/", "up", "out", "sub", "a.md", "secret.txt", "\\", " ", "~"]), max_size=8)
)
def test_nothing_outside_is_ever_read(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    root = tmp_path_factory.getbasetemp() / "properties"
    if not root.exists():
        place = write_skill(root)
        (root / "secret.txt").write_text("secret")
        (place / "up").symlink_to("..")
        (place / "out").symlink_to("../secret.txt")
    (found,) = load_skills(root, ["refunds"])
    for path in ("/".join(parts), "".join(parts)):
        try:
            text = read_resource(found, path)
        except ResourceError:
            continue
        assert text != "secret"


# --- the planner's tools -----------------------------------------------------------------------------------------------


async def call(box: SkillsToolBox, tool: str, /, **arguments: str) -> object:
    return (await box.call(tool, arguments, make_context())).output


async def test_skills_are_taken_up_and_put_away(tmp_path: Path) -> None:
    refunds = attach(make_skill(tmp_path), "form.md")
    other = make_skill(tmp_path, "other")
    active = ActiveSkills()
    box = SkillsToolBox([refunds, other], active)
    assert [each.name for each in box.specifications] == ["activate_skill", "deactivate_skill", "read_skill_resource"]
    assert box.describe() == "- refunds: How to refund an order.\n- other: How to refund an order."
    assert await call(box, "activate_skill", name="refunds") == {
        "skill": "refunds",
        "instructions": "# Refunds\n\nAsk for the number.",
        "resources": ["form.md"],
    }
    await call(box, "activate_skill", name="refunds")
    assert active.names == ["refunds"]
    assert SkillsToolBox([refunds, other], active).describe() == (
        "- refunds (active): How to refund an order.\n- other: How to refund an order.\n\n"
        '<skill name="refunds">\n# Refunds\n\nAsk for the number.\n\nResources of refunds: form.md\n</skill>'
    )
    assert await call(box, "read_skill_resource", skill="refunds", path="form.md") == "of form.md"
    assert await call(box, "deactivate_skill", name="refunds") == "The skill refunds is not active any more."
    assert active.names == []


def attach(skill: Skill, name: str) -> Skill:
    (skill.folder / name).write_text(f"of {name}")
    return load_skills(skill.folder.parent, [skill.folder.name])[0]


async def test_what_cannot_be_done(tmp_path: Path) -> None:
    skills = [make_skill(tmp_path, f"s{number}") for number in range(MAX_ACTIVE + 1)]
    box = SkillsToolBox(skills, ActiveSkills())
    with pytest.raises(ToolError, match=r"There is no skill nothing\. There are: s0, s1, s2, s3, s4\."):
        await call(box, "activate_skill", name="nothing")
    with pytest.raises(ToolError, match="The skill s0 is not active"):
        await call(box, "deactivate_skill", name="s0")
    with pytest.raises(ToolError, match="There is no skill nothing"):
        await call(box, "read_skill_resource", skill="nothing", path="x")
    with pytest.raises(ToolError, match=r"has no resource x\. There are none\."):
        await call(box, "read_skill_resource", skill="s0", path="x")
    for number in range(MAX_ACTIVE):
        await call(box, "activate_skill", name=f"s{number}")
    with pytest.raises(ToolError, match=r"There are 4 active skills already \(s0, s1, s2, s3\); deactivate one first"):
        await call(box, "activate_skill", name="s4")
    with pytest.raises(UnknownToolError):
        await call(box, "unknown")


def test_a_skill_that_has_gone_is_not_active(tmp_path: Path) -> None:
    """What was active before a reconnect may not be in the project any more."""
    box = SkillsToolBox([make_skill(tmp_path)], ActiveSkills(["gone", "refunds"]))
    assert [each.name for each in box.active] == ["refunds"]


async def test_without_skills_there_are_no_tools() -> None:
    box = SkillsToolBox([], ActiveSkills())
    assert (list(box.specifications), box.describe()) == ([], "")
    with pytest.raises(UnknownToolError):
        await call(box, "activate_skill", name="x")
