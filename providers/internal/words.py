"""Places in a text by its visible characters: sentences, clauses and what was heard keep all of those, and no white space."""


def count_visible(text: str) -> int:
    """How many characters are not white space."""
    return sum(not character.isspace() for character in text)


def upto(text: str, visible: int) -> str:
    """The front of a text with so many visible characters; all of it when it has no more."""
    return text if visible >= count_visible(text) else text[: _place(text, visible)].rstrip()


def behind(text: str, visible: int) -> str:
    """What follows the front of a text with so many visible characters."""
    return text[_place(text, visible) :].strip()


def _place(text: str, visible: int) -> int:
    """The index behind so many visible characters."""
    for index, character in enumerate(text):
        if visible <= 0:
            return index
        visible -= not character.isspace()
    return len(text)
