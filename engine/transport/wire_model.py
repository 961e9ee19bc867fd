"""What the models of the wire's messages have in common."""

from typing import cast

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from engine.elements import JsonObject


class Message(BaseModel):
    """One JSON object."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, use_attribute_docstrings=True
    )


def shown_as(*examples: JsonObject) -> ConfigDict:
    """The examples of a message; tests read them back."""
    return ConfigDict(json_schema_extra={"examples": list(examples)})


def without_default(schema: JsonObject) -> None:
    """For a field that is left out when it has no value, as null is never sent."""
    del schema["default"]


def examples_of(model: type[Message]) -> list[JsonObject]:
    extra = cast("dict[str, list[JsonObject]]", model.model_config.get("json_schema_extra"))
    return extra["examples"]
