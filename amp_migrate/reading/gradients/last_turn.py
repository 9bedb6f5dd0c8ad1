"""A loop over the parts of a network whose last turn computes what nothing reads: `for block in self.blocks: h, s = block(h)`.

What only computes that in the last part gets no gradient, in any step.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.definitions import ClassInfo, Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import reached, walk
from amp_migrate.reading.values.analysis import Values

LAYER = re.compile(r"torch\.nn\.(\w*Linear|Conv\w+|Embedding\w*|LSTM|GRU|RNN|\w*Norm\w*|PReLU|MultiheadAttention)")
DEPTH = 3  # networks in networks that a layer is looked for in


def unread_in_last_turn(project: Project, module: Module, model: ast.expr) -> str | None:
    """What is to be told of one such loop in the networks that a model is made of."""
    for network in reached(project.classes_of(module, model), lambda cls: _parts(project, cls)):
        forward = network.methods.get("forward") if "__init__" in network.methods else None
        for loop in forward.node.body if forward is not None else ():
            if forward is not None and isinstance(loop, ast.For) and not _leaves(loop):
                for field, layer in _unread(project, network, forward, loop):
                    return f"{network.name} reads nothing of what self.{layer} of the last of self.{field} gives"
    return None


def _parts(project: Project, network: ClassInfo) -> list[ClassInfo]:
    """The networks of the program that a network makes."""
    init = network.methods.get("__init__")
    calls = [n for n in init.inside if isinstance(n, ast.Call)] if init is not None else []
    found = (project.find_class(network.module, call.func) for call in calls)
    return [cls for cls in found if cls is not None and "forward" in cls.methods]


def _leaves(loop: ast.For) -> bool:
    ends = (ast.Break, ast.Continue, ast.Return, ast.Try)
    return bool(loop.orelse) or any(isinstance(n, ends) for n in walk(loop))


def _unread(project: Project, network: ClassInfo, forward: Function, loop: ast.For) -> Iterator[tuple[str, str]]:
    """The fields whose parts a loop runs, each with a layer of the last of them that gets no gradient."""
    module = network.module
    for field, part in _run_in_turn(loop).items():
        uses = [n for n in walk(loop) if ast.unparse(n) == part and isinstance(getattr(n, "ctx", None), ast.Load)]
        uses = [n for n in uses if isinstance(n, ast.expr) and not _never(project, network, n)]
        call = module.parents.get(uses[0]) if len(uses) == 1 else None
        stmt = module.parents.get(call) if isinstance(call, ast.Call) and call.func is uses[0] else None
        if not isinstance(stmt, ast.Assign) or stmt.value is not call or not isinstance(stmt.targets[0], ast.Tuple):
            continue
        names = [e.id if isinstance(e, ast.Name) else "" for e in stmt.targets[0].elts]
        unread = {i for i, name in enumerate(names) if name and not _is_read(project, network, forward, stmt, name)}
        if unread and len(unread) < len(names) and _is_run_here_alone(project, network, field, loop):
            kinds = list(_held(project, network, field))
            layers = [_waits(project, kind, unread, len(names)) if kind is not None else None for kind in kinds]
            if layers and None not in layers:
                yield field, str(layers[0])


def _run_in_turn(loop: ast.For) -> dict[str, str]:
    """The fields that a loop goes through, with how it names the part of a turn."""
    if not isinstance(loop.iter, ast.Call):
        pairs = [(loop.target, loop.iter)]
    elif ast.unparse(loop.iter.func) == "enumerate" and isinstance(loop.target, ast.Tuple) and loop.iter.args:
        pairs = [(loop.target.elts[-1], loop.iter.args[0])]
    elif ast.unparse(loop.iter.func) == "zip" and isinstance(loop.target, ast.Tuple):
        pairs = [*zip(loop.target.elts, loop.iter.args, strict=False)]
    else:
        return {}
    own = [(t, i) for t, i in pairs if isinstance(t, ast.Name) and isinstance(i, ast.Attribute)]
    return {i.attr: t.id for t, i in own if ast.unparse(i.value) == "self"}


def _never(project: Project, network: ClassInfo, node: ast.AST) -> bool:
    """Whether a node stands in a branch that no object comes to, as its fields are made: `if self.both: ... else: ...`."""
    around = branches_around(network.module, node, network.module.scopes)
    return any(isinstance(b.test, ast.If) and _truth(project, network, b.test.test) is (not b.holds) for b in around)


def _truth(project: Project, network: ClassInfo, test: ast.expr) -> bool | None:
    """How a test comes out; of a field, by the one value that `__init__` gives it."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _truth(project, network, test.operand)
        return None if inner is None else not inner
    value: ast.expr = test
    if isinstance(test, ast.Attribute) and ast.unparse(test.value) == "self":
        nodes = (n for cls in (*network.ancestry(), *network.descendants()) for n in walk(cls.node))
        found = dict.fromkeys(n for n in nodes if isinstance(n, ast.Attribute) and n.attr == test.attr)
        stores = [n for n in found if isinstance(n.ctx, ast.Store)]
        stmt = network.module.parents.get(stores[0]) if len(stores) == 1 else None
        if not isinstance(stmt, ast.Assign):
            return None
        value = stmt.value
    if isinstance(value, ast.IfExp):
        asked = _truth(project, network, value.test)
        return None if asked is None else _truth(project, network, value.body if asked else value.orelse)
    return project.once(Values).truth(network.module, value)


def _is_read(project: Project, network: ClassInfo, forward: Function, given: ast.Assign, name: str) -> bool:
    """Whether something may read, after its last turn, what a loop gave a name; above that in the loop the next turn reads it."""
    for node in walk(forward.node):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            below = node.lineno > (given.end_lineno or given.lineno)
            if below and not _never(project, network, node):
                return True
    return any(isinstance(n, (ast.Lambda, ast.FunctionDef)) for s in forward.node.body for n in walk(s))


def _is_run_here_alone(project: Project, network: ClassInfo, field: str, loop: ast.For) -> bool:
    """Whether the parts of a field are asked for in one loop, and made in `__init__`."""
    if any(re.search(rf"(?<!\bself)\.{re.escape(field)}\b", module.text) for module in project.modules):
        return False
    own = {*walk(loop), *walk(network.methods["__init__"].node)}
    return not any(
        isinstance(n, ast.Attribute) and n.attr == field and n not in own
        for cls in (*network.ancestry(), *network.descendants())
        for n in walk(cls.node)
    )


def _held(project: Project, network: ClassInfo, field: str) -> Iterator[ClassInfo | None]:
    """The classes of what is put into a list of parts; None for what is not seen."""
    module = network.module
    for node in walk(network.methods["__init__"].node):
        if not isinstance(node, ast.Attribute) or ast.unparse(node) != f"self.{field}":
            continue
        parent = module.parents.get(node)
        around = module.parents.get(parent) if parent is not None else None
        made: list[ast.expr] = [node]
        if isinstance(parent, ast.Assign) and isinstance(parent.value, ast.Call):
            made = [*parent.value.args]
            made = [e for m in made for e in (m.elts if isinstance(m, ast.List) else [getattr(m, "elt", m)])]
        elif isinstance(parent, ast.Attribute) and parent.attr == "append" and isinstance(around, ast.Call):
            made = around.args
        yield from (project.find_class(module, m.func) if isinstance(m, ast.Call) else None for m in made)


def _waits(project: Project, kind: ClassInfo, unread: set[int], count: int) -> str | None:
    """A layer of a network that only computes entries of the tuple it returns which nothing reads."""
    forward, init = kind.methods.get("forward"), kind.methods.get("__init__")
    returns = [n.value for n in forward.inside if isinstance(n, ast.Return)] if forward is not None else []
    value = returns[0] if len(returns) == 1 else None
    if forward is None or init is None or not isinstance(value, ast.Tuple) or len(value.elts) != count:
        return None
    feeding = {n for i in unread for n in walk(value.elts[i])}  # nodes that come to nothing else
    loads = [n for n in walk(forward.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    for stmt in sorted((n for n in forward.inside if isinstance(n, ast.Assign)), key=lambda s: -s.lineno):
        target = stmt.targets[0]
        if isinstance(target, ast.Name) and all(n in feeding for n in loads if n.id == target.id):
            feeding |= {*walk(stmt.value)}
    fields = [n for n in walk(kind.node) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "self"]
    for made in (s for s in init.node.body if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call)):
        name = ast.unparse(made.targets[0]).removeprefix("self.")
        uses = [n for n in fields if n.attr == name and isinstance(n.ctx, ast.Load) and n not in walk(init.node)]
        if uses and all(n in feeding for n in uses) and _learns(project, kind.module, made.value, 0):
            return name
    return None


def _learns(project: Project, module: Module, made: ast.expr, depth: int) -> bool:
    """Whether what a call makes has weights: a layer of torch's, or a network of the program with one."""
    if not isinstance(made, ast.Call) or depth > DEPTH:
        return False
    if LAYER.fullmatch(module.qualify(made.func) or ""):
        return True
    cls = project.find_class(module, made.func)
    init = cls.methods.get("__init__") if cls is not None else None
    calls = [n for n in init.inside if isinstance(n, ast.Call)] if init is not None else []
    return cls is not None and any(_learns(project, cls.module, call, depth + 1) for call in calls)
