"""What can be measured of the page's looks: names of controls, contrast, room on a telephone, quiet motion."""

import itertools
import re

import pytest

from tests.browser.devtools import Page
from tests.browser.page_server import WEB, Peer, Playhouse

pytestmark = pytest.mark.browser

CONTROLS = {"button", "textbox", "radio", "link", "checkbox", "combobox", "DisclosureTriangle"}
LANDMARKS = {"banner", "main", "contentinfo"}


async def staged(page: Page, playhouse: Playhouse) -> Peer:
    """A conversation with something of everything."""
    await page.open(playhouse.url)
    await page.click("#begin")
    peer = await playhouse.peer()
    await peer.ready(warnings=["something to know"])
    await peer.transcript("t1", "Tell me about " + "a very long story " * 6)
    await peer.command("tool-start", callId="c1", name="search_everything_there_is", owner="model", turnId="t1")
    await peer.command("realtime-instruction", instructionType="INSTRUCTION", text="Be kind. " * 40, turnId="t1")
    data = {"title": "Card", "link": "https://example.org/" + "long/" * 40, "price": 72}
    await peer.send("multimodal", kind="card", name="card", data=data, turnId="t1")
    await peer.words("t1", "r1", "Donaudampfschifffahrtsgesellschaftskapitänswitwenrentenauszahlungsstelle, " * 3)
    await peer.start_speech("t1", "r1")
    await peer.sound(3)
    await page.wait_for("document.querySelector('#interrupt').checkVisibility()")
    await page.wait_for("document.querySelector('.whisper')")
    return peer


async def assert_named(page: Page, landmarks: set[str]) -> None:
    """Every control of the page has a name, and its parts are landmarks and headings."""
    nodes = await page.accessibility_tree()
    roles = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes]
    controls = [(role, name) for role, name in roles if role in CONTROLS]
    assert len(controls) >= 2
    assert [role for role, name in controls if not name.strip()] == []
    assert landmarks <= {role for role, _ in roles}
    assert [name for role, name in roles if role == "heading"] != []


async def test_every_control_has_a_name_and_every_part_its_landmark(page: Page, playhouse: Playhouse) -> None:
    await page.open(playhouse.url)
    await page.wait_for("document.querySelector('#begin:enabled')")
    await assert_named(page, LANDMARKS - {"contentinfo"})
    peer = await staged(page, playhouse)
    await assert_named(page, LANDMARKS)
    await page.click("#end")
    await page.click("#end")
    await peer.gone()
    await page.wait_for("document.querySelector('#again').checkVisibility()")
    await assert_named(page, LANDMARKS)


async def test_live_regions_say_sentences_not_tokens(page: Page, playhouse: Playhouse) -> None:
    await page.open(playhouse.url)
    await page.click("#begin-typing")
    peer = await playhouse.peer()
    await peer.ready()
    await peer.send("token", text="half a sen", turnId="t1", responseId="r1")
    await page.wait_for("document.querySelector('#turns').innerText.includes('half a sen')")
    live = "[...document.querySelectorAll('[aria-live], [role=log], [role=status], [role=alert]')]"
    assert await page.evaluate(f"{live}.some((region) => region.innerText.includes('half a sen'))") is False
    assert await page.evaluate(f"{live}.some((region) => region.contains(document.querySelector('#turns')))") is False
    await peer.send("text", text="Half a sentence.", turnId="t1", responseId="r1")
    await page.wait_for("document.querySelector('#announcer').innerText.includes('Half a sentence.')")


@pytest.mark.parametrize("width", [360, 768, 1280])
async def test_nothing_sticks_out(page: Page, playhouse: Playhouse, width: int) -> None:
    await page.imitate(width=width, height=740, mobile=width < 500)
    await staged(page, playhouse)
    wide = await page.evaluate(
        "[...document.querySelectorAll('body *')].filter((element) => element.checkVisibility()"
        " && !element.closest('.unseen, .footlights, svg') && element.getClientRects().length > 0"
        f" && element.getBoundingClientRect().right > {width} + 1).map((element) => element.outerHTML.slice(0, 100))"
    )
    assert wide == []
    small = await page.evaluate(
        "[...document.querySelectorAll('button')].filter((button) => button.checkVisibility())"
        ".map((button) => button.getBoundingClientRect()).filter(({ width, height }) => width < 32 || height < 32).length"
    )
    assert small == 0


async def test_motion_stops_for_those_who_asked(page: Page, playhouse: Playhouse) -> None:
    await page.imitate(width=1280, height=800)  # with prefers-reduced-motion
    await staged(page, playhouse)
    assert await page.evaluate("document.getAnimations().length") == 0


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_colours_can_be_read_by_day_and_by_night() -> None:
    day, night = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root \{(.*?)\}", (WEB / "talk.css").read_text(), re.DOTALL)
    )
    for name, colours in (("day", day), ("night", {**day, **night})):
        grounds = ("paper", "surface")
        for text, ground in itertools.product(("ink", "soft", "curtain", "brass"), grounds):
            assert contrast(colours[text], colours[ground]) >= 4.5, (name, text, ground)
        for edge, ground in itertools.product(("edge",), grounds):
            assert contrast(colours[edge], colours[ground]) >= 3, (name, edge, ground)
        assert contrast(colours["on-curtain"], colours["curtain-deep"]) >= 4.5, name


def test_the_page_needs_no_exception_from_a_strict_policy() -> None:
    page = (WEB / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"\son\w+=|\sstyle=|javascript:", page) == []
    for file in WEB.glob("*"):
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)[\w.]+\.\w", file.read_text()), file.name
