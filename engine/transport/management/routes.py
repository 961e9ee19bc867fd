"""The routes of the management API, and their description."""

from collections.abc import Mapping, Sequence

import attrs
from quart_trio import QuartTrio

from engine.elements import JsonObject
from engine.interfaces import ManagedDocuments
from engine.session.services import Services
from engine.store.documents import ResourceKind
from engine.transport.management.api_keys import ApiKeys
from engine.transport.management.collection import IGNORED, META, Collection
from engine.transport.management.simple import Agents, Projects, RealtimeConfigurations
from engine.transport.management.templates import Templates
from engine.transport.management.users import Users
from engine.transport.openapi import (
    AFTER,
    AFTER_POSITION,
    IF_MATCH,
    IF_NONE_MATCH,
    LIMIT,
    Answer,
    Operation,
    Parameter,
    Schema,
    path_parameter,
)

Kinds = Sequence[tuple[type[Collection], str, str, ResourceKind]]
KINDS: Kinds = (
    (Projects, "Project", "projects", ResourceKind.PROJECT),
    (Agents, "Agent", "agents", ResourceKind.AGENT),
    (Templates, "Template", "templates", ResourceKind.TEMPLATE_REVISION),
    (RealtimeConfigurations, "RealtimeConfiguration", "realtime configurations", ResourceKind.REALTIME_CONFIGURATION),
    (Users, "User", "users", ResourceKind.USER),
    (ApiKeys, "ApiKey", "API keys", ResourceKind.API_KEY),
)
"""The handlers, and what the description calls one and several of them, and takes its schema from."""

TAG = "management"
_NOT_CHANGED = Answer(None, "Not changed since the answer with the entity tag in If-None-Match.", ("ETag",))
_REFUSED = (400, 401, 403, 503)
_REFUSED_BODY = (*_REFUSED, 408, 409, 413, 415, 422)
_PAGE = (LIMIT, AFTER, IF_NONE_MATCH)
_REVISIONS: JsonObject = {
    "publishedRevision": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "What agents are made from."}
}


def add_management(app: QuartTrio, services: Services, documents: ManagedDocuments) -> Sequence[Operation]:
    """All routes but GET /api/agents, which tells others something too. Returns their description."""
    for kind, *_ in KINDS:
        routes = kind(services, documents)
        path, one = kind.path, f"{kind.path}/<id:document_id>"
        if kind is not Agents:
            app.add_url_rule(path, f"list {path}", routes.read_list)
        app.add_url_rule(path, f"create {path}", routes.create, methods=["POST"])
        app.add_url_rule(one, f"read {path}", routes.read)
        app.add_url_rule(one, f"replace {path}", routes.replace, methods=["PUT"])
        app.add_url_rule(one, f"delete {path}", routes.delete, methods=["DELETE"])
    templates = Templates(services, documents)
    path = f"{Templates.path}/<id:document_id>/revisions"
    app.add_url_rule(path, "revisions", templates.read_revisions)
    app.add_url_rule(f"{path}/<id:number>", "revision", templates.read_revision)
    app.add_url_rule(f"{path}/<id:number>/publish", "publish", templates.publish, methods=["POST"])
    operations: list[Operation] = []
    for kind, name, several, source in KINDS:
        operations += _operations_of(kind, name, several, source, documents)
    return [*operations, *_operations_of_revisions(documents)]


def _operations_of(
    kind: type[Collection], name: str, several: str, source: ResourceKind, documents: ManagedDocuments
) -> list[Operation]:
    path, one = kind.path, f"{kind.path}/{{id}}"
    parameter = path_parameter("id", f"The {kind.noun}'s {kind.id_field}.")
    shown, sent = _shown(kind, name, source, documents), _sent(kind, name, source, documents)
    tagged, made = ("ETag",), ("ETag", "Location")
    operations = [
        Operation(
            path,
            f"The {several}, by id",
            {200: Answer(list_schema(kind, name, source, documents), headers=tagged), 304: _NOT_CHANGED},
            parameters=_PAGE,
            refusals=_REFUSED,
        ),
        Operation(
            path,
            f"Make a {kind.noun}",
            {201: Answer(shown, headers=made)},
            method="post",
            body=sent,
            refusals=_REFUSED_BODY,
        ),
        Operation(
            one,
            f"A {kind.noun}",
            {200: Answer(shown, headers=tagged), 304: _NOT_CHANGED},
            parameters=(parameter, IF_NONE_MATCH),
            refusals=(*_REFUSED, 404),
        ),
        Operation(
            one,
            f"Replace a {kind.noun}, or make one under this {kind.id_field}",
            {200: Answer(shown, headers=tagged), 201: Answer(shown, headers=made)},
            method="put",
            parameters=(parameter, IF_MATCH, IF_NONE_MATCH),
            body=sent,
            refusals=(*_REFUSED_BODY, *((404,) if kind is ApiKeys else ()), 412, 428),
            description="If-Match says which one is replaced; If-None-Match: * says that there is none yet.",
        ),
        Operation(
            one,
            f"Delete a {kind.noun}",
            {204: Answer()},
            method="delete",
            parameters=(parameter, IF_MATCH),
            refusals=(*_REFUSED, 404, 409, 412),
        ),
    ]
    if kind is Agents:
        del operations[0]  # described where everybody's list is
    return [attrs.evolve(operation, security="required", tag=TAG) for operation in operations]


def _operations_of_revisions(documents: ManagedDocuments) -> list[Operation]:
    path = f"{Templates.path}/{{id}}/revisions"
    template = path_parameter("id", "The template's ref.")
    number = Parameter("number", {"type": "integer", "minimum": 1}, "path", "Of the revision.", required=True)
    source, tagged = ResourceKind.TEMPLATE_REVISION, ("ETag",)
    shown = _shown(Templates, "Template", source, documents)
    operations = [
        Operation(
            path,
            "The revisions of a template, oldest first",
            {200: Answer(list_schema(Templates, "Template", source, documents), headers=tagged), 304: _NOT_CHANGED},
            parameters=(template, LIMIT, AFTER_POSITION, IF_NONE_MATCH),
            refusals=(*_REFUSED, 404),
        ),
        Operation(
            f"{path}/{{number}}",
            "A revision of a template",
            {200: Answer(shown, headers=tagged), 304: _NOT_CHANGED},
            parameters=(template, number, IF_NONE_MATCH),
            refusals=(*_REFUSED, 404),
        ),
        Operation(
            f"{path}/{{number}}/publish",
            "Publish a revision: agents that name none are made from it",
            {200: Answer(shown, headers=tagged)},
            method="post",
            parameters=(template, number, IF_MATCH),
            refusals=(*_REFUSED, 404, 409, 412),
        ),
    ]
    return [attrs.evolve(operation, security="required", tag=TAG) for operation in operations]


# --- schemas -----------------------------------------------------------------------------------------------------------


def _shown(kind: type[Collection], name: str, source: ResourceKind, documents: ManagedDocuments) -> Schema:
    members = {**META, **(_REVISIONS if kind is Templates else {})}
    return Schema(name, _with_members(documents.schema(source, sent=False), members, required=True))


def _sent(kind: type[Collection], name: str, source: ResourceKind, documents: ManagedDocuments) -> Schema:
    members = dict.fromkeys(kind.shown_only, IGNORED)
    return Schema(f"Sent{name}", _with_members(documents.schema(source, sent=True), members, required=False))


def list_schema(kind: type[Collection], name: str, source: ResourceKind, documents: ManagedDocuments) -> Schema:
    shown = _shown(kind, name, source, documents)
    definitions = dict(shown.schema.get("$defs", {}))
    definitions[name] = {key: value for key, value in shown.schema.items() if key != "$defs"}
    following = {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "description": "What to pass as `after` for the next page; null on the last.",
    }
    schema: JsonObject = {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"$ref": f"#/$defs/{name}"}}, "next": following},
        "required": ["items", "next"],
        "additionalProperties": False,
        "$defs": definitions,
    }
    return Schema(f"{name}List", schema)


def _with_members(schema: JsonObject, members: Mapping[str, JsonObject], *, required: bool) -> JsonObject:
    """The schema of an object, or of one of several, with more members."""
    if "oneOf" in schema:
        definitions = dict(schema["$defs"])
        for each in schema["oneOf"]:
            name = str(each["$ref"]).removeprefix("#/$defs/")
            definitions[name] = _with_members(definitions[name], members, required=required)
        return {**schema, "$defs": definitions}
    names = [name for name in schema.get("required", []) if name not in members]
    return {
        **schema,
        "properties": {**schema["properties"], **members},
        "required": [*names, *(members if required else ())],
    }
