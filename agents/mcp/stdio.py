"""A server that is a process of ours, spoken to over its standard input and output.

The SDK's own transport would gather a line without an end for ever, and copies what it has at each piece of it; it waits in a loop
of short sleeps; and it leaves the standard error where ours goes.
"""

import logging
import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import attrs
import mcp_types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from agents.mcp.limits import MAX_MESSAGE_BYTES, ServerGoneError

KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "USER")
"""What a server gets to know of our environment, where the operator's secrets are."""
MAX_NONSENSE = 100
"""Lines that are no messages, which some servers print; one that goes on is talking to somebody else."""
MAX_ERROR_LINES = 200
"""Of its standard error, that are logged; the rest is read and dropped."""
MAX_ERROR_CHARACTERS = 300
"""Of one of these lines."""
LAST_WORDS = 3
"""Lines of it that are told with its end."""
LAST_WORDS_SECONDS = 0.5
"""How long they are waited for: they come another way than its end."""
EXIT_SECONDS = 1.0
"""What a server has to end by itself when nobody speaks to it any more."""
TERMINATE_SECONDS = 1.0
"""And then, when it is asked to."""
KILL_SECONDS = 1.0
"""What the system has to take it away."""
END_SECONDS = EXIT_SECONDS + TERMINATE_SECONDS + KILL_SECONDS + 1.0
PIECE = 1 << 16

logger = logging.getLogger(__name__)

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def open_stdio(
    command: Sequence[str], name: str, directory: Path | None
) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    """Start a server, in a session of processes of its own, and end it with all that it has started.

    Raises:
        OSError: it cannot be started.
        ServerGoneError: (in a group) it has ended, or says what it must not.
    """
    environment = {key: value for key in KEPT_VARIABLES if (value := os.environ.get(key)) is not None}
    process = await trio.lowlevel.open_process(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=directory,
        start_new_session=True,
    )
    server = _Server(name, process)
    try:  # nothing is waited for between its start and here
        async with trio.open_nursery() as nursery:
            to_us, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            outgoing, from_us = anyio.create_memory_object_stream[SessionMessage](0)
            with incoming, outgoing:
                nursery.start_soon(server.read, to_us, name=f"MCP server {name}: reading")
                nursery.start_soon(server.write, from_us, name=f"MCP server {name}: writing")
                nursery.start_soon(server.log_errors, name=f"MCP server {name}: errors")
                yield incoming, outgoing
            nursery.cancel_scope.cancel(reason="nobody speaks to it any more")
    finally:
        with trio.move_on_after(END_SECONDS, shield=True):
            await server.end()


@attrs.define(eq=False)
class _Server:
    name: str
    process: trio.Process
    _has_said_all: trio.Event = attrs.field(factory=trio.Event)
    _last_words: deque[str] = attrs.field(factory=lambda: deque[str](maxlen=LAST_WORDS))

    async def read(self, messages: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Raises ServerGoneError, sooner or later."""
        assert self.process.stdout is not None
        line = bytearray()
        nonsense = 0
        with messages:
            while piece := await self.process.stdout.receive_some(PIECE):
                *complete, rest = bytes(piece).split(b"\n")
                for end in complete:
                    line += end
                    message = _parse(line)
                    if message is not None:
                        await messages.send(message)
                    elif line.strip():
                        nonsense += 1
                        if nonsense > MAX_NONSENSE:
                            raise ServerGoneError("it prints what are no messages")
                    line.clear()
                line += rest
                if len(line) > MAX_MESSAGE_BYTES:
                    raise ServerGoneError(f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB")
            with trio.move_on_after(LAST_WORDS_SECONDS):
                await self._has_said_all.wait()
            raise ServerGoneError("it has ended" + self._said())

    async def write(self, messages: MemoryObjectReceiveStream[SessionMessage]) -> None:
        assert self.process.stdin is not None
        with messages:
            async for message in messages:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await self.process.stdin.send_all(text.encode() + b"\n")
                except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                    raise ServerGoneError("it does not listen any more" + self._said()) from exc

    async def log_errors(self) -> None:
        """Its standard error. What is said there may be what was said in a conversation, so it is for who debugs."""
        assert self.process.stderr is not None
        line, lines = "", 0
        while piece := await self.process.stderr.receive_some(PIECE):
            *complete, rest = (line + piece.decode("utf-8", "replace")).split("\n")
            line = rest[:MAX_ERROR_CHARACTERS]
            for text in filter(None, (each.strip()[:MAX_ERROR_CHARACTERS] for each in complete)):
                self._last_words.append(text)
                lines += 1
                if lines <= MAX_ERROR_LINES:
                    logger.debug("MCP server %s: %s", self.name, text)
        if line:
            self._last_words.append(line)
        self._has_said_all.set()

    async def end(self) -> None:
        """It may end by itself, is asked to, is killed: and whatever it has started with it."""
        process = self.process
        assert process.stdin is not None
        await trio.aclose_forcefully(process.stdin)
        with trio.move_on_after(EXIT_SECONDS):
            await process.wait()
        if process.returncode is None:
            self._signal(signal.SIGTERM)
            with trio.move_on_after(TERMINATE_SECONDS):
                await process.wait()
        self._signal(signal.SIGKILL)
        with trio.move_on_after(KILL_SECONDS) as limit:
            await process.wait()
        if limit.cancelled_caught:
            logger.error("MCP server %s could not be killed", self.name)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                await trio.aclose_forcefully(stream)

    def _signal(self, number: signal.Signals) -> None:
        """To all of its session: its own id is theirs, and stays taken while one of them lives."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _said(self) -> str:
        return "".join(f"; {words}" for words in self._last_words)


def _parse(line: bytearray) -> SessionMessage | None:
    """None for what is no message."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(bytes(line), by_name=False))
    except ValueError:
        return None
