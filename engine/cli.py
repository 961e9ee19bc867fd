"""The `souffleur` command: the composition root (protocol page, section 4).

Exit codes: 0 done, 1 failed, 2 wrong usage. What an operator can mend is said in one sentence, without a traceback.
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import trio

from engine import registry
from engine.composition import open_services
from engine.config import Settings
from engine.errors import ConfigurationError
from engine.observe.logs import configure_logging

DONE, FAILED, USAGE = 0, 1, 2
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
PREFIX = "SOUFFLEUR_"


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
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    options.arguments = given
    if options.command is None:
        parser.print_help()
        return USAGE
    configure_logging(options.log_level, options.log_format)
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
        "--log-level",
        type=_one_of("debug", "info", "warning", "error"),
        default=_environment("LOG_LEVEL", "warning"),
        metavar="LEVEL",
        help="debug, info, warning (the default) or error",
    )
    parser.add_argument(
        "--log-format",
        type=_one_of("text", "json"),
        default=_environment("LOG_FORMAT", "text"),
        metavar="FORMAT",
        help="text (the default), or json: one object a line, for machines",
    )
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    serve = commands.add_parser("serve", help="serve agents over WebSocket and HTTP, with a talk page at /")
    serve.add_argument("--host", default=_environment("HOST", DEFAULT_HOST))
    serve.add_argument("--port", type=int, default=_environment("PORT", str(DEFAULT_PORT)), help="0 picks a free one")
    _add_project(serve)
    serve.add_argument(
        "--store",
        default=_environment("STORE", "sqlite:"),
        metavar="URL",
        help="mongodb://… or sqlite:PATH or memory: (a file in your data directory when none is given)",
    )
    serve.add_argument(
        "--workers",
        type=_count,
        default=_environment("WORKERS", "1"),
        metavar="N",
        help="processes that serve; about one for each processor (default 1)",
    )
    serve.add_argument(
        "--admin-key-file",
        type=Path,
        default=_environment("ADMIN_KEY_FILE", "") or None,
        metavar="FILE",
        help="where the admin key is, or is put when there is none (default: admin.key in your data directory)",
    )
    serve.add_argument("--handles", type=_handles, help=argparse.SUPPRESS)  # for each of the workers
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


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("it has to be a whole number from 1")
    return int(text)


def _one_of(*choices: str) -> Callable[[str], str]:
    """As argparse's own choices, which do not look at what comes from the environment."""

    def check(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"it has to be {', '.join(choices[:-1])} or {choices[-1]}")
        return text

    return check


def _handles(text: str) -> Any:
    from engine.workers import Handles

    return Handles.parse(text)


def _projects(options: argparse.Namespace) -> list[Path]:
    return list(options.project or options.projects_of_environment)


# --- serve -----------------------------------------------------------------------------------------------------------


def _serve(options: argparse.Namespace) -> int:
    from engine.serving import Plan, serve_alone
    from engine.transport.server import BoundAddress, open_listeners
    from engine.workers import require_shared_store, supervise, work

    plan = Plan(_projects(options), options.store, options.admin_key_file)
    if options.handles is not None:
        return DONE if trio.run(work, plan, options.handles) else FAILED

    if options.workers > 1:
        require_shared_store(plan)

    def say_ready(address: BoundAddress) -> None:
        print(f"listening on {address.url}", flush=True)

    async def serve() -> str:
        listeners = await open_listeners(options.host, options.port)  # first: a taken port is told before all else
        if options.workers > 1:
            return await supervise(listeners, say_ready, count=options.workers, command=_worker_command(options))
        await serve_alone(plan, listeners, say_ready)
        return ""

    fault = trio.run(serve)
    if fault:
        print(f"souffleur: {fault}", file=sys.stderr)
    return FAILED if fault else DONE


def _worker_command(options: argparse.Namespace) -> list[str]:
    """This command again; `-P`, so that what lies in the working directory does not stand in for the engine."""
    return [sys.executable, "-P", "-m", "engine.cli", *options.arguments, "--handles"]


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
