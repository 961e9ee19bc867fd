"""What the device at the other end says: in prompts, and for tools that look at it again later in a conversation."""

import json
from typing import Any

import trio

from agents.moment import describe, local_now
from agents.tools import FunctionToolBox
from engine.interfaces import Context, ToolBox

SENSORY_CHARACTERS = 4000
"""Of sensory data per prompt. It comes from the client, which may send a megabyte."""


def sensory_text(context: Context) -> str:
    """The sensors' data as JSON text, cut with a mark; "" when there are none."""
    if not context.sensory:
        return ""
    text = json.dumps(dict(context.sensory), ensure_ascii=False, default=str)
    return text if len(text) <= SENSORY_CHARACTERS else f"{text[:SENSORY_CHARACTERS]}… (cut)"


async def read_device(context: Context) -> dict[str, Any]:
    """Read what the device says now: the time and time zone, the language it is set to, its sensors, and how many pictures
    its camera has shown."""
    await trio.lowlevel.checkpoint()
    return {
        "time": describe(local_now(context)),
        "timeZone": context.configuration.time_zone,
        "locale": context.locale,
        "sensors": sensory_text(context) or "none",
        "pictures": len(context.images),
    }


def device_tools() -> ToolBox:
    """The tools that look at the device."""
    return FunctionToolBox([read_device])
