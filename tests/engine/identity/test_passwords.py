"""Passwords: hashes that are made, checked, and never many at a time."""

import threading

import argon2
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from engine.errors import ConfigurationError, ErrorCode, RemoteError, Whose
from engine.identity import passwords
from engine.identity.passwords import (
    AT_ONCE,
    MAX_WAITING,
    NOBODYS,
    WAIT_SECONDS,
    PasswordChecker,
    hash_password,
    is_password_hash,
    password_version,
)
from tests.engine.identity.support import CHEAP


async def test_a_hash_fits_its_password_alone() -> None:
    password_hash = hash_password("čaj: 2 ☕")
    checker = PasswordChecker()
    assert await checker.fits("čaj: 2 ☕", password_hash)
    assert not await checker.fits("čaj: 2", password_hash)
    assert not await checker.fits("", password_hash)


def test_each_hash_is_another() -> None:
    first, second = hash_password("tea"), hash_password("tea")
    assert first != second
    assert password_version(first) != password_version(second)
    assert password_version(first) == password_version(first)
    assert first not in password_version(first)


@pytest.mark.parametrize("password", ["", "x" * 1025, "é" * 513, "two\nlines", "nul\0", "\x85", "\udc80"])
def test_what_nobody_could_send_is_no_password(password: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^A password has "):
        hash_password(password)


async def test_nobodys_hash_costs_as_much_as_a_real_one() -> None:
    assert argon2.extract_parameters(NOBODYS) == argon2.extract_parameters(hash_password("tea"))
    assert is_password_hash(NOBODYS)
    assert not await PasswordChecker().fits("", "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tea",
        "env:TEA",
        "$2b$12$abcdefghijklmnopqrstuuGbBkLmNoPqRsTuVwXyZaBcDeFgHiJkL",
        "$argon2id$v=19$m=65536,t=3,p=4$",
        "$argon2id$v=19$m=4194304,t=3,p=4$" + "A" * 22 + "$" + "A" * 43,
        "$argon2id$v=19$m=65536,t=300,p=4$" + "A" * 22 + "$" + "A" * 43,
        "$argon2id$v=19$m=65536,t=3,p=400$" + "A" * 22 + "$" + "A" * 43,
        "$argon2id$v=19$m=x,t=3,p=4$" + "A" * 22 + "$" + "A" * 43,
    ],
)
def test_what_is_no_hash_or_costs_too_much(text: str) -> None:
    assert not is_password_hash(text)


@pytest.mark.parametrize("kind", list(argon2.Type))
async def test_every_kind_of_argon2_is_taken(kind: argon2.Type) -> None:
    password_hash = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1, type=kind).hash("tea")
    assert is_password_hash(password_hash)
    assert await PasswordChecker().fits("tea", password_hash)


async def test_a_damaged_hash_fits_nothing() -> None:
    password_hash = CHEAP.hash("tea")
    for damaged in (password_hash[:-1], password_hash[:-1] + "!", "$argon2id$v=19$m=8,t=1,p=1$$", "tea"):
        assert not await PasswordChecker().fits("tea", damaged)


async def test_few_at_once_and_no_queue_without_an_end(monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock) -> None:
    """Checks that hang: the clock stands still until it is told to go on, as threads and a clock that jumps do not mix."""
    release, begun = threading.Event(), threading.Semaphore(0)

    def check(password: str, password_hash: str) -> bool:
        begun.release()
        return release.wait(10)

    monkeypatch.setattr(passwords, "_fits", check)
    checker = PasswordChecker()
    answers: list[bool | RemoteError] = []

    async def ask() -> None:
        try:
            answers.append(await checker.fits("tea", "hash"))
        except RemoteError as error:
            answers.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE + MAX_WAITING):
            nursery.start_soon(ask)
        for _ in range(AT_ONCE):
            await trio.to_thread.run_sync(begun.acquire)
        await wait_all_tasks_blocked()
        assert answers == []

        await ask()  # one too many is told so at once
        refused = answers.pop()
        assert isinstance(refused, RemoteError)
        assert (refused.code, refused.whose) == (ErrorCode.TOO_BUSY, Whose.SERVER)

        mock_clock.jump(WAIT_SECONDS)  # who waited too long is told so too; what has begun is not given up
        await wait_all_tasks_blocked()
        assert [isinstance(each, RemoteError) for each in answers] == [True] * MAX_WAITING
        release.set()
    assert answers[MAX_WAITING:] == [True] * AT_ONCE
    assert not begun.acquire(blocking=False)  # no other has begun

    assert await checker.fits("tea", "hash")  # and afterwards it goes on
