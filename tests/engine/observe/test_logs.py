"""Logs: a line is a line, says whose it is, and holds nothing of what was said."""

import io
import json
import logging
import warnings
from collections.abc import Generator
from functools import partial

import pydantic
import pytest
import trio
from trio.testing import MockClock

from engine.elements import Action, Commit, ControlToken, InputText, JsonObject, RealtimeError
from engine.errors import ErrorCode, Whose
from engine.observation import bind_session, bound_session
from engine.observe.logs import (
    HIDDEN,
    MESSAGE_CHARACTERS,
    QUIET,
    TRACE_HEAD,
    TRACE_LINE_CHARACTERS,
    TRACE_TAIL,
    Format,
    LogHandler,
    clean_message,
    configure_logging,
)
from engine.testing.faults import Fault, FaultyStore
from engine.testing.scripted import ScriptedModel, answer, echo, final, interim
from engine.testing.stage import ScriptedManager, open_stage
from tests.cases.support import Tools

logger = logging.getLogger("some.library")


class Log:
    """What was logged."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def configure(self, level: str = "info", style: Format = "json") -> None:
        configure_logging(level, style, self.stream)

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def documents(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def log() -> Generator[Log]:
    """The logging of this process, put back as it was."""
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in (*QUIET, root.name)}
    yield Log()
    for handler in root.handlers[:]:
        if isinstance(handler, LogHandler):
            root.removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=False)


# --- lines


def test_a_line_of_json(log: Log) -> None:
    log.configure()
    with bind_session("s-1") as bound:
        logger.info("a connection ended with %d", 1000)
        bound.read_turn_id = lambda: "t-2"
        logger.warning("the outbox is full")
    first, second = log.documents
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "info",
        "logger": "some.library",
        "pid": logging.LogRecord("", 0, "", 0, "", (), None).process,
        "message": "a connection ended with 1000",
        "session_id": "s-1",
    }
    assert (second["level"], second["session_id"], second["turn_id"]) == ("warning", "s-1", "t-2")


def test_a_line_of_text(log: Log) -> None:
    log.configure(style="text")
    logger.info("nobody's")
    with bind_session("s-1") as bound:
        bound.read_turn_id = lambda: "t-2"
        logger.info("somebody's")
    nobody, somebody = log.text.splitlines()
    assert nobody.endswith("]: nobody's")
    assert somebody.endswith(" s-1 t-2]: somebody's")
    assert " INFO some.library [" in somebody


def test_the_level(log: Log) -> None:
    log.configure("warning")
    logger.info("quiet")
    logger.warning("loud")
    assert [document["message"] for document in log.documents] == ["loud"]


def test_it_may_be_configured_again(log: Log) -> None:
    log.configure(style="text")
    log.configure()
    logger.warning("once")
    assert [document["message"] for document in log.documents] == ["once"]


def test_warnings_are_logged(log: Log) -> None:
    log.configure()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("this will go away", UserWarning, stacklevel=1)
    (document,) = log.documents
    assert document["logger"] == "py.warnings"
    assert "UserWarning: this will go away" in document["message"]


@pytest.mark.parametrize("name", QUIET)
def test_libraries_that_log_headers_and_bodies_are_kept_quiet(log: Log, name: str) -> None:
    log.configure("debug")
    logging.getLogger(name).info("POST /v1/models?key=abc")
    logging.getLogger(f"{name}.inner").debug("authorization: abc")
    logging.getLogger(name).error("broken")
    assert [document["message"] for document in log.documents] == ["broken"]


# --- what a client may have sent


@pytest.mark.parametrize("style", ["text", "json"])
def test_nobody_can_forge_a_line(log: Log, style: Format) -> None:
    log.configure(style=style)
    for end in ("\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"):
        logger.warning("no agent %s", f"x{end}2026-03-01 12:00:00,000 ERROR root [1]: all is lost\x1b[2K\u202e")
    assert len(log.text.splitlines()) == 9
    assert not {"\x1b", "\u202e"} & set(log.text)


def test_nobody_can_forge_a_line_with_a_traceback(log: Log) -> None:
    log.configure(style="text")
    try:
        raise ValueError("x\n2026-03-01 12:00:00,000 ERROR root [1]: all is lost")
    except ValueError:
        logger.exception("it failed")
    first, *others = log.text.splitlines()
    assert first.endswith("it failed")
    assert all(line.startswith("    ") for line in others)
    assert others[-1] == "    2026-03-01 12:00:00,000 ERROR root [1]: all is lost"


def test_a_message_has_a_length() -> None:
    assert clean_message("é" * MESSAGE_CHARACTERS) == "é" * MESSAGE_CHARACTERS
    cut = clean_message("é" * (MESSAGE_CHARACTERS + 5))
    assert cut == "é" * MESSAGE_CHARACTERS + "… (5 more characters)"
    assert clean_message("half a \ud800 character") == "half a \\ud800 character"


def test_a_traceback_has_a_length(log: Log) -> None:
    def fail(depth: int) -> None:
        if depth == 0:
            raise ValueError("x" * 10_000)
        if depth % 2:
            fail(depth - 1)
        else:
            fail(depth - 1)  # another line, else Python shortens by itself

    log.configure()
    try:
        fail(200)
    except ValueError:
        logger.exception("it failed")
    lines = log.documents[0]["exception"].splitlines()
    assert len(lines) == TRACE_HEAD + 1 + TRACE_TAIL
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[TRACE_HEAD].endswith(" more lines)")
    assert lines[-1].startswith("ValueError: xxx")
    assert len(lines[-1]) < TRACE_LINE_CHARACTERS + 40


@pytest.mark.parametrize(
    "said",
    [
        "Authorization: Bearer {}",
        "{{'authorization': 'Basic {}'}}",
        "headers={{'x-api-key': '{}', 'accept': '*/*'}}",
        'apiKey="{}"',
        "SOUFFLEUR_ADMIN_KEY={}",
        "wss://example.com/live?key={}&alt=sse",
        "#authorization:{}",
        "password: {}",
        "client_secret={}&grant_type=x",
        "access_token={}",
        "the key sk-{} is not valid",
    ],
)
def test_what_looks_like_a_credential_is_left_out(said: str) -> None:
    secret = "Zm9vOmJhcg0123456789"
    cleaned = clean_message(said.format(secret))
    assert secret not in cleaned
    assert HIDDEN in cleaned
    assert clean_message(cleaned) == cleaned


@pytest.mark.parametrize(
    "said",
    [
        "There is no agent 'barista'.",
        "#ready:key=agent:barista&sessionId=S1",
        "the model used 1200 tokens: 900 in, 300 out",
        "session s-1 failed",
        "a basic agent",
    ],
)
def test_anything_else_is_left_as_it_is(said: str) -> None:
    assert clean_message(said) == said


def test_what_did_not_validate_is_not_quoted(log: Log) -> None:
    class Order(pydantic.BaseModel):
        coffees: int

    log.configure()
    said = {"coffees": "two, and a cake for my sister's birthday"}
    try:
        Order.model_validate(said)
    except pydantic.ValidationError:
        logger.exception("an order could not be read")
    assert "Input should be a valid integer" in log.text
    assert "birthday" not in log.text


# --- whose line it is


async def test_a_task_works_for_the_session_it_was_started_for() -> None:
    """Not for that of the nursery's owner: Trio gives a task the context of whoever starts it."""
    found: dict[str, str] = {}

    def note(name: str) -> None:
        bound = bound_session()
        found[name] = bound.session_id if bound is not None else ""

    async def run(name: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        note(name)
        task_status.started()
        await trio.lowlevel.checkpoint()
        note(f"{name}, later")
        await trio.to_thread.run_sync(note, f"{name}, in a thread")
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.lowlevel.checkpoint)
            note(f"{name}, in a nursery")

    async def of_session(session_id: str, elsewhere: trio.Nursery) -> None:
        with bind_session(session_id):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run, f"{session_id} soon")
                await nursery.start(run, f"{session_id} started")
                elsewhere.start_soon(run, f"{session_id} elsewhere")
        note(f"{session_id} after")

    async with trio.open_nursery() as outer:
        outer.start_soon(of_session, "s1", outer)
        outer.start_soon(of_session, "s2", outer)
        outer.start_soon(run, "nobody's")
    assert len(found) == 2 * (3 * 4 + 1) + 4
    for name, session_id in found.items():
        assert session_id == ("" if "after" in name or "nobody" in name else name[:2]), name


async def test_the_turn_is_asked_for_when_it_is_named() -> None:
    turn = ["t-1"]
    with bind_session("s") as bound:
        assert bound.turn_id == ""
        bound.read_turn_id = lambda: turn[0]
        turn[0] = "t-2"
        assert bound.turn_id == "t-2"
        await trio.lowlevel.checkpoint()
    assert bound.turn_id == ""  # nothing of the session is kept


# --- nothing of what was said

SAID = {
    name: f"{name}mark" for name in ("spoken", "typed", "answered", "argument", "result", "action", "token", "rated")
}


async def returns(arguments: JsonObject) -> str:
    await trio.lowlevel.checkpoint()
    return f"there are {SAID['result']}"


async def breaks(arguments: JsonObject) -> str:
    await trio.lowlevel.checkpoint()
    raise RuntimeError(f"the printer is on fire: {SAID['argument']}")


@pytest.mark.parametrize("fault", [None, Fault.FAIL])
@pytest.mark.parametrize("style", ["text", "json"])
async def test_a_whole_session_leaves_no_word_in_the_log(
    autojump_clock: MockClock, log: Log, style: Format, fault: Fault | None
) -> None:
    log.configure("info", style)
    store = FaultyStore(lambda call: fault if call.operation == "append_turns" and call.number % 2 else None)
    manager = ScriptedManager(tool_box=Tools({"count": returns, "print": breaks}), extraction_seconds=0.5)
    async with open_stage(model=ScriptedModel(echo), manager=manager, store=store) as stage:
        session = stage.model.session
        session.say(interim(SAID["spoken"]), final(f"please {SAID['spoken']}"))
        session.call_tool("c1", "count", json.dumps({"what": SAID["argument"]}), "r1")
        for number, name in enumerate(("print", "no_such_tool")):
            session.call_tool(f"d{number}", name, json.dumps({"what": SAID["argument"]}), "r1")
        session.call_tool("e1", "count", f"not json {SAID['argument']}", "r1")
        await trio.sleep(1)
        answer(session, f"So {SAID['answered']}, and then {SAID['answered']}.", "r1")
        await trio.sleep(0.1)
        await stage.client.send(InputText(f"no, {SAID['typed']}"))  # a barge-in
        await trio.sleep(3)
        await stage.client.send(
            Action("rating", {"value": "9", "text": SAID["rated"]}),
            Action("nonsense", {"what": SAID["action"]}),
            Commit(),
            ControlToken("authorization", SAID["token"]),
            ControlToken("locales", SAID["token"]),
        )
        session.fails_to_instruct = True
        session.say(RealtimeError(ErrorCode.PROVIDER_QUOTA, "The quota is used up.", whose=Whose.PROVIDER))
        await trio.sleep(3)
        logger.info("the last line")
        session.fail(RuntimeError("the connection was reset"))
        await stage.over.wait()
        assert SAID["typed"] in "".join(stage.client.sentences)
    assert "the last line" in log.text
    assert "tool print failed: RuntimeError" in log.text
    assert [word for word in SAID.values() if word in log.text] == []


async def test_what_a_tool_failed_with_is_told_to_who_looks_for_it(autojump_clock: MockClock, log: Log) -> None:
    log.configure("debug")
    manager = ScriptedManager(tool_box=Tools({"print": breaks}))
    async with open_stage(model=ScriptedModel(echo), manager=manager) as stage:
        stage.model.session.call_tool("c1", "print", "{}", "r1")
        await trio.sleep(1)
    levels = {
        document["level"]: document.get("exception", "") for document in log.documents if "fail" in document["message"]
    }
    assert levels.keys() == {"error", "debug"}
    assert levels["error"] == ""
    assert "the printer is on fire" in levels["debug"]


async def test_the_marks_are_found_when_they_are_there(log: Log) -> None:
    """So that the test above would notice."""
    log.configure("debug")
    await trio.to_thread.run_sync(partial(logger.debug, "heard %r", SAID["spoken"]))
    assert SAID["spoken"] in log.text
