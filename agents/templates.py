"""Applying a template to an agent: first the locks, then the variables (SPEC R2). Pure."""

import re
from collections.abc import Mapping
from typing import TypeVar

from agents.definitions import TemplatableAgent, Template

TEXT_FIELDS = ("purpose", "business_process_steps", "guardrails", "identity_description")
OTHER_FIELDS = ("business_impact", "has_memory", "camera_preset")
PLACEHOLDER = re.compile(r"\{([^{}]+)\}")

T = TypeVar("T", bound=TemplatableAgent)


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """`text` with each `{name}` that has a value replaced by it, and everything else as written.

    One pass: a value that itself looks like a placeholder is not looked up again.
    """
    return PLACEHOLDER.sub(lambda found: variables.get(found[1], found[0]), text)


def apply_template(agent: T, template: Template) -> T:
    """The agent as a conversation sees it.

    A locked field takes the template's value, an unlocked one keeps the agent's own, blank or not. The variables go into the
    result, so also into the agent's own text. Fields that its kind of agent does not have are left out.
    """
    fields = type(agent).model_fields
    values: dict[str, object] = {
        name: getattr(template if getattr(template, f"{name}_locked") else agent, name)
        for name in (*TEXT_FIELDS, *OTHER_FIELDS)
        if name in fields
    }
    for name in TEXT_FIELDS:
        if isinstance(text := values.get(name), str):
            values[name] = substitute(text, agent.template_variables)
    return agent.model_copy(update=values)
