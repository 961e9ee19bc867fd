"""The description of the HTTP routes as OpenAPI 3.1, made from their pydantic models."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import attrs
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from engine.transport.asgi import PROBLEM_TYPE


class ProblemDocument(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str


@attrs.frozen
class Query:
    name: str
    schema: Mapping[str, Any]


@attrs.frozen
class Operation:
    """A route that is read with GET."""

    path: str
    summary: str
    answer: type[BaseModel]
    query: tuple[Query, ...] = ()
    refusals: tuple[int, ...] = ()
    """The status codes of problem documents."""
    not_ready: type[BaseModel] | None = None
    """What comes with 503."""


def describe(operations: Iterable[Operation], *, title: str = "Souffleur", version: str = "1") -> dict[str, Any]:
    operations = list(operations)
    models: list[type[BaseModel]] = [ProblemDocument]
    for operation in operations:
        models += [model for model in (operation.answer, operation.not_ready) if model is not None]
    references, schemas = models_json_schema(
        [(model, "serialization") for model in dict.fromkeys(models)], ref_template="#/components/schemas/{model}"
    )

    def answer(status: int, model: type[BaseModel], media_type: str = "application/json") -> dict[str, Any]:
        schema = references[(model, "serialization")]
        return {"description": HTTPStatus(status).phrase, "content": {media_type: {"schema": schema}}}

    paths: dict[str, Any] = {}
    for operation in operations:
        responses = {"200": answer(200, operation.answer)}
        if operation.not_ready is not None:
            responses["503"] = answer(503, operation.not_ready)
        for status in operation.refusals:
            responses[str(status)] = answer(status, ProblemDocument, PROBLEM_TYPE)
        parameters = [
            {"name": query.name, "in": "query", "required": False, "schema": dict(query.schema)}
            for query in operation.query
        ]
        paths[operation.path] = {
            "get": {"summary": operation.summary, "parameters": parameters, "responses": responses}
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": schemas.get("$defs", {})},
    }
