"""Templates over the API (SPEC R2). What is shown and sent as a template is its newest revision; each change makes a new one, and
none is ever changed.

A revision is stored before the template names it, under an id that nobody else makes: when two change the template at once, the
one who comes too late has left a document that nothing names, and takes it back.
"""

import logging
from collections.abc import Sequence
from typing import ClassVar

import attrs
from pydantic import ValidationError
from quart import Response, request

from engine.elements import JsonObject
from engine.errors import NotFoundError
from engine.interfaces import InvalidDocumentError, TemplateRevisions
from engine.store.contract import ConflictError, StoreError
from engine.store.documents import Resource, ResourceKind
from engine.transport.answers import json_bytes, matches, read_response, refused
from engine.transport.management.access import Access
from engine.transport.management.collection import (
    BATCH,
    PAGE_BYTES,
    SHOWN_ONLY,
    Collection,
    Found,
    invalid,
    shown_time,
)
from engine.transport.requests import read_page_query, read_position, read_query

MAX_REVISIONS = 1000
"""Of one template: their ids are in one document."""

logger = logging.getLogger(__name__)


@attrs.frozen
class Templates(Collection):
    kind = ResourceKind.TEMPLATE
    path = "/api/templates"
    noun = "template"
    shown_only: ClassVar[tuple[str, ...]] = (*SHOWN_ONLY, "revision", "publishedRevision")

    # --- handlers

    async def read_revisions(self, document_id: str) -> Response:
        access = await self.access()
        query = read_page_query()
        found = await self.require(document_id, access)
        numbers = [number for number in self._numbers(found) if number > read_position(query.after)]
        shown: list[JsonObject] = []
        size = 0
        for start in range(0, min(len(numbers), query.limit), BATCH):
            if size > PAGE_BYTES:
                break
            shown += await self._revisions(found, numbers[start : min(start + BATCH, query.limit)])
            size = sum(len(json_bytes(each)) for each in shown)
        is_last = len(shown) == len(numbers)
        return read_response({"items": shown, "next": None if is_last else str(shown[-1]["revision"])})

    async def read_revision(self, document_id: str, number: str) -> Response:
        access = await self.access()
        read_query()
        found = await self.require(document_id, access)
        (shown,) = await self._revisions(found, [self._require_number(found, number)])
        return read_response(shown)

    async def publish(self, document_id: str, number: str) -> Response:
        """Agents that name no revision are made from this one from now on."""
        access = await self.access(writing=True)
        read_query()
        found = await self.require(document_id, access)
        await self.refuse_file(document_id, access)
        published = self._require_number(found, number)
        if_match = request.headers.get("If-Match")
        if if_match is not None and not matches(if_match, found.tag):
            raise refused(412, "The template is not what If-Match says.")
        revisions = _revisions_of(found).model_copy(update={"published": published})
        try:
            stored = await self.put(document_id, _body(revisions), expected=found.version)
        except ConflictError:
            raise refused(412, "The template was changed by somebody else in the meantime.") from None
        finally:
            self.documents.changed(self.kind, document_id)
        return self.written(await self.found(stored))

    # --- the collection's own way

    async def founds(self, resources: Sequence[Resource]) -> Sequence[Found]:
        read = [(resource, revisions) for resource in resources if (revisions := _read(resource)) is not None]
        newest = [revisions.revisions[-1] for _, revisions in read]
        bodies = {each.id: each for each in await self.store.get_resources(ResourceKind.TEMPLATE_REVISION, newest)}
        return [
            self.as_shown(resource, self._shown(each, len(each.revisions), bodies.get(each.revisions[-1])))
            for resource, each in read
        ]

    def in_file(self, document_id: str) -> Found:
        found = super().in_file(document_id)
        revisions = self._in_file(document_id)
        published = next((number for number, body in revisions.items() if body["published"]), None)
        return attrs.evolve(found, shown={**found.shown, "publishedRevision": published})

    async def check(self, sent: JsonObject, access: Access, found: Found | None = None) -> None:
        before = None if found is None or found.resource is None else found.resource.body
        kind, projects = ResourceKind.TEMPLATE_REVISION, await access.projects()
        try:
            await self.documents.check(kind, sent, stored=before, projects=projects)
        except InvalidDocumentError as exc:
            raise invalid(exc.faults) from None

    async def write_new(self, document_id: str, sent: JsonObject) -> Resource:
        revisions = TemplateRevisions(ref=document_id, project=str(sent["project"]))
        return await self._write(revisions, sent, expected=0)

    async def write_over(self, found: Found, sent: JsonObject) -> Resource:
        revisions = _revisions_of(found)
        if len(revisions.revisions) >= MAX_REVISIONS:
            raise refused(409, f"The template has {MAX_REVISIONS} revisions; make a new template.")
        return await self._write(revisions, sent, expected=found.version)

    async def erase(self, found: Found, *, expected: int | None) -> None:
        await super().erase(found, expected=expected)
        for revision_id in _revisions_of(found).revisions:
            await self._take_back(revision_id)

    # --- the parts

    async def _write(self, revisions: TemplateRevisions, sent: JsonObject, *, expected: int) -> Resource:
        revision_id = f"{revisions.ref}/{self.services.environment.new_id('revision')}"
        now = self.services.environment.wall_clock()
        body = {name: value for name, value in sent.items() if name != "published"}
        revision = Resource(
            kind=ResourceKind.TEMPLATE_REVISION, id=revision_id, body=body, created_at=now, updated_at=now
        )
        await self.store.put_resource(revision, expected=0)
        update: JsonObject = {"revisions": [*revisions.revisions, revision_id]}
        if sent.get("published"):
            update["published"] = len(revisions.revisions) + 1
        try:
            return await self.put(revisions.ref, _body(revisions.model_copy(update=update)), expected=expected)
        except ConflictError as exc:
            conflict = exc
        await self._take_back(revision_id)
        raise conflict

    async def _take_back(self, revision_id: str) -> None:
        try:
            await self.store.delete_resource(ResourceKind.TEMPLATE_REVISION, revision_id, expected=None)
        except StoreError:
            logger.warning("the revision %s stays in the store, where nothing names it", revision_id)

    def _in_file(self, ref: str) -> dict[int, JsonObject]:
        """The revisions of a file's template by number, in their order."""
        documents = self.documents.in_files(ResourceKind.TEMPLATE_REVISION).values()
        bodies = [document.body for document in documents if document.body["ref"] == ref]
        return {body["revision"]: body for body in sorted(bodies, key=lambda each: int(each["revision"]))}

    def _numbers(self, found: Found) -> Sequence[int]:
        if found.resource is None:
            return list(self._in_file(found.id))
        return range(1, len(_revisions_of(found).revisions) + 1)

    def _require_number(self, found: Found, number: str) -> int:
        if number.isascii() and number.isdigit() and len(number) < 10 and int(number) in self._numbers(found):
            return int(number)
        raise NotFoundError("There is no such revision of the template.")

    async def _revisions(self, found: Found, numbers: Sequence[int]) -> list[JsonObject]:
        """Those revisions as they are shown."""
        if found.resource is None:
            origin = {name: found.shown[name] for name in ("publishedRevision", *SHOWN_ONLY)}
            bodies = self._in_file(found.id)
            return [{**bodies[number], **origin} for number in numbers]
        revisions = _revisions_of(found)
        ids = [revisions.revisions[number - 1] for number in numbers]
        stored = {each.id: each for each in await self.store.get_resources(ResourceKind.TEMPLATE_REVISION, ids)}
        shown: list[JsonObject] = []
        for number, revision_id in zip(numbers, ids, strict=True):
            resource = stored.get(revision_id)
            at = None if resource is None else shown_time(resource.created_at)
            body = self._shown(revisions, number, resource)
            shown.append({**body, "source": "api", "file": None, "createdAt": at, "updatedAt": at})
        return shown

    def _shown(self, revisions: TemplateRevisions, number: int, resource: Resource | None) -> JsonObject:
        body = {"ref": revisions.ref, "project": revisions.project, **(resource.body if resource else {})}
        return {
            **self.documents.complete(ResourceKind.TEMPLATE_REVISION, body),
            "revision": number,
            "published": number == revisions.published,
            "publishedRevision": revisions.published,
        }


def _read(resource: Resource) -> TemplateRevisions | None:
    """None for what is damaged, of which nothing can be shown."""
    try:
        revisions = TemplateRevisions.model_validate(resource.body)
    except ValidationError:
        revisions = None
    if revisions is None or not revisions.revisions:
        logger.error("the stored template %s cannot be read, and is left out", resource.id)
        return None
    return revisions


def _revisions_of(found: Found) -> TemplateRevisions:
    assert found.resource is not None
    return TemplateRevisions.model_validate(found.resource.body)


def _body(revisions: TemplateRevisions) -> JsonObject:
    return revisions.model_dump(mode="json", by_alias=True)
