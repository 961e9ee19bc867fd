"""One call of every operation of a store, and the pages of those that list."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from engine.store.contract import SessionFilter, Store
from engine.store.documents import Lease, ResourceKind
from tests.engine.store.samples import NOON, delivery, log_entry, memory, message, resource, session, turn, usage

D = TypeVar("D")

AGENT = ResourceKind.AGENT
LATER = NOON + timedelta(minutes=1)
LEASE = Lease(name="lease", token="mine", fence=1, expires_at=LATER)

READS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "get_session": lambda store: store.get_session("s1"),
    "list_sessions": lambda store: store.list_sessions(SessionFilter(), limit=9),
    "fences": lambda store: store.fences(["s1"]),
    "get_turns": lambda store: store.get_turns("s1", limit=9),
    "get_messages": lambda store: store.get_messages("s1", limit=9),
    "get_usage": lambda store: store.get_usage("s1"),
    "active_seconds": lambda store: store.active_seconds("p1", since=NOON),
    "get_log": lambda store: store.get_log("s1", limit=9),
    "get_resource": lambda store: store.get_resource(AGENT, "r1"),
    "get_resources": lambda store: store.get_resources(AGENT, ["r1"]),
    "list_resources": lambda store: store.list_resources(AGENT, limit=9),
    "get_memory": lambda store: store.get_memory("user:anna", "facts"),
    "get_memory_revisions": lambda store: store.get_memory_revisions("user:anna", "facts", limit=9),
    "list_memory": lambda store: store.list_memory("user:anna", limit=9),
    "due_deliveries": lambda store: store.due_deliveries(now=LATER, limit=9),
}
WRITES: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "open_session": lambda store: store.open_session(session()),
    "save_session": lambda store: store.save_session(session(turn_count=7, fence=1)),
    "append_turns": lambda store: store.append_turns([turn(0)], fence=1),
    "append_messages": lambda store: store.append_messages([message(0)], fence=1),
    "save_usage": lambda store: store.save_usage(usage(project_ref="p1", active_seconds=3)),
    "append_log": lambda store: store.append_log([log_entry(0)]),
    "redact_log": lambda store: store.redact_log("s1"),
    "put_resource": lambda store: store.put_resource(resource(), expected=None),
    "delete_resource": lambda store: store.delete_resource(AGENT, "r1", expected=None),
    "append_memory": lambda store: store.append_memory(memory(), expected=None),
    "forget_memory": lambda store: store.forget_memory("user:anna"),
    "acquire_lease": lambda store: store.acquire_lease("lease", "mine", now=NOON, seconds=60),
    "renew_lease": lambda store: store.renew_lease(LEASE, now=NOON, seconds=60),
    "release_lease": lambda store: store.release_lease(LEASE),
    "use_once": lambda store: store.use_once("key", now=NOON, expires_at=LATER),
    "put_delivery": lambda store: store.put_delivery(delivery()),
    "check": lambda store: store.check(),
}


async def all_pages(page_after: Callable[[D | None], Awaitable[list[D]]]) -> list[list[D]]:
    """The pages one gets by asking for what follows the last of the page before. A list that goes round in circles is cut."""
    pages: list[list[D]] = []
    while len(pages) < 100 and (page := await page_after(pages[-1][-1] if pages else None)):
        pages.append(page)
    return pages
