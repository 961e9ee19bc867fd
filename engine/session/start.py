"""From a connection's wishes to a session that is ready to run (SPEC L2, L5, L9)."""

import hashlib
import logging

import attrs
import trio

from engine.config import PipelineConfiguration, RealtimeProperties
from engine.errors import ConfigurationError, ErrorCode, NotFoundError, RealtimeException, RemoteError, Whose
from engine.interfaces import (
    Agent,
    Context,
    InteractionManager,
    Message,
    RealtimeModel,
    RealtimeSession,
    Recognizer,
    Role,
    SystemPrompt,
    ToolBox,
    TurnInteractionManager,
    TurnlessInteractionManager,
)
from engine.session.services import Services
from engine.store.contract import StoreError
from engine.store.documents import SessionDocument, SessionState, TurnDocument

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
    history: tuple[Message, ...]
    stored_turns: int
    warnings: tuple[str, ...]


def split_key(key: str) -> tuple[str, str]:
    """`setup:reference` (protocol page, section 1)."""
    setup, _, reference = key.partition(":")
    return setup, reference


def owner_id(owner: str) -> str:
    """How an owner is stored and shown: a device ref is a secret that opens its sessions, so only its digest is."""
    return "anonymous-" + hashlib.sha256(owner.encode()).hexdigest()[:24]


async def open_document(configuration: PipelineConfiguration, services: Services, *, owner: str) -> SessionDocument:
    """The session's document in state OPEN, written before its agent is known (L5).

    Raises:
        RemoteError: the session is another owner's, or the store cannot be reached.
    """
    now = services.environment.wall_clock()
    document = SessionDocument(
        id=configuration.session_id or services.environment.new_id("session"),
        key=configuration.key,
        owner=owner_id(owner),
        device_ref=owner_id(configuration.device_ref) if configuration.device_ref else "",
        locale=configuration.locale,
        time_zone=configuration.time_zone,
        test_mode=configuration.test_mode,
        created_at=now,
        updated_at=now,
    )
    try:
        with trio.move_on_after(services.settings.session_start_seconds):
            return await services.store.open_session(document)
        raise StoreError("The store did not answer in time.")
    except NotFoundError:
        raise RemoteError(ErrorCode.FORBIDDEN, "This session id cannot be used; connect without one.") from None
    except StoreError as exc:
        raise RemoteError(
            ErrorCode.INTERNAL, "The session could not be stored; try again later.", whose=Whose.SERVER
        ) from exc


async def prepare(
    configuration: PipelineConfiguration, document: SessionDocument, services: Services
) -> PreparedSession:
    """Context, check and save, manager, model, start hook, prompt with history, tool box, session: in this order (L9).

    Raises:
        RemoteError: what was asked for does not exist, is not allowed or not installed; says what.
    """
    agent, project_ref, properties = resolve(configuration, services)
    document = document.model_copy(
        update={
            "state": SessionState.OPEN,
            "user_id": document.owner,
            "agent": agent.ref if agent else "",
            "project_ref": project_ref,
            "updated_at": services.environment.wall_clock(),
        }
    )
    context = Context(
        configuration=configuration,
        session=document,
        properties=properties,
        environment=services.environment,
        content=agent,
        project_ref=project_ref,
    )
    with trio.move_on_after(services.settings.session_start_seconds) as limit:
        await _save(document, services)
        manager = find_manager(configuration.key, agent, properties, services)
        model = services.models.get(properties.provider)
        if model is None:
            raise RemoteError(
                ErrorCode.MODEL_NOT_FOUND,
                f"The provider {properties.provider} is not installed on this server.",
                whose=Whose.SERVER,
            )
        await manager.on_session_start(context)
        history, stored = await _history(context, services)
        context.messages = history
        context.is_reconnect = bool(history)
        prompt = await manager.get_system_prompt(context, model)
        return _assemble(context, manager, model, prompt, history, stored, services)
    assert limit.cancelled_caught
    raise RealtimeException(ErrorCode.INTERNAL, "The agent took too long to get ready.", whose=Whose.SERVER)


def _assemble(
    context: Context,
    manager: InteractionManager,
    model: RealtimeModel,
    prompt: SystemPrompt,
    history: tuple[Message, ...],
    stored: int,
    services: Services,
) -> PreparedSession:
    tool_box = manager.get_tool_box(context)
    session = model.process(context, prompt, tool_box)
    warnings = context.configuration.warnings
    if context.content is not None and context.configuration.realtime_configuration_id:
        warnings = (*warnings, "realtimeConfigurationId is ignored: an agent has its own.")
    recognizer, deaf = _recognizer(context.properties, services)
    if deaf:
        warnings = (*warnings, deaf)
    return PreparedSession(context, manager, model, tool_box, session, recognizer, deaf, history, stored, warnings)


def resolve(configuration: PipelineConfiguration, services: Services) -> tuple[Agent | None, str, RealtimeProperties]:
    """The agent (none for the realtime setups), its project and the realtime properties of a key.

    Raises:
        RemoteError: the setup is unknown or not allowed, the agent or the configuration does not exist.
    """
    setup, reference = split_key(configuration.key)
    allowed = services.settings.allowed_setup_names
    if setup not in SETUPS or (allowed and setup not in allowed):
        raise RemoteError(ErrorCode.SETUP_NOT_ALLOWED, f"The setup {setup[:40]!r} is not available on this server.")
    if setup == AGENT_SETUP:
        found = services.catalog.agent(reference)
        if found is None:
            raise NotFoundError(f"There is no agent {reference[:80]!r}.")
        agent, project_ref = found
        properties = services.catalog.realtime_properties(agent.realtime_configuration_id)
        if properties is None:
            raise NotFoundError(f"The agent {agent.ref!r} has no realtime configuration.")
        return agent, project_ref, properties
    configuration_id = configuration.realtime_configuration_id
    if not configuration_id:
        raise NotFoundError(f"The setup {setup!r} needs a realtimeConfigurationId.")
    properties = services.catalog.realtime_properties(configuration_id)
    if properties is None:
        raise NotFoundError(f"There is no realtime configuration {configuration_id[:80]!r}.")
    return None, "", properties


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


def _recognizer(properties: RealtimeProperties, services: Services) -> tuple[Recognizer | None, str]:
    """The engine's recognition, or why there is none: a conversation can still be typed without it."""
    name = properties.stt_provider
    if name == NO_RECOGNITION:
        return None, ""
    factory = services.recognizers.get(name)
    try:
        if factory is None:
            raise ConfigurationError(f"the recognizer {name!r} is not installed")
        recognizer: Recognizer = factory(properties.recognition)
    except ConfigurationError as exc:
        logger.error("speech is not recognized: %s", exc)
        return None, f"Speech is not recognized on this server: {name} is not available. Typing works."
    return recognizer, ""


async def _save(document: SessionDocument, services: Services) -> None:
    try:
        await services.store.save_session(document)
    except StoreError:
        logger.warning("session %s could not be saved at its start; it is saved again at its end", document.id)


async def _history(context: Context, services: Services) -> tuple[tuple[Message, ...], int]:
    """What was said in earlier runs of this session, and how many turns are stored."""
    try:
        turns = await services.store.get_turns(context.session.id, limit=HISTORY_TURNS, last=True)
    except StoreError:
        logger.warning("the history of session %s could not be read", context.session.id)
        return (), context.session.turn_count
    messages = [message for turn in turns for message in _messages(turn)]
    stored = turns[-1].index + 1 if turns else 0
    return tuple(messages[-services.settings.history_messages :]), stored


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
