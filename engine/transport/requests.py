"""Reading requests of the HTTP routes: who sends them, their query and their body. What cannot be read is refused (RefusedError)."""

from collections.abc import Collection, Mapping
from typing import cast
from urllib.parse import unquote_to_bytes

import attrs
from quart import request
from werkzeug.routing import BaseConverter

from engine.elements import JsonObject
from engine.errors import RemoteError
from engine.principal import Principal, UnauthorizedError
from engine.session.services import Services
from engine.transport.answers import JSON, refused
from engine.transport.asgi import Scope, decoded
from engine.transport.json_body import BadJsonError, read_json
from engine.transport.openapi import MAX_CURSOR, PAGE_DEFAULT, PAGE_LIMIT


@attrs.frozen
class PageQuery:
    limit: int
    after: str | None
    others: Mapping[str, str]
    """The other parameters that were given."""


def read_page_query(others: Collection[str] = (), *, default: int = PAGE_DEFAULT) -> PageQuery:
    query = read_query(("limit", "after", *others))
    limit = query.pop("limit", str(default))
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= PAGE_LIMIT):
        raise refused(400, f"limit has to be a whole number from 1 to {PAGE_LIMIT}.")
    after = query.pop("after", None)
    if after is not None and len(after) > MAX_CURSOR:
        raise refused(400, "after has to be the next of an earlier answer.")
    return PageQuery(int(limit), after, query)


def read_position(after: str | None) -> int:
    """The cursor of a list that is ordered by whole numbers; -1 for its beginning."""
    if after is None:
        return -1
    if not (after.isascii() and after.isdigit() and len(after) <= 15):
        raise refused(400, "after has to be the next of an earlier answer.")
    return int(after)


def read_query(names: Collection[str] = ()) -> dict[str, str]:
    """A parameter that is not known is refused, as a filter that was misspelt would be no filter; and so is one that comes twice."""
    found: dict[str, str] = {}
    for name, values in request.args.lists():
        if name not in names:
            raise refused(400, f"There is no such parameter here; there are: {', '.join(names) or 'none'}.")
        if len(values) > 1:
            raise refused(400, f"{name} may only be given once.")
        found[name] = values[0]
    return found


async def read_body() -> JsonObject:
    """The JSON object that was sent."""
    if request.mimetype != JSON or request.mimetype_params.get("charset", "utf-8").lower() != "utf-8":
        raise refused(415, f"The body has to be {JSON}, in UTF-8.")
    try:
        document = read_json(await request.get_data(cache=False, as_text=False, parse_form_data=False))
    except BadJsonError as exc:
        raise refused(400, str(exc)) from None
    if not isinstance(document, dict):
        raise refused(422, "The body has to be a JSON object.")
    return cast("JsonObject", document)


async def read_principal(services: Services) -> Principal | None:
    """Whose request it is; None without credentials.

    Raises:
        RemoteError: there are credentials and they do not hold, or cannot be checked now.
    """
    try:
        return await services.authenticator.authenticate(decoded(request.scope["headers"]), ())
    except RemoteError as error:
        services.observer.refused(error.code.value)
        raise


async def require_principal(services: Services) -> Principal:
    """Raises UnauthorizedError when nobody has said who they are, and as `read_principal`."""
    principal = await read_principal(services)
    if principal is None:
        raise UnauthorizedError("Credentials are needed for this.")
    return principal


# --- ids in paths ------------------------------------------------------------------------------------------------------


def routed_path(scope: Scope) -> str:
    """The path to find the route by: decoded, but in such a way that a slash of an id stays part of the id.

    The framework is given paths that are decoded as a whole, where `a%2Fb` has become two parts.
    """
    raw_path: bytes = scope.get("raw_path") or b""
    if b"%" not in raw_path:
        path: str = scope["path"]
        return path
    parts = (unquote_to_bytes(part).decode(errors="replace") for part in raw_path.partition(b"?")[0].split(b"/"))
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


class IdConverter(BaseConverter):
    """An id in a path, as `routed_path` has left it."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        return value.replace("%2F", "/").replace("%25", "%")
