"""Souffleur's engine: what a program that embeds it needs."""

from engine.composition import open_services as open_services
from engine.config import PipelineConfiguration as PipelineConfiguration
from engine.config import Settings as Settings
from engine.pipeline.line import open_line as open_line
from engine.session.run import run_session as run_session
