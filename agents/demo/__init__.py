"""The project that is served when no other is named: one agent that answers a café's phone and books tables."""

from pathlib import Path

PROJECT_FILE = Path(__file__).with_name("project.yaml")
