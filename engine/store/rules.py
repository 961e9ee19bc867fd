"""What every store does with a session document, whatever keeps it: opening again, and keeping the owner."""

from engine.errors import NotFoundError
from engine.store.documents import SessionDocument, SessionState


def reopened(stored: SessionDocument | None, asked: SessionDocument) -> SessionDocument:
    """What `open_session` stores and returns: the stored session back in OPEN, or the one asked for when there is none.

    Raises:
        NotFoundError: the stored session is another owner's. The sentence is the one for a session that does not exist.
    """
    if stored is None:
        return asked
    if stored.owner != asked.owner:
        raise NotFoundError("There is no such session.")
    return stored.model_copy(update={"state": SessionState.OPEN, "updated_at": asked.updated_at})


def keeping_owner(stored: SessionDocument | None, new: SessionDocument) -> SessionDocument:
    """What `save_session` stores: the new document under the owner it always had (case C43 b)."""
    if stored is None or stored.owner == new.owner:
        return new
    return new.model_copy(update={"owner": stored.owner})
