"""Actions that a project declares, and what they mean (SPEC L10, L20)."""

import trio
from trio.testing import MockClock

from engine.elements import Action, InputText, InstructionType, OutError, RealtimeInstruction, UserSpeech
from engine.errors import ErrorCode, RemoteError
from engine.interfaces import Context
from engine.testing.scripted import ScriptedModel, echo
from tests.scenarios.support import open_scene


async def order(action: Action, context: Context) -> InputText:
    await trio.lowlevel.checkpoint()
    if "what" not in action.parameters:
        raise RemoteError(ErrorCode.BAD_ELEMENT, "An order says what.")
    return InputText(f"I would like {action.parameters['what']}.")


async def seen(action: Action, context: Context) -> RealtimeInstruction:
    await trio.lowlevel.checkpoint()
    return RealtimeInstruction("The user looks at the menu.", InstructionType.SUPPORTING_CONTEXT)


async def noted(action: Action, context: Context) -> None:
    await trio.lowlevel.checkpoint()


async def broken(action: Action, context: Context) -> None:
    await trio.lowlevel.checkpoint()
    raise RuntimeError("out of order")


async def stuck(action: Action, context: Context) -> None:
    await trio.sleep_forever()


MAPPERS = {"order": order, "seen": seen, "noted": noted, "broken": broken, "stuck": stuck}
SPOKEN_FOR = {"text": "an action says for the user what nobody has typed"}


async def test_what_actions_mean(autojump_clock: MockClock) -> None:
    async with open_scene(model=ScriptedModel(echo), action_mappers=MAPPERS, breaks=SPOKEN_FOR) as stage:
        await stage.client.send(Action("order", {"what": "tea"}), Action("seen"), Action("noted"))
        await trio.sleep(2)
        assert stage.client.sentences == ["You said I would like tea.."]
        assert [item.text for item in stage.model.session.of_type(UserSpeech) if isinstance(item, UserSpeech)] == [
            "I would like tea."
        ]
        assert [instruction.text for _, instruction in stage.model.session.instructions] == [
            "The user looks at the menu."
        ]
        assert [e for e in stage.client.elements if isinstance(e, OutError)] == []


async def test_one_that_fails_is_told_and_the_session_goes_on(autojump_clock: MockClock) -> None:
    async with open_scene(model=ScriptedModel(echo), action_mappers=MAPPERS) as stage:
        await stage.client.send(Action("order"), Action("broken"), Action("stuck"), Action("nobody knows"))
        await trio.sleep(6)
        await stage.client.send(InputText("still here"))
        await trio.sleep(1)
        errors = [element for element in stage.client.elements if isinstance(element, OutError)]
        assert [(error.code, error.recoverable) for error in errors] == [
            (ErrorCode.BAD_ELEMENT, True),
            (ErrorCode.INTERNAL, True),
            (ErrorCode.INTERNAL, True),
            (ErrorCode.UNKNOWN_ACTION, True),
        ]
        assert errors[0].message == "An order says what."
        assert stage.client.sentences == ["You said still here."]
