"""The contract for whoever sees only the wire: messages of the server, turned back into what `Promises` judges.

`WireJudge` raises as soon as a message breaks a promise; `WireReader` only reads them.
"""

from collections.abc import Iterable
from typing import Any

import attrs
import orjson
import pybase64

from engine.elements import (
    OutCommand,
    OutError,
    OutEvaluation,
    OutPartial,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    SpeechCut,
)
from engine.errors import ErrorCode, Whose
from engine.protocol.promises import Promises, Violation
from engine.testing.invariants import require


@attrs.define(eq=False)
class WireReader:
    """Reads one connection, of either wire. What the wire does not say, and a player has to conclude, is concluded: an interim, and the
    end of a response that is not complete, cut the speech that is open."""

    _turn_id: str = ""
    _response_id: str = ""
    """Of the speech that came last."""
    _is_open: bool = False
    _sample_rate: int = 24000
    _is_mulaw: bool = False

    def read(self, message: str | bytes) -> list[OutputElement]:
        """The elements of a message; raises ValueError for one that is none of this protocol."""
        if isinstance(message, bytes):
            return [self._speech(message, is_last=False)]
        told: dict[str, Any] = orjson.loads(message)
        match told:
            case {"type": "speech"}:
                self._begin(told)
                return [self._speech(pybase64.b64decode(told["data"]), is_last=told["isLast"])]
            case {"type": "speech-start"}:
                self._begin(told)
                return []
            case {"type": "speech-end", "cancelled": False}:
                return [self._speech(b"", is_last=True)]
            case {"type": "speech-end"}:
                return self._cut()
            case {"type": "transcript", "isInterim": True} | {"type": "command", "name": "response-end"}:
                is_whole = told.get("parameters", {}).get("status") == "completed"
                return [*([] if is_whole else self._cut()), _element(told)]
            case _:
                return [_element(told)]

    def _begin(self, told: dict[str, Any]) -> None:
        self._turn_id, self._response_id = told["turnId"], told["responseId"]
        self._sample_rate, self._is_mulaw = told["sampleRate"], told["encoding"] == "mulaw"

    def _speech(self, data: bytes, *, is_last: bool) -> OutSpeech:
        self._is_open = not is_last
        pcm = bytes(2 * len(data)) if self._is_mulaw else data
        return OutSpeech(pcm, self._sample_rate, self._turn_id, self._response_id, is_last=is_last)

    def _cut(self) -> list[OutputElement]:
        was_open, self._is_open = self._is_open, False
        return [SpeechCut(self._turn_id, self._response_id)] if was_open else []


def read_all(messages: Iterable[str | bytes]) -> list[OutputElement]:
    """All elements of a connection's messages."""
    reader = WireReader()
    return [element for message in messages for element in reader.read(message)]


@attrs.define(eq=False)
class WireJudge:
    """Holds a connection's messages against the contract as they come.

    judge.heard(message, now)     # raises AssertionError when a promise is broken
    judge.over()                  # when the server has closed the connection in good order
    """

    _reader: WireReader = attrs.field(factory=WireReader, init=False)
    _found: list[Violation] = attrs.field(factory=list[Violation], init=False)
    _promises: Promises = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._promises = Promises(self._found.append)

    def heard(self, message: str | bytes, now: float) -> None:
        for element in self._reader.read(message):
            self._promises.take(element, now)
        require(self._found)

    def over(self) -> None:
        self._promises.end()
        require(self._found)


def _element(told: dict[str, Any]) -> OutputElement:
    match told:
        case {"type": "command", "name": name, "parameters": parameters}:
            return OutCommand(name, parameters, parameters.get("turnId", ""))
        case {"type": "transcript"}:
            return OutTranscript(
                told["text"],
                told["isInterim"],
                told["isSynthetic"],
                told["isAsynchronous"],
                told["provider"],
                told["turnId"],
            )
        case {"type": "text"}:
            return OutText(told["text"], told["turnId"], told["responseId"])
        case {"type": "token"}:
            return OutToken(told["text"], told["turnId"], told["responseId"])
        case {"type": "error"}:
            return OutError(ErrorCode(told["code"]), told["message"], told["recoverable"], Whose(told["whose"]))
        case {"type": "evaluation", "name": name}:
            return OutEvaluation(name)
        case {"type": "partial" | "multimodal" | "emotion", "turnId": turn_id}:
            return OutPartial("", turn_id)  # for the contract they are all the same
        case _:
            raise ValueError(f"{told.get('type')!r} is no message of a server")
