"""The prompts and how they are filled in.

Each prompt is a template of this folder, or of `agents/relational/prompts`, named by its id; `<id>.reconnect` is its variant for
a conversation that goes on. What operators and users wrote goes in as values: it is never read as a template, whatever braces it
holds.
"""

import functools
from pathlib import Path
from typing import Any

import jinja2

SUFFIX = ".jinja"

LANGUAGES = {
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "es": "Spanish", "et": "Estonian", "fa": "Persian", "fi": "Finnish", "fr": "French", "he": "Hebrew",
    "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean",
    "lt": "Lithuanian", "lv": "Latvian", "nb": "Norwegian", "nl": "Dutch", "no": "Norwegian", "pl": "Polish",
    "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sr": "Serbian",
    "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(
            [Path(__file__).parent, Path(__file__).parent.parent / "relational" / "prompts"]
        ),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template_id: str, **values: Any) -> str:
    """The prompt of that id, filled in. A value that the template needs and is not given raises jinja2.UndefinedError."""
    return _environment().get_template(template_id + SUFFIX).render(**values).strip()


def language_name(locale: str) -> str:
    """In English, for a prompt: "cs-CZ" gives "Czech (cs-CZ)"."""
    name = LANGUAGES.get(locale.replace("_", "-").split("-")[0].lower())
    return f"{name} ({locale})" if name else f"the language of the locale {locale}"
