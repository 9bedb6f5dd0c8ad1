"""A parameter that only told a function of Apex goes, with what its calls hand over: `train(..., fp16=args.fp16)`.

Where all that read it was the choice between `scale_loss` and a plain backward, the scaler that takes its place knows.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.scale_loss
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import Function, unpacks
from amp_migrate.reading.program.logic import pure
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.signatures import alike, all_calls, is_public
from amp_migrate.rules.handover.docstrings import forget
from amp_migrate.rules.migration import Output
from amp_migrate.writing.dropped import Item, dropped
from amp_migrate.writing.edits import Edits

CODES = (
    Code(
        "AMP125",
        "A parameter that only told of Apex goes",
        "def",
        apex="A flag decides between scale_loss and a plain backward, wherever a loss is computed.",
        native="A GradScaler that is not enabled does nothing, so that nothing asks for the flag any more.",
        why="A parameter that nothing reads misleads whoever calls the function. It goes where every call is in sight.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler",),
    ),
)

Call = tuple[Module, ast.Call]


def apply(project: Project, targets: Collection[Module], output: Output) -> None:
    """Take them out, also of functions that only handed one on; runs when all other edits are made."""
    gone: dict[Function, list[str]] = defaultdict(list)
    edited = [f for f in project.functions.values() if f.module in targets and output.edits.get(f.module)]
    functions = [f for f in edited if not output.edits[f.module].gone(f.node)]
    found = True
    while found:
        found = False
        for function in functions:
            idle = unread(function, output.edits[function.module])
            names = [p.arg for p in idle if p.arg not in gone[function]]
            calls = _calls(project, targets, function, output) if names else None
            if not calls:
                continue
            for name in names:
                if output.wants_at(function.module, function.node, "AMP125") and _drop(
                    project, function, [*gone[function], name], calls, output
                ):
                    gone[function].append(name)
                    found = True
    for function, names in gone.items():
        if names:
            message = f"{function.name} takes {' and '.join(names)} no more: nothing reads {'it' if len(names) == 1 else 'them'} now"
            output.done(function.module, function.node, "AMP125", "def", message)
            for name in names:
                forget(function, output.edit(function.module), name)


def unread(function: Function, edits: Edits) -> Iterator[ast.arg]:
    """The parameters whose every read went, and which no emitted code reads."""
    module, scope = function.module, function.scope
    asked = {*function.positional, *(k.arg for k in function.node.args.kwonlyargs)}
    for node in (p for p in function.parameters if p.arg in asked):
        reads = scope.reads(node.arg)
        if not reads or not all(edits.gone(n) for n in reads) or scope.bindings.get(node.arg, [node]) != [node]:
            continue
        if not edits.mentions(node.arg, within=function.node) and "locals" not in module.source(function.node):
            yield node


def _calls(project: Project, targets: Collection[Module], function: Function, output: Output) -> list[Call] | None:
    """The calls of a function, if all are in sight and can be written again."""
    if function.node.decorator_list or alike(project, function) != [function]:
        return None
    method = function.cls is not None and not function.name.startswith("_")
    if (method or is_public(project, function)) and not _asks_for_more(function, output.edits[function.module]):
        return None
    calls = all_calls(project, function)
    known = {call.func for _, call in calls}
    for module, call in calls:
        edits = output.edits.get(module)
        if module not in targets or not edits or edits.gone(call) or call in edits.expressions or unpacks(call):
            return None
        if project.resolved.get(call) != [function] or project.partial_of(module, call):
            return None
    if any(use not in known for module in project.modules for use in _uses(project, module, function)):
        return None
    return calls


def _asks_for_more(function: Function, edits: Edits) -> bool:
    """Whether a function takes another parameter now that every call has to give."""
    nodes = [*function.parameters, *function.defaults.values()]
    added = [code for n in nodes for _, code in edits.insertions.get(n, ()) if isinstance(code, str)]
    return any("=" not in code for code in added)


def _uses(project: Project, module: Module, function: Function) -> Iterator[ast.AST]:
    """Where a file may speak of a function by its name, but for calls that run another one, or hand nothing over."""
    if function.name not in module.text:
        return
    for node in (*module.loads.get(function.name, ()), *module.named.get(function.name, ())):
        parent = module.parents.get(node)
        if isinstance(node, ast.Constant):
            by_name = ast.unparse(parent.func) if isinstance(parent, ast.Call) else ""
            if isinstance(parent, ast.Subscript) or by_name.endswith(("getattr", "attrgetter", "methodcaller")):
                yield node
        elif not (isinstance(parent, ast.Call) and parent.func is node):
            if not isinstance(node, ast.Name) or module.scope_of(node).lookup(function.name) is function.scope.parent:
                yield node
        elif function in project.resolved.get(parent, ()) or (
            not project.resolved.get(parent) and (parent.args or parent.keywords)
        ):
            yield node


def _drop(project: Project, function: Function, names: list[str], calls: list[Call], output: Output) -> bool:
    """Take parameters out of a signature and of all calls, if that can be done in each: not the last behind a bare `*`."""
    named = {k.arg for k in function.node.args.kwonlyargs}
    if named and named <= set(names) and function.node.args.vararg is None:
        return False
    items: list[Item] = [(p, function.defaults.get(p.arg, p)) for p in function.parameters]
    going: list[ast.AST] = [p for p in function.parameters if p.arg in names]
    ways = [dropped(output.edit(function.module), items, going)]
    for module, call in calls:
        given = [value for name, value in project.arguments(function, call) if name in names]
        if not all(pure(value) for value in given):
            return False
        items = [*((a, a) for a in call.args), *((k, k.value) for k in call.keywords)]
        ways.append(dropped(output.edit(module), items, [node for node, last in items if last in given]))
    possible = [way for way in ways if way is not None]
    if len(possible) < len(ways):
        return False
    for way in possible:
        way.carry_out()
    return True
