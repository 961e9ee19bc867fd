"""Takes the pictures of the talk page: `python -m tests.browser.screenshots DIRECTORY`.

Plays a short scene on the scripted server and photographs it in a real Chromium: `talk.png` is the README's picture, the others
(`desktop-light`, `desktop-dark`, `phone`, `start`, `start-dark`, …) show the other faces of the page. Palatino or
TeX Gyre Pagella and Inter (Debian: fonts-texgyre, fonts-inter) make it look as intended; without them it takes what there is.
"""

import sys
from pathlib import Path

import attrs
import trio

from tests.browser.devtools import Page, find_chromium, launch_chromium, open_devtools
from tests.browser.page_server import Peer, Playhouse, open_playhouse

CAST = [
    {"ref": "barista", "name": "Barista"},
    {"ref": "concierge", "name": "Hotel concierge"},
    {"ref": "tutor", "name": "Czech tutor"},
]


@attrs.frozen
class Scene:
    """Who plays, and how the page is to be looked at."""

    name: str
    width: int = 1280
    height: int = 800
    dark: bool = False
    mobile: bool = False
    scale: float = 1


CONVERSATIONS = (
    Scene("talk", width=1180, height=880, scale=1.4),
    Scene("desktop-light"),
    Scene("desktop-dark", dark=True),
    Scene("phone", width=360, height=740, mobile=True, scale=2),
    Scene("phone-dark", width=360, height=740, mobile=True, scale=2, dark=True),
)
STARTS = (
    Scene("start"),
    Scene("start-dark", dark=True),
    Scene("phone-start", width=360, height=740, mobile=True, scale=2),
)


async def play_evening(peer: Peer) -> None:
    """Three turns and the beginning of a fourth; the pauses are those of a quick provider."""
    await peer.ready()
    await peer.transcript("t1", "#intro", synthetic=True, provider="Client")
    await trio.sleep(0.31)
    await peer.say("t1", "r1", "Good evening, and welcome. What may I bring you?", 1.2)
    await peer.command("planning-pass", turnId="t1", passId="t1/1", state="began")
    await trio.sleep(0.4)
    await whisper(peer, "t1", "i1", "Learn how many they are, and whether they are in a hurry.")
    await peer.command("planning-pass", turnId="t1", passId="t1/1", state="planned")
    await peer.exit("t1")
    await peer.wait_heard("r1", 1200)

    await hear(peer, "t2", "Two coffees, please, and something sweet without nuts.")
    await peer.command(
        "tool-start", callId="c1", name="search_menu", parameters={"without": "nuts"}, owner="model", turnId="t2"
    )
    await trio.sleep(0.18)
    await peer.command(
        "tool-success", callId="c1", name="search_menu", result=["apple cake"], owner="model", turnId="t2"
    )
    await became(peer, "t2", "i1", "used")
    await peer.words("t2", "r2", "Two coffees, gladly.")
    await peer.words("t2", "r2", "Without nuts we have the lemon tart, which")
    await peer.start_speech("t2", "r2")
    await peer.sound(2.8, pitch=180)
    await peer.command("planning-pass", turnId="t2", passId="t2/1", state="began")
    await trio.sleep(0.6)
    await whisper(peer, "t2", "i2", "The tart is sold out. The apple cake came out of the oven at five; no nuts in it.")
    await whisper(peer, "t2", "i3", "Offer the apple cake.", "INSTRUCTION")
    await peer.wait_heard("r2", 1700)
    await peer.end_speech("t2", "r2", cancelled=True)

    await hear(peer, "t3", "Sorry, is any of it still warm?", after="r2")
    await became(peer, "t3", "i2", "used")
    await peer.say("t3", "r3", "The apple cake is: it came out of the oven a moment ago.", 1.2)
    await peer.command("planning-pass", turnId="t3", passId="t3/1", state="began")
    await trio.sleep(0.5)
    await whisper(peer, "t3", "i4", "Guests who ask for warm cake usually take it with cream.")
    await peer.command("planning-pass", turnId="t3", passId="t3/1", state="planned")
    await peer.send(
        "multimodal",
        kind="card",
        name="apple_cake",
        data={"title": "Apple cake", "price": "72 CZK", "contains": "wheat, egg, milk", "nuts": "none"},
        turnId="t3",
    )
    await peer.exit("t3")
    await peer.wait_heard("r3", 1200)

    await hear(peer, "t4", "Then two pieces, with cream.")
    await became(peer, "t4", "i4", "used")
    await peer.words("t4", "r4", "Two coffees and two pieces of apple cake, with cream.")
    await peer.send("token", text="That will be", turnId="t4", responseId="r4")
    await peer.start_speech("t4", "r4")
    await peer.sound(60, pitch=200)


async def whisper(peer: Peer, turn: str, name: str, text: str, kind: str = "SUPPORTING_CONTEXT") -> None:
    told = {"instructionId": name, "passId": f"{turn}/1", "instructionType": kind, "text": text}
    await peer.command("realtime-instruction", turnId=turn, **told)


async def became(peer: Peer, turn: str, name: str, outcome: str) -> None:
    await peer.command(
        "realtime-instruction-outcome", turnId=turn, instructionId=name, outcome=outcome, responseId=f"r{turn[1:]}"
    )


async def hear(peer: Peer, turn: str, text: str, *, after: str = "") -> None:
    """The user says something; `after` is the response he cuts."""
    await peer.transcript(turn, ".", interim=True)
    if after:
        await peer.command("response-end", turnId="t2", responseId=after, status="cancelled")
        await became(peer, "t2", "i3", "superseded")
        await peer.exit("t2")
    await peer.send("partial", text=text.rpartition(" ")[0], turnId=turn)
    await peer.send("emotion", state="userNotSpeaking", scores={}, turnId=turn)
    await trio.sleep(0.14)
    await peer.transcript(turn, text)
    await trio.sleep(0.22)


async def photograph(page: Page, scene: Scene, directory: Path) -> None:
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await trio.Path(directory, f"{scene.name}.png").write_bytes(await page.screenshot())


async def visit(page: Page, scene: Scene, playhouse: Playhouse) -> None:
    await page.imitate(width=scene.width, height=scene.height, dark=scene.dark, mobile=scene.mobile, scale=scene.scale)
    await page.open(playhouse.url)
    await page.wait_for("document.querySelector('#begin:enabled')")


async def take_all(executable: str, directory: Path) -> None:
    with launch_chromium(executable) as address:
        async with open_devtools(address) as devtools, open_playhouse(agents=CAST, perform=play_evening) as playhouse:
            for scene in STARTS:
                async with devtools.open_page() as page:
                    await visit(page, scene, playhouse)
                    await photograph(page, scene, directory)
            for scene in CONVERSATIONS:
                async with devtools.open_page() as page:
                    await visit(page, scene, playhouse)
                    await page.click("#begin")
                    await page.wait_for(
                        "document.querySelectorAll('.turn').length === 4 && souffleur.floor() === 'agent'"
                    )
                    await page.wait_for("souffleur.loudness() > 0.1")
                    await photograph(page, scene, directory)
                    if scene.name in ("desktop-light", "phone"):
                        await page.click("#end")
                        await page.click("#end")
                        await page.wait_for("!document.querySelector('#curtain').hidden")
                        await photograph(page, attrs.evolve(scene, name=f"{scene.name}-ended"), directory)


def main() -> None:
    executable = find_chromium()
    if executable is None or len(sys.argv) != 2:
        sys.exit("usage: python -m tests.browser.screenshots DIRECTORY (with a Chromium installed)")
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    trio.run(take_all, executable, directory)


if __name__ == "__main__":
    main()
