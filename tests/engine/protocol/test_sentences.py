import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol.sentence_tables import COMMON, LANGUAGES, Language, rules_for
from engine.protocol.sentences import MAX_SENTENCE, ClauseCutter, SentenceAssembler

LOCALES = ["en", "cs", "sk", "de", "pl", "fr", "es", "xx"]


def feed_all(assembler: SentenceAssembler | ClauseCutter, tokens: list[str]) -> list[str]:
    return [sentence for token in tokens for sentence in assembler.feed(token)]


def sentences(tokens: list[str], locale: str = "en") -> list[str]:
    assembler = SentenceAssembler(locale)
    return feed_all(assembler, tokens) + assembler.flush()


def squeezed(text: str) -> str:
    return "".join(text.split())


# --- the rules, by example: "|" marks where a sentence ends; it is fed whole and one character a token ---------------------

PLAIN = [
    ("en", "Hello world. |How are you? |Fine!"),
    ("en", "Hello."),
    ("en", "No stop at all"),
    ("en", "  \n Leading space. |And behind.  "),
    ("en", "Inner  space\tstays. |Yes."),
    ("en", "Hello . |Then ? |Yes !"),
    ("en", "Really?! |Yes!! |No?!?! |Good."),
    ("en", "SHOUTED. |AGAIN."),
    ("en", "I like it. |iPhone is good."),
]
NUMBERS = [
    ("en", "It has 14. |Bring two."),
    ("en", "There were 1,000 of 1.5 or 3.14159. |Yes."),
    ("en", "In 1998. |30 people came. |Version 2.0. |It works."),
    ("en", "It is $5. |$6 is more. |It's 10:30. |Go."),
    ("en", "It is at 192.168.0.1. |Ping ::1. |Done."),
    ("en", "The 4. 5 and 6."),
    ("en", "They have 3. |犬 is dog."),
    ("cs", "Sejdeme se v 9. 30. |Platí? |Dne 14. 10. 2025. |Dobře."),
    ("cs", "Od 14. – 16. října. |Ve 3. patře. |Je jich 14. |Platí?"),
    ("cs", "Karel IV. byl král. |Otevřeno 9.00–17.00. |Ano."),
    ("cs", "Přijede 14. (října) večer."),
    ("de", "Am 3. Juni. |Im 3. Stock. |Der 2. Weltkrieg. |Sein 60. Geburtstag."),
    ("de", "Er kam als 3. |Dann ging er. |Es ist der 3. |Dann. |Wir haben noch 3. |Morgen mehr."),
]
ADDRESSES = [
    ("en", "See www.a.example/x.html. |Mail me@b.example. |Bye."),
    ("en", "See https://a.example/?q=Is+it?&r=1! |Good."),
    ("en", "Is it https://a.example/? |Good. |Open (see https://a.example/b.) |Now."),
    ("en", "Try Booking.com or Node.js. |Go."),
    ("ja", "https://a.example/b.c?d=1を見て。|次。"),
]
ABBREVIATIONS = [
    ("en", "Mr. and Mrs. Smith. |Prof. Brown said so. |Apples, e.g. Granny Smith."),
    ("en", "See No. 5. |No. |I won't. |He sat. |Then Sat. 14 May. |Jan. 5."),
    ("en", "He sold apples etc. |Then pears. |It ends at 9 p.m. |See you. |At 9 a.m. Monday. |At 9 p.m. we go."),
    ("en", "Orbis Inc. |They left. |Orbis Inc. Europe. |In St. Petersburg. |On Main St. |The shop."),
    ("en", "The U.S. |The end. |The U.S. President. |The U.S. 66 is long. |Two Ph.D. students."),
    ("en", "I know J.K. Rowling and J. A. Smith. |Ask J. |He knows."),
    ("en", "So do I. |Bring it. |Plan B. |Bring it. |Vitamin C. |3 grams. |It is 5 m. |Bring it."),
    ("en", "Etc. is short. |E.g. Prague."),
    ("cs", "Např. Praha, Brno atd. |Platí? |Ing. Novák a tzv. Sova."),
    ("cs", "Firma Orel s. r. o. Praha. |Firma Orel s.r.o. |Je dobrá. |V ul. Dlouhá č. 5. |Pak."),
    ("cs", "Za 5 min. |Budeme tam. |Stojí 5 mil. Kč. |Kniha J. V. Nováka. |Vchod B. |Máte lístek?"),
    ("de", "Es gibt z. B. Äpfel. |Z.B. Birnen usw. |Dann Frau Dr. Schmidt. |Nr. 5. |Es kostet 5 Mio. Euro."),
    ("de", "Bis 5 Std. |Dann ca. 9 Uhr. |Gut, d. h. Ende."),
    ("pl", "Np. Kraków, tzn. ok. 5 osób itd. |Potem."),
    ("fr", "M. Dupont. |C'est J. C. Dupont. |Il part à 9 h. |Puis."),
    ("es", "El Sr. Gómez. |La Dra. Ruiz. |Ud. |No."),
    ("cs-CZ", "Je to písm. A. |Pak."),
    ("zh", "他是A。|B。|我. |他。"),
]
ELLIPSES = [
    ("en", "Wait... what? |It costs... 5 dollars. |Well... |Now I see…"),
    ("en", "And… so it goes… |The end..."),
    ("en", "...and then it was over. |Yes."),
    ("en", "No. . . |Then."),
]
CLOSERS = [
    ("en", 'He said "Hello." |Then he left. |"Really?" she asked. |“Yes!” |‘Good.’ |(As ever.) |[Done.] |So.'),
    ("en", "He asked (really?) and left. |He said 'It is.' and left."),
    ("en", 'He came. |"Yes." |He went. |(No.) |«Go.» |¿Qué? |¡Sí!'),
    ("en", "**Bold.** |Next is *this.* |**That** is it."),
    ("en", "I asked Dr. (now Prof.) Novak."),
    ("fr", "Oui ! |« Ça va ? » dit-il. |« Oui. » |Puis il part. |Il dit. ) |Puis."),
    ("de", "„Wirklich?“, fragte er. |„Ja.“ |Dann. |»Gut.« |Er ging."),
    ("ja", "「行こう。」と言った。|「はい。」|『いいえ！』|（次。）|終わり。"),
    ("zh", '他说。|"好。"|他走了。|“走吧。”|“好。”|‘是。’|走。'),
]
SCRIPTS = [
    ("ja", "こんにちは。|元気ですか？|はい！|今日は27.5度です。|3.5だ。"),
    ("zh", "你好!|我是。|今天很好! |明天……好。"),
    ("hi", "नमस्ते। |आप कैसे हैं? |ठीक॥ |अच्छा।|फिर"),
    ("ar", "مرحبا. |كيف حالك؟ |بخير! |نعم۔|شكرا"),
]
EMOJI = [
    ("en", "Great! 🎉 |Let's go. |Ok 👍🏽. |Now. 👩‍👩‍👧 🇨🇿 |Go!🎉|Yes. ❤️"),
    ("en", "Great!\n|🎉 Party. |Go!\n|🎉"),
    ("en", "🎉 Hi."),
]
LINES = [
    ("en", "1. First\n|2. Second\n|- Third\n|(a) Fourth\n|b. The fifth"),
    ("en", "1.\nFirst\n\n|2)\nSecond"),
    ("en", "# Title\r\n|Text\u2028|More.\n|End"),
    ("en", "Ask Dr.\n|Novak"),
    ("en", "---\nHello.\n|!\n"),
    ("en", "Choose: 1. Tea 2. Coffee 3. Water. |Which?"),
    ("en", "42. Then. |$5. |The end."),
]
STYLES = [
    ("en", "i like it. |do you? |yes. |ok... fine"),
    ("en", "I like it. do you"),
    ("en", "It is new. & more. |Good."),
    ("en", "Sure!|Let me see. |Did you?|Yes. |See a.b?Q=1 or the x.Yes page. |Go!now"),
]


@pytest.mark.parametrize(
    ("locale", "marked"),
    PLAIN + NUMBERS + ADDRESSES + ABBREVIATIONS + ELLIPSES + CLOSERS + SCRIPTS + EMOJI + LINES + STYLES,
)
def test_sentences_end_where_they_should(locale: str, marked: str) -> None:
    text = marked.replace("|", "")
    expected = [sentence.strip() for sentence in marked.split("|")]
    assert sentences([text], locale) == expected
    assert sentences(list(text), locale) == expected


@pytest.mark.parametrize("locale", LOCALES)
def test_an_unsettled_stop_ends_with_the_window(locale: str) -> None:
    assert sentences(["Je jich 3. Jun"], locale) == ["Je jich 3.", "Jun"]
    assert sentences(['Ask Dr. "  '], locale) == ['Ask Dr. "']
    assert sentences(["Yes. a"], locale) == ["Yes. a"]
    assert sentences(["14."], locale) == ["14."]
    assert sentences([" \n "], locale) == []


# --- when a sentence comes out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "token", "expected"),
    [
        ("Hello.", " How", ["Hello."]),
        ("Hello.", " ", []),
        ("Hello. ", "H", ["Hello."]),
        ("Hello", "!?", []),
        ("Really?", " y", ["Really?"]),
        ("Hello", "\n", ["Hello"]),
        ("Hello. ", "\n", ["Hello."]),
        ("はい。", "い", ["はい。"]),
        ("はい。", "」", []),
        ("Am 3. ", "J", []),  # "Juni"?
        ("Am 3. Ju", "t", ["Am 3."]),
        ("Am 3. Juni", " ", []),
        ("I know J. ", "S", []),  # "She"?
        ("I know J. S", "m", []),
        ("I know J. She", " ", ["I know J."]),
        ("Great! 🎉", " ", []),
        ("Great! 🎉 ", "N", ["Great! 🎉"]),
        ("One. Two. Three", ". Four. Five", ["Three.", "Four."]),
    ],
)
def test_a_sentence_comes_out_with_the_first_token_that_makes_it_certain(
    held: str, token: str, expected: list[str]
) -> None:
    assembler = SentenceAssembler()
    assembler.feed(held)
    assert assembler.feed(token) == expected


def test_flush_and_drop_leave_a_fresh_object() -> None:
    for assembler in (SentenceAssembler("cs"), ClauseCutter("cs")):
        fresh = attrs.evolve(assembler)
        assert assembler.feed("a tak. A j") == ["a tak."]
        assert assembler.pending == "A j"
        assembler.drop()
        assert (assembler.pending, assembler) == ("", fresh)
        assert assembler.feed("Friday is free.") == []
        assert assembler.pending == "Friday is free."
        assert assembler.flush() == ["Friday is free."]
        assert assembler == fresh
        assert assembler.flush() == []
        assert assembler.feed("") == []


@pytest.mark.parametrize(
    ("text", "closes"),
    [
        ("Yes.", True),
        ("Yes?", True),
        ("Yes!  \t", True),
        ('He said "Yes." ', True),
        ("(Yes!)\u00a0»", True),
        ("**Yes.**", True),
        ("Yes! 🎉", True),
        ("はい。」", True),
        ("Yes…", True),
        ("Sejdeme se 14.", True),
        ("Yes. (", False),
        ("Yes,", False),
        ("Yes", False),
        ("Yes: ", False),
        ("27.5", False),
        ("", False),
    ],
)
def test_only_a_closing_token_starts_the_turnless_wait(text: str, closes: bool) -> None:
    assembler = SentenceAssembler()
    assembler.feed(text)
    assert assembler.closes is closes


def test_a_turnless_release_loses_no_text() -> None:
    assembler = SentenceAssembler("cs")
    assert assembler.feed("Sejdeme se 14.") == []
    assert assembler.flush() == ["Sejdeme se 14."]
    assert assembler.feed(" října v 9.30. Platí") == ["října v 9.30."]
    assert assembler.pending == "Platí"


# --- the bound -----------------------------------------------------------------------------------------------------------


def test_a_text_without_a_stop_is_cut_behind_a_comma() -> None:
    text = "word, " * 66 + "word " * 100
    first = sentences([text])[0]
    assert first == ("word, " * 66).strip()


def test_a_text_without_a_stop_or_a_late_comma_is_cut_at_white_space() -> None:
    text = "a, " + "word " * 200
    pieces = sentences([text])
    assert [len(piece) for piece in pieces] == [597, 404]
    assert sentences(list(text)) == pieces


def test_a_text_without_white_space_is_cut_hard_but_not_inside_a_grapheme() -> None:
    family = "👩\u200d👩\u200d👧🏽"
    text = "x" * (MAX_SENTENCE - 4) + family + "y"
    assert sentences([text]) == ["x" * (MAX_SENTENCE - 4), family + "y"]
    accents = "x" * (MAX_SENTENCE - 1) + "e\u0301\u0301y"
    assert sentences([accents]) == ["x" * (MAX_SENTENCE - 1), "e\u0301\u0301y"]
    zalgo = "x" + "\u0301" * 2 * MAX_SENTENCE
    assert "".join(sentences([zalgo])) == zalgo
    assert sentences(["x" * MAX_SENTENCE + "y"]) == ["x" * MAX_SENTENCE, "y"]


def test_a_sentence_that_was_cut_goes_on_as_the_one_it_was() -> None:
    # The rest begins with a small letter, which does not make its writer one who uses no capitals.
    rest = sentences(["Word " + "word " * 119 + "word lieut. word"])[1]
    assert rest == "word lieut. word"


# --- an early first clause ----------------------------------------------------------------------------------------------


def clauses(text: str, locale: str = "en", *, min_chars: int = 20, max_chars: int = 80) -> list[str]:
    cutter = ClauseCutter(locale, min_chars, max_chars)
    return cutter.feed(text) + cutter.flush()


@pytest.mark.parametrize(
    ("locale", "marked"),
    [
        ("en", "Well, the pool is open until nine, |and the sauna, as always, closes earlier. |Bring a towel."),
        ("en", "The second floor is closed; |the first is open. |Good, then, as you like it to be, go."),
        ("en", "There is one more thing: |the sauna closes."),
        ("en", "The pool is always open – |at least today – until nine."),
        ("en", "The pool is always open—|at least today—until nine."),
        ("en", 'She said "the pool is open," |and then she left.'),
        ("en", "It is at 1,000 or 2, 3, 4 – 5 and 10:30 today, |as ever."),
        ("en", "See https://a.example/x,y;z:1?a=b—c for more, |or mail us."),
        ("en", "Sure. |The pool is open, as ever, until nine. |Bye."),
        ("en", "The pool on the second floor is open until nine in the evening |and the sauna closes earlier."),
        ("cs", "Bazén ve druhém patře je dnes otevřený do devíti večer |a sauna zavírá o hodinu dříve."),
        ("de", "Das Schwimmbad im zweiten Stock ist heute bis neun Uhr geöffnet |und die Sauna schließt früher."),
        ("en", "The pool that Dr. Novak built near the old mill by the river |at the end of the town is closed today."),
        ("en", "Stars seem bright during clear winter nights above large frozen lakes beside |quiet people."),
        ("en", "word" * 30 + " |word word and so on."),
        ("en", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35."),
    ],
)
def test_speech_can_begin_with_the_first_clause(locale: str, marked: str) -> None:
    assert clauses(marked.replace("|", ""), locale) == [piece.strip() for piece in marked.split("|")]


def test_a_script_without_spaces_has_early_clauses_too() -> None:
    text = "これは長い文章です、そして続きます。はい、そうです。"
    assert clauses(text, "ja", min_chars=7, max_chars=27) == [
        "これは長い文章です、",
        "そして続きます。",
        "はい、そうです。",
    ]


def test_the_clause_comes_with_the_token_behind_it_and_once_a_window() -> None:
    cutter = ClauseCutter()
    assert feed_all(cutter, ["Well", ",", " the pool is open", ","]) == []
    assert cutter.feed(" as") == ["Well, the pool is open,"]
    assert cutter.pending == "as"
    assert cutter.feed(" it always is, until nine. Bring") == ["as it always is, until nine."]
    assert cutter.flush() == ["Bring"]
    assert cutter.feed("The second window begins, as") == ["The second window begins,"]
    cutter.drop()
    assert cutter.feed("And so does the third one, as") == ["And so does the third one,"]


def test_a_clause_can_be_taken_by_hand() -> None:
    assembler = SentenceAssembler()
    assembler.feed("Well, the pool, as ever, is open until nine in the evening")
    assert assembler.first_clause(30, 40) == "Well, the pool, as ever, is open until"
    assert assembler.first_clause(20, 40) is None
    assert assembler.first_clause(2, 10) == "nine"
    assert assembler.flush() == ["in the evening"]


def test_a_sentence_after_its_clause_is_still_the_one_it_was() -> None:
    assert clauses("The pool is always open, with lieut. word.") == ["The pool is always open,", "with lieut. word."]


# --- the tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["COMMON", *LANGUAGES])
def test_a_table_is_well_formed(name: str) -> None:
    table = LANGUAGES.get(name, COMMON)
    for field in ("leads", "either", "lasts", "numbered"):
        for word in getattr(table, field).split():
            assert word.endswith(".")
            assert len(word) > 2, "single letters are judged without an entry"
    for field in ("starters", "after_time", "after_ordinal", "before_ordinal", "labels", "conjunctions"):
        for word in getattr(table, field).split():
            assert word.isalpha()
            assert word.islower()


def test_a_locale_is_found_by_its_language_and_an_unknown_one_has_the_common_rules() -> None:
    assert rules_for("cs") is rules_for("cs-CZ") is rules_for("CS_cz") is not rules_for("en")
    assert rules_for("") is rules_for("xx") is rules_for("cs2")
    assert rules_for("xx").abbreviations.keys() < rules_for("en").abbreviations.keys()
    assert Language() not in LANGUAGES.values()


# --- text in = text out, and the same sentences for any cut --------------------------------------------------------------

PIECES = """
    . .. ... … ? ! ?! 。 ？ । ؟ , ; : - – — " ' ” “ » « ( ) ] 」 「 * 🎉 ❤️ \u200d
    a b e i j J K I A Then The Juni Ju června října Praha word WORD iPhone 犬 と and und
    Dr. No. z. B. e.g. a.m. atd. Inc. Str. s. r. o. U.S. plan
    1 2 3 14 27 1998 1. 2. 3. 14. 9. $4 .99 % °C https://a.example/b?c=1.5 me@b.example
"""
SPACES = [" ", " ", " ", "  ", "\u00a0", "\n", "\r\n", "\t", "w" * 70, " " * 70]
FRAGMENTS = st.sampled_from([*PIECES.split(), *SPACES])
TEXTS = st.one_of(
    st.lists(FRAGMENTS, max_size=40).map("".join),
    st.lists(FRAGMENTS, max_size=40).map(" ".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.tuples(st.text(max_size=30), st.integers(1, 80)).map(lambda pair: pair[0] * pair[1]),
)


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text and the same text as tokens, empty ones among them."""
    text = draw(TEXTS)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return text, [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]


@settings(deadline=None)  # a shared machine may pause
@given(cut_texts(), st.sampled_from(LOCALES))
def test_text_in_is_text_out_however_it_is_cut(cut: tuple[str, list[str]], locale: str) -> None:
    text, tokens = cut
    assembler, fed, out = SentenceAssembler(locale), "", list[str]()
    for token in tokens:
        out += assembler.feed(token)
        fed += token
        assert squeezed("".join(out) + assembler.pending) == squeezed(fed)
        assert len(assembler.pending) <= MAX_SENTENCE
    out += assembler.flush()
    assert squeezed("".join(out)) == squeezed(text)
    assert all(sentence and sentence == sentence.strip() and sentence in text for sentence in out)
    assert out == sentences(list(text), locale) == sentences([text], locale)


@settings(deadline=None)  # a shared machine may pause
@given(cut_texts(), st.sampled_from(LOCALES), st.integers(0, 40), st.integers(0, 60))
def test_early_clauses_lose_nothing_and_do_not_depend_on_the_cuts(
    cut: tuple[str, list[str]], locale: str, min_chars: int, more_chars: int
) -> None:
    text, tokens = cut
    cutters = [ClauseCutter(locale, min_chars, min_chars + more_chars) for _ in range(2)]
    by_tokens = feed_all(cutters[0], tokens)
    by_characters = feed_all(cutters[1], list(text))
    assert by_tokens == by_characters
    assert cutters[0].pending == cutters[1].pending
    pieces = by_tokens + cutters[0].flush()
    assert squeezed("".join(pieces)) == squeezed(text)
    assert all(piece and piece == piece.strip() and piece in text for piece in pieces)


@settings(deadline=None)  # a shared machine may pause
@given(st.data())
def test_an_address_or_a_number_is_never_cut(data: st.DataObject) -> None:
    whole = data.draw(
        st.one_of(
            st.from_regex(r"https?://[a-z]{1,8}\.example(/[a-z.?&=,;:!1-9-]{0,20}[a-z1-9])?", fullmatch=True),
            st.from_regex(r"[a-z][a-z.]{0,8}[a-z]@[a-z]{1,8}\.example", fullmatch=True),
            st.from_regex(r"[1-9]\d{0,2}(,\d{3}){0,2}(\.\d{1,4}){0,3}", fullmatch=True),
            st.from_regex(r"\d{1,2}[:.]\d\d(:\d\d)?", fullmatch=True),
        )
    )
    text = f"Look at {whole}. Then see, if you like, {whole}, or {whole}? Yes."
    for pieces in (sentences(list(text)), ClauseCutter(min_chars=4, max_chars=20).feed(text)):
        assert sum(piece.count(whole) for piece in pieces) >= 3
