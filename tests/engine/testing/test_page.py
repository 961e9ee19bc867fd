"""TESTING.md is true: its tests are run as they stand there, and it publishes the contract as it is checked."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import attrs
import pytest
import trio

from engine.capsule.keeper import Capsules
from engine.composition import open_services
from engine.config import PipelineConfiguration
from engine.elements import InputText
from engine.pipeline.line import open_line
from engine.principal import Principal
from engine.protocol.promises import STREAM_PROMISES
from engine.session.run import run_session
from engine.testing.contract import INVARIANTS, SessionRecord
from engine.testing.kill import Kill
from engine.testing.scripted import ScriptedClient

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = (ROOT / "TESTING.md").read_text()
TESTS = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL)
LONGEST = 120
"""Seconds that a command may take on a busy machine; a bound against hanging, not a measurement."""
ALONE = ("-p", "engine.testing.plugin")
BESIDE_TRIO = (*ALONE, "-p", "pytest_trio.plugin", "-o", "trio_mode=true")


def run_pytest(directory: Path, *arguments: str, fails: bool = False) -> str:
    """With the plugin and nothing that is installed besides."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *arguments],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert (done.returncode == 1) == fails, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def page(tmp_path: Path) -> Path:
    for name, text in TESTS:
        (tmp_path / name).write_text(text)
    trio.run(keep_a_call, tmp_path / "kept")
    (capsule,) = (tmp_path / "kept").iterdir()
    capsule.rename(tmp_path / "that-call.capsule")
    return tmp_path


async def keep_a_call(directory: Path) -> None:
    """A typed turn with the demo agent, as a program of one's own would hold it."""
    wishes = PipelineConfiguration(key="agent:barista", text_only=True)
    async with open_services(keep=Capsules(directory).keep) as services:
        line = open_line(wishes, services.settings)
        client = ScriptedClient(line)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.listen, name="client")
            await client.send(InputText("When are you open?"))
            line.end_input()
            with trio.fail_after(LONGEST):
                await run_session(wishes, line, services, principal=Principal("device:test"))
            line.end_output()


@pytest.mark.parametrize("plugins", [ALONE, BESIDE_TRIO], ids=["alone", "beside pytest-trio"])
def test_what_the_page_shows_runs(page: Path, plugins: tuple[str, ...]) -> None:
    assert "7 passed" in run_pytest(page, *plugins)
    assert "7 passed" in run_pytest(page, *plugins, "--souffleur-seed", "7")


def test_a_barge_in_takes_a_newcomer_fifteen_lines() -> None:
    name, text = TESTS[0]
    assert name == "test_story.py"
    assert len(text.strip().splitlines()) <= 15
    assert "sleep" not in text


def test_a_failure_tells_its_seed_and_its_timeline(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text(
        "async def test_wrong(souffleur):\n"
        "    async with souffleur('Good morning.') as stage:\n"
        "        await stage.client.says('Hello?')\n"
        "        await stage.client.hears('Good night')\n"
    )
    told = run_pytest(tmp_path, *ALONE, "--souffleur-seed", "7", fails=True)
    assert "the same again with --souffleur-seed 7" in told
    assert "AssertionError: a sentence with 'Good night' did not come within 60 s" in told
    assert "< 'Hello?'" in told
    assert "> agent 'Good morning.'  [turn-1 response-1]" in told


def test_a_broken_promise_fails_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text(
        "from engine.elements import OutCommand\n"
        "async def test_wrong(souffleur):\n"
        "    async with souffleur('Good morning.') as stage:\n"
        "        await stage.client.says('Hello?')\n"
        "        await stage.client.hears_end()\n"
        "        stage.client.line.put_output(OutCommand('exit', {'turnId': 'turn-9'}, 'turn-9'))\n"
    )
    assert "exit: turn turn-9 emitted nothing" in run_pytest(tmp_path, *ALONE, fails=True)


def test_the_page_has_the_contract_that_is_checked() -> None:
    table = PAGE[PAGE.index("## The contract") : PAGE.index("## Exploring")]
    assert re.findall(r"^\| `([\w-]+)` \| (.+?) \| (.+?) \| (.+?) \|$", table, re.MULTILINE) == [
        (each.id, each.promise, each.why, ", ".join(each.needs)) for each in INVARIANTS
    ]


def test_what_a_promise_needs_is_there() -> None:
    known = {field.name for field in attrs.fields(SessionRecord)} | {"stream"}
    assert {name for each in INVARIANTS for name in each.needs} <= known
    assert tuple(each.id for each in INVARIANTS if "stream" in each.needs) == STREAM_PROMISES


def test_the_commands_of_the_page_are_there() -> None:
    commands = re.findall(r"^\$ (scripts/\w+) ", PAGE, re.MULTILINE)
    assert commands == ["scripts/simulate", "scripts/kill_every_await"]
    for command in commands:
        assert (ROOT / command).stat().st_mode & 0o100


def test_the_page_has_every_kind_of_kill() -> None:
    table = PAGE[PAGE.index("| kill | what happens") :]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [kind.value for kind in Kill]


def test_pytest_finds_the_plugin_and_is_not_slowed_by_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"souffleur": "engine.testing.plugin"}
    program = (
        "import pytest, sys; before = set(sys.modules); import engine.testing.plugin; print(*set(sys.modules) - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=LONGEST, check=True
    )
    assert set(done.stdout.split()) <= {"engine", "engine.testing", "engine.testing.plugin"}
