"""The Azure OpenAI provider: the Realtime API of OpenAI, at regions that take turns (SPEC P3)."""

import logging
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from engine import registry
from engine.boundary import Outside
from engine.config import RealtimeProperties
from engine.errors import ConfigurationError
from engine.interfaces import Context, RealtimeModel, RealtimeSession, SystemPrompt, ToolBox
from providers.azure_openai.preview import open_preview
from providers.azure_openai.properties import AzureOpenAIProperties, Region
from providers.azure_openai.regions import CONNECT_SECONDS, Regions
from providers.link import LinkRefusedError, open_link
from providers.openai.connection import OpenLink, link_at
from providers.openai.model import FindFactory, chat_for
from providers.openai.session import OpenAISession
from providers.openai.targets import Target, targets_at
from providers.secrets import resolve_secret

logger = logging.getLogger(__name__)

open_region: OpenLink = partial(open_link, connect_seconds=CONNECT_SECONDS)

Identity = tuple[str, bool, str]
"""Of a region: its URL, and which secret it is given as a token, or as a key."""
KEPT_CONFIGURATIONS = 64
"""Whose regions' turns and failures are remembered."""


class AzureOpenAIRealtimeModel(RealtimeModel):
    name: ClassVar[str] = "AzureOpenAI"
    properties_class: ClassVar[type[RealtimeProperties]] = AzureOpenAIProperties
    passes_boundary: ClassVar[bool] = True

    def __init__(self, link: OpenLink = open_region, find: FindFactory = registry.load) -> None:
        self._link = link
        self._find = find
        self._regions: OrderedDict[tuple[Identity, ...], Regions] = OrderedDict()

    def process(
        self, context: Context, system_prompt: SystemPrompt, tool_box: ToolBox, can_delegate: bool = False
    ) -> RealtimeSession:
        properties = context.properties
        if not isinstance(properties, AzureOpenAIProperties):
            raise ConfigurationError(f"The Azure OpenAI provider cannot use the properties of {properties.provider}.")
        boundary = context.boundary
        boundary.know(Outside.LINK, "credentials", partial(_check_credentials, properties))
        link = link_at(boundary, self.name, self._link)
        link = link if properties.api_version is None else open_preview(link)
        chat = chat_for(properties, context, self._find)
        targets = targets_at(boundary, self.regions(properties))
        return OpenAISession(context, properties, system_prompt, tool_box, targets, link, chat)

    def regions(self, properties: AzureOpenAIProperties) -> Regions:
        """Those of a configuration, the same object for all its sessions; also for one that only speaks in another voice."""
        key = tuple(_identity(properties, region) for region in properties.regions)
        if key not in self._regions:
            self._regions[key] = Regions([(region.label, target(properties, region)) for region in properties.regions])
            if len(self._regions) > KEPT_CONFIGURATIONS:
                self._regions.popitem(last=False)
        self._regions.move_to_end(key)
        return self._regions[key]


def _identity(properties: AzureOpenAIProperties, region: Region) -> Identity:
    return properties.url(region), properties.has_token(region), properties.credential(region)[1]


def target(properties: AzureOpenAIProperties, region: Region) -> Target:
    def authorization() -> Mapping[str, str]:
        try:
            return _headers(properties, region)
        except ConfigurationError as exc:
            logger.error("%s", exc)
            raise LinkRefusedError(401) from exc  # as the region would say

    return Target(properties.url(region), authorization)


def _headers(properties: AzureOpenAIProperties, region: Region) -> Mapping[str, str]:
    """Raises ConfigurationError when the secret is not where the configuration says."""
    secret = resolve_secret(properties.credential(region)[1], properties.credential(region)[0])
    if secret is None:
        return {}
    return {"Authorization": f"Bearer {secret}"} if properties.has_token(region) else {"api-key": secret}


def _check_credentials(properties: AzureOpenAIProperties) -> None:
    """One of the regions has its secret; what the others lack is told when they are tried.

    Raises:
        ConfigurationError: none has; with what the first one lacks.
    """
    faults: list[ConfigurationError] = []
    for region in properties.regions:
        try:
            _headers(properties, region)
        except ConfigurationError as exc:
            faults.append(exc)
    if len(faults) == len(properties.regions):
        raise faults[0]
