"""The rules against the strict service itself, sans-I/O, with everything on its way for any time: whatever order things happen in,
no request is lost or doubled, every answer that began ends once, every call is answered once, and the service's history is what
was heard.
"""

from collections import deque
from math import inf

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.elements import (
    AnswerAgain,
    Commit,
    InputAudio,
    InstructionType,
    Interrupted,
    RealtimeElement,
    RealtimeInstruction,
    ResponseEnd,
    SpeechItem,
    Token,
    Transcript,
    UserSpeech,
)
from engine.interfaces import SessionInput, ToolCall, ToolSettled
from providers.openai import frames
from providers.openai.conversation import Conversation, Do, Emit, Fail, SendFrame, StartCall
from providers.openai.events import AudioDelta, EventReader, TextDelta
from providers.openai.properties import OpenAIProperties
from providers.openai.simulation.conversation import words
from providers.openai.simulator import (
    REAL_TIME,
    Asked,
    Call,
    Completed,
    Failed,
    Frame,
    Incomplete,
    Opening,
    Pace,
    RealtimeCore,
    Reply,
    Rule,
    Say,
    Script,
    Utterance,
)
from tests.providers.openai.books import pcm

RACES = {Rule.NOTHING_TO_CANCEL, Rule.ONE_RESPONSE, Rule.COMMIT_TOO_SHORT, Rule.UNANSWERED_CALL}
"""What may be broken when two things happen at the same time, and costs nobody anything."""
SETTINGS = {
    "words": OpenAIProperties(stt_provider="Local"),
    "voice": OpenAIProperties(),
    "push": OpenAIProperties(turn_detection={"type": "none"}),
}
TICK = 0.05
REST_TICKS = 4000
"""Longer than any time limit: apologies, late words, retries."""


@attrs.frozen
class Plan:
    """A reply that is still to be given its words."""

    parts: tuple[str, ...] = ("say",)
    reply: Reply = attrs.field(factory=Reply)


plans = st.builds(
    Plan,
    parts=st.lists(st.sampled_from(["say", "say", "call"]), max_size=3).map(tuple),
    reply=st.builds(
        Reply,
        pace=st.sampled_from([Pace(), REAL_TIME, Pace(token_seconds=0.1, audio_speed=4.0)]),
        created_after=st.sampled_from([0.0, 0.0, 0.1]),
        starts_after=st.sampled_from([0.0, 0.2]),
        cancel_lag=st.sampled_from([0.0, 0.0, 0.15]),
        ends=st.sampled_from([Completed(), Completed(), Completed(), Incomplete(), Failed("server_error")]),
    ),
)


@attrs.define(eq=False)
class Heard:
    """What the user has heard of an answer, as the engine knows it."""

    words: list[str] = attrs.field(factory=list[str])
    ms: int = 0
    has_called: bool = False
    has_ended: bool = False
    is_cut: bool = False
    is_played: bool = False
    """All of it has been heard."""
    is_gone: bool = False
    """With the connection it was given on."""


class Race(RuleBasedStateMachine):
    """The rules, a service, and an engine in between that keeps count."""

    @initialize(mode=st.sampled_from(sorted(SETTINGS)), text_only=st.booleans())
    def begin(self, mode: str, text_only: bool) -> None:
        self.mode, self.text_only = mode, text_only
        self.now = 0.0
        self.ids: dict[str, int] = {}
        self.conversation = Conversation(SETTINGS[mode], self.new_id, "en", text_only)
        self.inputs: deque[SessionInput | RealtimeInstruction] = deque()
        self.answers: dict[str, Heard] = {}
        self.finals: list[str] = []
        self.typed: list[str] = []
        self.plans: deque[Plan] = deque()
        self.calls: dict[str, ToolCall] = {}
        self.running: list[str] = []
        self.marks = 0
        self.connections = 0
        self.connect()

    def new_id(self, kind: str) -> str:
        self.ids[kind] = self.ids.get(kind, 0) + 1
        return f"{kind}-{self.ids[kind]}"

    # --- the service

    def connect(self) -> None:
        self.core = RealtimeCore(Script(answer=self.answer), Opening(number=self.connections))
        self.connections += 1
        self.reader = EventReader()
        self.up: deque[str] = deque()
        self.down: deque[str] = deque()
        self.item_answers: dict[str, str] = {}
        self.core.open(self.now)
        update = frames.session_update(SETTINGS[self.mode], "Be brief.", (), ["en"], text_only=self.text_only)
        self.core.receive(update, self.now)
        self.core.take(self.now)
        self.do(self.conversation.connected((), self.now))

    def answer(self, asked: Asked) -> Reply:
        plan = self.plans.popleft() if self.plans else Plan()
        parts: list[Say | Call] = []
        for part in plan.parts:
            self.marks += 1
            words = [f"word{self.marks}a", f" word{self.marks}b", f" word{self.marks}c", f" word{self.marks}d"]
            parts.append(Say(words, 400) if part == "say" else Call("look", {"mark": self.marks}))
        return attrs.evolve(plan.reply, parts=parts)

    def take_events(self) -> None:
        if self.conversation.is_connected:
            self.down.extend(out.text for out in self.core.take(self.now) if isinstance(out, Frame))

    # --- the engine

    def do(self, todo: list[Do]) -> None:
        for do in todo:
            match do:
                case SendFrame(frame):
                    self.up.append(frame)
                case StartCall(call):
                    assert call.call_id not in self.calls, "a call was started twice"
                    self.of(call.response_id).has_called = True
                    self.calls[call.call_id] = call
                    self.running.append(call.call_id)
                case Fail():
                    raise AssertionError("nothing fatal happens here")
                case Emit(element):
                    self.hear(element)

    def hear(self, element: RealtimeElement) -> None:
        match element:
            case Token(text, response_id):
                self.of(response_id).words += text.split()
            case SpeechItem(audio, response_id=response_id):
                self.of(response_id).ms += len(audio) // 48
            case ResponseEnd(response_id, status):
                heard = self.answers.setdefault(response_id, Heard())
                assert not heard.has_ended, "an answer ended twice"
                assert not heard.is_cut or status == "cancelled", "an end of what was cut"
                heard.has_ended = True
            case Transcript(is_interim=True):
                self.cut(is_told=False)
            case Transcript(text):
                self.finals.append(text)
            case _:
                pass

    def of(self, response_id: str) -> Heard:
        heard = self.answers.setdefault(response_id, Heard())
        assert not heard.is_cut, "something came of what was cut"
        assert not heard.has_ended, "something came behind the end"
        return heard

    def cut(self, *, is_told: bool) -> None:
        """The user speaks. Half was heard of the first answer that was not played, and nothing of the later ones."""
        named, interruption = "", Interrupted()
        for response_id, heard in self.answers.items():
            is_shown = heard.words or heard.ms or heard.has_called
            if heard.is_played or heard.is_cut or heard.is_gone or not is_shown:
                continue
            heard.is_cut = True
            if named:
                heard.words, heard.ms = [], 0
                continue
            named = response_id
            heard.words, heard.ms = heard.words[: len(heard.words) // 2], heard.ms // 2
            interruption = Interrupted(named, " ".join(heard.words), heard.ms)
        if named or is_told:
            self.do(self.conversation.take(interruption, self.now))

    def outlook(self) -> tuple[float, bool, bool]:
        """When something is to be done, and what a connection's renewal and the session's end depend on."""
        deadline = self.conversation.deadline(self.now)
        return inf if deadline is None else deadline, self.conversation.is_quiet, self.conversation.is_done

    # --- what happens

    @precondition(lambda self: self.up)
    @rule()
    def deliver_frame(self) -> None:
        self.core.receive(self.up.popleft(), self.now)
        self.take_events()

    @precondition(lambda self: self.down)
    @rule(count=st.integers(1, 6))
    def deliver_events(self, count: int) -> None:
        for _ in range(min(count, len(self.down))):
            event = self.reader.read(self.down.popleft())
            if event is None:
                continue
            before = self.outlook()
            todo = self.conversation.receive(event, self.now)
            if isinstance(event, AudioDelta):
                assert self.outlook() == before, (
                    "sound has moved something that is looked at again only for other events"
                )
            if isinstance(event, AudioDelta | TextDelta):
                for do in todo:
                    if isinstance(do, Emit) and isinstance(do.element, Token | SpeechItem):
                        self.item_answers[event.item_id] = do.element.response_id
            self.do(todo)

    @precondition(lambda self: self.inputs)
    @rule()
    def deliver_input(self) -> None:
        item = self.inputs.popleft()
        if isinstance(item, RealtimeInstruction):
            self.do(self.conversation.instruct(item, self.now))
        else:
            self.do(self.conversation.take(item, self.now))

    @rule(ticks=st.integers(1, 20))
    def pass_time(self, ticks: int) -> None:
        for _ in range(ticks):
            self.now += TICK
            self.take_events()
            deadline = self.conversation.deadline(self.now)
            if deadline is not None and deadline <= self.now:
                self.do(self.conversation.tick(self.now))
                later = self.conversation.deadline(self.now)
                assert later is None or later > self.now, "a deadline that was not dealt with"

    @rule(plan=plans)
    def plan(self, plan: Plan) -> None:
        self.plans.append(plan)

    @rule()
    def play(self) -> None:
        """What has ended was heard to its end."""
        for heard in self.answers.values():
            heard.is_played = heard.is_played or (heard.has_ended and not heard.is_cut)

    @rule()
    def type(self) -> None:
        text = f"typed {len(self.typed)}"
        self.cut(is_told=True)
        self.inputs.append(UserSpeech(text, "Client"))
        self.typed.append(text)

    @rule(kind=st.sampled_from(list(InstructionType)))
    def instruct(self, kind: InstructionType) -> None:
        self.inputs.append(RealtimeInstruction("Mention it.", kind))

    @rule()
    def ask_again(self) -> None:
        self.inputs.append(AnswerAgain("words"))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), interrupted=st.booleans())
    def settle(self, data: st.DataObject, interrupted: bool) -> None:
        call = self.calls[self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))]
        is_cut = self.answers[call.response_id].is_cut
        stopped, late = is_cut and interrupted, is_cut and not interrupted
        self.inputs.append(
            ToolSettled(call.call_id, call.name, call.response_id, "done", interrupted=stopped, late=late)
        )

    @precondition(lambda self: self.mode == "voice")
    @rule(seconds=st.sampled_from([0.1, 0.4]), late=st.sampled_from([0.0, 0.3, 2.0, None]), has_words=st.booleans())
    def speak(self, seconds: float, late: float | None, has_words: bool) -> None:
        utterance = Utterance("spoken words" if has_words else "", seconds=seconds, transcribed_after=late)
        self.core.speak(utterance, self.now)
        self.take_events()

    @precondition(lambda self: not self.inputs)
    @rule()
    def listen(self) -> None:
        """Audio goes the short way when nothing comes of it but its frame, and else as an input."""
        before = self.outlook()
        frame = self.conversation.append(bytes(960), self.now)
        if frame is None:
            if self.mode == "voice" and self.conversation.is_connected:  # a gap, which it ends
                self.do(self.conversation.take(InputAudio(bytes(960)), self.now))
                frame = self.conversation.append(bytes(960), self.now)
                assert frame is not None
                self.up.append(frame)
            return
        assert self.mode == "voice"
        assert frame == frames.audio_append(bytes(960))
        self.up.append(frame)
        deadline, *others = self.outlook()
        assert deadline >= before[0], "a deadline has moved nearer, and nobody is woken for it"
        assert others == [*before[1:]]

    @precondition(lambda self: self.mode == "push")
    @rule(ms=st.sampled_from([40, 400]), commits=st.booleans())
    def press(self, ms: int, commits: bool) -> None:
        self.inputs.append(InputAudio(pcm(ms)))
        if commits:
            self.inputs.append(Commit())

    @precondition(lambda self: self.conversation.is_connected and self.connections < 4)
    @rule(is_told=st.booleans())
    def lose_connection(self, is_told: bool) -> None:
        self.up.clear()
        self.down.clear()
        for heard in self.answers.values():
            heard.is_gone = True
        self.do(self.conversation.lost(self.now, is_told=is_told))
        assert all(heard.has_ended or heard.is_cut for heard in self.answers.values())

    @precondition(lambda self: not self.conversation.is_connected)
    @rule()
    def come_back(self) -> None:
        self.connect()

    # --- what has to be true

    @invariant()
    def no_rule_is_broken(self) -> None:
        if not hasattr(self, "core"):
            return
        broken = [f"{each.detail} {each.event}" for each in self.core.broken if each.rule not in RACES]
        assert broken == [], broken
        if self.mode == "words":
            assert {each.rule for each in self.core.broken} <= {Rule.NOTHING_TO_CANCEL}

    def teardown(self) -> None:
        if hasattr(self, "core"):
            self.come_to_rest()
            self.check_end()

    def come_to_rest(self) -> None:
        """Deliver everything, and then speak once more: that is answered."""
        self.plans.clear()
        if not self.conversation.is_connected:
            self.connect()
        self.rest()
        before = sum(heard.has_ended for heard in self.answers.values())
        self.inputs.append(RealtimeInstruction("The last one.", InstructionType.INSTRUCTION))
        self.rest()
        assert sum(heard.has_ended for heard in self.answers.values()) == before + 1
        self.type()
        self.rest()
        assert self.finals[-1] == self.typed[-1]
        assert list(self.answers.values())[-1].has_ended

    def rest(self) -> None:
        for _ in range(REST_TICKS):
            self.drain()
            if self.conversation.is_quiet and not (self.inputs or self.running or self.up or self.down):
                return
        raise AssertionError(f"no rest: {self.conversation}")

    def drain(self) -> None:
        if self.mode == "push" and self.conversation.is_pressed:
            self.inputs.append(Commit())
        while self.inputs:
            self.deliver_input()
        while self.running:
            call = self.calls[self.running.pop()]
            self.inputs.append(ToolSettled(call.call_id, call.name, call.response_id, "done"))
        while self.up:
            self.deliver_frame()
        while self.down:
            self.deliver_events(6)
        self.pass_time(1)

    def check_end(self) -> None:
        assert all(heard.has_ended or heard.is_cut for heard in self.answers.values()), "an answer has no end"
        for text in self.typed:
            assert self.finals.count(text) == 1, f"{text!r} was echoed {self.finals.count(text)} times"
        items = [item.shown for item in self.core.conversation.items]
        outputs = [item["call_id"] for item in items if item["type"] == "function_call_output"]
        assert len(outputs) == len(set(outputs)), "a call was answered twice"
        users = [item["content"][0].get("text") for item in items if item.get("role") == "user"]
        assert all(users.count(text) <= 1 for text in self.typed), "a request was doubled"
        if self.text_only:
            self.check_words()
        else:
            self.check_sound()

    def check_sound(self) -> None:
        known: dict[str, float] = {}
        for item in self.core.conversation.items:
            if item.has_model_audio:
                answer = self.item_answers.get(item.id, "nobody")
                known[answer] = known.get(answer, 0.0) + item.audio_ms
        heard = {each: about.ms for each, about in self.answers.items() if about.ms and not about.is_gone}
        assert known == heard, f"the service knows of {known}, heard was {heard}"

    def check_words(self) -> None:
        known = [
            word
            for item in self.core.conversation.items
            if item.shown.get("role") == "assistant"
            for word in words(item.shown).split()
        ]
        heard = [word for each in self.answers.values() if not each.is_gone for word in each.words]
        assert known == heard, f"the service knows of {known}, heard was {heard}"


TestRace = Race.TestCase
TestRace.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
