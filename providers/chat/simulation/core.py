"""The service itself: which requests it takes, what it answers and in which steps. Sans-I/O; the time comes in as an argument."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Literal
from urllib.parse import unquote, urlsplit

import attrs
import orjson

from providers.chat.simulation import completion, refusals, shapes
from providers.chat.simulation.checks import Json
from providers.chat.simulation.completion import Frame, Written
from providers.chat.simulation.faults import Chance, Faults
from providers.chat.simulation.refusals import Refusal, Refused
from providers.chat.simulation.script import (
    Answer,
    Asked,
    Disconnect,
    Duplicate,
    ErrorEvent,
    Mishap,
    Pace,
    Place,
    Raw,
    Reply,
    Script,
    ScriptError,
    Stall,
    Where,
)
from providers.chat.simulation.steps import Body, End, Head, Lose, Step, Wait

COMPLETIONS_PATH = "/v1/chat/completions"
MODELS_PATH = "/v1/models"
CREATED = 1_700_000_000
"""When all models were made."""
JSON_TYPE = ("content-type", "application/json")
STREAM_TYPE = ("content-type", "text/event-stream; charset=utf-8")
ANY_MODEL = "simulated"
"""The one that is listed when any is known."""

Outcome = Literal["pending", "answered", "lost", "left"]
"""Of a request: not yet, to its end, the connection was made to break, the client has gone before the end."""


@attrs.frozen
class Model:
    """A model the service knows."""

    name: str
    is_reasoning: bool = False
    """It refuses `max_tokens`, a temperature of its own and the like."""
    context_tokens: int | None = None
    """The longest prompt, by the simulator's own count."""


@attrs.frozen
class RateLimit:
    """So many requests in so many seconds."""

    requests: int
    seconds: float = 60.0


@attrs.define(eq=False)
class Request:
    """A request, as it came and what became of it. Names of headers are in lower case."""

    number: int
    """Of all requests, from 0."""
    at: float
    """When its body was complete, in the time the service is given."""
    method: str
    target: str
    headers: Mapping[str, str]
    data: bytes = attrs.field(repr=False)
    body: Json = attrs.field(factory=dict[str, object])
    """Empty when it is no JSON object."""
    broken: Refusal | None = None
    """What the client did wrong; None for a refusal that is the script's, or by chance."""
    answer: Answer | None = None
    """The script's."""
    status: int = 0
    sent: list[bytes] = attrs.field(factory=list[bytes], repr=False)
    """The parts of the body: the events of a stream."""
    outcome: Outcome = "pending"
    steps: Iterator[Step] = attrs.field(default=iter(()), repr=False)
    """What there is still to be done."""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def events(self) -> list[Json]:
        """The chunks that were sent, without the end marker, comments and what is no JSON."""
        found: list[Json] = []
        for part in self.sent:
            data = part.removeprefix(b"data: ").strip()
            if data.startswith(b"{"):
                try:
                    found.append(orjson.loads(data))
                except orjson.JSONDecodeError:
                    continue
        return found


class ChatService:
    """Answers requests, one after the other in the order of their completion.

    Args:
        script: What the models answer.
        keys: The API keys that are known; None for any.
        needs_key: Whether a request without a key is refused.
        models: The models that are known; None for all.
        rate_limit: Requests beyond it get HTTP 429.
        faults: What goes wrong by chance.
        wall_clock: Seconds since the epoch, for `created`.
    """

    def __init__(
        self,
        script: Script,
        *,
        keys: Collection[str] | None,
        needs_key: bool,
        models: Iterable[str | Model] | None,
        rate_limit: RateLimit | None,
        faults: Faults | None,
        wall_clock: Callable[[], float],
    ) -> None:
        self._keys = keys
        self._needs_key = needs_key
        self._models: dict[str, Model] | None = None
        if models is not None:
            given = (Model(model) if isinstance(model, str) else model for model in models)
            self._models = {model.name: model for model in given}
        self._rate_limit = rate_limit
        self.faults = faults
        self._wall_clock = wall_clock
        self._arrivals: deque[float] = deque()
        self._requests = 0
        self._asked = 0
        self.play(script)

    def play(self, script: Script) -> None:
        """Play a script from its beginning."""
        self.script = script
        self._replied = 0
        self._fitted: Counter[int] = Counter()

    def receive(self, method: str, target: str, headers: Mapping[str, str], data: bytes, now: float) -> Request:
        """Take a request; its `steps` are what follows.

        Raises:
            ScriptError: the script contradicts the request.
        """
        request = Request(self._requests, now, method, target, headers, data)
        self._requests += 1
        chance = Chance(self.faults, request.number) if self.faults is not None else None
        steps: Iterable[Step]
        try:
            if chance is not None and chance.refusal is not None:
                steps = self._refuse(request, chance.refusal)
            else:
                steps = self._serve(request, now)
        except Refused as exc:
            request.broken = exc.refusal
            steps = self._refuse(request, exc.refusal)
        request.steps = iter(steps) if chance is None else chance.pass_on(steps)
        return request

    # --- the door

    def _serve(self, request: Request, now: float) -> Iterable[Step]:
        self._check_key(request.headers.get("authorization", ""))
        path = request.path
        if path == MODELS_PATH or path.startswith(f"{MODELS_PATH}/"):
            self._check_method(request, "GET")
            return self._list_models(request, unquote(path.removeprefix(MODELS_PATH).removeprefix("/")))
        if path != COMPLETIONS_PATH:
            raise refusals.unknown_url(request.method, path)
        self._check_method(request, "POST")
        content_type = request.headers.get("content-type", "")
        if content_type.partition(";")[0].strip().lower() != "application/json":
            raise refusals.not_json_content(content_type)
        request.body = body = shapes.parse(request.data)
        model = self._find_model(body.get("model"))
        shapes.check(body, is_reasoning=model.is_reasoning)
        tokens = completion.count_tokens(body["messages"])
        if model.context_tokens is not None and tokens > model.context_tokens:
            raise refusals.context_too_long(model.context_tokens, tokens)
        self._check_rate(model.name, now)
        return self._complete(request)

    def _check_key(self, authorization: str) -> None:
        scheme, _, key = authorization.partition(" ")
        key = key.strip() if scheme.lower() == "bearer" else ""
        if not key:
            if self._needs_key:
                raise refusals.no_key()
        elif self._keys is not None and key not in self._keys:
            raise refusals.wrong_key(key)

    @staticmethod
    def _check_method(request: Request, method: str) -> None:
        if request.method != method:
            raise refusals.wrong_method(request.method, request.path)

    def _find_model(self, name: object) -> Model:
        if not isinstance(name, str) or self._models is None:
            return Model(str(name))  # the shape of the field is checked with all the others
        if name and name not in self._models:
            raise refusals.unknown_model(name)
        return self._models.get(name, Model(name))

    def _check_rate(self, model: str, now: float) -> None:
        limit = self._rate_limit
        if limit is None:
            return
        while self._arrivals and self._arrivals[0] <= now - limit.seconds:
            self._arrivals.popleft()
        if len(self._arrivals) >= limit.requests:
            raise refusals.rate_limited(model, limit.requests, self._arrivals[0] + limit.seconds - now)
        self._arrivals.append(now)

    # --- answers

    def _headers(self, request: Request) -> list[tuple[str, str]]:
        headers = [("x-request-id", f"req_{request.number}"), ("openai-version", "2020-10-01")]
        if self._rate_limit is not None:
            left = self._rate_limit.requests - len(self._arrivals)
            headers.append(("x-ratelimit-limit-requests", str(self._rate_limit.requests)))
            headers.append(("x-ratelimit-remaining-requests", str(left)))
        return headers

    def _refuse(self, request: Request, refusal: Refusal) -> Sequence[Step]:
        headers = [*self._headers(request), *refusal.headers]
        if refusal.body is None:
            headers.append(JSON_TYPE)
        if refusal.retry_after is not None:
            headers.append(("retry-after", f"{refusal.retry_after:g}"))
        return [Head(refusal.status, headers), Body(refusal.payload), End()]

    def _list_models(self, request: Request, name: str) -> Sequence[Step]:
        if name:
            found: Json = _listed(self._find_model(name).name)
        else:
            names = [ANY_MODEL] if self._models is None else list(self._models)
            found = {"object": "list", "data": [_listed(one) for one in names]}
        return [Head(200, [*self._headers(request), JSON_TYPE]), Body(orjson.dumps(found)), End()]

    def _complete(self, request: Request) -> Iterable[Step]:
        asked = Asked(self._asked, request.body, request.headers)
        self._asked += 1
        request.answer = answer = self._answer(asked)
        if isinstance(answer, Refusal):
            return self._refuse(request, answer)
        script = self.script
        chance = None if script.seed is None else Random(f"{script.seed}/{asked.number}")
        written = completion.write(asked, answer, asked.number, chance)
        streams = bool(asked.body.get("stream"))
        options: Json = asked.body.get("stream_options") or {}
        pads = streams and options.get("include_obfuscation", True)
        frame = Frame(
            f"chatcmpl-{asked.number}",
            int(self._wall_clock()),
            asked.model,
            bool(options.get("include_usage")),
            Random(asked.number) if pads else None,
        )
        headers = self._headers(request)
        way = _Way(answer, answer.pace or script.pace, chance, asked.body.get("n") or 1)
        if streams:
            return way.stream(Head(200, [*headers, STREAM_TYPE]), frame, written, self._refuse_early(request))
        return way.whole(Head(200, [*headers, JSON_TYPE]), frame, written, self._refuse_early(request))

    def _refuse_early(self, request: Request) -> Callable[[Refusal], Sequence[Step]]:
        return lambda refusal: self._refuse(request, refusal)

    def _answer(self, asked: Asked) -> Answer:
        for index, when in enumerate(self.script.when):
            time = self._fitted[index]
            if (when.times is None or time < when.times) and when.fits(asked):
                self._fitted[index] += 1
                return when.answer(time)
        replies = self.script.replies
        if self._replied < len(replies) or (replies and self.script.repeats):
            self._replied += 1
            return replies[(self._replied - 1) % len(replies)]
        return self.script.answer(asked)


def _listed(name: str) -> Json:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "simulator"}


# --- the steps of one reply


@attrs.define
class _Way:
    """The way a reply goes: its pace and its mishaps."""

    _reply: Reply
    _pace: Pace
    _chance: Random | None
    _choices: int

    def whole(
        self, head: Head, frame: Frame, written: Written, refuse: Callable[[Refusal], Sequence[Step]]
    ) -> Iterator[Step]:
        """The steps of an answer in one piece: it comes when the last token would."""
        body = Body(completion.completion(frame, written, self._choices))

        def steps() -> Iterator[Step]:
            yield from self._mishaps(Place.HEADERS, b"", refuse)
            yield from self._wait(self._pace.accepted_after + self._pace.first_after)
            yield from self._wait(self._pace.token_seconds * len(written.pieces))
            yield head
            yield body
            yield End()

        return _until_the_end(steps())

    def stream(
        self, head: Head, frame: Frame, written: Written, refuse: Callable[[Refusal], Sequence[Step]]
    ) -> Iterator[Step]:
        def steps() -> Iterator[Step]:
            last = b""
            yield from self._mishaps(Place.HEADERS, last, refuse)
            yield from self._wait(self._pace.accepted_after)
            yield head
            yield from self._mishaps(0, last)
            yield from self._wait(self._pace.first_after)
            for choice in range(self._choices):
                last = completion.opening(frame, written, choice)
                yield Body(last)
                for count, piece in enumerate(written.pieces):
                    if count:
                        yield from self._mishaps(count, last)
                        yield from self._wait(self._pace.token_seconds)
                    last = completion.delta_of(frame, written, piece, choice)
                    yield Body(last)
            yield from self._mishaps(Place.FINISH, last, beyond=max(1, len(written.pieces)))
            for choice in range(self._choices):
                last = completion.closing(frame, written, choice)
                yield Body(last)
            if frame.includes_usage:
                last = frame.chunk([], usage=written.usage)
                yield Body(last)
            yield from self._mishaps(Place.DONE, last)
            yield Body(completion.DONE)
            yield from self._mishaps(Place.END, completion.DONE)
            yield End()

        return _until_the_end(steps())

    def _wait(self, seconds: float) -> Iterator[Step]:
        if seconds > 0:
            jitter = self._pace.jitter * (2 * self._chance.random() - 1) if self._chance is not None else 0.0
            yield Wait(seconds * (1 + jitter))

    def _mishaps(
        self,
        place: Where,
        last: bytes,
        refuse: Callable[[Refusal], Sequence[Step]] | None = None,
        *,
        beyond: int | None = None,
    ) -> Iterator[Step]:
        """What happens at a place, and, with `beyond`, at all counts from there on."""
        for mishap in self._reply.mishaps:
            is_beyond = beyond is not None and isinstance(mishap.at, int) and mishap.at >= beyond
            if mishap.at == place or is_beyond:
                yield from self._happen(mishap, last, refuse)

    @staticmethod
    def _happen(mishap: Mishap, last: bytes, refuse: Callable[[Refusal], Sequence[Step]] | None) -> Iterator[Step]:
        match mishap:
            case Stall():
                yield Wait(mishap.seconds)
            case Disconnect():
                yield Lose(mishap.how)
            case ErrorEvent() if refuse is not None:
                yield from refuse(mishap.error)
            case ErrorEvent():
                yield Body(completion.event(mishap.error.payload))
                yield End()
            case Raw() | Duplicate() if refuse is not None or not (last or isinstance(mishap, Raw)):
                raise ScriptError(f"{mishap} cannot happen before there is a stream")
            case Raw():
                yield Body(mishap.data)
            case Duplicate():
                yield Body(last)


def _until_the_end(steps: Iterator[Step]) -> Iterator[Step]:
    """The steps to the one that ends the answer. A loss gets the step that it is in the middle of."""
    for step in steps:
        if isinstance(step, Lose):
            follows = next((one for one in steps if isinstance(one, Head | Body)), None)
            yield attrs.evolve(step, next=follows)
            return
        yield step
        if isinstance(step, End):
            return
