"""What is said of functions that take a switch (AMP220): which calls hand it over, and what those run that leave it out.

No codes of its own: `scaler_passing.py` has AMP220.
"""

from __future__ import annotations

from collections.abc import Collection

from amp_migrate.findings import Review
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.signatures import is_public
from amp_migrate.rules.handover.scaler_passing import is_offered
from amp_migrate.rules.migration import Output


def finish(project: Project, output: Output) -> None:
    """Say of every function that takes a switch which calls leave it out: known once all units are migrated."""
    for function, name in output.switches.items():
        left, known = _left_to(project, output, function, name)
        inner = known and not (is_offered(function) or is_public(project, function))
        review: Review = "as-is" if inner else "look"
        message = f"{function.name} takes {name}{left}"
        output.note(function.module, function.node, "AMP220", "torch.autocast", message, review, about=function.name)


def _left_to(project: Project, output: Output, function: Function, name: str) -> tuple[str, bool]:
    """What is said of the calls that leave a switch out: what they run is float32, but for what stays with Apex. And whether
    nothing is open: what each runs is what it was."""
    calls = project.calls.get(function, [])
    without = {(module, call.lineno) for module, call in calls if (call, name) not in output.given}
    if not calls:
        return ": nothing in sight calls it; without it, what it runs is float32", False
    if not without:
        unknown = _of_unknown(project, function, name)
        but = f", but for {_named(unknown)}, where the object is not known: without it, what it runs is float32"
        return f", which every call in sight hands over{but if unknown else ''}", not unknown
    apex = {place for place in without if _set_up_stays(project, output, place[0])}
    said = []
    passing = {(module, call.lineno) for module, call in calls if call in output.passing} & without - apex
    if without - apex - passing:  # what another program's calls are is not known of each
        said.append(f"as in {_named(without - apex)}, what it runs is float32; hand it over where Apex had been set up")
    elif passing:
        said.append(
            f"as in {_named(passing)}, where no run comes that sets Apex up, what it runs is float32, as it was"
        )
    if apex:
        said.append(f"as in {_named(apex)}, what is left with Apex there runs as it did")
    return f": left out, {', and '.join(said)}", passing == without


def _of_unknown(project: Project, function: Function, name: str) -> set[tuple[Module, int]]:
    """The calls of a method of that name of objects of which nothing is known, that do not hand it over."""
    found = ((m, c) for m in project.modules if function.cls for c, _ in m.method_calls.get(function.name, ()))
    return {(m, c.lineno) for m, c in found if not project.resolved.get(c) and all(k.arg != name for k in c.keywords)}


def _named(places: Collection[tuple[Module, int]]) -> str:
    found = sorted((module.display, line) for module, line in places)
    return ", ".join(f"{path}:{line}" for path, line in found[:3]) + (", ..." if len(found) > 3 else "")


def _set_up_stays(project: Project, output: Output, module: Module) -> bool:
    """Whether a set-up of Apex's is left in the programs of a file."""
    near = in_process(project, [module])
    found = (f for m in near for f in output.findings.get(m, ()))
    return any(f.status == "manual" and f.construct in ("amp.initialize", "amp.init") for f in found)
