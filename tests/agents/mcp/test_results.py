"""Names that models can use."""

from hypothesis import given
from hypothesis import strategies as st

from agents.mcp.results import cut, named
from agents.tools import NAME


def test_names_are_kept_where_they_can_be() -> None:
    tools = [
        ("a", "one"),
        ("a", "two"),
        ("b", "two"),
        ("b c", "dotted.name"),
        ("b", "finish"),
        ("b", ""),
        ("b", "x" * 70),
    ]
    assert named(tools, ["finish"]) == [
        "one",
        "a_two",
        "b_two",
        "b_c_dotted_name",
        "b_finish",
        "",
        "b_" + "x" * 62,
    ]
    assert named([("a", "b_c"), ("a_b", "c"), ("d", "c"), ("x", "a_b_c")], []) == ["b_c", "", "d_c", "a_b_c"]


@given(
    st.lists(st.tuples(st.text("ab_. é", max_size=3), st.text("ab_. é", max_size=3)), max_size=8, unique=True),
    st.lists(st.text("ab_", max_size=3), max_size=3),
)
def test_no_two_tools_have_the_same_name(tools: list[tuple[str, str]], reserved: list[str]) -> None:
    found = [name for name in named(tools, reserved) if name]
    assert len(set(found)) == len(found)
    assert not set(found) & set(reserved)
    assert all(NAME.fullmatch(name) for name in found)


def test_what_is_cut_says_so() -> None:
    assert cut("12345", 5) == "12345"
    assert cut("123456", 5) == "12345\n[cut here: there are 1 more characters]"
