"""A session that was kept is run again, and does the same."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from engine.capsule.codec import CapsuleError, plain
from engine.capsule.file import Capsule, Kind, Record
from engine.capsule.keeper import MemoryCapsules
from engine.capsule.replay import Replayed, replay
from engine.capsule.report import report_lines
from engine.elements import (
    InputText,
    InstructionType,
    JsonObject,
    OutCommand,
    OutText,
    RealtimeInstruction,
)
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import (
    Context,
    Emit,
    PlanningManager,
    ToolBox,
    ToolError,
    ToolResult,
    ToolSpecification,
    TurnInput,
)
from engine.session.live import revoked
from engine.session.services import Parts
from engine.testing.faults import Fault, FaultyStore, StoreCall
from engine.testing.schedule import run_repeatably
from engine.testing.scripted import final, interim
from engine.testing.speaker import ConversingModel, Use
from engine.testing.stage import ScriptedManager, Stage, open_stage
from tests.engine.capsule.kept import keep, parts_of, run_again, seeds

Talk = Callable[[Stage], Awaitable[None]]


class Tools(ToolBox):
    @property
    def specifications(self) -> tuple[ToolSpecification, ...]:
        return (ToolSpecification("look_up", "Look up.", {"type": "object"}),)

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        await trio.sleep(0.3)
        if context.turn_id.endswith("A"):
            raise ToolError("No.")
        return ToolResult({"free": ["blue"]})


class Planner(PlanningManager):
    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        await trio.sleep(0.5)
        await emit(RealtimeInstruction(f"About {turn.text}.", InstructionType.SUPPORTING_CONTEXT))


def manager() -> ScriptedManager:
    return ScriptedManager(tool_box=Tools(), planner=Planner())


def model() -> ConversingModel:
    return ConversingModel(
        lambda request: ["I look.", Use("look_up"), 0.2, "The blue room is free, and it is quiet there."]
    )


def parts() -> Parts:
    """What is installed where a capsule is run again: the model is asked for nothing."""
    return Parts(models={"Scripted": ConversingModel("Nothing.")}, managers=[manager()])


async def converse(capsules: MemoryCapsules, talk: Talk, **more: Any) -> None:
    parts: dict[str, Any] = {"model": model(), "manager": manager(), "keep": capsules.keep, "tokens": True, **more}
    async with open_stage(**parts) as stage:
        await talk(stage)
        await stage.client.wait_for_command("session-end")


def kept(talk: Talk, **more: Any) -> Capsule:
    capsules = seeds()
    run_repeatably(0, partial(converse, capsules, talk, **more))
    (capsule,) = capsules.capsules
    return capsule


async def a_visit(stage: Stage) -> None:
    await stage.client.send(InputText("Which rooms are free?"))
    await trio.sleep(1.37)
    await stage.client.send(InputText("Only quiet ones."))
    await trio.sleep(6)
    stage.client.line.end_input()


async def gone_in_the_middle(stage: Stage) -> None:
    await stage.client.send(InputText("Which rooms are free?"))
    await trio.sleep(1.1)
    stage.vanish()
    await stage.over.wait()


async def cut_off(stage: Stage) -> None:
    await stage.client.send(InputText("Which rooms are free?"))
    await trio.sleep(1.1)
    for session in stage.services.live.all:
        session.end(revoked())


async def failed(stage: Stage) -> None:
    await stage.client.send(InputText("Which rooms are free?"))
    await trio.sleep(1.1)
    stage.model.session.fail(RealtimeException(ErrorCode.PROVIDER_QUOTA, "Nothing is left."))


async def heard_of(stage: Stage) -> None:
    await stage.client.send(InputText("Which rooms are free?"))
    await trio.sleep(1.1)
    (session,) = stage.services.live.all
    assert session.take_event is not None
    await session.take_event({"kind": "paid"})
    await trio.sleep(3)
    stage.client.line.end_input()


@pytest.mark.parametrize("talk", [a_visit, gone_in_the_middle, cut_off, failed, heard_of])
def test_it_does_the_same(talk: Talk) -> None:
    capsule = kept(talk)
    result = replay(capsule, parts())
    assert result.divergence is None
    assert (result.told, result.is_whole) == (result.expected, True)
    assert result.expected > 20
    assert result.lateness < 1e-6


def test_a_store_fails_again_where_it_failed() -> None:
    faults = iter([Fault.FAIL, Fault.FAIL])

    def plan(call: StoreCall) -> Fault | float | None:
        return next(faults, None) if call.operation == "append_turns" else 0.05

    capsule = kept(a_visit, store=FaultyStore(plan))
    assert any(record.kind is Kind.FAILED for record in capsule.records)
    assert replay(capsule, parts()).divergence is None


async def chat_without_turns(stage: Stage) -> None:
    stage.model.session.say(interim(), final("Hello"))
    await trio.sleep(3)
    stage.client.line.end_input()


def test_a_session_without_turns() -> None:
    from engine.testing.scripted import ScriptedModel

    capsule = kept(chat_without_turns, turnless=True, model=ScriptedModel())
    assert replay(capsule, parts()).divergence is None


class Careless(ScriptedManager):
    """What it does with an event takes long, and fails."""

    async def on_chat_event(self, context: Context, event: JsonObject) -> None:
        await trio.sleep(2)
        raise ValueError("not this one")


async def told_while_talking(stage: Stage) -> None:
    (session,) = stage.services.live.all
    assert session.take_event is not None

    async def send() -> None:
        assert session.take_event is not None
        with pytest.raises(ValueError, match="not this one"):
            await session.take_event({"kind": "paid"})

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await trio.sleep(0.5)
        await stage.client.send(InputText("Which rooms are free?"))
        await trio.sleep(4)
    stage.client.line.end_input()


def test_an_event_that_fails_holds_up_nobody() -> None:
    capsule = kept(told_while_talking, manager=Careless(tool_box=Tools(), planner=Planner()))
    again = Parts(models=parts().models, managers=[Careless(tool_box=Tools(), planner=Planner())])
    result = replay(capsule, again)
    assert result.divergence is None
    assert result.told == result.expected > 10


@pytest.mark.parametrize("seed", range(12))
def test_conversations_of_the_exploration(seed: int) -> None:
    """Interruptions, faults, planners and tools, all of them with what happens at the same instant, in its order."""
    for capsule in keep(seed)[:1]:
        assert run_again(capsule, seed).divergence is None


def test_a_run_is_the_same_each_time() -> None:
    (capsule,) = keep(58)
    assert run_again(capsule, 58) == run_again(capsule, 58)


# --- what is different is found ------------------------------------------------------------------------------------------


def first(capsule: Capsule, wanted: Callable[[Record], bool]) -> int:
    return next(number for number, record in enumerate(capsule.records) if wanted(record))


def changed(capsule: Capsule, number: int, *fields: Any) -> Capsule:
    records = list(capsule.records)
    records[number] = attrs.evolve(records[number], fields=fields)
    return attrs.evolve(capsule, records=tuple(records))


def says(record: Record, text: str) -> bool:
    return record.kind is Kind.OUT and text in str(record.fields[0])


def test_another_word_is_the_first_divergence() -> None:
    capsule = kept(a_visit)
    number = first(capsule, lambda record: says(record, "OutText"))
    told = sum(record.kind in (Kind.OUT, Kind.CUT) for record in capsule.records[:number])
    other = plain(OutText("I looked.", "t", "r"))
    result = replay(changed(capsule, number, other), parts())
    assert result.divergence is not None
    assert (result.told, result.divergence.what) == (told, "the client is told something else")
    assert result.divergence.expected == ("out", other)
    assert result.divergence.found == ("out", capsule.records[number].fields[0])
    assert result.divergence.at == pytest.approx(capsule.records[number].at)
    lines = list(report_lines(changed(capsule, number, other), result, shows_difference=True))
    assert lines[0] == (
        f"different at {result.divergence.at:.3f} s of {result.seconds:.1f} s, after {told} of {result.expected} elements: "
        "the client is told something else"
    )
    assert any(line.startswith("-") and "I looked." in line for line in lines)
    assert any(line.startswith("+") and "I look." in line for line in lines)


def test_an_answer_from_outside_changes_what_follows() -> None:
    capsule = kept(a_visit)
    number = first(capsule, lambda record: record.kind is Kind.ITEM and "I look." in str(record.fields))
    item = capsule.records[number].fields
    text = {**item[1], "of": {**item[1]["of"], "text": "I see."}}
    result = replay(changed(capsule, number, item[0], text), parts())
    assert result.divergence is not None
    assert "I see." in str(result.divergence.found)


def test_another_planner_is_found() -> None:
    class Silent(PlanningManager):
        async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
            await trio.lowlevel.checkpoint()

    other = Parts(models=parts().models, managers=[ScriptedManager(tool_box=Tools(), planner=Silent())])
    result = replay(kept(a_visit), other)
    assert result.divergence is not None
    assert "realtime-instruction" in str(result.divergence.expected)


def test_other_settings_are_found() -> None:
    capsule = kept(a_visit)
    settings = {**capsule.head["settings"], "speech_frame_ms": 20}
    result = replay(attrs.evolve(capsule, head={**capsule.head, "settings": settings}), parts())
    assert result.divergence is not None
    assert "speech" in str(result.divergence.found)


def test_what_is_missing_from_outside_is_said() -> None:
    capsule = kept(a_visit)
    begun = first(capsule, lambda record: record.kind is Kind.BEGAN and record.fields[2] == "append_turns")
    number = capsule.records[begun].fields[0]
    records = [
        r for r in capsule.records if not (r.fields and r.fields[0] == number and r.kind in (Kind.BEGAN, Kind.DONE))
    ]
    result = replay(attrs.evolve(capsule, records=tuple(records)), parts())
    assert result.divergence is not None


def test_a_session_that_ends_too_early() -> None:
    """What was told last is not, when nobody says it any more."""
    capsule = kept(a_visit)
    more = Record(capsule.records[-2].at, Kind.OUT, (plain(OutCommand("one-more", {})),), capsule.records[-2].step)
    records = (*capsule.records[:-1], more, capsule.records[-1])
    result = replay(attrs.evolve(capsule, records=records), parts())
    assert result.divergence is not None
    assert result.divergence.what == "the client is not told what it was"


# --- what is not whole -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_capsule_that_ends_in_the_middle(share: float) -> None:
    capsule = kept(a_visit)
    part = attrs.evolve(capsule, records=capsule.records[: int(len(capsule.records) * share)], is_whole=False)
    result = replay(part, parts())
    assert result.divergence is None
    assert not result.is_whole
    assert result.told == result.expected


def test_a_head_that_lacks_something() -> None:
    capsule = kept(a_visit)
    head = {key: value for key, value in capsule.head.items() if key != "configuration"}
    with pytest.raises(CapsuleError, match="The head of the capsule lacks something"):
        replay(attrs.evolve(capsule, head=head), parts())


def test_what_cannot_be_made_here_is_said() -> None:
    capsule = kept(a_visit)
    number = first(capsule, lambda record: record.kind is Kind.DONE and "ScriptedAgent" in str(record.fields))
    text = capsule.records[number].fields[1]
    of: list[Any] = [{"$": "elsewhere:Agent", "of": {}}, *text["of"][1:]]
    with pytest.raises(CapsuleError, match="elsewhere"):
        replay(changed(capsule, number, capsule.records[number].fields[0], {**text, "of": of}), parts())


def test_a_redacted_capsule_keeps_its_shape() -> None:
    capsules = MemoryCapsules(redacts=True, new_seed=lambda: bytes(16))
    run_repeatably(0, partial(converse, capsules, a_visit))
    (capsule,) = capsules.capsules
    assert "blue" not in str(capsule.records)
    result: Replayed = replay(capsule, parts())
    open_one = kept(a_visit)
    assert [record.kind for record in capsule.records] == [record.kind for record in open_one.records]
    assert result.told > 5


def test_nothing_is_left_of_a_run() -> None:
    """A run inside another program leaves its schedule as it was."""
    from engine.testing.schedule import schedule_facts

    before = schedule_facts()
    replay(kept(a_visit), parts_of(0))
    assert schedule_facts() == before
