"""The description of the HTTP routes as OpenAPI 3.1, made from their pydantic models.

Each room of routes has a tuple of `Operation`s beside its handlers; `describe` makes one document of all.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, Literal, cast

import attrs
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from engine.elements import JsonObject
from engine.transport.asgi import PROBLEM_TYPE

JSON = "application/json"
PAGE_LIMIT = 1000
"""The most items in one answer."""
PAGE_DEFAULT = 100
MAX_CURSOR = 1024
"""Characters of an `after`: longer than any id."""
REFERENCE = "#/components/schemas/"


class ProblemFault(BaseModel):
    pointer: str = Field(description="A JSON pointer (RFC 6901) into the body that was sent.")
    detail: str


class ProblemDocument(BaseModel):
    """RFC 9457."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    type: str
    title: str
    status: int
    detail: str
    errors: list[ProblemFault] = Field(default=[], description="Every fault of a document that was refused.")


@attrs.frozen(eq=False)
class Schema:
    """A JSON schema from elsewhere than a pydantic model. Its `$defs` become components of their own."""

    name: str
    schema: JsonObject


Shape = type[BaseModel] | Schema
Mode = Literal["serialization", "validation"]
_ANSWERED: Mode = "serialization"
_SENT: Mode = "validation"


@attrs.frozen
class Parameter:
    name: str
    schema: JsonObject
    where: Literal["query", "path", "header"] = "query"
    description: str = ""
    required: bool = False


@attrs.frozen
class Answer:
    shape: Shape | None = None
    """None: no body, or one that is no JSON."""
    description: str = ""
    headers: tuple[str, ...] = ()
    media_type: str = JSON


Security = Literal["none", "optional", "required"]


@attrs.frozen
class Operation:
    """One route and method. `refusals` are the status codes that come with a problem document."""

    path: str
    summary: str
    answers: Mapping[int, Answer]
    method: str = "get"
    parameters: tuple[Parameter, ...] = ()
    body: Shape | None = None
    body_type: str = JSON
    """The media type of the body."""
    more_bodies: Mapping[str, Shape] = attrs.field(factory=dict[str, Shape])
    """What else it may be, by media type."""
    refusals: tuple[int, ...] = ()
    security: Security = "none"
    description: str = ""
    tag: str = ""


SECURITY_SCHEMES: JsonObject = {
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key, or the admin key."},
    "bearer": {"type": "http", "scheme": "bearer", "description": "A JSON Web Token, an API key, or the admin key."},
    "basic": {"type": "http", "scheme": "basic", "description": "A user's name and password."},
}
ANY_SCHEME: list[JsonObject] = [{name: []} for name in SECURITY_SCHEMES]
SECURITY: Mapping[Security, list[JsonObject]] = {"none": [], "optional": [*ANY_SCHEME, {}], "required": ANY_SCHEME}

HEADERS: Mapping[str, JsonObject] = {
    "ETag": {"description": "The entity tag of the representation.", "schema": {"type": "string"}},
    "Location": {"description": "Where it is.", "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds after which to ask again.", "schema": {"type": "string"}},
    "WWW-Authenticate": {"description": "How to say who you are.", "schema": {"type": "string"}},
}
REFUSAL_HEADERS: Mapping[int, tuple[str, ...]] = {401: ("WWW-Authenticate",), 503: ("Retry-After",)}


LIMIT = Parameter(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": PAGE_LIMIT, "default": PAGE_DEFAULT},
    description="The most items in the answer, which may be fewer before the last page.",
)
AFTER = Parameter(
    "after", {"type": "string", "maxLength": MAX_CURSOR}, description="The `next` of the answer that is gone on from."
)
AFTER_POSITION = attrs.evolve(AFTER, schema={"type": "string", "pattern": "^[0-9]{1,15}$"})
"""Of a list in the order of whole numbers."""
IF_MATCH = Parameter("If-Match", {"type": "string"}, "header", "The entity tag of what is to be changed.")
IF_NONE_MATCH = Parameter("If-None-Match", {"type": "string"}, "header", "Entity tags of what is there already.")


def path_parameter(name: str, description: str) -> Parameter:
    return Parameter(name, {"type": "string", "minLength": 1}, "path", description, required=True)


def describe(operations: Iterable[Operation], *, title: str = "Souffleur", version: str = "1") -> JsonObject:
    operations = list(operations)
    schemas = _Schemas(operations)
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": SECURITY_SCHEMES},
    }


class _Schemas:
    """The components of the document, and the references to them."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        answers: list[Shape] = [ProblemDocument]
        bodies: list[Shape] = []
        for operation in operations:
            answers += [answer.shape for answer in operation.answers.values() if answer.shape is not None]
            bodies += [operation.body] if operation.body is not None else []
            bodies += operation.more_bodies.values()
        self._references, made = _made((*_models(answers, _ANSWERED), *_models(bodies, _SENT)))
        self.components: dict[str, Any] = dict(made)
        for shape in (*answers, *bodies):
            if isinstance(shape, Schema):
                self._add(shape)

    def _add(self, shape: Schema) -> None:
        own = {name: value for name, value in shape.schema.items() if name != "$defs"}
        for name, schema in {**shape.schema.get("$defs", {}), shape.name: own}.items():
            component = _with_references(schema)
            if self.components.setdefault(name, component) != component:
                raise AssertionError(f"two different schemas are named {name}")

    def reference(self, shape: Shape, mode: Mode) -> JsonObject:
        if isinstance(shape, Schema):
            return {"$ref": REFERENCE + shape.name}
        return self._references[shape, mode]


def _models(shapes: Iterable[Shape], mode: Mode) -> list[tuple[type[BaseModel], Mode]]:
    return [(shape, mode) for shape in dict.fromkeys(shapes) if not isinstance(shape, Schema)]


@cache
def _made(models: tuple[tuple[type[BaseModel], Mode], ...]) -> tuple[Mapping[Any, JsonObject], JsonObject]:
    """References to these models, and the components; made once, as it takes a tenth of a second."""
    references, schema = models_json_schema(models, ref_template=REFERENCE + "{model}")
    return references, schema.get("$defs", {})


def _with_references(schema: Any) -> Any:
    """The schema with its references to definitions of its own turned into references to components."""
    if isinstance(schema, str):
        return schema.replace("#/$defs/", REFERENCE)
    if isinstance(schema, list):
        return [_with_references(item) for item in cast("Iterable[Any]", schema)]
    if isinstance(schema, dict):
        members = cast("dict[str, Any]", schema)
        return {name: _with_references(value) for name, value in members.items()}
    return schema


def _described(operation: Operation, schemas: _Schemas) -> JsonObject:
    described: dict[str, Any] = {"summary": operation.summary}
    if operation.description:
        described["description"] = operation.description
    if operation.tag:
        described["tags"] = [operation.tag]
    described["operationId"] = _operation_id(operation)
    described["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body is not None:
        bodies = {operation.body_type: operation.body, **operation.more_bodies}
        content = {media_type: {"schema": schemas.reference(body, _SENT)} for media_type, body in bodies.items()}
        described["requestBody"] = {"required": True, "content": content}
    responses: dict[str, Any] = {}
    for status, answer in operation.answers.items():
        responses[str(status)] = _response(status, answer, schemas)
    for status in sorted(operation.refusals):
        if status not in operation.answers:  # a status of both kinds is described by its own answer
            problem = Answer(ProblemDocument, "", REFUSAL_HEADERS.get(status, ()), PROBLEM_TYPE)
            responses[str(status)] = _response(status, problem, schemas)
    described["responses"] = responses
    described["security"] = SECURITY[operation.security]
    return described


def _operation_id(operation: Operation) -> str:
    words = [word for word in operation.path.replace("{", "").replace("}", "").split("/") if word not in ("", "api")]
    return "-".join([operation.method, *words]) if words else f"{operation.method}-root"


def _parameter(parameter: Parameter) -> JsonObject:
    described: dict[str, Any] = {"name": parameter.name, "in": parameter.where, "required": parameter.required}
    if parameter.description:
        described["description"] = parameter.description
    return {**described, "schema": dict(parameter.schema)}


def _response(status: int, answer: Answer, schemas: _Schemas) -> JsonObject:
    response: dict[str, Any] = {"description": answer.description or HTTPStatus(status).phrase}
    if answer.headers:
        response["headers"] = {name: HEADERS[name] for name in answer.headers}
    if answer.shape is not None:
        response["content"] = {answer.media_type: {"schema": schemas.reference(answer.shape, _ANSWERED)}}
    elif answer.media_type != JSON:
        response["content"] = {answer.media_type: {"schema": {"type": "string"}}}
    return response
