"""What every store promises about usage: one record per run, and the sum a project's month is limited by."""

from datetime import UTC, datetime, timedelta

import pytest

from engine.store.contract import Store
from tests.engine.store.samples import NOON, ODD_IDS, usage

JUNE = datetime(2024, 6, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


async def test_usage_is_one_record_per_id_oldest_first(store: Store) -> None:
    second = usage("u2", created_at=NOON + timedelta(milliseconds=500), input_tokens=2)
    first = usage("u3", created_at=NOON, input_tokens=3, cached_tokens=1, active_seconds=12.5)
    last = usage("u1", created_at=NOON + timedelta(milliseconds=500), test_mode=True, agent="coach", project_ref="p1")
    for record in (last, second, first, second):
        await store.save_usage(record)
    await store.save_usage(usage("u2", "s2"))
    assert await store.get_usage("s1") == [first, last, second]
    assert await store.get_usage("s2") == [usage("u2", "s2")]
    assert await store.get_usage("s3") == []


async def test_saving_usage_again_replaces_it(store: Store) -> None:
    await store.save_usage(usage(turns=1))
    await store.save_usage(usage(turns=2))
    assert await store.get_usage("s1") == [usage(turns=2)]


async def test_active_seconds_are_a_projects_since_a_time(store: Store) -> None:
    records = [
        usage("last of May", active_seconds=1000, project_ref="p1", created_at=JUNE - MILLISECOND),
        usage("first of June", active_seconds=0.25, project_ref="p1", created_at=JUNE),
        usage("another's run", "s2", active_seconds=2, project_ref="p1", created_at=JUNE + timedelta(days=3)),
        usage("next year", "s3", active_seconds=30.5, project_ref="p1", created_at=JUNE + timedelta(days=365)),
        usage("a test", active_seconds=400, project_ref="p1", created_at=JUNE, test_mode=True),
        usage("another project", active_seconds=5000, project_ref="p2", created_at=JUNE),
        usage("no project", active_seconds=7, created_at=JUNE),
    ]
    for record in records:
        await store.save_usage(record)
    assert await store.active_seconds("p1", since=JUNE) == 32.75
    assert await store.active_seconds("p1", since=JUNE - MILLISECOND) == 1032.75
    assert await store.active_seconds("p1", since=JUNE + MILLISECOND) == 32.5
    assert await store.active_seconds("p1", since=JUNE + timedelta(days=366)) == 0
    assert await store.active_seconds("p2", since=NOON) == 5000
    assert await store.active_seconds("", since=NOON) == 7
    assert await store.active_seconds("P1", since=NOON) == 0


async def test_active_seconds_count_what_was_saved_last_once(store: Store) -> None:
    for seconds in (10, 20, 20):
        await store.save_usage(usage(active_seconds=seconds, project_ref="p1"))
    assert await store.active_seconds("p1", since=NOON) == 20
    await store.save_usage(usage(active_seconds=30, project_ref="p2"))
    assert await store.active_seconds("p1", since=NOON) == 0
    assert await store.active_seconds("p2", since=NOON) == 30
    await store.save_usage(usage(active_seconds=30, project_ref="p2", test_mode=True))
    assert await store.active_seconds("p2", since=NOON) == 0


async def test_active_seconds_add_up(store: Store) -> None:
    for number in range(100):
        await store.save_usage(usage(f"u{number}", f"s{number % 7}", active_seconds=0.1, project_ref="p1"))
    assert await store.active_seconds("p1", since=NOON) == pytest.approx(10, abs=1e-9)


async def test_projects_are_compared_exactly(store: Store) -> None:
    for number, project_ref in enumerate(ODD_IDS):
        await store.save_usage(usage(f"u{number}", active_seconds=2**number, project_ref=project_ref))
    for number, project_ref in enumerate(ODD_IDS):
        assert await store.active_seconds(project_ref, since=NOON) == 2**number
