"""Imports go one way: the table of the rooms, held on the source."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BASE = (
    "engine.elements",
    "engine.errors",
    "engine.config",
    "engine.boundary",
    "engine.interfaces",
    "engine.registry",
    "engine.principal",
    "engine.observation",
    "engine.secrets",
    "engine.llm_log",
    "engine.outside",
    "engine.calling",
    "engine.timing",
    "engine.memory",
    "engine.recording",
    "engine.texts",
    "engine.store.documents",
    "engine.store.contract",
)

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "engine.errors": (),
    "engine.elements": ("engine.errors",),
    "engine.config": ("engine.errors",),
    "engine.store.documents": ("engine.config",),
    "engine.store.contract": ("engine.store.documents",),
    "engine.principal": ("engine.errors",),
    "engine.secrets": ("engine.errors",),
    "engine.observation": ("engine.store.documents",),
    "engine.boundary": (),
    "engine.interfaces": (
        "engine.boundary",
        "engine.elements",
        "engine.errors",
        "engine.config",
        "engine.principal",
        "engine.observation",
        "engine.memory",
        "engine.store.documents",
    ),
    "engine.recording": (),
    "engine.texts": (),
    "engine.memory": ("engine.elements", "engine.store.documents"),
    "engine.outside": ("engine.boundary", "engine.config", "engine.elements", "engine.interfaces"),
    "engine.llm_log": (
        "engine.boundary",
        "engine.elements",
        "engine.errors",
        "engine.interfaces",
        "engine.store.documents",
    ),
    "engine.calling": ("engine.elements", "engine.interfaces", "engine.protocol.tool_arguments"),
    "engine.timing": ("engine.interfaces", "engine.observation"),
    "engine.registry": ("engine.errors",),
    "engine.protocol": (*BASE, "engine.protocol"),
    "engine.pipeline": (*BASE, "engine.protocol", "engine.pipeline"),
    "engine.store": (*BASE, "engine.store"),
    "engine.capsule": (
        *BASE,
        "engine.protocol",
        "engine.pipeline",
        "engine.session",
        "engine.store",
        "engine.testing",
        "engine.capsule",
    ),
    "engine.observe": (*BASE, "engine.protocol", "engine.observe"),
    "engine.identity": (*BASE, "engine.store.locate", "engine.identity"),
    "engine.session": (*BASE, "engine.protocol", "engine.pipeline", "engine.identity.permissions", "engine.session"),
    "engine.testing": (*BASE, "engine.protocol", "engine.pipeline", "engine.session", "engine.store", "engine.testing"),
    "engine.transport": (
        *BASE,
        "engine.protocol",
        "engine.pipeline",
        "engine.session",
        "engine.identity",
        "engine.observe",
        "engine.capsule.codec",
        "engine.capsule.file",
        "engine.capsule.shelf",
        "engine.capsule.timeline",
        "engine.transport",
    ),
    "engine.talk": (*BASE, "engine.protocol"),
    "engine.simulate": (
        *BASE,
        "engine.protocol",
        "engine.pipeline",
        "engine.session",
        "engine.composition",
        "engine.testing.schedule",
        "engine.simulate",
    ),
    "engine.composition": ("engine",),
    "engine.outbound": (*BASE, "engine.protocol"),
    "engine.deliveries": (*BASE, "engine.protocol", "engine.outbound"),
    "engine.loading": (*BASE, "engine.session"),
    "engine.cli": ("engine",),
    "engine": ("engine",),
    "providers": (*BASE, "engine.protocol", "providers"),
    "agents": (*BASE, "engine.protocol", "engine.deliveries", "agents"),
}
"""By room: the rooms it may import. The longest matching name counts."""

NEVER_IN_A_SESSION = {"uuid", "random", "time", "secrets", "os"}
"""Modules that bring in what no replay could repeat (a session gets its clock, ids and randomness by an interface)."""
SESSION_ROOMS = ("engine.protocol", "engine.pipeline", "engine.session", "engine.interfaces", "engine.elements")

VENDORS = {"openai", "openai_live", "azure_openai", "gemini_live", "elevenlabs", "hume", "internal"}


@cache
def modules() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for package in ("engine", "providers", "agents"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(path: Path) -> set[str]:
    """The modules a file imports; `from engine import registry` counts as engine.registry when that is a module."""
    known = set(modules())
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                names.add(full if full in known else node.module)
    return names


def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


def room_of(module: str) -> str:
    return max((room for room in MAY_IMPORT if within(module, (room,))), key=len)


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_go_one_way(module: str) -> None:
    allowed = MAY_IMPORT[room_of(module)]
    ours = {name for name in imports(modules()[module]) if within(name, ("engine", "providers", "agents", "tests"))}
    wrong = {name for name in ours if not within(name, allowed) or (name == "engine" and "engine" not in allowed)}
    assert not wrong, f"{module} may not import {', '.join(sorted(wrong))}"


@pytest.mark.parametrize("module", sorted(name for name in modules() if within(name, ("providers",))))
def test_vendors_do_not_know_each_other(module: str) -> None:
    own = module.split(".")[1] if "." in module else ""
    for name in imports(modules()[module]):
        vendor = name.split(".")[1] if name.startswith("providers.") else ""
        related = own == "azure_openai" and vendor == "openai"
        assert vendor not in VENDORS - {own} or related, f"{module} imports {name}"


@pytest.mark.parametrize("module", sorted(name for name in modules() if within(name, SESSION_ROOMS)))
def test_nothing_unrepeatable_enters_a_session(module: str) -> None:
    tree = ast.parse(modules()[module].read_text())
    used = {name.split(".")[0] for name in imports(modules()[module])}
    allowed = {"random"} if module == "engine.interfaces" else set[str]()  # the type of the seeded source it is given
    assert not used & (NEVER_IN_A_SESSION - allowed)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            assert (
                node.attr not in {"now", "utcnow", "today"}
                or not isinstance(node.value, ast.Name)
                or (node.value.id not in {"datetime", "date"})
            ), f"{module} reads the wall clock"


def test_the_rules_await_nothing() -> None:
    for module, path in modules().items():
        if within(module, ("engine.protocol",)):
            names = {name.split(".")[0] for name in imports(path)}
            assert not names & {"trio", "socket", "logging", "time", "threading", "asyncio"}, module
            assert not any(
                isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(ast.parse(path.read_text()))
            )
