"""Cut a part out of an ONNX model file: the nodes between some tensors and others, with their weights.

An ONNX file is a protocol buffer, and a cut only picks some of its records and declares new inputs and outputs. So the file is
read as what it is, tags and lengths, and no package that understands all of ONNX is needed. Graphs nested in attributes (If,
Loop) are not looked into.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import attrs

FLOAT: Final = 1
INT64: Final = 7
"""Element types (TensorProto.DataType)."""

# Field numbers of onnx.proto: ModelProto, GraphProto, NodeProto, TensorProto, and ValueInfoProto with the types inside it.
_IR_VERSION, _GRAPH, _OPSETS = 1, 7, 8
_NODE, _GRAPH_NAME, _WEIGHT, _INPUT, _OUTPUT = 1, 2, 5, 11, 12
_NODE_INPUT, _NODE_OUTPUT = 1, 2
_WEIGHT_NAME = 8
_VALUE_NAME, _VALUE_TYPE, _TENSOR_TYPE, _ELEMENT_TYPE = 1, 2, 1, 1

_VARINT, _LENGTH = 0, 2


@attrs.frozen
class Tensor:
    """An input or output of the part; its shape is left open."""

    name: str
    element: int


@attrs.frozen
class _Node:
    record: memoryview
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def cut(model: bytes, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bytes:
    """The model that computes `outputs` from `inputs`; the same bytes for the same arguments.

    Raises:
        ValueError: this is no ONNX model, or it cannot compute the outputs from these inputs.
    """
    nodes: list[_Node] = []
    weights: dict[str, memoryview] = {}
    head = bytearray()
    for field, record in _records(memoryview(model)):
        if field == _GRAPH:
            for kind, inner in _records(record):
                if kind == _NODE:
                    nodes.append(_Node(inner, _strings(inner, _NODE_INPUT), _strings(inner, _NODE_OUTPUT)))
                elif kind == _WEIGHT:
                    weights["".join(_strings(inner, _WEIGHT_NAME))] = inner
        elif field == _IR_VERSION:
            head += _varint(_IR_VERSION << 3 | _VARINT) + record
        elif field == _OPSETS:
            head += _bytes(_OPSETS, record)
    kept = _needed(nodes, {*weights, *(tensor.name for tensor in inputs)}, [tensor.name for tensor in outputs])
    used = {name for node in kept for name in node.inputs}

    graph = bytearray()
    for node in kept:
        graph += _bytes(_NODE, node.record)
    graph += _bytes(_GRAPH_NAME, b"part")
    for name, record in weights.items():
        if name in used:
            graph += _bytes(_WEIGHT, record)
    for tensor in inputs:
        graph += _bytes(_INPUT, _value(tensor))
    for tensor in outputs:
        graph += _bytes(_OUTPUT, _value(tensor))
    return bytes(head + _bytes(_GRAPH, graph))


def _needed(nodes: Sequence[_Node], given: Collection[str], wanted: Sequence[str]) -> list[_Node]:
    """The nodes on the way from what is given to what is wanted, in their order."""
    makers = {name: index for index, node in enumerate(nodes) for name in node.outputs}
    kept: set[int] = set()
    open_names = list(wanted)
    while open_names:
        name = open_names.pop()
        if not name or name in given:  # an optional input left out has no name
            continue
        if name not in makers:
            raise ValueError(f"the model has no tensor {name!r} before its inputs")
        if makers[name] not in kept:
            kept.add(makers[name])
            open_names += nodes[makers[name]].inputs
    return [nodes[index] for index in sorted(kept)]


# --- the wire format of protocol buffers -----------------------------------------------------------------------------


def _records(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Each field's number and content; of a number, its encoding."""
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        start = at
        match tag & 7:
            case 0:  # a number
                _, at = _read_varint(message, at)
            case 1:  # eight bytes
                at += 8
            case 2:  # a length and that many bytes
                length, start = _read_varint(message, at)
                at = start + length
            case 5:  # four bytes
                at += 4
            case _:
                raise ValueError("this is no ONNX model")
        if at > len(message):
            raise ValueError("this is no ONNX model, or it was cut off")
        yield tag >> 3, message[start:at]


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("this is no ONNX model, or it was cut off")


def _strings(record: memoryview, field: int) -> tuple[str, ...]:
    return tuple(str(content, "utf-8") for number, content in _records(record) if number == field)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes(field: int, content: bytes | bytearray | memoryview) -> bytes:
    return b"".join((_varint(field << 3 | _LENGTH), _varint(len(content)), content))


def _value(tensor: Tensor) -> bytes:
    element = _varint(_ELEMENT_TYPE << 3 | _VARINT) + _varint(tensor.element)
    return _bytes(_VALUE_NAME, tensor.name.encode()) + _bytes(_VALUE_TYPE, _bytes(_TENSOR_TYPE, element))
