"""How the user feels, as far as their words show it."""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel

from agents.extraction.contract import Extractor
from agents.extraction.outputs import Label, Valence
from agents.extraction.structured import Output


class Sentiment(Output):
    valence: Valence
    """-1: very unpleasant, 1: very pleasant."""
    label: Annotated[Literal["negative", "neutral", "positive"], Label]
    expression: Annotated[
        Literal[
            "neutral", "joy", "interest", "surprise", "sadness", "anger", "fear", "disgust", "frustration", "confusion"
        ],
        Label,
    ]


class SentimentExtractor(Extractor):
    name = "sentiment"
    output: ClassVar[type[BaseModel]] = Sentiment
    prompt = "extraction.sentiment"
