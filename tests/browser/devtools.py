"""A real Chromium, driven over its DevTools protocol: as little of it as the tests of the talk page need.

`launch_chromium` starts a browser with a fresh profile, `open_devtools` connects to it, `DevTools.open_page` gives a page in a
browser context of its own (own storage, own cookies), so that one browser serves many tests.
"""

import base64
import json
import queue
import re
import shutil
import subprocess
import tempfile
import threading
import urllib.parse
import urllib.request
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, open_websocket_url

JsonObject = dict[str, Any]

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",  # containers give /dev/shm 64 MB, too little for a screenshot
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--allow-pre-commit-input",  # else a click between two pages is thrown away
    "--remote-debugging-port=0",
)

# A name that leads to this machine and that browsers do not call secure, unlike 127.0.0.1 and localhost.
INSECURE_HOST = "stage.test"

# Seconds a step of a page may take before the test fails: real work takes milliseconds, a shared machine may stall.
PATIENCE = 10.0

KEY_CODES = {
    "Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
    "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip

# A full-page screenshot as base64 in one message.
LARGEST_MESSAGE = 64 * 1024 * 1024


def find_chromium() -> str | None:
    """The path of an installed Chromium or Chrome, None without one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launch_chromium(executable: str, microphone: Path | None = None) -> Generator[str]:
    """A running browser; gives the address of its DevTools socket. `microphone` is the WAV file it hears, once."""
    with tempfile.TemporaryDirectory(prefix="souffleur-chromium-", ignore_cleanup_errors=True) as profile:
        flags = [*FLAGS, f"--user-data-dir={profile}", f"--host-resolver-rules=MAP {INSECURE_HOST} 127.0.0.1"]
        if microphone is not None:
            flags.append(f"--use-file-for-fake-audio-capture={microphone}%noloop")
        with subprocess.Popen(
            [executable, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            try:
                yield _devtools_address(process)
            finally:
                process.terminate()
                try:
                    process.wait(timeout=PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()


def _devtools_address(process: "subprocess.Popen[bytes]") -> str:
    """Waits for the address on the browser's stderr, which a thread goes on reading: a full pipe would stop the browser."""
    address: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(rb"DevTools listening on (ws://\S+)", line):
                address.put(found[1].decode())
        address.put(None)

    threading.Thread(target=read, name="chromium stderr", daemon=True).start()
    found = address.get(timeout=30)
    if found is None:
        raise RuntimeError("the browser ended before it could be driven")
    return found


def create_target(address: str, url: str) -> str:
    """A page that stays open as long as the browser, for what many tests share. Gives its target id."""
    host = urllib.parse.urlsplit(address).netloc
    request = urllib.request.Request(f"http://{host}/json/new?{urllib.parse.quote(url, safe='')}", method="PUT")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        target: str = json.load(answer)["id"]
    return target


class DevToolsError(Exception):
    """The browser refused a command, or a script on the page threw."""


@attrs.define(eq=False)
class DevTools:
    """One connection to a browser. Commands wait for their answers; events go to the pages they belong to."""

    _socket: WebSocketConnection
    _waiting: dict[int, trio.MemorySendChannel[JsonObject]] = attrs.field(
        factory=dict[int, "trio.MemorySendChannel[JsonObject]"]
    )
    _listeners: dict[str, Callable[[str, JsonObject], None]] = attrs.field(
        factory=dict[str, Callable[[str, JsonObject], None]]
    )
    _last_id: int = 0

    async def call(self, method: str, parameters: JsonObject | None = None, session: str = "") -> JsonObject:
        """Raises DevToolsError when the browser refuses."""
        self._last_id += 1
        command_id = self._last_id
        command: JsonObject = {"id": command_id, "method": method, "params": parameters or {}}
        if session:
            command["sessionId"] = session
        send, receive = trio.open_memory_channel[JsonObject](1)
        self._waiting[command_id] = send
        try:
            await self._socket.send_message(json.dumps(command))
            answer = await receive.receive()
        finally:
            del self._waiting[command_id]
        if "error" in answer:
            raise DevToolsError(f"{method}: {answer['error']}")
        result: JsonObject = answer["result"]
        return result

    async def read(self) -> None:
        """Hands out what the browser says, until it hangs up."""
        while True:  # noqa: ASYNC913 - every way round waits, or ends
            try:
                message: JsonObject = json.loads(await self._socket.get_message())
            except ConnectionClosed:
                return
            if "id" in message:
                if (waiting := self._waiting.get(message["id"])) is not None:
                    waiting.send_nowait(message)
            elif (listener := self._listeners.get(message.get("sessionId", ""))) is not None:
                listener(message["method"], message["params"])

    async def attach(self, target: str) -> "Page":
        """An open page, taken in hand."""
        attached = await self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, attached["sessionId"])
        self._listeners[attached["sessionId"]] = page.note
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.call(f"{domain}.enable")
        return page

    @asynccontextmanager
    async def open_page(self, *, width: int = 1280, height: int = 800) -> "AsyncGenerator[Page]":
        """A page in a browser context of its own, closed afterwards."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        try:
            target = await self.call(
                "Target.createTarget",
                {"url": "about:blank", "browserContextId": context, "width": width, "height": height},
            )
            yield await self.attach(target["targetId"])
        finally:
            with trio.move_on_after(PATIENCE, shield=True):
                await self.call("Target.disposeBrowserContext", {"browserContextId": context})


@asynccontextmanager
async def open_devtools(address: str) -> AsyncGenerator[DevTools]:
    async with open_websocket_url(
        address, max_message_size=LARGEST_MESSAGE, message_queue_size=256, receive_buffer_size=None
    ) as socket:
        devtools = DevTools(socket)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(devtools.read, name="devtools reader")
            yield devtools
            nursery.cancel_scope.cancel()


@attrs.define(eq=False)
class Page:
    """One page: looks, clicks, types, and remembers what it complained about and whom it asked."""

    _devtools: DevTools
    _session: str
    complaints: list[str] = attrs.field(factory=list[str])  # console errors and warnings, uncaught exceptions
    requests: list[str] = attrs.field(factory=list[str])  # addresses asked for, sockets included
    patience: float = PATIENCE  # seconds `wait_for` waits

    def note(self, method: str, event: JsonObject) -> None:
        match method:
            case "Network.requestWillBeSent":
                self.requests.append(event["request"]["url"])
            case "Network.webSocketCreated":
                self.requests.append(event["url"])
            case "Runtime.exceptionThrown":
                details = event["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description", details["text"]))
            case "Runtime.consoleAPICalled" if event["type"] in ("error", "warning", "assert"):
                self.complaints.append(" ".join(str(argument.get("value", "")) for argument in event["args"]))
            case "Log.entryAdded" if event["entry"]["level"] in ("error", "warning"):
                entry = event["entry"]
                self.complaints.append(f"{entry['text']} ({entry.get('url', '')})")
            case _:
                pass

    async def call(self, method: str, parameters: JsonObject | None = None) -> JsonObject:
        with trio.fail_after(self.patience + PATIENCE):
            return await self._devtools.call(method, parameters, self._session)

    async def before_loading(self, script: str) -> None:
        """Runs the script in every document before its own scripts."""
        await self.call("Page.addScriptToEvaluateOnNewDocument", {"source": script})

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", {"url": url})
        await self.wait_for(
            f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url.partition('#')[0])})"
        )

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise. Raises DevToolsError when it throws."""
        answer = await self.call(
            "Runtime.evaluate",
            {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": False},
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise DevToolsError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    async def wait_for(self, condition: str) -> Any:
        """The first truthy value of the expression, looked at once per frame of the page."""
        look = (
            "new Promise((resolve) => { const look = async () => { let value = null;"
            f" try {{ value = await ({condition}); }} catch {{ /* not there yet */ }}"
            " if (value) resolve(value); else requestAnimationFrame(look); }; look(); })"
        )
        with trio.move_on_after(self.patience):
            while True:  # noqa: ASYNC913 - every way round waits, or ends
                try:
                    return await self.evaluate(look)
                except DevToolsError as error:
                    if "context was destroyed" not in str(error):
                        raise
                    # Another document has come meanwhile: it is asked next.
        text = await self.evaluate("document.body?.innerText")
        raise AssertionError(f"waited in vain for {condition}; the page says:\n{text}")

    async def text(self, selector: str) -> str:
        """What the first match shows, "" when there is none or it is hidden."""
        seen = "((found) => (found?.checkVisibility() ? found.innerText : ''))"
        return str(await self.evaluate(f"{seen}(document.querySelector({json.dumps(selector)}))"))

    async def click(self, selector: str) -> None:
        """A real click in the middle of the element, once it can be seen and is not disabled."""
        place = await self.wait_for(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            " if (!found?.checkVisibility() || found.disabled) return null;"
            " found.scrollIntoView({block: 'nearest'}); const box = found.getBoundingClientRect();"
            " return {x: box.x + box.width / 2, y: box.y + box.height / 2}; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", {"type": kind, **place, "button": "left", "clickCount": 1})

    async def press(self, key: str, *, shift: bool = False) -> None:
        """One key, by its DOM name: "Tab", "Enter", "Escape", " ", "ArrowDown", or the character it types."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = {" ": "Space"}.get(key, key if len(key) > 1 else "")
        event: JsonObject = {
            "key": key,
            "code": code,
            "windowsVirtualKeyCode": KEY_CODES.get(key, 0),
            "modifiers": 8 * shift,
        }
        await self.call("Input.dispatchKeyEvent", {"type": "keyDown" if text else "rawKeyDown", "text": text, **event})
        await self.call("Input.dispatchKeyEvent", {"type": "keyUp", **event})

    async def mouse_click(self, x: float, y: float) -> None:
        """A click at a place of the window (CSS pixels)."""
        await self.drag((x, y), (x, y))

    async def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """From one place to another, with a stop halfway."""
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        steps = [("mouseMoved", start), ("mousePressed", start)]
        steps += [("mouseMoved", middle), ("mouseMoved", end)] if start != end else []
        for kind, (x, y) in [*steps, ("mouseReleased", end)]:
            button = {"button": "left", "buttons": 1, "clickCount": 1} if kind != "mouseMoved" or len(steps) > 2 else {}
            await self.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **button})

    async def wheel(self, x: float, y: float, down: float) -> None:
        await self.call("Input.dispatchMouseEvent", {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": down})

    async def choose_file(self, selector: str, path: Path) -> None:
        """As if it had been chosen in the window of an input."""
        root = (await self.call("DOM.getDocument"))["root"]["nodeId"]
        node = (await self.call("DOM.querySelector", {"nodeId": root, "selector": selector}))["nodeId"]
        await self.call("DOM.setFileInputFiles", {"nodeId": node, "files": [str(path)]})

    async def type(self, text: str) -> None:
        """Into whatever has the focus."""
        await self.call("Input.insertText", {"text": text})

    async def accessibility_tree(self) -> list[JsonObject]:
        await self.call("Accessibility.enable")  # not before: it makes every change of the page dearer
        nodes: list[JsonObject] = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        return [node for node in nodes if not node.get("ignored")]

    async def imitate(
        self, *, width: int, height: int, dark: bool = False, mobile: bool = False, scale: float = 1
    ) -> None:
        """A window or telephone of that size (CSS pixels), by day or by night, without motion."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile},
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        await self.call("Emulation.setEmulatedMedia", {"features": features})

    async def screenshot(self) -> bytes:
        """What the window shows, as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot", {"format": "png"}))["data"])
