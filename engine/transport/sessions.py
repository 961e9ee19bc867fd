"""What happened: sessions with their turns, lines, usage and LLM log, over HTTP (protocol page, section 3; SPEC L22).

An admin reads every session, an owner those of their projects, everybody their own; a session of somebody else is not there. The
planner's whispers and the LLM log of an agent that does not show its steering (L13) are not for those who only talked to it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs
from pydantic import BaseModel, Field
from quart import Response
from quart_trio import QuartTrio

from engine.config import CamelModel
from engine.errors import ErrorCode, RemoteError
from engine.identity.permissions import may_read_session
from engine.principal import Principal
from engine.session.services import Services
from engine.store.contract import SessionFilter
from engine.store.documents import (
    EvaluationRecord,
    InstructionRecord,
    LogEntry,
    MessageDocument,
    SessionDocument,
    SessionState,
    SteeringRecord,
    TimingLog,
    ToolRecord,
    TurnDocument,
    TurnInputRecord,
    UsageDocument,
)
from engine.transport.answers import json_response, read_response, refused
from engine.transport.management.access import OWNERS_ONLY, managed_projects, manages, may_own
from engine.transport.openapi import (
    AFTER,
    AFTER_POSITION,
    IF_NONE_MATCH,
    LIMIT,
    Answer,
    Operation,
    Parameter,
    path_parameter,
)
from engine.transport.requests import read_page_query, read_position, read_query, require_principal

PATH = "/api/sessions"
FILTERS = ("owner", "project", "agent", "state")
NEXT = Field(description="What to pass as `after` for the next page; null on the last.")
UNSEEN = "The agent of this session does not show its steering to those who talk to it."


# --- what is shown -----------------------------------------------------------------------------------------------------


class SteeringView(SteeringRecord):
    """How planning has steered the session, over all its runs; as saved when it last ended."""

    used_share: float | None = Field(
        description="The share of instructions that were spoken or used; null when there was none."
    )


class SessionView(CamelModel):
    """A session, without its fence."""

    id: str
    state: SessionState
    key: str
    owner: str
    user_id: str
    user_name: str
    user_email: str
    device_ref: str = Field(description="A digest.")
    agent: str
    project_ref: str
    locale: str
    time_zone: str
    test_mode: bool
    created_at: datetime
    updated_at: datetime
    turn_count: int
    rating: int | None
    rating_text: str
    end_reason: str
    evaluations: list[EvaluationRecord]
    recordings: list[str]
    steering: SteeringView | None = Field(
        description="Null in lists, when nobody has planned, and for those who may not see the steering."
    )


class TurnOutputView(CamelModel):
    text: str = Field(description="What was made.")
    heard: str = Field(description="What of it the user heard.")


class TurnView(CamelModel):
    id: str
    index: int
    session_id: str
    started_at: datetime
    input: TurnInputRecord
    output: list[TurnOutputView]
    interrupted: bool
    tools: list[ToolRecord]
    instructions: list[InstructionRecord]
    multimodal: list[dict[str, Any]]
    timing: TimingLog = Field(description="Milliseconds from the turn's start.")


class SessionPage(CamelModel):
    items: list[SessionView]
    next: str | None = NEXT


class TurnPage(CamelModel):
    items: list[TurnView]
    next: str | None = NEXT


class MessagePage(CamelModel):
    items: list[MessageDocument]
    next: str | None = NEXT


class UsagePage(CamelModel):
    """One record for each run of the session. `cachedTokens` are part of `inputTokens`."""

    items: list[UsageDocument]
    next: str | None = NEXT


class LogPage(CamelModel):
    items: list[LogEntry]
    next: str | None = NEXT


class Redaction(CamelModel):
    redacted: int = Field(description="Entries whose content is gone.")


def shown_session(session: SessionDocument, *, with_steering: bool = False) -> SessionView:
    steering = shown_steering(session.steering) if with_steering and session.steering is not None else None
    return SessionView.model_validate({**session.model_dump(exclude={"fence", "steering"}), "steering": steering})


def shown_steering(steering: SteeringRecord) -> SteeringView:
    count = steering.instructions
    share = round((steering.spoken + steering.used) / count, 3) if count else None
    return SteeringView(**steering.model_dump(), used_share=share)


def shown_turn(turn: TurnDocument, *, with_steering: bool = True) -> TurnView:
    """A turn as the protocol page has it."""
    return TurnView(
        id=turn.id,
        index=turn.index,
        session_id=turn.session_id,
        started_at=turn.started_at,
        input=turn.input,
        output=[TurnOutputView(text=each.text, heard=each.heard) for each in turn.output],
        interrupted=turn.interrupted,
        tools=turn.tools,
        instructions=turn.instructions if with_steering else [],
        multimodal=turn.multimodal,
        timing=turn.timing,
    )


# --- handlers ----------------------------------------------------------------------------------------------------------


def add_sessions(app: QuartTrio, services: Services) -> Sequence[Operation]:
    """Returns their description."""
    routes = Sessions(services)
    app.add_url_rule(PATH, "sessions", routes.read_list)
    app.add_url_rule(f"{PATH}/<id:session_id>", "session", routes.read)
    app.add_url_rule(f"{PATH}/<id:session_id>/turns", "session turns", routes.read_turns)
    app.add_url_rule(f"{PATH}/<id:session_id>/messages", "session messages", routes.read_messages)
    app.add_url_rule(f"{PATH}/<id:session_id>/usage", "session usage", routes.read_usage)
    app.add_url_rule(f"{PATH}/<id:session_id>/llm-log", "session log", routes.read_log)
    app.add_url_rule(f"{PATH}/<id:session_id>/llm-log", "session log redaction", routes.redact_log, methods=["DELETE"])
    return OPERATIONS


@attrs.frozen
class Sessions:
    services: Services

    async def read_list(self) -> Response:
        principal = await require_principal(self.services)
        query = read_page_query(FILTERS)
        which = await self._filter(principal, query.others)
        found: list[SessionDocument] = []
        if which is not None:
            found = await self.services.store.list_sessions(which, limit=query.limit + 1, after=query.after or "")
        shown = [shown_session(session) for session in found[: query.limit]]
        return read_response(SessionPage(items=shown, next=shown[-1].id if len(found) > query.limit else None))

    async def read(self, session_id: str) -> Response:
        principal = await require_principal(self.services)
        read_query()
        session = await self._require(session_id, principal)
        with_steering = await self._sees_steering(principal, session)
        return read_response(shown_session(session, with_steering=with_steering))

    async def read_turns(self, session_id: str) -> Response:
        principal = await require_principal(self.services)
        query = read_page_query()
        session = await self._require(session_id, principal)
        with_steering = await self._sees_steering(principal, session)
        after, limit = read_position(query.after), query.limit
        turns = await self.services.store.get_turns(session_id, limit=limit + 1, after=after)
        shown = [shown_turn(turn, with_steering=with_steering) for turn in turns[:limit]]
        return read_response(TurnPage(items=shown, next=str(shown[-1].index) if len(turns) > limit else None))

    async def read_messages(self, session_id: str) -> Response:
        principal = await require_principal(self.services)
        query = read_page_query()
        await self._require(session_id, principal)
        after, limit = read_position(query.after), query.limit
        found = await self.services.store.get_messages(session_id, limit=limit + 1, after=after)
        following = str(found[limit - 1].position) if len(found) > limit else None
        return read_response(MessagePage(items=found[:limit], next=following))

    async def read_usage(self, session_id: str) -> Response:
        principal = await require_principal(self.services)
        query = read_page_query()
        await self._require(session_id, principal)
        after, limit = read_position(query.after) + 1, query.limit
        found = (await self.services.store.get_usage(session_id))[after:]
        return read_response(
            UsagePage(items=found[:limit], next=str(after + limit - 1) if len(found) > limit else None)
        )

    async def read_log(self, session_id: str) -> Response:
        principal = await require_principal(self.services)
        query = read_page_query()
        session = await self._require(session_id, principal)
        if not await self._sees_steering(principal, session):
            raise RemoteError(ErrorCode.FORBIDDEN, UNSEEN)
        after, limit = read_position(query.after), query.limit
        found = await self.services.store.get_log(session_id, limit=limit + 1, after=after)
        following = str(found[limit - 1].position) if len(found) > limit else None
        return read_response(LogPage(items=found[:limit], next=following))

    async def redact_log(self, session_id: str) -> Response:
        """Who wants to know what went wrong loses by it, so it is not for those who only talked."""
        principal = await require_principal(self.services)
        read_query()
        session = await self._require(session_id, principal)
        if not await self._manages(principal, session):
            raise RemoteError(ErrorCode.FORBIDDEN, OWNERS_ONLY)
        return json_response(Redaction(redacted=await self.services.store.redact_log(session_id)))

    # --- who may see what

    async def _filter(self, principal: Principal, asked: Mapping[str, str]) -> SessionFilter | None:
        """The sessions that are asked for, of those this one may read; None for none at all."""
        project, owner, state = asked.get("project"), asked.get("owner", ""), asked.get("state")
        if state is not None and state not in list(SessionState):
            raise refused(400, f"state has to be one of {', '.join(SessionState)}.")
        projects = None if project is None else frozenset((project,))
        if not principal.is_admin:
            theirs: frozenset[str] | None
            if may_own(principal) and owner != principal.owner:
                theirs = await managed_projects(principal, self.services)
            elif owner in ("", principal.owner) and principal.owner:
                theirs, owner = principal.projects, principal.owner
            else:
                return None
            projects = theirs if projects is None else projects if theirs is None else projects & theirs
        if projects is not None and not projects:
            return None
        wanted = None if state is None else SessionState(state)
        return SessionFilter(owner, projects, asked.get("agent", ""), wanted)

    async def _require(self, session_id: str, principal: Principal) -> SessionDocument:
        """Raises NotFoundError also for a session of somebody else."""
        session = await self.services.store.get_session(session_id)
        project = None
        if session is not None and session.project_ref:
            project = await self.services.catalog.project(session.project_ref)
        return may_read_session(principal, session, project)

    async def _manages(self, principal: Principal, session: SessionDocument) -> bool:
        if principal.is_admin:
            return True
        project = await self.services.catalog.project(session.project_ref) if session.project_ref else None
        return manages(principal, project)

    async def _sees_steering(self, principal: Principal, session: SessionDocument) -> bool:
        if await self._manages(principal, session) or not session.agent:
            return True
        found = await self.services.catalog.agent(session.agent)
        return found is not None and found[0].show_steering


# --- the description -----------------------------------------------------------------------------------------------------

_ID = path_parameter("id", "The session's id.")
_PAGE = (LIMIT, AFTER_POSITION)
_READ = (400, 401, 403, 404, 503)
_UNCHANGED = Answer(None, "Not changed since the answer with the entity tag in If-None-Match.", ("ETag",))


def _reading(path: str, summary: str, answer: type[BaseModel], parameters: tuple[Parameter, ...]) -> Operation:
    return Operation(
        path,
        summary,
        {200: Answer(answer, headers=("ETag",)), 304: _UNCHANGED},
        parameters=(*parameters, IF_NONE_MATCH),
        refusals=_READ if path != PATH else tuple(status for status in _READ if status != 404),
        security="required",
        tag="sessions",
    )


OPERATIONS = (
    _reading(
        PATH,
        "Sessions, newest first",
        SessionPage,
        (
            LIMIT,
            AFTER,
            Parameter("owner", {"type": "string"}, description="As sessions show it."),
            Parameter("project", {"type": "string"}),
            Parameter("agent", {"type": "string"}),
            Parameter("state", {"type": "string", "enum": list(SessionState)}),
        ),
    ),
    _reading(f"{PATH}/{{id}}", "A session", SessionView, (_ID,)),
    _reading(f"{PATH}/{{id}}/turns", "Its turns", TurnPage, (_ID, *_PAGE)),
    _reading(f"{PATH}/{{id}}/messages", "Its lines, when it has no turns", MessagePage, (_ID, *_PAGE)),
    _reading(f"{PATH}/{{id}}/usage", "What its runs have used", UsagePage, (_ID, *_PAGE)),
    _reading(f"{PATH}/{{id}}/llm-log", "What its models were told, and what they said", LogPage, (_ID, *_PAGE)),
    Operation(
        f"{PATH}/{{id}}/llm-log",
        "Redact its LLM log: the content goes, names and numbers stay",
        {200: Answer(Redaction)},
        method="delete",
        parameters=(_ID,),
        refusals=_READ,
        security="required",
        tag="sessions",
    ),
)
