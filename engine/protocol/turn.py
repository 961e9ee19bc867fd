"""What a turn is, and what the turns' machine (`engine.protocol.turns`) asks to be done."""

from collections import OrderedDict
from enum import Enum, auto

import attrs

from engine.elements import (
    MultimodalInteraction,
    OnInterruption,
    RealtimeElement,
    ResponseStatus,
    ToolEvent,
    Transcript,
)
from engine.protocol.steering import Whisper


@attrs.frozen
class TurnLimits:
    """Seconds; each is a setting of the same name (`engine.config.Settings`)."""

    idle_response_end: float = 20.0
    interim_lapse: float = 2.0
    utterance_limit: float = 35.0
    remembered_responses: int = 256


@attrs.define(eq=False)
class ResponseRecord:
    """What a response said. `heard` is None while nothing has cut it: then all of it counts."""

    response_id: str
    sentences: list[str] = attrs.field(factory=list[str])
    status: ResponseStatus | None = None
    heard: str | None = None
    has_sound: bool = False

    @property
    def text(self) -> str:
        return " ".join(self.sentences)

    @property
    def heard_text(self) -> str:
        return self.text if self.heard is None else self.heard


@attrs.define(eq=False)
class Timing:
    """When the parts of a turn came, in seconds of the session's clock."""

    last_interim: float | None = None
    final_transcript: float | None = None
    first_text: float | None = None
    last_text: float | None = None
    first_audio: float | None = None
    last_audio: float | None = None


class Legs(Enum):
    """The back-end work of a turn: extraction and planning."""

    NONE = auto()
    RUNNING = auto()
    OVER = auto()


@attrs.define(eq=False)
class Turn:
    """One window of the conversation, and the record of what happened in it."""

    id: str
    started_at: float | None = None
    """None until something that counts has happened in it."""
    has_interim: bool = False
    words_come_first: bool = False
    """The engine has heard the user by itself: the words come as an echo, before anything of their answer."""
    is_lapsed: bool = False
    final: Transcript | None = None
    is_asked_again: bool = False
    responses: list[ResponseRecord] = attrs.field(factory=list[ResponseRecord])
    tools: OrderedDict[str, ToolEvent] = attrs.field(factory=OrderedDict[str, ToolEvent])
    """By call id: the start event, then the one that settled it."""
    parameters: dict[str, ToolEvent] = attrs.field(factory=dict[str, ToolEvent])
    instructions: list[Whisper] = attrs.field(factory=list[Whisper])
    multimodal: list[MultimodalInteraction] = attrs.field(factory=list[MultimodalInteraction])
    timing: Timing = attrs.field(factory=Timing)
    was_interrupted: bool = False
    # What is going on in it.
    window_open: bool = False
    response: ResponseRecord | None = None
    expected_response: str = ""
    open_calls: dict[str, OnInterruption] = attrs.field(factory=dict[str, OnInterruption])
    legs: Legs = Legs.NONE
    is_cut: bool = False
    is_closing: bool = False
    final_deadline: float | None = None
    """Until when the transcript of what was answered already may still come (case C09)."""

    @property
    def is_fresh(self) -> bool:
        return self.started_at is None

    @property
    def is_worth_storing(self) -> bool:
        return self.final is not None or bool(self.responses) or bool(self.tools)

    @property
    def waits_for_words(self) -> bool:
        """The user has begun to speak, and neither words nor an answer have come."""
        return self.has_interim and self.final is None and not self.responses and not self.is_lapsed

    @property
    def expects_echo(self) -> bool:
        """Nothing that the model may say now belongs to this turn: its words have not come, and nobody asked it to speak."""
        return self.words_come_first and self.final is None and not self.is_lapsed and not self.window_open

    @property
    def is_parting(self) -> bool:
        """The model was last asked for the goodbye."""
        asked = [whisper.instruction for whisper in self.instructions if not whisper.type.is_contextual]
        return bool(asked) and asked[-1].ends_session

    @property
    def user_text(self) -> str:
        return "" if self.final is None else self.final.text


# --- what to do -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Send:
    """Tell the client."""

    element: RealtimeElement
    turn_id: str


@attrs.frozen
class CutSpeech:
    """Take back what is unsent of a response, and close its run."""

    response_id: str
    turn_id: str


@attrs.frozen
class InterruptTools:
    """Settle the running calls of a turn as each declares."""

    turn_id: str


@attrs.frozen
class StartLegs:
    """Both halves are there: record the turn, then extract and plan. Call `legs_over` afterwards, however it went."""

    turn: Turn


@attrs.frozen
class CancelLegs:
    turn: Turn
    reason: str


@attrs.frozen
class ResponseOver:
    """A response has ended: an instruction may have been waiting for it."""

    record: ResponseRecord
    turn: Turn


@attrs.frozen
class CloseTurn:
    """Save the turn and send its exit, then call `turn_closed`."""

    turn: Turn


@attrs.frozen
class AmendTurn:
    """A barge-in cut the playing of a response whose turn is closed: less of it was heard than was stored."""

    turn: Turn


@attrs.frozen
class AskAgain:
    """Ask the model for the answer that a noise cut."""

    text: str


@attrs.frozen
class EndSession:
    """The agent has ended the session: when the goodbye has been heard, or at once."""

    goodbye: str | None
    """The response to hear first; None: at once."""


Do = (
    Send
    | CutSpeech
    | InterruptTools
    | StartLegs
    | CancelLegs
    | ResponseOver
    | CloseTurn
    | AmendTurn
    | AskAgain
    | EndSession
)
