"""The words the demo knows: numbers, days, and what cannot be a name. Lower case, without apostrophes."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def count(text: str, start: int = 1) -> dict[str, int]:
    return {word: number for number, word in enumerate(text.split(), start)}


UNITS = count(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen"
    " nineteen",
    start=0,
)
TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fourty": 40, "fifty": 50}
NUMBERS = UNITS | TENS | {"couple": 2, "dozen": 12}
NTH = {"thirtieth": 30} | count(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth"
    " sixteenth seventeenth eighteenth nineteenth twentieth"
)
SOUND_ALIKE = {"for": 4, "fore": 4, "to": 2, "too": 2, "ate": 8, "won": 1}
"""Words that recognition writes for a number."""

MONTHS = count("january february march april may june july august september october november december")
WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WEEKDAYS = frozenset(WEEK)
DAY_NAMES = {
    **{name: name for name in WEEKDAYS},
    **{f"{name}s": name for name in WEEKDAYS},
    "wensday": "wednesday",
    "thurs": "thursday",
    "tues": "tuesday",
}
HALF_DAYS = {
    **dict.fromkeys(words("morning breakfast am"), "am"),
    **dict.fromkeys(words("afternoon evening night tonight dinner supper lunch lunchtime pm"), "pm"),
}
PARTS_OF_DAY = words("morning afternoon evening night")

PEOPLE = words(
    "people person persons peoples guest guests adult adults pax seats seat chairs diners friends heads places"
)
CHILDREN = words("child children kid kids baby babies toddler toddlers")
COMPANIONS = words(
    "wife husband girlfriend boyfriend partner friend mother father mom mum dad sister brother colleague son daughter"
)
AT = words("at around about by from after before till until round roughly approximately")
"""A number behind one of these is an hour."""
FILLERS = words(
    "uh um er hmm well so please just yes yeah no nope actually sorry maybe its it is make that would be lets say the a an and"
    " then for of at okay ok right thanks wait i said mean meant think table party group we are were"
)
"""Words beside which a number still stands alone."""

NAME_ENDS = WEEKDAYS | words(
    "and for at on in with but we i the a an is are around please thanks thank today tomorrow tonight next this table party of"
    " people guests to from by if that then so because"
)
"""Words at which a name is over."""
NO_NAMES = (
    NAME_ENDS
    | NUMBERS.keys()
    | PEOPLE
    | words(
        "yes yeah yep no nope not okay ok sure right wrong correct fine good great sorry hello hi hey bye goodbye what when where"
        " who why how which can could would will do does did you your my me it its he she they us him her there here name names"
        " called under just only actually maybe well uh um er oh hmm wait stop repeat cancel help nothing none nobody anything"
        " something everything change time day date number book booking reserve reservation menu coffee tea cake soup open close"
        " closed hours address looking calling hungry ready done sir madam again pardon excuse have has had want need like make"
        " half quarter past oclock noon am pm morning evening afternoon hear heard understand speak english instead same all also"
        " too mind never forget say said mean meant get go come know think moment second minute hold long later soon now still be"
        " been was were as or than let lets alone both tell see give take"
    )
)
"""Words that are no names, where one is expected."""
NAME_OPENERS = words("uh um er hmm oh well so yes yeah sure okay ok please it its that thats is name the just put on")
NAME_CLOSERS = words("please thanks thank you here")
