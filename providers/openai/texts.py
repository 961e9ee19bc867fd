"""What the user is told of the provider's troubles, in the user's language, and what the model is told after one."""

from collections.abc import Mapping
from enum import Enum, auto

from engine.errors import ErrorCode


class Wording(Enum):
    """Of errors that the conversation survives."""

    LOST = auto()
    FAULT = auto()
    NO_TRANSCRIPTION = auto()
    ENDLESS_TOOLS = auto()
    TOO_MUCH = auto()


_ENGLISH: Mapping[ErrorCode | Wording, str] = {
    ErrorCode.SESSION_LIMIT: "This conversation has reached the longest duration the voice service allows.",
    ErrorCode.PROVIDER_AUTH: "The voice service does not accept this server's credentials.",
    ErrorCode.PROVIDER_QUOTA: "The voice service's quota is used up.",
    ErrorCode.MODEL_NOT_FOUND: "The voice service does not have the model this agent asks for.",
    ErrorCode.PROVIDER_UNAVAILABLE: "The voice service cannot be reached.",
    Wording.LOST: "The connection to the voice service was lost; it is being restored.",
    Wording.FAULT: "The voice service had a fault.",
    Wording.NO_TRANSCRIPTION: "Your speech could not be written down.",
    Wording.ENDLESS_TOOLS: "The model called tools without end; its answer was ended.",
    Wording.TOO_MUCH: "Too much is waiting for an answer; this was left out.",
}
_CZECH: Mapping[ErrorCode | Wording, str] = {
    ErrorCode.SESSION_LIMIT: "Rozhovor dosáhl nejdelší doby, kterou hlasová služba dovoluje.",
    ErrorCode.PROVIDER_AUTH: "Hlasová služba nepřijímá přihlašovací údaje tohoto serveru.",
    ErrorCode.PROVIDER_QUOTA: "Limit hlasové služby je vyčerpán.",
    ErrorCode.MODEL_NOT_FOUND: "Hlasová služba nemá model, který tento agent požaduje.",
    ErrorCode.PROVIDER_UNAVAILABLE: "Hlasová služba není dostupná.",
    Wording.LOST: "Spojení s hlasovou službou se přerušilo, obnovuje se.",
    Wording.FAULT: "V hlasové službě nastala chyba.",
    Wording.NO_TRANSCRIPTION: "Vaši řeč se nepodařilo zapsat.",
    Wording.ENDLESS_TOOLS: "Model volal nástroje stále dokola, jeho odpověď byla ukončena.",
    Wording.TOO_MUCH: "Na odpověď toho čeká příliš mnoho; toto bylo vynecháno.",
}
_GERMAN: Mapping[ErrorCode | Wording, str] = {
    ErrorCode.SESSION_LIMIT: "Das Gespräch hat die längste Dauer erreicht, die der Sprachdienst erlaubt.",
    ErrorCode.PROVIDER_AUTH: "Der Sprachdienst nimmt die Zugangsdaten dieses Servers nicht an.",
    ErrorCode.PROVIDER_QUOTA: "Das Kontingent des Sprachdienstes ist aufgebraucht.",
    ErrorCode.MODEL_NOT_FOUND: "Der Sprachdienst hat das Modell nicht, das dieser Agent verlangt.",
    ErrorCode.PROVIDER_UNAVAILABLE: "Der Sprachdienst ist nicht erreichbar.",
    Wording.LOST: "Die Verbindung zum Sprachdienst ist abgebrochen und wird wiederhergestellt.",
    Wording.FAULT: "Im Sprachdienst ist ein Fehler aufgetreten.",
    Wording.NO_TRANSCRIPTION: "Das Gesagte konnte nicht aufgeschrieben werden.",
    Wording.ENDLESS_TOOLS: "Das Modell hat ohne Ende Werkzeuge aufgerufen; seine Antwort wurde beendet.",
    Wording.TOO_MUCH: "Es wartet zu viel auf eine Antwort; dies wurde ausgelassen.",
}
_BY_LANGUAGE = {"en": _ENGLISH, "cs": _CZECH, "de": _GERMAN}

APOLOGIZE = (
    "A technical fault made you miss what the user said last, or cut your answer. Apologize in one short sentence, in the"
    " user's language, and ask them to say it again."
)
GO_ON = "A noise cut your last answer; the user has said nothing new. Go on where it stopped, and do not repeat what was said."
NOT_ENDED = "The user interrupted the goodbye: the conversation has not ended. React to what the user says."
STILL_RUNNING = '{"status":"This call is still running. Its result will follow."}'
INTERRUPTED = '{"error":"The user interrupted this call."}'


def text_for(what: ErrorCode | Wording, locale: str) -> str:
    language = locale.replace("_", "-").partition("-")[0].lower()
    return _BY_LANGUAGE.get(language, _ENGLISH).get(what, _ENGLISH[ErrorCode.PROVIDER_UNAVAILABLE])
