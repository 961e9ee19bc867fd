"""Audio takes the short way, through the door's task, and nothing else of it changes: its order, its bounds, its filters (L10)."""

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import PipelineConfiguration, Settings
from engine.elements import Commit, InputAudio, InputElement, InputText, Interrupted, RealtimeElement, UserSpeech
from engine.interfaces import Context, SessionInput, StartTool, SystemPrompt, ToolBox
from engine.pipeline.line import open_line
from engine.testing.scripted import ScriptedModel, ScriptedRecognizer, ScriptedSession
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


# --- a session that takes audio at once ----------------------------------------------------------------------------------


class QuickSession(ScriptedSession):
    """Ready after a second, and takes audio at once when it is told to; works on every input for a second, too."""

    takes = True

    def take_audio(self, audio: InputAudio) -> bool:
        if self.takes:
            self.received.append((trio.current_time(), audio))
        return self.takes

    async def run(
        self,
        inputs: trio.MemoryReceiveChannel[SessionInput],
        elements: trio.MemorySendChannel[RealtimeElement],
        start_tool: StartTool,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        await trio.sleep(1)
        task_status.started()
        async for item in inputs:
            self.received.append((trio.current_time(), item))
            await trio.sleep(1)


class QuickModel(ScriptedModel):
    def process(
        self, context: Context, system_prompt: SystemPrompt, tool_box: ToolBox, can_delegate: bool = False
    ) -> ScriptedSession:
        self.sessions.append(QuickSession(context, system_prompt, tool_box))
        return self.session


async def test_a_session_takes_a_frame_before_any_task_has_run(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stage(model=QuickModel()) as stage:
        await trio.sleep(2)
        with trio.CancelScope() as scope:
            scope.cancel(reason="nothing that waits comes back")
            await stage.client.send(InputAudio(FRAME))
        assert not scope.cancelled_caught
        assert stage.model.session.received == [(2, InputAudio(FRAME))]


async def test_it_gets_nothing_before_it_is_ready(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stage(model=QuickModel()) as stage:
        await stage.client.send(InputAudio(FRAME))
        await trio.sleep(2)
        assert stage.model.session.received == [(1, InputAudio(FRAME))]


async def test_with_recognition_of_the_engine_it_gets_no_audio(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stage(model=QuickModel(), recognizer=ScriptedRecognizer(24000)) as stage:
        await trio.sleep(2)
        await stage.client.send(InputAudio(FRAME))
        await trio.sleep(1)
        assert stage.model.session.received == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["audio", "commit", "takes", "takes not", "0.5", "2"]), max_size=25))
def test_what_is_taken_at_once_overtakes_nothing(steps: list[str]) -> None:
    async def run() -> None:
        async with open_stage(model=QuickModel(), settings=Settings(model_input_channel=3)) as stage:
            await trio.sleep(2)
            session = stage.model.session
            assert isinstance(session, QuickSession)
            sent: list[int] = []
            for step in steps:
                if step == "audio":
                    sent.append(len(sent) + 1)
                    await stage.client.send(InputAudio(len(sent).to_bytes(2, "little")))
                elif step == "commit":
                    sent.append(0)
                    await stage.client.send(Commit())
                elif step.startswith("takes"):
                    session.takes = step == "takes"
                else:
                    await trio.sleep(float(step))
            await trio.sleep(100)
            got: list[int] = []
            for _, item in session.received:
                data = item.data if isinstance(item, InputAudio) else bytes(2)
                got += [int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2)]
            assert got == sent

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


# --- the line, without a session -----------------------------------------------------------------------------------------

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
