"""Reading a JWKS."""

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from engine.identity.keys import MAX_KEYS, KeySet, parse_keys
from engine.identity.tokens import TokenHeader, read_claims
from tests.engine.identity.support import claims, ec_key, jwks, public, rsa_key, token


def test_keys_are_found_by_algorithm_and_id() -> None:
    keys = parse_keys(jwks(public(rsa_key(), kid="k1"), public(ec_key(), kid="k1"), public(ec_key(1), kid="k2")))
    for key, algorithm, kid in ((rsa_key(), "RS256", "k1"), (ec_key(), "ES256", "k1"), (ec_key(1), "ES256", "k2")):
        found = keys.find(TokenHeader(algorithm, kid))
        assert found is not None
        assert read_claims(token(key, algorithm, kid), algorithm, found) == claims()
    assert keys.find(TokenHeader("RS256", "k2")) is None
    assert keys.find(TokenHeader("ES256", "k3")) is None


def test_a_token_that_names_no_key_is_given_the_only_one() -> None:
    one = parse_keys(jwks(public(rsa_key(), kid="k1"), public(ec_key())))
    assert one.find(TokenHeader("RS256", None)) is not None
    assert one.find(TokenHeader("ES256", None)) is not None
    two = parse_keys(jwks(public(ec_key(), kid="k1"), public(ec_key(1), kid="k2")))
    assert two.find(TokenHeader("ES256", None)) is None
    assert two.find(TokenHeader("RS256", None)) is None
    assert KeySet().find(TokenHeader("RS256", None)) is None


USELESS: dict[str, object] = {
    "a shared secret": {"kty": "oct", "k": "c2VjcmV0", "kid": "k1", "alg": "HS256"},
    "for encryption": public(rsa_key(), use="enc"),
    "for another algorithm": public(rsa_key(), alg="PS256"),
    "for HS256": public(rsa_key(), alg="HS256"),
    "not for verifying": public(rsa_key(), key_ops=["encrypt"]),
    "too small": public(rsa_key(bits=1024)),
    "of another curve": ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key(), as_dict=True),
    "of a type nobody knows": {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"},
    "without parts": {"kty": "RSA"},
    "with half its parts": {"kty": "EC", "crv": "P-256", "x": "AAAA"},
    "with parts that are no numbers": public(rsa_key()) | {"n": "!!", "e": 7},
    "not on the curve": public(ec_key()) | {"x": public(ec_key(1))["x"]},
    "no object": "k1",
    "nothing": None,
}


@pytest.mark.parametrize("useless", USELESS)
def test_what_cannot_sign_tokens_is_left_out(useless: str) -> None:
    with pytest.raises(ValueError, match="none of its keys"):
        parse_keys(jwks(USELESS[useless]))
    assert len(parse_keys(jwks(USELESS[useless], public(ec_key()))).keys) == 1


def test_a_private_part_is_not_kept() -> None:
    for private in (RSAAlgorithm.to_jwk(rsa_key(), as_dict=True), ECAlgorithm.to_jwk(ec_key(), as_dict=True)):
        assert "d" in private
        (kept,) = parse_keys(jwks(private | {"key_ops": ["sign", "verify"]})).keys
        assert not hasattr(kept.key.key, "private_numbers")
        assert repr(kept).count("=") == 2


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b"7", b'{"keys": {}}', b'{"keys": []}', b"<html>", b"\xff"])
def test_what_is_no_jwks(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"no JWKS|none of its keys|unexpected|JSON|UTF-8|char"):
        parse_keys(document)


def test_a_set_has_a_bounded_number_of_keys() -> None:
    many = [public(ec_key(), kid=str(number)) for number in range(2 * MAX_KEYS)]
    assert len(parse_keys(jwks(*many)).keys) == MAX_KEYS


@given(
    st.dictionaries(
        st.sampled_from(["kty", "n", "e", "crv", "x", "y", "alg", "use", "kid", "key_ops"]),
        st.none()
        | st.integers()
        | st.sampled_from(["RSA", "EC", "P-256", "AQAB", "", "sig"])
        | st.text()
        | st.lists(st.text(), max_size=2),
    )
)
def test_any_entry_is_a_key_or_none(entry: dict[str, object]) -> None:
    keys = parse_keys(jwks(entry, public(ec_key(), kid="good"))).keys
    assert isinstance(keys[-1].key, jwt.PyJWK)
    assert keys[-1].id == "good"
