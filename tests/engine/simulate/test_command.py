"""The command: exit codes, the table, the files."""

import json
import os
from pathlib import Path

import pytest

from engine.cli import DONE, FAILED, USAGE, main
from engine.elements import OutEvaluation
from engine.simulate.command import simulate_and_tell
from engine.simulate.conduct import Clock, Order
from engine.simulate.report import Report
from engine.testing.chat import call
from tests.engine.simulate.scene import WhisperingPlanner, cast, line_by_line, plan

PROJECT = """
project: {ref: cafe, name: Café}
realtimeConfigurations:
  - {id: offline, properties: {provider: Internal, sttProvider: None, chat: {provider: Demo}}}
agents:
  - {ref: barista, type: basic, name: Café, published: true, realtimeConfigurationId: offline, purpose: Book tables.}
  - {ref: caller, type: test, name: Ann, realtimeConfigurationId: offline, role: You want a table.}
"""


@pytest.fixture
def project(tmp_path: Path) -> str:
    path = tmp_path / "cafe.yaml"
    path.write_text(PROJECT)
    return str(path)


def simulate(project: str, *more: str) -> int:
    return main(["simulate", "agent:barista", "--tester", "agent:caller", "--project", project, *more])


def test_the_scripted_models_need_no_time(project: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever they say to each other."""
    file = tmp_path / "report.json"
    options = ["--runs", "2", "--seed", "3", "--max-turns", "2", "--report", str(file), "--show"]
    code = simulate(project, *options)
    report = Report.model_validate_json(file.read_text())
    assert code == (DONE if report.passed == 2 else FAILED)
    assert (report.clock, report.asked_runs, [run.seed for run in report.runs]) == ("virtual", 2, [3, 4])
    shown = capsys.readouterr().out
    for run in report.runs:
        assert not run.errors
        assert 1 <= run.turns <= 2
        assert all(line.text in shown for line in run.transcript)
    assert shown.endswith(f"{report.passed} of 2 runs passed; text, virtual time\n")
    assert {"agent", "askedRuns", "clock", "means", "runs"} <= json.loads(file.read_text()).keys()
    first = file.read_bytes()
    assert simulate(project, *options) == code
    assert file.read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["agent:nobody", "--tester", "agent:caller"],
            "there is no agent:nobody; the project files have agent:barista, agent:caller",
        ),
        (["agent:barista", "--tester", "agent:barista"], "--tester has to name an agent of type test"),
        (["barista", "--tester", "agent:caller"], "'barista' is no agent's key"),
    ],
)
def test_keys_that_are_wrong(
    project: str, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments, "--project", project]) == USAGE
    assert capsys.readouterr().err.startswith(f"souffleur: {sentence}")


@pytest.mark.parametrize(
    "option",
    [
        ["--runs", "0"],
        ["--parallel", "many"],
        ["--seed", "x"],
        ["--max-minutes", "0"],
        ["--max-turns", "-1"],
        ["--silence", "nan"],
        ["--patience", "-1"],
        ["--min-score", "1.1"],
        ["--clock", "slow"],
        ["--time-zone", "Mars"],
    ],
)
def test_options_that_are_wrong(project: str, option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        simulate(project, *option)
    assert caught.value.code == USAGE
    assert f"argument {option[0]}: " in capsys.readouterr().err


def test_a_tester_has_to_be_named(project: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["simulate", "agent:barista", "--project", project])
    assert caught.value.code == USAGE


def test_a_report_that_cannot_be_written_is_told_before(project: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(project, "--report", "nowhere/at/all.json") == FAILED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "the report cannot be written to nowhere/at/all.json" in captured.err


def test_a_project_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("nowhere.yaml") == FAILED
    assert "nowhere.yaml" in capsys.readouterr().err


def test_sessions_are_kept_where_they_are_asked_to_be(project: str, tmp_path: Path) -> None:
    assert simulate(project, "--max-turns", "1", "--store", f"sqlite:{tmp_path}/kept.db") != USAGE
    assert os.stat(tmp_path / "kept.db").st_size > 0


def test_what_people_read(tmp_path: Path) -> None:
    agent = line_by_line(["Hello."], ["The soup is lentil."], ["Bye.", call("finish_session", "f1")])
    played = cast(
        tmp_path,
        agent,
        line_by_line([0.5, "What\nnext?"]),
        planner=WhisperingPlanner([(4.0, "Say the soup.")]),
        evaluations=[OutEvaluation("goal", 0.75, ("All was well.",)), OutEvaluation("tone", 1.0)],
    )
    file, said = tmp_path / "report.md", list[str]()
    order = Order(plan(), seed=1, clock=Clock.VIRTUAL)
    assert simulate_and_tell(order, played.open, file, shows=False, say=said.append)
    assert said == [
        "run   seed    turns  ended by      seconds   first word  cut   whispers  tools  scores",
        "1     1       1      agent         4.5       0.00        0     1/1       1      goal 0.75 tone 1.00  passed",
        "mean          1.0                  4.5       0.00        0.0   1.0/1.0          goal 0.75 tone 1.00\n\n"
        "1 of 1 runs passed; text, virtual time",
    ]
    assert file.read_text() == (
        "# agent:barista with agent:caller\n\n"
        "| run | seed | turns | ended by | seconds | first word | cut | whispers | tools | scores |  |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| 1 | 1 | 1 | agent | 4.5 | 0.00 | 0 | 1/1 | 1 | goal 0.75 tone 1.00 | passed |\n\n"
        "1 of 1 runs passed; text, virtual time.\n\n"
        "## Run 1: passed\n\n"
        "- 0.0 s **agent**: Hello.\n"
        "- 4.0 s *whisper, INSTRUCTION*: Say the soup. (spoken as whisper-1)\n"
        "- 4.0 s **agent**: The soup is lentil.\n"
        "- 4.5 s **tester**: What next?\n"
        "- 4.5 s *agent, model*: `finish_session` success\n"
        "- 4.5 s **agent**: Bye.\n\n"
        "Ended by: agent. the agent ended the session.\n\n"
        "- judge **goal**: 0.75 All was well.\n"
        "- judge **tone**: 1.00\n"
    )
