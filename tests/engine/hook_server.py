"""A receiver of webhook calls on a real loopback socket, and names that lead to it."""

import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import AddressFamily, SocketKind
from typing import Literal

import attrs
import h11
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Found = (
    tuple[Literal[AddressFamily.AF_INET], SocketKind, int, str, tuple[str, int]]
    | tuple[Literal[AddressFamily.AF_INET6], SocketKind, int, str, tuple[str, int, int, int] | tuple[int, bytes]]
)
"""An address as a resolver gives it."""


@attrs.frozen
class Reply:
    """An answer. `seconds` pass before it."""

    status: int = 204
    body: bytes = b""
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    seconds: float = 0.0
    breaks: bool = False
    """The connection is closed in the middle of the body."""


@attrs.frozen
class Received:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@attrs.define(eq=False)
class HookServer:
    """Answers each call with the next reply, the last one again and again."""

    port: int
    replies: Sequence[Reply]
    received: list[Received] = attrs.field(factory=list[Received], init=False)
    connections: int = attrs.field(default=0, init=False)

    async def serve(self, stream: trio.abc.Stream) -> None:
        self.connections += 1
        connection = h11.Connection(h11.SERVER)
        try:
            while await self._answer_one(connection, stream):
                connection.start_next_cycle()
        except (trio.BrokenResourceError, h11.RemoteProtocolError):
            pass  # a client that does not trust this server, or has had enough
        await trio.aclose_forcefully(stream)

    async def _answer_one(self, connection: h11.Connection, stream: trio.abc.Stream) -> bool:
        request: h11.Request | None = None
        body = bytearray()
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some()))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return False
        assert request is not None
        headers = {name.decode(): value.decode() for name, value in request.headers}
        self.received.append(Received(request.method.decode(), request.target.decode(), headers, bytes(body)))
        reply = self.replies[min(len(self.received), len(self.replies)) - 1]
        await trio.sleep(reply.seconds)
        length = len(reply.body) + (1 if reply.breaks else 0)
        answer = h11.Response(
            status_code=reply.status, headers=[*reply.headers.items(), ("Content-Length", str(length))]
        )
        await stream.send_all((connection.send(answer) or b"") + (connection.send(h11.Data(data=reply.body)) or b""))
        if reply.breaks:
            return False
        await stream.send_all(connection.send(h11.EndOfMessage()) or b"")
        return True


@asynccontextmanager
async def open_hook_server(*replies: Reply, tls: ssl.SSLContext | None = None) -> AsyncGenerator[HookServer]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port: int = listeners[0].socket.getsockname()[1]
    server = HookServer(port, replies or (Reply(),))

    async def serve(stream: trio.SocketStream) -> None:
        await server.serve(trio.SSLStream(stream, tls, server_side=True, https_compatible=True) if tls else stream)

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, serve, listeners)
        yield server
        nursery.cancel_scope.cancel(reason="the test is over")


@attrs.define(eq=False)
class Names(trio.abc.HostnameResolver):
    """The addresses of names. A list of lists is worked through, one for each time the name is looked up."""

    addresses: Mapping[str, Sequence[Sequence[str]]]
    asked: list[str] = attrs.field(factory=list[str], init=False)

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002 - the interface's names
        proto: int = 0,
        flags: int = 0,
    ) -> list[Found]:
        await trio.lowlevel.checkpoint()
        assert host is not None
        assert isinstance(port, int)
        name = host.decode()
        answers = self.addresses.get(name)
        if answers is None:
            raise OSError(f"{name} is not known")
        answer = answers[min(self.asked.count(name), len(answers) - 1)]
        self.asked.append(name)
        return [(AddressFamily.AF_INET, SocketKind.SOCK_STREAM, 6, "", (address, port)) for address in answer]

    async def getnameinfo(self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int) -> tuple[str, str]:
        raise NotImplementedError


def make_certificate(directory: Path, *names: str) -> Callable[[], ssl.SSLContext]:
    """Writes `ca.pem`, which signs itself, and gives what a server with a certificate of these names needs."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (directory / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )

    def context() -> ssl.SSLContext:
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.load_cert_chain(directory / "ca.pem", directory / "key.pem")
        return made

    return context
