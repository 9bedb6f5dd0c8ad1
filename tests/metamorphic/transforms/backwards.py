"""Scaling and backward in other words or another place."""

from __future__ import annotations

import ast

from tests.metamorphic.program import FUNCTION, Project, Reading, expression, statements


def _simple(reading: Reading) -> list[tuple[ast.With, ast.Call, str]]:
    """The scaled backwards that do nothing else: statement, call of scale_loss, name of the scaled loss."""
    found = []
    for node in reading.scaled:
        call, name = node.items[0].context_expr, node.items[0].optional_vars
        assert isinstance(call, ast.Call)
        if len(node.items) == 1 and isinstance(name, ast.Name) and ast.unparse(node.body[0]) == f"{name.id}.backward()":
            if len(node.body) == 1 and len(call.args) == 2:
                found.append((node, call, name.id))
    return found


def _module_level(reading: Reading, call: ast.Call) -> bool:
    """Whether what is called (`amp.scale_loss`) is bound once and at module level, by an import."""
    root = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name):
        return False
    bound = [a for s in reading.all(ast.Import) + reading.all(ast.ImportFrom) for a in s.names]
    imported = [a for a in bound if (a.asname or a.name.split(".")[0]) == root.id]
    stored = [n for n in reading.all(ast.Name) if n.id == root.id and isinstance(n.ctx, ast.Store)]
    arguments = [n for n in reading.all(ast.arg) if n.arg == root.id]
    places = {
        type(reading.scope(s))
        for s in reading.all(ast.Import) + reading.all(ast.ImportFrom)
        for a in s.names
        if a in imported
    }
    return bool(imported) and not stored and not arguments and places == {ast.Module}


def _definition(name: str, call: ast.Call, indent: str = "", receiver: str = "") -> str:
    options = "".join(f", {ast.unparse(k)}" for k in call.keywords if isinstance(k.value, ast.Constant))
    return (
        f"{indent}def {name}({receiver}loss, optimizer):\n"
        f"{indent}    with {ast.unparse(call.func)}(loss, optimizer{options}) as scaled:\n"
        f"{indent}        scaled.backward()\n"
    )


def _same_for_all(found: list[tuple[ast.With, ast.Call, str]]) -> bool:
    """Whether one helper serves all: no options but constants, and the same ones."""
    options = {tuple(ast.unparse(k) for k in call.keywords) for _, call, _ in found}
    constant = all(isinstance(k.value, ast.Constant) for _, call, _ in found for k in call.keywords)
    return len(options) == 1 and constant


def helper(reading: Reading) -> Project | None:
    """`backpropagate(loss, optimizer)` at module level."""
    found = _simple(reading)
    if not found or not _same_for_all(found) or not all(_module_level(reading, call) for _, call, _ in found):
        return None
    for statement, call, _ in found:
        arguments = ", ".join(map(ast.unparse, call.args))
        reading.replace(statement, *statements(f"backpropagate({arguments})"))
    reading.define(*statements(_definition("backpropagate", found[0][1])))
    return reading.project()


def static_method(reading: Reading) -> Project | None:
    """`Backpropagation().backpropagate(loss, optimizer)`, a method of a class that holds nothing."""
    found = _simple(reading)
    if not found or not _same_for_all(found) or not all(_module_level(reading, call) for _, call, _ in found):
        return None
    for statement, call, _ in found:
        arguments = ", ".join(map(ast.unparse, call.args))
        reading.replace(statement, *statements(f"Backpropagation().backpropagate({arguments})"))
    reading.define(
        *statements("class Backpropagation:\n" + _definition("backpropagate", found[0][1], "    ", "self, "))
    )
    return reading.project()


def nested_helper(reading: Reading) -> Project | None:
    """A function of the training function itself, before its loop."""
    found = _simple(reading)
    done: dict[tuple[ast.stmt, str], str] = {}
    for statement, call, _ in found:
        start = reading.start(statement)
        options = ast.dump(ast.Tuple([k.value for k in call.keywords], ast.Load()))
        if any(not isinstance(k.value, ast.Constant) for k in call.keywords):
            return None
        if start is statement:
            return None
        if (start, options) not in done:
            done[start, options] = reading.fresh("backpropagate")
            reading.insert(start, *statements(_definition(done[start, options], call)))
        arguments = ", ".join(map(ast.unparse, call.args))
        reading.replace(statement, *statements(f"{done[start, options]}({arguments})"))
    return reading.project() if found else None


def step_too(reading: Reading) -> Project | None:
    """Backward and the step after it in one helper: `optimise(loss, optimizer)`."""
    changed = False
    for statement, call, _ in _simple(reading):
        block = reading.block(statement)
        after = block[block.index(statement) + 1 :][:1]
        optimizer = ast.unparse(call.args[1])
        if (
            call.keywords
            or not after
            or ast.unparse(after[0]) != f"{optimizer}.step()"
            or not _module_level(reading, call)
        ):
            continue
        if not changed:
            reading.define(*statements(_definition("optimise", call) + "    optimizer.step()\n"))
        changed = True
        reading.replace(statement, *statements(f"optimise({ast.unparse(call.args[0])}, {optimizer})"))
        block.remove(after[0])
    return reading.project() if changed else None


def inverted(reading: Reading) -> Project | None:
    """`if not amp: loss.backward() else: with amp.scale_loss(...)`."""
    changed = False
    for node in reading.all(ast.If):
        if node.orelse and not isinstance(node.orelse[0], ast.If) and any(s in node.body for s in reading.scaled):
            node.test, node.body, node.orelse = ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body
            changed = True
    return reading.project() if changed else None


def loss_renamed(reading: Reading) -> Project | None:
    """The loss gets another name just before it is scaled."""
    for statement in reading.scaled:
        call = statement.items[0].context_expr
        assert isinstance(call, ast.Call)
        if not call.args:
            return None
        name = reading.fresh("objective")
        reading.insert(statement, *statements(f"{name} = {ast.unparse(call.args[0])}"))
        reading.swap(call.args[0], expression(name))
    return reading.project() if reading.scaled else None


def scaled_renamed(reading: Reading) -> Project | None:
    """The scaled loss gets another name before backward."""
    found = _simple(reading)
    for statement, _, name in found:
        statement.body = statements(f"alias_of_scaled = {name}\nalias_of_scaled.backward()")
    return reading.project() if found else None


def backward_as_value(reading: Reading) -> Project | None:
    """`go = scaled_loss.backward; go()`."""
    found = _simple(reading)
    for statement, _, name in found:
        statement.body = statements(f"go = {name}.backward\ngo()")
    return reading.project() if found else None


def autograd_backward(reading: Reading) -> Project | None:
    """`torch.autograd.backward(scaled_loss)`."""
    found = _simple(reading)
    torch = next((a.asname or a.name for s in reading.all(ast.Import) for a in s.names if a.name == "torch"), None)
    if torch is None:
        return None
    for statement, _, name in found:
        statement.body = statements(f"{torch}.autograd.backward({name})")
    return reading.project() if found else None


def keywords(reading: Reading) -> Project | None:
    """`amp.scale_loss(loss=loss, optimizers=optimizer)`."""
    for statement in reading.scaled:
        call = statement.items[0].context_expr
        assert isinstance(call, ast.Call)
        named = [ast.keyword(n, v) for n, v in zip(("loss", "optimizers"), call.args, strict=False)]
        call.args, call.keywords = [], [*named, *call.keywords]
    return reading.project() if reading.scaled and "handle" not in reading.fixture.name else None


def loss_in_helper(reading: Reading) -> Project | None:
    """Forward and loss in a function of the module that takes all it needs."""
    changed = False
    for statement in reading.scaled:
        call = statement.items[0].context_expr
        assert isinstance(call, ast.Call)
        block, loss = reading.block(statement), ast.unparse(call.args[0]) if call.args else ""
        if any(isinstance(above, ast.If) for above in reading.above(statement)):
            outer = next(above for above in reading.above(statement) if isinstance(above, ast.If))
            block, place = reading.block(outer), reading.block(outer).index(outer)
        else:
            place = block.index(statement)
        made = next(
            (s for s in reversed(block[:place]) if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == loss),
            None,
        )
        if made is None or len(made.targets) != 1 or not isinstance(made.value, ast.Call) or _binds(made.value):
            continue
        free = sorted({n.id for n in ast.walk(made.value) if isinstance(n, ast.Name)} - _globals(reading))
        name = reading.fresh("compute_loss")
        body = f"def {name}({', '.join(free)}):\n    return {ast.unparse(made.value)}\n"
        made.value = expression(f"{name}({', '.join(free)})")
        reading.define(*statements(body))
        changed = True
    return reading.project() if changed else None


def _binds(value: ast.expr) -> bool:
    return any(isinstance(n, (*FUNCTION, ast.comprehension, ast.NamedExpr)) for n in ast.walk(value)) or any(
        isinstance(n, ast.Name) and n.id == "super" for n in ast.walk(value)
    )


def _globals(reading: Reading) -> set[str]:
    """Names that imports and definitions of the module bind, and builtins: no argument needs to hand these on."""
    bound = {s.name for s in reading.tree.body if isinstance(s, (ast.FunctionDef, ast.ClassDef))}
    for statement in reading.tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            bound |= {a.asname or a.name.split(".")[0] for a in statement.names}
    return bound | {"len", "range", "float", "int", "sum", "list", "tuple"}


TRANSFORMS = {
    "backward in a helper": helper,
    "backward in a method": static_method,
    "backward in a nested helper": nested_helper,
    "backward and step in a helper": step_too,
    "branches swapped": inverted,
    "loss renamed": loss_renamed,
    "scaled loss renamed": scaled_renamed,
    "backward as a value": backward_as_value,
    "autograd.backward": autograd_backward,
    "scale_loss by keyword": keywords,
    "forward and loss in a helper": loss_in_helper,
}
