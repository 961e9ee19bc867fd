"""Tools from typed functions: schema, validation (case C13), running, results, boxes."""

import dataclasses
import functools
import json
import math
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from datetime import date
from enum import Enum
from typing import Annotated, Any

import attrs
import pytest
import trio
from pydantic import BaseModel, Field
from trio.testing import wait_all_tasks_blocked

from agents.tools import CombinedToolBox, FunctionTool, FunctionToolBox, load_tool, tool
from engine.elements import MultimodalInteraction, MultimodalKind, OnInterruption
from engine.errors import ConfigurationError
from engine.interfaces import Context, EmptyToolBox, ToolBox, ToolError, ToolResult, UnknownToolError
from tests.agents.support import make_context


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Extra(BaseModel):
    kind: str
    shots: int = 1


# --- the schema ------------------------------------------------------------------------------------------------------


async def order(
    drink: str,
    count: Annotated[int, Field(ge=1, description="How many cups.")],
    context: Context,
    size: Size = Size.SMALL,
    extras: list[Extra] | None = None,
    schema: str = "",
) -> str:
    """Order a drink.

    It is brought to the table.

    Args:
        drink: As it stands
            on the menu: "flat white".
        count: Not shown, as the annotation says it.
        context: Never shown.
        size (Size): Of the cup.

    Returns:
        What was ordered.
    """
    await trio.lowlevel.checkpoint()
    return f"{count} {drink} {size.value} {extras} {schema} {context.turn_id}"


def test_the_schema_comes_from_hints_and_docstring() -> None:
    specification = FunctionTool.of(order).specification

    assert specification.name == "order"
    assert specification.description == "Order a drink.\n\nIt is brought to the table."
    assert specification.timeout_seconds is None
    assert specification.on_interruption is OnInterruption.CANCEL
    schema = specification.parameters
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["drink", "count"]
    assert list(schema["properties"]) == ["drink", "count", "size", "extras", "schema"]
    assert schema["properties"]["drink"] == {
        "type": "string",
        "description": 'As it stands on the menu: "flat white".',
    }
    assert schema["properties"]["count"] == {"type": "integer", "minimum": 1, "description": "How many cups."}
    assert schema["properties"]["size"] == {"$ref": "#/$defs/Size", "default": "small", "description": "Of the cup."}
    assert schema["properties"]["schema"] == {"type": "string", "default": ""}
    json.dumps(schema, allow_nan=False)


def test_a_tool_without_parameters_has_an_empty_object() -> None:
    def ping() -> str:
        return "pong"

    assert FunctionTool.of(ping).specification.parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert FunctionTool.of(ping).specification.description == ""


def test_the_decorator_adds_what_a_signature_cannot_say() -> None:
    @tool(name="book-it", description="Books.", timeout_seconds=5, on_interruption="shield")
    def book() -> None:
        """Not this."""

    @tool
    def plain() -> str:
        """This."""
        return "still a function"

    specification = FunctionTool.of(book).specification
    assert (specification.name, specification.description) == ("book-it", "Books.")
    assert (specification.timeout_seconds, specification.on_interruption) == (5, OnInterruption.SHIELD)
    assert FunctionTool.of(plain).specification.description == "This."
    assert plain() == "still a function"


def test_methods_partials_and_callable_objects_are_functions_too() -> None:
    class Desk:
        def ask(self, what: str) -> str:
            """Ask the desk."""
            return what

        async def __call__(self, what: str) -> str:
            """Call the desk."""
            return what

    def both(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert FunctionTool.of(Desk().ask).specification.description == "Ask the desk."
    assert (FunctionTool.of(Desk()).name, FunctionTool.of(Desk()).specification.description) == (
        "Desk",
        "Call the desk.",
    )
    partly = FunctionTool.of(functools.partial(both, b=2)).specification
    assert (partly.name, partly.description, partly.parameters["required"]) == ("both", "Add.", ["a"])


def written(source: str) -> Callable[..., Any]:
    """A function that a type checker would not let pass."""
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    function: Callable[..., Any] = next(value for name, value in namespace.items() if name != "__builtins__")
    return function


def variadic(*x: int) -> None: ...
def keywords(**x: int) -> None: ...
def positional(x: int, /) -> None: ...
def no_json(x: threading.Thread) -> None: ...
def a_callback(x: Callable[[], int]) -> None: ...
def yields(x: int) -> Generator[int]:
    yield x


async def yields_async(x: int) -> AsyncGenerator[int]:  # noqa: ASYNC900 - what a user may write by mistake
    await trio.lowlevel.checkpoint()
    yield x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (written("def unannotated(x): ..."), "parameter x of tool unannotated needs a type annotation"),
        (variadic, "tool variadic has the parameter *x: int; only named ones can be called"),
        (keywords, "tool keywords has the parameter **x: int; only named ones can be called"),
        (positional, "tool positional has the parameter x: int; only named ones can be called"),
        (
            written("def unknown(x: 'Nowhere'): ..."),
            "the signature of tool unknown cannot be read: name 'Nowhere' is not defined",
        ),
        (no_json, "tool no_json has a parameter that JSON cannot carry: "),
        (a_callback, "tool a_callback has a parameter that JSON cannot carry: "),
        (yields, "tool yields must be a function that returns its result in one piece"),
        (yields_async, "tool yields_async must be a function that returns its result in one piece"),
        (Extra, "tool Extra must be a function that returns its result in one piece"),
        (lambda: None, "'<lambda>' cannot be a tool's name; give it one: @tool(name=…)"),
    ],
)
def test_what_cannot_be_a_tool_says_why(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        FunctionTool.of(function)

    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan])
def test_a_time_limit_is_a_positive_number(seconds: float) -> None:
    with pytest.raises(ConfigurationError):
        tool(timeout_seconds=seconds)


def test_a_default_that_json_cannot_hold_is_not_shown() -> None:
    def f(x: int = 1, marker: object = object()) -> None: ...

    assert FunctionTool.of(f).specification.parameters["properties"] == {
        "x": {"type": "integer", "default": 1},
        "marker": {},
    }


# --- arguments: case C13 ---------------------------------------------------------------------------------------------


booked: list[tuple[str, int]] = []


async def book(city: str, nights: int) -> str:
    await trio.lowlevel.checkpoint()
    booked.append((city, nights))
    return f"{nights} nights in {city}"


@pytest.fixture(autouse=True)
def no_bookings() -> None:
    booked.clear()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["Brno", 2], "must be a JSON object", id="array"),
        pytest.param("Brno", "must be a JSON object", id="text"),
        pytest.param(None, "must be a JSON object", id="null"),
        pytest.param({"city": "Brno", "nights": math.nan}, "NaN", id="NaN"),
        pytest.param({"city": "Brno", "nights": math.inf}, "Infinity", id="infinity"),
        pytest.param({"city": "Brno", "nights": "two"}, "nights: should be a valid integer", id="two"),
        pytest.param({"city": "Brno", "nights": ""}, "nights: should be a valid integer", id="blank"),
        pytest.param({"city": "Brno", "nights": 2.5}, "nights: should be a valid integer", id="fraction"),
        pytest.param({"city": 5, "nights": 2}, "city: should be a valid string", id="number for text"),
        pytest.param({"city": "Brno"}, "nights is missing", id="missing"),
        pytest.param({"city": "Brno", "nights": None}, "nights: should be a valid integer", id="null for a number"),
        pytest.param(
            {"city": "Brno", "nights": 2, "hotel": "x"}, "no parameter hotel (there are: city, nights)", id="unknown"
        ),
        pytest.param({"city": "\ud800", "nights": 2}, "do not fit", id="half a surrogate pair"),
        pytest.param({"city": object(), "nights": 2}, "are not JSON", id="no JSON"),
    ],
)
async def test_no_invalid_call_runs_the_tool(arguments: Any, told: str) -> None:
    box = FunctionToolBox([book])

    with pytest.raises(ToolError) as caught:
        await box.call("book", arguments, make_context())

    assert told in str(caught.value)
    assert "book" in str(caught.value)
    assert not isinstance(caught.value, UnknownToolError)
    assert booked == []
    # The ordinary call afterwards works, with the number as a text, as models write it now and then.
    assert await box.call("book", {"city": "Brno", "nights": "2"}, make_context()) == ToolResult("2 nights in Brno")
    assert booked == [("Brno", 2)]


def deeply_nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


async def test_arguments_nested_too_deep_are_an_error_for_the_model() -> None:
    def take(data: Any) -> None:
        raise AssertionError("not reached")

    with pytest.raises(ToolError):
        await FunctionTool.of(take).call({"data": deeply_nested(100_000)}, make_context())


def test_what_is_left_out_or_null_is_left_to_the_default() -> None:
    def f(a: int, b: int = 5, c: str | None = "x", d: list[int] | None = None) -> None: ...

    read = FunctionTool.of(f).validate

    assert read({"a": 1}) == {"a": 1}
    assert read({"a": 1, "b": None}) == {"a": 1}  # null is no int: the model left it out
    assert read({"a": 1, "c": None}) == {"a": 1, "c": None}  # here null is a value
    with pytest.raises(ToolError):
        read({"a": None})


def test_texts_become_what_the_hints_say() -> None:
    def f(on: date, size: Size, pair: tuple[int, int], extra: Extra) -> None: ...

    values = FunctionTool.of(f).validate(
        {"on": "2026-03-29", "size": "large", "pair": [1, 2], "extra": {"kind": "milk"}}
    )

    assert values == {"on": date(2026, 3, 29), "size": Size.LARGE, "pair": (1, 2), "extra": Extra(kind="milk")}


def test_the_number_of_faults_told_is_bounded() -> None:
    with pytest.raises(ToolError) as caught:
        FunctionTool.of(book).validate({f"x{index}": 1 for index in range(1000)})

    assert len(str(caught.value)) < 1000


# --- running ---------------------------------------------------------------------------------------------------------


async def test_the_context_is_given_to_the_parameter_that_asks_for_it() -> None:
    def sync(context: Context | None = None) -> str:
        assert context is not None
        return context.turn_id

    async def optional(where: Annotated[Context, "ours"], x: int) -> str:
        await trio.lowlevel.checkpoint()
        return f"{where.turn_id} {x}"

    box = FunctionToolBox([sync, optional])

    assert (await box.call("sync", {}, make_context())).output == "t1"
    assert (await box.call("optional", {"x": 1}, make_context())).output == "t1 1"
    assert [list(each.parameters["properties"]) for each in box.specifications] == [[], ["x"]]
    with pytest.raises(ToolError, match="no parameter context"):
        await box.call("sync", {"context": {}}, make_context())


async def test_a_plain_function_runs_in_a_thread_and_an_async_one_here() -> None:
    def sync() -> bool:
        return threading.current_thread() is threading.main_thread()

    async def here() -> bool:
        await trio.lowlevel.checkpoint()
        return threading.current_thread() is threading.main_thread()

    @functools.wraps(here)
    def around() -> Any:
        return here()

    assert (await FunctionTool.of(sync).call({}, make_context())).output is False
    assert (await FunctionTool.of(here).call({}, make_context())).output is True
    assert (await FunctionTool.of(around).call({}, make_context())).output is True


async def test_a_cancelled_call_does_not_wait_for_its_thread() -> None:
    entered, release, ended = threading.Event(), threading.Event(), threading.Event()

    def stuck() -> None:
        entered.set()
        release.wait()
        ended.set()

    async def call() -> None:
        await FunctionTool.of(stuck).call({}, make_context())

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await trio.to_thread.run_sync(entered.wait)
            nursery.cancel_scope.cancel()
        assert not ended.is_set()
    finally:
        release.set()
    await trio.to_thread.run_sync(ended.wait)


async def test_a_cancelled_async_tool_ends_where_it_waits(autojump_clock: trio.testing.MockClock) -> None:
    left: list[str] = []

    async def slow() -> None:
        try:
            await trio.sleep(60)
        finally:
            left.append("slow")

    with trio.move_on_after(2) as scope:
        await FunctionTool.of(slow).call({}, make_context())

    assert scope.cancelled_caught
    assert trio.current_time() == 2
    assert left == ["slow"]


async def test_stuck_tools_leave_other_threads_alone() -> None:
    release = threading.Event()

    def stuck() -> None:
        release.wait()

    async def call() -> None:
        await FunctionTool.of(stuck).call({}, make_context())

    limit = trio.to_thread.current_default_thread_limiter()
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(call)
            await wait_all_tasks_blocked()
            assert limit.borrowed_tokens == 0
            release.set()
    finally:
        release.set()


async def test_errors_pass_as_they_are() -> None:
    def refuses() -> None:
        raise ToolError("We are closed on Mondays.")

    async def breaks() -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("secret detail")

    with pytest.raises(ToolError, match="closed on Mondays"):
        await FunctionTool.of(refuses).call({}, make_context())
    with pytest.raises(KeyError):  # told to the model without its details, by the engine
        await FunctionTool.of(breaks).call({}, make_context())


# --- results ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Seat:
    row: int
    on: date


@dataclasses.dataclass
class Ticket:
    seat: Seat
    size: Size


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (None, None),
        ("text", "text"),
        ({"a": [1, 2.5, True, None]}, {"a": [1, 2.5, True, None]}),
        (Extra(kind="milk"), {"kind": "milk", "shots": 1}),
        (Ticket(Seat(1, date(2026, 3, 29)), Size.SMALL), {"seat": {"row": 1, "on": "2026-03-29"}, "size": "small"}),
        ([Seat(2, date(2026, 1, 1))], [{"row": 2, "on": "2026-01-01"}]),
        ((1, 2), [1, 2]),
        ({1: "one"}, {"1": "one"}),
    ],
)
async def test_results_become_json(result: Any, output: Any) -> None:
    async def give() -> Any:
        await trio.lowlevel.checkpoint()
        return result

    told = await FunctionTool.of(give).call({}, make_context())

    assert told == ToolResult(output)
    assert json.loads(json.dumps(told.output, allow_nan=False)) == output


circle: list[Any] = []
circle.append(circle)


@pytest.mark.parametrize(
    "result", [object(), math.nan, {"a": [math.inf]}, circle, b"\xff", lambda: 1, {"x": threading.Lock()}, Seat]
)
async def test_a_result_that_is_no_json_is_the_tools_fault(result: Any) -> None:
    async def give() -> Any:
        await trio.lowlevel.checkpoint()
        return result

    with pytest.raises(ToolError, match=r"give ran, but what it returned \(.+\) is not JSON.*fault in the tool itself"):
        await FunctionTool.of(give).call({}, make_context())


async def test_a_tool_result_passes_through() -> None:
    card = MultimodalInteraction(MultimodalKind.CARD, "menu")

    def show() -> ToolResult:
        return ToolResult({"seat": Seat(1, date(2026, 3, 29))}, (card,), ends_session=True)

    told = await FunctionTool.of(show).call({}, make_context())

    assert told == ToolResult({"seat": {"row": 1, "on": "2026-03-29"}}, (card,), ends_session=True)


# --- boxes -----------------------------------------------------------------------------------------------------------


def ping() -> str:
    return "pong"


async def test_boxes_combine() -> None:
    box = CombinedToolBox([FunctionToolBox([ping]), EmptyToolBox(), FunctionToolBox([book])])

    assert [each.name for each in box.specifications] == ["ping", "book"]
    assert (await box.call("ping", {}, make_context())).output == "pong"
    assert (await box.call("book", {"city": "Brno", "nights": 1}, make_context())).output == "1 nights in Brno"
    with pytest.raises(UnknownToolError):
        await box.call("pong", {}, make_context())
    with pytest.raises(UnknownToolError):
        await FunctionToolBox([ping]).call("pong", {}, make_context())


@pytest.mark.parametrize(
    "make", [lambda: FunctionToolBox([ping, ping]), lambda: CombinedToolBox([FunctionToolBox([ping])] * 2)]
)
def test_two_tools_of_one_name_are_refused(make: Callable[[], ToolBox]) -> None:
    with pytest.raises(ConfigurationError, match="two tools are named ping"):
        make()


# --- finding tools ---------------------------------------------------------------------------------------------------


def test_a_tool_is_found_by_module_and_function() -> None:
    assert load_tool("agents.demo.booking:book_table").name == "book_table"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("no_such_module_here:f", "tool no_such_module_here:f cannot be imported: ModuleNotFoundError"),
        ("agents.tools:nothing", "tool agents.tools:nothing does not exist: module agents.tools has no nothing"),
        ("agents.tools:TOOL_THREADS", "tool agents.tools:TOOL_THREADS is not a function"),
        ("no_such_entry_point", "no tool named 'no_such_entry_point' is installed"),
    ],
)
def test_what_cannot_be_found_says_why(reference: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_tool(reference)

    assert str(caught.value).startswith(message)


def test_boxes_show_their_specifications_in_order() -> None:
    names: Sequence[str] = [each.name for each in FunctionToolBox([book, ping]).specifications]
    assert names == ["book", "ping"]
