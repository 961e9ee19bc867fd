"""The page of a capsule in a real browser, served by the real application: what a builder of an agent finds out with it."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.browser.capsule_server import ADMIN_KEY, serve_capsules
from tests.browser.devtools import DevTools, Page
from tests.browser.test_looks import assert_named, contrast
from tests.engine.capsule.scenario import cafe, long_call

pytestmark = pytest.mark.browser

NAME = "20300517T093000-s-1-1.capsule"
LONG = "20300517T103000-s-2-1.capsule"
LANDMARKS = {"banner", "main", "search"}


@pytest.fixture
async def url(tmp_path: Path) -> AsyncGenerator[str]:
    cafe().write(tmp_path / NAME)
    async with serve_capsules(tmp_path) as url:
        yield url


async def open_capsule(page: Page, url: str, name: str = NAME) -> None:
    await page.open(f"{url}/capsules/{name}#key={ADMIN_KEY}")
    await page.wait_for("souffleur.page !== null && document.querySelector('#clock').innerText !== ''")


async def scrub(page: Page, instant: float) -> None:
    """To an instant, by keys: seconds, then tenths."""
    await page.press("Home")
    for _ in range(int(instant)):
        await page.press("ArrowRight", shift=True)
    for _ in range(round(instant % 1 * 10)):
        await page.press("ArrowRight")
    await at(page, instant)


async def at(page: Page, instant: float) -> None:
    await page.wait_for(f"document.querySelector('#clock').innerText === '0:{instant:06.3f}'")


async def place(page: Page, instant: float, lane: str) -> tuple[float, float]:
    """Where something stands on the window."""
    found = await page.evaluate(
        f"""(() => {{
          const {{ left, top }} = document.querySelector('#lanes').getBoundingClientRect();
          const {{ x, y }} = souffleur.page.placeOf({instant}, {json.dumps(lane)});
          return [left + x, top + y];
        }})()"""
    )
    return found[0], found[1]


async def row(page: Page, name: str) -> str:
    """What the instant's panel says in one of its rows."""
    return str(
        await page.evaluate(
            f"[...document.querySelectorAll('#now-list dt')].find((term) => term.innerText === {json.dumps(name)}).nextSibling.innerText"
        )
    )


async def told(page: Page) -> list[str]:
    """What the model had been told, newest first; what is new is marked."""
    found: list[str] = await page.evaluate(
        "[...document.querySelectorAll('#told li')].map((item) => item.innerText.replace(/\\s+/g, ' '))"
    )
    return found


def assert_well_behaved(page: Page, url: str) -> None:
    """No complaint of the console or of the policy, nobody else asked, and the key in no address."""
    assert page.complaints == []
    assert {request.split("/")[2] for request in page.requests if not request.startswith("data:")} == {
        url.split("/")[2]
    }
    assert not any(ADMIN_KEY in request.partition("#")[0] for request in page.requests)


async def test_an_admin_is_asked_once_and_finds_the_capsule(page: Page, url: str) -> None:
    await page.open(f"{url}/capsules")
    await page.wait_for("document.activeElement.id === 'key'")
    await page.type(ADMIN_KEY)
    await page.press("Enter")
    await page.wait_for("document.querySelectorAll('#capsules tr').length === 1")
    listed = await page.text("#capsules")
    assert "barista" in listed
    assert "the client ended it" in listed
    await page.click("#capsules a")
    await page.wait_for("souffleur.page !== null")
    assert "barista s-1" in await page.text("#title")
    assert "turns 3 barge-ins 1 answered in, median 500 ms slowest 500 ms" in " ".join(
        (await page.text("#summary")).split()
    )
    await page.click(".brand a")
    await page.wait_for("document.querySelectorAll('#capsules tr').length === 1")
    assert_well_behaved(page, url)


async def test_a_wrong_key_is_asked_for_again(page: Page, url: str) -> None:
    await page.open(f"{url}/capsules/{NAME}")
    await page.wait_for("document.activeElement.id === 'key'")
    await page.type("wrong")
    await page.press("Enter")
    await page.wait_for("document.querySelector('#door-title').innerText === 'That key is not right.'")
    assert await page.evaluate("sessionStorage.length") == 0
    await page.type(ADMIN_KEY)
    await page.press("Enter")
    await page.wait_for("souffleur.page !== null")
    assert all("401" in complaint for complaint in page.complaints)  # the browser's own note of the refusal


async def test_a_key_in_the_address_is_taken_out_of_it(page: Page, url: str) -> None:
    await open_capsule(page, url)
    assert ADMIN_KEY not in await page.evaluate("location.href")
    assert_well_behaved(page, url)


async def test_by_keyboard_the_cut_speech_is_seen(page: Page, url: str) -> None:
    await open_capsule(page, url)
    await scrub(page, 4.0)
    assert "saying “We have espresso" in await row(page, "Agent")
    assert await row(page, "User") == "quiet"
    assert "planning pass p1" in await row(page, "Running")
    await scrub(page, 5.0)
    assert await row(page, "Agent") == "cut: what would be said here was sent, but not heard any more (answer 1)"
    assert "No, I mean" in await row(page, "User")
    await scrub(page, 6.2)
    assert await row(page, "Agent") == "cut: what would be said here was never sent (answer 1)"
    slider = "document.querySelector('#scrub')"
    assert await page.evaluate(f"{slider}.getAttribute('aria-valuenow')") == "6.200"
    assert (await page.evaluate(f"{slider}.getAttribute('aria-valuetext')")).startswith("0:06.200, user: speaking")
    await page.press("End")
    await at(page, 12.5)
    assert_well_behaved(page, url)


async def test_by_mouse_the_cancelled_pass_and_its_reason_are_found(page: Page, url: str) -> None:
    await open_capsule(page, url)
    await page.mouse_click(*await place(page, 3.5, "passes"))
    await page.wait_for("document.querySelector('#details').innerText.includes('passes:t1/p1')")
    details = " ".join((await page.text("#details")).split())
    assert "outcome cancelled" in details
    assert "reason barge-in" in details
    assert "0:02.300 to 0:04.801" in details
    await page.click("#details .links [data-id='cancels:2']")
    await page.wait_for("document.querySelector('#details').innerText.includes('cancels:2')")
    await at(page, 4.8)
    assert "barge-in: legs of turn 1 now" in " ".join((await row(page, "Cancelled")).split())
    # The answer that was cut there, from what was said of it.
    await page.mouse_click(*await place(page, 3.5, "agent"))
    await page.wait_for("document.querySelector('#details').innerText.includes('agent:r1')")
    assert "4.00 s made, 3.20 s sent, 2.00 s heard" in await page.text("#details")
    assert_well_behaved(page, url)


async def test_what_the_model_knew_before_and_after_a_whisper(page: Page, url: str) -> None:
    await open_capsule(page, url)
    await scrub(page, 8.1)
    before = await told(page)
    assert [each.rpartition(" 0:0")[0] for each in before] == [
        "THE USER SAID turn 2", "INTERRUPTED turn 1 · heard 2000 ms", "THE USER SAID turn 1", "SYSTEM PROMPT",
    ]  # fmt: skip
    assert not any("ginger" in each for each in before)
    await page.press("ArrowRight")
    await at(page, 8.2)
    after = await told(page)
    assert len(after) == len(before) + 1
    assert after[0].startswith("+ WHISPER instruction · turn 2")
    assert "Recommend the ginger tea" in after[0]
    assert await page.text("#knew-count") == "5 of 5"
    # From the whisper to the pass that made it, and to the response that spoke it.
    await page.mouse_click(*await place(page, 8.12, "whispers"))
    await page.wait_for("document.querySelector('#details').innerText.includes('whispers:i1')")
    details = " ".join((await page.text("#details")).split())
    assert "outcome spoken" in details
    assert "told to the model 0:08.120" in details
    links = await page.evaluate(
        "[...document.querySelectorAll('#details .links button')].map((link) => link.dataset.id)"
    )
    assert {"passes:t2/p2", "agent:r3", "told:5"} <= set(links)
    await page.click("#details .links [data-id='agent:r3']")
    await at(page, 8.6)
    assert "saying “Ginger tea. And get well soon!” (answer 3)" in await row(page, "Agent")
    assert_well_behaved(page, url)


async def test_the_ruler_and_the_overview_scrub_under_the_mouse(page: Page, url: str) -> None:
    await open_capsule(page, url)
    await page.drag(await place(page, 2.0, "ruler"), await place(page, 7.0, "ruler"))
    assert await page.evaluate("Math.abs(souffleur.page.instant - 7) < 0.05")
    await page.click("#scrub")
    assert await page.evaluate("Math.abs(souffleur.page.instant - 6.25) < 0.05")
    assert_well_behaved(page, url)


async def test_the_view_zooms_pans_and_comes_back(page: Page, url: str) -> None:
    await open_capsule(page, url)
    await scrub(page, 6.0)
    x, y = await place(page, 6.0, "turns")
    await page.wheel(x, y, -600)
    await page.wait_for("souffleur.page.view.until - souffleur.page.view.from < 6")
    assert abs((await place(page, 6.0, "turns"))[0] - x) < 1  # what is under the pointer stays there
    start = await page.evaluate("souffleur.page.view.from")
    await page.drag((x, y), (x - 200, y))
    assert await page.evaluate("souffleur.page.view.from") > start
    await page.press("0")
    await page.wait_for("souffleur.page.view.from === 0 && souffleur.page.view.until === 12.5")
    await page.press("+")
    await page.press("c")  # nothing is cancelled behind it
    await page.press("C", shift=True)
    await at(page, 4.8)
    assert_well_behaved(page, url)


async def test_two_fingers_zoom_and_one_scrubs(page: Page, url: str) -> None:
    await page.imitate(width=390, height=800, mobile=True)
    await page.call("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})
    await open_capsule(page, url)
    x, y = await place(page, 6.0, "turns")
    for kind, apart in (("touchStart", 20), ("touchMove", 40), ("touchMove", 80)):
        touches = [{"x": x - apart, "y": y, "id": 1}, {"x": x + apart, "y": y, "id": 2}]
        await page.call("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})
    await page.call("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert 2.5 < await page.evaluate("souffleur.page.view.until - souffleur.page.view.from") < 4.5
    x, y = await page.evaluate(
        "(({ left, top, width, height }) => [left + width / 4, top + height / 2])(document.querySelector('#scrub').getBoundingClientRect())"
    )
    await page.call("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y, "id": 1}]})
    await page.call("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert await page.evaluate("Math.abs(souffleur.page.instant - 12.5 / 4) < 0.1")
    assert_well_behaved(page, url)


async def test_words_and_ids_are_searched(page: Page, url: str) -> None:
    await open_capsule(page, url)
    await page.press("/")
    await page.type("ginger whisper")
    await page.wait_for("document.querySelectorAll('#found button').length > 0")
    await page.press("Enter")
    await page.wait_for("document.querySelector('#details').innerText.includes('whispers:i1')")
    await page.click("#search")
    await page.evaluate("document.querySelector('#search').select()")
    await page.type("nothing like it")
    await page.wait_for("document.querySelector('#found').innerText === 'Nothing has that in it.'")
    assert_well_behaved(page, url)


async def test_an_instant_has_an_address(page: Page, url: str) -> None:
    await open_capsule(page, url)
    await page.open(f"{url}/capsules")
    await page.open(f"{url}/capsules/{NAME}#t=8.300&item=whispers%3Ai1")
    await at(page, 8.3)
    assert "whispers:i1" in await page.text("#details")
    assert_well_behaved(page, url)


async def test_a_file_from_elsewhere_is_opened(page: Page, tmp_path: Path) -> None:
    path = cafe().write(tmp_path / "mine.capsule")
    async with serve_capsules(None) as url:
        await page.open(f"{url}/capsules/view#key={ADMIN_KEY}")
        await page.wait_for("document.querySelector('#file-choice').checkVisibility()")
        await page.choose_file("#file", path)
        await page.wait_for("souffleur.page !== null")
        assert "barista" in await page.text("#title")
        (tmp_path / "bad.capsule").write_bytes(b"something else")
        await page.choose_file("#file", tmp_path / "bad.capsule")
        await page.wait_for("document.querySelector('#door-words').innerText.includes('is not a session capsule')")
        assert all("422" in complaint for complaint in page.complaints)


async def test_a_server_that_keeps_none_and_a_damaged_file_are_explained(page: Page, url: str, tmp_path: Path) -> None:
    (tmp_path / "bad.capsule").write_bytes(b"souffleur capsule 99\nfrom the future")
    await page.open(f"{url}/capsules/bad.capsule#key={ADMIN_KEY}")
    await page.wait_for("document.querySelector('#door-words').innerText.includes('has version 99')")
    async with serve_capsules(None) as other:
        await page.open(f"{other}/capsules#key={ADMIN_KEY}")
        await page.wait_for("document.querySelector('#door-words').innerText.includes('souffleur serve --record')")


async def test_every_control_has_a_name(page: Page, url: str) -> None:
    await open_capsule(page, url)
    await scrub(page, 8.2)
    await page.press("Enter")
    await page.wait_for("document.querySelector('#details .links')")
    await assert_named(page, LANDMARKS)
    nodes = await page.accessibility_tree()
    assert "slider" in {node["role"]["value"] for node in nodes}


@pytest.mark.parametrize(("width", "dark"), [(360, False), (1280, True)])
async def test_nothing_sticks_out(page: Page, url: str, width: int, dark: bool) -> None:
    await page.imitate(width=width, height=760, mobile=width < 500, dark=dark)
    await open_capsule(page, url)
    await page.press("Enter")
    wide = await page.evaluate(
        "[...document.querySelectorAll('body *')].filter((element) => element.checkVisibility() && !element.closest('.unseen')"
        f" && element.getBoundingClientRect().right > {width} + 1).map((element) => element.outerHTML.slice(0, 100))"
    )
    assert wide == []
    assert_well_behaved(page, url)


def test_the_pages_own_colours_can_be_read() -> None:
    assert contrast("#2a1d08", "#e2a23a") >= 4.5  # words on an answer, by day
    assert contrast("#241804", "#f0b654") >= 4.5  # and by night
    assert contrast("#3f6b2f", "#fffdf9") >= 4.5
    assert contrast("#a5cf8c", "#201a18") >= 4.5


async def test_an_hour_stays_smooth(devtools: DevTools, tmp_path: Path) -> None:
    """Generous bounds, for machines that do other things too; a desk computer takes a tenth."""
    long_call(60).write(tmp_path / LONG)
    async with serve_capsules(tmp_path) as url, devtools.open_page() as page:
        await open_capsule(page, url, LONG)
        await page.evaluate(
            "(async () => { souffleur.page.frames.length = 0; for (let i = 0; i < 60; i += 1) {"
            " souffleur.page.scrub(60 * i); await new Promise(requestAnimationFrame); } })()"
        )
        frames = sorted(await page.evaluate("souffleur.page.frames"))
        assert len(frames) >= 50
        assert frames[len(frames) // 2] < 16
        assert_well_behaved(page, url)
