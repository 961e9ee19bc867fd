"""Documents of every format as blocks."""

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypdf import PdfWriter

from agents.knowledge.content import Block, Content, LeftOutError, UnreadableError, clean, one_line
from agents.knowledge.files import read_content, title_of
from agents.knowledge.html import read_html
from tests.agents.knowledge.support import carry_on, make_pdf


def read(name: str, content: str | bytes) -> Content:
    return read_content(name, content.encode() if isinstance(content, str) else content, carry_on)


def texts(content: Content) -> list[tuple[tuple[str, ...], str]]:
    return [(block.headings, block.text) for block in content.blocks]


# --- Markdown ----------------------------------------------------------------------------------------------------------


def test_markdown_under_its_headings() -> None:
    content = read(
        "menu.md",
        "before\n\n# Menu #\nOne\ntwo.\n\nThree.\n## Drinks\n### Tea\n#### Green\nHot.\n### Juice\nCold.\n# Rules\nNone.\n",
    )
    assert content.title == "Menu"
    assert texts(content) == [
        ((), "before"),
        (("Menu",), "One\ntwo."),
        (("Menu",), "Three."),
        (("Menu", "Drinks", "Tea", "Green"), "Hot."),
        (("Menu", "Drinks", "Juice"), "Cold."),
        (("Rules",), "None."),
    ]


def test_underlined_headings_and_what_only_looks_like_one() -> None:
    content = read(
        "a.md", "The\nmenu\n====\nTea.\n\nDrinks\n---\nJuice.\n\n- a list\n---\n\n***\n\n#no heading\n\n# \nEnd.\n"
    )
    assert texts(content) == [
        (("The menu",), "Tea."),
        (("The menu", "Drinks"), "Juice."),
        (("The menu", "Drinks"), "- a list\n---"),
        (("The menu", "Drinks"), "***"),
        (("The menu", "Drinks"), "#no heading"),
        ((), "End."),
    ]


def test_front_matter() -> None:
    content = read(
        "a.md",
        "---\ntitle: The  menu\ndescription: What there is.\nurl: https://cafe.example/menu\n---\n# Menu\nTea.\n",
    )
    assert content == Content(
        "The menu", "What there is.", "https://cafe.example/menu", (Block("Tea.", headings=("Menu",)),)
    )


@pytest.mark.parametrize(
    "fields", ["url: menu.html", "url: javascript:x", "title: [a]", "url: 5", "description: {a: b}"]
)
def test_fields_that_say_nothing(fields: str) -> None:
    content = read("a.md", f"---\n{fields}\n---\nTea.\n")
    assert content.title == content.description == content.url == ""
    assert content.blocks[-1].text == "Tea."


@pytest.mark.parametrize("text", ["---\nno end\n\nTea.", "---\n{]\n---\nTea.", "---\n- a\n---\nTea.", "Tea."])
def test_what_is_no_front_matter_is_text(text: str) -> None:
    for name in ("a.md", "a.txt"):
        assert "\n\n".join(block.text for block in read(name, text).blocks) == text


def test_listings_are_taken_as_they_are() -> None:
    content = read("a.md", "# A\n```sh\n# no heading\n\n| a |\n~~~\n```\nTea.\n~~~\n```\nnever closed\n\n# nor this\n")
    assert texts(content) == [
        (("A",), "```sh\n# no heading\n\n| a |\n~~~\n```"),
        (("A",), "Tea."),
        (("A",), "~~~\n```\nnever closed\n\n# nor this"),
    ]
    assert [block.is_lined for block in content.blocks] == [True, False, True]


def test_tables_keep_their_heads() -> None:
    content = read("a.md", "| code | meaning |\n|:--|---|\n| E1 | fan |\n| E2 | memory |\nTea.\n\nnot | a\ntable\n")
    table, tea, no_table = content.blocks
    assert (table.is_lined, table.repeats) == (True, "| code | meaning |\n|:--|---|")
    assert table.text.endswith("| E2 | memory |")
    assert (tea.text, no_table.text, no_table.is_lined) == ("Tea.", "not | a\ntable", False)


def test_comments_are_not_said() -> None:
    assert texts(read("a.md", "Tea. <!-- not\n\n# yet -->\nJuice.\n<!-- never closed\n")) == [((), "Tea. \nJuice.")]


# --- plain text --------------------------------------------------------------------------------------------------------


def test_plain_text_by_paragraphs() -> None:
    content = read("a.txt", "---\ntitle: Tea\n---\n# no heading\nOne.\n \nTwo.\n\n\n\nThree.")
    assert content.title == "Tea"
    assert texts(content) == [((), "# no heading\nOne."), ((), "Two."), ((), "Three.")]


# --- awkward bytes -----------------------------------------------------------------------------------------------------


def test_marks_line_ends_and_control_characters() -> None:
    content = read("a.md", b"\xef\xbb\xbf# Caf\xc3\xa9\r\nOne.\r\rTwo\x07\x1b[0m.\xe2\x80\xa9Three\xef\xbb\xbf.\r\n")
    assert texts(content) == [(("Café",), "One."), (("Café",), "Two[0m."), (("Café",), "Three.")]


def test_utf_16_with_its_mark() -> None:
    assert read("a.txt", "Žluťoučký".encode("utf-16")).blocks[0].text == "Žluťoučký"


def test_letters_are_composed() -> None:
    assert read("a.txt", "kavárna").blocks[0].text == "kavárna"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.md", "Ahoj\nžlutý".encode("cp1250"), r"is not UTF-8 text \(line 2\)"),
        ("a.txt", b"\xff\xfea", r"is not UTF-8 text \(line 1\)"),
        ("a.txt", b"MZ\0\0", "is not text"),
        ("a.md", b" \n\n", "is empty"),
        ("a.md", b"# Only\n## Headings\n", "is empty"),
        ("a.html", b"<title>Tea</title><script>tea()</script>", "is empty"),
        ("a.pdf", b"%PDF-1.4 and then nothing", "is a damaged PDF"),
        ("a.pdf", make_pdf([""]), "holds no text; is it a scan"),
    ],
)
def test_what_cannot_be_read(name: str, data: bytes, message: str) -> None:
    with pytest.raises(UnreadableError, match=message) as caught:
        read(name, data)
    assert caught.value.is_lasting


# --- HTML --------------------------------------------------------------------------------------------------------------

PAGE = """<!doctype html><html lang="cs"><head><title>Kavárna &amp;\n bar</title>
<meta name="Description" content="Co je kde."><link rel="canonical" href="https://cafe.example/cs">
<style>p { color: red }</style></head>
<body><nav><ul><li>Domů</li></ul></nav>
<p>Úvod.</p><h1>Nabídka</h1><p>Vaříme <b>ká</b>vu<br>a čaj.</p>
<h2>Ceny</h2><table><tr><th>Co</th><th>Kč</th></tr><tr><td><p>Espresso</p></td><td>55</td></tr></table>
<ul><li>mléko<ul><li>sójové</li></ul></li><li>cukr</li></ul>
<pre>a
  b</pre><script>if (a < b) { "<p>no</p>" }</script>
<template><p>nic</p></template><h2></h2><p>Konec"""


def test_html_as_it_is_seen() -> None:
    content = read("a.html", PAGE)
    assert (content.title, content.description, content.url) == (
        "Kavárna & bar",
        "Co je kde.",
        "https://cafe.example/cs",
    )
    assert texts(content) == [
        ((), "Úvod."),
        (("Nabídka",), "Vaříme kávu\na čaj."),
        (("Nabídka", "Ceny"), "Co | Kč\nEspresso | 55"),
        (("Nabídka", "Ceny"), "- mléko\n- sójové\n- cukr"),
        (("Nabídka", "Ceny"), "a\n  b"),
        (("Nabídka",), "Konec"),
    ]
    assert [block.is_lined for block in content.blocks] == [False, False, True, False, True, False]


def test_html_without_a_title_has_its_first_heading() -> None:
    assert read("a.htm", "<h1>Tea</h1>Green.").title == "Tea"
    assert read("a.htm", "Green.").title == ""


def test_links_that_lead_nowhere_are_no_source() -> None:
    assert read("a.htm", '<link rel=canonical href="/tea"><link href="https://a.example">Green.').url == ""


def test_what_is_long_and_unseen_does_no_harm() -> None:
    data = "A" * 100_000
    page = f"<p>One.<img src='data:image/png;base64,{data}'><!-- {data} --><SCRIPT>if (a<b) {data}</script><style>{data}</style>"
    assert texts(read("a.html", page + "<p>Two.<!-- to the end <p>Three.")) == [((), "One."), ((), "Two.")]
    for tag in ("<a ", "<a href='", "</a ", "<!x ", "<?x "):
        with pytest.raises(UnreadableError, match="is damaged HTML: a tag does not end"):
            read("a.html", "<p>One." + tag * 100_000)


MARKUP = ["<", ">", "/", "p", "h1", "table", "ul", "pre", "title", "svg", " ", "a", "&", "!--", '"', "\n"]


@given(st.lists(st.sampled_from(MARKUP)))
def test_any_markup_is_read(markup: list[str]) -> None:
    content = read_html("".join(markup), carry_on)
    assert all(block.text.strip() for block in content.blocks)


# --- PDF ---------------------------------------------------------------------------------------------------------------


def test_pdf_page_by_page() -> None:
    content = read("a.pdf", make_pdf(["Caf\xe9 open-\ning hours.", "", "Prices."], title="The  menu"))
    assert content == Content("The menu", blocks=(Block("Café opening hours.", page=1), Block("Prices.", page=3)))


def test_a_locked_pdf() -> None:
    writer = PdfWriter(clone_from=io.BytesIO(make_pdf(["Prices."])))
    writer.encrypt("secret")
    out = io.BytesIO()
    writer.write(out)
    with pytest.raises(UnreadableError, match="is locked with a password"):
        read("a.pdf", out.getvalue())


def test_a_pdf_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(LeftOutError, match=r"pip install 'souffleur-engine\[pdf\]'") as caught:
        read("a.pdf", make_pdf(["Prices."]))
    assert not caught.value.is_lasting


def test_somebody_is_asked_between_pages() -> None:
    asked: list[int] = []
    read_content("a.pdf", make_pdf(["One.", "Two.", "Three."]), lambda: asked.append(1))
    assert len(asked) == 3


# --- small things ------------------------------------------------------------------------------------------------------


def test_titles_of_files() -> None:
    assert title_of("docs/opening_hours-2026.md") == "Opening hours 2026"


def test_one_line_is_cut_at_a_gap() -> None:
    assert one_line("  a\n b ", 10) == "a b"
    assert one_line("one two three four", 12) == "one two…"
    assert one_line("a" * 30, 10) == "a" * 9 + "…"


@given(st.text(st.characters(exclude_categories=())))
def test_cleaned_text_can_be_kept(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert "\r" not in cleaned
    assert "\0" not in cleaned
