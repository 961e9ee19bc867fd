"""Several sessions, one after another, on one connection (SPEC L3)."""

import attrs

from engine.config import PipelineConfiguration
from engine.pipeline.line import ClientLine
from engine.session.services import Services


@attrs.frozen
class ConnectionEnd:
    """How a connection's work ended, and the WebSocket close code that says so."""

    code: int
    reason: str


async def run_connection(
    configuration: PipelineConfiguration, line: ClientLine, services: Services, *, owner: str
) -> ConnectionEnd:
    """Run the sessions of one connection until its input ends or the agent ends it.

    Cancelling it is how a door says that its client has vanished; the open session is then saved as DISCONNECTED, within the
    clean-up limit. Afterwards the line's output has ended and nothing of the connection runs.
    """
    raise NotImplementedError
