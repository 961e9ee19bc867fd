"""What is said to whom and when: the words in which a test, or a load, tells the simulator what happens.

Times are seconds, and lengths of audio milliseconds. Everything has a default, so that a script says only what matters to it.
Nothing here changes once it is made: one script serves any number of connections, each from its beginning.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

import attrs
import orjson

from providers.openai.simulation.checks import Json

MS_PER_WORD = 300
"""How long a word is spoken, when a script does not say: 200 words a minute."""
_PIECE = re.compile(r"\s*(?:\w+|[^\w\s])|\s+$")
_ARGUMENT_PIECE = 8
"""Characters of a piece of a call's arguments."""


def pieces_of(words: str) -> tuple[str, ...]:
    """Text as the model brings it: a word with the space before it, a sign by itself."""
    return tuple(_PIECE.findall(words))


@attrs.frozen
class Trouble:
    """An error, as the service words it."""

    code: str | None = None
    message: str = "This was made to fail."
    type: str = "server_error"
    param: str | None = None


# --- what goes wrong


class Drop(Enum):
    """How a connection is lost."""

    CLOSE = "with a close frame"
    ABRUPT = "without one: the other side sees the end of the stream, or a reset"
    SILENT = "half open: nothing comes, nothing is read, and nobody is told"


@attrs.frozen
class Stall:
    """The response goes silent: for so long, or for ever. A cancellation ends it all the same."""

    seconds: float | None = None
    at: float | None = None


@attrs.frozen
class Disconnect:
    """The connection is lost."""

    how: Drop = Drop.ABRUPT
    at: float | None = None
    code: int = 1011
    reason: str = ""


@attrs.frozen
class ErrorEvent:
    """An `error` comes by itself; it ends nothing."""

    trouble: Trouble = Trouble()
    at: float | None = None


@attrs.frozen
class Stray:
    """Any event, as it stands: a type nobody knows, a delta of a response that is over. `event_id` is added when it has none."""

    event: Mapping[str, object]
    at: float | None = None


Mishap = Stall | Disconnect | ErrorEvent | Stray
"""In a reply, `at` counts from `response.created`, and None means behind the last delta, before what closes the message. In a
script it counts from the first `session.updated`."""


# --- the user


@attrs.frozen
class Utterance:
    """What the user says, and what becomes of it.

    Without `at` it is what the simulator makes of the next audio: that which it finds loud, or that which the client commits.
    With `at` the simulator says it itself, whatever the audio is: at that time from the first `session.updated` (in `Reply.barge_in`:
    from `response.created`), for `seconds`.
    """

    text: str | Callable[[], str] = ""
    """The transcript. A callable is asked at the moment it is needed."""
    at: float | None = None
    seconds: float = 1.0
    pieces: Sequence[str] | None = None
    """The deltas of the transcript; by default words."""
    piece_seconds: float = 0.0
    during_speech: bool = False
    """Deltas come from the start of the speech, spread by `piece_seconds`, and not from the commit."""
    transcribed_after: float | None = 0.0
    """From the commit to the end of the transcript; None for never."""
    failure: Trouble | None = None
    """The transcript fails, at the time it would have been complete."""
    ends: bool = True
    """False: speech starts, and its end is never found."""


# --- the model


@attrs.frozen
class Pace:
    """How the model speaks. By default all at once, as a service that is far ahead of the player."""

    token_seconds: float = 0.0
    """Between two pieces of text."""
    audio_after: float = 0.0
    """From the first text to the first audio."""
    audio_speed: float | None = None
    """Seconds of audio in a second; None for all at once."""
    delta_ms: int = 200


AT_ONCE = Pace()
REAL_TIME = Pace(token_seconds=0.3, audio_speed=1.0, delta_ms=20)


@attrs.frozen
class Say:
    """A message of the assistant, spoken or written as the response's modality is."""

    text: str | Sequence[str]
    """A sequence gives the pieces themselves."""
    audio_ms: int | None = None

    @property
    def pieces(self) -> tuple[str, ...]:
        return pieces_of(self.text) if isinstance(self.text, str) else tuple(self.text)

    @property
    def length_ms(self) -> int:
        if self.audio_ms is not None:
            return self.audio_ms
        return MS_PER_WORD * len("".join(self.pieces).split())


def _arguments(given: str | Mapping[str, object]) -> str:
    return given if isinstance(given, str) else orjson.dumps(given).decode()


@attrs.frozen
class Call:
    """A function call. Arguments may be any text, also one that is no JSON."""

    name: str
    arguments: str = attrs.field(default="{}", converter=_arguments)
    call_id: str | None = None

    @property
    def pieces(self) -> tuple[str, ...]:
        return tuple(
            self.arguments[start : start + _ARGUMENT_PIECE] for start in range(0, len(self.arguments), _ARGUMENT_PIECE)
        )


Part = Say | Call


@attrs.frozen
class Completed:
    """The response ends as it should."""


@attrs.frozen
class Failed:
    """The response ends as failed; a message under way stays incomplete."""

    code: str | None = "rate_limit_exceeded"
    message: str = "The response was made to fail."
    type: str = "server_error"


@attrs.frozen
class Incomplete:
    """The response is cut off: `max_output_tokens` or `content_filter`."""

    reason: str = "max_output_tokens"


@attrs.frozen
class Cancelled:
    """The response ends as cancelled: `turn_detected` or `client_cancelled`."""

    reason: str = "turn_detected"


Ending = Completed | Failed | Incomplete | Cancelled


@attrs.frozen
class Usage:
    """Tokens, as `response.done` reports them. Audio and images are parts of the totals, cached ones of the input."""

    input: int = 0
    output: int = 0
    cached: int = 0
    input_audio: int = 0
    output_audio: int = 0
    input_image: int = 0
    cached_audio: int = 0

    @property
    def wire(self) -> Json:
        return {
            "total_tokens": self.input + self.output,
            "input_tokens": self.input,
            "output_tokens": self.output,
            "input_token_details": {
                "text_tokens": self.input - self.input_audio - self.input_image,
                "audio_tokens": self.input_audio,
                "image_tokens": self.input_image,
                "cached_tokens": self.cached,
                "cached_tokens_details": {
                    "text_tokens": self.cached - self.cached_audio,
                    "audio_tokens": self.cached_audio,
                    "image_tokens": 0,
                },
            },
            "output_token_details": {
                "text_tokens": self.output - self.output_audio,
                "audio_tokens": self.output_audio,
            },
        }


class Automatic(Enum):
    """The simulator works it out."""

    AUTOMATIC = "automatic"


AUTOMATIC = Automatic.AUTOMATIC


@attrs.frozen
class RateLimits:
    """What `rate_limits.updated` says about tokens."""

    remaining: int
    limit: int = 15_000_000
    reset_seconds: float = 0.0


def _parts(given: "str | Part | Sequence[str | Part]") -> tuple[Part, ...]:
    """One message or several things, strings being messages."""
    if isinstance(given, str):
        return (Say(given),) if given else ()
    if isinstance(given, Say | Call):
        return (given,)
    return tuple(Say(part) if isinstance(part, str) else part for part in given)


@attrs.frozen
class Reply:
    """One response: what the model says and calls, how fast, and how it ends.

    `Reply("Hello.")`, `Reply(["Let me check.", Call("lookup", {"id": 7})])`, `Reply(ends=Failed())`.
    """

    parts: tuple[Part, ...] = attrs.field(default=(), converter=_parts)
    pace: Pace | None = None
    """None: the script's."""
    ends: Ending = Completed()
    created_after: float = 0.0
    """From the request, or the end of the user's speech, to `response.created`."""
    starts_after: float = 0.0
    """From `response.created` to the first item."""
    mishaps: Sequence[Mishap] = ()
    barge_in: Utterance | None = None
    """The user cuts in; its `at` counts from `response.created`."""
    cancel_lag: float = 0.0
    """How long the model still goes on after a cancellation: what was under way by then."""
    usage: Usage | Automatic | None = AUTOMATIC
    """None: `response.done` has no usage."""
    rate_limits: RateLimits | Automatic | None = AUTOMATIC


@attrs.frozen
class Asked:
    """What the model is asked for, for `Script.answer`."""

    number: int
    """Of this response, from 0."""
    text: str
    """The last thing said to the model: words, a transcript, or the output of a call."""
    items: tuple[Json, ...]
    """The conversation, or the response's own input."""
    session: Json
    overrides: Json
    """The `response` of `response.create`; empty when the service asks itself."""
    is_tool_output: bool = False


def echo(asked: Asked) -> Reply:
    """The default model: it says what it heard."""
    if not asked.text:
        return Reply("Hello.")
    return Reply(f"The tool says: {asked.text}" if asked.is_tool_output else f"You said: {asked.text}")


# --- the service


@attrs.frozen
class Refusal:
    """The handshake is refused with an HTTP status."""

    status: int
    code: str | None = None
    message: str = "The connection was made to fail."
    type: str = "invalid_request_error"
    retry_after: float | None = None
    headers: Sequence[tuple[str, str]] = ()


@attrs.frozen
class Script:
    """Everything that happens on a connection beside what the protocol itself makes happen."""

    replies: Sequence[Reply] = ()
    """The responses, in the order in which they are asked for; after them, `answer`."""
    utterances: Sequence[Utterance] = ()
    """What the user says. Those with `at` come by themselves, the others as the audio gives occasion for them, in order."""
    answer: Callable[[Asked], Reply] = echo
    pace: Pace = AT_ONCE
    repeat_seconds: float | None = None
    """Timed utterances come again with this period, and replies begin again after the last: for load."""
    happens: Sequence[Mishap] = ()
    """At its time from the first `session.updated`."""
    refusal: Refusal | None = None
    accepts_after: float | None = 0.0
    """From the handshake's request to its answer; None for never."""
    admission_error: Trouble | None = None
    """The handshake is accepted, an `error` comes, and the connection is closed with 4000."""
    acknowledges_after: float | None = 0.0
    """From `session.update` to its answer; None for never."""
    update_failures: Sequence[Trouble | None] = ()
    """The first updates are answered with these errors, where there is one."""
    hears: bool = True
    """Whether speech is found in the audio by its energy."""
    transcription_failure: Trouble | None = None
    """Every transcript fails: a transcription model that is not deployed, say."""
    session_seconds: float = 3600.0
    says_expired: bool = True
    """Whether an `error` comes before the close that ends a session."""
    audio_shortfall_ms: int = 0
    """By how much the service takes its audio for shorter than the bytes say, when a message is truncated (up to 85 was seen)."""


ECHO = Script()
"""Says what it hears."""

NOT_DEPLOYED = Trouble(
    "DeploymentNotFound", "The API deployment for this resource does not exist.", "invalid_request_error"
)
"""What Azure says in each turn when the transcription model is not deployed."""
