"""Prometheus's text format, version 0.0.4.

Written here, as it is forty lines: the official client takes 4.6 ms for 800 lines, in which no session hears or speaks, and this
0.7. Its parser is the referee in the tests.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from engine.observe.families import Family, Kind, Labels, Totals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TYPES = {Kind.COUNTER: "counter", Kind.GAUGE: "gauge", Kind.PEAK: "gauge", Kind.HISTOGRAM: "histogram"}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def expose(totals: Totals) -> bytes:
    """All families, in their order, each with its series in the order of their labels."""
    lines: list[str] = []
    for family in totals.families:
        lines += (f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {_TYPES[family.kind]}")
        lines += _series(family, totals.series[family.short_name])
    lines.append("")
    return "\n".join(lines).encode()


def _series(family: Family, series: Mapping[Labels, Sequence[float]]) -> Iterator[str]:
    names = [label.name for label in family.labels]
    bounds = [*(f"{bound:g}" for bound in family.buckets), "+Inf"]
    for labels, numbers in sorted(series.items()):
        pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, labels, strict=True)]
        given = "{" + ",".join(pairs) + "}" if pairs else ""
        if family.kind is not Kind.HISTOGRAM:
            yield f"{family.name}{given} {_number(numbers[0])}"
            continue
        start = f"{family.name}_bucket{{" + "".join(f"{pair}," for pair in pairs)
        count = 0.0
        for bound, count in zip(bounds, accumulate(numbers[1:]), strict=True):
            yield f'{start}le="{bound}"}} {count:.0f}'
        yield f"{family.name}_sum{given} {_number(numbers[0])}"
        yield f"{family.name}_count{given} {count:.0f}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() else repr(value)
