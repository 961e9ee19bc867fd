"""Settings of the provider: what is taken, what is refused in which words, and what is made of it."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agents.project import check_files, load_projects
from engine import registry
from engine.elements import JsonObject
from engine.errors import ConfigurationError
from engine.interfaces import EmptyToolBox, SystemPrompt
from providers.azure_openai.model import KEPT_CONFIGURATIONS, AzureOpenAIRealtimeModel, target
from providers.azure_openai.properties import AzureOpenAIProperties
from providers.link import LinkRefusedError
from providers.openai.properties import OpenAIProperties
from providers.openai.session import OpenAISession
from tests.agents.support import make_context, write_project

PREVIEW = "2025-04-01-preview"
EAST: JsonObject = {"endpoint": "https://ours-east.openai.azure.com", "apiKey": "env:EAST"}


def azure(*regions: JsonObject, **more: Any) -> AzureOpenAIProperties:
    return AzureOpenAIProperties.model_validate({"provider": "AzureOpenAI", "regions": regions or [EAST]} | more)


def fault(document: JsonObject) -> str:
    with pytest.raises(ValidationError) as caught:
        AzureOpenAIProperties.model_validate({"provider": "AzureOpenAI"} | document)
    (error,) = caught.value.errors()
    return f"{'.'.join(map(str, error['loc']))}: {error['msg'].removeprefix('Value error, ')}"


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "base"),
    [
        ("https://ours.openai.azure.com", "wss://ours.openai.azure.com"),
        ("https://ours.openai.azure.com/", "wss://ours.openai.azure.com"),
        ("wss://ours.cognitiveservices.azure.com", "wss://ours.cognitiveservices.azure.com"),
        ("ws://127.0.0.1:8080", "ws://127.0.0.1:8080"),
        ("http://[::1]:8080", "ws://[::1]:8080"),
        ("https://gateway.example/voice/", "wss://gateway.example/voice"),
    ],
)
def test_addresses(endpoint: str, base: str) -> None:
    """The current form and the preview's; private endpoints, gateways and simulators have addresses of their own."""
    for version, rest in (
        (None, "/openai/v1/realtime?model=gpt-realtime"),
        (PREVIEW, f"/openai/realtime?api-version={PREVIEW}&deployment=gpt-realtime"),
    ):
        properties = azure({"endpoint": endpoint}, apiKey="none", apiVersion=version)
        assert properties.url(properties.regions[0]) == base + rest


def test_a_region_may_have_a_deployment_of_its_own() -> None:
    properties = azure(EAST | {"deployment": "a b&c=d"}, EAST, model="voice")
    assert [properties.url(region).partition("?")[2] for region in properties.regions] == [
        "model=a%20b%26c%3Dd",
        "model=voice",
    ]


def test_the_voice_is_one_that_the_api_knows() -> None:
    assert azure().voice == "marin"
    assert azure(apiVersion=PREVIEW).voice == "alloy"
    assert azure(apiVersion=PREVIEW, voice="echo").voice == "echo"


# --- credentials ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "common", "headers"),
    [
        ({"apiKey": "env:A_KEY"}, {}, {"api-key": "k"}),
        ({"token": "env:A_TOKEN"}, {}, {"Authorization": "Bearer t"}),
        ({}, {"apiKey": "env:A_KEY"}, {"api-key": "k"}),
        ({}, {"token": "env:A_TOKEN"}, {"Authorization": "Bearer t"}),
        ({"apiKey": "env:A_KEY"}, {"token": "env:A_TOKEN"}, {"api-key": "k"}),
        ({"token": "env:A_TOKEN"}, {"apiKey": "env:A_KEY"}, {"Authorization": "Bearer t"}),
        ({"apiKey": "none"}, {"token": "env:A_TOKEN"}, {}),
    ],
)
def test_credentials(
    own: JsonObject, common: JsonObject, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a region, else those of all."""
    monkeypatch.setenv("A_KEY", "k")
    monkeypatch.setenv("A_TOKEN", "t")
    properties = azure({"endpoint": "https://ours.test", **own}, **common)
    assert target(properties, properties.regions[0]).headers == headers


def test_a_credential_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    properties = azure({"name": "east", "endpoint": "https://ours.test", "apiKey": "env:NOT_SET_ANYWHERE"})
    with pytest.raises(LinkRefusedError) as caught:
        assert target(properties, properties.regions[0]).headers
    assert caught.value.status == 401
    assert caplog.messages == ["region east: apiKey: set the environment variable NOT_SET_ANYWHERE"]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "regions: Field required"),
        ({"regions": []}, "regions: must be one region at least, and 30 at most"),
        ({"regions": [{"apiKey": "none"}]}, "regions.0.endpoint: Field required"),
        ({"regions": [EAST | {"zone": 3}]}, "regions.0.zone: Extra inputs are not permitted"),
        ({"regions": [EAST], "region": "x"}, "region: Extra inputs are not permitted"),
        (
            {"regions": [EAST | {"endpoint": "https://ours.openai.azure.com/openai/v1"}]},
            'regions.0.endpoint: must be the address alone, such as "https://NAME.openai.azure.com": leave out /openai and more',
        ),
        ({"regions": [EAST | {"token": "env:T"}]}, "regions.0: apiKey and token exclude each other"),
        ({"regions": [EAST], "apiKey": "env:K", "token": "env:T"}, ": apiKey and token exclude each other"),
        (
            {"regions": [{"endpoint": "https://ours.test"}]},
            ": region ours.test needs an apiKey or a token (apiKey: none for one without keys)",
        ),
        (
            {"regions": [EAST, EAST | {"name": "other"}]},
            f": two regions are at one address {azure().url(azure().regions[0])}",
        ),
        (
            {"regions": [EAST | {"name": "a"}, EAST | {"name": "a", "deployment": "b"}]},
            "regions: two regions are named a",
        ),
        (
            {"regions": [EAST], "baseUrl": "wss://x.test"},
            "baseUrl: is not of Azure: each of its regions has an endpoint",
        ),
    ],
)
def test_what_is_refused(document: JsonObject, message: str) -> None:
    assert fault(document) == message


@pytest.mark.parametrize(
    "endpoint",
    [
        "ours",
        "ours.openai.azure.com",
        "ftp://x",
        "https://",
        "https://u:p@x",
        "https://x/?a=b",
        "https://x#a",
        "https:// x",
    ],
)
def test_what_is_no_address(endpoint: str) -> None:
    assert fault({"regions": [EAST | {"endpoint": endpoint}]}).startswith(
        "regions.0.endpoint: String should match pattern"
    )


@pytest.mark.parametrize("version", ["v1", "2025", "preview", "2025-04-01-preview&deployment=x", ""])
def test_what_is_no_version(version: str) -> None:
    assert fault({"regions": [EAST], "apiVersion": version}).startswith("apiVersion: String should match pattern")


def test_models_of_the_other_protocol() -> None:
    with pytest.raises(ValidationError, match="those of GPT-Live are of provider OpenAILive"):
        OpenAIProperties(model="gpt-live-1")
    assert azure(model="gpt-live-1").model == "gpt-live-1", "a deployment may have any name"


# --- project files ----------------------------------------------------------------------------------------------------

PROJECT = """\
project: {ref: demo, name: Demo, access: public}
realtimeConfigurations:
  - id: azure
    properties:
      provider: AzureOpenAI
      model: gpt-realtime
      transcriptionModel: whisper
      regions:
        - {name: sweden, endpoint: "https://ours-sweden.openai.azure.com", apiKey: "env:AZURE_KEY_SWEDEN"}
        - {name: east, endpoint: "https://ours-east.openai.azure.com", token: "file:/run/azure/token"}
  - id: azure-preview
    properties:
      provider: AzureOpenAI
      model: older
      apiVersion: 2025-04-01-preview
      apiKey: env:AZURE_KEY
      regions: [{endpoint: "https://ours-west.openai.azure.com"}]
agents:
  - {ref: host, type: basic, name: Host, published: true, realtimeConfigurationId: azure}
"""


def faults(directory: Path, text: str) -> list[str]:
    return [f"{each.line}:{each.column}: {each.message}" for each in check_files([write_project(directory, text)])]


def test_a_project_file(tmp_path: Path) -> None:
    """As it stands in the description of the settings."""
    path = write_project(tmp_path, PROJECT)
    assert check_files([path]) == []
    catalog = load_projects([path])
    assert catalog is not None
    assert registry.load("models", "AzureOpenAI") is AzureOpenAIRealtimeModel


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        (
            '"env:AZURE_KEY_SWEDEN"',
            "0123456789abcdef",
            "9:84: apiKey must be a reference, env:NAME or file:PATH (none for an endpoint without keys), never the key itself",
        ),
        (
            '"file:/run/azure/token"',
            "eyJ0eXAi",
            "10:79: token must be a reference, env:NAME or file:PATH (none for an endpoint without keys), never the key itself",
        ),
        ("apiVersion: 2025", "apiversion: 2025", "15:7: unknown field 'apiversion'; did you mean 'apiVersion'?"),
        ("{name: sweden,", "{nam: sweden,", "9:12: unknown field 'nam'"),
    ],
)
def test_what_is_wrong_in_a_project_file(right: str, wrong: str, fault: str, tmp_path: Path) -> None:
    assert right in PROJECT
    assert fault in faults(tmp_path, PROJECT.replace(right, wrong))


# --- the model --------------------------------------------------------------------------------------------------------


def process(model: AzureOpenAIRealtimeModel, properties: Any) -> OpenAISession:
    session = model.process(make_context(properties=properties), SystemPrompt("Be brief."), EmptyToolBox())
    assert isinstance(session, OpenAISession)
    return session


def test_sessions_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one configuration, and those of another that is at the same regions; not those of others."""
    monkeypatch.setenv("A_KEY", "k")
    names = ("one", "two", "three")
    regions = [{"name": name, "endpoint": f"https://{name}.test", "apiKey": "env:A_KEY"} for name in names]
    model = AzureOpenAIRealtimeModel()
    urls = [process(model, azure(*regions, voice=voice)).targets.next(0).url for voice in ("ash", "echo", "ash", "ash")]
    assert [url.split("/")[2].partition(".")[0] for url in urls] == ["one", "two", "three", "one"]
    assert "one.test" in process(model, azure(*regions[:2])).targets.next(0).url
    by_token = azure(*({**region, "apiKey": "", "token": "env:A_KEY"} for region in regions))
    assert process(model, by_token).targets.next(0).headers == {"Authorization": "Bearer k"}


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = AzureOpenAIRealtimeModel()
    kept = [
        azure({"endpoint": f"https://r{number}.test", "apiKey": "none"}) for number in range(KEPT_CONFIGURATIONS + 1)
    ]
    first = model.regions(kept[0])
    for properties in kept[1:-1]:
        model.regions(properties)
    assert model.regions(kept[0]) is first
    model.regions(kept[-1])
    assert model.regions(kept[0]) is first
    second = model.regions(kept[2])
    assert model.regions(kept[2]) is second
    model.regions(kept[1])
    assert len({id(model.regions(properties)) for properties in kept}) == len(kept)


def test_properties_of_another() -> None:
    with pytest.raises(ConfigurationError, match="cannot use the properties of OpenAI"):
        process(AzureOpenAIRealtimeModel(), OpenAIProperties())


def test_no_region_has_its_secret() -> None:
    properties = azure(
        {"name": "one", "endpoint": "https://one.test", "apiKey": "env:NOT_SET_ANYWHERE"},
        {"name": "two", "endpoint": "https://two.test", "token": "file:/nonexistent"},
    )
    with pytest.raises(ConfigurationError, match="region one: apiKey: set the environment variable NOT_SET_ANYWHERE"):
        process(AzureOpenAIRealtimeModel(), properties)
