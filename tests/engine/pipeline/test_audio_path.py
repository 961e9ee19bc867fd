"""Audio takes the short way, through the door's task, and nothing else of it changes: its order, its bounds, its filters (L10)."""

import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.config import PipelineConfiguration, Settings
from engine.elements import Commit, InputAudio, InputElement, InputText, Interrupted, UserSpeech
from engine.interfaces import Context
from engine.pipeline.line import open_line
from engine.testing.stage import open_stage

FRAME = b"\x01\x00" * 480


async def test_a_frame_is_with_the_model_before_any_other_task_has_run(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_stage() as stage:
        await stage.client.send(InputAudio(FRAME))
        assert len(stage.client.line.inbox) == 0
        await trio.testing.wait_all_tasks_blocked()
        assert [item for _, item in stage.model.session.received] == [InputAudio(FRAME)]


async def test_what_the_model_has_no_room_for_waits_in_its_place(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stage(settings=Settings(model_input_channel=2)) as stage:
        frames = [InputAudio(bytes([number, 0]) * 480) for number in range(6)]
        await stage.client.send(*frames[:4], InputText("two coffees"), *frames[4:])
        assert len(stage.client.line.inbox) == 3
        await trio.testing.wait_all_tasks_blocked()
        received = [item for _, item in stage.model.session.received]
        assert [item for item in received if not isinstance(item, InputAudio)] == [
            Interrupted(),
            UserSpeech("two coffees", "Client"),
        ]
        at = received.index(Interrupted())
        before = [item.data for item in received[:at] if isinstance(item, InputAudio)]
        after = [item.data for item in received[at:] if isinstance(item, InputAudio)]
        assert b"".join(before) == b"".join(frame.data for frame in frames[:4])
        assert b"".join(after) == b"".join(frame.data for frame in frames[4:])


async def test_filters_see_every_frame(autojump_clock: trio.testing.MockClock) -> None:
    async def drop_every_second(element: InputElement, _: Context) -> InputElement | None:
        seen.append(element)
        await trio.lowlevel.checkpoint()
        return element if len(seen) % 2 else None

    seen: list[InputElement] = []
    async with open_stage(filters=[drop_every_second]) as stage:
        for _ in range(4):
            await stage.client.send(InputAudio(FRAME))
            await trio.testing.wait_all_tasks_blocked()
        assert seen == [InputAudio(FRAME)] * 4
        assert [item for _, item in stage.model.session.received] == [InputAudio(FRAME)] * 2


async def test_what_comes_after_the_session_is_not_taken_into_it(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stage() as stage:
        stage.client.end()
        await trio.testing.wait_all_tasks_blocked()
        assert stage.client.line.take_audio is None


STEPS = st.lists(st.one_of(st.sampled_from(["audio", "audio at once", "commit"]), st.just("take")), max_size=30)


@given(STEPS)
def test_no_frame_overtakes_what_came_before_it(steps: list[str]) -> None:
    """Whenever audio could be taken at once, and however slow the session is."""
    order: list[int] = []
    can_take = False

    def number_of(element: InputAudio) -> int:
        return int.from_bytes(element.data, "little")

    def take_audio(element: InputAudio) -> bool:
        if can_take:
            order.append(number_of(element))
        return can_take

    async def run() -> int:
        nonlocal can_take
        line = open_line(PipelineConfiguration(), Settings())
        line.take_audio = take_audio
        may_take = trio.Semaphore(0)

        async def session() -> None:
            while True:
                element = await line.take_input()
                if isinstance(element, InputAudio):  # neighbouring frames are joined
                    order.extend(
                        int.from_bytes(element.data[at : at + 2], "little") for at in range(0, len(element.data), 2)
                    )
                else:
                    order.append(-1)
                await may_take.acquire()  # the element is in hand for so long

        sent = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session)
            for step in steps:
                if step == "take":
                    may_take.release()
                    await trio.testing.wait_all_tasks_blocked()
                elif step == "commit":
                    await line.put_input(Commit())
                    commits.append(sent)
                else:
                    can_take = step == "audio at once"
                    await line.put_input(InputAudio(sent.to_bytes(2, "little")))
                    sent += 1
            can_take = False
            for _ in steps:
                may_take.release()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel(reason="all was taken")
        return sent

    commits: list[int] = []
    sent = trio.run(run)
    assert [number for number in order if number >= 0] == list(range(sent))
    assert [sum(n >= 0 for n in order[:at]) for at, number in enumerate(order) if number < 0] == commits
