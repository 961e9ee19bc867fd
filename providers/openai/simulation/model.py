"""The model's side of a session: which response is under way, which calls wait for their output, what the next reply is."""

from collections.abc import Callable

from providers.openai.simulation import rules
from providers.openai.simulation.checks import Json
from providers.openai.simulation.conversation import Conversation, Item, words
from providers.openai.simulation.message import Speaker
from providers.openai.simulation.response import Order, Response
from providers.openai.simulation.script import AUTOMATIC, Asked, Mishap, RateLimits, Reply, Script, Stall, Usage
from providers.openai.simulation.settings import TRANSCRIPTION, Settings, check_reasoning
from providers.openai.simulation.sound import Format, Voice
from providers.openai.simulation.wire import Wire

CHARACTERS_PER_TOKEN = 4
AUDIO_IN_MS_PER_TOKEN = 100
TOKEN_LIMIT = 15_000_000


class Model:
    """Answers.

    Args:
        created, done: Called for every response of the conversation, behind its first and last event.
        mishap: Does to the connection what a mishap says.
    """

    def __init__(
        self,
        wire: Wire,
        settings: Settings,
        conversation: Conversation,
        script: Script,
        *,
        voice: Voice,
        keeps_audio: bool,
        created: Callable[[Response], None],
        done: Callable[[Response], None],
        mishap: Callable[[Mishap], None],
    ) -> None:
        self.spoke = False
        """The model has said something aloud: the voice is fixed."""
        self._wire = wire
        self._settings = settings
        self._conversation = conversation
        self._script = script
        self._voice = voice
        self._keeps_audio = keeps_audio
        self._created = created
        self._done = done
        self._mishap = mishap
        self._active: Response | None = None
        self._out_of_band: dict[str, Response] = {}
        self._count = 0
        self._owed: dict[str, None] = {}
        """The calls that wait for their output, in order."""
        self._answered: set[str] = set()
        self._held: list[Callable[[], None]] = []
        self._tokens = TOKEN_LIMIT

    @property
    def is_busy(self) -> bool:
        """A response of the conversation is under way."""
        return self._active is not None

    # --- asking

    def create(self, given: Json, *, by_client: bool) -> None:
        """Ask for a response.

        Args:
            given: The `response` of `response.create`; empty when the service asks itself.

        Raises:
            Refused: there can be none now, or not that one.
        """
        if self._settings.kind == TRANSCRIPTION:
            raise rules.not_for_this_session("a response.create event", TRANSCRIPTION)
        in_conversation = given.get("conversation", "auto") == "auto"
        if by_client:
            check_reasoning(given, str(self._settings.session["model"]), "response")
            self._check_input(given)
        if in_conversation:
            if self._active is not None:
                raise rules.already_active(self._active.id)
            if by_client and self._owed and "input" not in given:
                raise rules.unanswered_call(next(iter(self._owed)))
            self._check_voice(given)
        response = self._make(given, in_conversation=in_conversation)
        if in_conversation:
            self._active = response
        else:
            self._out_of_band[response.id] = response
        if response.reply.created_after:
            self._wire.later(response.reply.created_after, lambda: self._begin(response))
        else:
            self._begin(response)

    def _begin(self, response: Response) -> None:
        if response.is_created:
            return
        if response.in_conversation:
            self._created(response)
        response.create()

    def _check_input(self, given: Json) -> None:
        for index, item in enumerate(given.get("input", ())):
            if item["type"] == "item_reference" and not self._conversation.has(item["id"]):
                raise rules.unknown_reference(item["id"], f"response.input[{index}].id")

    def _check_voice(self, given: Json) -> None:
        own = given.get("audio", {}).get("output", {})
        session = self._settings.session["audio"]["output"]
        if self.spoke and "voice" in own and own["voice"] != session["voice"]:
            raise rules.voice_is_fixed()

    # --- the reply

    def _make(self, given: Json, *, in_conversation: bool) -> Response:
        session = self._settings.session
        asked = {**session, **given}
        output = {**session["audio"]["output"], **given.get("audio", {}).get("output", {})}
        voice = output["voice"]
        reply = self._next_reply(given)
        order = Order(
            self._wire.new_id("resp"),
            modality=asked["output_modalities"][0],
            # Of a custom voice only the id: the SDK takes no other in a response.
            output={"format": output["format"], "voice": voice if isinstance(voice, str) else voice["id"]},
            max_output_tokens=asked["max_output_tokens"],
            metadata=given.get("metadata"),
        )
        speaker = Speaker(
            order.modality,
            Format.of(output["format"]),
            self._voice,
            reply.pace or self._script.pace,
            self._keeps_audio,
        )
        context = self._context(given)
        return Response(
            self._wire,
            self._conversation if in_conversation else None,
            order,
            reply,
            speaker,
            input_usage=lambda: _input_usage(session, context),
            mishap=self._mishap,
            spoke=self._note_speech,
            done=self._over,
        )

    def _note_speech(self) -> None:
        self.spoke = True

    def _next_reply(self, given: Json) -> Reply:
        number, self._count = self._count, self._count + 1
        replies = self._script.replies
        if replies and (number < len(replies) or self._script.repeat_seconds is not None):
            return replies[number % len(replies)]
        context = self._context(given)
        last = context[-1] if context else None
        said = "" if last is None else last.heard if last.heard is not None else words(last.shown)
        return self._script.answer(
            Asked(
                number,
                said,
                tuple(item.shown for item in context),
                self._settings.session,
                given,
                is_tool_output=last is not None and last.shown["type"] == "function_call_output",
            )
        )

    def _context(self, given: Json) -> list[Item]:
        """What the response is made from."""
        if given.get("input") is None:
            return list(self._conversation.items)
        return [
            self._conversation.find(item["id"], "retrieve")
            if item["type"] == "item_reference"
            else Item(item.get("id", ""), {"status": "completed", **item})
            for item in given["input"]
        ]

    # --- ending

    def cancel(self, response_id: str | None) -> None:
        """Raises `Refused` when there is nothing to cancel; X: so it is before `response.created`, and the response comes."""
        response = self._active
        if response_id is not None and (response is None or response.id != response_id):
            response = self._out_of_band.get(response_id)
        if response is None or not response.is_created:
            raise rules.nothing_to_cancel()
        response.cancel("client_cancelled")

    def interrupt(self) -> None:
        """The user speaks."""
        response = self._active
        if response is not None:
            response.cancel("turn_detected")
            self._begin(response)

    def stall(self, stall: Stall) -> None:
        """What is under way goes silent."""
        if self._active is not None:
            self._active.happen(stall)

    def _over(self, response: Response) -> None:
        """Right behind `response.done`."""
        if response.in_conversation:
            self._active = None
            if response.status == "completed":
                self._owed |= dict.fromkeys(call for call in response.calls() if call not in self._answered)
        else:
            self._out_of_band.pop(response.id, None)
        self._tell_rate_limits(response)
        if response.in_conversation:
            self._done(response)
            held, self._held = self._held, []
            for tell in held:
                tell()

    def _tell_rate_limits(self, response: Response) -> None:
        limits = response.reply.rate_limits
        if response.usage is not None:
            self._tokens -= response.usage.input + response.usage.output
        if limits is AUTOMATIC:
            limits = RateLimits(self._tokens, TOKEN_LIMIT, (TOKEN_LIMIT - self._tokens) / 1e6)
        if limits is not None:
            one = {
                "name": "tokens",
                "limit": limits.limit,
                "remaining": limits.remaining,
                "reset_seconds": limits.reset_seconds,
            }
            self._wire.emit("rate_limits.updated", rate_limits=[one])

    # --- calls

    def output_given(self, call_id: str) -> bool:
        """The client has answered a call. False when it had before."""
        self._owed.pop(call_id, None)
        is_first = call_id not in self._answered
        self._answered.add(call_id)
        return is_first

    def forget_call(self, call_id: str) -> None:
        """The call was deleted."""
        self._owed.pop(call_id, None)

    def tell_behind_response(self, call_id: str, tell: Callable[[], None]) -> None:
        """Tell of an output: at once, but behind the response that its call belongs to."""
        if self._active is not None and any(item.item.shown.get("call_id") == call_id for item in self._active.items):
            self._held.append(tell)
        else:
            tell()


def _input_usage(session: Json, context: list[Item]) -> Usage:
    """A plausible number of tokens, by length."""
    characters = len(session["instructions"]) + sum(len(words(item.shown)) for item in context if not item.audio_ms)
    audio = round(sum(item.audio_ms for item in context) / AUDIO_IN_MS_PER_TOKEN)
    return Usage(input=characters // CHARACTERS_PER_TOKEN + audio, input_audio=audio)
