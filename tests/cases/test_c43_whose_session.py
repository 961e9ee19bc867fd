"""C43: knowing an id is enough. What of it is decided by the identities and the store, before any server is asked."""

import logging
from datetime import timedelta

import pytest
from trio.testing import MockClock

from engine.errors import NotFoundError
from engine.identity.api_keys import new_api_key
from engine.identity.permissions import may_read_session
from engine.principal import Principal, ProjectAccess, UnauthorizedError
from engine.store.documents import Resource, ResourceKind, SessionDocument
from tests.engine.identity.support import NOW, SECRET, Identities, basic, open_identities, token

PROJECT = ProjectAccess("demo", is_public=True, members=frozenset({"u1", "u2"}))


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", SECRET)


async def two_users(identities: Identities) -> tuple[Principal, Principal]:
    """U1 and U2, with valid credentials of the same project."""
    authenticate = identities.authenticator.authenticate_value
    return await authenticate(f"Bearer {token(sub='u1')}"), await authenticate(f"Bearer {token(sub='u2')}")


def session(owner: str) -> SessionDocument:
    return SessionDocument(id="s1", owner=owner, project_ref="demo", created_at=NOW, updated_at=NOW)


async def test_a_another_user_neither_opens_nor_reads_it(autojump_clock: MockClock) -> None:
    async with open_identities(jwt_secret="env:MY_SECRET") as identities:
        first, second = await two_users(identities)
        opened = await identities.store.open_session(session(first.owner))
        with pytest.raises(NotFoundError) as of_another:
            await identities.store.open_session(session(second.owner))
        with pytest.raises(NotFoundError) as unread:
            may_read_session(second, opened, PROJECT)
        with pytest.raises(NotFoundError) as of_nobody:
            may_read_session(second, None)
        assert of_another.value.message == unread.value.message == of_nobody.value.message
        assert await identities.store.get_session("s1") == opened  # U1 is undisturbed
        assert may_read_session(first, opened) is opened


@pytest.mark.parametrize("made_up", ["token::u1", "user:u1", "u1"])
async def test_a_nobody_passes_for_another_kind_of_owner(made_up: str, autojump_clock: MockClock) -> None:
    """Neither by a device's, a user's or a key's name, nor by a subject that looks like somebody else's owner."""
    async with open_identities(jwt_secret="env:MY_SECRET") as identities:
        first, _ = await two_users(identities)
        identities.users.add(made_up.replace(":", "."), "tea")
        new = new_api_key(name=made_up)
        await identities.store.put_resource(
            Resource(kind=ResourceKind.API_KEY, id=new.id, body=new.body, created_at=NOW, updated_at=NOW), expected=0
        )
        others = [
            Principal(f"device:{made_up}"),
            Principal(f"speaker:{made_up}"),
            await identities.authenticator.authenticate_value(f"Bearer {token(sub=f':{made_up}')}"),
            await identities.authenticator.authenticate_value(f"Bearer {new.text}"),
        ]
        await identities.store.open_session(session(first.owner))
        for other in others:
            with pytest.raises(NotFoundError):
                await identities.store.open_session(session(other.owner))


async def test_b_other_credentials_do_not_move_the_owner(autojump_clock: MockClock) -> None:
    async with open_identities(jwt_secret="env:MY_SECRET") as identities:
        first, second = await two_users(identities)
        opened = await identities.store.open_session(session(first.owner))
        replaced = opened.model_copy(update={"owner": second.owner, "user_id": second.user_id})
        await identities.store.save_session(replaced)
        stored = await identities.store.get_session("s1")
        assert stored is not None
        assert stored.owner == first.owner


async def test_d_expired_when_it_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_identities(jwt_secret="env:MY_SECRET") as identities:
        expired = token(exp=NOW.timestamp() - 60)
        new = new_api_key(expires_at=NOW - timedelta(minutes=1))
        await identities.store.put_resource(
            Resource(kind=ResourceKind.API_KEY, id=new.id, body=new.body, created_at=NOW, updated_at=NOW), expected=0
        )
        for text, reason in ((expired, "The token has expired."), (new.text, "The API key has expired.")):
            with pytest.raises(UnauthorizedError) as caught:
                await identities.authenticator.authenticate([("authorization", f"Bearer {text}")], [])
            assert caught.value.message == reason
            assert text not in caplog.text
            assert text.rpartition("_")[2] not in caplog.text


async def test_d_expired_while_the_session_runs() -> None:
    """What was let in may finish; what was taken back may not."""
    async with open_identities(jwt_secret="env:MY_SECRET") as identities:
        credentials = [
            principal.credential
            for principal in (
                await identities.authenticator.authenticate_value(f"Bearer {token()}"),
                await identities.authenticator.authenticate_value(basic("anna", "tea")),
            )
            if principal.credential
        ]
        identities.clock.advance(48 * 3600)
        assert await identities.authenticator.revoked(credentials) == []
        identities.users.change("anna", is_disabled=True)
        assert await identities.authenticator.revoked(credentials) == credentials
