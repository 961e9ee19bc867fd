"""GET /api/agents, which anybody may ask: who there is to talk to. Those who manage agents are shown these instead."""

from collections.abc import Sequence
from functools import partial

from pydantic import Field
from quart import Response
from quart_trio import QuartTrio

from engine.config import CamelModel
from engine.elements import JsonObject
from engine.interfaces import ManagedDocuments
from engine.session.services import Services
from engine.store.documents import ResourceKind
from engine.transport.answers import read_response, refused
from engine.transport.management.access import may_own
from engine.transport.management.routes import list_schema
from engine.transport.management.simple import Agents
from engine.transport.openapi import AFTER, IF_NONE_MATCH, PAGE_LIMIT, Answer, Operation, Parameter, Schema
from engine.transport.requests import PageQuery, read_page_query, read_principal

PATH = "/api/agents"
LIMIT = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": PAGE_LIMIT, "default": PAGE_LIMIT})


class AgentItem(CamelModel):
    ref: str
    name: str


class AgentPage(CamelModel):
    items: list[AgentItem]
    next: str | None = Field(description="What to pass as `after` for the next page; null on the last.")


def add_agents(app: QuartTrio, services: Services) -> Sequence[Operation]:
    """Returns its description."""
    app.add_url_rule(PATH, "agents", partial(_agents, services))
    shape = AgentPage if services.documents is None else _either(services.documents)
    return [
        Operation(
            PATH,
            "Published agents of public projects; for an owner or admin the agents they manage, by ref",
            {200: Answer(shape, headers=("ETag",)), 304: Answer(None, headers=("ETag",))},
            parameters=(LIMIT, AFTER, IF_NONE_MATCH),
            refusals=(400, 401, 403, 503),
            security="optional",
        )
    ]


def _either(documents: ManagedDocuments) -> Schema:
    managed = list_schema(Agents, "Agent", ResourceKind.AGENT, documents)
    definitions: JsonObject = dict(managed.schema["$defs"])
    definitions[managed.name] = {name: value for name, value in managed.schema.items() if name != "$defs"}
    published = AgentPage.model_json_schema(by_alias=True, mode="serialization")
    definitions |= published.pop("$defs")
    definitions["AgentPage"] = published
    either = [{"$ref": "#/$defs/AgentPage"}, {"$ref": f"#/$defs/{managed.name}"}]
    return Schema("Agents", {"anyOf": either, "$defs": definitions})


async def _agents(services: Services) -> Response:
    principal = await read_principal(services)
    query = read_page_query(default=PAGE_LIMIT)
    if services.documents is not None and may_own(principal):
        return await Agents(services, services.documents).read_list(query)
    return read_response(await _published(services, query))


async def _published(services: Services, query: PageQuery) -> AgentPage:
    agents = list(await services.catalog.published_agents())
    start = 0
    if query.after is not None:
        refs = [agent.ref for agent in agents]
        if query.after not in refs:
            raise refused(400, "after has to be the next of an earlier answer.")
        start = refs.index(query.after) + 1
    end = start + query.limit
    shown = [AgentItem(ref=agent.ref, name=agent.name) for agent in agents[start:end]]
    return AgentPage(items=shown, next=shown[-1].ref if end < len(agents) else None)
