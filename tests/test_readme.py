"""The README is true: what it shows is run as it stands there."""

import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.protocol.wav import read_wav, wav_bytes

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BIN = Path(sys.executable).parent
ENVIRONMENT = {
    "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
    "SOUFFLEUR_PORT": "0",
    "SOUFFLEUR_ADMIN_KEY": "the-admin-key-of-these-tests",  # else it would be made in the home directory
    "HOME": "/nonexistent",
}
LONGEST = 120
"""Seconds that a command may take on a busy machine; a bound against hanging, not a measurement."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    return [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture
def cafe(tmp_path: Path) -> Path:
    """A directory with the project file, the tool and a question, as the README has them."""
    (tmp_path / "cafe.yaml").write_text(blocks("yaml")[0])
    (tmp_path / "menu.py").write_text(next(block for block in blocks("python") if "menu.py" in block))
    (tmp_path / "question.wav").write_bytes(wav_bytes(bytes(2 * 16000), 16000))
    return tmp_path


@contextmanager
def served(command: Sequence[str], directory: Path, **environment: str) -> Generator[str]:
    """A server, as started by a person: its address, then Ctrl-C."""
    with subprocess.Popen(
        command, cwd=directory, env=ENVIRONMENT | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            address = next((line for line in process.stdout if line.startswith("listening on ")), None)
            assert address is not None, process.communicate()[1]
            yield address.split()[-1]
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=LONGEST)
            assert process.returncode == 0, errors
        finally:
            process.kill()


def run(command: str, directory: Path, stdin: str = "") -> str:
    done = subprocess.run(
        command.split(),
        cwd=directory,
        env=ENVIRONMENT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_agent_with_a_planner_is_right(tmp_path: Path) -> None:
    (tmp_path / "host.yaml").write_text(blocks("yaml")[1])
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "house.md").write_text("# The house\n\nWe have twelve tables.")
    assert run("souffleur check host.yaml", tmp_path) == "", "it has nothing to say against it"


def test_every_command_is_known_to_these_tests() -> None:
    assert commands() == [
        "./scripts/run",
        "./scripts/test",
        "souffleur simulate agent:barista --tester agent:caller --show",
        "souffleur talk agent:barista --text",
        "souffleur talk agent:barista --wav question.wav --out answer.wav",
        "souffleur serve --port 8080 --project cafe.yaml --store sqlite:cafe.db",
        "souffleur check cafe.yaml",
        "souffleur serve --record capsules",
        "souffleur replay capsules/NAME.capsule --diff",
    ]


@pytest.mark.voice
@pytest.mark.sockets
def test_the_first_command_runs(tmp_path: Path) -> None:
    with served(["./scripts/run"], ROOT, SOUFFLEUR_STORE=f"sqlite:{tmp_path}/demo.db") as address:
        with urllib.request.urlopen(address, timeout=LONGEST) as page:
            assert "Souffleur" in page.read().decode()


def test_the_second_command_is_what_is_checked() -> None:
    assert "scripts/test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.sockets
def test_talk_in_text(tmp_path: Path) -> None:
    said = run("souffleur talk agent:barista --text", tmp_path, "When are you open?\n")
    assert "you:   When are you open?" in said
    assert "agent: We are open every day from 8 am to 10 pm" in said
    assert "(the session has ended: the client ended the session)" in said


@pytest.mark.sockets
def test_talk_to_one_who_stops_reading(tmp_path: Path) -> None:
    command = "printf 'Hello.\\nWhen are you open?\\n' | souffleur talk agent:barista --text | head -n 1"
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert done.stdout == "you:   Hello.\n"
    assert "Traceback" not in done.stderr


def test_the_first_minute(tmp_path: Path) -> None:
    """What is said there is what the simulated guest hears, but for what depends on the day."""
    said = run("souffleur simulate agent:barista --tester agent:caller --show", tmp_path)
    shown = [line for line in blocks("text")[0].splitlines() if line.startswith(("agent: ", "tester: "))]
    assert len(shown) == 10
    for line in shown:
        words, *_ = line.split("  (")
        assert any(all(part.strip() in heard for part in words.split("…")) for heard in said.splitlines()), line
    assert "1 of 1 runs passed" in said


@pytest.mark.voice
@pytest.mark.sockets
def test_talk_with_a_file(cafe: Path) -> None:
    said = run("souffleur talk agent:barista --wav question.wav --out answer.wav", cafe)
    assert "agent: " in said
    pcm, rate = read_wav((cafe / "answer.wav").read_bytes())
    assert rate == 24000
    assert any(pcm)


@pytest.mark.sockets
def test_serve_a_project_of_ones_own(cafe: Path) -> None:
    command = ["souffleur", "serve", "--port", "0", "--project", "cafe.yaml", "--store", "sqlite:cafe.db"]
    with served(command, cafe) as address:
        with urllib.request.urlopen(f"{address}/api/agents", timeout=LONGEST) as answer:
            assert b'"waiter"' in answer.read()
    with sqlite3.connect(cafe / "cafe.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.sockets
def test_a_call_is_kept_and_run_again(tmp_path: Path) -> None:
    command = ["souffleur", "serve", "--record", "capsules", "--port", "0", "--store", "memory:"]
    with served(command, tmp_path) as address:
        words = "A table for two, please.\nTomorrow at seven.\nIn the name of Anna.\nIs there gluten in the soup?\n"
        said = run(f"souffleur talk agent:barista --text --url {address}", tmp_path, words)
    assert "you:   Is there gluten in the soup?" in said
    (capsule,) = (tmp_path / "capsules").iterdir()
    told = run(f"souffleur replay capsules/{capsule.name} --diff", tmp_path)
    assert told.startswith("equal: the client was told the same ")


def test_check_a_project(cafe: Path) -> None:
    assert run("souffleur check cafe.yaml", cafe) == ""


def test_a_session_in_a_program_of_ones_own(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(next(block for block in blocks("python") if "run_session" in block))
    said = run(f"{sys.executable} {program}", tmp_path)
    assert "We are open every day from 8 am to 10 pm" in said
    assert said.endswith("CLOSED\n")
