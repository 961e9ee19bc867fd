"""The OpenAPI document: complete, consistent, and true of what is answered."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import jsonschema_rs
import pytest
from pydantic import BaseModel
from trio.testing import MockClock

from engine.transport.http import create_http_app
from engine.transport.openapi import Answer, Operation, Schema, describe
from tests.engine.transport.managed import Managed, furnish, open_managed
from tests.engine.transport.stack import Recorder, open_stack
from tests.engine.transport.test_sessions import open_history

HTTP = ("get", "post", "put", "delete")


@pytest.fixture(autouse=True)
def _passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVAS_PASSWORD", "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA")


async def description(managed: Managed) -> dict[str, Any]:
    document: dict[str, Any] = await managed.read("/openapi.json", key="")
    return document


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(method, path): item[method] for path, item in document["paths"].items() for method in item}


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        own = [str(members["$ref"])] if isinstance(members.get("$ref"), str) else []
        return own + [each for member in members.values() for each in references(member)]
    return (
        [each for item in cast("Iterable[Any]", value) for each in references(item)] if isinstance(value, list) else []
    )


async def test_every_route_is_described(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        document = await description(managed)
        app = create_http_app(managed.services, None)
        routes: set[tuple[str, str]] = set()
        for rule in app.url_map.iter_rules():
            path = re.sub(r"<(?:id:)?(\w+)>", r"{\1}", rule.rule)
            for name in ("document_id", "session_id"):
                path = path.replace(f"{{{name}}}", "{id}")
            is_file = path.count("/") == 1 and "." in path and not path.endswith(("openapi.json", "asyncapi.json"))
            if not is_file and path != "/":  # the talk page has many
                routes |= {(method.lower(), path) for method in (rule.methods or ()) if method != "HEAD"}
        described = operations(document).keys() - {
            ("get", "/"),
            ("post", "/capsules/view"),
        }  # a door of plain ASGI, as pipelines are
        assert {each for each in described if "/pipeline" not in each[1]} == routes
        assert {path for _, path in described if "/pipeline" in path} == {
            "/api/pipeline/{key}",
            "/api/pipeline/{key}/turn",
        }


async def test_the_description_is_consistent(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        document = await description(managed)
    components = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in components, reference
    ids = [operation["operationId"] for operation in operations(document).values()]
    assert len(set(ids)) == len(ids)
    for (method, path), operation in operations(document).items():
        assert method in HTTP
        assert operation["summary"]
        in_path = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path))
        assert ("requestBody" in operation) == (method == "put" or (method == "post" and "/publish" not in path))
        assert {"200", "201", "202", "204"} & operation["responses"].keys()
        assert "403" in operation["responses"]  # a page of another origin, and a name that is not ours
        if path.startswith("/api/"):
            assert "401" in operation["responses"]
            assert operation["security"]
        for status, response in operation["responses"].items():
            if int(status) >= 400 and (path, status) != ("/readyz", "503"):
                (media_type,) = response["content"]
                assert media_type == "application/problem+json"
    jsonschema_rs.validator_for({"$ref": "#/components/schemas/Agent", "components": document["components"]})
    for schema in components.values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


async def test_reads_are_as_described(tmp_path: Path, autojump_clock: MockClock) -> None:
    """With sessions, which no client of the description can make."""
    async with open_history(tmp_path) as managed:
        document = await description(managed)
        await managed.make("/api/users", {"name": "sam", "tokensValidFrom": "2030-01-01T00:00:00Z"})
        key = (await managed.make("/api/api-keys", {"name": "ci"})).json["id"]
        known = {
            "projects": "shop",
            "agents": "seller",
            "templates": "clerk",
            "realtime-configurations": "voice",
            "users": "sam",
            "api-keys": key,
            "sessions": "s1",
        }
        read = 0
        for (method, path), operation in operations(document).items():
            if method == "get" and path.startswith("/api/"):
                place = path.replace("{id}", known[path.split("/")[2]]).replace("{number}", "1")
                (content,) = operation["responses"]["200"]["content"].values()
                schema = {**content["schema"], "components": document["components"]}
                validator = jsonschema_rs.validator_for(schema, validate_formats=True)
                for secret in ("admin", "olga", ""):
                    answer = await managed.ask("GET", place, key=secret)
                    if answer.status == 200:
                        validator.validate(answer.json)
                        read += 1
                    else:
                        assert str(answer.status) in operation["responses"]
        assert read > 25


async def test_a_written_document_fits_what_is_sent(tmp_path: Path, autojump_clock: MockClock) -> None:
    """What was read can be sent back, as its schema says."""
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        document = await description(managed)
        for kind, name in {"projects": "shop", "agents": "seller", "templates": "clerk"}.items():
            operation = document["paths"][f"/api/{kind}/{{id}}"]["put"]
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            validator = jsonschema_rs.validator_for({**schema, "components": document["components"]})
            validator.validate(await managed.read(f"/api/{kind}/{name}"))
            assert not validator.is_valid({**await managed.read(f"/api/{kind}/{name}"), "other": 1})


async def test_without_documents_nothing_is_managed(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        paths = (await stack.request("/openapi.json")).json["paths"]
        assert {path for path in paths if path.startswith("/api/") and "pipeline" not in path} == {
            "/api/agents",
            "/api/sessions",
            "/api/sessions/{id}",
            *(f"/api/sessions/{{id}}/{part}" for part in ("turns", "messages", "usage", "llm-log")),
        }
        assert (await stack.request("/api/projects")).status == 404


class One(BaseModel):
    text: str


def test_names_mean_one_thing() -> None:
    same = Schema("Thing", {"$ref": "#/$defs/Inner", "$defs": {"Inner": {"type": "string"}}})
    other = Schema("Thing", {"type": "integer"})
    operation = Operation("/a", "A", {200: Answer(same)}, method="post", body=One)
    document = describe([operation, Operation("/b", "B", {200: Answer(same)})])
    assert document["components"]["schemas"].keys() == {"ProblemDocument", "ProblemFault", "One", "Thing", "Inner"}
    assert document["components"]["schemas"]["Thing"] == {"$ref": "#/components/schemas/Inner"}
    with pytest.raises(AssertionError, match="two different schemas are named Thing"):
        describe([operation, Operation("/b", "B", {200: Answer(other)})])
