"""One WebSocket client and its door, through the real stack on virtual time."""

import json
import logging
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked
from trio_websocket import ConnectionClosed

from engine.config import PipelineConfiguration, Settings
from engine.elements import (
    ControlToken,
    InputAudio,
    InputElement,
    InputText,
    OutCommand,
    OutputElement,
    OutSpeech,
    OutText,
)
from engine.pipeline.line import ClientLine
from engine.principal import Principal
from engine.session.services import Services
from engine.session.windowing import ConnectionEnd
from tests.engine.transport.stack import (
    HOST,
    UPGRADE,
    Recorder,
    all_frames,
    close_of,
    frame,
    hear,
    hear_all,
    open_stack,
    repeat,
    say,
    upgraded,
)

TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
NO_KEY = "/api/pipeline"


def speech(ms: int = 100, response: str = "r1") -> OutSpeech:
    return OutSpeech(bytes(48 * ms), 24000, "t1", response)


# --- elements both ways ------------------------------------------------------------------------------------------------


async def test_elements_go_both_ways(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        client = await stack.connect()
        await say(client, type="text", text="hi")
        assert await hear(client) == {"type": "text", "text": "hi", "turnId": "t1", "responseId": "r1"}
        await client.send_message(b"\x01\x02")
        assert (await hear(client))["data"] == "AQI="
        await say(client, type="token", text="#end")
        assert await close_of(client) == (1000, "the session has ended")
        await stack.wait_idle()
    assert recorder.seen == [InputText("hi"), InputAudio(b"\x01\x02"), ControlToken("end")]
    assert recorder.ends == [("ended by the client", 0)]


async def test_the_binary_wire_carries_speech_as_it_is(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        client = await stack.connect("/api/pipeline/agent:echo?wire=binary")
        await client.send_message(b"\x01\x02")
        await client.send_message(b"")
        await client.send_message(b"\x03\x04")
        start = await hear(client)
        assert start["type"] == "speech-start"
        assert await hear(client) == b"\x01\x02"
        assert await hear(client) == b"\x03\x04"


async def test_bad_input_is_answered_and_the_session_goes_on(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        client = await stack.connect()
        for text, code in (("{", "bad_json"), ('{"type":"x"}', "unknown_type"), ('{"type":"text"}', "bad_element")):
            await client.send_message(text)
            error = await hear(client)
            assert (error["type"], error["code"], error["recoverable"]) == ("error", code, True)
        await say(client, type="text", text="still here")
        assert (await hear(client))["text"] == "still here"


async def test_everything_queued_is_sent_before_the_close(autojump_clock: MockClock) -> None:
    async def talkative(
        configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> ConnectionEnd:
        await trio.lowlevel.checkpoint()
        for _ in range(500):
            line.put_output(speech())
        line.put_output(OutCommand("session-end", {"state": "CLOSED"}))
        return ConnectionEnd(1000, "said it all")

    async with open_stack(talkative) as stack:
        client = await stack.connect()
        messages = await hear_all(client)
        assert [message["type"] for message in messages] == ["speech"] * 500 + ["command"]
        assert await close_of(client) == (1000, "said it all")


async def test_a_session_may_close_with_a_reason_of_its_own(autojump_clock: MockClock) -> None:
    async def taken_over(
        configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> ConnectionEnd:
        await trio.lowlevel.checkpoint()
        return ConnectionEnd(1008, "taken_over")

    async with open_stack(taken_over) as stack:
        assert await close_of(await stack.connect()) == (1008, "taken_over")


async def test_a_failure_is_told_and_stays_in_its_connection(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(element: InputElement, line: ClientLine) -> None:
        await trio.lowlevel.checkpoint()
        if element == InputText("fail"):
            line.put_output(OutText("last words", "t1", "r1"))
            raise RuntimeError("on purpose")
        repeat(element, line)

    async with open_stack(Recorder(fail)) as stack:
        other = await stack.connect()
        client = await stack.connect()
        await say(client, type="text", text="fail")
        messages = await hear_all(client)
        assert [message["type"] for message in messages] == ["text", "error"]
        assert (messages[1]["code"], messages[1]["whose"]) == ("internal", "server")
        assert await close_of(client) == (1011, "internal error")
        await say(other, type="text", text="hi")
        assert (await hear(other))["text"] == "hi"
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == ["a connection failed"]


# --- parameters, owners, subprotocols ------------------------------------------------------------------------------------


async def test_the_query_wins_over_headers(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        await stack.connect(
            "/api/pipeline/agent:a?wire=binary&outputSampleRate=1",
            headers={"X-Wire": "json", "X-Output-Sample-Rate": "8000", "X-Device-Ref": "d1"},
        )
        await wait_all_tasks_blocked()
    (configuration,) = recorder.configurations
    assert (configuration.key, configuration.wire, configuration.output_sample_rate) == ("agent:a", "binary", 8000)
    assert configuration.device_ref == "d1"
    assert configuration.warnings == ("outputSampleRate was ignored: it has to be a whole number from 8000 to 48000.",)
    assert recorder.owners == ["device:d1"]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/api/pipeline", ""),
        ("/api/pipeline/", ""),
        ("/api/pipeline/realtime:", "realtime:"),
        ("/api/pipeline/agent%3Ab%C3%A1ra", "agent:bára"),
    ],
)
async def test_the_path_names_the_key(path: str, key: str, autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        await stack.connect(path)
        await wait_all_tasks_blocked()
    assert [configuration.key for configuration in recorder.configurations] == [key]


async def test_an_owner_is_the_device_else_the_speaker_else_made_up(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        for query in ("?deviceRef=a&speakerRef=b", "?speakerRef=b", ""):
            await stack.connect(NO_KEY + query)
            await wait_all_tasks_blocked()
    assert recorder.owners == ["device:a", "speaker:b", "device:device-1"]
    assert [configuration.device_ref for configuration in recorder.configurations] == ["a", "", "device-1"]


async def test_the_subprotocol_with_the_token_is_chosen(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        client = await stack.connect(subprotocols=["other", "souffleur.auth.secret"])
        assert client.subprotocol == "souffleur.auth.secret"
        client = await stack.connect(subprotocols=["other"])
        assert client.subprotocol is None


async def test_compression_is_not_offered(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        answer = await stack.request(
            NO_KEY, headers={**UPGRADE, "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}
        )
        assert answer.status == 101
        assert "sec-websocket-extensions" not in answer.headers


async def test_a_full_server_says_when_to_come_back(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder(), settings=Settings(max_sessions=2)) as stack:
        first = await stack.connect()
        await stack.connect()
        answer = await stack.request(NO_KEY, headers=UPGRADE)
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["status"] == 503
        await first.aclose()
        await wait_all_tasks_blocked()
        await stack.connect()


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/api/pipelines", {}, 404),
        ("/", {}, 404),
        (NO_KEY, {"Origin": "https://evil.example"}, 403),
        (NO_KEY, {"Origin": "null"}, 403),
        (NO_KEY, {"Host": "evil.example"}, 403),
        (NO_KEY, {"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        (NO_KEY, {"Sec-WebSocket-Version": "12"}, 426),
        (NO_KEY, {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ"}, 400),
        (NO_KEY, {"Sec-WebSocket-Key": "c2hvcnQ="}, 400),
    ],
)
async def test_some_are_refused_before_the_handshake(
    path: str, headers: dict[str, str], status: int, autojump_clock: MockClock
) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        answer = await stack.request(path, headers={**UPGRADE, **headers})
        assert answer.status == status
        await stack.wait_idle()
    assert recorder.configurations == []


async def test_own_pages_and_allowed_ones_are_let_in(autojump_clock: MockClock) -> None:
    async with open_stack(
        Recorder(), allowed_origins=["https://app.example"], allowed_hosts=["voice.example"]
    ) as stack:
        for headers in (
            {"Origin": f"http://{HOST}"},
            {"Origin": "https://app.example"},
            {"Host": "voice.example", "Origin": "https://voice.example"},
            {"Host": "localhost:8000", "Origin": "http://localhost:8000"},
        ):
            assert (await stack.request(NO_KEY, headers={**UPGRADE, **headers})).status == 101
    async with open_stack(Recorder(), loopback_only=False) as stack:
        assert (await stack.request(NO_KEY, headers={**UPGRADE, "Host": "any.example"})).status == 101


# --- leaving -------------------------------------------------------------------------------------------------------------


async def test_a_client_that_vanishes_ends_its_session_at_once(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        stream = stack.dial()
        await upgraded(stream)
        await trio.sleep(3)
        await stream.aclose()
        await stack.wait_idle()
        assert trio.current_time() == 3
    assert recorder.ends == [("cancelled", 3)]


async def test_a_close_without_exit_is_a_disconnection_too(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        client = await stack.connect()
        await trio.sleep(3)
        await client.aclose()
        await stack.wait_idle()
        assert trio.current_time() == 3
    assert recorder.ends == [("cancelled", 3)]


async def slow_consumer(element: InputElement, line: ClientLine) -> None:
    await trio.sleep(1)


@pytest.mark.parametrize("token", ["#exit", "#end"])
async def test_what_a_client_said_before_it_left_is_worked_off(token: str, autojump_clock: MockClock) -> None:
    recorder = Recorder(slow_consumer)
    async with open_stack(recorder) as stack:
        stream = stack.dial()
        await upgraded(stream)
        texts = [json.dumps({"type": "text", "text": str(i)}) for i in range(5)]
        last = json.dumps({"type": "token", "text": token})
        await stream.send_all(b"".join(frame(TEXT, text.encode()) for text in [*texts, last]))
        await stream.aclose()  # no closing handshake, no waiting
        await stack.wait_idle()
    assert recorder.seen == [*(InputText(str(i)) for i in range(5)), ControlToken(token[1:])]
    assert recorder.ends == [("input ended" if token == "#exit" else "ended by the client", 6)]


async def test_a_session_begun_after_an_exit_is_cut_off_like_any_other(autojump_clock: MockClock) -> None:
    recorder = Recorder(slow_consumer)
    async with open_stack(recorder) as stack:
        client = await stack.connect()
        await say(client, type="token", text="#exit")
        await say(client, type="token", text="#ready:key=agent:echo")
        await client.aclose()
        await stack.wait_idle()
    assert recorder.ends == [("cancelled", 0)]


async def test_between_sessions_a_client_may_leave_as_it_likes(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        client = await stack.connect(NO_KEY)
        await client.aclose()
        await stack.wait_idle()
    assert recorder.ends == [("input ended", 0)]


async def test_a_session_that_does_not_end_after_its_client_has_left_is_cancelled(autojump_clock: MockClock) -> None:
    async def hang(element: InputElement, line: ClientLine) -> None:
        await trio.sleep_forever()

    recorder = Recorder(hang)
    settings = Settings()
    async with open_stack(recorder, settings=settings) as stack:
        client = await stack.connect()
        await say(client, type="token", text="#exit")
        await client.aclose()
        await stack.wait_idle()
    assert recorder.ends == [("cancelled", settings.session_end_timeout_seconds + settings.cleanup_seconds)]


async def test_a_client_that_never_answers_the_close_is_not_waited_for(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        stream = stack.dial()
        await upgraded(stream)
        await stream.send_all(frame(TEXT, b'{"type":"token","text":"#end"}'))
        await stack.wait_idle()
        assert trio.current_time() == 2
        ((opcode, payload),) = await all_frames(stream)
        assert (opcode, payload[:2]) == (CLOSE, (1000).to_bytes(2, "big"))


async def test_frames_sent_before_the_upgrade_was_answered_are_not_lost(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        stream = stack.dial()
        lines = [f"GET /api/pipeline/agent:echo HTTP/1.1\r\nHost: {HOST}", *(f"{k}: {v}" for k, v in UPGRADE.items())]
        head = "\r\n".join(lines) + "\r\n\r\n"
        await stream.send_all(head.encode() + frame(TEXT, b'{"type":"text","text":"early"}'))
        await stream.send_all(frame(TEXT, b'{"type":"token","text":"#end"}'))
        await stack.wait_idle()
    assert recorder.seen == [InputText("early"), ControlToken("end")]


# --- silence -------------------------------------------------------------------------------------------------------------


async def test_a_silent_peer_is_gone_20_s_after_a_ping(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        stream = stack.dial()
        await upgraded(stream)
        await stack.wait_idle()
        assert trio.current_time() == 40
        assert await all_frames(stream) == [(PING, b"")]
    assert recorder.ends == [("cancelled", 40)]


async def test_a_peer_that_takes_no_ping_is_gone_too(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        await upgraded(stack.dial(takes_nothing=True))
        await stack.wait_idle()
        assert trio.current_time() == 32
    assert recorder.ends == [("cancelled", 32)]


async def test_a_peer_that_answers_pings_or_speaks_stays(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        client = await stack.connect()  # answers pings
        stream = stack.dial()  # does not, but speaks
        await upgraded(stream)
        for _ in range(30):
            await trio.sleep(19)
            await stream.send_all(frame(BINARY, b"\0\0"))
        assert recorder.ends == []
        await client.aclose()
        await stream.aclose()
        await stack.wait_idle()
        assert trio.current_time() == 570


# --- too much ------------------------------------------------------------------------------------------------------------


async def test_a_message_may_be_as_large_as_the_limit_and_no_larger(autojump_clock: MockClock) -> None:
    recorder = Recorder(slow_consumer)
    async with open_stack(recorder, settings=Settings(max_frame_bytes=5000)) as stack:
        client = await stack.connect()
        await client.send_message(bytes(5000))
        await say(client, type="text", text="é" * 2400)
        await client.send_message("é" * 2501)
        (error,) = await hear_all(client)
        assert (error["code"], error["recoverable"]) == ("too_large", False)
        assert await close_of(client) == (1009, "a message has at most 5000 bytes")


async def test_a_message_in_pieces_is_one_message(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder, settings=Settings(max_frame_bytes=5000)) as stack:
        stream = stack.dial()
        await upgraded(stream)
        await stream.send_all(frame(TEXT, b'{"type":"text",', is_final=False) + frame(PING, b"x"))
        await stream.send_all(frame(0, b'"text":"\xc3', is_final=False) + frame(0, b'\xa9"}'))
        await stream.send_all(frame(BINARY, bytes(3000), is_final=False) + frame(0, bytes(2000)))
        await wait_all_tasks_blocked()
        await stream.send_all(frame(BINARY, bytes(3000), is_final=False) + frame(0, bytes(2001)))
        frames = await all_frames(stream)
    assert recorder.seen == [InputText("é"), InputAudio(bytes(5000))]
    assert [opcode for opcode, _ in frames] == [10, TEXT, TEXT, TEXT, CLOSE]
    assert frames[-1][1][:2] == (1009).to_bytes(2, "big")


async def test_a_message_that_would_never_end_is_cut_in_bounded_memory(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        stream = stack.dial()
        await upgraded(stream)
        await stream.send_all(frame(BINARY, b"", announce=1 << 40))
        with pytest.raises(trio.BrokenResourceError):
            while True:  # for two seconds it is read and thrown away, so that the close can be read
                await stream.send_all(bytes(1 << 20))
                await trio.sleep(1 / 8)
        assert trio.current_time() == 2 + 1 / 8
        await stack.wait_idle()
    assert recorder.ends == [("cancelled", 0)]  # as soon as its length was known


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(TEXT, b"\xff\xfe"), 1007),
        (frame(TEXT, b"\xc3", is_final=False) + frame(0, b"("), 1007),
        (frame(3, b""), 1002),  # a reserved opcode
        (b"\x81\x02hi", 1002),  # not masked
        (frame(0, b"x"), 1002),  # the middle of nothing
        (frame(PING, bytes(126)), 1002),
    ],
)
async def test_what_is_no_frame_is_closed_with_a_reason(data: bytes, code: int, autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_stack(recorder) as stack:
        stream = stack.dial()
        await upgraded(stream)
        await stream.send_all(data + b"more that cannot be read")
        (error, close) = await all_frames(stream)
        assert error[0] == TEXT
        assert json.loads(error[1])["code"] == "bad_element"
        assert close[0] == CLOSE
        assert int.from_bytes(close[1][:2], "big") == code
        assert len(close[1]) > 2
        await stack.wait_idle()
    assert recorder.ends == [("cancelled", 0)]


async def test_more_than_can_be_worked_off_is_refused_after_10_s(autojump_clock: MockClock) -> None:
    async def hang(element: InputElement, line: ClientLine) -> None:
        await trio.sleep_forever()

    recorder = Recorder(hang)
    async with open_stack(recorder, settings=Settings(inbox_elements=8)) as stack:
        client = await stack.connect()
        for _ in range(20):
            await say(client, type="text", text="a")
        (error,) = await hear_all(client)
        assert error["code"] == "too_busy"
        assert await close_of(client) == (1008, "more was sent than can be worked off")
        await stack.wait_idle()
    assert recorder.ends == [("cancelled", 10)]


async def test_a_burst_waits_for_room_and_loses_nothing(autojump_clock: MockClock) -> None:
    recorder = Recorder(slow_consumer)
    async with open_stack(recorder, settings=Settings(inbox_elements=8)) as stack:
        client = await stack.connect()
        for i in range(40):
            await say(client, type="text", text=str(i))
        await say(client, type="token", text="#end")
        assert await close_of(client) == (1000, "the session has ended")
    assert recorder.seen == [*(InputText(str(i)) for i in range(40)), ControlToken("end")]


# --- slow clients --------------------------------------------------------------------------------------------------------


class Firehose:
    """Says more than any client will ever take, as fast as it may."""

    def __init__(self) -> None:
        self.cancelled_at: float | None = None
        self.most_unsent_ms = 0.0

    async def __call__(
        self, configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> ConnectionEnd:
        try:
            while True:
                for _ in range(20):
                    line.put_output(speech())
                self.most_unsent_ms = max(self.most_unsent_ms, line.outbox.unsent_speech_ms)
                await trio.sleep(1 / 8)
        finally:
            self.cancelled_at = trio.current_time()
            line.end_output()


async def test_a_client_that_takes_nothing_is_closed_after_exactly_10_s(autojump_clock: MockClock) -> None:
    firehose = Firehose()
    async with open_stack(firehose) as stack:
        stream = stack.dial(takes_nothing=True)
        await upgraded(stream)
        await stack.wait_idle()
        assert firehose.cancelled_at == 10
        assert trio.current_time() == 12  # the grace to take the close
        assert firehose.most_unsent_ms <= 120_000


async def test_a_client_that_wakes_up_in_time_reads_why(autojump_clock: MockClock) -> None:
    firehose = Firehose()
    async with open_stack(firehose) as stack:
        client = await stack.connect(takes_nothing=True, queue=1)
        await trio.sleep(11)
        assert firehose.cancelled_at == 10
        messages = await hear_all(client)
        assert messages[-1]["code"] == "slow_client"
        assert await close_of(client) == (1008, "slow_client")


async def test_a_client_that_takes_a_little_is_not_slow(autojump_clock: MockClock) -> None:
    said: list[OutputElement] = [OutText(str(i), "t1", "r1") for i in range(20)]

    async def speak(
        configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> ConnectionEnd:
        for element in said:
            line.put_output(element)
        await trio.sleep(150)
        return ConnectionEnd(1000, "done")

    async with open_stack(speak) as stack:
        client = await stack.connect(takes_nothing=True, queue=1)
        texts: list[str] = []
        for _ in said:
            await trio.sleep(7)
            texts.append((await hear(client))["text"])
        assert texts == [str(i) for i in range(20)]
        assert await close_of(client) == (1000, "done")


async def test_a_slow_client_may_take_longer_over_a_large_message(autojump_clock: MockClock) -> None:
    async def show(
        configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> ConnectionEnd:
        line.put_output(OutText("a" * (256 << 10), "t1", "r1"))
        await trio.sleep(50)
        return ConnectionEnd(1000, "done")

    async with open_stack(show) as stack:
        stream = stack.dial(takes_nothing=True)
        await upgraded(stream)
        received = b""
        while len(received) < 256 << 10:
            await trio.sleep(8)
            received += await stream.receive_some(64 << 10)
        assert trio.current_time() == 32
        assert (await all_frames(stream, received))[-1] == (CLOSE, (1000).to_bytes(2, "big") + b"done")


async def test_one_that_misbehaves_is_not_noticed_by_another(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        good = await stack.connect()
        stuck = stack.dial(takes_nothing=True)
        await upgraded(stuck)
        broken = stack.dial()
        await upgraded(broken)
        huge = await stack.connect()

        async def misbehave() -> None:
            for _ in range(100):
                await stuck.send_all(frame(BINARY, bytes(1000)))
            await broken.send_all(b"\xff" * 100)
            with pytest.raises(ConnectionClosed):
                for _ in range(40):
                    await huge.send_message(bytes(2 << 20))
                    await trio.sleep(1 / 8)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(misbehave)
            for i in range(200):
                start = trio.current_time()
                await say(good, type="text", text=str(i))
                assert (await hear(good))["text"] == str(i)
                assert trio.current_time() == start
                await trio.sleep(1 / 8)


# --- a line that is already full -----------------------------------------------------------------------------------------


async def test_a_full_outbox_still_gets_its_close_code(autojump_clock: MockClock) -> None:
    async def fill(
        configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> ConnectionEnd:
        await trio.lowlevel.checkpoint()
        for _ in range(100):
            line.put_output(OutText("a", "t1", "r1"))
        raise RuntimeError("on purpose")

    async with open_stack(fill, settings=Settings(outbox_elements=100)) as stack:
        client = await stack.connect()
        messages: list[Any] = await hear_all(client)
        assert [message["type"] for message in messages] == ["text"] * 100
        assert await close_of(client) == (1011, "internal error")
