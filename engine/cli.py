"""The `souffleur` command: the composition root (protocol page, section 4).

Exit codes: 0 done, 1 failed, 2 wrong usage. What an operator can mend is said in one sentence, without a traceback.
"""

import argparse
import logging
import math
import os
import sys
import time
import zoneinfo
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
SEARCH_SECONDS = 60.0
"""How long a replay looks for the order in which things happened at once."""


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
    except BrokenPipeError:
        return _nobody_reads()
    except BaseExceptionGroup as group:
        if group.split(BrokenPipeError)[1] is None:
            return _nobody_reads()
        faults, others = group.split(ConfigurationError)
        if faults is None or others is not None:
            if isinstance(group, ExceptionGroup) or group.subgroup(KeyboardInterrupt) is None:
                raise
            return DONE
        print(f"souffleur: {_first(faults)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return DONE


def _nobody_reads() -> int:
    """What the command prints went to another, such as `head`, that has left. What is still to be printed goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


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
    serve.add_argument(
        "--record",
        type=Path,
        default=_environment("RECORD", "") or None,
        metavar="DIR",
        help="keep every session there in a capsule, which `souffleur replay` runs again; it holds what is said",
    )
    serve.add_argument("--redact", action="store_true", help="keep no words and no sound in the capsules")
    serve.add_argument("--handles", type=_handles, help=argparse.SUPPRESS)  # for each of the workers
    serve.set_defaults(run=_serve)

    replay = commands.add_parser("replay", help="run the engine again on a kept session, and compare")
    replay.add_argument("capsule", type=Path, help="a file that `souffleur serve --record` has made")
    replay.add_argument("--diff", action="store_true", help="show what was told around the first difference")
    replay.add_argument("--schedule", type=int, metavar="N", help="another order of what happens at once")
    replay.add_argument(
        "--package", action="append", default=[], metavar="NAME", help="whose classes a capsule may hold, beside ours"
    )
    replay.add_argument("--verbose", action="store_true", help="show what the session logs")
    replay.set_defaults(run=_replay)

    talk = commands.add_parser("talk", help="talk to an agent from the terminal")
    talk.add_argument("key", help="for example agent:barista")
    talk.add_argument("--url", default=_environment("URL", ""), help="a running server (else an engine of its own)")
    talk.add_argument("--wav", type=Path, metavar="IN.wav", help="speak this file in real time")
    talk.add_argument("--out", type=Path, metavar="OUT.wav", help="write what is heard")
    talk.add_argument("--text", action="store_true", help="type instead of speaking")
    _add_project(talk)
    talk.set_defaults(run=_talk)

    _add_simulate(commands.add_parser("simulate", help="let a simulated user talk to an agent, and report how it went"))

    check = commands.add_parser("check", help="validate project files")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE")
    check.set_defaults(run=_check)
    return parser


def _add_simulate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", help="of the agent that is tried out, for example agent:barista")
    parser.add_argument("--tester", metavar="KEY", required=True, help="of the simulated user: an agent of type test")
    parser.add_argument(
        "--runs", type=_count, default=_environment("RUNS", "1"), metavar="N", help="conversations (default 1)"
    )
    parser.add_argument(
        "--parallel", type=_count, default="1", metavar="K", help="of them at the same time (default 1)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=_environment("SEED", "") or None,
        metavar="S",
        help="of the first run; the others count on",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write everything there: JSON, or Markdown when it ends with .md"
    )
    parser.add_argument("--voice", action="store_true", help="they speak, in real time (default: they type)")
    parser.add_argument("--show", action="store_true", help="print what is said")
    parser.add_argument(
        "--max-turns", type=_count, default="30", metavar="N", help="of the simulated user, in each run (default 30)"
    )
    parser.add_argument("--max-minutes", type=_positive, default="10", metavar="M", help="of each run (default 10)")
    parser.add_argument(
        "--silence",
        type=_positive,
        default="60",
        metavar="S",
        help="seconds in which nobody says anything end a run (default 60)",
    )
    parser.add_argument(
        "--patience",
        type=_not_negative,
        default="10",
        metavar="S",
        help="seconds the simulated user gives the agent's planner after the agent has spoken (default 10; text only)",
    )
    parser.add_argument("--min-score", type=_score, metavar="X", help="a judge that gives less fails the run (0 to 1)")
    parser.add_argument(
        "--locale", action="append", metavar="TAG", help="best first; may be given several times (default en)"
    )
    parser.add_argument(
        "--time-zone", type=_time_zone, default="UTC", metavar="ZONE", help="of the simulated user (default UTC)"
    )
    parser.add_argument("--no-system-prompt", action="store_true", help="give the simulated user its own prompt alone")
    parser.add_argument(
        "--clock",
        type=_one_of("auto", "real", "virtual"),
        default="auto",
        help="auto (the default): virtual, and repeatable with a seed, when all models are scripted",
    )
    parser.add_argument("--store", default="memory:", metavar="URL", help="keep the sessions there (default: nowhere)")
    _add_project(parser)
    parser.set_defaults(run=_simulate)


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


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError("it has to be a number")
    return number


def _positive(text: str) -> float:
    if (number := _number(text)) <= 0:
        raise argparse.ArgumentTypeError("it has to be more than 0")
    return number


def _not_negative(text: str) -> float:
    if (number := _number(text)) < 0:
        raise argparse.ArgumentTypeError("it has to be 0 or more")
    return number


def _score(text: str) -> float:
    if not 0 <= (number := _number(text)) <= 1:
        raise argparse.ArgumentTypeError("it has to be from 0 to 1")
    return number


def _time_zone(text: str) -> str:
    if text not in zoneinfo.available_timezones():
        raise argparse.ArgumentTypeError("it has to be a zone such as Europe/Prague")
    return text


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

    plan = Plan(_projects(options), options.store, options.admin_key_file, options.record, options.redact)
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


# --- simulate --------------------------------------------------------------------------------------------------------


def _simulate(options: argparse.Namespace) -> int:
    from engine.simulate.command import simulate_and_tell
    from engine.simulate.conduct import Clock, Order, WrongUsageError
    from engine.simulate.exchange import Limits
    from engine.simulate.run import Plan

    limits = Limits(options.max_turns, options.max_minutes * 60, options.silence, options.patience)
    plan = Plan(
        options.key,
        options.tester,
        is_spoken=options.voice,
        limits=limits,
        min_score=options.min_score,
        locales=tuple(options.locale or ("en",)),
        time_zone=options.time_zone,
        no_system_prompt=options.no_system_prompt,
    )
    is_kept = options.store != "memory:"
    order = Order(plan, options.runs, options.parallel, options.seed, Clock(options.clock), is_kept)
    opened = partial(open_services, projects=_projects(options), store=options.store, settings=Settings())
    try:
        passed = simulate_and_tell(
            order,
            lambda environment: opened(environment=environment),
            options.report,
            shows=options.show,
            say=partial(print, flush=True),
        )
    except WrongUsageError as exc:
        print(f"souffleur: {exc}", file=sys.stderr)
        return USAGE
    return DONE if passed else FAILED


# --- replay ----------------------------------------------------------------------------------------------------------


def _replay(options: argparse.Namespace) -> int:
    from engine.capsule.codec import CapsuleError
    from engine.capsule.file import read_capsule
    from engine.capsule.replay import replay_in_some_order
    from engine.capsule.report import report_lines
    from engine.composition import installed_parts

    if not options.verbose:
        logging.disable(logging.CRITICAL)  # what the session logs it has logged before
    try:
        capsule = read_capsule(options.capsule)
        until = time.monotonic() + SEARCH_SECONDS
        result = replay_in_some_order(
            capsule,
            installed_parts,
            schedule=options.schedule,
            packages=options.package,
            may_go_on=lambda: time.monotonic() < until,
        )
    except (CapsuleError, OSError) as exc:
        print(f"souffleur: {exc}", file=sys.stderr)
        return USAGE
    for line in report_lines(capsule, result, shows_difference=options.diff):
        print(line)
    return DONE if result.is_equal else FAILED


# --- check -----------------------------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> int:
    faults: Sequence[Any] = registry.load("projects", "check")(options.files)
    for fault in faults:
        print(fault)
    return FAILED if faults else DONE


if __name__ == "__main__":
    run_command()
