"""A call through the real offline voice: the caller's words are understood, the agent's answers can be understood, an answer is
interrupted, and the turns are stored. Real time, as the engines run in threads."""

import sys
from pathlib import Path

import pytest
import trio

from engine.capsule.keeper import Capsules
from engine.elements import OutCommand
from engine.interfaces import Recognizer, Synthesizer
from engine.registry import load
from engine.store.locate import open_store
from engine.testing.invariants import check_stream, require
from tests.scenarios.caller import Caller, make_speech, normalized, open_call, transcribe, word_errors

LONGEST = 240
UTTERANCES = (
    "When are you open on Sunday?",
    "I would like to book a table for tomorrow evening.",
    "At seven in the evening, for four people.",
    "My name is Anna.",
    "Yes, that is right.",
)
INTERRUPTION = "Wait, please, when do you close today?"


@pytest.mark.voice
async def test_a_call_to_the_cafe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    voice: Synthesizer = load("synthesizers", "Local")({"provider": "Local"})
    recognizer: Recognizer = load("recognizers", "Local")({"provider": "Local"})
    delays: list[float] = []
    store = f"sqlite:{tmp_path}/call.db"
    with trio.fail_after(LONGEST):
        async with open_call(store, Capsules(tmp_path / "capsules").keep) as caller:
            spoken = [await make_speech(voice, text) for text in (*UTTERANCES, INTERRUPTION)]
            await caller.wait_for_exits(1)
            await caller.wait_until_played()
            for exits, pcm in enumerate(spoken[:-1], 2):
                silent_at = await caller.say(pcm)
                delays.append(await caller.wait_for_speech(silent_at) - silent_at)
                if exits <= len(UTTERANCES):
                    await caller.wait_for_exits(exits)
                    await caller.wait_until_played()
            await caller.wait_for_tool("book_table")  # while the first answer is said: "One moment, please."
            await trio.sleep(1.0)
            await caller.say(spoken[-1])
            assert caller.player.ends_at < caller.now + 0.1, "the agent went on speaking over the caller"
            await caller.wait_for_exits(len(UTTERANCES) + 2)
            await caller.wait_until_played()
        with capsys.disabled():
            shown = " ".join(f"{delay * 1000:.0f}" for delay in delays)
            median = sorted(delays)[len(delays) // 2] * 1000
            sys.stdout.write(f"\nend of utterance to first audio (ms): {shown}; median {median:.0f}\n")
        await check_words(caller, recognizer)
        await check_turns(store)
    require(check_stream(caller.heard))
    await check_replay(tmp_path / "capsules")


async def check_replay(capsules: Path) -> None:
    """What was heard, thought and said in threads is kept: the engine does the same on it, to the sample."""
    (capsule,) = await trio.to_thread.run_sync(lambda: list(capsules.iterdir()))
    command = [sys.executable, "-m", "engine.cli", "replay", str(capsule), "--diff"]
    done = await trio.run_process(command, capture_stdout=True, check=False)
    assert done.stdout.decode().startswith("equal: the client was told the same ")


async def check_words(caller: Caller, recognizer: Recognizer) -> None:
    """Word error rates under 10 %, of the caller and of the agent."""
    said = normalized(" ".join((*UTTERANCES, INTERRUPTION)))
    understood = normalized(" ".join(caller.words_understood))
    assert word_errors(said, understood) / len(said) < 0.10, (said, understood)
    ended = [e.parameters for _, e in caller.heard if isinstance(e, OutCommand) and e.name == "response-end"]
    whole = [str(end["responseId"]) for end in ended if end["status"] == "completed"]
    assert len(whole) >= len(UTTERANCES)
    answered: list[str] = []
    heard: list[str] = []
    for response_id in whole:
        answered += normalized(" ".join(caller.sentences(response_id)))
        heard += normalized(await transcribe(recognizer, bytes(caller.speech[response_id]), 24000))
    assert word_errors(answered, heard) / len(answered) < 0.10, (answered, heard)


async def check_turns(store: str) -> None:
    async with open_store(store) as opened:
        turns = await opened.get_turns("call", limit=100)
        session = await opened.get_session("call")
    assert session is not None
    assert session.state.value == "CLOSED"
    assert [turn.input.kind for turn in turns] == ["action"] + ["speech"] * (len(UTTERANCES) + 1)
    interrupted = [turn for turn in turns if turn.interrupted]
    assert [turn.index for turn in interrupted] == [len(UTTERANCES)]
    output = interrupted[0].output
    assert output[0].heard
    assert any(len(each.heard) < len(each.text) for each in output)
    assert not any("confirmation number" in each.heard for each in output)
    called = [(tool.name, tool.owner) for tool in interrupted[0].tools]
    assert called[:2] == [("request_help", "model"), ("book_table", "planner")]
    assert not any(turn.tools for turn in turns if turn is not interrupted[0])
    # The caller spoke before hearing that the table is booked; the planner has that told in the next answer.
    whispered = [instruction.text for instruction in turns[-1].instructions]
    assert any("They have not heard it yet, so tell them:" in text for text in whispered), whispered
