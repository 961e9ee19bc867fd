"""From a connection's wishes to a session that is ready to run (SPEC L2, L5, L9)."""

import hashlib
import logging
from functools import partial

import attrs
import trio

from engine.config import PipelineConfiguration, RealtimeProperties
from engine.errors import ConfigurationError, ErrorCode, NotFoundError, RemoteError, Whose
from engine.identity.permissions import check_minutes, may_talk
from engine.interfaces import (
    Agent,
    Context,
    InteractionManager,
    Message,
    RealtimeModel,
    RealtimeSession,
    Recognizer,
    Role,
    SessionLog,
    SystemPrompt,
    ToolBox,
    TurnInteractionManager,
    TurnlessInteractionManager,
)
from engine.outside import note_told, recognizer_at, session_at
from engine.principal import Principal
from engine.session.live import Cut
from engine.session.llm_log import StoredLog
from engine.session.memory import StoredMemory
from engine.session.services import Services
from engine.store.contract import StoreError
from engine.store.documents import LogKind, SessionDocument, SessionState, TurnDocument
from engine.timing import timed

logger = logging.getLogger(__name__)

AGENT_SETUP = "agent"
SETUPS = frozenset({AGENT_SETUP, "realtime", "realtime-preview"})
NO_RECOGNITION = "None"
HISTORY_TURNS = 200
"""Turns read back on a reconnect; the model gets what fits its own bound."""


@attrs.frozen
class PreparedSession:
    """All parts of a session, connected to nothing yet."""

    context: Context
    manager: InteractionManager
    model: RealtimeModel
    tool_box: ToolBox
    session: RealtimeSession
    recognizer: Recognizer | None
    """The engine's own recognition; None when the model recognizes by itself, or when there is none."""
    deaf: str
    """Why audio cannot be taken in; empty when it can."""
    log: StoredLog
    history: tuple[Message, ...]
    stored: int
    """Turns stored by earlier runs; lines, of a conversation without turns."""
    warnings: tuple[str, ...]


def split_key(key: str) -> tuple[str, str]:
    """`setup:reference` (protocol page, section 1)."""
    setup, _, reference = key.partition(":")
    return setup, reference


def stored_owner(principal: Principal) -> str:
    """How an owner is stored and shown: the ref of an anonymous one is a secret that opens its sessions, so only its digest."""
    return principal.owner if principal.user_id else digest(principal.owner)


def digest(secret: str) -> str:
    return "anonymous-" + hashlib.sha256(secret.encode()).hexdigest()[:24]


async def open_document(
    configuration: PipelineConfiguration, services: Services, *, principal: Principal
) -> SessionDocument:
    """The session's document in state OPEN, written before its agent is known (L5).

    Not cancelled in the middle: nobody would know whether the session was opened, and close it. The store has its time limit.

    Raises:
        RemoteError: the session is another owner's, or the store cannot be reached.
    """
    now = services.environment.wall_clock()
    document = SessionDocument(
        id=configuration.session_id or services.environment.new_id("session"),
        key=configuration.key,
        owner=stored_owner(principal),
        user_id=principal.user_id,
        user_name=principal.name,
        user_email=principal.email,
        device_ref=digest(f"device:{configuration.device_ref}") if configuration.device_ref else "",
        locale=configuration.locale,
        time_zone=configuration.time_zone,
        test_mode=configuration.test_mode,
        created_at=now,
        updated_at=now,
    )
    try:
        with trio.move_on_after(services.settings.session_start_seconds, shield=True):
            return await services.store.open_session(document)
        raise StoreError("The store did not answer in time.")
    except NotFoundError:
        raise RemoteError(ErrorCode.FORBIDDEN, "This session id cannot be used; connect without one.") from None
    except StoreError as exc:
        raise RemoteError(
            ErrorCode.INTERNAL, "The session could not be stored; try again later.", whose=Whose.SERVER
        ) from exc


def open_log(document: SessionDocument, services: Services) -> StoredLog:
    """The LLM log of this run of the session (L22)."""
    return StoredLog(services.store, services.environment, document.id, document.fence)


async def make_context(
    configuration: PipelineConfiguration,
    document: SessionDocument,
    services: Services,
    *,
    principal: Principal,
    log: SessionLog,
) -> Context:
    """What the conversation is about, after the permission and subscription checks (L2, L5, L8).

    Raises:
        RemoteError: what was asked for does not exist, is not allowed or not installed; says what.
    """
    try:
        agent, project_ref, properties = await resolve(configuration, services)
        shared = await services.catalog.shared_agents(agent.ref) if agent else dict[str, str]()
        await authorize(principal, project_ref, services, missing=no_such(configuration))
    except StoreError as exc:
        message = "The agent could not be looked up; try again later."
        raise RemoteError(ErrorCode.INTERNAL, message, whose=Whose.SERVER) from exc
    document = document.model_copy(
        update={
            "user_id": principal.user_id or document.owner,
            "user_name": principal.name or document.user_name,
            "user_email": principal.email or document.user_email,
            "agent": agent.ref if agent else "",
            "project_ref": project_ref,
            "key": configuration.key,
            "locale": configuration.locale,
            "time_zone": configuration.time_zone,
            "test_mode": configuration.test_mode,
            "updated_at": services.environment.wall_clock(),
        }
    )
    return Context(
        configuration=configuration,
        session=document,
        properties=properties,
        environment=services.environment,
        content=agent,
        principal=principal,
        log=log,
        memory=StoredMemory(services.store, services.environment, document),
        observer=services.observer,
        settings=services.settings,
        project_ref=project_ref,
        shared_agents=shared,
    )


def no_such(configuration: PipelineConfiguration) -> str:
    """The sentence for what is not there, or not for this one: nobody can tell which."""
    setup, reference = split_key(configuration.key)
    if setup == AGENT_SETUP:
        return f"There is no agent {reference[:80]!r}."
    return f"There is no realtime configuration {configuration.realtime_configuration_id[:80]!r}."


async def authorize(principal: Principal, project_ref: str, services: Services, *, missing: str) -> None:
    """Whether this one may talk in that project, and whether the project has minutes left. Before anything is opened.

    Raises:
        RemoteError: NOT_FOUND, FORBIDDEN or QUOTA.
        StoreError: it cannot be found out now.
    """
    access = await services.catalog.project(project_ref)
    may_talk(principal, access, missing=missing)
    if access is not None and access.minutes_per_month is not None:
        now = services.environment.wall_clock()
        month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        check_minutes(access, await services.store.active_seconds(project_ref, since=month))


async def prepare(context: Context, services: Services, log: StoredLog) -> PreparedSession:
    """Save, manager, model, start hook, prompt with history, tool box, session: in this order (L9). The caller bounds it.

    Raises:
        RemoteError: what is needed is not installed; says what.
        TakenOverError: the session has another holder by now.
    """
    await _save(context.session, services)
    manager = find_manager(context.configuration.key, context.content, context.properties, services)
    model = services.models.get(context.properties.provider)
    if model is None:
        message = f"The provider {context.properties.provider} is not installed on this server."
        raise RemoteError(ErrorCode.MODEL_NOT_FOUND, message, whose=Whose.SERVER)
    with timed(context, "manager"):
        await manager.on_session_start(context)
    with timed(context, "history"):
        history, stored = await read_history(context, services)
    context.messages = history
    context.is_reconnect = bool(history)
    with timed(context, "prompt"):
        prompt = await manager.get_system_prompt(context, model)
    context.log.record(LogKind.PROMPT, {"templateId": prompt.template_id, "text": prompt.text}, component="speaker")
    return _assemble(context, manager, model, prompt, log, history, stored, services)


def _assemble(
    context: Context,
    manager: InteractionManager,
    model: RealtimeModel,
    prompt: SystemPrompt,
    log: StoredLog,
    history: tuple[Message, ...],
    stored: int,
    services: Services,
) -> PreparedSession:
    tool_box = manager.get_tool_box(context)
    note_told(context, prompt)
    if model.passes_boundary:
        session = model.process(context, prompt, tool_box)
    else:
        session = session_at(context.boundary, model.name, partial(model.process, context, prompt, tool_box))
    warnings = context.configuration.warnings
    if context.content is not None and context.configuration.realtime_configuration_id:
        warnings = (*warnings, "realtimeConfigurationId is ignored: an agent has its own.")
    recognizer, deaf = _recognizer(context, services)
    if deaf:
        warnings = (*warnings, deaf)
    return PreparedSession(context, manager, model, tool_box, session, recognizer, deaf, log, history, stored, warnings)


async def resolve(
    configuration: PipelineConfiguration, services: Services
) -> tuple[Agent | None, str, RealtimeProperties]:
    """The agent (none for the realtime setups), the project and the realtime properties of a key.

    Raises:
        StoreError: it cannot be looked up now.
        RemoteError: the setup is unknown or not allowed, the agent or the configuration does not exist.
    """
    setup, reference = split_key(configuration.key)
    allowed = services.settings.allowed_setup_names
    if setup not in SETUPS or (allowed and setup not in allowed):
        raise RemoteError(ErrorCode.SETUP_NOT_ALLOWED, f"The setup {setup[:40]!r} is not available on this server.")
    if setup == AGENT_SETUP:
        found = await services.catalog.agent(reference)
        if found is None:
            raise NotFoundError(no_such(configuration))
        agent, project_ref = found
        configured = await services.catalog.realtime_configuration(agent.realtime_configuration_id)
        if configured is None:
            raise NotFoundError(f"The agent {agent.ref!r} has no realtime configuration.")
        return agent, project_ref, configured[0]
    configuration_id = configuration.realtime_configuration_id
    if not configuration_id:
        raise NotFoundError(f"The setup {setup!r} needs a realtimeConfigurationId.")
    configured = await services.catalog.realtime_configuration(configuration_id)
    if configured is None:
        raise NotFoundError(no_such(configuration))
    return None, configured[1], configured[0]


def find_manager(
    key: str, agent: Agent | None, properties: RealtimeProperties, services: Services
) -> InteractionManager:
    """The manager of the setup whose content classes contain the content's, else the one that claims none (L2).

    Raises:
        RemoteError: none fits, or it does not fulfil the contract that the model asks for (L19).
    """
    setup, _ = split_key(key)
    candidates = [manager for manager in services.managers if setup in manager.setups]
    chosen: InteractionManager | None = next(
        (m for m in candidates if agent is not None and isinstance(agent, m.content_classes)), None
    )
    if chosen is None:
        chosen = next((m for m in candidates if not m.content_classes), None)
    if chosen is None:
        kind = type(agent).__name__ if agent is not None else "no agent"
        message = f"Nothing on this server can hold a conversation of setup {setup!r} with {kind}."
        raise RemoteError(ErrorCode.SETUP_NOT_ALLOWED, message, whose=Whose.SERVER)
    contract = TurnlessInteractionManager if properties.is_turnless else TurnInteractionManager
    if not isinstance(chosen, contract):
        kind = "without turns" if properties.is_turnless else "in turns"
        message = f"{type(chosen).__name__} cannot drive a conversation {kind}."
        raise RemoteError(ErrorCode.INTERNAL, message, whose=Whose.SERVER)
    return chosen


def _recognizer(context: Context, services: Services) -> tuple[Recognizer | None, str]:
    """The engine's recognition, or why there is none: a conversation can still be typed without it."""
    name = context.properties.stt_provider
    if name == NO_RECOGNITION:
        return None, ""

    def make() -> Recognizer:
        factory = services.recognizers.get(name)
        if factory is None:
            raise ConfigurationError(f"the recognizer {name!r} is not installed")
        recognizer: Recognizer = factory(context.properties.recognition)
        return recognizer

    try:
        recognizer = recognizer_at(context.boundary, name, make)
    except ConfigurationError as exc:
        logger.error("speech is not recognized: %s", exc)
        return None, f"Speech is not recognized on this server: {name} is not available. Typing works."
    return recognizer, ""


async def _save(document: SessionDocument, services: Services) -> None:
    try:
        await services.store.save_session(document)
    except StoreError:
        logger.warning("session %s could not be saved at its start; it is saved again at its end", document.id)


async def read_history(context: Context, services: Services) -> tuple[tuple[Message, ...], int]:
    """What was said in earlier runs of this session, and how many turns, or lines of a conversation without turns, are stored."""
    session_id, bound = context.session.id, services.settings.history_messages
    try:
        if context.properties.is_turnless:
            lines = await services.store.get_messages(session_id, limit=bound, last=True)
            said = tuple(Message(Role(line.role), line.text) for line in lines)
            return said, lines[-1].position + 1 if lines else 0
        turns = await services.store.get_turns(session_id, limit=HISTORY_TURNS, last=True)
    except StoreError:
        logger.warning("the history of session %s could not be read", session_id)
        return (), context.session.turn_count
    messages = [message for turn in turns for message in _messages(turn)]
    stored = turns[-1].index + 1 if turns else 0
    return tuple(messages[-bound:]), stored


def _messages(turn: TurnDocument) -> list[Message]:
    said: list[Message] = []
    if turn.input.text and turn.input.kind in {"speech", "text"}:
        said.append(Message(Role.USER, turn.input.text, turn.id))
    said.extend(Message(Role.ASSISTANT, output.heard, turn.id) for output in turn.output if output.heard.strip())
    return said


@attrs.frozen
class SessionEnd:
    """How a session ended."""

    session_id: str
    state: SessionState
    reason: str
    error: RemoteError | None = None
    cut: Cut | None = None
    """What ended it from outside, when something did."""
