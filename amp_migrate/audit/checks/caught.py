"""What a step raises and the program survives does not leave the scaler between `unscale_` and `update`, and what a
backward raises so does not lead to a step without gradients.

Followed: `try` with handlers that end neither the program nor the loop, `contextlib.suppress` and context managers of the
program that swallow, around a step in its function and in those that call it; a loop outside of them comes back. Only what
optimizers raise themselves counts: RuntimeError (out of memory), and classes above it. Not proved: handlers that end the
program by a call of its own, decorators.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.paths.flow import Graph
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review
from amp_migrate.audit.ways.within import tests_around
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP234",
        title="an exception that the program survives leaves out the scaler's update",
        construct="optimizer.step",
        apex="Unscales as scale_loss ends: an exception in the step that the program catches leaves nothing behind.",
        native="Call `update` also where the step raises: `try: scaler.step(optimizer)`, `finally: scaler.update()`.",
        why="Without it the scaler takes the optimizer for unscaled: the next `unscale_` raises, and where none is called the "
        "next step is taken with gradients that are still scaled.",
        links=("https://docs.pytorch.org/docs/stable/notes/amp_examples.html",),
    ),
    Code(
        code="AMP236",
        title="a step may come without gradients, since an exception of the backward is survived",
        construct="optimizer.step",
        apex="Steps with whatever gradients there are: with none, the step does nothing.",
        native="Step where the backward ran, or leave the step out in the handler (`continue`).",
        why="A backward that runs out of memory may leave no gradient at all, and scaler.step raises then: No inf checks were "
        "recorded for this optimizer.",
        links=("https://docs.pytorch.org/docs/stable/notes/amp_examples.html",),
    ),
)
# What an optimizer out of memory raises, and what else catches it.
CAUGHT = frozenset("RuntimeError Exception BaseException OutOfMemoryError".split())
DEPTH = 6
MOST = 200  # functions that one turn of a loop is followed through


def check(review: Review) -> Iterable[Doubt]:
    for change in review.changes.values():
        module = change.after
        if "scaler" not in module.read.lower() or "step" not in module.words:
            continue
        yield from _without_gradients(review, module)
        told: set[ast.stmt] = set()
        for call, holder in module.method_calls("step"):
            scaler = syntax.text(holder)
            if not call.args or not change.changed(call) or "scaler" not in scaler.lower():
                continue
            survived = _survived(review.after, module, call, f"{scaler}.update", frozenset())
            if survived is not None and survived[1] not in told:
                told.add(survived[1])
                where, stmt = survived
                message = (
                    f"a RuntimeError that {syntax.text(call.args[0])}.step raises (out of memory) is caught at "
                    f"{where.path}:{review.line(where, stmt)}, and the program goes on without {scaler}.update(): the next "
                    "unscale_ raises, or the next step takes scaled gradients. Update in a `finally` around the step"
                )
                yield review.doubt(module, call, "AMP234", "optimizer.step", message, "look")


def _without_gradients(review: Review, module: Module) -> Iterator[Doubt]:
    """Steps that come next where what a backward raised is caught."""
    for call, scaled in module.method_calls("backward"):
        if not isinstance(scaled, ast.Call) or not isinstance(scaled.func, ast.Attribute):
            continue
        scaler = syntax.text(scaled.func.value)
        if scaled.func.attr != "scale" or "scaler" not in scaler.lower():
            continue
        child: ast.AST = module.statement(call)
        for at in module.ancestors(child):
            if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                break
            if isinstance(at, (ast.Try, ast.With, ast.AsyncWith)) and child in at.body:
                if "on" in _ways(review.after, module, at):
                    found = _step_after(review.after, module, at, _told(at), 0)
                    if found is not None:
                        where, step = found
                        message = (
                            f"a RuntimeError of this backward (out of memory) is caught at line {review.line(module, at)}, "
                            f"and the program goes on to {syntax.text(step)} ({where.path}:{review.line(where, step)}): where "
                            "no gradient was there yet that raises (No inf checks were recorded), and Apex's step did nothing"
                        )
                        yield review.doubt(module, call, "AMP236", "optimizer.step", message, "review")
                    break
            child = at


def _told(stmt: ast.Try | ast.With | ast.AsyncWith) -> set[str]:
    """What is assigned as a backward runs or fails: tests of it tell which."""
    own = [*stmt.body, *(s for h in stmt.handlers for s in h.body)] if isinstance(stmt, ast.Try) else stmt.body
    nodes = [n for s in own for n in syntax.walk(s)]
    return {syntax.text(n) for n in nodes if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store)}


def _step_after(
    program: Program, module: Module, stmt: ast.stmt, told: set[str], depth: int
) -> tuple[Module, ast.Call] | None:
    """The scaler's step that is reached behind a statement, in its function or behind the calls of that."""
    child: ast.AST = stmt
    for at in (stmt, *module.ancestors(stmt)):
        if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            break
        if isinstance(at, ast.stmt):
            for later in module.following(at):
                for node in syntax.walk(later):
                    if _is_step(node) and not _asked(module, node, at, told):
                        return module, node  # type: ignore[return-value]
                if isinstance(later, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
                    return None
        if isinstance(at, (ast.For, ast.AsyncFor, ast.While)):
            return None
        child = at
    function = module.function_around(child)
    for other, call in program.callers(function) if function is not None and depth < DEPTH else ():
        if (found := _step_after(program, other, other.statement(call), told, depth + 1)) is not None:
            return found
    return None


def _is_step(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) != 1:
        return False
    return node.func.attr == "step" and "scaler" in syntax.text(node.func.value).lower()


def _asked(module: Module, node: ast.AST, around: ast.stmt, told: set[str]) -> bool:
    """Whether a test around a step reads what tells whether the backward ran."""
    for at in module.ancestors(node):
        if at is around or isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(at, ast.If) and any(syntax.text(n) in told for n in syntax.walk(at.test)):
            return True
    return False


def _survived(
    program: Program,
    module: Module,
    node: ast.AST,
    update: str,
    seen: frozenset[Function],
    caught: ast.stmt | None = None,
) -> tuple[Module, ast.stmt] | None:
    """The statement that catches what a node raises, where a loop outside of it comes back to the node."""
    child = module.statement(node)
    skip = 0  # loops that the handler leaves
    where = module
    for at in module.ancestors(child):
        if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            break
        if caught is None and isinstance(at, (ast.Try, ast.With, ast.AsyncWith)) and child in at.body:
            if _updates(program, module, at, update):
                return None
            ways = _ways(program, module, at)
            if ways and "on" in ways and _updated_after(module, at, update):
                ways -= {"on"}
            if ways:
                caught, where = at, module
                skip = 0 if ways & {"on", "continue"} else 1 if "break" in ways else 1000
        elif caught is not None and isinstance(at, (ast.For, ast.AsyncFor, ast.While)):
            if not skip:
                return (where, caught) if not _made_anew(program, module, at, update) else None
            skip -= 1
        child = at if isinstance(at, ast.stmt) else child
    function = module.function_around(node)
    if function is None or function in seen or len(seen) > DEPTH:
        return None
    for other, call in [*program.callers(function), *_handed_on(program, function)]:
        if _kept_from(program, module, node, function, call):
            continue
        found = _survived(program, other, call, update, seen | {function}, caught)
        if found is not None:
            return (where, caught) if caught is not None else found
    return None


def _made_anew(program: Program, module: Module, loop: ast.For | ast.AsyncFor | ast.While, update: str) -> bool:
    """Whether each turn of a loop makes a scaler of that name, itself or in what it calls."""
    kept = update.split(".")[-2]
    seen = set[Function]()
    todo: list[tuple[Module, ast.AST]] = [(module, stmt) for stmt in loop.body]
    while todo and len(seen) < MOST:
        where, node = todo.pop()
        for part in syntax.walk(node):
            if isinstance(part, ast.Assign) and isinstance(part.value, ast.Call):
                made = syntax.text(part.value.func).rpartition(".")[2] == "GradScaler"
                if made and any(syntax.text(t).rpartition(".")[2] == kept for t in part.targets):
                    return True
            for function in program.callees(where, part) if isinstance(part, ast.Call) else ():
                if function not in seen:
                    seen.add(function)
                    todo.append((function.module, function.node))
    return False


def _kept_from(program: Program, module: Module, node: ast.AST, function: Function, call: ast.Call) -> bool:
    """Whether what a call gives a function keeps it from a place in it: `run(batch, update=False)`."""
    given = program.arguments(function, call) or {}
    for test, came in tests_around(module, node):
        value = given.get(test.id) if isinstance(test, ast.Name) else None
        once = isinstance(test, ast.Name) and len(function.scope.bindings.get(test.id, ())) == 1
        if once and isinstance(value, ast.Constant) and bool(value.value) is not came:
            return True
    return False


def _handed_on(program: Program, function: Function) -> Iterator[tuple[Module, ast.Call]]:
    """The calls of a function by those that it is handed to: `attempt(step, batch)`, where `attempt(f, *args)` calls f."""
    for module, mention in program.mentions(function):
        taking = module.parents.get(mention)
        if not isinstance(taking, ast.Call) or mention not in taking.args:
            continue
        for callee in program.callees(module, taking):
            names = [p.arg for p in callee.parameters][1 if callee.bound else 0 :]
            place = taking.args.index(mention)
            if place < len(names):
                for call in callee.module.calls_named.get(names[place], ()):
                    if isinstance(call.func, ast.Name) and callee.module.function_around(call) is callee:
                        yield callee.module, call


def _updates(program: Program, module: Module, stmt: ast.Try | ast.With | ast.AsyncWith, update: str) -> bool:
    """Whether what catches an exception updates the scaler itself."""
    last = update.rpartition(".")[2]
    if not isinstance(stmt, ast.Try):
        return any(
            isinstance(n, ast.Attribute) and n.attr == last
            for item in stmt.items
            for f in _managers(program, module, item.context_expr)
            for n in syntax.walk(f.node)
        )
    kept = [s for h in stmt.handlers for s in h.body] + stmt.finalbody
    return any(isinstance(n, ast.Attribute) and syntax.text(n) == update for s in kept for n in syntax.walk(s))


def _updated_after(module: Module, stmt: ast.stmt, update: str) -> bool:
    """Whether the scaler is updated behind a statement, in its block."""
    later = module.following(stmt)
    return any(isinstance(n, ast.Attribute) and syntax.text(n) == update for s in later for n in syntax.walk(s))


def _ways(program: Program, module: Module, stmt: ast.Try | ast.With | ast.AsyncWith) -> set[str]:
    """How control leaves what catches a RuntimeError: "on", "continue", "break", "return"; empty where it is not caught."""
    if isinstance(stmt, ast.Try):
        for handler in stmt.handlers:
            if _catches(handler.type):
                return set(_leaves(handler.body))
        return set()
    for item in stmt.items:
        expr = item.context_expr
        if isinstance(expr, ast.Call) and syntax.text(expr.func).rpartition(".")[2] == "suppress":
            if any(_catches(a) for a in expr.args):
                return {"on"}
        for manager in _managers(program, module, expr):
            if _swallows(manager):
                return {"on"}
    return set()


def _catches(types: ast.expr | None) -> bool:
    """Whether a handler takes what an optimizer raises."""
    among = types.elts if isinstance(types, ast.Tuple) else [types]
    return types is None or any(t is not None and syntax.text(t).rpartition(".")[2] in CAUGHT for t in among)


def _leaves(body: Sequence[ast.stmt]) -> Iterator[str]:
    """How control leaves a handler, other than by an exception."""
    graph = Graph(body)
    reached, todo = {graph.entry}, [graph.entry]
    while todo:
        node = todo.pop()
        if isinstance(node.stmt, ast.Return):
            yield "return"
            continue
        if isinstance(node.stmt, (ast.Break, ast.Continue)) and not node.after:
            yield "break" if isinstance(node.stmt, ast.Break) else "continue"
            continue
        for edge in node.after:
            if edge.to is graph.exit:
                yield "on"
            elif edge.to not in reached:
                reached.add(edge.to)
                todo.append(edge.to)


def _managers(program: Program, module: Module, expr: ast.expr) -> list[Function]:
    """The generator of the program that a context manager is made from."""
    if not isinstance(expr, ast.Call):
        return []
    found = program.definitions(module.scope_of(expr), expr.func, guess=False)
    return [f for f in found if isinstance(f, Function)]


def _swallows(manager: Function) -> bool:
    """Whether a generator goes on where what stands in its `with` raises a RuntimeError."""
    for node in syntax.walk(manager.node):
        if isinstance(node, ast.Try) and any(isinstance(n, ast.Yield) for s in node.body for n in syntax.walk(s)):
            for handler in node.handlers:
                if _catches(handler.type):
                    return bool(set(_leaves(handler.body)))
    return False
