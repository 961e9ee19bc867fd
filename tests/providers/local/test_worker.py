"""One engine, one thread at a time. Real threads, so real time; nothing here waits longer than it must."""

import threading

import pytest
import trio
import trio.testing

from providers.local.worker import Stop, Stopped, Worker


class Engine:
    """Notices when two use it at once."""

    def __init__(self) -> None:
        self.in_use = threading.Lock()
        self.jobs = 0

    def work(self, stop: Stop) -> int:
        assert self.in_use.acquire(blocking=False), "two threads in one engine"
        try:
            self.jobs += 1
            return self.jobs
        finally:
            self.in_use.release()


async def test_many_jobs_share_one_engine() -> None:
    made: list[Engine] = []

    def load() -> Engine:
        made.append(Engine())
        return made[-1]

    worker = Worker("engine", load)
    assert made == []
    results: list[int] = []

    async def job() -> None:
        results.append(await worker.run(Engine.work))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(job)
    assert sorted(results) == list(range(1, 21))
    assert len(made) == 1
    assert worker.is_loaded
    assert not worker.is_busy


async def test_a_failed_loading_is_tried_again() -> None:
    tries: list[int] = []

    def load() -> Engine:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("not yet")
        return Engine()

    worker = Worker("engine", load)
    with pytest.raises(OSError, match="not yet"):
        await worker.run(Engine.work)
    assert await worker.run(Engine.work) == 1


class Patient:
    """A job that works until it is told to stop, and then until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.told = threading.Event()
        self.let_go = threading.Event()

    def __call__(self, engine: Engine, stop: Stop) -> None:
        with engine.in_use:
            stop.on_stop(self.told.set)
            self.begun.set()
            assert self.told.wait(10)
            assert self.let_go.wait(10)
        stop.check()
        raise AssertionError("it was not told to stop")


async def test_a_cancelled_job_is_told_and_the_next_one_waits_for_it() -> None:
    worker = Worker("engine", Engine)
    patient = Patient()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.run, patient)
        await trio.to_thread.run_sync(patient.begun.wait, 10)
        assert worker.is_busy
        nursery.cancel_scope.cancel()
    # The caller is back, and the job is told; it is still in the engine.
    assert patient.told.wait(10)
    assert worker.is_busy
    async with trio.open_nursery() as nursery:
        numbers: list[int] = []

        async def next_job() -> None:
            numbers.append(await worker.run(Engine.work))

        nursery.start_soon(next_job)
        await trio.testing.wait_all_tasks_blocked()
        assert numbers == []
        patient.let_go.set()
    assert numbers == [1]


async def test_a_job_that_was_cancelled_while_it_waited_is_never_begun() -> None:
    worker = Worker("engine", Engine)
    patient = Patient()
    begun: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.run, patient)
        await trio.to_thread.run_sync(patient.begun.wait, 10)
        with trio.move_on_after(0.01):
            await worker.run(lambda engine, stop: begun.append(1))
        patient.let_go.set()
        nursery.cancel_scope.cancel()
    assert await worker.run(Engine.work) == 1
    assert begun == []


def test_what_an_earlier_run_of_trio_left_behind_holds_up_the_next() -> None:
    worker = Worker("engine", Engine)
    patient = Patient()

    async def leave() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run, patient)
            await trio.to_thread.run_sync(patient.begun.wait, 10)
            nursery.cancel_scope.cancel()

    async def come() -> int:
        patient.let_go.set()
        return await worker.run(Engine.work)

    trio.run(leave)
    assert trio.run(come) == 1


def test_stopping_acts_once_and_also_late() -> None:
    acts: list[str] = []
    stop = Stop()
    stop.check()
    stop.on_stop(lambda: acts.append("first"))
    stop.on_stop(None)
    stop.on_stop(lambda: acts.append("second"))
    stop.set()
    stop.set()
    stop.on_stop(lambda: acts.append("late"))
    stop.on_stop(None)
    assert acts == ["second", "late"]
    with pytest.raises(Stopped):
        stop.check()
