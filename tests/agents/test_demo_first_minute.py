"""The first minute with the demo project as it is served: its real project file, documents and book, the relational manager, and the
Demo model in every part. In virtual time, which a thread at work holds."""

import json
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from agents.demo import PROJECT_FILE, booking
from agents.demo.booking import BookingBook
from agents.relational.manager import RelationalAgentInteractionManager
from engine import registry
from engine.cli import main
from engine.composition import open_services
from engine.config import PipelineConfiguration
from engine.elements import Action, InputText, OutputElement, OutText, OutTranscript
from engine.interfaces import ChatDelta, ChatRequest, PartFactory
from engine.pipeline.line import open_line
from engine.principal import Principal
from engine.session.windowing import run_connection
from engine.simulate.clock import run_environment, run_in_virtual_time
from engine.store.documents import SessionState
from engine.testing.invariants import check_stream, require
from engine.testing.scripted import ScriptedClient
from providers.chat.demo import DemoChatModel
from providers.chat.demo_prompts import Part, first_prompt, part_of
from providers.internal.model import InternalRealtimeModel

STEPS = ("Are you coming for the play", "theatre plate", "book_table", "Let them go")
"""What stands in the process and nowhere else that the speaker may read."""
LONGEST = 300
"""Seconds of virtual time."""
HELLO = (
    "Hello, this is Café Souffleur, a scripted demo, as no language model is installed.",
    "I can book a table, or tell you our opening hours and what there is.",
    "What would you like?",
)
CONFIRMED = (
    "Table for 2 people on Tuesday, 3 March 2026 at 19:00 in the name of Anna, confirmation number 101.",
    "Thank you for calling, Anna.",
)


@attrs.define(eq=False)
class WatchedDemo(DemoChatModel):
    """Notes what it is asked."""

    hesitates: float = 0.0
    """Seconds before it says what it was instructed to."""
    requests: list[ChatRequest] = attrs.field(factory=list[ChatRequest])

    @asynccontextmanager
    async def open_stream(self, request: ChatRequest) -> AsyncGenerator[trio.MemoryReceiveChannel[ChatDelta]]:
        self.requests.append(request)
        if request.messages[-1].text.startswith("Instruction:"):
            await trio.sleep(self.hesitates)
        async with DemoChatModel.open_stream(self, request) as deltas:
            yield deltas


@attrs.define(eq=False)
class Guest:
    """A client that types."""

    client: ScriptedClient
    demo: WatchedDemo

    async def say(self, text: str) -> list[str]:
        """What is answered in that turn, to its end."""
        return await self._turn(InputText(text), text)

    async def begin(self) -> list[str]:
        return await self._turn(Action("intro"), "#intro")

    async def _turn(self, what: InputText | Action, echo: str) -> list[str]:
        before = len(self.client.heard)
        await self.client.send(what)

        def is_new(element: OutputElement) -> bool:
            is_echo = isinstance(element, OutTranscript) and element.text == echo
            return is_echo and any(element is new for _, new in self.client.heard[before:])

        begun = await self.client.wait_for(is_new)
        assert isinstance(begun, OutTranscript)
        await self.client.wait_for_command("exit", turnId=begun.turn_id)
        texts = [element for _, element in self.client.heard[before:] if isinstance(element, OutText)]
        return [element.text for element in texts if element.turn_id == begun.turn_id]

    def whispers(self) -> list[str]:
        """But for the engine's own at each turn's end."""
        texts = [parameters["text"] for parameters in self.client.commands("realtime-instruction")]
        return [text for text in texts if '"' in text]

    def thoughts(self) -> str:
        return "\n".join(parameters["text"] for parameters in self.client.commands("realtime-planning"))

    def tools(self) -> list[tuple[str, str]]:
        return [(parameters["name"], parameters["owner"]) for parameters in self.client.commands("tool-success")]

    def prompts(self, part: Part) -> list[str]:
        prompts = [first_prompt(request.messages) for request in self.demo.requests]
        return [prompt for prompt in prompts if part_of(prompt) is part]


@asynccontextmanager
async def open_call(
    session_id: str = "call", store: str = "memory:", projects: Sequence[Path] = ()
) -> AsyncGenerator[Guest]:
    demo = WatchedDemo()

    def find(group: str, name: str) -> PartFactory:
        return (lambda _: demo) if group == "chat_models" else registry.load(group, name)

    environment = run_environment(1, is_virtual=True, is_kept=False)
    async with open_services(projects=projects, store=store, environment=environment) as opened:
        services = attrs.evolve(
            opened,
            models={"Internal": InternalRealtimeModel(find)},
            managers=[RelationalAgentInteractionManager(find)],
        )
        wishes = PipelineConfiguration(key="agent:barista", text_only=True, session_id=session_id)
        line = open_line(wishes, services.settings)
        guest = Guest(ScriptedClient(line), demo)
        async with trio.open_nursery() as nursery:

            async def connect() -> None:
                await run_connection(wishes, line, services, principal=Principal("device:guest"))
                line.end_output()

            nursery.start_soon(connect, name="connection")
            nursery.start_soon(guest.client.listen, name="client")
            await guest.client.wait_for_command("ready")
            yield guest
            line.end_input()
        require(check_stream(guest.client.heard))


@pytest.fixture
def _empty_book(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(booking, "book", BookingBook())


def played(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(LONGEST):
            await scene()

    run_in_virtual_time(bounded, seed=1)


@pytest.mark.usefixtures("_empty_book")
def test_the_first_minute() -> None:
    played(_first_minute)


async def _first_minute() -> None:
    async with open_call() as guest:
        assert await guest.begin() == list(HELLO)
        assert "I am a scripted planner, as no language model is installed" in guest.thoughts()
        assert guest.whispers() == []

        # What the speaker knows it answers at once.
        assert await guest.say("When are you open?") == [
            "We are open every day from 8 am to 10 pm, and the last table is given at 8:30 pm.",
            "Would you like to book a table?",
        ]
        assert guest.tools() == []

        # It has no book: it passes the table on, and the planner's outcome comes in a second answer.
        assert await guest.say("Yes, for two, tomorrow at seven, under Anna.") == [
            "A table tomorrow, at 7 pm, for two people, in the name of Anna.",
            "Is that right?",
        ]
        assert await guest.say("Yes.") == [
            "I pass that on to my colleague, who has the book.",
            "One moment, please.",
            "Done.",
            CONFIRMED[0],
        ]
        assert guest.tools() == [("request_help", "model"), ("book_table", "planner"), ("remember", "planner")]
        assert [(one.people, one.name) for one in booking.book.bookings] == [(2, "Anna")]
        assert guest.whispers() == [
            f'Instruction: Say: "Done. {CONFIRMED[0]}"',
            'Supporting context: Next, where the answer has room for it, ask: "Are you coming for the play next door?"',
        ]

        # The whisper steers the next answer, and meanwhile the planner looks up what the one after that may need.
        assert await guest.say("Thank you.") == ["You are welcome.", "Are you coming for the play next door?"]
        assert guest.tools()[3:] == [("search_knowledge", "planner")]
        assert await guest.say("Yes, we are.") == [
            "On Tuesday the theatre plays The Prompter's Night at 19:30.",
            "I have that from: Programme of the theatre next door.",
            "Our theatre plate is soup, a sandwich and a small cake for 210 crowns, ten minutes after you have ordered it.",
        ]

        # What the speaker cannot know is looked up, and comes with its source.
        assert await guest.say("Is there gluten in the soup?") == [
            "I do not know that myself, so I have it looked up.",
            "One moment, please.",
            "The soup is lentil soup at 95 crowns, with celery and without gluten, milk or meat.",
            "I have that from: Menu and allergens.",
        ]
        assert guest.whispers()[-1] == (
            'Instruction: Say, and where it is from: "The soup is lentil soup at 95 crowns, with celery and without gluten, milk'
            ' or meat." (Menu and allergens)'
        )

        # It asks for the end, waits, and says the goodbye that was approved.
        assert await guest.say("Great, bye.") == [
            "I see.",
            "One moment, please.",
            CONFIRMED[1],
            "We look forward to seeing you.",
            "Goodbye!",
        ]
        end = await guest.client.wait_for_command("session-end")
        assert end.parameters["state"] == SessionState.CLOSED
        assert len(guest.client.commands("sessionShouldEnd")) == 1
        assert "Nothing is left open, so they may go." in guest.thoughts()
        check_who_was_told_what(guest)


def check_who_was_told_what(guest: Guest) -> None:
    """The process is the planner's alone, and so are its tools."""
    speaker, planner = guest.prompts(Part.SPEAKER), guest.prompts(Part.PLANNER)
    assert len(speaker) >= 8
    assert len(planner) >= 8
    for step in STEPS:
        assert not any(step in prompt for prompt in speaker), step
        assert all(step in prompt for prompt in planner), step
    for request in guest.demo.requests:
        if part_of(first_prompt(request.messages)) is Part.SPEAKER:
            assert {tool.name for tool in request.tools} == {"finish_session", "request_help", "display"}


@pytest.mark.usefixtures("_empty_book")
def test_what_was_cut_off_is_told_later() -> None:
    """The table is booked, and the guest speaks before hearing of it: the planner sees to it that they do."""

    async def scene() -> None:
        async with open_call() as guest:
            guest.demo.hesitates = 2.0
            await guest.say("A table for two tomorrow at seven, under Anna.")
            await guest.client.send(InputText("Yes."))
            await trio.sleep(1.0)
            assert guest.tools()[1:] == [("book_table", "planner"), ("remember", "planner")]
            await guest.say("Wait, when do you close?")
            assert (
                guest.whispers()[-1]
                == f'Supporting context: They have not heard it yet, so tell them: "{CONFIRMED[0]}"'
            )
            assert await guest.say("Thank you.") == ["You are welcome.", CONFIRMED[0]]
            assert await guest.say("Thanks.") == ["You are welcome.", "Are you coming for the play next door?"]
            assert len(booking.book.bookings) == 1

    played(scene)


@pytest.mark.usefixtures("_empty_book")
def test_nobody_goes_with_a_table_half_booked() -> None:
    async def scene() -> None:
        async with open_call() as guest:
            await guest.say("I would like a table for two tomorrow.")
            assert await guest.say("Goodbye.") == [
                "I see.",
                "One moment, please.",
                "Before we hang up: shall I still book the table?",
                "At what time?",
            ]
            assert guest.client.commands("session-end") == []
            assert await guest.say("At seven.") == ["At 7 pm.", "And in whose name?"]
            assert (await guest.say("No, goodbye."))[-1] == "Goodbye!"
            await guest.client.wait_for_command("session-end")

    played(scene)


@pytest.mark.usefixtures("_empty_book")
def test_a_table_that_cannot_be_had_is_asked_for_anew() -> None:
    async def scene() -> None:
        async with open_call() as guest:
            assert "Is that right?" in await guest.say("A table for two today at eight in the morning, under Anna.")
            said = await guest.say("Yes.")
            assert said[2:] == ["I am sorry.", "Monday, 2 March 2026 at 08:00 has passed already.", "At what time?"]
            assert booking.book.bookings == []

    played(scene)


@pytest.mark.usefixtures("_empty_book")
def test_what_nobody_has_written_down_is_not_invented() -> None:
    async def scene() -> None:
        async with open_call() as guest:
            assert (await guest.say("Does your grandmother like skiing?"))[-2:] == [
                "I am sorry, I could not find that out.",
                "Nothing is written about it here.",
            ]

    played(scene)


@pytest.mark.usefixtures("_empty_book")
def test_the_menu_can_be_seen() -> None:
    async def scene() -> None:
        async with open_call() as guest:
            await guest.say("What is on the menu?")
            assert guest.tools() == [("display", "model")]

    played(scene)


@pytest.mark.usefixtures("_empty_book")
def test_a_guest_is_greeted_by_name_the_next_time(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/demo.db"

    async def first() -> None:
        async with open_call("first", store) as guest:
            await guest.say("A table for two tomorrow at noon, under Anna.")
            await guest.say("Yes.")
            assert await guest.say("Thanks.") == ["You are welcome."]  # nobody comes for the play at noon

    async def second() -> None:
        async with open_call("second", store) as guest:
            said = await guest.begin()
            assert said[:2] == [
                "Welcome back, Anna.",
                "This is Café Souffleur, a scripted demo, as no language model is installed.",
            ]
            assert '"Welcome back, Anna."' in guest.prompts(Part.SPEAKER)[0]

    played(first)
    played(second)


@pytest.mark.usefixtures("_empty_book")
def test_another_process_leads_another_way(tmp_path: Path) -> None:
    """The steps are read from the project file, as whoever changes it will expect."""
    shutil.copytree(PROJECT_FILE.parent / "knowledge", tmp_path / "knowledge")
    project = tmp_path / "project.yaml"
    candle = "Shall there be a candle on the table?"
    project.write_text(PROJECT_FILE.read_text().replace("Are you coming for the play next door?", candle))

    async def scene() -> None:
        async with open_call(projects=[project]) as guest:
            await guest.say("A table for two tomorrow at seven, under Anna.")
            await guest.say("Yes.")
            assert await guest.say("Thanks.") == ["You are welcome.", candle]

    played(scene)


@pytest.mark.usefixtures("_empty_book")
def test_a_simulated_guest_has_the_first_minute(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert main(["simulate", "agent:barista", "--tester", "agent:caller", "--seed", "1", "--report", str(report)]) == 0
    [run] = json.loads(report.read_text())["runs"]
    said = [line["text"] for line in run["transcript"] if line["side"] == "tester"]
    assert said == [
        "Hello, I am a scripted guest. I would like to book a table tomorrow, at 7 pm, for two people.",
        "In the name of Anna.",
        "Yes, that is right.",
        "Thank you. Is there gluten in the soup?",
        "Good to know, thank you.",
        "Yes, we are.",
        "Thank you, that is all. Goodbye.",
    ]
    assert run["ended"] == "agent"
