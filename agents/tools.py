"""A tool is a typed Python function.

    def price_of(drink: str) -> str:
        \"\"\"Look up what a drink costs.

        Args:
            drink: As it stands on the menu.
        \"\"\"

Its name, docstring and type hints are all that the model needs; `@tool` is there for what a function cannot say: a time
limit, another name, what an interruption does to it. Name the function in the project file (`tools: ["menu:price_of"]`, the
module beside the file or installed), or declare it as an entry point of the group `souffleur.tools` and use that name.

- Parameters may have any type that pydantic can read from JSON; `Annotated[int, Field(ge=1)]` narrows one. One parameter
  annotated with `Context` is given the conversation's context and is not shown to the model.
- A plain function runs in a worker thread, so it may block. An `async` one runs on Trio, and must not.
- Raise `ToolError("…")` to tell the model what went wrong, in words it can act on. What other exceptions say stays in the log.
- Return what JSON can hold: plain values, pydantic models, dataclasses, attrs classes, dates; or a `ToolResult`.
"""

import functools
import importlib
import importlib.util
import inspect
import json
import math
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, overload

import attrs
import trio
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import PydanticSerializationError, SchemaError, to_jsonable_python

from engine import registry
from engine.elements import JsonObject, OnInterruption
from engine.errors import ConfigurationError
from engine.interfaces import (
    Context,
    ToolBox,
    ToolError,
    ToolResult,
    ToolSpecification,
    UnknownToolError,
)

F = TypeVar("F", bound=Callable[..., Any])

TOOL_THREADS = 64
"""Tools that may block at once, in the whole process."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what the strictest of the providers accepts
MAX_ERRORS = 8
"""Faults of one call's arguments that the model is told."""

# Not Trio's default limiter: an abandoned call keeps its thread until it returns, and a handful of stuck tools must not starve
# whatever else needs threads (the store, name resolution), nor be starved by it.
_threads = trio.CapacityLimiter(TOOL_THREADS)

_NOT_DONE = "Nothing was done: correct the arguments and call again."
_OPTIONS = "__souffleur_tool__"
_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|Attributes|See Also|Warnings?|Todo):\s*"
)
_ARGUMENT = re.compile(r"\*{0,2}(\w+)\s*(\([^)]*\))?\s*:\s*(.*)")


# --- declaring a tool ------------------------------------------------------------------------------------------------


@attrs.frozen
class _Options:
    name: str | None = None
    description: str | None = None
    timeout_seconds: float | None = None
    on_interruption: OnInterruption = OnInterruption.CANCEL


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_seconds: float | None = None,
    on_interruption: OnInterruption | Literal["cancel", "continue", "shield"] = OnInterruption.CANCEL,
) -> Callable[[F], F]: ...
def tool(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_seconds: float | None = None,
    on_interruption: OnInterruption | Literal["cancel", "continue", "shield"] = OnInterruption.CANCEL,
) -> Any:
    """Say about a tool what its signature cannot. The function itself is unchanged and can be called as before.

    Args:
        function: The function, when used without parentheses.
        name: What the model calls it; its own name when None.
        description: What the model reads; the docstring's text when None.
        timeout_seconds: Its time limit; the engine's `tool_seconds` when None.
        on_interruption: What happens to a running call when the user cuts in: `cancel` it, `continue` in the background, or
            `shield` it, which finishes it first. For a tool that changes something, `shield` is right.

    Raises:
        ConfigurationError: the time limit is not a positive number.
    """
    if timeout_seconds is not None and not 0 < timeout_seconds < math.inf:
        raise ConfigurationError(f"timeout_seconds of a tool must be a positive number, not {timeout_seconds}")
    options = _Options(name, description, timeout_seconds, OnInterruption(on_interruption))

    def declare(function: F) -> F:
        setattr(function, _OPTIONS, options)
        return function

    return declare if function is None else declare(function)


# --- reading a function ----------------------------------------------------------------------------------------------


class _Schema(GenerateJsonSchema):
    """Without titles, which repeat the names, and without warnings: a default that JSON cannot hold is simply not shown."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        pass

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """The text before the first section, and what the `Args:` section says of each parameter."""
    description: list[str] = []
    arguments: dict[str, str] = {}
    section, indent, current = "", 0, ""
    for line in inspect.cleandoc(docstring).splitlines():
        if header := _SECTION.fullmatch(line):
            section, indent = header[1], 0
        elif not section:
            description.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            depth = len(line) - len(line.lstrip())
            indent = indent or depth
            found = _ARGUMENT.fullmatch(line.strip()) if depth <= indent else None
            if found:
                current = found[1]
                arguments[current] = found[3]
            elif current:
                arguments[current] = f"{arguments[current]} {line.strip()}".strip()
    return "\n".join(description).strip(), arguments


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_context(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_is_context(member) for member in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, Context)


def _accepts_none(annotation: Any) -> bool:
    try:
        TypeAdapter(annotation).validate_python(None)
    except ValidationError:
        return False
    return True


@attrs.frozen
class _Parameter:
    name: str
    field: str
    """Its name in the model: parameters may be called `json` or `schema`, fields of a pydantic model may not."""
    drops_null: bool
    """Models write null for what they leave out; where null is no value of the type, it means just that."""


@attrs.frozen(eq=False)
class FunctionTool:
    """A function as a tool; made by `FunctionTool.of`."""

    function: Callable[..., Any]
    specification: ToolSpecification
    _model: type[BaseModel]
    _parameters: tuple[_Parameter, ...]
    _context: str | None
    """The parameter that takes the context."""
    _is_async: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "FunctionTool":
        """Read the function's signature, type hints and docstring.

        Raises:
            ConfigurationError: it cannot be a tool as it is written, and why.
        """
        inner: Any = function
        while isinstance(inner, functools.partial):
            inner = inner.func
        body: Any = inner if inspect.isroutine(inner) else type(inner).__call__
        options: _Options = getattr(inner, _OPTIONS, None) or _Options()
        name = options.name or str(getattr(inner, "__name__", type(inner).__name__))
        if NAME.fullmatch(name) is None:
            raise ConfigurationError(f"{name!r} cannot be a tool's name; give it one: @tool(name=…)")
        if inspect.isclass(inner) or inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
            raise ConfigurationError(f"tool {name} must be a function that returns its result in one piece")
        try:
            signature = inspect.signature(function, eval_str=True)
        except Exception as exc:  # evaluates the user's annotations, which may raise anything
            raise ConfigurationError(f"the signature of tool {name} cannot be read: {exc}") from exc
        is_async = inspect.iscoroutinefunction(
            inspect.unwrap(body)
        )  # a decorator may have put a plain function around it
        description, documented = _read_docstring(inspect.getdoc(inner) or inspect.getdoc(body) or "")
        fields: dict[str, Any] = {}
        parameters: list[_Parameter] = []
        context: str | None = None
        try:
            for parameter in signature.parameters.values():
                if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                    raise ConfigurationError(
                        f"tool {name} has the parameter {parameter}; only named ones can be called"
                    )
                if parameter.annotation is parameter.empty:
                    raise ConfigurationError(f"parameter {parameter.name} of tool {name} needs a type annotation")
                if _is_context(parameter.annotation):
                    context = parameter.name
                    continue
                is_required = parameter.default is parameter.empty
                default: Any = ... if is_required else parameter.default
                field = f"p{len(parameters)}"
                fields[field] = (parameter.annotation, Field(default, alias=parameter.name))
                drops_null = not is_required and not _accepts_none(parameter.annotation)
                parameters.append(_Parameter(parameter.name, field, drops_null))
            model = create_model(name, __config__=ConfigDict(extra="forbid", allow_inf_nan=False), **fields)
            schema = model.model_json_schema(by_alias=True, schema_generator=_Schema)
        except (PydanticUserError, PydanticUndefinedAnnotation, SchemaError, TypeError) as exc:
            raise ConfigurationError(
                f"tool {name} has a parameter that JSON cannot carry: {str(exc).splitlines()[0]}"
            ) from exc
        schema.pop("title", None)
        properties: dict[str, Any] = schema.setdefault("properties", {})
        for parameter_name, text in documented.items():
            if parameter_name in properties:
                properties[parameter_name].setdefault("description", text)
        specification = ToolSpecification(
            name,
            options.description if options.description is not None else description,
            schema,
            options.timeout_seconds,
            options.on_interruption,
        )
        return cls(function, specification, model, tuple(parameters), context, is_async)

    @property
    def name(self) -> str:
        return self.specification.name

    def validate(self, arguments: object) -> dict[str, Any]:
        """The keyword arguments that a call's JSON object means. What the call leaves out is left to the function's defaults.

        Raises:
            ToolError: they do not fit; the text tells the model what to change.
        """
        if not isinstance(arguments, Mapping):
            raise ToolError(f"The arguments of {self.name} must be a JSON object.")
        given = dict(cast("Mapping[str, Any]", arguments))
        for parameter in self._parameters:
            if parameter.drops_null and given.get(parameter.name, ...) is None:
                del given[parameter.name]
        try:
            text = json.dumps(given, allow_nan=False)
        except (ValueError, TypeError, RecursionError) as exc:
            raise ToolError(
                f"The arguments of {self.name} are not JSON (NaN and Infinity are no numbers). {_NOT_DONE}"
            ) from exc
        try:
            validated = self._model.model_validate_json(text)  # in JSON mode a text may be a date, and a list a tuple
        except ValidationError as exc:
            raise ToolError(self._explain(exc)) from exc
        return {
            parameter.name: getattr(validated, parameter.field)
            for parameter in self._parameters
            if parameter.field in validated.model_fields_set
        }

    async def call(self, arguments: object, context: Context) -> ToolResult:
        """Validate, run, and turn the result into JSON.

        Raises:
            ToolError: the arguments do not fit, the tool says so, or its result is no JSON.
            Exception: whatever else the function raises.
        """
        values = self.validate(arguments)
        if self._context is not None:
            values[self._context] = context
        if self._is_async:
            result = await self.function(**values)
        else:
            # Abandoned on cancel: a thread cannot be stopped, and a barge-in must not wait for it (0.54 s against 0.06 s).
            result = await trio.to_thread.run_sync(
                functools.partial(self.function, **values), limiter=_threads, abandon_on_cancel=True
            )
        if isinstance(result, ToolResult):
            return attrs.evolve(result, output=self._to_json(result.output))
        return ToolResult(self._to_json(result))

    def _to_json(self, value: Any) -> Any:
        try:
            plain = to_jsonable_python(value, fallback=_attrs_to_dict)
            json.dumps(plain, allow_nan=False)
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as exc:
            raise ToolError(
                f"{self.name} ran, but what it returned ({type(value).__name__}) is not JSON, so it cannot be told. "
                "This is a fault in the tool itself; calling it again will not help."
            ) from exc
        return plain

    def _explain(self, error: ValidationError) -> str:
        problems: list[str] = []
        for detail in error.errors(include_url=False, include_context=False)[:MAX_ERRORS]:
            where = ".".join(str(part) for part in detail["loc"]) or "they"
            match detail["type"]:
                case "missing":
                    problems.append(f"{where} is missing")
                case "extra_forbidden":
                    known = ", ".join(parameter.name for parameter in self._parameters) or "none"
                    problems.append(f"there is no parameter {where} (there are: {known})")
                case _:
                    problems.append(f"{where}: {detail['msg'].removeprefix('Input ')}")
        return f"The arguments of {self.name} do not fit: {'; '.join(problems)}. {_NOT_DONE}"


def _attrs_to_dict(value: object) -> Any:
    """Called for what pydantic does not know."""
    kind = type(value)
    if not attrs.has(kind):
        raise ValueError(f"{kind.__name__} is not JSON")
    return {field.name: getattr(value, field.name) for field in attrs.fields(kind)}


# --- boxes -----------------------------------------------------------------------------------------------------------


class FunctionToolBox(ToolBox):
    """A tool box of functions.

    Raises:
        ConfigurationError: a function cannot be a tool, or two have the same name.
    """

    def __init__(self, tools: Iterable[Callable[..., Any] | FunctionTool]) -> None:
        self._tools: dict[str, FunctionTool] = {}
        for item in tools:
            function_tool = item if isinstance(item, FunctionTool) else FunctionTool.of(item)
            if function_tool.name in self._tools:
                raise ConfigurationError(f"two tools are named {function_tool.name}")
            self._tools[function_tool.name] = function_tool

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return tuple(function_tool.specification for function_tool in self._tools.values())

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        if name not in self._tools:
            raise UnknownToolError(f"Tool {name} does not exist.")
        return await self._tools[name].call(arguments, context)


class CombinedToolBox(ToolBox):
    """Several boxes as one. Which tools there are is looked at once, when it is made.

    Raises:
        ConfigurationError: two boxes have a tool of the same name.
    """

    def __init__(self, boxes: Iterable[ToolBox]) -> None:
        self._boxes: dict[str, ToolBox] = {}
        specifications: list[ToolSpecification] = []
        for box in boxes:
            for specification in box.specifications:
                if specification.name in self._boxes:
                    raise ConfigurationError(f"two tools are named {specification.name}")
                self._boxes[specification.name] = box
                specifications.append(specification)
        self._specifications = tuple(specifications)

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return self._specifications

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        box = self._boxes.get(name)
        if box is None:
            raise UnknownToolError(f"Tool {name} does not exist.")
        return await box.call(name, arguments, context)


# --- finding tools ---------------------------------------------------------------------------------------------------


def is_importable(reference: str) -> bool:
    """Whether the package or module of a `module:function` can be found as things are. Imports nothing."""
    package = reference.partition(":")[0].partition(".")[0]
    return package in sys.modules or importlib.util.find_spec(package) is not None


def make_importable(directory: str | PathLike[str]) -> None:
    """Let modules in `directory` be imported. Last in the search, so that they never take the place of an installed one."""
    path = fspath(directory)
    if path not in sys.path:
        sys.path.append(path)


@functools.cache
def load_tool(reference: str) -> FunctionTool:
    """The tool that a project file names: `module:function`, or an entry point of the group `souffleur.tools`.

    Raises:
        ConfigurationError: it is not there, its module cannot be imported, or it cannot be a tool; and why.
    """
    module_name, colon, function_name = reference.partition(":")
    if not colon:
        found = registry.load("tools", reference)
    else:
        try:
            module = importlib.import_module(module_name)
        except Exception as exc:  # runs the user's module, which may raise anything
            raise ConfigurationError(f"tool {reference} cannot be imported: {type(exc).__name__}: {exc}") from exc
        found = getattr(module, function_name, None)
        if found is None:
            raise ConfigurationError(f"tool {reference} does not exist: module {module_name} has no {function_name}")
    if isinstance(found, FunctionTool):
        return found
    if not callable(found):
        raise ConfigurationError(f"tool {reference} is not a function")
    return FunctionTool.of(found)
