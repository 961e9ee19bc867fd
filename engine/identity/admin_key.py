"""The admin key: set by the operator, else made on the first start and kept in a file that only its owner can read."""

import hashlib
import hmac
import logging
import os
import secrets
import stat
from pathlib import Path

import attrs

from engine.config import Settings
from engine.errors import ConfigurationError
from engine.identity.shown import MAX_CHARACTERS
from engine.store.locate import default_path

FILE_NAME = "admin.key"
SHORT_CHARACTERS = 16
"""A key an operator sets with fewer characters than this can be guessed, and is warned about."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO

logger = logging.getLogger(__name__)


@attrs.frozen
class AdminKey:
    """The key's digest; the key itself is not kept."""

    digest: bytes = attrs.field(repr=False)
    path: Path | None = None
    """The file it is in; None when the operator has set it."""
    is_new: bool = attrs.field(default=False, eq=False)
    """It was made just now, so that the operator has to be told where it is."""

    def fits(self, text: str) -> bool:
        """Whether that is the key, in the same time wherever it differs."""
        return hmac.compare_digest(_digest(text), self.digest)

    @property
    def version(self) -> str:
        """Another for another key; nothing can be made of it."""
        return hashlib.sha256(self.digest).hexdigest()[:16]

    def reread(self) -> "AdminKey":
        """The key as its file has it now. A file that is gone or damaged changes nothing: the key of a running server holds
        until there is another."""
        if self.path is None:
            return self
        try:
            return AdminKey(_digest(_read(self.path)), self.path)
        except FileNotFoundError:
            return self
        except OSError as exc:
            logger.warning("the admin key stays as it was: %s", _unusable(self.path, exc))
        except ConfigurationError as exc:
            logger.warning("the admin key stays as it was: %s", exc)
        return self


def open_admin_key(path: Path | None, settings: Settings) -> AdminKey:
    """The key that is set, else the one in the file, which is made when it is not there: whichever of several processes comes
    first, they all get the same. Without a path the file is beside the store in the user's data directory.

    Blocks on the disk.

    Raises:
        ConfigurationError: what is set or in the file is no key, or the file cannot be read or made; says what to do.
    """
    text = settings.admin_key.get_secret_value().strip()
    if text:
        if len(text) < SHORT_CHARACTERS:
            logger.warning("SOUFFLEUR_ADMIN_KEY has fewer than %d characters and can be guessed", SHORT_CHARACTERS)
        return AdminKey(_digest(_usable(text, "SOUFFLEUR_ADMIN_KEY")))
    path = path or default_path(os.environ).with_name(FILE_NAME)
    try:
        is_new = not path.exists() and _make(path)
        key = AdminKey(_digest(_read(path)), path, is_new)
        mode = path.stat().st_mode
    except OSError as exc:  # also a link to nowhere, and a file that somebody deletes as fast as it is made
        raise _unusable(path, exc) from exc
    if mode & OTHERS:  # warned about only: a secret that is mounted into a container often has such a mode
        logger.warning("others can reach the admin key: chmod 600 %s", path)
    return key


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _usable(text: str, where: str) -> str:
    if not text.isascii() or not text.isprintable() or " " in text or len(text) > MAX_CHARACTERS:
        raise ConfigurationError(f"{where}: an admin key is one word of plain characters.")
    return text


def _read(path: Path) -> str:
    """The key in the file. Raises OSError, ConfigurationError."""
    with path.open("rb") as file:
        text = file.read(MAX_CHARACTERS + 2).decode("latin-1").strip()
    if not text:
        raise ConfigurationError(f"The admin key file {path} is empty: delete it, and a key is made at the next start.")
    return _usable(text, str(path))


def _make(path: Path) -> bool:
    """Make a key's file, complete before anybody can see it. False when somebody else has made it meanwhile. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_urlsafe(32)}\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # unlike a rename it never replaces what is there
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    return True


def _unusable(path: Path, exc: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The admin key file {path} cannot be used ({type(exc).__name__}): "
        "name another with --admin-key-file, or set SOUFFLEUR_ADMIN_KEY."
    )
