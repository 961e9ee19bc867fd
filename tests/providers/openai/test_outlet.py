"""What a session has to say, on its way to an engine that takes its time."""

import trio
import trio.testing

from engine.elements import RealtimeElement, Token
from engine.interfaces import ToolCall
from providers.openai.conversation import Emit, StartCall
from providers.openai.outlet import Outlet


async def test_several_tasks_wait_until_everything_was_taken(autojump_clock: trio.testing.MockClock) -> None:
    """The one that reads the provider and the one that takes the inputs; each had kept the other from being woken."""
    send, receive = trio.open_memory_channel[RealtimeElement](0)
    outlet = Outlet(send, lambda call: None)
    woken: list[str] = []

    async def wait(name: str) -> None:
        await outlet.flushed()
        woken.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run)
        for number in range(3):
            outlet.put(Emit(Token(str(number), "r1")))
        for name in ("reader", "inputs"):
            nursery.start_soon(wait, name)
            await trio.testing.wait_all_tasks_blocked()
        assert [await receive.receive() for _ in range(2)] == [Token("0", "r1"), Token("1", "r1")]
        await trio.testing.wait_all_tasks_blocked()
        assert woken == []
        await receive.receive()
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(woken) == ["inputs", "reader"]
        outlet.put(Emit(Token("3", "r1")))
        nursery.start_soon(wait, "again")
        await trio.testing.wait_all_tasks_blocked()
        await receive.receive()
        await trio.testing.wait_all_tasks_blocked()
        assert woken[2:] == ["again"]
        nursery.cancel_scope.cancel(reason="the test is over")


async def test_calls_start_in_their_place(autojump_clock: trio.testing.MockClock) -> None:
    send, receive = trio.open_memory_channel[RealtimeElement](0)
    started: list[ToolCall] = []
    outlet = Outlet(send, started.append)
    call = ToolCall("c1", "look", "{}", "r1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run)
        outlet.put(Emit(Token("Let me see.", "r1")))
        outlet.put(StartCall(call))
        await trio.testing.wait_all_tasks_blocked()
        assert started == [], "what was said before has not been taken"
        await receive.receive()
        await outlet.flushed()
        assert started == [call]
        nursery.cancel_scope.cancel(reason="the test is over")
