"""API keys: what is given out once, and what is kept."""

import json
import re
from datetime import UTC, datetime

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.identity.api_keys import (
    ApiKeyDocument,
    NewApiKey,
    key_fits,
    key_version,
    new_api_key,
    parse_api_key,
    shown_body,
)
from engine.principal import AccessRole


def kept(new: NewApiKey) -> ApiKeyDocument:
    return ApiKeyDocument.model_validate(json.loads(json.dumps(new.body)))


def test_a_key_is_known_again_from_what_is_kept() -> None:
    expires_at = datetime(2027, 1, 1, tzinfo=UTC)
    new = new_api_key(
        name="till", role=AccessRole.OWNER, projects=frozenset({"b", "a"}), expires_at=expires_at, user="anna"
    )
    document = kept(new)
    assert (document.name, document.role, document.projects) == ("till", AccessRole.OWNER, ("a", "b"))
    assert (document.expires_at, document.user) == (expires_at, "anna")
    key = parse_api_key(new.text)
    assert key is not None
    assert key.id == new.id
    assert key_fits(key, document)


def test_nothing_that_is_kept_or_shown_is_the_key() -> None:
    new = new_api_key()
    secret = new.text.rpartition(f"{new.id}_")[2]
    assert secret not in json.dumps(new.body)
    assert secret not in repr(new)
    assert secret not in repr(parse_api_key(new.text))
    digest = new.body["secretSha256"]
    assert digest not in repr(new)
    assert digest not in repr(kept(new))
    assert shown_body(new.body) == {"name": "", "role": "member", "projects": None, "expiresAt": None, "user": ""}


def test_a_key_goes_through_headers_subprotocols_and_urls() -> None:
    for _ in range(100):
        assert re.fullmatch(r"sf_[0-9a-f]{16}_[A-Za-z0-9_-]{43}", new_api_key().text)


def test_no_two_keys_are_the_same() -> None:
    keys = [new_api_key() for _ in range(100)]
    assert len({key.id for key in keys}) == len({key.text for key in keys}) == 100


def test_no_other_key_fits() -> None:
    new, other = new_api_key(), new_api_key()
    key, document = parse_api_key(new.text), kept(new)
    assert key is not None
    assert not key_fits(key, kept(other))
    assert not key_fits(key, None)
    assert not key_fits(attrs.evolve(key, secret=key.secret[:-1] + ("A" if key.secret[-1] != "A" else "B")), document)


@pytest.mark.parametrize(
    "text", ["", "sf_", "sf_1_2", "sf_" + "0" * 16 + "_" + "A" * 42, "sf_" + "0" * 16 + "_" + "A" * 44, "x"]
)
def test_what_has_not_the_form_of_a_key(text: str) -> None:
    assert parse_api_key(text) is None


@given(st.text(max_size=80), st.booleans())
def test_any_text_is_a_key_or_none(text: str, begins: bool) -> None:
    key = parse_api_key(f"sf_{text}" if begins else text)
    assert key is None or len(key.secret) == 43


def test_the_version_is_of_what_the_key_can_do() -> None:
    document = kept(new_api_key(projects=frozenset({"a"})))
    version = key_version(document)
    for same in ({"name": "another"}, {"expires_at": datetime(2027, 1, 1, tzinfo=UTC)}):
        assert key_version(document.model_copy(update=same)) == version
    for other in (
        {"role": AccessRole.ADMIN},
        {"projects": None},
        {"projects": ()},
        {"user": "anna"},
        {"projects": ("a", "b")},
        {"secret_sha256": "1" * 64},
    ):
        assert key_version(document.model_copy(update=other)) != version


def test_an_expiry_has_a_zone() -> None:
    with pytest.raises(ValueError, match="timezone"):
        new_api_key(expires_at=datetime(2027, 1, 1))


@pytest.mark.parametrize("change", [{"secretSha256": "x"}, {"role": "root"}, {"scope": "all"}, {"projects": "a"}])
def test_a_body_that_cannot_be_read_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ApiKeyDocument.model_validate(new_api_key().body | change)
