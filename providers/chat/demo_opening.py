"""The planner's part before the first word: recalls what is remembered, and writes the opening plan. Nothing here raises."""

import json

from engine.interfaces import ChatRequest
from providers.chat.demo_pass import Made, made_in
from providers.chat.demo_planner import WELCOME, name_in
from providers.chat.demo_prompts import first_prompt, quote, section
from providers.chat.demo_results import items_of, parse_result
from providers.chat.demo_talk import Reply

RECALL = "recall"


def plan_opening(request: ChatRequest) -> Reply:
    made = made_in(request.messages)
    if not made and any(tool.name == RECALL for tool in request.tools):
        return Reply("", RECALL)
    name = name_in("\n".join([section(first_prompt(request.messages), "# The user"), *_notes(made)]))
    greeting = f"Greet a guest who has been here before, with: {quote(f'{WELCOME}, {name}.')} " if name else ""
    plan = (
        f"{greeting}Say who you are, say that you are scripted, and ask what they would like. A table is offered first."
    )
    return Reply(json.dumps({"results": plan}, ensure_ascii=False))


def _notes(made: tuple[Made, ...]) -> list[str]:
    """What was remembered, the newest first."""
    found = (note.get("note") for each in made for note in items_of(parse_result(each.output), "notes"))
    return [note for note in found if isinstance(note, str)]
