"""Where a mapping goes that an entry is put into, by parameters, attributes, returns and variables, and who asks it for one."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk

MAPPINGS = ("dict", "OrderedDict", "collections.OrderedDict", "copy.copy", "copy.deepcopy", "copy", "deepcopy")
ASKING = ("get", "pop", "setdefault")
# What hands on the pairs that are in it.
PASSING = (
    *(ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.GeneratorExp),
    *(ast.BinOp, ast.IfExp, ast.BoolOp, ast.Starred),
)
Key = ast.Constant | ast.keyword


def key_name(key: Key) -> str:
    return str(key.arg if isinstance(key, ast.keyword) else key.value)


def held_by(project: Project, keys: Iterable[tuple[Module, Key]]) -> set[Slot]:
    """Where the mappings may be that have these keys, and copies of them."""
    found = (slot for module, key in keys for slot in of_saved(project, module, key))
    held, copied = project.reaches(project.origins(found)), set[ast.AST]()
    while more := [
        (module, node) for module, node in used(project, held) if node not in copied and _copied(module, node)
    ]:
        copied.update(node for _, node in more)
        held |= project.reaches(slot for module, node in more for slot in _goes(project, module, node, set()))
    return held


def used(project: Project, held: set[Slot]) -> Iterator[tuple[Module, ast.Name]]:
    """The reads of the variables that may be one of the mappings."""
    for slot in held:
        module = slot.holder.module if isinstance(slot.holder, Scope) else None
        if module is not None:
            reads = (n for n in module.loads.get(slot.name, ()) if isinstance(n, ast.Name))
            yield from ((module, node) for node in reads if project.slot(module, node) == slot)


def _copied(module: Module, node: ast.AST) -> bool:
    """Whether a mapping is read for another one with the same entries: `state.copy()`, `{**state}`, `state | more`,
    `made(**state)`."""
    parent = module.parents.get(node)
    method = isinstance(parent, ast.Attribute) and parent.attr == "copy"
    made = isinstance(parent, ast.Call) and ast.unparse(parent.func) in MAPPINGS and node in parent.args
    unpacked = isinstance(parent, ast.keyword) and parent.arg is None
    return method or made or unpacked or _taken_in(parent, node) or isinstance(parent, ast.BinOp)


def asked(project: Project, name: str, held: set[Slot]) -> Iterator[tuple[Module, ast.Constant, set[Slot]]]:
    """The places where one of the mappings is asked for a key, with where that one is kept."""
    for module, key in named(project, name) if held else ():
        kept = {slot for holder in holders(module, key) for slot in slots(project, module, holder)}
        if kept & held:
            yield module, key, kept


def asked_of_parameters(project: Project, name: str) -> Iterator[tuple[Module, ast.Constant, Function]]:
    """The places where a key is asked of what a function is given by callers that are not seen."""
    for module, key in named(project, name):
        function = project.function_of(module, key)
        given = [h for h in holders(module, key) if isinstance(h, ast.Name)] if function is not None else []
        if function is not None and any(function.parameter(h.id) is not None for h in given):
            slots_given = {Slot(function.scope, h.id) for h in given}
            if set(project.origins(slots_given)) <= slots_given:
                yield module, key, function


def put(project: Project, name: str) -> Iterator[tuple[Module, ast.Constant]]:
    """The places where something is put under a key."""
    for module, key in named(project, name):
        parent = module.parents.get(key)
        if isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store):
            stmt = module.parents.get(parent)
            if parent.slice is key and not (isinstance(stmt, ast.Assign) and nothing(stmt.value)):
                yield module, key
        elif isinstance(parent, ast.Dict):
            if any(k is key and not nothing(v) for k, v in zip(parent.keys, parent.values, strict=True)):
                yield module, key


def named(project: Project, name: str) -> Iterator[tuple[Module, ast.Constant]]:
    """The places where a program writes a key."""
    for module in project.modules:
        for key in module.nodes if name in module.text else ():
            if isinstance(key, ast.Constant) and key.value == name:
                yield module, key


def of_saved(project: Project, module: Module, key: Key) -> Iterator[Slot]:
    """Where the mapping is that has a key: a dictionary that is written out, or one that gets another entry."""
    parent = module.parents.get(key)
    if isinstance(parent, ast.Subscript):
        yield from slots(project, module, parent.value)
    elif isinstance(parent, ast.Call) and project.resolved.get(parent):  # one of `**things` of a function
        kwargs = ((f.scope, f.node.args.kwarg) for f in project.resolved[parent])
        yield from (Slot(scope, kwarg.arg) for scope, kwarg in kwargs if kwarg is not None)
    elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        yield from slots(project, module, parent.func.value)  # state.update(amp=...)
    elif isinstance(parent, ast.Tuple) and (mapping := of_pairs(module, parent)) is not None:
        yield from slots(project, module, mapping)
    elif isinstance(parent, ast.expr):
        yield from slots(project, module, parent)


def of_pairs(module: Module, value: ast.expr, named: bool = True) -> ast.expr | None:
    """The mapping that is made of pairs among which a value is: `dict([...] + more)`, `state.update(pairs)`, also by way of
    a variable; None where no such is seen."""
    node: ast.AST = value
    parent = module.parents.get(value)
    while isinstance(parent, PASSING):
        node, parent = parent, module.parents.get(parent)
    pairs: ast.expr | None = None
    if isinstance(parent, ast.Call) and node in parent.args:
        if called_name(parent) in ("dict", "OrderedDict"):
            return parent
        if isinstance(parent.func, ast.Attribute) and parent.func.attr == "update":
            return parent.func.value
        if isinstance(parent.func, ast.Attribute) and parent.func.attr in ("append", "extend", "insert"):
            pairs = parent.func.value
    elif isinstance(parent, ast.Assign):
        pairs = parent.targets[0]
    elif isinstance(parent, ast.AugAssign):
        pairs = parent.target
    if not isinstance(pairs, ast.Name) or not named:
        return None
    scope = module.scope_of(pairs)
    reads = (n for n in module.loads.get(pairs.id, ()) if isinstance(n, ast.Name) and module.scope_of(n) is scope)
    return next((found for n in reads if (found := of_pairs(module, n, False)) is not None), None)


def slots(project: Project, module: Module, mapping: ast.expr) -> Iterator[Slot]:
    """Where a mapping is kept; one that is made here, where that goes."""
    given_back = isinstance(mapping, ast.Call) and bool(project.resolved.get(mapping))
    if given_back or isinstance(mapping, (ast.Name, ast.Attribute, ast.Subscript)):
        yield from project.sources(module, mapping)
    else:
        yield from _goes(project, module, mapping, set())


def goes(project: Project, module: Module, value: ast.expr) -> Iterator[Slot]:
    """Where a value goes that has no name where it is made."""
    yield from _goes(project, module, value, set())


def _goes(project: Project, module: Module, value: ast.AST | None, seen: set[ast.AST]) -> Iterator[Slot]:
    if value is None or value in seen:
        return
    seen.add(value)
    parent = module.parents.get(value)
    if isinstance(parent, ast.Assign):
        yield from (slot for t in parent.targets if (slot := project.slot(module, t)) is not None)
    elif isinstance(parent, (ast.AnnAssign, ast.NamedExpr)):
        if (slot := project.slot(module, parent.target)) is not None:
            yield slot
    elif isinstance(parent, ast.Dict) and value in parent.values and not _taken_in(parent, value):
        key = next(k for k, v in zip(parent.keys, parent.values, strict=True) if v is value)
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield from (Slot(slot, f"[{key.value}]") for slot in _goes(project, module, parent, seen))
    elif isinstance(parent, ast.Attribute) and parent.attr == "copy":
        yield from _goes(project, module, module.parents.get(parent), seen)
    elif isinstance(parent, (ast.IfExp, ast.BoolOp, ast.BinOp, ast.keyword)) or _taken_in(parent, value):
        yield from _goes(project, module, parent, seen)
    elif isinstance(parent, ast.Return):
        function = project.function_of(module, parent)
        yield from (Slot(function, "return"),) if function is not None else ()
        for where, call in project.calls.get(function, ()) if function is not None else ():
            yield from _goes(project, where, call, seen)
    elif isinstance(parent, ast.Call) and parent.func is not value:
        given = value.value if isinstance(value, ast.keyword) else value
        for function in project.resolved.get(parent, ()):
            yield from (Slot(function.scope, name) for name, v in project.arguments(function, parent) if v is given)
            if isinstance(value, ast.keyword) and value.arg is None and function.node.args.kwarg is not None:
                yield Slot(function.scope, function.node.args.kwarg.arg)
        if isinstance(parent.func, ast.Attribute) and parent.func.attr == "update":
            yield from slots(project, module, parent.func.value)
        elif ast.unparse(parent.func) in MAPPINGS:
            yield from _goes(project, module, parent, seen)


def _taken_in(parent: ast.AST | None, value: ast.AST) -> bool:
    """Whether a dictionary takes in all that another has: `{**state}`."""
    if not isinstance(parent, ast.Dict):
        return False
    return any(k is None and v is value for k, v in zip(parent.keys, parent.values, strict=True))


def holders(module: Module, key: ast.Constant) -> Iterator[ast.expr]:
    """The mappings that a key is asked of, or put into with nothing in it, also as one of several that a loop goes through."""
    parent = module.parents.get(key)
    if isinstance(parent, ast.Subscript) and parent.slice is key:
        stmt = module.parents.get(parent)
        if not isinstance(parent.ctx, ast.Store) or (isinstance(stmt, ast.Assign) and nothing(stmt.value)):
            yield parent.value
    elif isinstance(parent, ast.Compare) and parent.left is key and isinstance(parent.ops[0], (ast.In, ast.NotIn)):
        yield _of_keys(parent.comparators[0])
    elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.args[:1] == [key]:
        if parent.func.attr in ASKING:
            yield parent.func.value
    elif isinstance(parent, ast.Dict):
        if any(k is key and nothing(v) for k, v in zip(parent.keys, parent.values, strict=True)):
            yield parent
    elif isinstance(parent, (ast.List, ast.Tuple, ast.Set)):
        loop = module.parents.get(parent)
        if isinstance(loop, (ast.For, ast.comprehension)) and loop.iter is parent and isinstance(loop.target, ast.Name):
            yield from _of_loop(module, loop, loop.target.id)


def _of_loop(module: Module, loop: ast.For | ast.comprehension, name: str) -> Iterator[ast.expr]:
    """What a loop over keys asks for each of them."""
    around = module.parents.get(loop) if isinstance(loop, ast.comprehension) else loop
    for node in walk(around) if around is not None else ():
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            yield from holders_by(module, node)


def holders_by(module: Module, name: ast.Name) -> Iterator[ast.expr]:
    """The mappings that are asked for the key that a variable holds."""
    parent = module.parents.get(name)
    if isinstance(parent, ast.Subscript) and parent.slice is name:
        yield parent.value
    elif isinstance(parent, ast.Compare) and isinstance(parent.ops[0], (ast.In, ast.NotIn)):
        yield _of_keys(parent.comparators[0])
    elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.args[:1] == [name]:
        if parent.func.attr in ASKING:
            yield parent.func.value


def _of_keys(node: ast.expr) -> ast.expr:
    """What `state.keys()` gives the keys of."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
        return node.func.value
    return node


def nothing(value: ast.expr) -> bool:
    """Whether a value is no state: None, a text in its place."""
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Dict) and not value.keys)


def lost_to(project: Project, held: set[Slot], keys: Iterable[tuple[Module, Key]]) -> Iterator[tuple[Module, ast.Call]]:
    """The calls out of sight that are given one of the mappings; torch.save keeps it as it is."""
    written = ((module, module.parents[key]) for module, key in keys)
    made = ((module, node) for module, node in written if isinstance(node, ast.Dict) or _makes(node))
    for module, node in (*used(project, held), *made):
        for around in module.ancestors(node):
            if isinstance(around, (ast.stmt, ast.Subscript, ast.Compare)):
                break
            if isinstance(around, ast.Call) and node is not around.func and not project.resolved.get(around):
                if ast.unparse(around.func) not in (*MAPPINGS, "torch.save", "print", "len") and not _of(
                    around.func, node
                ):
                    yield module, around


def _makes(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in MAPPINGS


def _of(func: ast.expr, node: ast.AST) -> bool:
    """Whether a call is one of the mapping's own methods."""
    return any(n is node for n in walk(func))
