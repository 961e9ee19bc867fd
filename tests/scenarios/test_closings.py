"""A client's socket that closes in every way at every stage: in good order, abruptly, or not at all (SPEC L6, case C35).

The real server and the real client over byte streams in memory, in virtual time.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import orjson
import pytest
import trio
from trio.testing import MockClock
from trio_websocket import ConnectionClosed, WebSocketConnection

from engine.elements import SpeechItem, Token
from engine.session.windowing import run_connection
from engine.store.documents import SessionState
from engine.testing.faults import FaultyStore, StoreCall
from engine.testing.scripted import ScriptedModel, answer, final, interim, speech
from engine.testing.stage import ScriptedManager, scripted_services
from tests.cases.support import Tools
from tests.engine.transport.stack import Stack, open_stack


@attrs.define(eq=False)
class Call:
    """A conversation under way."""

    model: ScriptedModel
    manager: ScriptedManager
    store: FaultyStore
    client: WebSocketConnection
    stream: Any
    """What the client's bytes go through."""
    heard: list[Any] = attrs.field(factory=list[Any])

    async def listen(self) -> None:
        try:
            while True:
                self.heard.append(orjson.loads(await self.client.get_message()))
        except ConnectionClosed:
            return


# --- stages, each a second or so after the one before ------------------------------------------------------------------------


async def opening(call: Call) -> None:
    await trio.sleep(1)


async def starting(call: Call) -> None:
    await trio.sleep(3)


async def connecting(call: Call) -> None:
    await trio.sleep(5)


async def waiting(call: Call) -> None:
    await trio.sleep(7)


async def in_mid_answer(call: Call) -> None:
    await waiting(call)
    call.model.session.say(interim(), final("tell me"))
    call.model.session.say(Token("A long story", "r1"), SpeechItem(speech(3000), 24000, "r1"))
    await trio.sleep(0.5)


async def tool_running(call: Call) -> None:
    await in_mid_answer(call)
    call.model.session.call_tool("c1", "slow", "{}")
    await trio.sleep(0.5)


async def extracting(call: Call) -> None:
    await waiting(call)
    call.model.session.say(interim(), final("tell me"))
    answer(call.model.session, "Here it is.", "r1")
    await trio.sleep(1)


async def saving(call: Call) -> None:
    await extracting(call)
    await trio.sleep(4.5)


async def after_exit(call: Call) -> None:
    """The client has said #exit and has not waited for what comes of it."""
    await in_mid_answer(call)
    await call.client.send_message('{"type":"token","text":"#exit"}')
    await trio.sleep(0.1)


STAGES = [opening, starting, connecting, waiting, in_mid_answer, tool_running, extracting, saving, after_exit]


Step = Callable[[Call], Awaitable[None]]

# --- ways ----------------------------------------------------------------------------------------------------------------------


async def by_frame(call: Call) -> None:
    with trio.move_on_after(2):
        await call.client.aclose()


async def abruptly(call: Call) -> None:
    await trio.aclose_forcefully(call.stream)


async def silently(call: Call) -> None:
    """The network is gone: nothing comes from the client any more, not even an answer to a ping."""

    async def into_nothing(_: object) -> None:
        await trio.lowlevel.checkpoint()

    call.stream.send_stream.send_all = into_nothing
    await trio.lowlevel.checkpoint()


DETECTED_AFTER: dict[Step, float] = {by_frame: 0.0, abruptly: 0.0, silently: 40.0}
"""Seconds: a ping every 20, and 20 more for its answer (L23)."""


def slow_store(call: StoreCall) -> float | None:
    return {"open_session": 2.0, "append_turns": 1.0}.get(call.operation)


async def slow_tool(_: object) -> str:
    await trio.sleep(60)
    return "done"


@pytest.mark.parametrize("reach", STAGES, ids=lambda step: step.__name__)
@pytest.mark.parametrize("close", DETECTED_AFTER, ids=lambda step: step.__name__)
async def test_a_socket_that_closes(
    close: Step,
    reach: Step,
    autojump_clock: MockClock,
) -> None:
    store, model = FaultyStore(slow_store), ScriptedModel(ready_after=2)
    manager = ScriptedManager(
        tool_box=Tools({"slow": slow_tool}), start_seconds=2, extraction_seconds=5, disconnect_seconds=0.5
    )
    services = scripted_services(model=model, managers=[manager], store=store)
    async with open_stack(run_connection, services=services) as stack:
        call = await ring(stack, model, manager, store)
        stack.clients.start_soon(call.listen)
        await reach(call)
        began = trio.current_time()
        await close(call)
        await stack.wait_idle()
        took = trio.current_time() - began

        session = await store.get_session("S")
        assert session is not None
        closed_it = reach is after_exit
        assert session.state is (SessionState.CLOSED if closed_it else SessionState.DISCONNECTED)
        # The clean-up limit, and the session-end timeout for one that was ended in good order.
        assert took <= DETECTED_AFTER[close] + 10 + (20 if closed_it else 0)
        has_run = bool(store.written_usage)
        assert has_run or (reach in (opening, starting) and close is not silently)
        assert [what for _, what in manager.ran if what == "disconnected"] == ["disconnected"] * has_run
        turns = await store.get_turns("S", limit=10)
        assert len(turns) == (0 if reach in (opening, starting, connecting, waiting) else 1)
        unsettled = "The session ended before this call did."
        if close is silently:  # it is noticed later than the tool's time is over
            unsettled = "Tool slow did not answer in 30 seconds."
        assert [tool.error for turn in turns for tool in turn.tools] == [unsettled] * (reach is tool_running)
        assert len(services.live) == 0


async def ring(stack: Stack, model: ScriptedModel, manager: ScriptedManager, store: FaultyStore) -> Call:
    stream = stack.dial()
    client = await stack.connect("/api/pipeline/agent:tester?sessionId=S&inputSampleRate=24000", stream=stream)
    return Call(model, manager, store, client, stream)
