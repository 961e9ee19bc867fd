"""Exact formulations, written out for the planner."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.relational.exact import materialize_exact

DEMAND = (
    "(To be said exactly, word for word, neither shortened nor reworded nor translated: “{}” "
    "Quote these words in `results` and demand that they are said exactly so.)"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. Greet.\n2. Ask.", "1. Greet.\n2. Ask."),
        ("", ""),
        (
            "1. Say [[exact]]This call is recorded.[[/exact]] first.\n2. Ask.",
            f"1. Say {DEMAND.format('This call is recorded.')} first.\n2. Ask.",
        ),
        ("[[EXACT]] a\nb [[/Exact]]", DEMAND.format("a\nb")),
        ("[[exact]]a[[/exact]][[exact]]b[[/exact]]", DEMAND.format("a") + DEMAND.format("b")),
        ("[[exact]]say {name} [x] \\1[[/exact]]", DEMAND.format("say {name} [x] \\1")),
        ("a [[exact]] [[/exact]]b", "a b"),
        ("[[exact]]never closed", "[[exact]]never closed"),
        ("never opened[[/exact]] [[Exact]]", "never opened[[/exact]] [[Exact]]"),
        ("[[exact]]a [[exact]]b[[/exact]] c[[/exact]]", f"[[exact]]a {DEMAND.format('b')} c[[/exact]]"),
    ],
)
def test_exact_formulations(text: str, expected: str) -> None:
    assert materialize_exact(text) == expected


@given(st.lists(st.sampled_from(["[[exact]]", "[[/exact]]", "[", "]", "a", " "])).map("".join))
def test_every_pair_and_nothing_else_is_written_out(text: str) -> None:
    written = materialize_exact(text)
    if "[[/exact]]" not in text or "[[exact]]" not in text:
        assert written == text
    assert materialize_exact(written.replace("[[", "")) == written.replace("[[", "")
