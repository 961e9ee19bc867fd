"""Simulators whose every frame is held against the SDK and the protocol when the test is over."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from providers.openai.simulation.admission import Admitted
from providers.openai.simulator import Connection, Simulator
from tests.providers.openai.simulator.gate import hold_client_event, hold_server_frame
from tests.providers.openai.simulator.order import Order

MakeSimulator = Callable[..., Simulator]


def hold(connection: Connection) -> None:
    """Hold all frames of a connection, both ways; what was refused is not held."""
    outcome = connection.outcome
    azure = isinstance(outcome, Admitted) and outcome.azure
    preview = isinstance(outcome, Admitted) and outcome.preview
    order = Order()
    for sent in connection.sent:
        hold_server_frame(sent.frame, azure=azure, preview=preview)
        if not preview:
            order.see(sent.event)
    refused = [broken.event for broken in connection.broken if broken.refused]
    for received in connection.received:
        if received.event is not None and received.event not in refused:
            hold_client_event(received.event, preview=preview)


@pytest.fixture
def make_simulator() -> Iterator[MakeSimulator]:
    made: list[Simulator] = []

    def make(*args: Any, **options: Any) -> Simulator:
        simulator = Simulator(*args, **options)
        made.append(simulator)
        return simulator

    yield make
    for simulator in made:
        for connection in simulator.connections:
            hold(connection)
