"""A simulator of the OpenAI Realtime API (GA) and its Azure form: a strict server for tests, and a cheap one for load.

It follows the documented protocol to the letter and refuses what the service refuses. Without a script it echoes:

    async with open_simulator(Simulator()) as simulator:
        client = AsyncOpenAI(api_key="any", base_url=simulator.base_url)

A script says what the user says and what the model answers, here a user who cuts in after a second:

    script = Script(
        utterances=[Utterance("Which rooms are free?", at=0.5, seconds=1.5)],
        replies=[
            Reply("The first option is the blue room, which looks over the river.", pace=REAL_TIME,
                  barge_in=Utterance("And on Friday?", at=1.0), cancel_lag=0.3),
            Reply("Friday is free.", pace=REAL_TIME),
        ],
    )
    async with open_simulator(Simulator(script)) as simulator:
        ...
        assert simulator.connections[0].broken == []

What a client sent is in `simulator.connections[0].received`, with times; what it did wrong in `.broken`, by rule. `Connection.speak`,
`.happen` and `.expire` make things happen at the moment, `Faults(seed, …)` by chance. Under a mock clock `simulator.connect(nursery)`
gives a connection in memory.

As a process of its own, `python -m providers.openai.simulator --port 0` prints its URL and serves until it is stopped.
"""

from providers.openai.simulation.command import main
from providers.openai.simulation.connection import ClientClose as ClientClose
from providers.openai.simulation.connection import Connection as Connection
from providers.openai.simulation.connection import Observer as Observer
from providers.openai.simulation.connection import Received as Received
from providers.openai.simulation.connection import Sent as Sent
from providers.openai.simulation.core import Broken as Broken
from providers.openai.simulation.core import Opening as Opening
from providers.openai.simulation.core import RealtimeCore as RealtimeCore
from providers.openai.simulation.faults import Faults as Faults
from providers.openai.simulation.hearing import ScriptError as ScriptError
from providers.openai.simulation.rules import Rule as Rule
from providers.openai.simulation.script import AT_ONCE as AT_ONCE
from providers.openai.simulation.script import NOT_DEPLOYED as NOT_DEPLOYED
from providers.openai.simulation.script import REAL_TIME as REAL_TIME
from providers.openai.simulation.script import Asked as Asked
from providers.openai.simulation.script import Call as Call
from providers.openai.simulation.script import Cancelled as Cancelled
from providers.openai.simulation.script import Completed as Completed
from providers.openai.simulation.script import Disconnect as Disconnect
from providers.openai.simulation.script import Drop as Drop
from providers.openai.simulation.script import ErrorEvent as ErrorEvent
from providers.openai.simulation.script import Failed as Failed
from providers.openai.simulation.script import Incomplete as Incomplete
from providers.openai.simulation.script import Pace as Pace
from providers.openai.simulation.script import RateLimits as RateLimits
from providers.openai.simulation.script import Refusal as Refusal
from providers.openai.simulation.script import Reply as Reply
from providers.openai.simulation.script import Say as Say
from providers.openai.simulation.script import Script as Script
from providers.openai.simulation.script import Stall as Stall
from providers.openai.simulation.script import Stray as Stray
from providers.openai.simulation.script import Trouble as Trouble
from providers.openai.simulation.script import Usage as Usage
from providers.openai.simulation.script import Utterance as Utterance
from providers.openai.simulation.script import echo as echo
from providers.openai.simulation.server import Simulator as Simulator
from providers.openai.simulation.server import open_simulator as open_simulator
from providers.openai.simulation.sound import Format as Format
from providers.openai.simulation.sound import silence as silence
from providers.openai.simulation.sound import tone as tone
from providers.openai.simulation.wire import Closing as Closing
from providers.openai.simulation.wire import Frame as Frame

if __name__ == "__main__":
    main()
