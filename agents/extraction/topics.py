"""What a turn is about."""

from typing import Annotated, ClassVar

from pydantic import BaseModel

from agents.extraction.contract import Extractor
from agents.extraction.outputs import Name, Share, at_most
from agents.extraction.structured import Output

MAX_TOPICS = 5


class Topic(Output):
    name: Name
    """In the language of the conversation."""
    weight: Share


class Topics(Output):
    topics: Annotated[list[Topic], at_most(MAX_TOPICS)]


class TopicsExtractor(Extractor):
    name = "topics"
    output: ClassVar[type[BaseModel]] = Topics
    prompt = "extraction.topics"
