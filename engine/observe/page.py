"""A page of numbers: what a process counts, where others can read it while it lives and after it was killed.

A number is one double in a block of memory, and changing it is one store. When the block is a mapped file, what was counted is
the kernel's at once: no task writes snapshots, nothing is lost by `kill -9`, and no reader sees a number go back. The room is set
aside when the page is made, as a full disk would otherwise kill the process at some later addition.

The layout, in the machine's byte order and everything a multiple of 8 bytes: `MAGIC` and the number of bytes used; then entries,
each the length of its key and the count of its numbers (two 32-bit integers), the key, padded, and the numbers.
"""

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

MAGIC = b"souffl-1"
HEADER = struct.Struct("=8sQ")
ENTRY = struct.Struct("=II")
DOUBLE = 8
USED_AT = 1
"""Where the number of bytes used stands, in units of 8 bytes."""


class PageFullError(Exception):
    """There is no room for another entry; its size was computed too small."""


class Page:
    """Room for entries, which are added and never removed. Of one thread."""

    def __init__(self, block: mmap.mmap | bytearray, file: int | None = None) -> None:
        """`block` is all zeros. `file`, when it is given, holds the lock that says that its owner lives."""
        self._file = file
        self._bytes = memoryview(block)
        self._sizes = self._bytes.cast("Q")
        self.numbers = self._bytes.cast("d")
        """All numbers, by the index that `add` gave."""
        self._used = HEADER.size
        HEADER.pack_into(self._bytes, 0, MAGIC, self._used)

    @classmethod
    def in_memory(cls, capacity: int) -> "Page":
        return cls(bytearray(capacity))

    @classmethod
    def in_file(cls, path: Path, capacity: int) -> "Page":
        """Raises OSError when the file cannot be made, or there is no room for it."""
        unready = path.with_name(f".{path.name}")  # it gets its name when it is complete and locked
        file = os.open(unready, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            _reserve(file, capacity)
            fcntl.flock(file, fcntl.LOCK_EX)
            page = cls(mmap.mmap(file, capacity), file)
            unready.rename(path)
        except BaseException:
            os.close(file)
            unready.unlink(missing_ok=True)
            raise
        return page

    def add(self, key: bytes, count: int) -> int:
        """Room for some numbers under a key; gives the index of the first. All are zero.

        Raises:
            PageFullError: there is none left.
        """
        start = self._used
        numbers_at = start + ENTRY.size + _padded(len(key))
        end = numbers_at + DOUBLE * count
        if end > len(self._bytes):
            raise PageFullError
        ENTRY.pack_into(self._bytes, start, len(key), count)
        self._bytes[start + ENTRY.size : start + ENTRY.size + len(key)] = key
        self._used = self._sizes[USED_AT] = end  # last: a reader sees whole entries only
        return numbers_at // DOUBLE

    def content(self) -> bytes:
        """What a reader of the file would find."""
        return bytes(self._bytes[: self._used])

    def close(self) -> None:
        """Say that its owner is no more. The memory goes with the page, so what is still counted does no harm."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)  # by itself, as the map has a copy of the descriptor
            os.close(self._file)
            self._file = None


def entry_size(key_length: int, count: int) -> int:
    """The bytes an entry takes."""
    return ENTRY.size + _padded(key_length) + DOUBLE * count


def read_page(path: Path) -> tuple[bytes, bool]:
    """The content of a page's file, and whether its owner lives: its lock is gone with the process, whatever ended it.

    Raises:
        FileNotFoundError: it was removed in the meantime.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        head = os.pread(file, HEADER.size, 0).ljust(HEADER.size, b"\0")
        magic, used = HEADER.unpack(head)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            lives = True
        else:
            lives = False
        return os.pread(file, used, 0) if magic == MAGIC else b"", lives
    finally:
        os.close(file)


def entries(content: bytes) -> Iterator[tuple[bytes, Sequence[float]]]:
    """The entries of a page, each key with its numbers. What is no page has none."""
    if len(content) < HEADER.size or HEADER.unpack_from(content)[0] != MAGIC:
        return
    at = HEADER.size
    while at < len(content):
        length, count = ENTRY.unpack_from(content, at)
        at += ENTRY.size
        key = content[at : at + length]
        at += _padded(length)
        yield key, struct.unpack_from(f"={count}d", content, at)
        at += DOUBLE * count


def _padded(length: int) -> int:
    return -length % DOUBLE + length


def _reserve(file: int, capacity: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, capacity)
    else:  # macOS, for development
        os.ftruncate(file, capacity)
