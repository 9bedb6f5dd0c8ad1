"""The statements that cast a function's inputs."""

from __future__ import annotations

from collections.abc import Mapping

from amp_migrate.reading.values.tensors import Kind

WIDTH = 88  # where one line becomes three


def cast_lines(kinds: Mapping[str, Kind], method: str, torch: str) -> list[str]:
    """`x = x.float()` for every name, guarded where a name may hold something else; `method` casts one tensor."""
    lines: list[str] = []
    sure = [n for n, kind in kinds.items() if kind == "float"]
    if sure:
        values = ", ".join(f"{n}.{method}()" for n in sure)
        if len(sure) > 4:
            values = f"(t.{method}() for t in ({', '.join(sure)}))"
        lines.append(f"{', '.join(sure)} = {values}")
    unsure = [n for n, kind in kinds.items() if kind in ("tensor", "unknown")]
    loose = any(kinds[n] == "unknown" for n in unsure)
    if len(unsure) == 1:
        lines.append(f"{unsure[0]} = {guarded(unsure[0], method, torch, loose=loose)}")
    elif unsure:
        names = ", ".join(unsure)
        each = f"{guarded('t', method, torch, loose=loose)} for t in ({names})"
        line = f"{names} = ({each})"
        lines.append(line if len(line) <= WIDTH else f"{names} = (\n    {each}\n)")
    lines += [
        f"{n} = [{guarded('t', method, torch, loose=True)} for t in {n}]" for n, kind in kinds.items() if kind == "list"
    ]
    return lines


def guarded(name: str, method: str, torch: str, *, loose: bool) -> str:
    """A cast of floating point tensors that leaves anything else alone; `loose`: the name may hold no tensor at all."""
    test = f"{torch}.is_tensor({name}) and {name}.is_floating_point()" if loose else f"{name}.is_floating_point()"
    return f"{name}.{method}() if {test} else {name}"
