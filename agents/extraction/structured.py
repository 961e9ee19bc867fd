"""Asking a chat model for objects that fit pydantic models.

The request has the JSON schema twice: in words, for any model, and as `output_schema`, for those that can be held to it. The
answer is read leniently: the object may stand in a code fence or between prose, and may say more than was asked. What does not fit
is asked for once more, with what is wrong; sections that fit are kept, whatever happens to the others.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import attrs
import trio
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema

from agents.prompts import render
from agents.relational.plan_stream import PlanObject, PlanStream
from engine.elements import JsonObject
from engine.errors import RemoteError
from engine.interfaces import ChatMessage, ChatModel, ChatRequest, ChatText, Context
from engine.llm_log import LoggedChat, logged

logger = logging.getLogger(__name__)

TRIES = 2
ANSWER_CHARACTERS = 32_000
"""Of an answer that are read; what asks for objects here gets a tenth of it."""
FAULTS = 10
"""Told to the model."""

Sections = Mapping[str, type[BaseModel]]


class Output(BaseModel):
    """What a model is asked for: camelCase outside, and what else it says is left out."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    def to_json(self) -> JsonObject:
        return self.model_dump(mode="json", by_alias=True)


def for_component(chat: ChatModel, context: Context, component: str) -> ChatModel:
    """The same chat model, whose invocations are in the session's LLM log as that component's, and only as that."""
    return logged(chat.chat if isinstance(chat, LoggedChat) else chat, context, component)


def schema_of(sections: Sections) -> JsonObject:
    """Of an object that has each section. Not to be changed: it is made once, as it takes milliseconds in which nobody speaks."""
    return _schema(tuple(sections.items()))


@lru_cache(maxsize=128)
def _schema(items: tuple[tuple[str, type[BaseModel]], ...]) -> JsonObject:
    sections = dict(items)
    by_model, definitions = models_json_schema([(model, "validation") for model in sections.values()])
    properties = {name: by_model[model, "validation"] for name, model in sections.items()}
    whole: JsonObject = {"type": "object", "properties": properties, "required": list(sections), **definitions}
    schema: JsonObject = _untitled(whole)
    return schema


def _untitled(schema: object) -> Any:
    """Without the titles, which say nothing that the names do not, and are read again in every turn."""
    match schema:
        case dict():
            members = cast("dict[str, object]", schema)
            kept = [name for name, value in members.items() if name != "title" or not isinstance(value, str)]
            return {name: _untitled(members[name]) for name in kept}
        case list():
            return [_untitled(value) for value in cast("list[object]", schema)]
        case _:
            return schema


async def ask_sections(
    chat: ChatModel, context: Context, component: str, instructions: str, told: str, sections: Sections, seconds: float
) -> dict[str, BaseModel]:
    """The sections that came, in time and in shape. Never raises but for cancellation; what failed is logged without its words."""
    found: dict[str, BaseModel] = {}
    try:
        with trio.move_on_after(seconds) as limit:
            await _ask(for_component(chat, context, component), context.locale, instructions, told, sections, found)
        if limit.cancelled_caught:
            logger.warning("%s: the chat model took longer than %g s", component, seconds)
    except RemoteError as exc:
        logger.warning("%s: the chat model failed: %s", component, exc.message)
    except Exception as exc:  # it may fail in any way, and its words may be those of the conversation
        logger.error("%s: the chat model failed (%s)", component, type(exc).__name__)
    return found


async def ask_object(
    chat: ChatModel,
    context: Context,
    component: str,
    instructions: str,
    told: str,
    model: type[BaseModel],
    seconds: float,
) -> BaseModel | None:
    """One object; None when none came. See `ask_sections`."""
    return (await ask_sections(chat, context, component, instructions, told, {"answer": model}, seconds)).get("answer")


async def ask_text(
    chat: ChatModel, context: Context, component: str, instructions: str, told: str, seconds: float, characters: int
) -> str:
    """A chat model's words, at most so many characters; "" when there are none in time. Never raises but for cancellation."""
    request = ChatRequest((ChatMessage("system", instructions), ChatMessage("user", told)), locale=context.locale)
    try:
        with trio.move_on_after(seconds):
            return (await _answer(for_component(chat, context, component), request)).strip()[:characters]
        logger.warning("%s: the chat model took longer than %g s", component, seconds)
    except RemoteError as exc:
        logger.warning("%s: the chat model failed: %s", component, exc.message)
    except Exception as exc:  # as above
        logger.error("%s: the chat model failed (%s)", component, type(exc).__name__)
    return ""


async def _ask(
    chat: ChatModel, locale: str, instructions: str, told: str, sections: Sections, found: dict[str, BaseModel]
) -> None:
    missing = dict(sections)
    messages = [ChatMessage("system", f"{instructions}\n\n{_form(missing)}"), ChatMessage("user", told)]
    for attempt in range(1, TRIES + 1):
        answer = await _answer(chat, ChatRequest(tuple(messages), locale=locale, output_schema=schema_of(missing)))
        reading = read_sections(answer, missing)
        found |= reading.found
        missing = {name: model for name, model in missing.items() if name not in found}
        if not missing:
            return
        logger.log(
            logging.INFO if attempt < TRIES else logging.WARNING,
            "an answer does not fit in %s; %s",
            ", ".join(missing),
            "it is asked for again" if attempt < TRIES else "they are left out",
        )
        correction = render("extraction.correction", faults=reading.faults[:FAULTS], form=_form(missing))
        messages += [ChatMessage("assistant", answer.strip() or "(nothing)"), ChatMessage("user", correction)]


def _form(sections: Sections) -> str:
    schema = json.dumps(schema_of(sections), ensure_ascii=False, separators=(",", ":"))
    return render("extraction.form", schema=schema)


async def _answer(chat: ChatModel, request: ChatRequest) -> str:
    texts: list[str] = []
    room = ANSWER_CHARACTERS
    async with chat.open_stream(request) as deltas:
        async for delta in deltas:
            if isinstance(delta, ChatText):
                texts.append(delta.text)
                room -= len(delta.text)
                if room <= 0:
                    break
    return "".join(texts)


# --- reading an answer ------------------------------------------------------------------------------------------------


@attrs.frozen
class Reading:
    found: Mapping[str, BaseModel]
    faults: Sequence[str]
    """What is wrong, in words for the model."""


def read_sections(answer: str, sections: Sections) -> Reading:
    """What an answer has of the sections. A model that is asked for one may leave out its name."""
    value = _best_object(answer, sections)
    if value is None:
        return Reading({}, ["There is no complete JSON object."])
    if len(sections) == 1 and not any(name in value for name in sections):
        value = {next(iter(sections)): value}
    found: dict[str, BaseModel] = {}
    faults: list[str] = []
    for name, model in sections.items():
        if name not in value:
            faults.append(f"{name} is missing.")
            continue
        try:
            found[name] = model.model_validate(value[name])
        except ValidationError as exc:
            faults += [_fault(name, detail) for detail in exc.errors(include_url=False, include_input=False)]
    return Reading(found, faults)


def _best_object(answer: str, sections: Sections) -> JsonObject | None:
    """The object that has most of what is asked for; the first of several. A model may think aloud in objects before."""
    stream = PlanStream()
    items = [*stream.feed(answer), *stream.finish()]
    objects = [item.value for item in items if isinstance(item, PlanObject)]
    return max(objects, key=lambda value: sum(name in value for name in sections), default=None)


def _fault(section: str, detail: Mapping[str, Any]) -> str:
    return f"{'.'.join([section, *map(str, detail['loc'])])}: {detail['msg']}."
