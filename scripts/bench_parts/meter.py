"""What a process that is measured says of itself: processor time, memory, how late its loop is, where the time goes."""

import gc
import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import trio

from bench_parts.notes import Notes
from bench_parts.sampling import Sampler
from bench_parts.worker import Report, answer, commands, monotonic_ns, watch_lateness

TICK_SECONDS = 0.053
"""Between two looks at the loop's lateness: no multiple of a frame, so that they do not all fall on one session's frames. A
look costs about 20 µs, so all of them about 0.4 ms of a second, whatever the number of sessions."""


@attrs.define(eq=False)
class Meter:
    """What the process has used between `begin` and `end`."""

    notes: Notes | None = None
    """Of the model's side, if that is in this process."""
    sampler: Sampler | None = None
    long_steps: int = attrs.field(default=0, init=False)
    """That held the loop for longer than a frame lasts, as far as somebody looks for them."""
    late: list[float] = attrs.field(factory=list[float], init=False)
    _baseline: int = attrs.field(default=0, init=False)
    _began: int = attrs.field(default=0, init=False)
    _usage: resource.struct_rusage = attrs.field(init=False)

    def baseline(self) -> Report:
        """Before the sessions come."""
        gc.collect()
        self._baseline = resident_bytes()
        return {}

    def begin(self) -> Report:
        gc.collect()
        self.late.clear()
        self.long_steps = 0
        if self.sampler is not None:
            self.sampler.start()
        self._began = monotonic_ns()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        return {}

    def used(self) -> Report:
        """Processor time since the process was started, and when that was read."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {"at": monotonic_ns(), "cpu_seconds": usage.ru_utime + usage.ru_stime}

    def end(self) -> Report:
        after, before = resource.getrusage(resource.RUSAGE_SELF), self._usage
        ended = monotonic_ns()
        profile = self.sampler.stop() if self.sampler is not None else None
        late, long_steps = list(self.late), self.long_steps
        gc.collect()
        return {
            "seconds": (ended - self._began) / 1e9,
            "user_seconds": after.ru_utime - before.ru_utime,
            "system_seconds": after.ru_stime - before.ru_stime,
            "resident_bytes": resident_bytes() - self._baseline,
            "late": late,
            "long_steps": long_steps,
            "notes": self.notes.report() if self.notes is not None else None,
            "profile": profile,
        }

    async def serve(self, ready: Report, more: Mapping[bytes, Callable[[], None]] | None = None) -> None:
        """Say that the process is ready, and do as told, until told to stop. `more` is what else it can be told."""
        gc.collect()  # as `souffleur serve` does
        gc.freeze()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_lateness, TICK_SECONDS, trio.current_time, self.late, name="lateness")
            answer(ready)
            lines = commands()
            while line := await lines.next():
                match line.strip():
                    case word if more is not None and word in more:
                        more[word]()
                        answer({})
                    case b"baseline":
                        answer(self.baseline())
                    case b"begin":
                        answer(self.begin())
                    case b"used":
                        answer(self.used())
                    case b"end":
                        answer(self.end())
                    case _:
                        break
            nursery.cancel_scope.cancel(reason="all is measured")


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
