"""Who is let in, as what, and how the others are turned away."""

import orjson
import pytest

from providers.openai.simulation.admission import Admitted, Handshake, admit, body_of, headers_of
from providers.openai.simulator import Refusal

KEY = {"authorization": "Bearer sk-1"}
GA = "/openai/v1/realtime?model=mine"
PREVIEW = "/openai/realtime?api-version=2025-04-01-preview&deployment=mine"


def outcome(
    target: str, headers: dict[str, str] | None = None, *protocols: str, keys: list[str] | None = None
) -> Admitted | Refusal:
    return admit(Handshake(target, KEY if headers is None else headers, protocols), keys, None)


@pytest.mark.parametrize(
    ("target", "headers", "expected"),
    [
        ("/v1/realtime?model=gpt-realtime", KEY, Admitted("realtime", "gpt-realtime", azure=False)),
        ("/v1/realtime?intent=transcription", KEY, Admitted("transcription", "", azure=False)),
        (GA, KEY, Admitted("realtime", "mine", azure=True)),
        (GA, {"api-key": "k"}, Admitted("realtime", "mine", azure=True)),
        (GA + "&api-key=k", {}, Admitted("realtime", "mine", azure=True)),
        (PREVIEW, {"api-key": "k"}, Admitted("realtime", "mine", azure=True, preview=True)),
        (
            PREVIEW,
            {"api-key": "k", "openai-beta": "realtime=v1"},
            Admitted("realtime", "mine", azure=True, preview=True),
        ),
    ],
)
def test_clients_are_let_in(target: str, headers: dict[str, str], expected: Admitted) -> None:
    assert outcome(target, headers) == expected


@pytest.mark.parametrize(
    ("target", "headers", "status", "code"),
    [
        ("/v1/chat", KEY, 404, None),
        ("/realtime?model=x", KEY, 404, None),
        ("/v1/realtime?model=x", {}, 401, "invalid_api_key"),
        ("/v1/realtime?model=x", {"authorization": "sk-1"}, 401, "invalid_api_key"),
        ("/v1/realtime?model=x", {"authorization": "Bearer "}, 401, "invalid_api_key"),
        ("/v1/realtime?model=x", {"api-key": "k"}, 401, "invalid_api_key"),
        ("/v1/realtime?model=x&api-key=k", {}, 401, "invalid_api_key"),
        (GA + "&api-version=2025-04-01-preview", KEY, 401, None),
        ("/openai/realtime?deployment=mine", KEY, 404, None),
        ("/openai/realtime?api-version=v1&deployment=mine", KEY, 404, None),
        (PREVIEW + "&intent=transcription", KEY, 404, None),
        (GA, {"authorization": "Basic x"}, 401, "invalid_api_key"),
        ("/openai/v1/realtime?deployment=mine", KEY, 400, "missing_required_parameter"),
        ("/v1/realtime", KEY, 400, "missing_required_parameter"),
        ("/openai/realtime?api-version=2025-04-01-preview&model=mine", KEY, 400, "missing_required_parameter"),
        ("/v1/realtime?call_id=rtc_1", KEY, 404, None),
    ],
)
def test_others_are_turned_away(target: str, headers: dict[str, str], status: int, code: str | None) -> None:
    refused = outcome(target, headers)
    assert isinstance(refused, Refusal)
    assert (refused.status, refused.code) == (status, code)


def test_browsers_bring_their_secret_as_a_protocol() -> None:
    target = "/v1/realtime?model=x"
    admitted = outcome(target, {}, "realtime", "openai-insecure-api-key.ek_1", keys=["ek_1"])
    assert isinstance(admitted, Admitted)
    assert admitted.protocol == "realtime"
    assert isinstance(outcome(target, {}, "openai-insecure-api-key.ek_1"), Refusal)
    assert isinstance(outcome(target, {}, "realtime", "openai-insecure-api-key.ek_2", keys=["ek_1"]), Refusal)


@pytest.mark.parametrize("target", [GA, PREVIEW])
@pytest.mark.parametrize(
    ("headers", "is_known"),
    [
        ({"api-key": "k"}, True),
        ({"authorization": "Bearer k"}, True),
        ({"authorization": "Bearer t"}, True),
        ({"api-key": "t"}, False),
        ({"authorization": "Bearer x"}, False),
        ({"api-key": "x"}, False),
    ],
)
def test_azure_knows_keys_and_tokens(target: str, headers: dict[str, str], is_known: bool) -> None:
    assert isinstance(admit(Handshake(target, headers), ["k"], None, ["t"]), Admitted) == is_known


def test_a_token_of_azure_is_none_of_openai() -> None:
    handshake = Handshake("/v1/realtime?model=x", {"authorization": "Bearer t"})
    assert isinstance(admit(handshake, ["k"], None, ["t"]), Refusal)


def test_keys_and_models_may_be_known() -> None:
    handshake = Handshake("/v1/realtime?model=x", KEY)
    assert isinstance(admit(handshake, ["sk-1"], ["x"]), Admitted)
    assert isinstance(admit(handshake, ["sk-2"], None), Refusal)
    refused = admit(handshake, None, ["y"])
    assert isinstance(refused, Refusal)
    assert (refused.status, refused.code) == (404, "model_not_found")
    refused = admit(Handshake(GA, KEY), None, ["y"])
    assert isinstance(refused, Refusal)
    assert refused.code == "DeploymentNotFound"


@pytest.mark.parametrize(
    ("target", "headers", "protocols", "code"),
    [
        ("/v1/realtime?model=x", {**KEY, "openai-beta": "realtime=v1"}, (), "beta_api_shape_disabled"),
        ("/v1/realtime?model=x", KEY, ("realtime", "openai-beta.realtime-v1"), "beta_api_shape_disabled"),
        ("/v1/realtime?model=gpt-live-1", KEY, (), "invalid_model"),
    ],
)
def test_some_are_let_in_only_to_be_told(
    target: str, headers: dict[str, str], protocols: tuple[str, ...], code: str
) -> None:
    admitted = outcome(target, headers, *protocols)
    assert isinstance(admitted, Admitted)
    assert admitted.trouble is not None
    assert admitted.trouble.code == code


def test_a_refusal_says_why_and_when_to_come_again() -> None:
    refusal = Refusal(429, "rate_limit_exceeded", "Slow down.", retry_after=2.5, headers=[("x-request-id", "r1")])
    assert orjson.loads(body_of(refusal))["error"]["code"] == "rate_limit_exceeded"
    assert dict(headers_of(refusal)) == {
        b"content-type": b"application/json",
        b"x-request-id": b"r1",
        b"retry-after": b"2.5",
    }
