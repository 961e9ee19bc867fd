"""Who somebody is: everything together, over a real store."""

import logging
from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr
from trio.testing import MockClock

from engine.config import Settings
from engine.errors import ConfigurationError, ErrorCode, RemoteError
from engine.identity.admin_key import AdminKey, open_admin_key
from engine.identity.api_keys import new_api_key
from engine.identity.authenticator import ADMIN_KEY_SECONDS, IdentityAuthenticator, make_authenticator
from engine.identity.passwords import PasswordChecker
from engine.identity.tokens import TokenRules
from engine.principal import AccessRole, Credential, CredentialKind, Principal, UnauthorizedError, UserAccount
from engine.store.contract import Store
from engine.store.documents import Resource, ResourceKind
from engine.store.memory import MemoryStore
from tests.engine.identity.support import (
    ADMIN_KEY,
    NOW,
    SECRET,
    Clock,
    Identities,
    Users,
    basic,
    ec_key,
    encoded,
    jwks,
    open_identities,
    public,
    rsa_key,
    token,
)

HOUR = 3600.0


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", SECRET)


def admin_key() -> AdminKey:
    return open_admin_key(None, Settings(admin_key=SecretStr(ADMIN_KEY)))


async def keep_key(store: Store, **fields: Any) -> tuple[str, str]:
    """A new API key in the store: its id and its text."""
    new = new_api_key(**fields)
    await keep_body(store, new.id, new.body)
    return new.id, new.text


async def keep_body(store: Store, key_id: str, body: dict[str, Any]) -> None:
    resource = Resource(kind=ResourceKind.API_KEY, id=key_id, body=body, created_at=NOW, updated_at=NOW)
    await store.put_resource(resource, expected=None)


async def who(identities: Identities, *headers: tuple[str, str], offered: Sequence[str] = ()) -> Principal:
    principal = await identities.authenticator.authenticate(headers, offered)
    assert principal is not None
    return principal


async def bearer(identities: Identities, text: str) -> Principal:
    return await who(identities, ("authorization", f"Bearer {text}"))


# --- tokens


async def test_without_credentials_nobody_is_known(autojump_clock: MockClock) -> None:
    async with open_identities(jwt_secret="env:MY_SECRET") as identities:
        assert await identities.authenticator.authenticate([("host", "x")], ["chat"]) is None


async def test_a_token_says_who_somebody_is(autojump_clock: MockClock) -> None:
    async with open_identities(jwt_secret="env:MY_SECRET") as identities:
        text = token(sub="u1", name="Anna B.", email="a@example.com", jti="t1", role="admin")
        expected = Principal(
            owner="token::u1",
            user_id="u1",
            name="Anna B.",
            email="a@example.com",
            role=AccessRole.MEMBER,
            credential=Credential(CredentialKind.TOKEN, "t1", "u1", NOW, NOW + timedelta(hours=1)),
        )
        assert await bearer(identities, text) == expected
        assert await who(identities, offered=["chat", f"souffleur.auth.{text}"]) == expected
        assert await identities.authenticator.authenticate_value(f"Bearer {text}") == expected


async def test_tokens_of_an_issuer(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(jwks(public(rsa_key(), kid="r"), public(ec_key(), kid="e")))
    async with open_identities(
        jwt_keys=str(keys), jwt_issuer="https://id.example.com", jwt_audience="souffleur", jwt_role_claim="roles"
    ) as identities:
        said: dict[str, Any] = {"iss": "https://id.example.com", "aud": ["souffleur"], "roles": ["owner"]}
        for key, algorithm, kid in ((rsa_key(), "RS256", "r"), (ec_key(), "ES256", "e")):
            principal = await bearer(identities, token(key, algorithm, kid, **said))
            assert principal.owner == "token:https%3A%2F%2Fid.example.com:anna"
            assert principal.role is AccessRole.OWNER
        refused = {
            "another audience": token(ec_key(), "ES256", "e", **said | {"aud": "others"}),
            "another issuer": token(ec_key(), "ES256", "e", **said | {"iss": "https://evil.example.com"}),
            "key that is not known": token(SECRET, **said),
            "signature is wrong": token(ec_key(1), "ES256", "e", **said),
            "has expired": token(ec_key(), "ES256", "e", **said, exp=NOW.timestamp() - HOUR),
            "not valid yet": token(ec_key(), "ES256", "e", **said, nbf=NOW.timestamp() + HOUR),
            "algorithm is not accepted": f"{encoded({'alg': 'none'})}.{encoded(said)}.",
        }
        for reason, text in refused.items():
            with pytest.raises(UnauthorizedError, match=reason):
                await bearer(identities, text)
        with pytest.raises(UnauthorizedError, match="key that is not known"):
            await bearer(identities, token(ec_key(1), "ES256", "unknown", **said))


async def test_where_nothing_is_set_no_token_is_taken(autojump_clock: MockClock) -> None:
    async with open_identities() as identities:
        for text in (token(), token(ec_key(), "ES256")):
            with pytest.raises(UnauthorizedError, match="Tokens are not taken here"):
                await bearer(identities, text)


async def test_a_token_holds_until_its_end(autojump_clock: MockClock) -> None:
    async with open_identities(jwt_secret="env:MY_SECRET", jwt_leeway_seconds=0) as identities:
        text = token()
        identities.clock.advance(HOUR - 0.001)
        await bearer(identities, text)
        identities.clock.advance(0.001)
        with pytest.raises(UnauthorizedError, match=r"^The token has expired\.$"):
            await bearer(identities, text)


async def test_a_token_holds_once(autojump_clock: MockClock) -> None:
    async with open_identities(jwt_secret="env:MY_SECRET", jwt_single_use=True) as identities:
        with pytest.raises(UnauthorizedError, match="no id"):
            await bearer(identities, token())
        identities.users.add("anna", is_disabled=True)
        with pytest.raises(UnauthorizedError, match="disabled"):
            await bearer(identities, token(jti="t1"))
        identities.users.add("anna")
        assert (await bearer(identities, token(jti="t1"))).user_id == "anna"  # what was refused has not been used
        with pytest.raises(UnauthorizedError, match="used before"):
            await bearer(identities, token(jti="t1"))
        await bearer(identities, token(jti="t2"))
        async with open_identities(  # another process
            store=identities.store, jwt_secret="env:MY_SECRET", jwt_single_use=True
        ) as others:
            with pytest.raises(UnauthorizedError, match="used before"):
                await bearer(others, token(jti="t2"))


async def test_tokens_bring_their_users(autojump_clock: MockClock) -> None:
    async with open_identities(jwt_secret="env:MY_SECRET") as identities:
        assert (await bearer(identities, token(sub="nobody-wrote-down"))).user_id == "nobody-wrote-down"


async def test_an_account_takes_from_a_token_and_adds_nothing(autojump_clock: MockClock) -> None:
    async with open_identities(jwt_secret="env:MY_SECRET") as identities:
        identities.users.add("boss", "tea", role=AccessRole.ADMIN, email="boss@example.com")
        principal = await bearer(identities, token(sub="boss"))
        assert (principal.role, principal.email) == (AccessRole.MEMBER, "")
        identities.users.change("boss", tokens_valid_from=NOW)
        await bearer(identities, token(sub="boss"))
        identities.users.change("boss", tokens_valid_from=NOW + timedelta(seconds=1))
        for text in (token(sub="boss"), token(sub="boss", iat=None)):
            with pytest.raises(UnauthorizedError, match="signed out everywhere"):
                await bearer(identities, text)
        identities.users.change("boss", tokens_valid_from=None, is_disabled=True)
        with pytest.raises(UnauthorizedError, match="disabled"):
            await bearer(identities, token(sub="boss"))


async def test_the_same_name_from_elsewhere_is_somebody_else(autojump_clock: MockClock) -> None:
    """Who may resume a session is told by its owner."""
    owners: list[str] = []
    for issuer in ("", "https://a.example.com", "https://b.example.com"):
        async with open_identities(jwt_secret="env:MY_SECRET", jwt_issuer=issuer) as identities:
            owners.append((await bearer(identities, token(iss=issuer))).owner)
    async with open_identities() as identities:
        _, text = await keep_key(identities.store)
        owners.append((await bearer(identities, text)).owner)
    owners += ["user:anna", "device:anna", "speaker:anna"]
    assert len(set(owners)) == 7


# --- passwords


async def test_a_password_says_who_somebody_is() -> None:
    async with open_identities() as identities:
        identities.users.add("Žofie", "č:aj", role=AccessRole.OWNER)
        principal = await who(identities, ("authorization", basic("Žofie", "č:aj")))
        assert (principal.owner, principal.user_id, principal.name) == ("user:Žofie", "Žofie", "Žofie")
        assert principal.role is AccessRole.OWNER
        assert principal.credential is not None
        assert (principal.credential.kind, principal.credential.subject) == (CredentialKind.PASSWORD, "Žofie")
        assert (await identities.authenticator.authenticate_value(basic("anna", "tea"))).email == "anna@example.com"


@attrs.define(eq=False)
class RecordingChecker(PasswordChecker):
    """Tells which hashes were checked."""

    hashes: list[str] = attrs.field(factory=list[str])

    async def fits(self, password: str, password_hash: str) -> bool:
        self.hashes.append(password_hash)
        return await super().fits(password, password_hash)


async def test_who_does_not_exist_costs_and_hears_the_same(caplog: pytest.LogCaptureFixture) -> None:
    users, checker = Users(), RecordingChecker()
    users.add("anna", "tea")
    users.add("off", "tea", is_disabled=True)
    users.add("tokens-only")
    users.accounts["damaged"] = UserAccount("damaged", password_hash="$argon2id$v=19$m=4194304,t=3,p=4$AAAA$AAAA")
    authenticator = IdentityAuthenticator(users, MemoryStore(), None, Clock(), TokenRules(), None, checker)
    messages: set[str] = set()
    for name in ("anna", "off", "tokens-only", "damaged", "nobody"):
        with pytest.raises(UnauthorizedError) as caught:
            await authenticator.authenticate_value(basic(name, "coffee" if name == "anna" else "tea"))
        messages.add(caught.value.message)
    assert messages == {"The user name or the password is wrong."}
    assert [bool(each) for each in checker.hashes] == [True, True, False, False, False]
    assert "'damaged'" in caplog.text


# --- API keys


async def test_an_api_key_comes_every_way(autojump_clock: MockClock) -> None:
    async with open_identities(jwt_secret="env:MY_SECRET") as identities:
        key_id, text = await keep_key(identities.store, name="till", projects=frozenset({"demo"}))
        by_header = await who(identities, ("x-api-key", text))
        assert (by_header.owner, by_header.user_id, by_header.name) == (f"key:{key_id}", f"key:{key_id}", "till")
        assert (by_header.role, by_header.projects) == (AccessRole.MEMBER, frozenset({"demo"}))
        assert by_header == await bearer(identities, text)
        assert by_header == await who(identities, offered=[f"souffleur.auth.{text}"])
        assert by_header == await who(identities, ("x-api-key", text), offered=[f"souffleur.auth.{text}"])
        assert by_header == await identities.authenticator.authenticate_value(f"Bearer {text}")


async def test_an_api_key_that_does_not_hold(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with open_identities() as identities:
        key_id, text = await keep_key(identities.store)
        _, other = await keep_key(identities.store)
        damaged_id, damaged = await keep_key(identities.store)
        await keep_body(identities.store, damaged_id, {"secretSha256": "hunter2"})
        unknown = new_api_key().text
        mixed = text[:20] + other[20:]
        for wrong in (text[:-1], text + "A", mixed, unknown, damaged, "sf_", token()):
            with pytest.raises(UnauthorizedError, match=r"^The API key is not valid\.$"):
                await who(identities, ("x-api-key", wrong))
        assert "damaged in the store" in caplog.text
        assert "hunter2" not in caplog.text
        await who(identities, ("x-api-key", text))
        await identities.store.delete_resource(ResourceKind.API_KEY, key_id, expected=None)
        with pytest.raises(UnauthorizedError, match="not valid"):
            await who(identities, ("x-api-key", text))


async def test_an_api_key_has_an_end(autojump_clock: MockClock) -> None:
    async with open_identities() as identities:
        _, text = await keep_key(identities.store, expires_at=NOW + timedelta(hours=1))
        await who(identities, ("x-api-key", text))
        identities.clock.advance(HOUR)
        with pytest.raises(UnauthorizedError, match=r"^The API key has expired\.$"):
            await who(identities, ("x-api-key", text))


@pytest.mark.parametrize(
    ("key_role", "user_role", "role"),
    [
        (AccessRole.ADMIN, AccessRole.MEMBER, AccessRole.MEMBER),
        (AccessRole.ADMIN, AccessRole.OWNER, AccessRole.OWNER),
        (AccessRole.ADMIN, AccessRole.ADMIN, AccessRole.ADMIN),
        (AccessRole.MEMBER, AccessRole.ADMIN, AccessRole.MEMBER),
    ],
)
async def test_an_api_key_can_do_no_more_than_its_user(
    key_role: AccessRole, user_role: AccessRole, role: AccessRole, autojump_clock: MockClock
) -> None:
    async with open_identities() as identities:
        identities.users.add("olga", role=user_role, email="o@example.com")
        _, text = await keep_key(identities.store, user="olga", role=key_role)
        principal = await who(identities, ("x-api-key", text))
        assert (principal.owner, principal.user_id, principal.name) == ("user:olga", "olga", "olga")
        assert (principal.role, principal.email) == (role, "o@example.com")
        identities.users.change("olga", is_disabled=True)
        with pytest.raises(UnauthorizedError, match="unknown or disabled"):
            await who(identities, ("x-api-key", text))
        del identities.users.accounts["olga"]
        with pytest.raises(UnauthorizedError, match="unknown or disabled"):
            await who(identities, ("x-api-key", text))


# --- the admin key


async def test_the_admin_key_comes_every_way(autojump_clock: MockClock) -> None:
    async with open_identities(admin_key=admin_key(), jwt_secret="env:MY_SECRET") as identities:
        for principal in (
            await who(identities, ("x-api-key", ADMIN_KEY)),
            await bearer(identities, ADMIN_KEY),
            await who(identities, offered=[f"souffleur.auth.{ADMIN_KEY}"]),
        ):
            assert principal.is_admin
            assert (principal.owner, principal.user_id) == ("admin:key", "admin:key")
        for wrong in (ADMIN_KEY[:-1], ADMIN_KEY + "x", ADMIN_KEY.upper()):
            with pytest.raises(UnauthorizedError, match="API key is not valid"):
                await who(identities, ("x-api-key", wrong))
            with pytest.raises(UnauthorizedError, match="malformed"):
                await bearer(identities, wrong)


async def test_without_an_admin_key_nobody_is_an_admin_by_key(autojump_clock: MockClock) -> None:
    async with open_identities() as identities:
        with pytest.raises(UnauthorizedError, match="not valid"):
            await who(identities, ("x-api-key", ADMIN_KEY))


async def test_a_replaced_admin_key_is_known_without_a_new_start(tmp_path: Path, mock_clock: MockClock) -> None:
    path = tmp_path / "admin.key"
    key = open_admin_key(path, Settings())
    async with open_identities(admin_key=key) as identities:
        principal = await who(identities, ("x-api-key", path.read_text().strip()))
        assert principal.credential is not None
        credentials = [principal.credential]
        assert await identities.authenticator.revoked(credentials) == []
        path.write_text("another-key-of-the-operator\n")
        mock_clock.jump(ADMIN_KEY_SECONDS)
        assert await identities.authenticator.revoked(credentials) == credentials
        assert (await who(identities, ("x-api-key", "another-key-of-the-operator"))).is_admin


# --- several, none that can be checked, and settings


async def test_different_credentials_on_one_request_are_refused(autojump_clock: MockClock) -> None:
    async with open_identities(admin_key=admin_key(), jwt_secret="env:MY_SECRET") as identities:
        for headers, offered in (
            ([("authorization", f"Bearer {token()}"), ("x-api-key", ADMIN_KEY)], []),
            ([("authorization", basic("anna", "tea"))], [f"souffleur.auth.{token()}"]),
            ([("authorization", f"Bearer {token()}"), ("authorization", f"Bearer {token(sub='otto')}")], []),
        ):
            with pytest.raises(UnauthorizedError, match="several credentials"):
                await who(identities, *headers, offered=offered)


async def test_what_cannot_be_checked_now_is_not_called_wrong(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with open_identities(
        store=store, admin_key=admin_key(), jwt_secret="env:MY_SECRET", jwt_single_use=True
    ) as identities:
        _, text = await keep_key(store)
        store.close()
        identities.users.is_down = True
        for value in (f"Bearer {text}", f"Bearer {token(jti='t')}", basic("anna", "tea")):
            with pytest.raises(RemoteError, match="cannot be checked now") as caught:
                await identities.authenticator.authenticate_value(value)
            assert caught.value.code is ErrorCode.TOO_BUSY
        identities.users.is_down = False
        with pytest.raises(RemoteError, match="cannot be checked now"):  # whether it was used before
            await identities.authenticator.authenticate_value(f"Bearer {token(jti='t')}")
        assert (await bearer(identities, ADMIN_KEY)).is_admin  # needs neither


@pytest.mark.parametrize(
    ("settings_", "reason"),
    [
        ({"jwt_secret": "env:NOT_SET"}, "SOUFFLEUR_JWT_SECRET: set the environment variable NOT_SET"),
        ({"jwt_secret": "hunter2-pasted-by-mistake-into-the-setting"}, 'SOUFFLEUR_JWT_SECRET: write "env:NAME"'),
        ({"jwt_secret": "env:SHORT"}, "at least 32 characters"),
        ({"jwt_secret": "env:PUBLIC"}, "is a public key"),
        ({"jwt_keys": "http://id.example.com/jwks"}, "https URL or a file"),
        ({"jwt_keys": "nowhere.json"}, "cannot be read"),
    ],
)
async def test_settings_that_cannot_be_used_are_told(
    settings_: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHORT", "hunter2")
    monkeypatch.setenv("PUBLIC", "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDhunter2hunter2hunter2")
    with pytest.raises(ConfigurationError, match=reason) as caught:
        async with open_identities(**settings_):
            raise AssertionError("they were taken")
    assert "hunter2" not in str(caught.value)


async def test_no_secret_is_no_tokens(autojump_clock: MockClock) -> None:
    async with open_identities(jwt_secret="none") as identities:
        with pytest.raises(UnauthorizedError, match="not taken here"):
            await bearer(identities, token())


async def test_an_issuer_without_an_audience_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(public(ec_key())))
    async with open_identities(jwt_keys=str(path), jwt_audience="me"):
        assert caplog.text == ""
    async with open_identities(jwt_keys=str(path)):
        assert "SOUFFLEUR_JWT_AUDIENCE is not set" in caplog.text


# --- revocation


async def held(identities: Identities, value: str) -> Credential:
    credential = (await identities.authenticator.authenticate_value(value)).credential
    assert credential is not None
    return credential


async def test_what_holds_is_not_revoked() -> None:
    async with open_identities(admin_key=admin_key(), jwt_secret="env:MY_SECRET") as identities:
        _, text = await keep_key(identities.store, user="anna", expires_at=NOW + timedelta(minutes=1))
        _, other = await keep_key(identities.store)
        values = [
            basic("anna", "tea"),
            *(f"Bearer {each}" for each in (text, other, ADMIN_KEY, token(), token(sub="otto"))),
        ]
        credentials = [await held(identities, value) for value in values]
        assert await identities.authenticator.revoked(credentials) == []
        assert await identities.authenticator.revoked([]) == []
        identities.clock.advance(24 * HOUR)  # expiry is not revocation
        assert await identities.authenticator.revoked(credentials) == []


CHANGES: dict[str, dict[str, Any]] = {
    "disabled": {"is_disabled": True},
    "signed out": {"tokens_valid_from": NOW + timedelta(seconds=1)},
    "another password": {"password_hash": "$argon2id$v=19$m=8,t=1,p=1$" + "A" * 22 + "$" + "A" * 43},
    "no password": {"password_hash": ""},
    "signed out before": {"tokens_valid_from": NOW},
    "promoted": {"role": AccessRole.ADMIN, "email": "x@example.com"},
}
# password, token, API key of the user, token of another
REVOKED = {
    "disabled": (True, True, True, False),
    "signed out": (False, True, False, False),
    "another password": (True, False, False, False),
    "no password": (True, False, False, False),
    "signed out before": (False, False, False, False),
    "promoted": (False, False, False, False),
    "deleted": (True, False, True, False),
}


@pytest.mark.parametrize("change", REVOKED)
async def test_what_a_change_of_a_user_revokes(change: str) -> None:
    async with open_identities(jwt_secret="env:MY_SECRET") as identities:
        _, text = await keep_key(identities.store, user="anna")
        values = [basic("anna", "tea"), f"Bearer {token()}", f"Bearer {text}", f"Bearer {token(sub='otto')}"]
        credentials = [await held(identities, value) for value in values]
        if change == "deleted":
            del identities.users.accounts["anna"]
        else:
            identities.users.change("anna", **CHANGES[change])
        revoked = await identities.authenticator.revoked(credentials)
        assert tuple(each in revoked for each in credentials) == REVOKED[change]


@pytest.mark.parametrize(
    ("change", "is_revoked"),
    [
        ({"name": "another"}, False),
        ({"role": "member"}, True),
        ({"projects": ["a"]}, True),
        ({"projects": None}, True),
        ({"user": "anna"}, True),
        ({"secretSha256": "0" * 64}, True),
        ({"secretSha256": "damaged"}, True),
        ({"expiresAt": "2026-03-01T11:59:00Z"}, True),
        ({"expiresAt": "2026-03-01T12:01:00Z"}, False),
        ({"expiresAt": None}, False),
        (None, True),
    ],
)
async def test_what_a_change_of_an_api_key_revokes(
    change: dict[str, Any] | None, is_revoked: bool, autojump_clock: MockClock
) -> None:
    async with open_identities() as identities:
        new = new_api_key(role=AccessRole.OWNER, projects=frozenset({"a", "b"}), expires_at=NOW + timedelta(minutes=10))
        await keep_body(identities.store, new.id, new.body)
        credential = await held(identities, f"Bearer {new.text}")
        if change is None:
            await identities.store.delete_resource(ResourceKind.API_KEY, new.id, expected=None)
        else:
            await keep_body(identities.store, new.id, new.body | change)
        assert (await identities.authenticator.revoked([credential]) == [credential]) == is_revoked


@attrs.define(eq=False)
class CountingStore(MemoryStore):
    """Tells how often it was asked for API keys."""

    def __attrs_post_init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    async def get_resource(self, kind: ResourceKind, resource_id: str) -> Resource | None:
        self.batches.append(1)
        return await super().get_resource(kind, resource_id)

    async def get_resources(self, kind: ResourceKind, resource_ids: Collection[str]) -> list[Resource]:
        self.batches.append(len(resource_ids))
        return await super().get_resources(kind, resource_ids)


async def test_many_are_asked_for_together(autojump_clock: MockClock) -> None:
    store = CountingStore()
    async with open_identities(store=store, jwt_secret="env:MY_SECRET") as identities:
        keys = [await keep_key(store) for _ in range(50)]
        values = [f"Bearer {text}" for _, text in keys] + [f"Bearer {token(jti=str(number))}" for number in range(50)]
        credentials = [await held(identities, value) for value in values] * 2
        for key_id, _ in keys[:10]:
            await store.delete_resource(ResourceKind.API_KEY, key_id, expected=None)
        store.batches.clear()
        identities.users.asked.clear()
        revoked = await identities.authenticator.revoked(credentials)
        assert revoked == credentials[:10] * 2
        assert store.batches == [50]
        assert identities.users.asked == ["anna"]


async def test_what_cannot_be_found_out_is_not_revoked(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    async with open_identities(store=store, admin_key=admin_key(), jwt_secret="env:MY_SECRET") as identities:
        _, text = await keep_key(store, user="anna")
        values = [basic("anna", "tea"), *(f"Bearer {each}" for each in (text, token(), ADMIN_KEY))]
        credentials = [await held(identities, value) for value in values]
        store.close()
        assert await identities.authenticator.revoked(credentials) == []
        identities.users.change("anna", is_disabled=True)
        assert await identities.authenticator.revoked(credentials) == credentials[:3]
        identities.users.is_down = True
        assert await identities.authenticator.revoked(credentials) == []
    assert caplog.text.count("cannot be found out now") == 4


async def test_without_its_admin_key_nobody_is_left(autojump_clock: MockClock) -> None:
    async with open_identities(admin_key=admin_key()) as identities:
        credential = await held(identities, f"Bearer {ADMIN_KEY}")
    async with open_identities() as identities:
        assert await identities.authenticator.revoked([credential]) == [credential]


# --- secrecy, and whatever comes


async def test_no_secret_is_in_a_log_an_error_or_a_repr(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Every path there is, with the log at its most talkative."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(public(ec_key(), kid="k1")))
    said: list[str] = []
    async with open_identities(
        admin_key=admin_key(), jwt_secret="env:MY_SECRET", jwt_keys=str(path), jwt_audience="me"
    ) as identities:
        _, key = await keep_key(identities.store)
        good, signed = token(aud="me"), token(ec_key(), "ES256", "k1", aud="me")
        expired, foreign = token(aud="me", exp=1), token("hunter2-hunter2-hunter2-hunter2-hunter2")
        tokens = [
            good,
            signed,
            expired,
            foreign,
            token(),
            token(ec_key(1), "ES256", "k1"),
            token(ec_key(1), "ES256", "k9"),
        ]
        secrets_ = [SECRET, ADMIN_KEY, key, "hunter2", "hunter2-wrong", *tokens, *(each[-40:] for each in tokens)]
        values = [f"Bearer {each}" for each in (*tokens, key, key[:-1] + "x", new_api_key().text, ADMIN_KEY, "hunter2")]
        values += [
            basic("anna", "tea"),
            basic("anna", "hunter2-wrong"),
            basic("hunter2", "x"),
            "Basic hunter2",
            "hunter2",
        ]
        values += [f"Bearer {good} {good}", f"Bearer {good}\n", f"bearer{good}"]
        secrets_ += [each.partition(" ")[2] for each in values if each.startswith("Basic ")]
        for value in values:
            for headers in ([("authorization", value)], [("x-api-key", value.partition(" ")[2])]):
                try:
                    said.append(repr(await identities.authenticator.authenticate(headers, [])))
                except UnauthorizedError as error:
                    said += [str(error), repr(error), error.message]
            with_both = [("authorization", value), ("x-api-key", "hunter2")]
            with pytest.raises(UnauthorizedError) as caught:
                await who(identities, *with_both)
            said.append(str(caught.value))
        said += [repr(identities), repr(identities.authenticator)]
    said.append(caplog.text)
    everything = "\n".join(said)
    assert len(said) > 100
    for secret in secrets_:
        if len(secret) > 1:
            assert secret not in everything


@given(
    st.binary(max_size=80), st.sampled_from(["authorization", "x-api-key"]), st.sampled_from(["", "Bearer ", "Basic "])
)
@settings(deadline=None)
async def test_any_header_gives_somebody_or_is_refused(data: bytes, name: str, scheme: str) -> None:
    users = Users()
    users.add("anna", "tea")
    authenticator = IdentityAuthenticator(users, MemoryStore(), admin_key(), Clock(), TokenRules(SECRET.encode()), None)
    try:
        principal = await authenticator.authenticate([(name, scheme + data.decode("latin-1"))], [])
    except UnauthorizedError:
        return
    assert principal is not None


@attrs.frozen
class OneUser:
    """Everybody is that user, whose password is cheap to check."""

    account: UserAccount

    async def user(self, name: str) -> UserAccount:
        return self.account


ALPHABET = st.characters(codec="utf-8")


@given(
    st.one_of(
        st.builds(basic, st.text(ALPHABET, max_size=8), st.text(ALPHABET, max_size=8)),
        st.builds(
            lambda *parts: "Bearer " + ".".join(encoded(part) for part in parts),
            st.dictionaries(
                st.sampled_from(["alg", "kid", "crit", "b64", "typ"]),
                st.sampled_from(["HS256", "none", 1, None, False, ["b64"]]),
            ),
            st.dictionaries(st.text(max_size=4), st.integers(), max_size=3),
            st.binary(max_size=40),
        ),
        st.builds("Bearer sf_{}_{}".format, st.text("0123456789abcdef", max_size=17), st.text(max_size=44)),
        st.text(),
    )
)
@settings(deadline=None)
async def test_anything_of_the_right_form_gives_somebody_or_is_refused(value: str) -> None:
    users = Users()
    users.add("anna", "tea")
    one = OneUser(users.accounts["anna"])
    authenticator = IdentityAuthenticator(one, MemoryStore(), admin_key(), Clock(), TokenRules(SECRET.encode()), None)
    try:
        principal = await authenticator.authenticate_value(value)
    except UnauthorizedError:
        return
    assert principal.owner == "user:anna"


async def test_it_is_made_over_narrow_parts(autojump_clock: MockClock) -> None:
    """A catalog and a store are asked for no more than what it names."""
    async with make_authenticator(Settings(), Users(), MemoryStore(), None, Clock()) as authenticator:
        assert await authenticator.authenticate([], []) is None
