"""The OpenAPI document against the server: schemathesis sends what it allows, and what it does not, and judges every answer."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, events, from_schema

from tests.engine.transport.api_server import ADMIN_KEY, serve_api

EXAMPLES = 5
"""Random examples for each operation and mode; the coverage phase goes through every field of every body besides."""
REASONS = (
    "unknown ",
    " has no revision ",
    " has no published revision",
    " without a template",
    " must be one of ",
    "give either ",
    "names a tool twice",
    "the tool's name, ",
    "no tool named ",
    "an enum variable lists its values",
    " has to be that of the path",
    "provider must be text",
    "missing field 'provider'",
    "has to be an argon2 hash",
    "A password has ",
    " is for project files",
)
"""What a document can be refused for that its schema cannot say: what it names is not there, or two fields do not go together."""
CONFIGURATION: dict[str, Any] = {
    "seed": 1,
    "headers": {"X-API-Key": ADMIN_KEY},
    "generation": {
        "max-examples": EXAMPLES,
        "deterministic": True,
        "database": "none",
        # NUL is refused in every text (400), which a schema could only say of each text by itself
        "allow-x00": False,
    },
    "checks": {
        # 412 and 428: an entity tag that is made up is not the document's. 422: see `refused_for_a_reason`
        "positive_data_acceptance": {
            "expected-statuses": ["2xx", "3xx", "401", "403", "404", "409", "412", "422", "428"],
        },
    },
    "phases": {
        # what no other request leads to; the lives of documents are in test_management.py
        "stateful": {"enabled": False},
        # two more requests for each of thousands, one with a password that takes its time; the other phases do it
        "coverage": {"checks": {"ignored_auth": {"enabled": False}}},
    },
    # their bodies and parameters are those of POST, and of a turn: what is tried there would be tried again
    "operations": [
        {"include-name": name, "phases": {"coverage": {"enabled": False}}}
        for name in (
            *(f"PUT /api/{kind}/{{id}}" for kind in ("projects", "agents", "templates", "users", "api-keys")),
            "PUT /api/realtime-configurations/{id}",
            "POST /api/pipeline/{key}",
        )
    ]
    # three kinds of agents, each with some forty fields, would take as long as everything else together
    + [
        {
            "include-name": "POST /api/agents",
            "generation": {"max-examples": 8 * EXAMPLES},
            "phases": {"coverage": {"enabled": False}},
        }
    ],
}


@schemathesis.check
def refused_for_a_reason(ctx: schemathesis.CheckContext, response: schemathesis.Response, case: Any) -> None:
    """A body that fits its schema is refused with 422 only for what a schema cannot say."""
    meta = case.meta
    if response.status_code == 422 and meta is not None and meta.generation.mode.is_positive:
        for error in response.json().get("errors", []):
            assert any(reason in error["detail"] for reason in REASONS), error


@schemathesis.serializer("application/x-ndjson")
def _lines(ctx: schemathesis.SerializationContext, value: Any) -> bytes:
    each = cast("Iterable[Any]", value) if isinstance(value, list) else [value]
    return "\n".join(map(json.dumps, each)).encode()


def filter_body(context: schemathesis.HookContext, body: Any) -> bool:
    """Numbers of more than 64 bits are refused in every body (400), also where a schema allows any value."""
    return not _has_huge_number(body)


def _has_huge_number(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_huge_number, cast("dict[str, Any]", value).values()))
    if isinstance(value, list):
        return any(map(_has_huge_number, cast("Iterable[Any]", value)))
    return isinstance(value, int | float) and abs(value) >= 1e18


cast("Any", schemathesis).hook(filter_body)


def furnish(url: str) -> None:
    """One of everything, to be found, changed and deleted."""
    documents: list[tuple[str, dict[str, Any]]] = [
        ("projects", {"ref": "shop"}),
        ("realtime-configurations", {"id": "voice", "project": "shop", "properties": {"provider": "Internal"}}),
        ("templates", {"ref": "clerk", "project": "shop", "published": True}),
        (
            "agents",
            {"ref": "seller", "project": "shop", "type": "basic", "name": "S", "realtimeConfigurationId": "voice"},
        ),
        ("users", {"name": "sam"}),
        ("api-keys", {"name": "ci", "projects": ["shop"]}),
    ]
    for kind, document in documents:
        answer = httpx2.post(f"{url}/api/{kind}", json=document, headers={"X-API-Key": ADMIN_KEY})
        assert answer.status_code == 201, answer.text


def failures_of(event: events.EngineEvent) -> Iterator[str]:
    if isinstance(event, events.ScenarioFinished):
        recorder: Any = event.recorder
        for case_id, checks in recorder.checks.items():
            for check in checks:
                if check.status is not Status.SUCCESS:
                    yield f"{recorder.cases[case_id].value.operation.label}: {check.name}: {check.failure_info}"
    elif isinstance(event, events.NonFatalError | events.FatalError):
        yield str(event)


@pytest.mark.sockets
def test_the_server_is_as_it_is_described(tmp_path: Path) -> None:
    with serve_api(tmp_path) as url:
        furnish(url)
        config = cast("Any", SchemathesisConfig).from_dict(CONFIGURATION)
        schema: Any = schemathesis.openapi.from_url(f"{url}/openapi.json", config=config)
        failures: list[str] = []
        tried: Counter[str] = Counter()
        for event in from_schema(schema).execute():
            failures += failures_of(event)
            if isinstance(event, events.ScenarioFinished):
                cases: Any = event.recorder.cases
                tried.update(case.value.operation.label for case in cases.values())
        described = {operation.ok().label for operation in schema.get_all_operations()}
    assert failures == []
    assert described <= tried.keys()
    assert tried.total() > 2000
