"""The `souffleur` command: the composition root (protocol page, section 4).

Exit codes: 0 done, 1 failed, 2 wrong usage. What an operator can mend is said in one sentence, without a traceback.
"""

import argparse
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import trio

from engine import registry
from engine.composition import open_services
from engine.config import Settings
from engine.errors import ConfigurationError
from engine.loading import PartLoader
from engine.observe.steps import StepInstrument

DONE, FAILED, USAGE = 0, 1, 2
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
PREFIX = "SOUFFLEUR_"

logger = logging.getLogger("souffleur")


def run_command() -> NoReturn:
    """The installed command. It leaves without the interpreter's tear-down: by now everything is closed and saved, and a native
    engine may still be at work in a thread that was given up, which the tear-down would crash."""
    code = main()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return USAGE
    _log(options.log_level)
    try:
        run: Any = options.run
        return int(run(options))
    except ConfigurationError as exc:
        print(f"souffleur: {exc}", file=sys.stderr)
        return FAILED
    except BaseExceptionGroup as group:
        faults, others = group.split(ConfigurationError)
        if faults is None or others is not None:
            if isinstance(group, ExceptionGroup) or group.subgroup(KeyboardInterrupt) is None:
                raise
            return DONE
        print(f"souffleur: {_first(faults)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return DONE


def _first(group: BaseExceptionGroup[ConfigurationError]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _parser() -> argparse.ArgumentParser:
    """Every option is also an environment variable: --project is SOUFFLEUR_PROJECT."""
    parser = argparse.ArgumentParser(prog="souffleur", description="A voice-agent server, and a client to talk to it.")
    parser.add_argument(
        "--log-level", default=_environment("LOG_LEVEL", "warning"), choices=["debug", "info", "warning", "error"]
    )
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    serve = commands.add_parser("serve", help="serve agents over WebSocket and HTTP, with a talk page at /")
    serve.add_argument("--host", default=_environment("HOST", DEFAULT_HOST))
    serve.add_argument(
        "--port", type=int, default=int(_environment("PORT", str(DEFAULT_PORT))), help="0 picks a free one"
    )
    _add_project(serve)
    serve.add_argument(
        "--store", default=_environment("STORE", "sqlite:"), metavar="URL", help="sqlite:PATH or memory:"
    )
    serve.set_defaults(run=_serve)

    talk = commands.add_parser("talk", help="talk to an agent from the terminal")
    talk.add_argument("key", help="for example agent:barista")
    talk.add_argument("--url", default=_environment("URL", ""), help="a running server (else an engine of its own)")
    talk.add_argument("--wav", type=Path, metavar="IN.wav", help="speak this file in real time")
    talk.add_argument("--out", type=Path, metavar="OUT.wav", help="write what is heard")
    talk.add_argument("--text", action="store_true", help="type instead of speaking")
    _add_project(talk)
    talk.set_defaults(run=_talk)

    check = commands.add_parser("check", help="validate project files")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE")
    check.set_defaults(run=_check)
    return parser


def _add_project(parser: argparse.ArgumentParser) -> None:
    projects = [Path(path) for path in _environment("PROJECT", "").split(os.pathsep) if path]
    parser.add_argument(
        "--project",
        action="append",
        type=Path,
        default=None,
        metavar="FILE",
        help="a project file; may be given several times (the demo project when none is)",
    )
    parser.set_defaults(projects_of_environment=projects)


def _environment(name: str, default: str) -> str:
    return os.environ.get(PREFIX + name) or default


def _projects(options: argparse.Namespace) -> list[Path]:
    return list(options.project or options.projects_of_environment)


def _log(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )


# --- serve -----------------------------------------------------------------------------------------------------------


def _serve(options: argparse.Namespace) -> int:
    trio.run(partial(serve, options.host, options.port, _projects(options), options.store))
    return DONE


async def serve(host: str, port: int, projects: Sequence[Path], store: str) -> None:
    """Serve until SIGINT or SIGTERM, then end gracefully; a second signal ends it at once, with everything saved.

    Raises:
        ConfigurationError: a port, file, store or component is not as it has to be.
    """
    from engine.transport.app import create_app
    from engine.transport.server import BoundAddress, open_listeners, run_server

    settings = Settings()
    listeners = await open_listeners(host, port)  # first: a port that is taken is told before anything is opened
    async with open_services(projects=projects, store=store, settings=settings) as services:
        loader = PartLoader(services)
        app = create_app(
            services,
            readiness=loader.readiness,
            allowed_hosts=settings.allowed_hosts,
            allowed_origins=settings.allowed_origins,
        )
        serving, hurry = trio.CancelScope(), trio.Event()

        async def serve_until_stopped(*, task_status: trio.TaskStatus[BoundAddress]) -> None:  # noqa: ASYNC128 - the status is passed on
            with serving:
                await run_server(
                    app, host, port, settings=settings, listeners=listeners, hurry=hurry, task_status=task_status
                )
            nursery.cancel_scope.cancel(reason="the server has stopped")

        async with trio.open_nursery() as nursery:
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                address = await nursery.start(serve_until_stopped, name="server")
                nursery.start_soon(loader.run, name="loading parts")
                _settle_down()
                print(f"listening on {address.url}", flush=True)
                async for _ in signals:
                    if serving.cancel_called:
                        hurry.set()
                    elif app.connections:
                        print("stopping; conversations may finish (once more to end them now)", file=sys.stderr)
                    serving.cancel(reason="the server was asked to stop")


def _settle_down() -> None:
    """Everything is loaded: what is alive now stays, and need not be looked at by the garbage collector again."""
    gc.collect()
    gc.freeze()
    trio.lowlevel.add_instrument(StepInstrument())


# --- talk ------------------------------------------------------------------------------------------------------------


def _talk(options: argparse.Namespace) -> int:
    if bool(options.wav) == bool(options.text):
        print("souffleur: talk needs either --text or --wav IN.wav", file=sys.stderr)
        return USAGE
    return DONE if trio.run(_talk_somewhere, options) else FAILED


async def _talk_somewhere(options: argparse.Namespace) -> bool:
    """Talk to a running server, or to one of our own on a free port of this computer."""
    if options.url:
        return await _talk_to(options.url, options)

    from engine.transport.app import create_app
    from engine.transport.server import run_server

    settings = Settings()
    async with open_services(projects=_projects(options), store="memory:", settings=settings) as services:
        async with trio.open_nursery() as nursery:
            app = create_app(services)
            address = await nursery.start(partial(run_server, app, DEFAULT_HOST, 0, settings=settings), name="server")
            ended_well = await _talk_to(address.url, options)
            nursery.cancel_scope.cancel(reason="the conversation is over")
    return ended_well


async def _talk_to(url: str, options: argparse.Namespace) -> bool:
    from engine.talk import talk_text, talk_wav

    def say(line: str) -> None:
        print(line, flush=True)

    if options.text:
        return await talk_text(url, options.key, say)
    return await talk_wav(url, options.key, options.wav, options.out, say)


# --- check -----------------------------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> int:
    faults: Sequence[Any] = registry.load("projects", "check")(options.files)
    for fault in faults:
        print(fault)
    return FAILED if faults else DONE


if __name__ == "__main__":
    run_command()
