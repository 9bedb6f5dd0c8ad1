"""The loop over batches in other words."""

from __future__ import annotations

import ast

from tests.metamorphic.program import FUNCTION, Project, Reading, is_optimizer, statements


def _batches(reading: Reading) -> list[ast.For]:
    """The innermost `for` around each step or scaled backward."""
    found = []
    for mark in [*reading.scaled, *reading.steps]:
        for above in reading.above(mark):
            if isinstance(above, (*FUNCTION, ast.ClassDef)):
                break
            if isinstance(above, ast.For):
                if above not in found and not above.orelse:
                    found.append(above)
                break
    return found


def while_loop(reading: Reading) -> Project | None:
    """An iterator, `while True`, `next` and StopIteration."""
    found = _batches(reading)
    for loop in found:
        name = reading.fresh("batches_left")
        setup, again = statements(f"{name} = iter({ast.unparse(loop.iter)})\nwhile True:\n    pass")
        assert isinstance(again, ast.While)
        fetch = statements(f"try:\n    {ast.unparse(loop.target)} = next({name})\nexcept StopIteration:\n    break")
        again.body = [*fetch, *loop.body]
        reading.replace(loop, setup, again)
    return reading.project() if found else None


def in_try(reading: Reading) -> Project | None:
    """The loop in `try: ... finally:`."""
    found = _batches(reading)
    for loop in found:
        (guard,) = statements("try:\n    pass\nfinally:\n    pass")
        assert isinstance(guard, ast.Try)
        block = reading.block(loop)
        block[block.index(loop)] = guard
        guard.body = [loop]
    return reading.project() if found else None


def generator(reading: Reading) -> Project | None:
    """Batches come from a generator function."""
    found = _batches(reading)
    for loop in found:
        loop.iter = ast.Call(ast.Name("hand_out", ast.Load()), [loop.iter], [])
    if not found:
        return None
    reading.define(*statements("def hand_out(batches):\n    for batch in batches:\n        yield batch\n"))
    return reading.project()


def ensemble(reading: Reading) -> Project | None:
    """`for optimizer in [optimizer]:` around the loop over batches."""
    changed = False
    for loop in _batches(reading):
        stored = {
            ast.unparse(n)
            for n in ast.walk(loop)
            if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store)
        }
        used = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and is_optimizer(n)} - stored
        steps = [s for s in ast.walk(loop) if isinstance(s, ast.Expr) and s in reading.steps]
        if not steps or not used or any(isinstance(n, ast.Nonlocal) for n in ast.walk(loop)):
            continue
        name = sorted(used)
        target = ", ".join(name)
        source = f"zip({', '.join(f'[{n}]' for n in name)})"
        if len(name) == 1:
            source = f"[{name[0]}]"
        (outer,) = statements(f"for {target} in {source}:\n    pass")
        assert isinstance(outer, ast.For)
        block = reading.block(loop)
        block[block.index(loop)] = outer
        outer.body = [loop]
        changed = True
    return reading.project() if changed else None


def inner_ensemble(reading: Reading) -> Project | None:
    """`for optimizer in [optimizer]:` around what is done with each batch."""
    changed = False
    for loop in _batches(reading):
        stored = {
            ast.unparse(n)
            for n in ast.walk(loop)
            if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store)
        }
        used = sorted({n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and is_optimizer(n)} - stored)
        leaves = any(isinstance(n, (ast.Break, ast.Continue)) for n in ast.walk(loop))
        if len(used) != 1 or leaves or not any(s in reading.steps for s in ast.walk(loop)):
            continue
        (inner,) = statements(f"for {used[0]} in ({used[0]},):\n    pass")
        assert isinstance(inner, ast.For)
        inner.body, loop.body = loop.body, [inner]
        changed = True
    return reading.project() if changed else None


def body_in_function(reading: Reading) -> Project | None:
    """What is done with a batch in a nested function, called in the loop; only where it leaves nothing behind but sums."""
    changed = False
    for loop in _batches(reading):
        if any(isinstance(n, (ast.Break, ast.Continue, ast.Return, ast.Yield)) for n in ast.walk(loop)):
            continue
        outer = next(n for n in reading.above(loop) if isinstance(n, (*FUNCTION, ast.ClassDef, ast.Module)))
        if not isinstance(outer, ast.FunctionDef) or any(
            isinstance(n, (ast.Nonlocal, ast.Global)) for n in ast.walk(loop)
        ):
            continue
        stored = {
            n.id for s in loop.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        targets = [n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)]
        outside = {
            n.id
            for n in ast.walk(outer)
            if isinstance(n, ast.Name) and not any(a is loop for a in (n, *reading.above(n)))
        } | {n.arg for n in ast.walk(outer.args) if isinstance(n, ast.arg)}
        shared = sorted((stored & outside) - set(targets))
        name = reading.fresh("one_batch")
        (made,) = statements(f"def {name}({', '.join(dict.fromkeys(targets))}):\n    pass")
        assert isinstance(made, ast.FunctionDef)
        head: list[ast.stmt] = [ast.Nonlocal(shared)] if shared else []
        bound_before = _bound_before(outer, loop)
        if not set(shared) <= bound_before or any(t in outside for t in targets):
            continue
        made.body = [*head, *loop.body]
        loop.body = statements(f"{name}({', '.join(dict.fromkeys(targets))})")
        start = reading.start(loop)
        reading.insert(start, made)
        changed = True
    return reading.project() if changed else None


def _bound_before(function: ast.FunctionDef, loop: ast.For) -> set[str]:
    """Names that are local to a function."""
    inside = set(ast.walk(loop))
    stored = {
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n not in inside
    }
    return stored | {n.arg for n in ast.walk(function.args) if isinstance(n, ast.arg)}


TRANSFORMS = {
    "while and next": while_loop,
    "loop in try": in_try,
    "batches from a generator": generator,
    "ensemble around the loop": ensemble,
    "ensemble in the loop": inner_ensemble,
    "batch in a nested function": body_in_function,
}
