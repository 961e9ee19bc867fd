"""A visit to the talk page from outside, as a person makes it: any server that plays its part must pass.

Against a running server: `SOUFFLEUR_TALK_URL=http://127.0.0.1:8000/ pytest -m browser tests/browser/test_talk_play.py`.
"""

import os
from collections.abc import AsyncGenerator

import pytest

from tests.browser.devtools import Page
from tests.browser.page_server import open_playhouse
from tests.browser.performer import perform

pytestmark = pytest.mark.browser

# How long (s) a server may take over an answer: the offline voice needs a few seconds on a loaded machine.
ANSWER_LIMIT = 30


@pytest.fixture
async def talk_url() -> AsyncGenerator[str]:
    """The address of a talk page whose first agent speaks first, and answers."""
    if url := os.environ.get("SOUFFLEUR_TALK_URL"):
        yield url
        return
    async with open_playhouse(perform=perform) as playhouse:
        yield playhouse.url


async def wait_answer(page: Page, turn: int) -> str:
    """The words of the agent in the turn, once the floor is the user's again."""
    said = f"document.querySelector('#turns > li:nth-child({turn}) .agent .said')?.innerText"
    await page.wait_for(f"{said} && document.querySelector('#turns > li:nth-child({turn}) .measure b')")
    await page.wait_for("souffleur.floor() === 'open'")
    return str(await page.evaluate(said))


async def test_a_spoken_visit(page: Page, talk_url: str) -> None:
    """The opening is heard; what the microphone hears is answered, and cuts the opening off if it is still going on."""
    page.patience = ANSWER_LIMIT
    await page.open(talk_url)
    await page.click("#begin")
    assert await wait_answer(page, 1) != ""
    assert await wait_answer(page, 2) != ""
    assert (await page.evaluate("souffleur.counters()"))["rendered"] > 24000
    assert await page.text("#turns > li:nth-child(2) .user .said") != ""
    assert page.complaints == []


async def test_a_visit_by_keyboard_alone(page: Page, talk_url: str) -> None:
    """Tab, arrows, Enter and Escape are enough, and where one is can be seen."""
    page.patience = ANSWER_LIMIT
    await page.open(talk_url)
    await page.wait_for("document.querySelector('#begin-typing:enabled')")
    for _ in range(10):
        await page.press("Tab")
        await assert_focus_is_visible(page)
        if await page.evaluate("document.activeElement.id") == "begin-typing":
            break
    await page.press("Enter")
    await page.wait_for("document.activeElement.id === 'line'")
    assert await wait_answer(page, 1) != ""
    await page.type("two coffees")
    await page.press("Enter")
    assert await wait_answer(page, 2) != ""
    assert await page.text("#turns > li:nth-child(2) .user .said") == "two coffees"
    for _ in range(6):
        await page.press("Tab")
        if await page.evaluate("document.activeElement.id") == "end":
            break
        await assert_focus_is_visible(page)
    await page.press(" ")
    await page.wait_for("document.activeElement.id === 'again'")
    assert await page.text("#curtain-what") == "You ended the conversation."
    assert page.complaints == []


async def assert_focus_is_visible(page: Page) -> None:
    """The focused element, or the label around it, has an outline."""
    width = await page.evaluate(
        "[document.activeElement, document.activeElement.closest('label')].filter(Boolean)"
        ".map((element) => getComputedStyle(element)).some(({ outlineStyle, outlineWidth }) =>"
        " outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2)"
    )
    assert width, await page.evaluate("document.activeElement.outerHTML")
