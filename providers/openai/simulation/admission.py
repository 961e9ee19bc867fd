"""The handshake: who is let in, as what, and how the others are turned away.

Two services are known by their paths: OpenAI's `/v1/realtime?model=…`, and Azure's `/openai/v1/realtime?model=<deployment>` and, older,
`/openai/realtime?api-version=…&deployment=<deployment>`. The last one speaks an older dialect.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import parse_qs, urlsplit

import attrs
import orjson

from providers.openai.simulation.rules import INVALID_REQUEST
from providers.openai.simulation.script import Refusal, Trouble
from providers.openai.simulation.settings import REALTIME, TRANSCRIPTION

OPENAI_PATH = "/v1/realtime"
AZURE_PATH = "/openai/v1/realtime"
AZURE_PREVIEW_PATH = "/openai/realtime"

API_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(-preview)?")

PROTOCOL = "realtime"
KEY_PROTOCOL = "openai-insecure-api-key."
BETA_PROTOCOL = "openai-beta.realtime-v1"

BETA = Trouble(
    "beta_api_shape_disabled",
    "The Realtime Beta API is no longer supported. Please use /v1/realtime for the GA API.",
    INVALID_REQUEST,
)
"""Seen: the handshake is accepted, this error comes, and the connection is closed with 4000."""
WRONG_API = Trouble("invalid_model", "This model is not supported by the Realtime API.", INVALID_REQUEST)
"""X: that it comes like `BETA`; that a GPT-Live model is refused is known."""


@attrs.frozen
class Handshake:
    """What a client asks for. Names of headers are in lower case."""

    target: str
    """Path and query."""
    headers: Mapping[str, str] = {}
    protocols: Sequence[str] = ()


@attrs.frozen
class Admitted:
    """A client that is let in; with `trouble` only to be told so."""

    kind: str
    model: str
    azure: bool
    preview: bool = False
    """In the older dialect."""
    protocol: str | None = None
    trouble: Trouble | None = None


def admit(
    handshake: Handshake,
    keys: Collection[str] | None,
    models: Collection[str] | None,
    tokens: Collection[str] | None = None,
) -> Admitted | Refusal:
    """Let a client in, or not.

    Args:
        keys: The credentials that are known; None for any that is there.
        models: The models or deployments that are known; None for all.
        tokens: The Entra tokens that are known, on Azure. None: any when `keys` is None too, else none.
    """
    parts = urlsplit(handshake.target)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if parts.path not in (OPENAI_PATH, AZURE_PATH, AZURE_PREVIEW_PATH):
        return Refusal(404, message=f"Invalid URL (GET {parts.path})")
    azure = parts.path != OPENAI_PATH
    if parts.path == AZURE_PATH and "api-version" in query:
        return Refusal(401, message="The GA path takes no api-version.")
    if parts.path == AZURE_PREVIEW_PATH and not API_VERSION.fullmatch(query.get("api-version", "")):
        return Refusal(404, message="Resource not found")
    if not _is_known(handshake, query, keys, tokens if azure else None, azure=azure):
        return Refusal(401, "invalid_api_key", "Incorrect API key provided.")
    return _admit(handshake, query, models, azure=azure, preview=parts.path == AZURE_PREVIEW_PATH)


def _admit(
    handshake: Handshake, query: Mapping[str, str], models: Collection[str] | None, *, azure: bool, preview: bool
) -> Admitted | Refusal:
    if "call_id" in query:
        return Refusal(404, message=f"No session found for call_id '{query['call_id']}'.")  # there are no calls here
    if preview and "intent" in query:
        return Refusal(
            404, message="Resource not found"
        )  # X: transcription has events of its own there, and is not simulated
    kind = TRANSCRIPTION if query.get("intent") == TRANSCRIPTION else REALTIME
    model = query.get("deployment" if preview else "model", "")
    if kind == REALTIME and not model:
        return Refusal(400, "missing_required_parameter", "Missing required parameter: 'model'.")  # X: the status
    if model and models is not None and model not in models:
        code = "DeploymentNotFound" if azure else "model_not_found"
        return Refusal(404, code, f"The model '{model}' does not exist or you do not have access to it.")
    trouble = None
    if not preview and ("openai-beta" in handshake.headers or BETA_PROTOCOL in handshake.protocols):
        trouble = BETA
    elif model.startswith("gpt-live"):
        trouble = WRONG_API
    protocol = PROTOCOL if PROTOCOL in handshake.protocols else None
    return Admitted(kind, model, azure, preview, protocol, trouble)


def _is_known(
    handshake: Handshake,
    query: Mapping[str, str],
    keys: Collection[str] | None,
    tokens: Collection[str] | None,
    *,
    azure: bool,
) -> bool:
    """Whether there is an API key, an ephemeral secret or an Entra token, where it may stand. Azure takes its keys as bearers too."""
    scheme, _, rest = handshake.headers.get("authorization", "").partition(" ")
    bearer = rest.strip() if scheme.lower() == "bearer" else ""
    if bearer:
        return (keys is None and tokens is None) or bearer in (*(keys or ()), *(tokens or ()))
    if azure:
        key = handshake.headers.get("api-key", "") or query.get("api-key", "")
    else:
        secrets = [one.removeprefix(KEY_PROTOCOL) for one in handshake.protocols if one.startswith(KEY_PROTOCOL)]
        key = secrets[0] if secrets and PROTOCOL in handshake.protocols else ""
    return bool(key) and (keys is None or key in keys)


def body_of(refusal: Refusal) -> bytes:
    """X: the exact bodies of refused handshakes are not documented; this is the shape of every other error."""
    error = {"message": refusal.message, "type": refusal.type, "param": None, "code": refusal.code}
    return orjson.dumps({"error": error})


def headers_of(refusal: Refusal) -> list[tuple[bytes, bytes]]:
    headers = [("content-type", "application/json"), *refusal.headers]
    if refusal.retry_after is not None:
        headers.append(("retry-after", f"{refusal.retry_after:g}"))
    return [(name.encode(), value.encode()) for name, value in headers]
