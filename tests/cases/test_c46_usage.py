"""C46: every token counts once, whatever became of the answer, and there is one record of it with the right tags."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from engine.elements import ControlToken, ResponseEnd, ResponseStatus, Token
from engine.protocol.usage import RunningTotals
from engine.testing.faults import FaultyStore
from engine.testing.scripted import ScriptedSession, answer, final, interim
from tests.scenarios.support import open_scene

Report = Callable[[int, int, int], None]


def per_response(session: ScriptedSession) -> Report:
    """A provider that says what each response has used."""

    def report(used_input: int, used_output: int, used_cached: int) -> None:
        session.usage.input += used_input
        session.usage.output += used_output
        session.usage.cached += used_cached

    return report


def running_totals(session: ScriptedSession) -> Report:
    """A provider that says what its connection has used so far; a resumed connection begins anew."""
    totals = RunningTotals()

    def report(total_input: int, total_output: int, total_cached: int) -> None:
        grown = totals.add(total_input, total_output, total_cached)
        per_response(session)(*grown)

    return report


@pytest.mark.parametrize(
    ("provider", "reports", "expected"),
    [
        (per_response, [(100, 50, 0), (80, 10, 0), (60, 0, 0), None], (240, 60, 0)),
        (running_totals, [(100, 20, 0), (100, 20, 0), (250, 60, 0), (30, 5, 0)], (280, 65, 0)),
        (per_response, [(100, 10, 40)], (100, 10, 40)),
    ],
    ids=["a: per response", "b: running totals", "c: cached"],
)
async def test_c46(
    provider: Callable[[ScriptedSession], Report],
    reports: list[tuple[int, int, int] | None],
    expected: tuple[int, int, int],
    autojump_clock: MockClock,
) -> None:
    store = FaultyStore()
    async with open_scene(store=store, session_id="S", test_mode=True) as stage:
        session = stage.model.session
        report = provider(session)
        for number, used in enumerate(reports):
            response_id = f"r{number}"
            session.say(interim(), final("tell me", response_id=response_id))
            match number:
                case 1:  # cancelled by the user
                    session.say(Token("One moment", response_id))
                    session.say(interim())
                case 2:
                    session.say(ResponseEnd(response_id, ResponseStatus.FAILED))
                case _:
                    answer(session, "Here.", response_id)
            if used is not None:
                report(*used)
            await trio.sleep(5)
        await stage.client.send(ControlToken("end"))
        await stage.over.wait()
    (record,) = store.written_usage
    assert (record.input_tokens, record.output_tokens, record.cached_tokens) == expected
    assert (record.provider, record.agent, record.project_ref, record.test_mode) == ("Scripted", "tester", "test", True)
    assert record.session_id == "S"


async def test_c46_each_run_of_a_session_has_a_record_of_its_own(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    for run in range(2):
        async with open_scene(store=store, session_id="S") as stage:
            per_response(stage.model.session)(10 * (run + 1), 1, 0)
            await stage.client.send(ControlToken("end"))
            await stage.over.wait()
    assert [(record.input_tokens, record.output_tokens) for record in store.written_usage] == [(10, 1), (20, 1)]
