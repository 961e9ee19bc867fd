"""One Chromium for all tests of the page; a fresh browser context, and a playhouse, for each."""

import functools
import http.server
import threading
import wave
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import numpy as np
import pytest

from tests.browser.devtools import DevTools, Page, create_target, find_chromium, launch_chromium, open_devtools
from tests.browser.page_server import WEB, Playhouse, open_playhouse

MICROPHONE_RATE = 48000


@pytest.fixture(scope="session")
def spoken_wav(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the browser's microphone hears: half a second of quiet, a second and a half of a voice-like sound, quiet."""
    path = tmp_path_factory.mktemp("microphone") / "spoken.wav"
    time = np.arange(int(1.5 * MICROPHONE_RATE)) / MICROPHONE_RATE
    harmonics = sum(np.sin(2 * np.pi * 140 * n * time) / n for n in range(1, 20))
    syllables = 0.55 + 0.45 * np.sin(2 * np.pi * 4 * time)
    voice = 0.3 * harmonics * syllables
    sound = np.concatenate([np.zeros(MICROPHONE_RATE // 2), voice, np.zeros(4 * MICROPHONE_RATE)])
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(MICROPHONE_RATE)
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
    return path


@pytest.fixture(scope="session")
def chromium(spoken_wav: Path) -> Generator[str]:
    """The DevTools address of a running browser."""
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    with launch_chromium(executable, spoken_wav) as address:
        yield address


@pytest.fixture(scope="session")
def rules_target(chromium: str) -> Generator[str]:
    """A page that can import the talk page's modules, opened once: loading them anew for every rule would take the most time."""
    handler = functools.partial(QuietHandler, directory=str(WEB))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, name="module server", daemon=True).start()
        try:
            yield create_target(chromium, f"http://127.0.0.1:{server.server_port}/icon.svg")
        finally:
            server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: what the tests ask for is no news."""


@pytest.fixture
async def rules(devtools: DevTools, rules_target: str) -> Page:
    """A document of the talk page's origin, for tests of modules that need no page."""
    page = await devtools.attach(rules_target)
    await page.wait_for("location.pathname === '/icon.svg' && document.readyState === 'complete'")
    return page


@pytest.fixture
async def devtools(chromium: str) -> AsyncGenerator[DevTools]:
    async with open_devtools(chromium) as devtools:
        yield devtools


@pytest.fixture
async def playhouse() -> AsyncGenerator[Playhouse]:
    async with open_playhouse() as playhouse:
        yield playhouse


@pytest.fixture
async def page(devtools: DevTools) -> AsyncGenerator[Page]:
    async with devtools.open_page() as page:
        yield page
