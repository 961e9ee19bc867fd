"""Faults by chance: the same for the same seed, and never against the protocol."""

from itertools import pairwise

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.openai.simulation.faults import UNKNOWN_KEY, UNKNOWN_TYPE
from providers.openai.simulator import Call, Drop, Faults, Pace, Reply, Script, Utterance
from tests.providers.openai.simulator.service import WHISPER, Service, audio_settings, types

QUIET = Faults(0)
SCRIPT = Script(
    utterances=[
        Utterance("a table for two", at=1.0, during_speech=True, piece_seconds=0.2),
        Utterance("on Friday", at=8.0, transcribed_after=0.5),
    ],
    replies=[
        Reply(["One moment please.", Call("look", {"for": 2}, "c1")], pace=Pace(0.1, audio_speed=2.0, delta_ms=100)),
        Reply("There is one by the window.", pace=Pace(0.1, audio_speed=1.0, delta_ms=100), cancel_lag=0.2),
        Reply("Friday is free."),
    ],
)


def converse(faults: Faults | None) -> Service:
    service = Service(SCRIPT, faults=faults, audio=audio_settings(WHISPER))
    service.run(5)
    output = {"type": "function_call_output", "call_id": "c1", "output": "yes"}
    service.send("conversation.item.create", item=output)
    service.send("response.create")
    service.run(200)
    return service


def counted(service: Service) -> dict[str, int]:
    return {kind: len(service.of_type(kind)) for kind in set(types(service.events, without=()))}


WHOLE = counted(converse(None))


def test_without_faults_nothing_changes() -> None:
    assert counted(converse(QUIET)) == WHOLE
    assert [frame.text for frame in converse(QUIET).frames] == [frame.text for frame in converse(None).frames]


def test_the_same_seed_makes_the_same_faults() -> None:
    faults = Faults(7, delay=0.2, stall=0.01, reorder=0.5, duplicate=0.5, unknown=0.1)
    assert converse(faults).frames == converse(faults).frames
    assert converse(faults).frames != converse(attrs.evolve(faults, seed=8)).frames


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        Faults,
        seed=st.integers(0, 2**32),
        delay=st.sampled_from([0.0, 0.1, 0.5]),
        stall=st.sampled_from([0.0, 0.01]),
        duplicate=st.sampled_from([0.0, 0.5]),
        reorder=st.sampled_from([0.0, 0.3, 1.0]),
        drift_seconds=st.sampled_from([0.05, 1.0]),
    )
)
def test_nothing_is_lost_and_everything_keeps_the_order_of_the_protocol(faults: Faults) -> None:
    service = converse(faults)
    found = counted(service)
    assert found.pop("rate_limits.updated") >= WHOLE["rate_limits.updated"]
    assert found == {kind: count for kind, count in WHOLE.items() if kind != "rate_limits.updated"}
    assert [frame.at for frame in service.frames] == sorted(frame.at for frame in service.frames)


def test_streams_drift_apart() -> None:
    def order(faults: Faults | None) -> list[str]:
        return [event.type for event in converse(faults).events if event.type.endswith("delta")]

    assert any(order(Faults(seed, reorder=0.5)) != order(None) for seed in range(3))


def test_transcripts_come_elsewhere() -> None:
    def place(faults: Faults | None) -> int:
        service = converse(faults)
        return [event.type for event in service.events].index("conversation.item.input_audio_transcription.completed")

    assert len({place(Faults(seed, reorder=1.0, drift_seconds=3.0)) for seed in range(5)}) > 1


def test_delays_keep_the_order() -> None:
    service = converse(Faults(1, delay=1.0, delay_seconds=0.5))
    assert [event.type for event in service.events] == [event.type for event in converse(None).events]
    assert service.events[-1].at > converse(None).events[-1].at + 10


def test_a_stall_delays_all_that_follows() -> None:
    service = converse(Faults(3, stall=0.02, stall_seconds=20.0))
    times = [event.at for event in service.events]
    assert max(later - earlier for earlier, later in pairwise(times)) >= 20


def test_states_may_come_twice() -> None:
    service = converse(Faults(1, duplicate=1.0))
    assert counted(service)["rate_limits.updated"] == 2 * WHOLE["rate_limits.updated"]


@pytest.mark.parametrize("way", list(Drop))
def test_a_connection_is_lost(way: Drop) -> None:
    ways: list[Drop] = []
    for seed in range(5):
        service = converse(Faults(seed, drop=0.02, drop_ways=(way,)))
        if service.closing is not None:
            ways.append(service.closing.how)
    assert set(ways) == {way}
    assert len(ways) >= 2


def test_connections_are_lost_at_different_places() -> None:
    assert len({len(converse(Faults(seed, drop=0.05)).events) for seed in range(6)}) > 3


def test_unknown_types_and_keys_come() -> None:
    service = converse(Faults(1, unknown=0.5))
    assert service.of_type(UNKNOWN_TYPE)
    assert any(UNKNOWN_KEY in event.fields for event in service.events)
    assert {kind: count for kind, count in counted(service).items() if kind != UNKNOWN_TYPE} == WHOLE
