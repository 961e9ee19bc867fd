"""One kind of managed documents: listed, read, created, replaced and deleted, with the store's versions behind entity tags.

A document is shown with its defaults and with where it comes from (`source`, `createdAt`, `updatedAt`, for those of project files
`file`); what is sent may hold these too, so that what was read can be changed and sent back, and they are ignored.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar
from urllib.parse import quote

import attrs
from quart import Response, request

from engine.elements import JsonObject
from engine.errors import NotFoundError
from engine.interfaces import DocumentFault, InvalidDocumentError, ManagedDocuments
from engine.session.services import Services
from engine.store.contract import ConflictError, Store
from engine.store.documents import Resource, ResourceKind
from engine.transport.answers import JSON, json_bytes, matches, read_response, refused, tag_of
from engine.transport.body import RefusedError
from engine.transport.management.access import Access, require_manager
from engine.transport.pages import is_known
from engine.transport.requests import PageQuery, read_body, read_page_query, read_query

BATCH = 100
"""Documents read from the store at once: each may be as large as a request."""
SCANNED = 5000
"""Documents looked through for one page: who sees few of many gets a short page, and asks on."""
PAGE_BYTES = 8 << 20
"""A page ends when it has become this large."""
USES_TOLD = 5

META: JsonObject = {
    "source": {"type": "string", "enum": ["file", "api", "token"], "description": "Where it comes from."},
    "file": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "The project file that it is changed in."},
    "createdAt": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
    "updatedAt": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
}
MAX_SHOWN = 1 << 31
IGNORED: JsonObject = {
    "anyOf": [
        {"type": ["string", "boolean", "null"]},
        {"type": "integer", "minimum": 0, "exclusiveMaximum": MAX_SHOWN},
    ],
    "description": "Ignored: it is here so that what was read can be sent back.",
}
SHOWN_ONLY = tuple(META)
"""Fields that are shown, and ignored when they are sent."""


@attrs.frozen
class Found:
    """A document as it is shown, and where it lies."""

    id: str
    shown: JsonObject
    resource: Resource | None = None
    """In the store; None for one of a file."""
    file: str = ""

    @property
    def tag(self) -> str:
        return tag_of(json_bytes(self.shown))

    @property
    def version(self) -> int:
        return 0 if self.resource is None else self.resource.version


@attrs.frozen
class Collection:
    """`path` is that of the list, `noun` what one of them is called, `id_field` which field holds its id."""

    kind: ClassVar[ResourceKind]
    path: ClassVar[str]
    noun: ClassVar[str]
    id_field: ClassVar[str] = "ref"
    shown_only: ClassVar[tuple[str, ...]] = SHOWN_ONLY
    writing_is_for_admins: ClassVar[bool] = False
    reading_is_for_admins: ClassVar[bool] = False

    services: Services
    documents: ManagedDocuments

    @property
    def store(self) -> Store:
        return self.services.store

    # --- handlers

    async def read_list(self, query: PageQuery | None = None) -> Response:
        access = await self.access()
        return read_response(await self.page(access, query or read_page_query()))

    async def read(self, document_id: str) -> Response:
        access = await self.access()
        read_query()
        return read_response((await self.require(document_id, access)).shown)

    async def create(self) -> Response:
        access = await self.access(writing=True)
        self.require_maker(access)
        read_query()
        sent = self.stripped(await read_body())
        await self.check(sent, access)
        document_id = str(sent[self.id_field])
        await self.refuse_file(document_id, access)
        try:
            stored = await self.write_new(document_id, sent)
        except ConflictError:
            raise refused(409, f"The {self.noun} {document_id} is there already.") from None
        finally:  # whatever became of it: it may have been written
            self.documents.changed(self.kind, document_id)
        return await self.created(stored)

    async def replace(self, document_id: str) -> Response:
        access = await self.access(writing=True)
        read_query()
        await self.refuse_file(document_id, access)
        sent = self.stripped(await read_body())
        found = await self.find(document_id, access)
        self.require_precondition(found)
        if found is None:
            self.require_maker(access)
        if self.id_field in sent and sent[self.id_field] not in self.names(document_id, found):
            raise invalid([DocumentFault(f"/{self.id_field}", f"{self.id_field} has to be that of the path")])
        await self.check(sent, access, found)
        try:
            if found is None:
                return await self.created(await self.write_new(document_id, sent))
            stored = await self.write_over(found, sent)
        except ConflictError:
            raise refused(412, f"The {self.noun} was changed by somebody else in the meantime.") from None
        finally:
            self.documents.changed(self.kind, document_id)
        return self.written(await self.found(stored))

    async def delete(self, document_id: str) -> Response:
        access = await self.access(writing=True)
        read_query()
        found = await self.require(document_id, access)
        self.require_maker(access)
        await self.refuse_file(document_id, access)
        if_match = request.headers.get("If-Match")
        if if_match is not None and not matches(if_match, found.tag):
            raise refused(412, f"The {self.noun} is not what If-Match says.")
        if uses := await self.documents.uses(self.kind, document_id):
            told = [*uses[:USES_TOLD], *(["…"] if len(uses) > USES_TOLD else [])]
            raise refused(409, f"The {self.noun} is in use by {', '.join(told)}.")
        try:
            await self.erase(found, expected=None if if_match is None else found.version)
        except ConflictError:
            raise refused(412, f"The {self.noun} was changed by somebody else in the meantime.") from None
        finally:
            self.documents.changed(self.kind, document_id)
        return Response(b"", 204)

    # --- what the kinds do in their own way

    async def access(self, *, writing: bool = False) -> Access:
        access = await require_manager(self.services, self.documents)
        if self.reading_is_for_admins or (writing and self.writing_is_for_admins):
            access.require_admin()
        return access

    def require_maker(self, access: Access) -> None:
        """Raises RemoteError FORBIDDEN when this one may make and delete none."""

    async def founds(self, resources: Sequence[Resource]) -> Sequence[Found]:
        """Documents of the store as they are shown; without those that cannot be."""
        return [self.as_shown(resource, self.documents.complete(self.kind, resource.body)) for resource in resources]

    async def check(self, sent: JsonObject, access: Access, found: Found | None = None) -> None:
        """Raises RefusedError with everything that is wrong."""
        before = None if found is None or found.resource is None else found.resource.body
        try:
            await self.documents.check(self.kind, sent, stored=before, projects=await access.projects())
        except InvalidDocumentError as exc:
            raise invalid(exc.faults) from None

    async def write_new(self, document_id: str, sent: JsonObject) -> Resource:
        """Raises ConflictError."""
        return await self.put(document_id, sent, expected=0)

    async def write_over(self, found: Found, sent: JsonObject) -> Resource:
        """Raises ConflictError."""
        return await self.put(found.id, sent, expected=found.version)

    async def erase(self, found: Found, *, expected: int | None) -> None:
        """Raises ConflictError."""
        await self.store.delete_resource(self.kind, found.id, expected=expected)

    def names(self, document_id: str, found: Found | None) -> Sequence[object]:
        """What the id's field may hold in what takes the document's place."""
        return (document_id,)

    def project(self, document_id: str, shown: JsonObject) -> str:
        """The project it belongs to."""
        return str(shown.get("project", ""))

    # --- the parts

    async def page(self, access: Access, query: PageQuery) -> JsonObject:
        """In the order of ids, those of files and of the store together."""
        projects = await access.projects()
        in_files = self.documents.in_files(self.kind)
        found: list[Found] = []
        size = scanned = 0
        cursor, is_last = query.after or "", False
        while not is_last and scanned < SCANNED:
            batch = await self.store.list_resources(self.kind, limit=BATCH, after=cursor)
            is_last = len(batch) < BATCH
            until = None if is_last else batch[-1].id
            both = [*await self.founds([each for each in batch if each.id not in in_files])]
            both += [self.in_file(each) for each in in_files if each > cursor and (until is None or each <= until)]
            for each in sorted(both, key=lambda one: one.id):
                if projects is not None and self.project(each.id, each.shown) not in projects:
                    continue
                if len(found) == query.limit or size > PAGE_BYTES:
                    return {"items": [one.shown for one in found], "next": found[-1].id}
                found.append(each)
                size += len(json_bytes(each.shown))
            scanned += len(batch)
            cursor = until or cursor
        return {"items": [one.shown for one in found], "next": None if is_last else cursor}

    async def find(self, document_id: str, access: Access) -> Found | None:
        """None also for what this one may not know of."""
        found: Found | None
        if document_id in self.documents.in_files(self.kind):
            found = self.in_file(document_id)
        else:
            resource = await self.store.get_resource(self.kind, document_id)
            found = next(iter(await self.founds([] if resource is None else [resource])), None)
        if found is None or await access.manages(self.project(found.id, found.shown)):
            return found
        return None

    async def require(self, document_id: str, access: Access) -> Found:
        found = await self.find(document_id, access)
        if found is None:
            raise NotFoundError(f"There is no such {self.noun}.")
        return found

    async def found(self, resource: Resource) -> Found:
        (found,) = await self.founds([resource])
        return found

    def as_shown(self, resource: Resource, shown: JsonObject) -> Found:
        times = {"createdAt": shown_time(resource.created_at), "updatedAt": shown_time(resource.updated_at)}
        source = str(resource.body.get("source", "api"))
        return Found(resource.id, {**shown, "source": source, "file": None, **times}, resource)

    def in_file(self, document_id: str) -> Found:
        document = self.documents.in_files(self.kind)[document_id]
        origin = {"source": "file", "file": document.file, "createdAt": None, "updatedAt": None}
        return Found(document_id, {**document.body, **origin}, file=document.file)

    async def refuse_file(self, document_id: str, access: Access) -> None:
        document = self.documents.in_files(self.kind).get(document_id)
        if document is None:
            return
        if await access.manages(self.project(document_id, document.body)):
            raise refused(409, f"The {self.noun} {document_id} is defined in {document.file}; change it there.")
        raise refused(409, f"The {self.noun} {document_id} is there already.")

    def stripped(self, sent: JsonObject) -> JsonObject:
        """Without what is only shown. Raises RefusedError for what never was shown in its place."""
        for name in self.shown_only:
            value = sent.get(name)
            if not isinstance(value, str | bool | int | None) or (
                isinstance(value, int) and not 0 <= value < MAX_SHOWN
            ):
                raise invalid([DocumentFault(f"/{name}", f"{name} is only shown, and not sent")])
        return {name: value for name, value in sent.items() if name not in self.shown_only}

    def require_precondition(self, found: Found | None) -> None:
        """A replacement says what it replaces: If-Match, or If-None-Match: * for nothing."""
        if_match, if_none_match = request.headers.get("If-Match"), request.headers.get("If-None-Match")
        if if_match is None and (if_none_match is None or if_none_match.strip() != "*"):
            raise refused(
                428, f"Say with If-Match which {self.noun} you replace, or with If-None-Match: * that there is none."
            )
        tag = None if found is None else found.tag
        if if_match is not None and not matches(if_match, tag):
            raise refused(412, f"The {self.noun} is not what If-Match says.")
        if if_none_match is not None and tag is not None and is_known(tag, if_none_match):
            raise refused(412, f"The {self.noun} is there already.")

    async def put(self, document_id: str, body: JsonObject, *, expected: int | None) -> Resource:
        now = self.services.environment.wall_clock()
        resource = Resource(kind=self.kind, id=document_id, body=body, created_at=now, updated_at=now)
        return await self.store.put_resource(resource, expected=expected)

    async def created(self, resource: Resource, more: Mapping[str, object] | None = None) -> Response:
        """`more` is told this once, and never again."""
        response = self.written(await self.found(resource), more)
        response.status_code = 201
        response.headers["Location"] = f"{self.path}/{quote(resource.id, safe='')}"
        return response

    def written(self, found: Found, more: Mapping[str, object] | None = None) -> Response:
        body = json_bytes({**found.shown, **(more or {})})
        return Response(body, 200, {"ETag": found.tag}, content_type=JSON)


def invalid(faults: Sequence[DocumentFault]) -> RefusedError:
    errors = [{"pointer": fault.pointer, "detail": fault.message} for fault in faults]
    more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
    return refused(422, f"The document cannot be taken: {faults[0].message}{more}.", errors=errors)


def shown_time(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
