"""Where the time goes: the stack, looked at each time the process has used some more of a processor.

A sample costs the program a few microseconds every few milliseconds, and no function more than another; a tracing profiler
would make the many small calls of an event loop look dear. What C functions take counts for the Python line that calls them.
"""

import signal
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import trio

from bench_parts.worker import Report

SAMPLE_SECONDS = 0.001
"""Of processor time. The kernel rounds it up to its own tick, 4 ms on most machines."""
ROOT = Path(__file__).resolve().parents[2]
RESAMPLER = "resampler"
_GENERATED = "<attrs generated methods "
_RESAMPLING = frozenset({"resample", "lowpass", "lowpass_taps"})
"""The engine's modules that are the resampler."""
SCHEDULER = "(trio's scheduler, epoll)"


class Sampler:
    """Counts samples by function, by room, by task, and by the engine's function that a library worked for."""

    def __init__(self) -> None:
        self._functions: Counter[CodeType] = Counter()
        self._tasks: Counter[str] = Counter()
        self._owners: Counter[CodeType | None] = Counter()
        self._ours: dict[CodeType, bool] = {}
        self._wakeup = -1

    def start(self) -> None:
        # Trio wakes its loop for each signal, which here would be work that nobody has without the profile.
        self._wakeup = signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)

    def stop(self) -> Report:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.set_wakeup_fd(self._wakeup)
        rooms: Counter[str] = Counter()
        for code, count in self._functions.items():
            rooms[room_of(code)] += count
        return {
            "samples": sum(self._functions.values()),
            "rooms": rooms.most_common(),
            "tasks": self._tasks.most_common(),
            "functions": [[room_of(code), name_of(code), n] for code, n in self._functions.most_common()],
            "owners": [
                [room_of(code), name_of(code), n] if code else ["", SCHEDULER, n]
                for code, n in self._owners.most_common()
            ],
        }

    def _sample(self, _: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        self._functions[frame.f_code] += 1
        try:
            name = trio.lowlevel.current_task().name
        except RuntimeError:
            name = SCHEDULER
        self._tasks[short(name)] += 1
        at: FrameType | None = frame
        while at is not None and not self._is_ours(at.f_code):
            at = at.f_back
        owner = None if at is None or name == SCHEDULER else at.f_code
        self._owners[owner] += 1

    def _is_ours(self, code: CodeType) -> bool:
        ours = self._ours.get(code)
        if ours is None:
            ours = self._ours[code] = room_of(code).startswith(
                ("engine", "providers", RESAMPLER, "bench_parts/model", "bench_parts/relay")
            )
        return ours


def short(task: str) -> str:
    """A task's name without what differs from one session, or one turn, to the next."""
    return task.rpartition(".")[2] if "." in task else task.split(" ")[-1] if task.startswith("t-") else task


def name_of(code: CodeType) -> str:
    """A function's name; that of what attrs has generated is only in the name of its file."""
    if code.co_filename.startswith(_GENERATED):
        return f"{code.co_filename.removeprefix(_GENERATED).strip(' >')}.{code.co_name}"
    return code.co_qualname


def room_of(code: CodeType) -> str:
    """The part of the program a function belongs to: a room of the engine, a package, or the standard library."""
    path = Path(code.co_filename)
    if path.is_relative_to(ROOT) and "site-packages" not in path.parts:
        parts = path.relative_to(ROOT).parts
        if path.stem in _RESAMPLING:
            return RESAMPLER
        return "/".join(parts[-2:] if parts[0] == "scripts" else parts[:2]).removesuffix(".py")
    if "site-packages" in path.parts:
        return path.parts[path.parts.index("site-packages") + 1].removesuffix(".py")
    return "attrs (generated)" if code.co_filename.startswith(_GENERATED) else "Python"
