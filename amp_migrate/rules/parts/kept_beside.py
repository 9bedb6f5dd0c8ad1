"""What stays of the program's own where the branch with Apex's class goes: torch's class, read as if it were written anew."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.output import Output
from amp_migrate.rules.parts import syncbn
from amp_migrate.rules.parts.counterpart import Manual, Native
from amp_migrate.rules.parts.devices import of_first
from amp_migrate.rules.parts.parallel import ASKED_FOR, DDP, DROPPED, only_said
from amp_migrate.rules.parts.parallel_differs import UNUSED, differs, native_calls, waits_in_vain
from amp_migrate.writing.calls import Argument, arguments_of, call_code

OF_ALL_RUNS = frozenset({DDP, *syncbn.NAMES})
FLOAT32 = "; runs without mixed precision, which took Apex's wherever it was installed, take torch's now, too"


def read_kept(
    project: Project, site: Site, decision: Native | Manual, output: Output, beside: Iterable[ast.stmt]
) -> str:
    """What torch's class does otherwise in the branch that stays beside a site, which is read as if it were written anew."""
    module = site.module
    body = [*beside]
    for call, function in (*native_calls(module, body), *native_calls(module, body, of=DDP)):
        at = (module.display, module.statement(call).lineno)
        told, arguments = _as_torchs(project, site, decision, call, output.mended.get(at, {}))
        if module.qualify(call.func) != DDP and [a.node for a in arguments] != arguments_of(call):
            output.edit(module).replace(call, call_code(module, call, function, arguments))
        return told
    return ""


def _as_torchs(
    project: Project, site: Site, decision: Native | Manual, call: ast.Call, codes: Mapping[str, str]
) -> tuple[str, tuple[Argument, ...]]:
    """What a branch of the program's own that wraps in torch's does otherwise than Apex's; its arguments, less Apex's, and
    with those that answer the doubts about it."""
    module = site.module
    dropped = [k.arg for k in call.keywords if k.arg in DROPPED]
    first = [k for k in call.keywords if of_first(module, k)]
    arguments = tuple(
        Argument(a) for a in arguments_of(call) if a not in first and getattr(a, "arg", None) not in DROPPED
    )
    without = f" without {', '.join(d for d in dropped if d)}, which torch does not take" if dropped else ""
    given = [k.arg for k in call.keywords if k.arg is not None]
    if first:
        named = [a for a in _written(decision) if (a.label or "").startswith("device_ids=")]
        instead = f" with {named[0].label} in place of" if named else " without"
        names = " and ".join(f"{k.arg}={module.source(k.value)}" for k in first)
        without += f"{instead} {names}, which is GPU 0 in every process: torch would bring the inputs there"
        arguments += tuple(named)
    vain = site.call is not None and waits_in_vain(project, site, site.call)
    if not dropped and not (vain and _decided(project, site) is not None):
        given.append(UNUSED)  # which the program has run so
    for code in sorted(ASKED_FOR.keys() & set(codes)):
        name, value, why, costs = ASKED_FOR[code]
        given.append(name)
        if not only_said(code, codes):
            arguments += (Argument(None, f"{name}={value}"),)
            without += f", with {name}={value}, since {codes[code] or why}{costs}"
    unpacks = any(k.arg is None for k in call.keywords)
    return (without if unpacks else without + differs(project, module, given)), arguments


def _written(decision: Native | Manual) -> tuple[Argument, ...]:
    """The arguments with which a call would be written."""
    return (decision.arguments or ()) if isinstance(decision, Native) else ()


def of_all_runs(project: Project, site: Site) -> bool:
    """Whether Apex's branch was for runs without mixed precision, too: what it asks for is Apex, and that nothing native was
    chosen, `has_apex and use_amp != "native"`."""
    test = _decided(project, site) if site.name in OF_ALL_RUNS else None
    rest = availability(project, site.module).rest(test) if test is not None else None
    return rest is not None and all(_denies(part) for part in rest)


def _denies(test: ast.expr) -> bool:
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return isinstance(test.ops[0], (ast.NotEq, ast.IsNot))
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _decided(project: Project, site: Site) -> ast.expr | None:
    """The test around a site that asks whether Apex is there, in whose branch it stands."""
    for around, holds, _ in branches_around(site.module, site.node):
        rest = availability(project, site.module).rest(around.test) if holds else [around.test]
        if rest != [around.test]:
            return around.test if rest is not None else None
    return None
