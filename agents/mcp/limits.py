"""What connections to servers of tools have in common."""

from mcp.client._transport import TransportStreams  # the SDK exports the protocol of transports, and not what they give

MAX_MESSAGE_BYTES = 1 << 20
"""Of what a server says at once. Reading it takes some 10 ms, in which nobody else is served."""

Streams = TransportStreams
"""What comes from a server, and what goes to it."""


class ServerGoneError(Exception):
    """The connection to a server is over. Its text says why, as a sentence that goes on after a colon."""
