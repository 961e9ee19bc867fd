"""What the demo says, and the phrases it understands. The facts are those of the demo project's café."""

import re

from providers.chat.demo_slots import Heard, Slot, Table
from providers.chat.demo_words import MONTHS, NUMBERS

SEATS = 6
"""At one table."""
SPOKEN_CHARACTERS = 80
"""Of what it has not understood, which it says again."""

GREETING = "Hello, this is Café Souffleur, a scripted demo, as no language model is installed."
OFFER = "I can book a table, or tell you our opening hours and what there is."
OFFER_WITHOUT_TABLES = "I can tell you our opening hours, what there is, and where we are."
WHAT = "What would you like?"
OTHER_LANGUAGES = {
    "cs": "Jsem jen ukázka bez jazykového modelu a mluvím pouze anglicky.",
    "de": "Ich bin nur eine Demo ohne Sprachmodell und spreche nur Englisch.",
}
ADMISSION = "I am a scripted demo, as no language model is installed."
HELLO = "Hello."
FINE = "I am fine, thank you."
NOT_CAUGHT = "I did not catch that."
MOMENT = "One moment, please."
STILL_BOOKING = "I am still booking the table."
DONE = "Done."
HOURS = "We are open every day from 8 am to 10 pm, and the last table is given at 8:30 pm."
ADDRESS = "You find us right beside the theatre."
MENU = "There is coffee, tea, cake and soup. An espresso is 55 crowns, a flat white 79, and a slice of cake 95."
PRICES = {
    "espresso": "An espresso is 55 crowns.",
    "flat white": "A flat white is 79 crowns.",
    "cake": "A slice of cake is 95 crowns.",
}
QUESTIONS: dict[tuple[Slot, ...], str] = {
    (Slot.DAY, Slot.TIME): "For which day, and at what time?",
    (Slot.DAY,): "For which day?",
    (Slot.TIME,): "At what time?",
    (Slot.PEOPLE,): "For how many people?",
    (Slot.NAME,): "And in whose name?",
}
NO_ORDERS = "I cannot take orders here, only book a table."
CANNOT_CHANGE = "I cannot change it any more, as I am only a demo."
NO_BOOKINGS = "I am sorry, bookings are not possible here."
GOODBYE_WORDS = "Thank you for calling. Goodbye!"

# With a planner behind the stage.
PASSED_ON = "I pass that on to my colleague, who has the book. One moment, please."
ASKED_FOR = "I do not know that myself, so I have it looked up. One moment, please."
NOBODY_TO_ASK = "I am sorry, I cannot find that out now."
SEEING = "I see. One moment, please."
AGREED = "All right."


# --- how things are said ---------------------------------------------------------------------------------------------


def say_time(minutes: int) -> str:
    hour, minute = divmod(minutes, 60)
    if minutes == 12 * 60:
        return "noon"
    half = "am" if hour < 12 else "pm"
    return f"{(hour - 1) % 12 + 1}:{minute:02d} {half}" if minute else f"{(hour - 1) % 12 + 1} {half}"


def say_people(people: int) -> str:
    word = next((word for word, number in NUMBERS.items() if number == people), str(people))
    return f"{word} person" if people == 1 else f"{word} people"


def say_day(day: str) -> str:
    if re.fullmatch(r"\d{4}-\d\d-\d\d", day):
        _, month, number = day.split("-")
        name = next(name for name, value in MONTHS.items() if value == int(month))
        return f"on {name.capitalize()} {int(number)}"
    return day if day.startswith(("to", "the day after", "in ")) else f"on {day}"


def say_table(table: Table | Heard) -> str:
    """What is known, in one phrase."""
    parts = [
        say_day(table.day) if table.day else "",
        f"at {say_time(table.time)}" if table.time is not None else "",
        f"for {say_people(table.people)}" if table.people is not None else "",
        f"in the name of {table.name}" if table.name else "",
    ]
    return ", ".join(filter(None, parts))


def plain(text: str) -> str:
    """Lower case, without punctuation and apostrophes."""
    return " ".join(re.findall(r"[^\W_]+", text.lower().replace("'", "").replace("’", "")))


# --- what is heard ---------------------------------------------------------------------------------------------------

_LEAD = r"^(?:(?:uh|um|er|hmm|well|oh|so|and|hey|hi|hello) )*"
NO = re.compile(
    _LEAD
    + r"(?:no|nope|nah|not|wrong|incorrect|dont|do not)\b(?!.*\b(?:thats|its|that is|it is|is) (?:right|correct|fine)\b)"
    r"|^know$|\bnot (?:right|correct|quite)\b|\b(?:thats|that is|its|is) (?:wrong|incorrect)\b"
)
YES = re.compile(
    _LEAD
    + r"(?:no )?(?:yes|yeah|yea|ya|yep|yup|sure|ok|okay|correct|right|write|exactly|perfect|fine|absolutely|definitely"
    r"|certainly|great|good|please|go ahead|of course|do it|book it|thats it|indeed|alright|all right"
    r"|(?:(?:thats|its|that is|it is) )(?:right|correct|fine|good|perfect|okay)|sounds (?:good|great|right))\b"
)
THAT_IS_ALL = re.compile(r"\b(?:nothing|thats all|thats it|that is all|im (?:fine|good)|no thanks?)\b")
CORRECTS = re.compile(r"\b(?:no|sorry|actually|wait|instead|rather|change|i mean|i meant|make (?:it|that))\b")
GOODBYE = re.compile(r"\b(?:good ?bye|bye|see you|so long|hang up|talk to you later|have a (?:nice|good|great) \w+)\b")
REPEAT = re.compile(
    r"\b(?:repeat|say (?:that|it) again|what was that|what did you say|come again|pardon|once more|one more time"
    r"|didnt (?:hear|catch|understand))\b"
    r"|^(?:what|huh|sorry|again|excuse me|sorry what)$"
)
CANCEL = re.compile(r"\b(?:cancel|forget (?:it|about|that|the)|never ?mind)\b")
STOP = re.compile(r"^(?:please )?(?:stop|quiet|be quiet|enough|shut up)\b")
BOOK = re.compile(r"\b(?:book|books|booking|reserve|reservation|tables?|seats?)\b")
BOOKED = re.compile(
    r"\b(?:my|the|our) (?:booking|reservation|table)\b|\bdid (?:you|i|we) book\b|\bconfirmation number\b"
)
CHANGES = re.compile(r"\b(?:change|move|cancel|different|wrong)\b")
ASKS_HOURS = re.compile(r"\b(?:open|opens|opened|opening|close|closes|closed|closing|hours)\b")
ASKS_ADDRESS = re.compile(r"\b(?:where|address|located|location|directions|find you|get there)\b")
DISH = re.compile(r"\b(?:coffees?|espressos?|flat whites?|teas?|cakes?|soups?)\b")
ASKS_MENU = re.compile(
    r"\b(?:menu|serve|foods?|drinks?|eat|prices?|costs?|how much|vegan|vegetarian)\b|" + DISH.pattern
)
ORDER = re.compile(r"\b(?:order|please|id like|i would like|i want|can i (?:get|have)|ill (?:have|take)|give me)\b")
QUESTION = re.compile(r"\b(?:what|which|how much|do you|is there|are there|have you|price|menu|cost)\b")

ASKS = re.compile(
    r"\b(?:what|which|when|where|who|whom|whose|how|why)\b"
    + "|"
    + _LEAD
    + r"(?:is|are|do|does|did|can|could|may|have|has|will|would|should)\b"
)
"""A question, also where recognition gives no question mark."""
LOOK_UP = re.compile(
    r"\b(?:gluten\w*|allerg\w*|vegan|vegetarian|lactose|milk|oat|nuts?|walnuts?|eggs?|celery|decaf\w*|sugar|meat|ingredients?"
    r"|wheelchairs?|steps?|stairs|ramp|disabled|access\w*|hearing|toilets?|restrooms?|bathrooms?|wifi|wi fi|internet|laptops?"
    r"|park|parking|tram|bus|metro|train|child|children|kids|baby|prams?|strollers?|high ?chairs?|toys|cards?|cash|euros?"
    r"|split|smok\w*|courtyard|garden|plays?|played|playing|theatre plate|performances?|shows?|programmes?|programs?|curtain"
    r"|interval|tickets?|surtitles)\b"
)
"""What the demo knows no line about, also where another word of the question sounds familiar."""
THAT_WAS_ALL = re.compile(r"\b(?:thats all|that is all|thats it|that was all|nothing (?:else|more))\b")

CHANGED: tuple[tuple[Slot, re.Pattern[str]], ...] = (
    (Slot.TIME, re.compile(r"\b(?:time|hour)\b")),
    (Slot.DAY, re.compile(r"\b(?:day|date)\b")),
    (Slot.NAME, re.compile(r"\bname\b")),
    (Slot.PEOPLE, re.compile(r"\b(?:people|persons|guests|number|how many)\b")),
)

SMALL_TALK: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\bhow (?:are|is it going|do you do)\b|\bhows it going\b"), FINE),
    (
        re.compile(r"\b(?:robot|human|real person|machine|computer|language model|ai)\b|\b(?:who|what) are you\b"),
        f"{ADMISSION} I only know a few sentences about this café.",
    ),
    (re.compile(r"\byour name\b|\bwho is this\b|\bis this\b.*\bcaf[eé]\b"), "This is Café Souffleur."),
    (re.compile(r"\bdogs?\b|\bpets?\b"), "Dogs are welcome."),
    (re.compile(r"\bjoke\b"), "A prompter walks into a café. Nobody sees her, but everybody knows what to order."),
    (re.compile(r"\b(?:can you hear me|are you there|anybody there)\b"), "Yes, I hear you."),
    (re.compile(r"\bweather\b|\bnews\b|\bwhat (?:time|day) is it\b"), "I do not know that, I am only a scripted demo."),
    (re.compile(r"^(?:wait|hold on|one (?:moment|second)|just a (?:moment|second)|hang on)"), "I am here."),
    (re.compile(r"\bthank|\bthanks\b"), "You are welcome."),
    (re.compile(r"^(?:hello|hi|hey|good (?:morning|afternoon|evening|day)|greetings)\b"), HELLO),
)


def is_yes(said: str) -> bool:
    return NO.search(said) is None and YES.search(said) is not None


def small_talk(said: str) -> str:
    """The answer to a phrase that is not about the café; "" for none."""
    return next((answer for pattern, answer in SMALL_TALK if pattern.search(said)), "")


def find_fact(said: str) -> str:
    """The answer to a question about the café; "" for none."""
    if DISH.search(said) and ORDER.search(said) and not QUESTION.search(said):
        return NO_ORDERS
    if ASKS_MENU.search(said):
        return next((price for dish, price in PRICES.items() if dish in said and "how much" in said), MENU)
    if ASKS_HOURS.search(said):
        return HOURS
    return ADDRESS if ASKS_ADDRESS.search(said) else ""


def say_again(text: str) -> str:
    """What was heard, short enough to be said."""
    text = " ".join(text.split()).strip(" .,!?")
    return text if len(text) <= SPOKEN_CHARACTERS else f"{text[:SPOKEN_CHARACTERS].rsplit(' ', 1)[0]} …"
