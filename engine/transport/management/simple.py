"""The kinds of documents that need nothing of their own but rules about who may write them."""

import attrs

from engine.elements import JsonObject
from engine.store.documents import ResourceKind
from engine.transport.management.access import Access
from engine.transport.management.collection import Collection


@attrs.frozen
class Projects(Collection):
    kind = ResourceKind.PROJECT
    path = "/api/projects"
    noun = "project"

    def require_maker(self, access: Access) -> None:
        access.require_admin()

    def project(self, document_id: str, shown: JsonObject) -> str:
        return document_id


@attrs.frozen
class Agents(Collection):
    kind = ResourceKind.AGENT
    path = "/api/agents"
    noun = "agent"


@attrs.frozen
class RealtimeConfigurations(Collection):
    kind = ResourceKind.REALTIME_CONFIGURATION
    path = "/api/realtime-configurations"
    noun = "realtime configuration"
    id_field = "id"
    writing_is_for_admins = True
