"""A reply in the service's words: the chunks of a stream, or one completion. Sans-I/O."""

import string
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal

import attrs
import orjson

from providers.chat.simulation import schemas
from providers.chat.simulation.checks import Json
from providers.chat.simulation.script import Asked, Call, Reply, ScriptError, text_of

FINGERPRINT = "fp_simulated"
MESSAGE_TOKENS = 4
"""What a message costs beside its words."""
TOKEN_CHARACTERS = 4
_PADDING = string.ascii_letters + string.digits
_PADDED_TO = 16
"""X: the length to which the service fills its chunks up is not documented."""

Kind = Literal["text", "refusal", "name", "arguments"]


@attrs.frozen
class Piece:
    """A piece of output; `name` opens the call of that index."""

    kind: Kind
    text: str
    index: int = 0


@attrs.frozen
class Written:
    """What the model wrote, with the request's limits and stop words kept."""

    pieces: tuple[Piece, ...]
    calls: tuple[Call, ...]
    """With their ids; arguments are in the pieces."""
    finish: str
    usage: Json
    logprobs: bool = False

    def text(self, kind: Kind, index: int = 0) -> str:
        return "".join(piece.text for piece in self.pieces if (piece.kind, piece.index) == (kind, index))


def write(asked: Asked, reply: Reply, number: int, chance: Random | None) -> Written:
    """Let the model write its reply to a request.

    Raises:
        ScriptError: no model could answer this request so.
    """
    calls = tuple(
        attrs.evolve(call, call_id=call.call_id or f"call_{number}_{index}") for index, call in enumerate(reply.calls)
    )
    if reply.is_held:
        _hold(asked, reply)
    pieces = list(_pieces(reply, calls, chance))
    stopped = _stop(pieces, asked.body.get("stop"))
    limit: int | None = asked.body.get("max_completion_tokens") or asked.body.get("max_tokens")
    reasoning = reply.usage.reasoning
    # a function that the client itself chose ends with "stop"
    finish = reply.finish or ("tool_calls" if calls and not stopped and not asked.forced_tool else "stop")
    if limit is not None and len(pieces) + reasoning > limit:
        reasoning = min(reasoning, limit)
        pieces = pieces[: limit - reasoning]
        finish = "length"
    written = tuple(pieces)
    opened = sum(piece.kind == "name" for piece in written)
    usage = _usage(asked, reply, len(written), reasoning)
    return Written(written, calls[:opened], finish, usage, bool(asked.body.get("logprobs")))


def _pieces(reply: Reply, calls: Sequence[Call], chance: Random | None) -> Iterator[Piece]:
    for text in reply.pieces(chance):
        yield Piece("text", text)
    if reply.refusal:
        for text in Reply(reply.refusal).pieces(chance):
            yield Piece("refusal", text)
    for index, call in enumerate(calls):
        yield Piece("name", call.name, index)
        for text in call.pieces(chance):
            yield Piece("arguments", text, index)


def _stop(pieces: list[Piece], stop: str | Sequence[str] | None) -> bool:
    """End the output before the first stop word in the text; whether there was one."""
    words = [stop] if isinstance(stop, str) else stop or ()
    text = "".join(piece.text for piece in pieces if piece.kind == "text")
    places = [place for word in words if word and (place := text.find(word)) >= 0]
    if not places:
        return False
    left = min(places)
    kept: list[Piece] = []
    for piece in pieces:
        if left > 0:
            kept.append(attrs.evolve(piece, text=piece.text[:left]))
        left -= len(piece.text)
    pieces[:] = kept
    return True


def _usage(asked: Asked, reply: Reply, visible: int, reasoning: int) -> Json:
    given = reply.usage
    prompt = count_tokens(asked.messages) if given.prompt is None else given.prompt
    choices: int = asked.body.get("n") or 1
    completion = (visible + reasoning) * choices if given.completion is None else given.completion
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": given.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": reasoning * choices,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def count_tokens(messages: Sequence[Json]) -> int:
    """About what messages cost: a token for four characters. There is no tokenizer here."""
    return sum(MESSAGE_TOKENS + len(text_of(message)) // TOKEN_CHARACTERS for message in messages)


# --- what a model can do


def _hold(asked: Asked, reply: Reply) -> None:
    """Hold a reply against its request."""
    forced = asked.forced_tool
    names = [call.name for call in reply.calls]
    if forced is not None and (not names or (forced and set(names) != {forced})):
        raise ScriptError(f"the request forces a call of {forced or 'a tool'}, the reply calls {names}")
    if names and asked.body.get("tool_choice") == "none":
        raise ScriptError(f"the request forbids calls, the reply calls {names}")
    if len(names) > 1 and asked.body.get("parallel_tool_calls") is False:
        raise ScriptError(f"the request forbids parallel calls, the reply calls {names}")
    for call in reply.calls:
        if call.name not in asked.tools:
            raise ScriptError(f"the request offers the tools {list(asked.tools)}, the reply calls {call.name!r}")
        function = asked.tools[call.name]
        if function.get("strict"):
            _fit(call.arguments, function.get("parameters", {"type": "object"}), f"the call of {call.name!r}")
    if reply.calls or reply.refusal or reply.finish in ("length", "content_filter"):
        return  # nothing structured, or only the beginning of it
    text = "".join(reply.pieces(None))
    match asked.format["type"]:
        case "json_object":
            _fit(text, {"type": "object"}, "the reply")
        case "json_schema":
            details = asked.format["json_schema"]
            _fit(text, details.get("schema", {}) if details.get("strict") else {}, "the reply")
        case _:
            pass


def _fit(text: str, schema: Mapping[str, Any], what: str) -> None:
    try:
        schemas.fit(orjson.loads(text), schema)
    except orjson.JSONDecodeError:
        raise ScriptError(f"{what} has to be JSON, and is not: {text!r}") from None
    except schemas.Unfit as exc:
        raise ScriptError(f"{what} does not fit its schema: {exc}") from None


# --- in the service's words


@attrs.frozen
class Frame:
    """What all chunks of a stream have in common."""

    completion_id: str
    created: int
    model: str
    includes_usage: bool = False
    padding: Random | None = None
    """Fills chunks up to a length, as the service does against eavesdroppers; None where the client does not want it."""

    def chunk(self, choices: Sequence[Json], *, usage: Json | None = None) -> bytes:
        """One server-sent event."""
        chunk: Json = {
            "id": self.completion_id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "service_tier": "default",
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        }
        if self.includes_usage:
            chunk["usage"] = usage
        if self.padding is not None:
            length = self.padding.randint(1, _PADDED_TO)
            chunk["obfuscation"] = "".join(self.padding.choices(_PADDING, k=length))
        return event(orjson.dumps(chunk))


DONE = b"data: [DONE]\n\n"


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def opening(frame: Frame, written: Written, choice: int) -> bytes:
    """The first chunk of a choice."""
    has_text = not written.calls or any(piece.kind == "text" for piece in written.pieces)
    delta = {"role": "assistant", "content": "" if has_text else None, "refusal": None}
    return frame.chunk([_choice(choice, delta)])


def delta_of(frame: Frame, written: Written, piece: Piece, choice: int) -> bytes:
    """The chunk of one piece."""
    logprobs: Json | None = None
    delta: Json
    match piece.kind:
        case "text":
            delta = {"content": piece.text}
            logprobs = {"content": [_logprob(piece.text)], "refusal": None} if written.logprobs else None
        case "refusal":
            delta = {"refusal": piece.text}
        case "name":
            call: Json = {
                "index": piece.index,
                "id": written.calls[piece.index].call_id,
                "type": "function",
                "function": {"name": piece.text, "arguments": ""},
            }
            delta = {"tool_calls": [call]}
        case _:
            delta = {"tool_calls": [{"index": piece.index, "function": {"arguments": piece.text}}]}
    return frame.chunk([_choice(choice, delta, logprobs=logprobs)])


def closing(frame: Frame, written: Written, choice: int) -> bytes:
    return frame.chunk([_choice(choice, {}, written.finish)])


def _choice(index: int, delta: Json, finish: str | None = None, logprobs: Json | None = None) -> Json:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


def _logprob(text: str) -> Json:
    """The script's model is always certain."""
    return {"token": text, "logprob": 0.0, "bytes": list(text.encode()), "top_logprobs": []}


def completion(frame: Frame, written: Written, choices: int) -> bytes:
    """The body of an answer that is not streamed."""
    content = written.text("text")
    message: Json = {
        "role": "assistant",
        "content": content or (None if written.calls or written.text("refusal") else ""),
        "refusal": written.text("refusal") or None,
        "annotations": [],
    }
    if written.calls:
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": written.text("arguments", index)},
            }
            for index, call in enumerate(written.calls)
        ]
    texts = [piece.text for piece in written.pieces if piece.kind == "text"]
    logprobs = {"content": [_logprob(text) for text in texts], "refusal": None} if written.logprobs else None
    return orjson.dumps(
        {
            "id": frame.completion_id,
            "object": "chat.completion",
            "created": frame.created,
            "model": frame.model,
            "choices": [
                {"index": index, "message": message, "logprobs": logprobs, "finish_reason": written.finish}
                for index in range(choices)
            ],
            "usage": written.usage,
            "service_tier": "default",
            "system_fingerprint": FINGERPRINT,
        }
    )
