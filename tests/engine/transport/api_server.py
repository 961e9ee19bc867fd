"""The whole server as an operator starts it, in a process of its own: for clients that are programs without Trio."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ADMIN_KEY = "an-admin-key-for-tests"
FILE = """
project: {ref: house, name: House, access: public, members: [olga]}
realtimeConfigurations:
  - id: house-voice  # nothing that has to be loaded, and nothing that is there to be asked
    properties: {provider: Internal, sttProvider: None, ttsProvider: OpenAI, chat: {provider: Demo},
                 tts: {baseUrl: "http://127.0.0.1:9/v1", apiKey: none, model: none, voice: none}}
templates:
  - {ref: service, revision: 1, purpose: "Old."}
  - {ref: service, revision: 3, published: true, purpose: "Serve {city}.", variables: [{name: city}]}
agents: [{ref: host, type: basic, name: Host, published: true, realtimeConfigurationId: house-voice}]
"""
COMMAND = "import engine.cli; engine.cli.run_command()"


@contextmanager
def serve_api(directory: Path) -> Generator[str]:
    """Gives its URL. At the end it has logged no errors."""
    project = directory / "house.yaml"
    project.write_text(FILE, encoding="utf-8")
    said = directory / "said.txt"
    arguments = ["--log-level", "error", "serve", "--port", "0", "--store", "memory:", "--project", str(project)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SOUFFLEUR_")}
    environment |= {"SOUFFLEUR_ADMIN_KEY": ADMIN_KEY, "HOME": str(directory), "XDG_DATA_HOME": str(directory)}
    environment["SOUFFLEUR_MAX_LATENESS_SECONDS"] = "60"  # a machine that is busy with tests is no reason for a 503
    with said.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("listening on "), said.read_text()
        yield line.split()[-1]
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()
    assert said.read_text() == "", said.read_text()[:3000]
