"""What `engine.protocol.sentences` knows about languages: data only, one entry for each.

To add a language, add one `Language(...)` to `LANGUAGES`; no code changes. Every field is a string of words with spaces
between, so that a speaker of the language can read and mend it. What no other language can mistake for a word of its
own belongs to `COMMON`, which holds for every locale: a model often answers in another language than the session's
locale says.

Abbreviations are written with their full stop and matched as written; one in small letters also matches with a capital
when it is the first word of its sentence ("Např. dnes"). So "No." is the sign of a number and "no." a word. Single
letters ("J.", "č.") and letters with dots between ("U.S.", "s. r. o.") need no entry unless they are more than
`EITHER`.
"""

from enum import Enum, auto
from functools import cache

import attrs


class Abbreviation(Enum):
    """What an abbreviation's full stop means before a capital; before a small letter or a digit it ends nothing."""

    LEAD = auto()
    """Something always follows: "Dr. Novak", "e.g. Prague". Never an end."""

    EITHER = auto()
    """A name or a sentence may follow: "Orbis Inc. Europe", "Orbis Inc. They …". An end before a known opening word."""

    LAST = auto()
    """Commonly the last word: "at 9 a.m. See you", "atd. Platí?". An end, unless a weekday or the like carries on."""

    NUMBERED = auto()
    """An abbreviation before a digit only ("No. 5", "Sat. 14 May"); before anything else a word like any other."""


@attrs.frozen
class Words:
    """A set of small-letter words that can also say "not yet": what is still being spelled may become one of them."""

    whole: frozenset[str]
    beginnings: frozenset[str]

    @staticmethod
    def of(*texts: str) -> "Words":
        whole = frozenset(" ".join(texts).split())
        return Words(whole, frozenset(word[:length] for word in whole for length in range(1, len(word) + 1)))


@attrs.frozen
class Language:
    """The words of one language, or of all of them (`COMMON`). Small letters everywhere except in abbreviations."""

    leads: str = ""
    either: str = ""
    lasts: str = ""
    numbered: str = ""
    starters: str = ""
    """Words that open a sentence and are no names: they decide after an initial or after "Inc."."""
    after_time: str = ""
    """Capitalized words that carry on after a time of day: "9 a.m. Monday"."""
    after_ordinal: str = ""
    """Capitalized words that carry on after an ordinal: "3. Juni"."""
    before_ordinal: str = ""
    """Words after which "3." is an ordinal even before a capital, where nouns have capitals: "im 3. Stock"."""
    labels: str = ""
    """Nouns that take a letter, so that the letter is no initial: "plan B. Bring …"."""
    letters: str = ""
    """Capital letters that are words: the English "I"."""
    conjunctions: str = ""
    """Words before which a first clause may be cut for early speech."""


COMMON = Language(
    leads="""
        Dr. Mr. Mrs. Ms. Mx. Messrs. Prof. Hon. Rev. Capt. Lt. Col. Gen. Sgt. Gov. Mme. Mlle. Sra. Srta.
        Ing. Mgr. Bc. BcA. MgA. MUDr. MVDr. JUDr. PhDr. RNDr. PaedDr. ThDr. PharmDr. Dipl.-Ing. Hr. Fr. Frl.
        e.g. i.e. eg. cf. vs. viz. approx. incl. excl. ca. cca.
        např. tj. t.j. tzv. tzn. mj. resp. popř. příp. ul. nám. tř. sv.
        z.B. z.b. d.h. bzw. ggf. evtl. sog. vgl. inkl. zzgl. bspw. z.T. z.t. i.d.R. u.U.
        p.ej. p.ex.
    """,
    either="Inc. Ltd. Co. Corp. Jr. Sr. Bros. Ph.D. CSc. DrSc. DiS. spol. mil. tis. mld. Mio. Mrd. Tsd. max.",
    lasts="etc. a.m. p.m. A.M. P.M. atd. apod. aj. atp. usw. usf. u.s.w. o.ä. u.ä. hod. min. sek. hrs.",
    numbered="""
        No. Nos. Nr. čl. čp. čj. str. tel. Tel. fig. Fig. figs. pp. vol. Vol. ch. Ch. art. Art. obr. Obr. kap. Kap. tab.
        Tab. Abb.
        Jan. Feb. Mar. Apr. Jun. Jul. Aug. Sep. Sept. Oct. Nov. Dec. Okt. Dez.
        Mon. Tue. Tues. Wed. Thu. Thurs. Fri. Sat. Sun.
    """,
    after_ordinal="""
        januar jänner februar feber märz april mai juni juli august september oktober november dezember
        january february june july october december
    """,
)

_ENGLISH = Language(
    leads="Mt. Ft. Sen. Rep. Pres. Supt.",
    either="St. Ave. Blvd. Rd. al. est. dept. Dept.",
    numbered="sec. Sec. ex. Ex. Pt. apt. Apt. Rm. Ste. ext. Ext.",
    starters="""
        a an the this that these those he she it we you they i there here then now so and but or if when while what
        where who why how which is are was were do does did don can could will would should may might have has had
        please yes no not in on at for from with after before as by to my your our their his her its let just also
        however next first second finally otherwise once unless although because since until some all any each every
        both many most one two three another other sure okay ok well thanks thank
    """,
    after_time="""
        monday tuesday wednesday thursday friday saturday sunday
        january february march april june july august september october november december
        eastern central mountain pacific gmt utc est edt cst cdt mst mdt pst pdt cet cest bst
    """,
    labels="""
        plan option vitamin grade type part section gate terminal platform room building group class team hall zone line
        row block door exit list schedule appendix figure answer variant version step level entrance stand lot model
        series hepatitis seat point letter product side track phase stage column key wing tower
    """,
    letters="I",
    conjunctions="and but or because so which while although though if when where unless before after until since",
)

_CZECH = Language(
    leads="doc. odd. kpt. plk. gen. por. srov. pozn. hl. písm. místn. tzn.",
    either="st. fa. odst.",
    starters="""
        a ale i to ten ta ti toto tato tento tam tady tu teď tak takže potom pak poté když kde kdo co jak proč kdy kolik
        který která je jsou byl byla bylo byli jsem jste jsme bude budou já ty on ona ono my vy oni v ve na do z ze s se
        si po pro při před za u o od k ke ne ano nebo ani už ještě jen pokud protože můžete můžeme mohu máte máme mám
        chcete chci prosím dobře děkuji díky platí také zítra dnes včera ráno večer jestli možná každý každá všechno
        nejdříve nakonec
    """,
    labels="""
        plán plánu varianta variantu varianty možnost možnosti vitamin vitamín vitaminu typ typu část části skupina
        skupiny skupině třída třídy třídě brána brány bráně budova budovy budově sál sálu nástupiště linka linky lince
        odpověď řada řady sektor sektoru vchod vchodu terminál terminálu blok bloku
    """,
    conjunctions="a ale nebo protože takže aby když pokud kde který která které že ani zatímco jestli",
)

_SLOVAK = Language(
    leads="napr. doc. pozn. príp.",
    lasts="atď.",
    starters="""
        a ale i to ten tá tam tu teraz tak takže potom keď kde kto čo ako prečo kedy koľko je sú bol bola bolo som ste
        sme ja ty on ona my vy oni v vo na do z zo s sa si po pre pri pred za u o od k ku nie áno alebo ani už ešte len
        ak pretože môžete máte prosím
    """,
    conjunctions="a ale alebo pretože takže aby keď ak kde ktorý ktorá ktoré že ani",
)

_GERMAN = Language(
    leads="St. Abs. Anm. einschl. ausschl. Mag. Hrsg. gem. bes.",
    either="Str. Jh. u.a.",
    lasts="Std. Min. Sek. v.Chr. n.Chr. Chr. ff.",
    numbered="Bd. Kl. Nrn. Mo. Di. Mi. Do. Sa. So. geb. gest.",
    starters="""
        der die das den dem des ein eine einen einem einer ich du er sie es wir ihr man dann danach jetzt heute morgen
        gestern und aber oder wenn weil wie was wer wo wann warum welche welcher ist sind war waren hat haben habe kann
        können soll sollen möchten in im am an auf aus bei mit nach von vom zu zum zur für ja nein nicht auch so hier da
        dort bitte danke dies diese dieser dieses mein meine sein seine unser unsere kommst kommen gibt gut also denn
        doch zuerst zuletzt später alle jeder jede viele nur noch
    """,
    after_time="""
        montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag
        januar jänner februar märz april mai juni juli august september oktober november dezember
    """,
    after_ordinal="""
        montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag advent
        stock stockwerk etage obergeschoss untergeschoss og ug platz klasse jahrhundert jahrtausend weltkrieg geburtstag
        jahrestag kapitel teil runde tag woche monat jahr quartal halbjahr semester liga mannschaft mal gang reihe
        bezirk
    """,
    before_ordinal="""
        am im vom zum zur beim der die das den dem des ein eine einen einem einer eines jeder jede jedes jeden jedem
        dieser diese dieses diesen diesem mein meine meinem meinen dein deine deinem sein seine seinem seinen ihr ihre
        ihrem ihren unser unsere unserem unseren euer eure
    """,
    labels="""
        plan option variante vitamin typ teil gruppe klasse gate halle gebäude raum linie antwort block eingang ausgang
        terminal reihe stufe phase punkt seite abschnitt
    """,
    conjunctions="und aber oder weil sondern denn dass wenn während obwohl sodass damit",
)

_POLISH = Language(
    leads="prof. dr. mgr. inż. hab. al. pl. np. tzw. św. wg. m.in.",
    lasts="itd. itp.",
    numbered="nr. godz. ok. poz.",
    starters="""
        a ale i to ten ta tam tu teraz tak więc potem gdy kiedy gdzie kto co jak dlaczego ile jest są był była było
        jestem ja ty on ona my wy oni w we na do z ze po dla przy przed za u o od nie lub ani już jeszcze tylko jeśli
        ponieważ proszę czy może
    """,
    conjunctions="i ale lub albo ponieważ więc aby gdy jeśli gdzie który która które że",
)

_FRENCH = Language(
    leads="MM. Mmes. env. av. bd. c.-à-d.",
    numbered="chap. tél. Tél.",
    starters="""
        le la les l un une des ce c cet cette ces il elle on nous vous ils elles je j tu alors puis ensuite mais et ou
        si quand comment où pourquoi qui que qu est sont était dans sur avec pour de du en à au aux oui non voici voilà
        merci
    """,
    labels="plan option vitamine type partie section porte terminal bâtiment groupe classe hall zone ligne quai salle",
    conjunctions="et mais ou parce car donc lorsque quand si qui tandis",
)

_SPANISH = Language(
    leads="Dña. Dra. Sr. Sres. aprox. avda. pza.",
    either="Ud. Uds.",
    numbered="núm. pág. págs. cap.",
    starters="""
        el la los las un una unos unas este esta estos ese esa eso él ella nosotros ellos yo tú usted entonces luego
        después pero y o si cuando cómo dónde qué quién por para con de del en a al es son está están hay no sí gracias
        también
    """,
    labels="plan opción vitamina tipo parte sección puerta terminal edificio grupo clase sala zona línea andén",
    conjunctions="y pero o porque cuando si donde mientras aunque",
)

LANGUAGES = {
    "cs": _CZECH,
    "de": _GERMAN,
    "en": _ENGLISH,
    "es": _SPANISH,
    "fr": _FRENCH,
    "pl": _POLISH,
    "sk": _SLOVAK,
}


@attrs.frozen
class Rules:
    """One language's tables, laid over `COMMON` and ready for lookup."""

    abbreviations: dict[str, Abbreviation]
    starters: Words
    after_time: Words
    after_ordinal: Words
    before_ordinal: frozenset[str]
    labels: frozenset[str]
    letters: frozenset[str]
    conjunctions: frozenset[str]


@cache
def _rules(language: str) -> Rules:
    own = LANGUAGES.get(language, Language())
    abbreviations: dict[str, Abbreviation] = {}
    for table in (COMMON, own):  # a language's own word wins
        abbreviations |= dict.fromkeys(table.numbered.split(), Abbreviation.NUMBERED)
        abbreviations |= dict.fromkeys(table.leads.split(), Abbreviation.LEAD)
        abbreviations |= dict.fromkeys(table.either.split(), Abbreviation.EITHER)
        abbreviations |= dict.fromkeys(table.lasts.split(), Abbreviation.LAST)
    return Rules(
        abbreviations=abbreviations,
        starters=Words.of(own.starters),
        after_time=Words.of(own.after_time),
        after_ordinal=Words.of(COMMON.after_ordinal, own.after_ordinal),
        before_ordinal=frozenset(own.before_ordinal.split()),
        labels=frozenset(own.labels.split()),
        letters=frozenset(own.letters.split()),
        conjunctions=frozenset(own.conjunctions.split()),
    )


def rules_for(locale: str) -> Rules:
    """The rules for a locale such as "cs", "cs-CZ" or "cs_CZ"; one without a table gets the common rules alone."""
    language = locale.replace("_", "-").partition("-")[0].lower()
    return _rules(language if language in LANGUAGES else "")
