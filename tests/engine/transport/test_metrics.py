"""Who may read the metrics, and that a connection's backlog is in them while it lasts."""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.principal import AccessRole, Credential, CredentialKind, NobodyKnown, Principal, UnauthorizedError
from engine.testing.scripted import ScriptedModel
from engine.testing.stage import ScriptedManager, scripted_services
from tests.engine.transport.stack import Recorder, open_stack


@attrs.define(eq=False)
class FakeMetrics:
    lines: list[Callable[[], tuple[int, float]]] = attrs.field(factory=list[Callable[[], tuple[int, float]]])

    async def exposition(self) -> tuple[bytes, str]:
        await trio.lowlevel.checkpoint()
        return b"up 1\n", "text/plain; version=0.0.4"

    @contextmanager
    def watching_line(self, read: Callable[[], tuple[int, float]]) -> Generator[None]:
        self.lines.append(read)
        yield
        self.lines.remove(read)


class Keys(NobodyKnown):
    async def authenticate(self, headers: Iterable[tuple[str, str]], subprotocols: Iterable[str]) -> Principal | None:
        key = dict(headers).get("x-api-key")
        if key is None:
            return None
        if key not in ("admin", "member"):
            raise UnauthorizedError("This key is not right.")
        credential = Credential(CredentialKind.API_KEY, key)
        return Principal(f"key:{key}", user_id=key, role=AccessRole(key), credential=credential)


LOCAL, AWAY = "127.0.0.1", "203.0.113.7"


@pytest.mark.parametrize(
    ("client", "headers", "status"),
    [
        (LOCAL, {}, 200),
        (LOCAL, {"X-Forwarded-For": AWAY}, 401),
        (LOCAL, {"Forwarded": f"for={AWAY}"}, 401),
        (AWAY, {}, 401),
        (AWAY, {"X-API-Key": "admin"}, 200),
        (AWAY, {"X-API-Key": "member"}, 403),
        (LOCAL, {"X-API-Key": "member"}, 403),
        (LOCAL, {"X-API-Key": "wrong"}, 401),
    ],
)
async def test_who_may_read_them(client: str, headers: dict[str, str], status: int, autojump_clock: MockClock) -> None:
    services = attrs.evolve(
        scripted_services(model=ScriptedModel(), managers=[ScriptedManager()]), authenticator=Keys()
    )
    async with open_stack(Recorder(), services=services, metrics=FakeMetrics(), client=client) as stack:
        answer = await stack.request("/metrics", headers=headers)
        assert answer.status == status
        assert (answer.body == b"up 1\n") == (status == 200)


async def test_a_line_is_watched_as_long_as_it_is_open(autojump_clock: MockClock) -> None:
    metrics = FakeMetrics()
    async with open_stack(Recorder(), metrics=metrics) as stack:
        connection = await stack.connect()
        await connection.send_message('{"type":"text","text":"hello"}')
        await connection.get_message()
        assert [read() for read in metrics.lines] == [(0, 0.0)]
        await connection.aclose()
        await stack.wait_idle()
        assert metrics.lines == []
