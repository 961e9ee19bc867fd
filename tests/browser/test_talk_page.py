"""The talk page in a real browser, against a server the tests play line by line (SPEC T2, L21, protocol page section 2)."""

import json

import pytest
import trio

from tests.browser.devtools import INSECURE_HOST, DevTools, Page
from tests.browser.page_server import Peer, Playhouse

pytestmark = pytest.mark.browser

FRAME_BYTES = 960  # 20 ms of PCM16 at 24 kHz


async def visit(page: Page, playhouse: Playhouse, query: str = "") -> None:
    await page.open(playhouse.url + query)
    await page.wait_for("document.querySelector('#begin:enabled')")


async def begin(page: Page, playhouse: Playhouse, button: str = "#begin-typing") -> Peer:
    """A conversation up to `ready` and the wish for the opening."""
    await visit(page, playhouse)
    await page.click(button)
    peer = await playhouse.peer()
    await peer.ready()
    return peer


async def quanta_pass(page: Page, count: int) -> None:
    """Waits by the clock of the audio device: `count` blocks of 128 samples."""
    await page.evaluate(
        f"""(async () => {{
          const start = (await souffleur.counters()).quanta;
          while ((await souffleur.counters()).quanta < start + {count}) await new Promise(requestAnimationFrame);
        }})()"""
    )


def assert_well_behaved(page: Page, playhouse: Playhouse) -> None:
    """No complaint in the console, nobody else asked."""
    assert page.complaints == []
    hosts = {url.split("/")[2] for url in page.requests if not url.startswith("data:")}
    assert hosts == {f"127.0.0.1:{playhouse.port}"}


async def test_the_connection_says_what_the_page_can(page: Page, playhouse: Playhouse) -> None:
    await visit(page, playhouse)
    assert await page.evaluate("document.querySelector('#cast-list input:checked').value") == "barista"
    await page.click("#cast-list label:nth-child(2)")
    await page.click("#begin-typing")
    peer = await playhouse.peer()
    assert peer.key == "agent:concierge"
    parameters = dict(peer.parameters)
    assert len(parameters.pop("deviceRef")) == 32
    assert parameters == {
        "wire": "binary",
        "tokens": "true",
        "partials": "true",
        "inputSampleRate": "24000",
        "outputSampleRate": "24000",
        "timeZone": await page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone"),
        "locales": await page.evaluate("navigator.languages.join()"),
    }
    assert await page.evaluate("location.search") == "?agent=concierge"
    assert_well_behaved(page, playhouse)


async def test_the_device_is_known_again(page: Page, playhouse: Playhouse) -> None:
    first = await begin(page, playhouse)
    second = await begin(page, playhouse)
    assert first.parameters["deviceRef"] == second.parameters["deviceRef"]


@pytest.mark.parametrize(("ref", "name"), [("concierge", "Concierge"), ("secret guest", "secret guest")])
async def test_a_link_chooses_the_agent(page: Page, playhouse: Playhouse, ref: str, name: str) -> None:
    await visit(page, playhouse, f"?agent={ref.replace(' ', '%20')}")
    assert name in await page.text("#cast-list label:has(:checked)")
    await page.click("#begin-typing")
    assert (await playhouse.peer()).key == f"agent:{ref}"


async def test_without_agents_the_page_says_what_to_do(page: Page, playhouse: Playhouse) -> None:
    playhouse.agents.clear()
    await page.open(playhouse.url)
    await page.wait_for("document.querySelector('#cast-note').innerText.startsWith('There is no agent here yet.')")
    assert await page.evaluate("document.querySelector('#begin').disabled")


async def test_the_opening_is_heard_to_the_last_sample(page: Page, playhouse: Playhouse) -> None:
    peer = await begin(page, playhouse)
    await peer.opening("Good evening.", seconds=0.7)
    await page.wait_for("souffleur.loudness() > 0.2")
    await peer.wait_heard("r1", 700)
    assert (await page.evaluate("souffleur.counters()"))["rendered"] == 24000 * 0.7
    assert (await page.evaluate("souffleur.counters()"))["underruns"] == 0
    reports = [report["playedMs"] for report in peer.playback]
    assert len(reports) == 3
    assert reports == sorted(reports)
    assert 180 <= reports[0] <= 260  # the first quarter of a second, less what the device still holds
    assert await page.text("#turns .agent .said") == "Good evening."
    assert "#intro" not in await page.text("#script")
    assert await page.evaluate("document.querySelector('#turns .user') === null")
    await page.wait_for("document.querySelector('#announcer').innerText.includes('Barista: Good evening.')")
    assert_well_behaved(page, playhouse)


async def test_the_microphone_comes_in_frames_of_20_ms(page: Page, playhouse: Playhouse) -> None:
    peer = await begin(page, playhouse, "#begin")
    with trio.fail_after(10):
        await peer.wait_audio(60)
    assert {len(frame) for frame in peer.audio} == {FRAME_BYTES}
    loudest = max(abs(sample) for frame in peer.audio for sample in memoryview(frame).cast("h"))
    assert loudest > 1000  # the voice of the fake microphone
    assert await page.text("#floor-words") == "Listening"
    assert_well_behaved(page, playhouse)


async def test_muting_sends_a_second_of_silence_and_then_nothing(page: Page, playhouse: Playhouse) -> None:
    peer = await begin(page, playhouse, "#begin")
    with trio.fail_after(10):
        await peer.wait_audio(5)
    await page.click("#microphone")
    await page.wait_for("document.querySelector('#microphone').innerText.trim() === 'Unmute'")
    muted = len(peer.audio)
    await quanta_pass(page, 220)  # 1.2 s of the audio clock: sixty frames, were they sent
    frames = len(peer.audio)
    assert 40 <= frames - muted <= 50
    assert set(b"".join(peer.audio[muted:])) == {0}
    await quanta_pass(page, 20)
    assert len(peer.audio) == frames
    await page.click("#microphone")
    with trio.fail_after(10):
        await peer.wait_audio(frames + 2)


async def test_typing_works_and_both_sides_words_come(page: Page, playhouse: Playhouse) -> None:
    peer = await begin(page, playhouse)
    await page.click("#line")
    await page.type("two coffees please")
    await page.press("Enter")
    await peer.expect(type="text", text="two coffees please")
    await page.wait_for("document.querySelector('#pending').innerText.includes('two coffees please')")
    await peer.transcript("t1", ".", interim=True, synthetic=True, provider="Client")
    await peer.transcript("t1", "two coffees please", provider="Client")
    await page.wait_for("document.querySelector('#turns .user.final .said')?.innerText === 'two coffees please'")
    assert await page.text("#pending") == ""
    await peer.send("token", text="Two ", turnId="t1", responseId="r1")
    await peer.send("token", text="coffees", turnId="t1", responseId="r1")
    await page.wait_for("document.querySelector('#turns .agent .tail')?.innerText === 'Two coffees'")
    await peer.send("text", text="Two coffees, gladly.", turnId="t1", responseId="r1")
    await page.wait_for("document.querySelector('#turns .agent .said').innerText === 'Two coffees, gladly.'")
    assert await page.evaluate("document.querySelector('#line').value") == ""
    assert await page.evaluate("document.activeElement.id") == "line"
    assert_well_behaved(page, playhouse)


async def test_a_refused_microphone_is_explained_and_typing_goes_on(page: Page, playhouse: Playhouse) -> None:
    await page.before_loading(
        "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('no', 'NotAllowedError'); };"
    )
    peer = await begin(page, playhouse, "#begin")
    await page.wait_for(
        "document.querySelector('#notices').innerText.includes('The microphone is blocked for this page.')"
    )
    await page.wait_for("document.querySelector('#floor-words').innerText === 'Your line'")
    await page.click("#line")
    await page.type("hello")
    await page.press("Enter")
    await peer.expect(type="text", text="hello")
    assert_well_behaved(page, playhouse)


async def test_an_interruption_silences_at_once_and_for_good(page: Page, playhouse: Playhouse) -> None:
    peer = await begin(page, playhouse)
    await peer.words("t1", "r1", "It all began")
    await peer.send("token", text=" a long time", turnId="t1", responseId="r1")
    await peer.start_speech("t1", "r1")
    await peer.sound(5)
    await peer.wait_heard("r1", 400)
    await peer.transcript("t2", ".", interim=True)
    # Everything a slow server might still send of the answer that was cut:
    await peer.sound(0.5)
    await peer.send("token", text=" ago", turnId="t1", responseId="r1")
    await peer.send("text", text="It all began a long time ago.", turnId="t1", responseId="r1")
    await peer.start_speech("t1", "r1")
    await peer.sound(0.5)
    await peer.end_speech("t1", "r1")
    await peer.command("response-end", turnId="t1", responseId="r1", status="cancelled")
    await peer.exit("t1")
    await peer.send("partial", text="shorter", turnId="t2")
    await page.wait_for("document.querySelector('#turns .user .said')?.innerText.startsWith('shorter')")
    counters = await page.evaluate("souffleur.counters()")
    await quanta_pass(page, 60)
    later = await page.evaluate("souffleur.counters()")
    assert later["rendered"] == counters["rendered"] < 24000 * 1.5
    assert later["soundAfterCut"] <= 1  # render quanta that still sounded
    assert await page.evaluate("souffleur.loudness()") == 0
    assert max(await page.evaluate("souffleur.cuts()")) < 100  # ms; a few on a quiet machine
    cut = peer.playback[-1]
    assert cut["playedMs"] <= counters["rendered"] / 24
    heard = await page.text("#turns > li:first-child .said > span:first-child")
    unheard = await page.text("#turns > li:first-child .unheard")
    assert heard + unheard == "It all began a long time"  # and nothing of what came late
    assert "long" in unheard  # of five seconds not even one and a half were heard
    assert (await page.text("#turns > li:first-child .verdict")).startswith("interrupted after")
    assert await page.text("#floor-words") == "You are speaking"
    # The next answer is heard.
    await peer.transcript("t2", "Shorter.")
    await peer.say("t2", "r2", "Very well.", 0.3)
    await peer.wait_heard("r2", 300)
    assert_well_behaved(page, playhouse)


@pytest.mark.parametrize("by", ["button", "escape"])
async def test_an_interruption_by_hand(page: Page, playhouse: Playhouse, by: str) -> None:
    peer = await begin(page, playhouse)
    await peer.words("t1", "r1", "It all began")
    await peer.start_speech("t1", "r1")
    await peer.sound(5)
    await peer.wait_heard("r1", 200)
    await (page.click("#interrupt") if by == "button" else page.press("Escape"))
    await page.wait_for("document.querySelector('.agent[data-cut=interrupted]')")
    await quanta_pass(page, 2)
    assert (await page.evaluate("souffleur.counters()"))["soundAfterCut"] <= 1
    heard = peer.playback[-1]["playedMs"]
    reports = len(peer.playback)
    await peer.sound(0.3)
    with trio.fail_after(5):
        while len(peer.playback) < reports + 2:  # the server goes on hearing that no more is heard
            await peer.wait_heard("r1", heard)
            await trio.lowlevel.checkpoint()
    assert {report["playedMs"] for report in peer.playback[reports:]} == {heard}
    await peer.exit("t1")
    await peer.transcript("t2", ".", interim=True)
    await page.wait_for("document.querySelector('#floor-words').innerText === 'You are speaking'")
    reports = len(peer.playback)
    await quanta_pass(page, 60)  # 0.3 s
    assert len(peer.playback) == reports
    assert await page.evaluate("document.querySelector('#interrupt').hidden")


async def test_errors_are_told_in_plain_words(page: Page, playhouse: Playhouse) -> None:
    peer = await begin(page, playhouse)
    await peer.transcript("t1", "Hello.")
    await peer.error("provider_quota", "429: insufficient_quota", whose="provider")
    await page.wait_for("document.querySelector('#turns .trouble[data-code=provider_quota]')")
    words = await page.text("#turns .trouble[data-code=provider_quota]")
    assert "no credit left" in words
    assert "429: insufficient_quota" in words
    await page.wait_for("document.querySelector('#alarm').innerText.includes('no credit left')")
    assert await page.text("#curtain") == ""
    await peer.exit("t1")
    await peer.error("not_found", "No agent has this name.", recoverable=False, whose="client")
    await peer.close(1008)
    await page.wait_for("document.querySelector('#curtain-what').innerText.startsWith('This agent cannot be found.')")
    assert (await page.text("#curtain-advice")).endswith("No agent has this name.")
    assert await page.text("#notices") == ""  # it is said once
    assert await page.text("#again") == "Talk again"
    assert_well_behaved(page, playhouse)


async def test_warnings_of_ready_are_shown(page: Page, playhouse: Playhouse) -> None:
    await visit(page, playhouse)
    await page.click("#begin-typing")
    peer = await playhouse.peer()
    await peer.ready(warnings=["inputSampleRate was not understood; 16000 is used"])
    await page.wait_for("document.querySelector('#notices').innerText.includes('16000 is used')")
    await page.click("#notices button")
    await page.wait_for("document.querySelector('#notices').children.length === 0")


async def test_whispers_tools_and_cards(page: Page, playhouse: Playhouse) -> None:
    peer = await begin(page, playhouse)
    await page.wait_for("document.querySelector('#no-whispers').checkVisibility()")
    assert await page.text("#no-whispers") == "The souffleur has not whispered yet."
    await peer.transcript("t1", "Cake?")
    await peer.command("tool-start", callId="c1", name="search_menu", parameters={}, owner="model", turnId="t1")
    await page.wait_for("document.querySelector('.tool')?.innerText === '(search menu …)'")
    await peer.command("tool-error", callId="c1", name="search_menu", error="closed", owner="model", turnId="t1")
    await page.wait_for("document.querySelector('.failed-tool')?.innerText === '(search menu failed: closed)'")
    data = {"title": "Apple <b>cake</b>", "picture": "https://example.org/cake.png", "contains": ["egg", "milk"]}
    await peer.send("multimodal", kind="card", name="cake", data=data, turnId="t1")
    await page.wait_for("document.querySelector('.card')")
    assert await page.text(".card h3") == "Apple <b>cake</b>"
    assert await page.evaluate("document.querySelector('.card a').href") == "https://example.org/cake.png"
    await peer.command("realtime-planning", text="Offer cream with it.", turnId="t1")
    await peer.command("realtime-instruction", instructionType="SUPPORTING_CONTEXT", text="No nuts. " * 40, turnId="t1")
    await page.wait_for("document.querySelectorAll('#turns li .whispers .whisper').length === 2")
    assert await page.text(".whisper") == "PLAN\nOffer cream with it."
    assert len(await page.text(".whisper:last-child")) < 120  # folded
    await page.click(".whisper:last-child summary")
    await page.wait_for("document.querySelector('.whisper:last-child').innerText.length > 300")
    assert await page.text("#no-whispers") == ""
    await peer.send("multimodal", kind="handover", name="concierge", data={}, turnId="t1")
    await page.wait_for("document.querySelector('.aside a[href=\"?agent=concierge\"]')")
    assert_well_behaved(page, playhouse)  # the picture of the card was not fetched


async def test_each_answer_shows_what_steered_it(page: Page, playhouse: Playhouse) -> None:
    """What was whispered in the turn before, and what came of each whisper: pass, time and outcome, at a glance."""
    peer = await begin(page, playhouse)
    await peer.transcript("t1", "Cake?")
    await peer.say("t1", "r1", "Let me see.", 0.2)
    await peer.wait_heard("r1", 200)
    await peer.command("planning-pass", turnId="t1", passId="t1/1", state="began")
    for name, kind, text in (
        ("i1", "SUPPORTING_CONTEXT", "The <b>tart</b> is sold out."),
        ("i2", "INSTRUCTION", "Offer the apple cake."),
        ("i3", "SUPPORTING_CONTEXT", "No nuts. " * 40),
    ):
        told = {"instructionId": name, "passId": "t1/1", "instructionType": kind, "text": text}
        await peer.command("realtime-instruction", turnId="t1", **told)
    await peer.command(
        "realtime-instruction-outcome", turnId="t1", instructionId="i2", outcome="spoken", responseId="r2"
    )
    await peer.say("t1", "r2", "We have apple cake.", 0.2)
    await peer.command("planning-pass", turnId="t1", passId="t1/1", state="planned")
    await page.wait_for("document.querySelector('.passes')?.innerText.startsWith('pass 1: planned in ')")
    fates = "[...document.querySelectorAll('.whisper .fate')].map((fate) => fate.innerText.split(' · '))"
    waiting, spoken, _ = await page.evaluate(fates)
    assert (waiting[0], waiting[2]) == ("pass 1", "waits for an answer")
    assert spoken[2] == "spoken"
    assert waiting[1].endswith("s")
    await peer.exit("t1")
    await peer.transcript("t2", "Yes, please.")
    for name, outcome in (("i1", "used"), ("i3", "superseded")):
        await peer.command(
            "realtime-instruction-outcome", turnId="t2", instructionId=name, outcome=outcome, responseId="r3"
        )
    await peer.say("t2", "r3", "Gladly.", 0.2)
    await page.wait_for("document.querySelector('#turns > li:last-child .steered li')")
    assert [fate[2] for fate in await page.evaluate(fates)] == ["used in the next turn", "spoken", "superseded"]
    assert await page.text("#turns > li:last-child .steered .kind") == "STEERED THIS ANSWER"
    assert await page.text("#turns > li:last-child .steered li") == "The <b>tart</b> is sold out."
    struck = "getComputedStyle(document.querySelector('[data-outcome=superseded] .short')).textDecorationLine"
    assert await page.evaluate(struck) == "line-through"
    assert await page.evaluate("document.querySelectorAll('#turns > li:first-child .steered').length") == 0
    await page.click("#end")
    await peer.expect(type="token", text="#exit")
    await peer.command("session-end", sessionId="s1", state="CLOSED", reason="the client ended the session")
    await peer.gone()
    assert_well_behaved(page, playhouse)


async def test_timings_stand_under_the_turn(page: Page, playhouse: Playhouse) -> None:
    peer = await begin(page, playhouse)
    await peer.transcript("t1", ".", interim=True)
    await peer.send("partial", text="hel", turnId="t1")
    await peer.send("emotion", state="userNotSpeaking", scores={}, turnId="t1")
    await page.wait_for("document.querySelector('#turns .user .said')?.innerText.startsWith('hel')")
    await peer.transcript("t1", "Hello.")
    await peer.say("t1", "r1", "Good evening.", 0.2)
    await peer.wait_heard("r1", 200)
    await page.wait_for("document.querySelectorAll('.measure li').length === 3")
    assert [await page.text(f".measure li:nth-child({i})") for i in (1, 2, 3)] == [
        f"{what} {await page.text(f'.measure li:nth-child({i}) b')}"
        for i, what in ((1, "understood"), (2, "first word"), (3, "first sound"))
    ]


async def test_end_waits_for_the_session_and_talks_again(page: Page, playhouse: Playhouse) -> None:
    peer = await begin(page, playhouse)
    await page.click("#end")
    await peer.expect(type="token", text="#exit")
    await page.wait_for("document.querySelector('#floor-words').innerText === 'Ending the conversation…'")
    await peer.send("evaluation", name="Politeness", score=0.9, reasons=["You said please."])
    await peer.command("session-end", sessionId="s1", state="CLOSED", reason="the client ended the session")
    await peer.gone()
    await page.wait_for("document.querySelector('#curtain-what').innerText === 'You ended the conversation.'")
    assert await page.text("#evaluation-list") == "Politeness 0.9 — You said please."
    await page.wait_for("document.activeElement.id === 'again'")  # the pressed button is gone; its user is not lost
    await page.click("#again")
    again = await playhouse.peer()
    assert "sessionId" not in again.parameters
    await again.ready("s2")
    assert await page.evaluate("document.querySelectorAll('#turns .turn').length") == 0
    await page.click("#end")
    await again.expect(type="token", text="#exit")
    await page.click("#end")  # a second wish is obeyed at once
    await page.click("#other")
    await page.wait_for("document.querySelector('#casting').checkVisibility()")
    assert_well_behaved(page, playhouse)


async def test_the_agent_ends_the_conversation_and_is_heard_out(page: Page, playhouse: Playhouse) -> None:
    peer = await begin(page, playhouse)
    await peer.say("t1", "r1", "Good night.", 0.5)
    await peer.command("sessionShouldEnd")
    await peer.exit("t1")
    await peer.wait_heard("r1", 200)
    await peer.command("session-end", sessionId="s1", state="CLOSED", reason="the agent ended the session")
    await peer.close()
    await page.wait_for("document.querySelector('#curtain-what').innerText === 'Barista ended the conversation.'")
    await page.wait_for("souffleur.counters().then(({ rendered }) => rendered === 12000)")


async def test_a_lost_line_comes_back_to_the_same_session(page: Page, playhouse: Playhouse) -> None:
    peer = await begin(page, playhouse)
    await peer.transcript("t1", "Tell me all.")
    await peer.words("t1", "r1", "It began")
    await peer.start_speech("t1", "r1")
    await peer.sound(5)
    await peer.wait_heard("r1", 200)
    await peer.drop()
    await page.wait_for(
        "document.querySelector('#floor-words').innerText.startsWith('Connection lost. Reconnecting, try 1 of 5')"
    )
    assert "interrupted" in await page.text("#turns .agent .verdict")
    again = await playhouse.peer()
    assert again.parameters["sessionId"] == "s1"
    assert again.parameters["deviceRef"] == peer.parameters["deviceRef"]
    await again.ready()
    await again.opening("Where were we?", turn="t2", response="r2")
    await again.wait_heard("r2", 300)
    await page.wait_for("document.querySelector('#floor-words').innerText === 'Your line'")
    assert await page.evaluate("document.querySelectorAll('#turns .turn').length") == 2
    assert_well_behaved(page, playhouse)


async def test_a_server_that_stays_away_is_given_up(page: Page, playhouse: Playhouse) -> None:
    # Fifty times as fast: the waits are those of the page, its clock is not.
    await page.before_loading(
        "const wait = window.setTimeout; window.waits = [];"
        "window.setTimeout = (act, ms = 0, ...rest) => { window.waits.push(ms); return wait(act, ms / 50, ...rest); };"
    )
    peer = await begin(page, playhouse)
    playhouse.refusal = 503
    await peer.drop()
    await page.wait_for("document.querySelector('#curtain-what').innerText.startsWith('The connection was lost')")
    delays = [ms for ms in await page.evaluate("waits") if ms not in (1000, 20000)]
    assert delays == [500, 2000, 4000, 8000]  # and 1000, which is also the player's patience at the start
    assert all("503" in complaint for complaint in page.complaints)  # the browser's own; nothing of ours
    playhouse.refusal = 0
    assert await page.text("#again") == "Pick up again"
    await page.click("#again")
    assert (await playhouse.peer()).parameters["sessionId"] == "s1"


async def test_a_refused_connection_is_not_asked_again(page: Page, playhouse: Playhouse) -> None:
    playhouse.refusal = 503
    await visit(page, playhouse)
    await page.click("#begin-typing")
    await page.wait_for(
        "document.querySelector('#curtain-what').innerText === 'The server did not accept the conversation.'"
    )
    assert sum(url.startswith("ws:") for url in page.requests) == 1


async def test_an_insecure_address_still_sounds(page: Page, playhouse: Playhouse) -> None:
    """Over plain http from elsewhere browsers give neither microphone nor worklets: typing and hearing remain."""
    url = f"http://{INSECURE_HOST}:{playhouse.port}/"
    await page.open(url)
    await page.click("#begin")
    peer = await playhouse.peer()
    await peer.ready()
    assert await page.evaluate("isSecureContext") is False
    await page.wait_for("document.querySelector('#notices').innerText.includes('only on secure addresses')")
    await peer.opening(seconds=0.4)
    await peer.wait_heard("r1", 400)
    assert (await page.evaluate("souffleur.counters()"))["rendered"] == 9600


async def test_a_long_conversation_keeps_the_page_small(page: Page, playhouse: Playhouse) -> None:
    peer = await begin(page, playhouse)
    for i in range(260):
        await peer.transcript(f"t{i}", f"line {i}")
        await peer.words(f"t{i}", f"r{i}", f"answer {i}")
        await peer.exit(f"t{i}")
    await page.wait_for("document.querySelector('#turns > li:last-child').innerText.includes('answer 259')")
    assert await page.evaluate("document.querySelectorAll('#turns > li').length") == 200
    assert await page.text("#dropped") == "60 earlier turns have left the stage."
    assert await page.evaluate("document.querySelectorAll('#announcer p').length") == 12
    assert await page.evaluate("document.querySelectorAll('*').length") < 5000
    # The reader who scrolls back is left where he is.
    await page.evaluate("document.querySelector('main').scrollTo(0, 0)")
    await page.wait_for("document.querySelector('main').scrollTop === 0")
    await quanta_pass(page, 8)
    await peer.transcript("t300", "one more")
    await page.wait_for("document.querySelector('#to-now').checkVisibility()")
    assert await page.evaluate("document.querySelector('main').scrollTop") == 0
    await page.click("#to-now")
    await page.wait_for("document.querySelector('#to-now').hidden")


async def test_two_pages_are_two_devices(devtools: DevTools, playhouse: Playhouse) -> None:
    refs: set[str] = set()
    for _ in range(2):
        async with devtools.open_page() as page:
            refs.add((await begin(page, playhouse)).parameters["deviceRef"])
    assert len(refs) == 2


async def test_nothing_a_server_says_becomes_markup(page: Page, playhouse: Playhouse) -> None:
    nasty = "<img src=x onerror=alert(1)>"
    playhouse.agents[0]["name"] = nasty
    peer = await begin(page, playhouse)
    await peer.transcript("t1", nasty)
    await peer.words("t1", "r1", nasty)
    await peer.command("realtime-planning", text=nasty, turnId="t1")
    await peer.error("internal", nasty)
    await page.wait_for("document.querySelector('#turns .trouble')")
    assert await page.evaluate("document.querySelector('#turns').querySelectorAll('img').length") == 0
    assert json.dumps(nasty)[1:-1] in await page.text("#turns .agent .said")
    assert_well_behaved(page, playhouse)
