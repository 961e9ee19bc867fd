"""The two setups without an agent (R16)."""

import trio

from agents.preview import PreviewInteractionManager
from agents.smoke import BasicInteractionManager
from engine.elements import RealtimeCommand, RealtimeInstruction
from engine.interfaces import BlankPlanningManager, EmptyToolBox, PlanningElement, TurnInput
from tests.agents.support import MODEL, make_context


async def test_the_preview_says_one_sentence_in_the_locale_asked_for() -> None:
    manager = PreviewInteractionManager()
    context = make_context(locales=("en-GB", "cs"))

    made = await manager.get_system_prompt(context, MODEL)

    assert manager.setups == {"realtime-preview"}
    assert manager.content_classes == ()
    assert made.template_id == "preview"
    assert "one short, friendly sentence in English (en-GB)" in made.text
    assert "accent that is at home where the locale en-GB is spoken" in made.text
    assert made.text.endswith("Then stop and say nothing more.")
    assert isinstance(manager.get_tool_box(context), EmptyToolBox)
    assert isinstance(manager.planning_manager, BlankPlanningManager)


async def test_the_preview_has_no_hooks() -> None:
    manager = PreviewInteractionManager()

    async def emit(element: PlanningElement) -> None:
        await trio.lowlevel.checkpoint()
        raise AssertionError("nothing is emitted")

    async def steer(instruction: RealtimeInstruction) -> None:
        await trio.lowlevel.checkpoint()
        raise AssertionError("nothing is steered")

    await manager.on_session_start(make_context())
    await manager.process(make_context(), TurnInput("t1", "hello", ()), emit)
    await manager.turn_end(make_context(), steer)
    await manager.on_session_disconnect(make_context())


async def test_the_smoke_test_has_a_minimal_prompt_and_no_tools() -> None:
    manager = BasicInteractionManager()

    made = await manager.get_system_prompt(make_context(), MODEL)

    assert manager.setups == {"realtime"}
    assert manager.content_classes == ()
    assert (
        made.text == "You are a voice assistant. Answer in English (en), in one short sentence without any formatting."
    )
    assert isinstance(manager.get_tool_box(make_context()), EmptyToolBox)


async def test_the_smoke_test_emits_one_delayed_command_per_turn(autojump_clock: trio.testing.MockClock) -> None:
    emitted: list[tuple[float, PlanningElement]] = []

    async def emit(element: PlanningElement) -> None:
        await trio.lowlevel.checkpoint()
        emitted.append((trio.current_time(), element))

    manager = BasicInteractionManager()
    await manager.process(make_context(), TurnInput("t7", "hello", ("Hi.",)), emit)
    with trio.move_on_after(0.9):  # a barge-in
        await manager.process(make_context(), TurnInput("t8", "hello", ("Hi.",)), emit)

    assert emitted == [(1.0, RealtimeCommand("smoke", {"turnId": "t7"}))]
    assert trio.current_time() == 1.9
