"""Who may do what, as one table."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

import attrs
import pytest

from engine.errors import ErrorCode, RemoteError
from engine.identity.permissions import (
    NO_SUCH_AGENT,
    NO_SUCH_SESSION,
    check_minutes,
    may_administer,
    may_manage,
    may_read_session,
    may_talk,
)
from engine.principal import AccessRole, Credential, CredentialKind, Principal, ProjectAccess
from engine.store.documents import SessionDocument

AT = datetime(2026, 3, 1, tzinfo=UTC)
PUBLIC = ProjectAccess("public", is_public=True, members=frozenset({"anna", "olga"}))
PRIVATE = ProjectAccess("private", is_public=False, members=frozenset({"anna", "olga"}))


def user(name: str, role: AccessRole, kind: CredentialKind = CredentialKind.PASSWORD) -> Principal:
    return Principal(f"user:{name}", name, name, role=role, credential=Credential(kind, name, name))


def key(*projects: str, role: AccessRole = AccessRole.MEMBER, subject: str = "", unlimited: bool = False) -> Principal:
    return Principal(
        f"user:{subject}" if subject else "key:k1",
        subject or "key:k1",
        "anna",  # what somebody calls a key makes it nobody
        role=role,
        projects=None if unlimited else frozenset(projects),
        credential=Credential(CredentialKind.API_KEY, "k1", subject),
    )


WHO: Mapping[str, Principal] = {
    "anonymous": Principal("device:anna"),
    "anonymous with a name": Principal("device:d", user_id="anna", name="anna"),
    "member": user("anna", AccessRole.MEMBER),
    "owner": user("olga", AccessRole.OWNER),
    "stranger": user("sam", AccessRole.MEMBER),
    "strange owner": user("sam", AccessRole.OWNER),
    "admin": user("root", AccessRole.ADMIN),
    "token of a member": Principal(
        "token::anna", "anna", "A", role=AccessRole.MEMBER, credential=Credential(CredentialKind.TOKEN, "t", "anna")
    ),
    "token shown as a member": Principal(
        "token::sam", "sam", "anna", role=AccessRole.MEMBER, credential=Credential(CredentialKind.TOKEN, "t", "sam")
    ),
    "user without a credential": Principal("user:anna", "anna", role=AccessRole.MEMBER),
    "admin key": Principal(
        "admin:key", "admin:key", role=AccessRole.ADMIN, credential=Credential(CredentialKind.ADMIN_KEY, "")
    ),
    "key for both": key("public", "private"),
    "key for public": key("public"),
    "key for others": key("others"),
    "key for nothing": key(),
    "key unlimited, for nobody": key(unlimited=True),
    "owner key unlimited, for nobody": key(unlimited=True, role=AccessRole.OWNER),
    "member's key": key(unlimited=True, subject="anna"),
    "member's key for private": key("private", subject="anna"),
    "stranger's key for private": key("private", subject="sam"),
    "owner key for private": key("private", role=AccessRole.OWNER),
    "admin key for private": key("private", role=AccessRole.ADMIN),
}

OK, NO, NOT_FOUND, WHO_ARE_YOU = "ok", "forbidden", "not_found", "unauthorized"

# who: talk to public, private · manage public, private · administer · read a session of public, of private, of no project
TABLE = {
    "anonymous": (OK, NOT_FOUND, WHO_ARE_YOU, WHO_ARE_YOU, WHO_ARE_YOU, WHO_ARE_YOU, WHO_ARE_YOU, WHO_ARE_YOU),
    "anonymous with a name": (
        OK,
        NOT_FOUND,
        WHO_ARE_YOU,
        WHO_ARE_YOU,
        WHO_ARE_YOU,
        WHO_ARE_YOU,
        WHO_ARE_YOU,
        WHO_ARE_YOU,
    ),
    "member": (OK, OK, NO, NO, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "owner": (OK, OK, OK, OK, NO, OK, OK, NOT_FOUND),
    "stranger": (OK, NOT_FOUND, NO, NOT_FOUND, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "strange owner": (OK, NOT_FOUND, NO, NOT_FOUND, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "admin": (OK, OK, OK, OK, OK, OK, OK, OK),
    "token of a member": (OK, OK, NO, NO, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "token shown as a member": (OK, NOT_FOUND, NO, NOT_FOUND, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "user without a credential": (OK, OK, NO, NO, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "admin key": (OK, OK, OK, OK, OK, OK, OK, OK),
    "key for both": (OK, OK, NO, NO, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "key for public": (OK, NOT_FOUND, NO, NOT_FOUND, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "key for others": (NO, NOT_FOUND, NO, NOT_FOUND, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "key for nothing": (NO, NOT_FOUND, NO, NOT_FOUND, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "key unlimited, for nobody": (OK, NOT_FOUND, NO, NOT_FOUND, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "owner key unlimited, for nobody": (OK, NOT_FOUND, NO, NOT_FOUND, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "member's key": (OK, OK, NO, NO, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "member's key for private": (NO, OK, NO, NO, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "stranger's key for private": (NO, NOT_FOUND, NO, NOT_FOUND, NO, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "owner key for private": (NO, OK, NO, OK, NO, NOT_FOUND, OK, NOT_FOUND),
    "admin key for private": (NO, OK, NO, OK, NO, NOT_FOUND, OK, NOT_FOUND),
}


def session(project_ref: str, owner: str = "user:somebody") -> SessionDocument:
    return SessionDocument(id="s1", owner=owner, project_ref=project_ref, created_at=AT, updated_at=AT)


def verdict(rule: Callable[[], object]) -> str:
    try:
        rule()
    except RemoteError as error:
        return error.code.value
    return OK


@pytest.mark.parametrize("who", WHO)
def test_the_table(who: str) -> None:
    principal = WHO[who]
    assert TABLE[who] == (
        verdict(lambda: may_talk(principal, PUBLIC)),
        verdict(lambda: may_talk(principal, PRIVATE)),
        verdict(lambda: may_manage(principal, PUBLIC)),
        verdict(lambda: may_manage(principal, PRIVATE)),
        verdict(lambda: may_administer(principal)),
        verdict(lambda: may_read_session(principal, session("public"), PUBLIC)),
        verdict(lambda: may_read_session(principal, session("private"), PRIVATE)),
        verdict(lambda: may_read_session(principal, session(""), None)),
    )


@pytest.mark.parametrize("missing", [NO_SUCH_AGENT, "There is no agent 'x'."])
@pytest.mark.parametrize("rule", [may_talk, may_manage])
@pytest.mark.parametrize("who", [who for who, row in TABLE.items() if row[1] == NOT_FOUND and WHO[who].role])
def test_what_is_not_there_is_told_as_what_is_not_open(who: str, rule: Callable[..., None], missing: str) -> None:
    """Word for word, or refs could be tried."""
    with pytest.raises(RemoteError) as hidden:
        rule(WHO[who], PRIVATE, missing=missing)
    with pytest.raises(RemoteError) as absent:
        rule(WHO[who], None, missing=missing)
    assert (hidden.value.code, hidden.value.message) == (ErrorCode.NOT_FOUND, missing)
    assert (absent.value.code, absent.value.message) == (ErrorCode.NOT_FOUND, missing)


def test_nor_do_the_anonymous_see_a_difference() -> None:
    for project in (PRIVATE, None):
        with pytest.raises(RemoteError, match=NO_SUCH_AGENT):
            may_talk(WHO["anonymous"], project)


@pytest.mark.parametrize("who", WHO)
def test_nobody_may_do_anything_with_what_is_not_there(who: str) -> None:
    principal = WHO[who]
    assert verdict(lambda: may_talk(principal, None)) == NOT_FOUND
    expected = WHO_ARE_YOU if principal.role is None else NOT_FOUND
    assert verdict(lambda: may_manage(principal, None)) == expected
    assert verdict(lambda: may_read_session(principal, None)) == expected


@pytest.mark.parametrize("who", [who for who, principal in WHO.items() if principal.role])
def test_everybody_reads_their_own_sessions(who: str) -> None:
    """Also without the project, and when it is no longer theirs; a limited key only in its projects."""
    principal = WHO[who]
    for ref in ("public", "private", "", "gone"):
        is_inside = principal.projects is None or ref == "" or ref in principal.projects
        said = verdict(partial(may_read_session, principal, session(ref, principal.owner)))
        assert said == (OK if is_inside else NOT_FOUND)


def test_a_session_without_an_owner_is_nobodys() -> None:
    with pytest.raises(RemoteError, match=NO_SUCH_SESSION):
        may_read_session(Principal("", "anna", role=AccessRole.MEMBER), session("public", owner=""))


def test_another_projects_access_opens_no_session() -> None:
    """The project that is given has to be the session's."""
    with pytest.raises(RemoteError, match=NO_SUCH_SESSION):
        may_read_session(WHO["owner"], session("others"), PUBLIC)


def test_the_session_that_may_be_read_is_given_back() -> None:
    document = session("public")
    assert may_read_session(WHO["admin"], document) is document


@pytest.mark.parametrize(
    ("minutes", "seconds", "left"),
    [(None, 1e9, True), (10.0, 599.9, True), (10.0, 600.0, False), (10.0, 601.0, False), (0.0, 0.0, False)],
)
def test_minutes(minutes: float | None, seconds: float, left: bool) -> None:
    access = attrs.evolve(PUBLIC, minutes_per_month=minutes)
    assert verdict(lambda: check_minutes(access, seconds)) == (OK if left else "quota")
