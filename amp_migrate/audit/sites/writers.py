"""Which functions may come to write into weights, or to run networks without gradients, as far as names tell."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import NamedTuple

from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.facts import NOTHING, Facts, learned, outcome
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.program import Program

IN_PLACE = frozenset({"requires_grad_", "detach_", "retain_grad_", "share_memory_"})  # these write no values
SWAPS = frozenset({"average_parameters", "copy_to", "restore", "apply_shadow", "swap_parameters", "swap_swa_sgd"})
TO_VECTOR = "vector_to_parameters"
HOLDING = frozenset({"parameters", "named_parameters", "param_groups", "state_dict"})  # how code comes by weights
GRADLESS = frozenset({"no_grad", "inference_mode", "set_grad_enabled"})


class _Named(NamedTuple):
    """What functions of one name call, and do themselves."""

    called: set[str]
    writes: bool
    gradless: bool


def writers(modules: Iterable[Module]) -> frozenset[str]:
    """The names of functions that may come to write into weights, or to call what does: told apart by nothing but names.
    Empty where nothing writes."""
    return _reaching(modules, lambda named: named.writes)


def gradless(modules: Iterable[Module]) -> frozenset[str]:
    """The names of functions that switch gradients off, or call what does."""
    return _reaching(modules, lambda named: named.gradless)


def _reaching(modules: Iterable[Module], does: Callable[[_Named], bool]) -> frozenset[str]:
    calls: dict[str, set[str]] = {}
    found: set[str] = set()
    for module in modules:
        for name, named in _functions(module).items():
            calls.setdefault(name, set()).update(named.called)
            if does(named):
                found.add(name)
    more = bool(found)
    while more:
        reached = {name for name, called in calls.items() if name not in found and called & found}
        found |= reached
        more = bool(reached)
    return frozenset(found)


@kept  # see `names.py`
def _functions(module: Module) -> dict[str, _Named]:
    """What the functions of a file call by name, and do."""
    known: dict[str, _Named] = {}
    for function in module.functions:
        nodes = syntax.own_nodes(function.node)
        called, writes, without = known.get(function.name, _Named(set(), False, False))
        called |= {syntax.last(n.func) for n in syntax.own(function.node, ast.Call)}
        called |= {syntax.last(d.func if isinstance(d, ast.Call) else d) for d in function.node.decorator_list}
        known[function.name] = _Named(called, writes or may_write(nodes), without or bool(called & GRADLESS))
    return known


def stops_gradients(program: Program, module: Module, expr: ast.expr) -> bool:
    """Whether a context manager or decorator switches gradients off."""
    name = program.dotted(module.scope_of(expr), expr.func if isinstance(expr, ast.Call) else expr) or ""
    if name.rpartition(".")[2] not in GRADLESS or not name.startswith("torch."):
        return False
    given = expr.args[0] if isinstance(expr, ast.Call) and expr.args else None
    wanted = name.endswith("set_grad_enabled")
    return given is None or (isinstance(given, ast.Constant) and bool(given.value) is not wanted)


def without_gradients(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a place stands where gradients are off."""
    function = module.function_around(node)
    around = [i.context_expr for a in module.ancestors(node) if isinstance(a, ast.With) for i in a.items]
    around += function.node.decorator_list if function is not None else []
    return any(stops_gradients(program, module, a) for a in around)


def gradients_off(program: Program, module: Module, node: ast.AST, depth: int = 4) -> bool:
    """Whether gradients are off wherever a place is come to: around it, or around every call of its function in sight."""
    if without_gradients(program, module, node) or _chosen_off(program, module, node):
        return True
    function = module.function_around(node)
    calls = program.callers(function) if function is not None and depth else ()
    return bool(calls) and all(gradients_off(program, m, call, depth - 1) for m, call in calls)


def _chosen_off(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether tests around a place say that gradients are off where they choose that: `with torch.no_grad() if evaluating else
    nullcontext():`."""
    known: Facts | None = NOTHING
    inner = node
    for around in module.ancestors(node):
        if isinstance(around, ast.If) and inner is not around.test and known is not None:
            known = learned(around.test, inner in around.body, known)
        if known is None or isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
        for item in around.items if isinstance(around, ast.With) else ():
            chosen = item.context_expr
            came_out = outcome(chosen.test, known) if isinstance(chosen, ast.IfExp) else None
            if isinstance(chosen, ast.IfExp) and came_out is not None:
                if stops_gradients(program, module, chosen.body if came_out else chosen.orelse):
                    return True
        inner = around
    return False


def may_write(nodes: Iterable[ast.AST]) -> bool:
    """Whether code may write into weights itself, by how it is written."""
    holds = added = False
    for node in nodes:
        if type(node) is ast.Attribute:
            if node.attr == "data" and isinstance(node.ctx, ast.Store):
                return True
            holds = holds or node.attr in HOLDING
        elif type(node) is ast.Call:
            called = syntax.last(node.func)
            if called in SWAPS or called in (TO_VECTOR, "load_state_dict", "step"):
                return True
            if called.endswith("_") and not called.startswith("_") and called not in IN_PLACE:
                added = True
                if ".data" in syntax.text(node.func):
                    return True
        elif type(node) is ast.AugAssign:
            added = True
    return holds and added


def chosen_apart(where: Module, first: ast.AST, module: Module, call: ast.Call) -> bool:
    """Whether two calls run parts of one list that are chosen apart: those frozen, in a loop of theirs, and the rest."""
    one = _chosen(where, first) if isinstance(first, ast.Call) and where is module else None
    other = _chosen(module, call) if one is not None else None
    return one is not None and other is not None and syntax.text(one.iter) != syntax.text(other.iter)


def _chosen(module: Module, call: ast.Call) -> ast.For | None:
    """The loop that chooses by number, or from a part of a list, what a call runs: `self.layer[i](x)`."""
    parts = [n for n in syntax.every(call.func, ast.Subscript) if not isinstance(n.slice, ast.Constant)]
    names = {n.id for p in parts for n in syntax.every(p.slice, ast.Name)}
    names |= {call.func.id} if isinstance(call.func, ast.Name) else set()
    for loop in module.ancestors(call):
        if isinstance(loop, ast.For) and names & {n.id for n in syntax.every(loop.target, ast.Name)}:
            sliced = bool(syntax.every(loop.iter, ast.Slice))
            return loop if parts or sliced else None
    return None
