"""How much the user takes part."""

from typing import ClassVar

from pydantic import BaseModel

from agents.extraction.contract import Extractor
from agents.extraction.outputs import Share
from agents.extraction.structured import Output


class Engagement(Output):
    level: Share
    wants_to_stop: bool
    confused: bool
    repeats: bool
    """The user says something again that was not taken up."""


class EngagementExtractor(Extractor):
    name = "engagement"
    output: ClassVar[type[BaseModel]] = Engagement
    prompt = "extraction.engagement"
