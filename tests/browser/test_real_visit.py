"""The whole of it, as a person meets it: the real server with its offline voice, the real page in a real Chromium, a spoken question
into the microphone, and an interruption in the middle of the answer."""

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from engine.interfaces import Synthesizer
from engine.protocol.resample import Resampler
from engine.protocol.wav import wav_bytes
from engine.registry import load
from engine.store.locate import open_store
from tests.browser.devtools import Page, find_chromium, launch_chromium, open_devtools
from tests.scenarios.caller import MICROPHONE_RATE, make_speech

LONGEST = 180
PATIENCE = 60
QUESTION = "When are you open on Sunday?"
INTERRUPTION = "Wait, please, I would like to book a table."
BROWSER_RATE = 48000


@contextmanager
def souffleur(store: str) -> Generator[str]:
    """`souffleur serve`, and its address."""
    command = [str(Path(sys.executable).with_name("souffleur")), "serve", "--port", "0", "--store", store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().removeprefix("listening on ").strip()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(LONGEST)


async def microphone(directory: Path) -> Path:
    """A question, time for the beginning of an answer, an interruption."""
    voice: Synthesizer = load("synthesizers", "Local")({"provider": "Local"})
    pause = bytes(2 * MICROPHONE_RATE)
    question, interruption = await make_speech(voice, QUESTION), await make_speech(voice, INTERRUPTION)
    pcm = b"".join([pause, question, pause * 3, interruption, pause * 60])
    resampler = Resampler(MICROPHONE_RATE, BROWSER_RATE)
    path = directory / "microphone.wav"
    path.write_bytes(wav_bytes(resampler.feed(pcm) + resampler.flush(), BROWSER_RATE))
    return path


async def said(page: Page, who: str, turn: int) -> str:
    return str(
        await page.evaluate(f"document.querySelector('#turns > li:nth-child({turn}) .{who} .said')?.innerText ?? ''")
    )


@pytest.mark.browser
@pytest.mark.voice
@pytest.mark.sockets
async def test_a_spoken_visit_to_the_cafe(tmp_path: Path) -> None:
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    store = f"sqlite:{tmp_path}/visit.db"
    with (
        trio.fail_after(LONGEST),
        souffleur(store) as url,
        launch_chromium(executable, await microphone(tmp_path)) as address,
    ):
        async with open_devtools(address) as devtools, devtools.open_page() as page:
            page.patience = PATIENCE
            await page.open(url)
            await page.wait_for("document.querySelector('#begin:enabled')")
            await page.click("#begin")
            words = "[...document.querySelectorAll('#turns .user .said')].map((line) => line.innerText).join(' | ').toLowerCase()"
            await page.wait_for(f"({words}).includes('sunday')")
            await page.wait_for(f"({words}).includes('book a table')")
            await page.wait_for("souffleur.floor() === 'open'")
            assert await page.evaluate(
                "[...document.querySelectorAll('#turns .agent')].some((line) => /interrupted/.test(line.innerText))"
            )
            counters = await page.evaluate("souffleur.counters()")
            assert counters["rendered"] > BROWSER_RATE // 2
            await page.click("#end")
            await page.wait_for("document.querySelector('#again')?.checkVisibility()")
            assert page.complaints == []
    async with open_store(store) as opened:
        sessions = [
            turn for name in await session_ids(tmp_path / "visit.db") for turn in await opened.get_turns(name, limit=50)
        ]
    kinds = [turn.input.kind for turn in sessions]
    assert kinds.count("speech") >= 2
    assert any(turn.interrupted for turn in sessions)


async def session_ids(path: Path) -> list[str]:
    def read() -> list[str]:
        import sqlite3

        with sqlite3.connect(path) as database:
            return [row[0] for row in database.execute("SELECT id FROM sessions")]

    return await trio.to_thread.run_sync(read)
