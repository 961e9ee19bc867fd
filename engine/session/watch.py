"""What a process has to look for on its running sessions: whether another process has taken one over, and whether the
credentials it was opened with still hold (SPEC L8, Q2). One question to the store for all of them."""

import logging

import trio

from engine.observation import Happening
from engine.session.live import revoked, taken_over
from engine.session.services import Services
from engine.store.contract import StoreError

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""The longest one look may take; a store that is slow for one must not hold up the other."""


async def watch_sessions(services: Services) -> None:
    """Look again and again, as long as the process serves. Nothing is asked while no session runs."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch_fences, services, name="watch: fences")
        nursery.start_soon(_watch_credentials, services, name="watch: credentials")


async def _watch_fences(services: Services) -> None:
    while True:
        await services.live.wait_for_some()
        await trio.sleep(services.settings.fence_watch_seconds)
        with trio.move_on_after(LOOK_SECONDS):
            await find_taken_over(services)


async def _watch_credentials(services: Services) -> None:
    while True:
        await services.live.wait_for_some()
        await trio.sleep(services.settings.revocation_watch_seconds)
        with trio.move_on_after(LOOK_SECONDS):
            await find_revoked(services)


async def find_taken_over(services: Services) -> None:
    """End the sessions that were opened again in another process. They would find out by their next write; this is sooner."""
    sessions = services.live.all
    try:
        fences = await services.store.fences([session.session_id for session in sessions])
    except StoreError as exc:
        logger.warning("it cannot be seen whether sessions were taken over: %s", exc)
        return
    for session in sessions:
        if fences.get(session.session_id, 0) > session.fence and session.cut is None:
            services.observer.happened(Happening.TAKEN_OVER, session.session_id)
            session.end(taken_over())


async def find_revoked(services: Services) -> None:
    """End the sessions whose credentials were revoked."""
    sessions = services.live.all
    credentials = {session.credential for session in sessions if session.credential is not None}
    if not credentials:
        return
    try:
        gone = set(await services.authenticator.revoked(list(credentials)))
    except StoreError as exc:
        logger.warning("it cannot be seen whether credentials were revoked: %s", exc)
        return
    for session in sessions:
        if session.credential in gone and session.cut is None:
            services.observer.happened(Happening.REVOKED, session.session_id)
            session.end(revoked())
