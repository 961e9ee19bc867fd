"""Settings of the Azure OpenAI provider (SPEC P3; protocol page, part 3). In a project file:

realtimeConfigurations:
  - id: azure
    properties:
      provider: AzureOpenAI
      model: gpt-realtime                  # the deployment, where a region names no other
      transcriptionModel: whisper          # a deployment of each resource as well
      regions:
        - {name: sweden, endpoint: "https://ours-sweden.openai.azure.com", apiKey: "env:AZURE_KEY_SWEDEN"}
        - {name: east, endpoint: "https://ours-east.openai.azure.com", token: "file:/run/azure/token"}
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import quote, urlsplit

from pydantic import Field, field_validator, model_validator

from engine.config import CamelModel
from providers.openai.properties import OpenAIProperties

GA_PATH = "/openai/v1/realtime"
PREVIEW_PATH = "/openai/realtime"
PREVIEW_VOICE = "alloy"
MAX_REGIONS = 30
"""As many as there may be resources of a subscription in one of Azure's regions; more are a mistake."""


class Region(CamelModel):
    """One resource with its deployment. What it leaves out of deployment and credentials is the configuration's own."""

    name: str = ""
    """For the log; the host, when it is left out."""
    endpoint: str = Field(pattern=r"^(https|wss|http|ws)://[^\s/?#@]+(/[^\s?#@]*)?$")
    """The address of the resource, of a private endpoint or of a gateway, without the path of the API."""
    deployment: str = ""
    api_key: str = ""
    """A reference: `env:NAME`, `file:PATH` or `none`."""
    token: str = ""
    """A reference to an Entra token. A file is read again for every connection, as tokens are renewed by others."""

    @field_validator("endpoint")
    @classmethod
    def _has_no_path_of_the_api(cls, endpoint: str) -> str:
        endpoint = endpoint.rstrip("/")
        if "/openai" in urlsplit(endpoint).path:
            raise ValueError(
                'must be the address alone, such as "https://NAME.openai.azure.com": leave out /openai and more'
            )
        return endpoint

    @model_validator(mode="after")
    def _has_one_credential(self) -> "Region":
        if self.api_key and self.token:
            raise ValueError("apiKey and token exclude each other")
        return self

    @property
    def label(self) -> str:
        return self.name or urlsplit(self.endpoint).netloc


class AzureOpenAIProperties(OpenAIProperties):
    """As OpenAI's, at regions that take turns instead of one address. `model` and `transcription_model` are names of deployments,
    and `api_key` and `token` those of every region that has none of its own."""

    provider: str = "AzureOpenAI"
    regions: tuple[Region, ...]
    api_version: str | None = Field(default=None, pattern=r"^\d{4}-\d{2}-\d{2}(-preview)?$")
    """Such as 2025-04-01-preview: take the preview API, which older models need. Left out: the current one."""
    token: str = ""

    @model_validator(mode="before")
    @classmethod
    def _has_a_voice_of_its_api(cls, document: Any) -> Any:
        """The voice that is the default otherwise is newer than the preview API."""
        if not isinstance(document, dict):
            return document
        given = cast("dict[str, Any]", document)
        return {"voice": PREVIEW_VOICE, **given} if given.get("apiVersion") or given.get("api_version") else given

    @field_validator("base_url")
    @classmethod
    def _is_not_of_azure(cls, base_url: str) -> str:
        raise ValueError("is not of Azure: each of its regions has an endpoint")

    @field_validator("regions")
    @classmethod
    def _are_told_apart(cls, regions: tuple[Region, ...]) -> tuple[Region, ...]:
        """Checked here, as a length that is declared would also be reported of regions that have faults of their own."""
        if not 1 <= len(regions) <= MAX_REGIONS:
            raise ValueError(f"must be one region at least, and {MAX_REGIONS} at most")
        if twice := _twice(region.name for region in regions if region.name):
            raise ValueError(f"two regions are named {twice}")
        return regions

    @field_validator("model")
    @classmethod
    def _is_no_live_model(cls, model: str) -> str:
        return model  # a deployment may have any name

    @model_validator(mode="after")
    def _has_a_key(self) -> "AzureOpenAIProperties":
        if self.api_key and self.token:
            raise ValueError("apiKey and token exclude each other")
        for region in self.regions:
            if not (region.api_key or region.token or self.api_key or self.token):
                raise ValueError(
                    f"region {region.label} needs an apiKey or a token (apiKey: none for one without keys)"
                )
        if twice := _twice(self.url(region) for region in self.regions):
            raise ValueError(f"two regions are at one address {twice}")
        return self

    def url(self, region: Region) -> str:
        scheme, _, place = region.endpoint.partition("://")
        base = f"{'ws' if scheme in ('http', 'ws') else 'wss'}://{place}"
        deployment = quote(region.deployment or self.model, safe="")
        if self.api_version is None:
            return f"{base}{GA_PATH}?model={deployment}"
        return f"{base}{PREVIEW_PATH}?api-version={self.api_version}&deployment={deployment}"

    def credential(self, region: Region) -> tuple[str, str]:
        """The setting, as a person would look for it, and the reference that stands there."""
        own = region if region.api_key or region.token else self
        place = f"region {region.label}: " if own is region else ""
        return (f"{place}token", own.token) if own.token else (f"{place}apiKey", own.api_key)

    def has_token(self, region: Region) -> bool:
        return bool(region.token or (self.token and not region.api_key))


def _twice(names: Iterable[str]) -> str:
    """A name that is there twice; empty when none is."""
    return next((name for name, count in Counter(names).items() if count > 1), "")
