"""Where a model runs on one rank only: in a branch of a test for the rank, itself, by way of functions, or in the methods of an
object that keeps it."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.review import Review

_ALONE = re.compile(r"[\[({](-1, 0|0, -1)[\])}]")  # no process group, or its first rank
RANK = re.compile(
    r"\b_?rank\b|local_rank|global_rank|get_rank\(|is_main|is_master|is_rank_?(0|zero)|main_process|master_process"
)


def on_one_rank(review: Review, module: Module, call: ast.Call) -> str | None:
    """Where the model that a call wraps runs on one rank only: in a branch of a test for the rank, itself or by way of
    functions, which may ask as well. Torch broadcasts buffers before it, in eval mode too, and the other ranks are not there
    to take part."""
    if any(k.arg in ("broadcast_buffers", "forward_sync_buffers", None) for k in call.keywords):
        return None
    stmt = module.statement(call)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or stmt.value is not call:
        return None
    if any(syntax.text(a.value) == syntax.text(stmt.targets[0]) for a in module.stored_attributes("broadcast_buffers")):
        return None
    function = module.function_around(call)
    body = function.node.body if function is not None else module.tree.body
    after = [s for s in body if s.lineno >= stmt.lineno or (s.end_lineno or 0) > stmt.lineno]
    run = _alone(review, module, after, syntax.text(stmt.targets[0]), _process_names(review, module), stmt.lineno)
    return f"{run[0].path}:{review.line(*run)}" if run is not None else None


def _alone(
    review: Review,
    module: Module,
    body: list[ast.stmt],
    model: str,
    names: frozenset[str],
    line: int = 0,
    depth: int = 0,
) -> tuple[Module, ast.Call] | None:
    """The call that runs a model where a test for the rank stands around it, from some line of a body on."""
    for node in (n for stmt in body for n in syntax.walk(stmt)):
        if isinstance(node, ast.If) and node.lineno >= line and _asks_for_rank_0(node.test, names):
            if not any(_runs(review, module, s, model) for s in node.orelse):
                run = next((r for s in node.body if (r := _runs(review, module, s, model)) is not None), None)
                if run is not None:
                    return module, run
        if isinstance(node, ast.Call) and node.lineno >= line and depth < 2:
            for callee in review.after.callees(module, node):
                given = _given(review, callee, node)
                inner = next((name for name, value in given.items() if syntax.text(value) == model), None)
                bodies = [] if inner is None else [(callee, inner), *_keeping(review, callee, inner)]
                for function, name in bodies:
                    found = _alone(review, function.module, function.node.body, name, names, 0, depth + 1)
                    if found is not None:
                        return found
    return None


def _given(review: Review, callee: Function, call: ast.Call) -> dict[str, ast.expr]:
    """What a call is seen to fill the parameters of a function with, whatever `*args` and `**kwargs` add."""
    seen = list(itertools.takewhile(lambda a: not isinstance(a, ast.Starred), call.args))
    written = ast.Call(call.func, seen, [k for k in call.keywords if k.arg is not None])
    return review.after.arguments(callee, written, bound=review.after.fills_self(callee, call)) or {}


def _keeping(review: Review, maker: Function, model: str) -> Iterator[tuple[Function, str]]:
    """The methods of an object whose constructor keeps a model that it is given, each with how that is written there."""
    if maker.owner is None or maker.name != "__init__":
        return
    kept = {
        target.attr
        for stmt in syntax.every(maker.node, ast.Assign)
        for target in stmt.targets
        if isinstance(target, ast.Attribute) and syntax.text(stmt.value) == model
    }
    for cls in review.after.family(maker.owner):
        for method in (m for methods in cls.methods.values() for m in methods if m is not maker and m.parameters):
            yield from ((method, f"{method.parameters[0].arg}.{field}") for field in sorted(kept))


def _process_names(review: Review, module: Module) -> frozenset[str]:
    """What the number of a process is called: what a file picks its device or its rank by."""
    found: set[str] = set()
    for call in module.calls():
        name = review.after.dotted(module.scope_of(call), call.func) or ""
        given = call.args[:1] if name == "torch.cuda.set_device" else []
        for keyword in call.keywords:
            if keyword.arg == "device_ids" and isinstance(keyword.value, ast.List):
                given = [*given, *keyword.value.elts[:1]]
            elif keyword.arg == "rank" and name == "torch.distributed.init_process_group":
                given = [*given, keyword.value]
        found.update(syntax.text(g).rpartition(".")[2] for g in given if isinstance(g, (ast.Name, ast.Attribute)))
    return frozenset(found)


def _asks_for_rank_0(test: ast.expr, names: frozenset[str]) -> bool:
    """`rank == 0`, `local_rank in [-1, 0]`, `is_main_process()`, and these beside more; `local_rank != -1` and
    `not distributed or rank == 0` do not say."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_asks_for_rank_0(value, names) for value in test.values)
    if isinstance(test, ast.Compare):
        asked = syntax.text(test.comparators[0])
        one = isinstance(test.ops[0], ast.Eq) and asked == "0"
        if not one and not (isinstance(test.ops[0], ast.In) and _ALONE.fullmatch(asked)):
            return False
        text = syntax.text(test.left)
        return bool(RANK.search(text)) or text.rpartition(".")[2] in names
    return isinstance(test, ast.Call) and bool(RANK.search(syntax.text(test)))


def _runs(review: Review, module: Module, stmt: ast.AST, model: str, depth: int = 0) -> ast.Call | None:
    """The call below a node that runs a model, by whatever name it has in the functions called."""
    for call in syntax.every(stmt, ast.Call):
        if syntax.text(call.func) == model:
            return call
        for callee in review.after.callees(module, call) if depth < 3 else ():
            given = _given(review, callee, call)
            inner = next((name for name, value in given.items() if syntax.text(value) == model), None)
            if inner is None:
                own = {p.arg for p in callee.parameters}
                head = model.partition(".")[0]
                same_object = head == "self" and isinstance(call.func, ast.Attribute)
                if head in own and not same_object:
                    continue
                shared = callee.scope.binder(head) is module.scope_of(call).binder(head)
                inner = model if shared or (same_object and syntax.text(call.func).startswith("self.")) else None
            if inner is not None and any(_runs(review, callee.module, s, inner, depth + 1) for s in callee.node.body):
                return call
    return None
