"""A simulator of OpenAI's chat completions: a strict server for tests, and a cheap one for load.

It takes what the service takes and refuses what the service refuses, in its words. Without a script it says what it heard:

    async with open_chat_simulator() as simulator:
        client = AsyncOpenAI(api_key="any", base_url=simulator.base_url)

A script says what the models answer, here a tool call, words at the speed of speech, a judge that is told by its prompt, and an
endpoint that is busy once:

    script = Script(
        replies=[Reply(calls=[Call("free_rooms", {"day": "Friday"})]), "The blue room is free."],
        when=[
            When(Reply({"verdict": "good"}), system="you are a judge"),
            When([RATE_LIMITED, "At last."], says="hurry"),
        ],
        pace=Pace(first_after=0.3, token_seconds=0.02),
    )
    async with open_chat_simulator(script) as simulator:
        ...
        assert simulator.broken == []
        assert simulator.requests[0].body["temperature"] == 0.2

What goes wrong is a `Reply`'s `mishaps`, each at its place, or a matter of chance: `Faults(seed, …)`. A reply that no model could give
to a request (a tool that is not offered, JSON that does not fit the format) is the test's mistake and raises `ScriptError` in the
server's nursery; `Reply(is_held=False)` is for services that are as bad as that.

Under a mock clock, `MemoryTransport(simulator, nursery)` connects the SDK's own HTTP client in memory. As a process of its own,
`python -m providers.chat.simulator --port 0` prints its base URL and serves until it is stopped.

What it does not do: sound, pictures in answers, web search, moderation, custom tools, the deprecated functions. They are refused with
the code `not_simulated`.
"""

from providers.chat.simulation.command import main
from providers.chat.simulation.core import Model as Model
from providers.chat.simulation.core import RateLimit as RateLimit
from providers.chat.simulation.core import Request as Request
from providers.chat.simulation.faults import Faults as Faults
from providers.chat.simulation.memory import MEMORY_URL as MEMORY_URL
from providers.chat.simulation.memory import MemoryTransport as MemoryTransport
from providers.chat.simulation.refusals import BAD_GATEWAY as BAD_GATEWAY
from providers.chat.simulation.refusals import BROKEN_SERVICE as BROKEN_SERVICE
from providers.chat.simulation.refusals import FILTERED_PROMPT as FILTERED_PROMPT
from providers.chat.simulation.refusals import NO_QUOTA as NO_QUOTA
from providers.chat.simulation.refusals import OVERLOADED as OVERLOADED
from providers.chat.simulation.refusals import RATE_LIMITED as RATE_LIMITED
from providers.chat.simulation.refusals import Refusal as Refusal
from providers.chat.simulation.script import AT_ONCE as AT_ONCE
from providers.chat.simulation.script import COMMENT as COMMENT
from providers.chat.simulation.script import ECHO as ECHO
from providers.chat.simulation.script import GARBAGE as GARBAGE
from providers.chat.simulation.script import Answer as Answer
from providers.chat.simulation.script import Asked as Asked
from providers.chat.simulation.script import Call as Call
from providers.chat.simulation.script import Disconnect as Disconnect
from providers.chat.simulation.script import Drop as Drop
from providers.chat.simulation.script import Duplicate as Duplicate
from providers.chat.simulation.script import ErrorEvent as ErrorEvent
from providers.chat.simulation.script import Mishap as Mishap
from providers.chat.simulation.script import Pace as Pace
from providers.chat.simulation.script import Place as Place
from providers.chat.simulation.script import Raw as Raw
from providers.chat.simulation.script import Reply as Reply
from providers.chat.simulation.script import Script as Script
from providers.chat.simulation.script import ScriptError as ScriptError
from providers.chat.simulation.script import Stall as Stall
from providers.chat.simulation.script import Usage as Usage
from providers.chat.simulation.script import When as When
from providers.chat.simulation.script import echo as echo
from providers.chat.simulation.server import ChatSimulator as ChatSimulator
from providers.chat.simulation.server import open_chat_simulator as open_chat_simulator

if __name__ == "__main__":
    main()
