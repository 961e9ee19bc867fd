"""The instrument: what it makes of stamps that are known, and that its simulator holds the conversation it says it does."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pybase64
import pytest
import trio
from trio.testing import MockClock

from engine.protocol.resample import Resampler
from providers.link import LinkClosedError, open_link
from providers.openai import frames
from providers.openai.properties import OpenAIProperties

SCRIPTS = Path(__file__).parents[2] / "scripts"
if str(SCRIPTS) not in sys.path:
    sys.path.append(str(SCRIPTS))


def part(name: str) -> Any:
    """The parts are no package that is installed."""
    return importlib.import_module(f"bench_parts.{name}")


conversation, figures, notes, recording, simulator, sampling = map(
    part, ("conversation", "figures", "notes", "recording", "simulator", "sampling")
)
MS = 1_000_000
"""Nanoseconds."""


# --- which frame has come


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 44100, 48000])
def test_frames_are_told_apart_after_resampling(rate: int) -> None:
    resampler = Resampler(rate, conversation.MODEL_RATE)
    seen = notes.Notes(1000)
    behind: set[int] = set()
    for number in range(200):
        pcm = resampler.feed(conversation.level_frame(number, rate))
        seen.heard(3, conversation.last_sample(pcm), len(pcm))
        newest = seen.report()["arrivals"][-2] if seen.report()["arrivals"] else -1
        behind.add(number - newest)
    sessions, newest, held = (seen.report()["arrivals"][column::4] for column in (0, 2, 3))
    assert set(sessions) == {3}
    assert newest == sorted(set(newest))
    if rate in (8000, 16000, 24000, 48000):
        assert behind == {0}  # each frame is seen in its own time …
        assert {size / figures.BYTES_PER_MS for size in held} == {Resampler(rate, 24000).delay_seconds * 1000}
    else:
        assert max(behind) <= 3  # … and where soxr holds frames back, some frames later
        assert newest[-1] >= 197


def test_what_is_no_level_is_no_frame() -> None:
    seen = notes.Notes(10)
    for sample in (0, -300, 32000):
        seen.heard(0, sample, 960)
    assert seen.report() == {"arrivals": [], "cuts": []}


def test_a_level_far_ahead_was_read_wrong() -> None:
    seen = notes.Notes(10)
    (first,), (ninth,) = ({conversation.last_sample(conversation.level_frame(n, 24000))} for n in (0, 9))
    seen.heard(0, first, 960)
    seen.heard(0, ninth, 960)
    assert seen.report()["arrivals"][2::4] == [0]


def test_notes_beyond_the_room_for_them_are_left_out() -> None:
    seen = notes.Notes(1)
    for number in range(3):
        seen.heard(0, conversation.last_sample(conversation.level_frame(number, 24000)), 960)
    assert seen.report()["arrivals"][2::4] == [0]


# --- figures of known stamps


def load(**given: Any) -> dict[str, Any]:
    report: dict[str, Any] = {
        "begin": 0,
        "end": 10_000 * MS,
        "cpu_seconds": 1.0,
        "sent": [],
        "interruptions": [],
        "down": [],
        "late": [],
        "own_lateness": [],
        "exits": [],
    }
    return {**report, **given}


def process(**given: Any) -> dict[str, Any]:
    report: dict[str, Any] = {
        "seconds": 10.0,
        "user_seconds": 1.0,
        "system_seconds": 0.5,
        "resident_bytes": 1 << 20,
        "late": [],
        "long_steps": 0,
        "notes": None,
    }
    return {**report, **given}


def clock(busy: float, total: float) -> Any:
    return part("worker").MachineClock(busy, total)


def test_up_is_from_the_send_to_the_first_arrival_that_has_the_frame() -> None:
    sent = [[0, 20 * MS, 40 * MS, 9_900 * MS, 20_000 * MS], [10 * MS, 30 * MS]]
    arrivals = [0, 1 * MS, 0, 36, 1, 13 * MS, 0, 0, 0, 43 * MS, 2, 36]  # frames 1 and 2 of session 0 come together
    found = figures.up(load(sent=sent), [{"arrivals": arrivals, "cuts": []}])
    assert found.latencies == [1.0, 23.0, 3.0, 3.0]
    assert found.held_ms == [0.75, 0.75, 0.75, 0.0]
    assert (
        found.lost == 1
    )  # frame 1 of session 1; of the last one in time nothing can be said yet, another is out of it


def test_what_several_simulators_have_noted_is_put_together() -> None:
    one, other = [0, 2 * MS, 0, 0], [1, 4 * MS, 0, 0]
    noted = [{"arrivals": one, "cuts": []}, {"arrivals": other, "cuts": []}]
    assert figures.up(load(sent=[[0], [0]]), noted).latencies == [2.0, 4.0]


def test_barge_ins_go_with_the_next_word_to_the_client() -> None:
    cuts = [0, 100 * MS, 1, 200 * MS, 0, 5_000 * MS, 2, 100 * MS, 0, 9_900 * MS]
    interruptions = [
        [
            40 * MS,
            30 * MS,
            102 * MS,
            99 * MS,
            8_000 * MS,
            7_000 * MS,
        ],  # told, last frame; not of a cut, in time, too late
        [201 * MS, 290 * MS],  # late audio
    ]
    found = figures.barge_ins(load(interruptions=interruptions), [{"arrivals": [], "cuts": cuts}])
    assert found.told == [2.0, 1.0]
    assert found.last_frame == [0.0, 90.0]
    assert found.missing == 1  # there is no session 2: it only warmed up; and the last one may still come


def test_each_process_counts_by_its_own_time() -> None:
    heard = load(exits=[1, 1, 0], late=[20, 20], down=[MS, 2 * MS], own_lateness=[3 * MS])
    simulators = [process(user_seconds=2.0, late=[0.001]), process(user_seconds=4.0, late=[0.002])]
    made = figures.figures(2, heard, process(seconds=5.0), simulators, clock(10.0, 100.0), clock(21.0, 120.0))
    assert made.cpu == 150.0  # 1.5 s in 5 s of 2 sessions
    assert made.cpu_system == 50.0
    assert made.client_cpu == 50.0
    assert made.simulator_cpu == 125.0 + 225.0
    assert made.simulator_late == 2.0
    assert made.others == pytest.approx(100 * (11.0 - 1.5 - 2.5 - 4.5 - 1.0) / 20.0)
    assert (made.late_frames, made.late_ms, made.turns, made.unsaved) == (2, 40, 2, 1)
    assert made.down == (1.0, 2.0, 2.0)
    assert made.up == (None, None, None)


def test_the_relay_is_the_measure_of_the_runs_beside_it() -> None:
    none = clock(0.0, 0.0)
    fast, slow, middle = (
        figures.figures(1, load(), process(user_seconds=user), [process()], none, none) for user in (0.5, 2.5, 1.5)
    )
    losing = figures.figures(1, load(sent=[[0]]), process(notes={"arrivals": [], "cuts": []}), [], none, none)
    engine, relay = figures.Row(figures.Case(16000, 50)), figures.Row(figures.Case(16000, 50, is_relay=True))
    for run, beside in ((fast, slow), (slow, middle), (fast, losing)):
        engine.runs.append(run)
        relay.runs.append(beside)
        engine.compare(run, beside)
    assert losing.lost == 1  # so that run is not compared
    titles, _, first, second = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in figures.table([engine, relay], with_ratio=True).splitlines()
    )
    assert titles[-1] == "server/relay"
    assert first[-1] == f"{(1.0 / 3.0 + 3.0 / 2.0) / 2:.2f}"
    assert second[-1] == "-"
    assert dict(zip(titles, second, strict=True))["turns saved"] == "-"
    assert "server/relay" not in figures.table([engine], with_ratio=False)


# --- the simulated conversation


def test_a_session_begins_in_the_middle_of_what_it_would_be_saying() -> None:
    assert [(turn.start, turn.is_cut) for turn in conversation.turns()] == [(0.0, False), (9.0, False), (17.5, True)]
    pause, user, agent, start = (simulator.plan(at) for at in (8.5, 10.0, 21.0, 0.0))
    assert pause.first is None
    assert user.first.seconds == 1.5
    assert agent.first.seconds == simulator.CALLED_SECONDS
    assert start.first is None  # the third turn is cut just then
    assert [one.at for one in user.script.utterances] == [7.5, 14.0, 23.0]


class Talk:
    """A client of the simulator that sends nothing but silence's worth of frames, and looks at what comes, by virtual time."""

    def __init__(self) -> None:
        self.types: list[tuple[float, str]] = []
        self.audio: list[tuple[float, str]] = []

    async def run(self, made: Any, model: str, seconds: float) -> None:
        async def open_stream(url: str) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            stream: trio.abc.Stream = made.connect(nursery)
            return stream

        headers: Mapping[str, str] = {"Authorization": "Bearer any"}
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(seconds):
                url = f"ws://simulator/v1/realtime?model={model}"
                async with open_link(url, headers, open_stream=open_stream) as link:
                    link.send(frames.session_update(OpenAIProperties(), "Talk.", (), (), text_only=False))
                    for number in range(3):
                        link.send(frames.audio_append(conversation.level_frame(number, 24000)))
                    while True:
                        event = orjson.loads(await link.receive())
                        now = round(trio.current_time(), 3)
                        self.types.append((now, event["type"]))
                        if event["type"] == "response.output_audio.delta":
                            assert len(conversation.stamps(pybase64.b64decode(event["delta"]))) == 1
                            self.audio.append((now, event["response_id"]))
            nursery.cancel_scope.cancel()


async def test_the_second_connection_is_cut_after_the_lead(autojump_clock: MockClock) -> None:
    seen = notes.Notes(1000)
    made = simulator.make_simulator(seen, 2.0)
    await Talk().run(made, conversation.session_id(7), 0.5)  # warms up
    talk, began = Talk(), trio.current_time()
    await talk.run(made, conversation.session_id(0), 5.5)
    started = [at - began for at, kind in talk.types if kind == "input_audio_buffer.speech_started"]
    assert started == pytest.approx([0.0, 2.0], abs=0.002)
    (cut,) = [at for at, kind in talk.types if kind == "input_audio_buffer.speech_started" and at > began + 1]
    first, second = dict.fromkeys(response for _, response in talk.audio)
    after = [at for at, response in talk.audio if response == first and at > cut]
    assert len(after) == pytest.approx(conversation.IN_FLIGHT_FRAMES, abs=1)  # what must not be heard is sent
    before = [at for at, response in talk.audio if response == first and at <= cut]
    assert len(before) == pytest.approx((2.0 - simulator.CALLED_SECONDS) / 0.02, abs=1)
    answered = [at for at, response in talk.audio if response == second]
    assert answered[0] == pytest.approx(cut + 2.5, abs=0.001)
    report = seen.report()
    assert report["cuts"][::2] == [0]  # of the other start of speech nothing was cut
    assert report["arrivals"][0::4] == [7, 7, 7, 0, 0, 0]
    assert report["arrivals"][2::4] == [0, 1, 2, 0, 1, 2]


async def test_simulators_share_the_pattern_among_them(autojump_clock: MockClock) -> None:
    first = simulator.make_simulator(notes.Notes(1), 0.0, 0, 2)
    second = simulator.make_simulator(notes.Notes(1), 0.0, 1, 2)
    begun = [made.script_of(number).utterances[0].at for number in (1, 2) for made in (first, second)]
    assert len(set(begun)) == 4
    await trio.lowlevel.checkpoint()


# --- what it costs to keep sessions


def test_used_is_for_each_second_of_each_session() -> None:
    before, after = ({"at": at * 1e9, "cpu_seconds": used} for at, used in ((3, 1.0), (5, 1.3)))
    assert recording.used_between(before, after, sessions=10) == pytest.approx(15.0)


def test_what_one_process_takes_more_by_itself_falls_out() -> None:
    # the second server takes a quarter more than the first, and keeping a tenth more than not keeping
    run = recording.Measured(((10.0, 13.75), (12.5, 11.0)), 2048.0, 1, 30.0)
    assert run.ratio == pytest.approx(1.1)
    assert (run.plain, run.kept) == (11.25, 12.375)


def test_the_table_of_recording_has_the_median_and_the_extremes() -> None:
    pair = recording.Pair(figures.Case(16000, 4))
    pair.runs.append(recording.Measured(((10.0, 10.0), (10.0, 10.0)), 2048.0, 1, 30.0))
    pair.runs.append(recording.Measured(((20.0, 24.0), (20.0, 24.0)), 1024.0, 2, 50.0))
    cells = " ".join(recording.table([pair]).splitlines()[-1].replace("|", " ").split())
    assert cells == "16000 4 15.00 17.00 1.100 (1.000 to 1.200) 2 1.5 3 40"


# --- the profile


def test_a_profile_shows_each_room_with_its_functions() -> None:
    profile = {
        "samples": 10,
        "rooms": [["trio", 6], ["resampler", 4]],
        "tasks": [["reader", 10]],
        "functions": [["trio", "checkpoint", 6], ["resampler", "feed", 4]],
        "owners": [["resampler", "feed", 4], ["", "(scheduler)", 6]],
    }
    lines = figures.profile_text(profile).splitlines()
    at = lines.index("by room of the code that ran, each with its functions")
    assert [line.split("%")[1].strip() for line in lines[at + 1 : at + 5]] == [
        "trio",
        "checkpoint",
        "resampler",
        "feed",
    ]
    made = figures.Case.__init__.__code__
    assert (sampling.room_of(made), sampling.name_of(made)) == (
        "attrs (generated)",
        "bench_parts.figures.Case.__init__",
    )
    assert sampling.room_of(Resampler.feed.__code__) == "resampler"
    assert sampling.room_of(LinkClosedError.__init__.__code__) == "providers/link"
