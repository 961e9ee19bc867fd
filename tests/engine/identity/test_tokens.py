"""The rules of tokens."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from engine.identity.tokens import (
    TokenHeader,
    TokenRules,
    check_claims,
    read_claims,
    read_header,
    token_owner,
)
from engine.principal import AccessRole, UnauthorizedError
from tests.engine.identity.support import NOW, SECRET, claims, ec_key, encoded, public, rsa_key, token

KEY = SECRET.encode()
RULES = TokenRules()
HOUR = 3600.0


def at(seconds: float) -> float:
    return NOW.timestamp() + seconds


def test_a_header_names_algorithm_and_key() -> None:
    assert read_header(token()) == TokenHeader("HS256", None)
    assert read_header(token(ec_key(), "ES256", "k1")) == TokenHeader("ES256", "k1")


def unsigned(header: object, payload: object = None) -> str:
    return f"{encoded(header)}.{encoded(payload or claims())}."


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "NONE", "nOnE", "HS384", "HS512", "PS256", "EdDSA", "", 1, None, ["HS256"], {}]
)
def test_no_other_algorithm_is_taken(algorithm: object) -> None:
    with pytest.raises(UnauthorizedError, match=r"algorithm is not accepted|malformed"):
        read_header(unsigned({"typ": "JWT", "alg": algorithm}))


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a.b",
        "a.b.c",
        "....",
        unsigned([]),
        unsigned("x"),
        unsigned({"alg": "HS256"})[1:],
        f"{encoded(b'[' * 5000)}.e30.",
        f"{encoded(b'9' * 5000)}.e30.",
        f"{encoded(b'{' + bytes(1))}.e30.",
        "eyJ" * 2000,
    ],
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(UnauthorizedError, match=r"malformed|not accepted"):
        read_header(text)


@pytest.mark.parametrize("critical", [["b64"], ["exp"], [], "b64"])
def test_what_is_critical_is_refused(critical: object) -> None:
    with pytest.raises(UnauthorizedError, match=r"extension|malformed"):
        read_header(unsigned({"alg": "HS256", "crit": critical}))


def test_a_signature_that_is_right() -> None:
    assert read_claims(token(), "HS256", KEY) == claims()


def test_a_signature_that_is_wrong() -> None:
    good = token()
    header, payload, signature = good.split(".")
    swapped = encoded({**claims(), "sub": "admin"})
    bad = [
        f"{header}.{swapped}.{signature}",
        f"{header}.{payload}.{encoded(bytes(32))}",
        f"{header}.{payload}.",
        token("another-secret-of-at-least-thirty-two-characters"),
    ]
    for text in bad:
        with pytest.raises(UnauthorizedError, match="signature is wrong"):
            read_claims(text, "HS256", KEY)


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_no_byte_of_a_token_can_be_changed(position: int, change: int) -> None:
    text = bytearray(token().encode())
    text[position % len(text)] = (text[position % len(text)] + change) % 128
    changed = text.decode()
    if changed == token():
        return
    with pytest.raises(UnauthorizedError):
        read_claims(changed, read_header(changed).algorithm, KEY)


def test_a_public_key_is_no_shared_secret() -> None:
    """Algorithm confusion: the header says HS256, and the secret is the public key everybody can read."""
    pem = (
        rsa_key().public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    signed = f"{encoded({'alg': 'HS256', 'typ': 'JWT'})}.{encoded(claims())}"
    forged = f"{signed}.{encoded(hmac.digest(pem, signed.encode(), hashlib.sha256))}"
    assert read_header(forged).algorithm == "HS256"
    with pytest.raises(UnauthorizedError):
        read_claims(forged, "HS256", KEY)
    with pytest.raises(UnauthorizedError):  # and for the public key only its own algorithm is tried
        read_claims(forged, "RS256", jwt.PyJWK(public(rsa_key()), "RS256"))


def test_a_key_in_the_token_is_not_looked_at() -> None:
    forged = jwt.encode(claims(), ec_key(1), "ES256", headers={"jwk": public(ec_key(1))})
    with pytest.raises(UnauthorizedError, match="signature is wrong"):
        read_claims(forged, "ES256", jwt.PyJWK(public(ec_key()), "ES256"))


@pytest.mark.parametrize("payload", [b"", b"[]", b'"x"', b"null", b"{", b"[" * 3000, b"\xff"])
def test_what_is_signed_has_to_be_claims(payload: bytes) -> None:
    signed = f"{encoded({'alg': 'HS256'})}.{encoded(payload)}"
    text = f"{signed}.{encoded(hmac.digest(KEY, signed.encode(), hashlib.sha256))}"
    with pytest.raises(UnauthorizedError, match="malformed"):
        read_claims(text, "HS256", KEY)


# --- claims


def test_what_a_token_says_of_its_user() -> None:
    held = check_claims(claims(name="Anna B.", email="anna@example.com", jti="t1", nbf=at(-5)), RULES, NOW)
    assert (held.subject, held.name, held.email, held.id) == ("anna", "Anna B.", "anna@example.com", "t1")
    assert (held.issued_at, held.expires_at) == (NOW, NOW + timedelta(hours=1))
    assert held.role is AccessRole.MEMBER


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": None}, r"no expiry \(exp\)"),
        ({"exp": "soon"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": float("nan")}, "exp is not a time"),
        ({"exp": float("inf")}, "exp is not a time"),
        ({"exp": 10**400}, "exp is not a time"),
        ({"exp": at(HOUR) * 1000}, "exp is not a time"),  # in ms: one would hold for 50 000 years
        ({"exp": -1}, "exp is not a time"),
        ({"exp": [1]}, "exp is not a time"),
        ({"exp": at(-30)}, "has expired"),
        ({"nbf": at(30.001)}, "not valid yet"),
        ({"nbf": "x"}, "nbf is not a time"),
        ({"iat": at(30.001)}, "issued in the future"),
        ({"iat": {}}, "iat is not a time"),
        ({"sub": None}, r"no subject \(sub\)"),
        ({"sub": ""}, r"no subject \(sub\)"),
        ({"sub": 17}, r"no subject \(sub\)"),
        ({"sub": "a" * 257}, "reasonable length"),
        ({"sub": "anna\n"}, "reasonable length"),
    ],
)
def test_claims_that_do_not_hold(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnauthorizedError, match=reason):
        check_claims(claims(**changes), RULES, NOW)


@pytest.mark.parametrize("changes", [{"exp": at(-29.999)}, {"nbf": at(30)}, {"iat": at(30)}, {"iat": None}])
def test_clocks_may_be_30_s_apart(changes: dict[str, Any]) -> None:
    check_claims(claims(**changes), RULES, NOW)


def test_without_leeway_a_token_holds_until_its_second() -> None:
    exact = TokenRules(leeway=timedelta())
    check_claims(claims(exp=at(1)), exact, NOW)
    with pytest.raises(UnauthorizedError, match="expired"):
        check_claims(claims(exp=at(1)), exact, NOW + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("audience", "holds"),
    [
        ("me", True),
        (["you", "me"], True),
        ("you", False),
        ([], False),
        (None, False),
        ({"me": 1}, False),
        ([["me"]], False),
    ],
)
def test_the_audience(audience: object, holds: bool) -> None:
    rules = TokenRules(audience="me")
    if holds:
        check_claims(claims(aud=audience), rules, NOW)
    else:
        with pytest.raises(UnauthorizedError, match="another audience"):
            check_claims(claims(aud=audience), rules, NOW)
    check_claims(claims(aud=audience), RULES, NOW)  # nobody asked


@pytest.mark.parametrize(
    "issuer", [None, "https://id.example.org/", "https://id.example.com", ["https://id.example.com/"]]
)
def test_the_issuer(issuer: object) -> None:
    rules = TokenRules(issuer="https://id.example.com/")
    check_claims(claims(iss="https://id.example.com/"), rules, NOW)
    with pytest.raises(UnauthorizedError, match="another issuer"):
        check_claims(claims(iss=issuer), rules, NOW)


@pytest.mark.parametrize("token_id", [None, "", 7, "x" * 257])
def test_a_token_that_holds_once_needs_an_id(token_id: object) -> None:
    with pytest.raises(UnauthorizedError, match=r"no id \(jti\)"):
        check_claims(claims(jti=token_id), TokenRules(single_use=True), NOW)
    assert check_claims(claims(jti=token_id), RULES, NOW).id in ("", token_id)


@pytest.mark.parametrize(
    ("value", "role"),
    [
        ("admin", AccessRole.ADMIN),
        ("owner", AccessRole.OWNER),
        (["member", "admin", "owner"], AccessRole.ADMIN),
        (["billing", "owner"], AccessRole.OWNER),
        ("Admin", AccessRole.MEMBER),
        ("root", AccessRole.MEMBER),
        ({"admin": True}, AccessRole.MEMBER),
        ([["admin"]], AccessRole.MEMBER),
        (None, AccessRole.MEMBER),
    ],
)
def test_roles_are_believed_only_from_the_claim_that_was_named(value: object, role: AccessRole) -> None:
    said = claims(roles=value, role="admin", admin=True)
    assert check_claims(said, TokenRules(role_claim="roles"), NOW).role is role
    assert check_claims(said, RULES, NOW).role is AccessRole.MEMBER


@pytest.mark.parametrize("value", [7, None, ["Anna"], "line\nbreak"])
def test_a_name_that_cannot_be_shown_is_left_out(value: object) -> None:
    assert check_claims(claims(name=value, email=value), RULES, NOW).name == ""
    assert len(check_claims(claims(name="x" * 999), RULES, NOW).name) == 256


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from(["sub", "exp", "nbf", "iat", "aud", "iss", "jti", "name", "email", "roles"]), JSON)
)
def test_any_claims_hold_or_are_refused(changes: dict[str, Any]) -> None:
    rules = TokenRules(audience="me", issuer="us", role_claim="roles", single_use=True)
    for said in (changes, {**claims(aud="me", iss="us", jti="t"), **changes}):
        try:
            assert check_claims(said, rules, NOW).subject
        except UnauthorizedError:
            continue


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_no_two_users_have_the_same_owner(issuer: str, subject: str, other_issuer: str, other: str) -> None:
    same = (issuer, subject) == (other_issuer, other)
    assert (token_owner(issuer, subject) == token_owner(other_issuer, other)) == same


def test_owners_as_they_are_stored() -> None:
    assert token_owner("", "anna") == "token::anna"
    assert token_owner("https://id.example.com/", "a:b") == "token:https%3A%2F%2Fid.example.com%2F:a:b"


def test_padding_is_no_second_spelling() -> None:
    """A replayed token must not look like another one. Its id is inside what is signed, so its spelling does not matter."""
    header, payload, signature = token().split(".")
    assert base64.urlsafe_b64decode(signature + "=")
    assert read_claims(f"{header}.{payload}.{signature}=", "HS256", KEY) == claims()


def test_times_are_aware() -> None:
    assert check_claims(claims(exp=at(0.5)), RULES, NOW).expires_at == datetime(
        2026, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC
    )
