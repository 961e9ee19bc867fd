"""What the provider's errors are in the user's language, and what the model is told after one."""

from engine.errors import ErrorCode

_ENGLISH = {
    ErrorCode.SESSION_LIMIT: "This conversation has reached the longest duration the voice service allows.",
    ErrorCode.PROVIDER_AUTH: "The voice service does not accept this server's credentials.",
    ErrorCode.PROVIDER_QUOTA: "The voice service's quota is used up.",
    ErrorCode.MODEL_NOT_FOUND: "The voice service does not have the model this agent asks for.",
    ErrorCode.PROVIDER_UNAVAILABLE: "The connection to the voice service was lost.",
    ErrorCode.RECOGNITION_FAILED: "Your speech could not be written down.",
}
_CZECH = {
    ErrorCode.SESSION_LIMIT: "Rozhovor dosáhl nejdelší doby, kterou hlasová služba dovoluje.",
    ErrorCode.PROVIDER_AUTH: "Hlasová služba nepřijímá přihlašovací údaje tohoto serveru.",
    ErrorCode.PROVIDER_QUOTA: "Limit hlasové služby je vyčerpán.",
    ErrorCode.MODEL_NOT_FOUND: "Hlasová služba nemá model, který tento agent požaduje.",
    ErrorCode.PROVIDER_UNAVAILABLE: "Spojení s hlasovou službou se přerušilo.",
    ErrorCode.RECOGNITION_FAILED: "Vaši řeč se nepodařilo zapsat.",
}
_GERMAN = {
    ErrorCode.SESSION_LIMIT: "Das Gespräch hat die längste Dauer erreicht, die der Sprachdienst erlaubt.",
    ErrorCode.PROVIDER_AUTH: "Der Sprachdienst nimmt die Zugangsdaten dieses Servers nicht an.",
    ErrorCode.PROVIDER_QUOTA: "Das Kontingent des Sprachdienstes ist aufgebraucht.",
    ErrorCode.MODEL_NOT_FOUND: "Der Sprachdienst hat das Modell nicht, das dieser Agent verlangt.",
    ErrorCode.PROVIDER_UNAVAILABLE: "Die Verbindung zum Sprachdienst ist abgebrochen.",
    ErrorCode.RECOGNITION_FAILED: "Das Gesagte konnte nicht aufgeschrieben werden.",
}
_BY_LANGUAGE = {"en": _ENGLISH, "cs": _CZECH, "de": _GERMAN}

APOLOGIZE = (
    "A technical fault made you miss what the user said last, or cut your answer. Apologize in one short sentence, in the"
    " user's language, and ask them to say it again."
)
GO_ON = "A noise cut your last answer; the user has said nothing new. Go on where it stopped, and do not repeat what was said."
STILL_RUNNING = '{"status":"This call is still running. Its result will follow."}'


def text_for(code: ErrorCode, locale: str) -> str:
    language = locale.partition("-")[0].lower()
    return _BY_LANGUAGE.get(language, _ENGLISH).get(code, _ENGLISH[ErrorCode.PROVIDER_UNAVAILABLE])
