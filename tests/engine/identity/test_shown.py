"""What a request shows of its sender."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.identity.shown import MAX_CHARACTERS, Password, Token, parse_authorization, shown_by
from engine.principal import UnauthorizedError
from tests.engine.identity.support import basic

TOKEN_CHARACTERS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40)


def offer(value: str) -> str:
    return "souffleur.auth.base64url." + base64.urlsafe_b64encode(value.encode()).decode().rstrip("=")


def test_nothing_is_shown() -> None:
    assert shown_by([("host", "example.com"), ("x-device-ref", "d")], ["chat", "souffleur.v1"]) is None


@pytest.mark.parametrize("value", ["Bearer abc.def.ghi", "bearer  abc.def.ghi ", "BEARER abc.def.ghi"])
def test_a_bearer_token(value: str) -> None:
    assert shown_by([("authorization", value)], []) == Token("abc.def.ghi")


@pytest.mark.parametrize(
    ("name", "password"),
    [("anna", "tea"), ("anna", "a:b::c"), ("anna", ""), ("Žofie", "čaj ☕"), ("anna", " two words ")],
)
def test_basic_credentials(name: str, password: str) -> None:
    assert shown_by([("authorization", basic(name, password))], []) == Password(name, password)


def test_padding_may_be_left_out() -> None:
    value = basic("anna", "tea")
    assert value.endswith("=")
    assert parse_authorization(value.rstrip("=")) == Password("anna", "tea")


@pytest.mark.parametrize(
    ("headers", "subprotocols", "is_key"),
    [
        ([("x-api-key", "k1")], [], True),
        ([("authorization", "Bearer sf_1_2")], [], True),
        ([], ["souffleur.auth.sf_1_2"], True),
        ([("authorization", "Bearer eyJ.e.s")], [], False),
    ],
)
def test_keys_are_known_by_their_header_or_their_beginning(
    headers: list[tuple[str, str]], subprotocols: list[str], is_key: bool
) -> None:
    token = shown_by(headers, subprotocols)
    assert isinstance(token, Token)
    assert token.is_key == is_key


def test_browsers_offer_a_subprotocol() -> None:
    assert shown_by([], ["chat", "souffleur.auth.abc.def.ghi"]) == Token("abc.def.ghi")
    assert shown_by([], [offer("Bearer a/key=with+signs")]) == Token("a/key=with+signs")
    assert shown_by([], [offer(basic("Žofie", "čaj"))]) == Password("Žofie", "čaj")


def test_the_same_may_come_several_ways() -> None:
    headers = [("authorization", "Bearer sf_1_2"), ("x-api-key", "sf_1_2"), ("authorization", "bearer sf_1_2")]
    assert shown_by(headers, ["souffleur.auth.sf_1_2"]) == Token("sf_1_2")


@pytest.mark.parametrize(
    ("headers", "subprotocols"),
    [
        ([("authorization", "Bearer a"), ("x-api-key", "b")], []),
        ([("authorization", "Bearer a"), ("authorization", "Bearer b")], []),
        ([("authorization", basic("anna", "tea"))], ["souffleur.auth.tea"]),
        ([], ["souffleur.auth.a", "souffleur.auth.b"]),
    ],
)
def test_different_ones_are_refused(headers: list[tuple[str, str]], subprotocols: list[str]) -> None:
    with pytest.raises(UnauthorizedError, match=r"several credentials that differ"):
        shown_by(headers, subprotocols)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", 'written as "Bearer TOKEN"'),
        ("hunter2", 'written as "Bearer TOKEN"'),
        ("Digest hunter2", 'written as "Bearer TOKEN"'),
        ("Bearer", "is empty"),
        ("Bearer  ", "is empty"),
        ("Bearer hunter2 hunter2", "one word of plain characters"),
        ("Bearer hunter2\x00", "one word of plain characters"),
        ("Bearer hunter2\xe9", "one word of plain characters"),
        ("Bearer hunter2\ud800", "one word of plain characters"),
        ("Basic hunter2!", "not base64 of UTF-8"),
        ("Basic hunter2\xe9", "not base64 of UTF-8"),
        ("Basic " + base64.b64encode(b"hunter2:\xff").decode(), "not base64 of UTF-8"),
        ("Basic " + base64.b64encode(b"hunter2").decode(), "no user name and colon"),
        (basic("", "hunter2"), "no user name and colon"),
        (basic("anna", "hunter2\n"), "control characters"),
        (basic("anna", "hunter2\x85"), "control characters"),
        (basic("hunter2" * 40, "x"), "too long"),
        (basic("anna", "hunter2" * 200), "too long"),
        ("Bearer " + "hunter2" * MAX_CHARACTERS, f"at most {MAX_CHARACTERS} characters"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(value: str, reason: str) -> None:
    with pytest.raises(UnauthorizedError, match=reason) as caught:
        shown_by([("authorization", value)], [])
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("headers", "subprotocols", "reason"),
    [
        ([("x-api-key", "")], [], "X-API-Key header is empty"),
        ([("x-api-key", "hunter2 ok")], [], "one word of plain characters"),
        ([("x-api-key", "k" * (MAX_CHARACTERS + 1))], [], "more than 8192"),
        ([], ["souffleur.auth."], "subprotocol's token is empty"),
        ([], ["souffleur.auth.base64url.hunter2/"], "not base64url"),
        ([], ["souffleur.auth.base64url." + "k" * MAX_CHARACTERS], "at most 8192"),
        ([], [offer("hunter2")], 'written as "Bearer TOKEN"'),
    ],
)
def test_keys_and_subprotocols_that_cannot_be_read(
    headers: list[tuple[str, str]], subprotocols: list[str], reason: str
) -> None:
    with pytest.raises(UnauthorizedError, match=reason) as caught:
        shown_by(headers, subprotocols)
    assert "hunter2" not in str(caught.value)


def test_nothing_of_it_is_in_a_repr() -> None:
    shown = [parse_authorization("Bearer hunter2"), parse_authorization(basic("anna", "hunter2"))]
    assert [repr(each) for each in shown] == ["Token(is_key=False)", "Password()"]


@given(st.binary(max_size=60), st.sampled_from(["", "Bearer ", "Basic ", "basic ", "\tBearer\t"]))
def test_any_header_is_read_or_refused(data: bytes, scheme: str) -> None:
    value = scheme + data.decode("latin-1")
    for headers in ([("authorization", value)], [("x-api-key", value)]):
        try:
            assert shown_by(headers, []) is not None
        except UnauthorizedError:
            continue


@given(st.text(max_size=60), st.sampled_from(["", "base64url."]))
def test_any_subprotocol_is_read_or_refused(text: str, encoding: str) -> None:
    try:
        assert shown_by([], [f"souffleur.auth.{encoding}{text}"]) is not None
    except UnauthorizedError:
        return


@given(TOKEN_CHARACTERS)
def test_every_token_comes_through_encoded(text: str) -> None:
    assert shown_by([], [offer(f"Bearer {text}")]) == Token(text)


@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40).filter(
        lambda name: ":" not in name
    ),
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40),
)
def test_every_name_and_password_comes_through(name: str, password: str) -> None:
    assert parse_authorization(basic(name, password)) == Password(name, password)
