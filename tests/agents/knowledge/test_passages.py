"""Content cut into passages."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agents.knowledge.content import Block, Content
from agents.knowledge.markdown import read_markdown
from agents.knowledge.passages import MAX_CHARACTERS, MAX_OVERLAP, Passage, cut


def passages_of(*blocks: Block) -> list[Passage]:
    return cut(Content("", blocks=blocks))


def rejoined(passages: list[Passage]) -> str:
    return "".join(passage.text[passage.overlap :] for passage in passages)


def test_paragraphs_share_a_passage_while_they_fit_under_one_heading() -> None:
    long = "x" * (MAX_CHARACTERS - 2)
    assert passages_of(Block("a", ("A",)), Block("b", ("A",)), Block("c", ("B",)), Block(long, ("B",)), Block("d")) == [
        Passage("a\n\nb", ("A",)),
        Passage("c", ("B",)),
        Passage(long, ("B",)),
        Passage("d"),
    ]


def test_pages_are_kept_apart() -> None:
    assert passages_of(Block("a", page=1), Block("b", page=1), Block("c", page=2)) == [
        Passage("a\n\nb", page=1),
        Passage("c", page=2),
    ]


def test_what_says_nothing_is_left_out() -> None:
    assert passages_of(Block("***"), Block("- - -"), Block("|---|")) == []


def test_long_paragraphs_are_cut_between_sentences_that_overlap() -> None:
    sentences = [f"Sentence number {number} says nothing of interest to anybody. " for number in range(60)]
    passages = passages_of(Block("".join(sentences), ("A",)))
    assert len(passages) > 2
    for before, after in pairwise(passages):
        repeated = after.text[: after.overlap]
        assert repeated.startswith("Sentence number")
        assert before.text.endswith(repeated.strip())
    assert all(passage.text.endswith(".") and len(passage.text) <= MAX_CHARACTERS for passage in passages)


def test_sentences_of_other_scripts_and_quotes() -> None:
    text = "他说：营业时间是八点到十点。" * 100
    assert all(passage.text.endswith("。") for passage in passages_of(Block(text)))
    quoted = "„Kdy máte otevřeno?“ zeptal se host. " * 40
    assert all(passage.text.endswith(("host.", "?“")) for passage in passages_of(Block(quoted)))


def test_a_million_characters_on_one_line() -> None:
    for text in ("x" * 1_000_000, "word " * 200_000):
        passages = passages_of(Block(text))
        assert all(len(passage.text) <= MAX_CHARACTERS for passage in passages)
        assert len(passages) < 2 * 1_000_000 / (MAX_CHARACTERS - 2 * MAX_OVERLAP)
    assert len(rejoined(passages_of(Block("x" * 1_000_000)))) == 1_000_000


def test_tables_are_cut_between_rows_under_their_head() -> None:
    head = "| code | meaning |\n|------|---------|"
    rows = [f"| E{number} | something is wrong with part {number} |" for number in range(60)]
    passages = passages_of(Block("\n".join((head, *rows)), is_lined=True, repeats=head))
    assert all(passage.text.startswith(head) and len(passage.text) <= MAX_CHARACTERS for passage in passages)
    kept = [line for passage in passages for line in passage.text[passage.overlap :].split("\n")]
    assert kept == [*head.split("\n"), *rows]


def test_a_row_that_is_too_long_is_cut_like_prose() -> None:
    passages = passages_of(Block("short\n" + "long " * 400 + "\nend", is_lined=True))
    assert all(len(passage.text) <= MAX_CHARACTERS for passage in passages)
    assert passages[0].text == "short"
    assert passages[-1].text == "end"


@given(st.lists(st.text(st.sampled_from("ab .!?\n。|#`-"), max_size=3000), max_size=4))
def test_passages_are_bounded_and_lose_no_words(parts: list[str]) -> None:
    text = "\n\n".join(parts)
    content = read_markdown(text)
    passages = cut(content)
    assert all(0 < len(passage.text) <= MAX_CHARACTERS for passage in passages)
    assert all(0 <= passage.overlap < len(passage.text) for passage in passages)
    letters = [char for block in content.blocks for char in block.text if char in "ab"]
    assert [char for passage in passages for char in passage.text[passage.overlap :] if char in "ab"] == letters
