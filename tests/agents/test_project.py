"""Project files: loading, and every fault with its line."""

import logging
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import attrs
import pytest

from agents.checks import CheckedFile, Fault, check_all
from agents.definitions import SECRET_RULE, BasicAgent, RelationalAgent, TestAgent
from agents.demo import PROJECT_FILE
from agents.located import read_located
from agents.project import check_files, load_projects
from agents.rules import installed_properties
from engine.errors import ConfigurationError
from engine.interfaces import Agent
from tests.agents.support import COMPONENTS, InternalProperties, write_project

HEAD = """\
project: {ref: demo, name: Demo, access: public}
realtimeConfigurations:
  - {id: offline, properties: {provider: Internal}}
"""
HEAD_LINES = HEAD.count("\n")

EVERYTHING = """\
project: {ref: demo, name: Demo, access: public, featuredAgent: barista, members: [jana], subscription: {minutesPerMonth: 600}}
users: [{name: jana, passwordHash: "env:JANA", role: member}, {name: root, role: admin}]
realtimeConfigurations:
  - id: offline
    properties: {provider: Internal, sttProvider: Local, ttsProvider: Local, chat: {provider: Demo},
                 turnDetection: {silenceMs: 500, minSpeechMs: 200}}
templates:
  - {ref: service, revision: 3, published: true, purpose: "Serve {city}, {tone}.", purposeLocked: true,
     businessProcessSteps: "…", businessProcessStepsLocked: false, guardrails: "Be kind.", guardrailsLocked: true,
     identityDescription: "…", identityDescriptionLocked: false, businessImpact: 1.0, businessImpactLocked: false,
     hasMemory: true, hasMemoryLocked: false, cameraPreset: null, cameraPresetLocked: false,
     variables: [{name: city, type: text}, {name: tone, type: enum, values: [warm, brief]}]}
  - {ref: service, revision: 4, purpose: "Newer", purposeLocked: true}
agents:
  - {ref: barista, type: relational, name: Bára, published: true, realtimeConfigurationId: offline, purpose: mine,
     identityDescription: "From {city}", businessProcessSteps: "1. Greet", guardrails: null, initialPlan: Greet,
     businessImpact: 0.8,
     hasMemory: true, sharedMemoryAgentRefs: [tester, plain], template: service, templateRevision: 3,
     templateVariables: {city: Brno, tone: warm}, locale: en, gender: female,
     llmConfiguration: {initialPlanning: {model: gpt-5.1, baseUrl: "https://h.example/v1", apiKey: "env:KEY"},
                        relationalPlanning: {model: local, baseUrl: "http://localhost:1", apiKey: none}},
     tools: ["agents.demo.booking:book_table"], knowledge: [menu.md], skills: [skills/calm],
     mcpServers: [{name: files, command: [files-server, --read]}, {name: web, url: "https://mcp.example"}],
     multimodal: [{name: menu, description: The menu, urls: ["https://menu.example"]}], handover: plain,
     sessionEndSupport: true, preSessionWebhook: {url: "https://pre.example", secret: "file:/run/secret"},
     postSessionWebhooks: [{url: "https://post.example", secret: "env:HOOK"}], recording: false, showSteering: true,
     maxSessionMinutes: 60, userIdleSeconds: null}
  - {ref: hidden, type: basic, name: Hidden, realtimeConfigurationId: offline}
  - {ref: tester, type: test, name: Tester, published: true, realtimeConfigurationId: offline, role: A guest, vision: none,
     scenario: Wants a table, prompt: You are a guest}
  - {ref: plain, type: basic, name: Plain, published: true, realtimeConfigurationId: offline, template: service,
     templateVariables: {city: Praha, tone: brief}}
"""


def faults_of(path: Path) -> list[str]:
    """Each as "line:column: message"; the file is the same for all."""
    found = check_files([path], components=COMPONENTS)
    assert all(fault.file == str(path) for fault in found)
    return [f"{fault.line}:{fault.column}: {fault.message}" for fault in found]


def agent_line(fields: str) -> str:
    return HEAD + f"agents:\n  - {{ref: a, type: basic, name: A, realtimeConfigurationId: offline, {fields}}}\n"


# --- loading ---------------------------------------------------------------------------------------------------------


def test_a_project_file_with_everything(tmp_path: Path) -> None:
    path = write_project(tmp_path, EVERYTHING)
    assert faults_of(path) == [
        "22:61: knowledge: menu.md cannot be read: No such file or directory",
        "22:80: skill: skills/calm:1:1: cannot be read: No such file or directory",
    ], "the project is served without them"
    assert load_projects([path], components=COMPONENTS).agent("barista") is not None
    (tmp_path / "menu.md").write_text("# Menu\n\nTea.")
    (tmp_path / "skills" / "calm").mkdir(parents=True)
    (tmp_path / "skills" / "calm" / "SKILL.md").write_text("---\nname: calm\ndescription: How to.\n---\nBreathe.\n")
    assert faults_of(path) == []

    catalog = load_projects([path], components=COMPONENTS)

    assert [agent.ref for agent in catalog.published_agents()] == ["barista", "tester", "plain"]
    found = catalog.agent("barista")
    assert found is not None
    agent, project = found
    assert project == "demo"
    assert isinstance(agent, RelationalAgent)
    contract: Agent = agent
    assert (contract.realtime_configuration_id, contract.max_session_minutes) == ("offline", 60)
    assert agent.purpose == "Serve Brno, warm."  # locked, then substituted
    assert agent.guardrails == "Be kind."
    assert agent.identity_description == "From Brno"
    assert agent.shared_memory_agent_refs == ["tester", "plain"]
    assert agent.llm_configuration.initial_planning is not None
    assert agent.llm_configuration.initial_planning.api_key == "env:KEY"
    hidden, tester, plain = catalog.agent("hidden"), catalog.agent("tester"), catalog.agent("plain")
    assert hidden is not None
    assert isinstance(hidden[0], BasicAgent)
    assert tester is not None
    assert isinstance(tester[0], TestAgent)
    assert plain is not None
    assert isinstance(plain[0], BasicAgent)
    assert plain[0].purpose == "Serve Praha, brief."  # the published revision
    assert catalog.agent("nobody") is None
    properties = catalog.realtime_properties("offline")
    assert isinstance(properties, InternalProperties)
    assert properties.chat == {"provider": "Demo"}
    assert properties.turn_detection == {"silenceMs": 500, "minSpeechMs": 200}
    assert catalog.realtime_properties("other") is None


def test_private_projects_are_not_listed_and_several_keep_their_order(tmp_path: Path) -> None:
    agent = "agents: [{{ref: {0}, type: basic, name: A, published: true, realtimeConfigurationId: shared}}]\n"
    first = write_project(tmp_path, "project: {ref: one, access: public}\n" + agent.format("b"), "one.yaml")
    second = write_project(
        tmp_path,
        "project: {ref: two, access: public}\n"
        "realtimeConfigurations: [{id: shared, properties: {provider: Internal}}]\n" + agent.format("a"),
        "two.yaml",
    )
    third = write_project(tmp_path, "project: {ref: three}\n" + agent.format("c"), "three.yaml")

    catalog = load_projects([first, second, third], components=COMPONENTS)

    assert [each.ref for each in catalog.published_agents()] == ["b", "a"]
    private = catalog.agent("c")
    assert private is not None
    assert private[1] == "three"
    assert load_projects([], components=COMPONENTS).published_agents() == []


def test_loading_names_every_fault(tmp_path: Path) -> None:
    first = write_project(tmp_path, HEAD + "agents: [{ref: a, type: basic}]\n", "a.yaml")
    second = tmp_path / "missing.yaml"

    with pytest.raises(ConfigurationError) as caught:
        load_projects([first, second], components=COMPONENTS)

    assert str(caught.value).splitlines() == [
        "the project files cannot be loaded:",
        f"{first}:4:10: missing field 'name'",
        f"{first}:4:10: missing field 'realtimeConfigurationId'",
        f"{second}:1:1: cannot be read: No such file or directory",
    ]


def test_a_shared_agent_that_is_not_there_is_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_project(
        tmp_path,
        HEAD
        + "agents:\n"
        + "  - {ref: a, type: relational, name: A, realtimeConfigurationId: offline, sharedMemoryAgentRefs: [b, a]}\n",
    )

    with caplog.at_level(logging.WARNING):
        found = load_projects([path], components=COMPONENTS).agent("a")

    assert found is not None
    assert isinstance(found[0], RelationalAgent)
    assert found[0].shared_memory_agent_refs == ["a"]
    message = "unknown agent 'b'; known: a"
    assert [record.getMessage() for record in caplog.records] == [f"{path}:5:99: {message}"]
    assert check_files([path], components=COMPONENTS) == [Fault(str(path), 5, 99, message, fatal=False)]


def test_modules_beside_the_file_hold_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "tools_beside_the_project.py").write_text(
        'def hello(name: str) -> str:\n    """Greet."""\n    return name\n'
    )
    path = write_project(
        tmp_path,
        agent_line('tools: ["tools_beside_the_project:hello"]'),
    )

    assert faults_of(path) == []
    assert sys.path[-1] == str(tmp_path)


def test_the_demo_project_is_right() -> None:
    before = sys.path[:]

    catalog = load_projects([PROJECT_FILE], components=COMPONENTS)

    assert sys.path == before  # its tool can be imported as it is
    [first, *_] = catalog.published_agents()
    assert isinstance(first, RelationalAgent)
    assert (first.ref, first.name, first.locale, first.gender) == ("barista", "Café Souffleur", "en", "female")
    offline = catalog.realtime_properties("offline")
    assert isinstance(offline, InternalProperties)
    assert offline.chat == {"provider": "Demo"}
    used = catalog.realtime_properties(first.realtime_configuration_id)
    assert isinstance(used, InternalProperties)
    assert used.chat == {"provider": "Auto"}


def test_the_demo_project_fits_what_is_installed() -> None:
    assert check_files([PROJECT_FILE]) == []


def test_only_models_that_are_installed_have_properties() -> None:
    assert installed_properties("Nobody") is None


# --- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ("purpos: x", "unknown field 'purpos'; did you mean 'purpose'?"),
        ("realtime_configuration_id: x", "unknown field 'realtime_configuration_id'; did you mean 'realtimeConfigurationId'?"),
        ("businessImpact: 1.0", "unknown field 'businessImpact'"),  # relational agents have it
        ("published: maybe", "published should be a valid boolean"),
        ('published: "true"', "published should be a valid boolean"),
        ("purpose: 5", "purpose should be a valid string (put it in quotes if it is meant as text)"),
        ("maxSessionMinutes: 0", "maxSessionMinutes should be greater than 0"),
        ('maxSessionMinutes: "60"', "maxSessionMinutes should be a valid number"),
        ("tools: 5", "tools should be a valid list"),
        ("gender: woman", "gender should be 'female', 'male' or 'neutral'"),
        ("locale: english!", "locale must be a locale such as en or cs-CZ"),
        ("handover: nobody", "unknown agent 'nobody'; known: a"),
        ("template: none", "unknown template 'none'; known: none"),
        ("mcpServers: [{name: x}]", "give either command or url"),
        ('tools: ["x y"]', "tools entry must be module:function, or the name of an installed tool"),
        ('tools: ["json:nothing"]', "tool json:nothing does not exist: module json has no nothing"),
        ('preSessionWebhook: {url: "ftp://x"}', "url must be an http or https URL"),
        ('preSessionWebhook: {url: "https://x", secret: hunter2}', f"secret {SECRET_RULE}"),
        ("templateVariables: {a: b}", "templateVariables without a template"),
        ("templateRevision: 2", "templateRevision without a template"),
        ('tools: ["agents.demo.booking:book_table", "agents.demo.booking:book_table"]', "tools names a tool twice"),
    ],
)  # fmt: skip
def test_faults_of_an_agent(tmp_path: Path, fields: str, fault: str) -> None:
    found = faults_of(write_project(tmp_path, agent_line(fields)))

    assert any(each.startswith("5:") and each.partition(": ")[2] == fault for each in found), found
    assert "hunter2" not in "".join(found)


def test_a_fault_is_placed_at_what_is_wrong(tmp_path: Path) -> None:
    path = write_project(
        tmp_path,
        HEAD
        + """\
templates:
  - ref: t
    published: true
    variables: [{name: city}, {name: tone, type: enum, values: [warm]}, {name: bad, type: enum}]
  - {ref: t, revision: 2, published: true}
  - {ref: t, revision: 2}
agents:
  - ref: a
    type: basic
    name: A
    realtimeConfigurationId: ofline
    purpsoe: x
    template: t
    templateVariables:
      town: Brno
      tone: cold
  - ref: b
    type: wizard
  - ref: c
  - ref: a
    type: basic
    name: " "
    realtimeConfigurationId: offline
    template: t
    templateRevision: 7
    published: 1
  - nonsense
unknownSection: 1
""",
    )

    assert faults_of(path) == [
        "6:16: template t has more than one published revision",
        "7:73: an enum variable lists its values, a text variable has none",
        "9:11: templates has t revision 2 twice",
        "14:30: unknown realtime configuration 'ofline'; did you mean 'offline'?",
        "15:5: unknown field 'purpsoe'; did you mean 'purpose'?",
        "18:7: unknown template variable 'town'; did you mean 'tone'?",
        "19:13: tone must be one of warm",
        "21:11: unknown type 'wizard'; known: basic, test, relational",
        "22:5: missing field 'type'",
        "23:10: agents has a twice",
        "25:11: name must not be blank",
        "28:23: template t has no revision 7; it has 1, 2, 2",
        "29:16: published should be a valid boolean",
        "30:5: agents entry should be a mapping of names to values",
        "31:1: unknown field 'unknownSection'",
    ]


def test_secrets_in_properties_are_found_wherever_they_are(tmp_path: Path) -> None:
    path = write_project(
        tmp_path,
        """\
project: {ref: demo}
users:
  - {name: jana, passwordHash: "$argon2id$v=19$m=1"}
realtimeConfigurations:
  - id: one
    properties:
      provider: Internal
      apiKey: sk-one
      chat: {provider: Demo, apiKey: sk-two, list: [{clientSecret: sk-three}], maxTokens: "5"}
  - {id: two, properties: {provider: Internal, apiKey: "env:KEY", chat: {apiKey: none, token: "file:/run/token"}}}
""",
    )

    rule = "must be a reference, env:NAME or file:PATH (none for an endpoint without keys), never the key itself"
    assert faults_of(path) == [
        "3:32: passwordHash must be a reference, env:NAME or file:PATH, never the secret itself",
        f"8:15: apiKey {rule}",
        f"9:38: apiKey {rule}",
        f"9:68: clientSecret {rule}",
    ]


def test_providers_and_their_parts_are_known(tmp_path: Path) -> None:
    path = write_project(
        tmp_path,
        """\
project: {ref: demo}
realtimeConfigurations:
  - {id: one, properties: {provider: Intrenal}}
  - {id: two, properties: {sampleRate: 24000}}
  - {id: three, properties: {provider: Internal, samplRate: 1}}
  - {id: four, properties: {provider: Internal, sampleRate: 1}}
  - {id: five, properties: {provider: Internal, sttProvider: Loca, ttsProvider: None, chat: {provider: Dmo}}}
  - {id: six, properties: {}}
  - {id: seven, properties: 5}
  - {id: one, properties: {provider: Internal}}
""",
    )

    assert faults_of(path) == [
        "3:38: unknown provider 'Intrenal'; did you mean 'Internal'?",
        "4:27: missing field 'provider'",
        "5:50: unknown field 'samplRate'; did you mean 'sampleRate'?",
        "6:61: sampleRate should be greater than or equal to 8000",
        "7:62: unknown recognizer 'Loca'; did you mean 'Local'?",
        "7:104: unknown chat model 'Dmo'; did you mean 'Demo'?",
        "8:27: missing field 'provider'",
        "9:29: properties should be a mapping of names to values",
        "10:10: realtimeConfigurations has one twice",
    ]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", ["1:1: is empty"]),
        ("- a\n- b\n", ["1:1: must hold project, agents and so on, each with its name"]),
        ("project: [\n", ["2:1: while parsing a flow node, expected the node content, but found '<stream end>'"]),
        (
            "project: {ref: a}\nproject: {ref: b}\n",
            ["2:1: the key 'project' is here twice; the first one is on line 1"],
        ),
        ("agents: []\n", ["1:1: missing field 'project'"]),
        ("project: {ref: a b}\n", ["1:16: ref may hold only letters, digits and . _ ~ -, at most 128"]),
        ("project: {ref: a, featuredAgent: b}\n", ["1:34: unknown agent 'b'; known: none"]),
        ("project: {ref: a}\nagents:\n", ["2:8: agents should be a valid list"]),
    ],
)
def test_faults_of_a_file(tmp_path: Path, text: str, faults: list[str]) -> None:
    assert faults_of(write_project(tmp_path, text)) == faults


def test_faults_between_files(tmp_path: Path) -> None:
    text = HEAD + "agents:\n  - {ref: a, type: basic, name: A, realtimeConfigurationId: offline}\n"
    first, second = write_project(tmp_path, text, "1.yaml"), write_project(tmp_path, text, "2.yaml")

    found = check_files([first, second], components=COMPONENTS)

    assert [str(fault) for fault in found] == [
        f"{second}:1:16: project demo is in {first} as well",
        f"{second}:3:10: realtime configuration offline is in {first} as well",
        f"{second}:5:11: agent a is in {first} as well",
    ]


def test_a_tool_that_breaks_on_import_and_names_that_clash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "tools_that_break.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "tools_that_clash.py").write_text(
        "def finish_session() -> None: ...\ndef one() -> None: ...\ndef two() -> None: ...\ntwo.__name__ = 'one'\n"
        "def bare(x): ...\n"
    )
    path = write_project(
        tmp_path,
        HEAD
        + """\
agents:
  - ref: a
    type: basic
    name: A
    realtimeConfigurationId: offline
    tools:
      - tools_that_break:f
      - tools_that_clash:one
      - tools_that_clash:two
      - tools_that_clash:finish_session
      - tools_that_clash:bare
      - book_tabel
""",
    )

    assert faults_of(path) == [
        "10:9: tool tools_that_break:f cannot be imported: ModuleNotFoundError: No module named 'nothing_of_that_name'",
        "12:9: the tool's name, one, is taken by tools_that_clash:one",
        "13:9: the tool's name, finish_session, is taken by the engine",
        "14:9: parameter x of tool bare needs a type annotation",
        "15:9: no tool named 'book_tabel' is installed; installed: none",
    ]


def test_a_fault_in_an_alias_is_told_once(tmp_path: Path) -> None:
    path = write_project(
        tmp_path,
        HEAD + "users:\n  - &u {name: a, rol: x}\nagents:\n  - *u\n",
    )

    found = faults_of(path)

    assert found.count("5:18: unknown field 'rol'; did you mean 'role'?") == 1


@pytest.mark.parametrize("value", ["env:A", "file:/run/secrets/hash", "file:C:\\keys\\a b"])
def test_references_to_secrets(tmp_path: Path, value: str) -> None:
    assert (
        faults_of(write_project(tmp_path, f"project: {{ref: a}}\nusers: [{{name: u, passwordHash: '{value}'}}]\n"))
        == []
    )


JUNK: list[Any] = [None, True, 0, -1.5, "", "x y", [], {}, [[]], [{}], {"a": [1]}, ["x"]]


def places_in(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield at
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield from places_in(item, (*at, key))
    if isinstance(value, list):
        for index, item in enumerate(list(cast("Iterable[Any]", value))):
            yield from places_in(item, (*at, index))


def replaced(value: Any, at: tuple[str | int, ...], junk: Any) -> Any:
    if not at:
        return junk
    copy = value.copy()
    copy[at[0]] = replaced(copy[at[0]], at[1:], junk)
    return copy


def test_nothing_that_stands_anywhere_breaks_the_checks() -> None:
    """Whatever is put in any one place of the file with everything, it is a fault or it is none."""
    document = read_located(EVERYTHING.encode())
    places = list(places_in(document.data))
    faulty = 0

    for place in places:
        for junk in JUNK:
            file = CheckedFile("p.yaml", attrs.evolve(document, data=replaced(document.data, place, junk)))
            check_all([file, CheckedFile("unreadable.yaml")], COMPONENTS)
            assert file.faults or file.project is not None
            faulty += bool(file.faults)

    assert len(places) > 120
    assert faulty > len(places) * len(JUNK) * 0.7


def test_null_is_the_same_as_leaving_out(tmp_path: Path) -> None:
    nulls: list[Any] = ["purpose", "locale", "gender", "handover", "template", "preSessionWebhook", "userIdleSeconds"]
    assert faults_of(write_project(tmp_path, agent_line(", ".join(f"{name}: null" for name in nulls)))) == []
