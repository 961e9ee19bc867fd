"""A server that plays its part by itself: it greets, and answers what is typed or said.

It recognizes nothing: loud frames are speech, half a second of quiet ends an utterance, and what was said is made up. Its answers
leave at once and whole, as a quick provider's do; what is not heard yet when the user cuts in is the page's to silence. The
black-box tests of the page run against it, as they can against a real server.
"""

from typing import Any

import attrs
import numpy as np
import trio

from tests.browser.page_server import Peer

GREETING = "Good evening. What may I bring you?"
HEARD = "two coffees please"
ANSWER_SECONDS = 1.0

LOUD = 800  # of 32768: the peak that makes a frame speech
FRAMES_TO_START = 3  # 60 ms
FRAMES_TO_END = 25  # 500 ms


async def perform(peer: Peer) -> None:
    """Plays one connection until the page leaves or ends the session."""
    await peer.announce_ready()
    performer = Performer(peer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(performer.listen, name="performer ears")
        await performer.read()
        nursery.cancel_scope.cancel()
    await peer.command("session-end", sessionId="s1", state="CLOSED", reason="the client ended the session")


@attrs.define(eq=False)
class Performer:
    _peer: Peer
    _turns: int = 0
    _loud: int = 0
    _quiet: int = 0
    _speaking: str = ""  # the turn in which the user speaks
    _lines: trio.Lock = attrs.field(factory=trio.Lock)  # a turn is said whole before the next one begins

    async def read(self) -> None:
        """Obeys messages until `#exit`."""
        while (message := await self._peer.next_message()) != {"type": "token", "text": "#exit"}:
            async with self._lines:
                await self._obey(message)

    async def listen(self) -> None:
        """Follows the microphone."""
        heard = 0
        while True:
            await self._peer.wait_audio(heard + 1)
            for frame in self._peer.audio[heard:]:
                heard += 1
                async with self._lines:
                    await self._hear(frame)

    async def _obey(self, message: dict[str, Any]) -> None:
        turn = self._new_turn()
        match message:
            case {"type": "action", "name": "intro"}:
                await self._peer.transcript(turn, "#intro", synthetic=True, provider="Client")
                await self._answer(turn, GREETING)
            case {"type": "text", "text": text}:
                await self._peer.transcript(turn, ".", interim=True, synthetic=True, provider="Client")
                await self._peer.transcript(turn, text, provider="Client")
                await self._answer(turn, f"You wrote {text}.")
            case _:
                await self._peer.error("unknown_type")

    async def _hear(self, frame: bytes) -> None:
        loud = int(np.abs(np.frombuffer(frame, "<i2").astype(int)).max(initial=0)) > LOUD
        self._loud = self._loud + 1 if loud else 0
        self._quiet = 0 if loud else self._quiet + 1
        if not self._speaking and self._loud == FRAMES_TO_START:
            self._speaking = self._new_turn()
            await self._peer.transcript(self._speaking, ".", interim=True)
            await self._peer.send("partial", text=HEARD.split()[0], turnId=self._speaking)
        elif self._speaking and self._quiet == FRAMES_TO_END:
            turn, self._speaking = self._speaking, ""
            await self._peer.send("emotion", state="userNotSpeaking", scores={}, turnId=turn)
            await self._peer.transcript(turn, HEARD)
            await self._answer(turn, f"You said {HEARD}.")

    def _new_turn(self) -> str:
        self._turns += 1
        return f"t{self._turns}"

    async def _answer(self, turn: str, text: str) -> None:
        await self._peer.say(turn, f"r-{turn}", text, ANSWER_SECONDS)
        await self._peer.exit(turn)
