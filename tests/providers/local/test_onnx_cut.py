"""A part of an ONNX model: made-up files, as small as they can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.local.onnx_cut import FLOAT, INT64, Tensor, cut


def field(number: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    length = len(data)
    head = bytes([length]) if length < 0x80 else bytes([length & 0x7F | 0x80, length >> 7])
    return bytes([number << 3 | 2]) + head + data


def node(inputs: list[str], output: str) -> bytes:
    return field(1, b"".join(field(1, name) for name in inputs) + field(2, output) + field(4, "Add"))


def weight(name: str) -> bytes:
    return field(5, field(8, name) + field(9, bytes(200)))


MODEL = (
    b"\x08\x09"  # IR version 9
    + field(2, "a producer")
    + field(
        7,
        node(["in", "w1"], "a") + node(["a", "w2"], "b") + node(["b", "", "a"], "out") + weight("w1") + weight("w2"),
    )
    + field(8, b"\x10\x14")
)


def test_only_what_is_needed_is_kept() -> None:
    front = cut(MODEL, [Tensor("in", INT64)], [Tensor("a", FLOAT)])
    assert b"w1" in front
    assert b"w2" not in front
    assert b"out" not in front
    back = cut(MODEL, [Tensor("a", FLOAT)], [Tensor("out", FLOAT)])
    assert b"w1" not in back
    assert b"w2" in back
    assert back.startswith(b"\x08\x09" + field(8, b"\x10\x14"))
    assert b"a producer" not in back


def test_a_cut_can_be_cut_again() -> None:
    once = cut(MODEL, [Tensor("in", INT64)], [Tensor("out", FLOAT)])
    assert cut(once, [Tensor("in", INT64)], [Tensor("a", FLOAT)]) == cut(
        MODEL, [Tensor("in", INT64)], [Tensor("a", FLOAT)]
    )


def test_what_the_inputs_do_not_lead_to_is_named() -> None:
    with pytest.raises(ValueError, match="no tensor 'in'"):
        cut(MODEL, [Tensor("other", FLOAT)], [Tensor("a", FLOAT)])
    with pytest.raises(ValueError, match="no tensor 'nothing'"):
        cut(MODEL, [Tensor("in", FLOAT)], [Tensor("nothing", FLOAT)])


@pytest.mark.parametrize("broken", [MODEL[:-3], MODEL[:40], b"\xff" * 12, b"\x0b"])
def test_a_broken_file_is_refused(broken: bytes) -> None:
    with pytest.raises(ValueError, match=r"ONNX|tensor"):
        cut(broken, [Tensor("in", INT64)], [Tensor("out", FLOAT)])


@given(st.binary(max_size=60))
def test_rubbish_is_refused_and_nothing_else_happens(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"ONNX|tensor|codec"):
        cut(data, [Tensor("in", INT64)], [Tensor("out", FLOAT)])
