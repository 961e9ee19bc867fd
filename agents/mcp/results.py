"""What servers say, in terms of tools: their tools as specifications, results as text, and what goes wrong in words."""

import json
import logging
import re
from collections.abc import Collection, Sequence
from typing import Any, cast

import httpx2
import mcp_types
from mcp.shared.exceptions import MCPError

from agents.mcp.limits import ServerGoneError
from agents.tools import NAME
from agents.web.judged import RefusedAddressError, UnknownNameError
from engine.interfaces import ToolError, ToolSpecification

MAX_TOOLS = 100
"""Of one server."""
MAX_DESCRIPTION = 2000
MAX_SCHEMA = 16_000
"""Characters of JSON. All of a server's schemas are read with every turn."""
MAX_OUTPUT = 16_000
"""Characters of a result that are told: some 4,000 tokens."""
MAX_ERROR = 500
MAX_NAME = 64

logger = logging.getLogger(__name__)


def specification_of(tool: mcp_types.Tool, name: str, seconds: float) -> ToolSpecification:
    return ToolSpecification(name, (tool.description or tool.title or "")[:MAX_DESCRIPTION], tool.input_schema, seconds)


def usable(tools: Sequence[mcp_types.Tool], server: str) -> tuple[mcp_types.Tool, ...]:
    """Those that a model can be told of; of the others there is a warning."""
    once = list({tool.name: tool for tool in reversed(tools)}.values())[::-1]  # of two with the same name the first
    found = [tool for tool in once if _is_usable(tool)]
    if len(found) < len(once):
        logger.warning("MCP server %s has %d tools with schemas no model could use", server, len(once) - len(found))
    if len(found) > MAX_TOOLS:
        logger.warning("MCP server %s has %d tools; the first %d are used", server, len(found), MAX_TOOLS)
    return tuple(found[:MAX_TOOLS])


def _is_usable(tool: mcp_types.Tool) -> bool:
    try:
        length = len(json.dumps(tool.input_schema, allow_nan=False))
    except (ValueError, RecursionError):
        return False
    return length <= MAX_SCHEMA and tool.input_schema.get("type") == "object"


def named(tools: Sequence[tuple[str, str]], reserved: Collection[str]) -> list[str]:
    """Names for models, in the order of the (server, tool) pairs; "" for what cannot have one.

    A tool keeps its name if that is one for every model and no other tool's; otherwise the server's goes before it.
    """
    plain = [_fitted(tool) for _, tool in tools]
    taken = {*reserved, *(name for name in plain if plain.count(name) > 1)}
    found: list[str] = []
    for (server, tool), name in zip(tools, plain, strict=True):
        chosen = name if name == tool and name not in taken else _fitted(f"{server}_{tool}")
        if not chosen or (chosen != name and chosen in plain) or chosen in reserved or chosen in found:
            chosen = ""
        found.append(chosen)
    return found


def _fitted(name: str) -> str:
    fitted = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_NAME]
    return fitted if NAME.fullmatch(fitted) else ""


def output_of(result: mcp_types.CallToolResult) -> str:
    """A result as the model reads it.

    Raises:
        ToolError: the tool says that it has failed.
    """
    text = "\n\n".join(part for part in map(_text_of, result.content) if part)
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    if result.is_error:
        raise ToolError(cut(text, MAX_ERROR) or "The tool failed and does not say why.")
    return cut(text, MAX_OUTPUT)


def _text_of(part: Any) -> str:
    match part:
        case mcp_types.TextContent(text=text):
            return text
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents(text=text)):
            return text
        case mcp_types.ResourceLink(uri=uri, name=name):
            return f"[{name}: {uri}]"
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            return f"[{part.mime_type}, which cannot be shown here]"
        case _:
            return "[something that cannot be shown here]"


def cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n[cut here: there are {len(text) - limit} more characters]"


def reason_of(failure: BaseException) -> str:
    """The one thing that went wrong, out of whatever groups it is in, in words without addresses."""
    leaves = _leaves(failure)
    for exc in leaves:
        match exc:
            case ServerGoneError():
                return str(exc)
            case RefusedAddressError() | UnknownNameError():
                return str(exc)
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return "it cannot be reached"
            case httpx2.HTTPError():
                return f"the connection broke ({type(exc).__name__})"
            case MCPError():
                return f"it says: {cut(exc.message, MAX_ERROR)}"
            case FileNotFoundError():
                return "its command does not exist"
            case OSError():
                return f"it cannot be started ({exc.strerror})"
            case _:
                pass
    return f"it does not follow the protocol ({type(leaves[0]).__name__})"


def _leaves(failure: BaseException) -> list[BaseException]:
    if isinstance(failure, BaseExceptionGroup):
        members = cast("BaseExceptionGroup[BaseException]", failure).exceptions
        return [leaf for member in members for leaf in _leaves(member)]
    return [failure]
