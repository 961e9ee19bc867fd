"""Locks, then variables (R2); vectors T01 and T02 of the cases' annex."""

import pytest

from agents.definitions import RelationalAgent, Template
from agents.templates import apply_template, substitute
from tests.agents.support import make_agent

RELATIONAL = {"type": "relational", "ref": "r", "name": "Rita", "realtimeConfigurationId": "offline"}


@pytest.mark.parametrize(
    ("text", "variables", "expected"),
    [
        pytest.param(
            'Answer as {"name": "{client}"} please', {"client": "Ana"}, 'Answer as {"name": "Ana"} please', id="T01"
        ),
        pytest.param("It is 5} for {item} and {unknown}", {"item": "tea"}, "It is 5} for tea and {unknown}", id="T02"),
        pytest.param("{a}{b}", {"a": "{b}", "b": "x"}, "{b}x", id="values are not looked up again"),
        pytest.param("{{name}}", {"name": "Ana"}, "{Ana}", id="double braces"),
        pytest.param("{ name }", {"name": "Ana"}, "{ name }", id="a name is exact"),
        pytest.param("{město} {my city}", {"město": "Brno", "my city": "Praha"}, "Brno Praha", id="any name"),
        pytest.param(r"{a}", {"a": r"\1 \g<0>"}, r"\1 \g<0>", id="a value is no pattern"),
        pytest.param("", {"a": "b"}, "", id="empty"),
    ],
)
def test_substitution(text: str, variables: dict[str, str], expected: str) -> None:
    assert substitute(text, variables) == expected


def test_locked_fields_are_the_templates_and_unlocked_ones_the_agents() -> None:
    template = Template(
        ref="t",
        purpose="Serve {city}.",
        purpose_locked=True,
        guardrails="Never shout.",
        identity_description=None,
        identity_description_locked=True,
        business_impact=0.2,
        business_impact_locked=True,
        has_memory=True,
        has_memory_locked=True,
        camera_preset="close",
    )
    agent = RelationalAgent.model_validate(
        RELATIONAL
        | {
            "purpose": "Mine",
            "guardrails": "Own rules of {city}.",
            "identityDescription": "Somebody",
            "businessProcessSteps": "1. {city} 2. {other}",
            "cameraPreset": "far",
            "initialPlan": "{city}",
            "template": "t",
            "templateVariables": {"city": "Brno"},
        }
    )

    made = apply_template(agent, template)

    assert made.purpose == "Serve Brno."
    assert made.guardrails == "Own rules of Brno."
    assert made.identity_description is None
    assert made.business_process_steps == "1. Brno 2. {other}"
    assert made.business_impact == 0.2
    assert made.has_memory is True
    assert made.camera_preset == "far"
    assert made.initial_plan == "{city}"  # no field of templates
    assert agent.purpose == "Mine"


def test_an_unlocked_field_stays_blank_when_the_agents_own_is() -> None:
    assert apply_template(make_agent(template="t"), Template(ref="t", purpose="Theirs")).purpose is None


def test_a_basic_agent_takes_the_fields_it_has() -> None:
    template = Template(
        ref="t", purpose="Serve.", purpose_locked=True, business_process_steps="x", business_process_steps_locked=True
    )

    made = apply_template(make_agent(template="t"), template)

    assert made.purpose == "Serve."
    assert not hasattr(made, "business_process_steps")


@pytest.mark.parametrize(
    ("impact", "level"),
    [(0.0, "low"), (0.329, "low"), (0.33, "medium"), (0.659, "medium"), (0.66, "high"), (1.0, "high")],
)
def test_business_impact_is_bucketed(impact: float, level: str) -> None:
    assert RelationalAgent.model_validate(RELATIONAL | {"businessImpact": impact}).business_impact_level == level
