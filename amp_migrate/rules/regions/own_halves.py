"""What a program makes half itself in runs without Apex, and what a cast that makes up for Apex is there: nothing.

Half weights take half values alone: `.float()` in every run would hand them float32 where the program has them half by itself.

Apex: https://nvidia.github.io/apex/amp.html#opt-levels
Native: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.half_casts import HALF, cast_to_half
from amp_migrate.reading.switch.flags import asked_around
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.operations import TORCH_IN_APEX
from amp_migrate.reading.values.returned import KEEPS
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions.shown import FLOATING, KEEPING

DEPTH = 4  # calls followed up
OF_TENSORS = (
    KEEPING | FLOATING | TORCH_IN_APEX | frozenset("max min abs data size shape view mask index input output".split())
)


def make_float(m: Migration, module: Module, value: ast.expr) -> None:
    """Make a value float32 where Apex computed so: where the program has half weights without Apex, in runs with it alone."""
    whole = isinstance(value, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.Compare, ast.Constant))
    if whole:  # what follows an operation belongs to its last operand
        m.edit(module).insert("before", value, "(")
    m.edit(module).insert("after", value, ")" * whole + _as_float(m, module, value))


def _as_float(m: Migration, module: Module, value: ast.expr) -> str:
    made = (place for place in _halves(m, module, value) if m.live(*place))
    if all(_with_apex(m, where, cast) for where, cast in made):
        return ".float()"
    try:
        enabled = m.switch.at(module, value)
    except Blocked:
        return ".float()"  # where the audit tells what that does
    if enabled is None:
        return ".float()"
    return f".to(dtype={m.torch(module, module.scope_of(value))}.float32 if {enabled} else None)"


def _halves(m: Migration, home: Module, value: ast.expr) -> Iterator[tuple[Module, ast.expr]]:
    """Where a network is made half in a process with Apex, and where what a value is taken from is, in its scope."""
    own = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
    found = {module: m.project.once(_half, module) for module in in_process(m.project, m.unit.modules)}
    called = set[str]().union(*(names for names, _ in found.values()))
    for module, (_, casts) in found.items():
        for cast in casts:
            name = _receiver(module, cast) if isinstance(cast, ast.Call) else None
            same = name in own and module.scope_of(cast) is home.scope_of(value)
            if name is None or name in called or same:
                yield module, cast


def _half(project: Project, module: Module) -> tuple[set[str], list[ast.expr]]:
    """What a file calls, by its last name, and where it makes something half: see `Project.once`."""
    called = {"self", *(called_name(c) for c, _ in module.calls)} - OF_TENSORS
    if "half" not in module.text.lower() and "float16" not in module.text:
        return called, []
    casts: list[ast.expr] = [
        c for c, _ in module.calls if cast_to_half(module, c) and not _of_torch(project, module, c)
    ]
    told = {n for c in casts for n in ast.walk(c)}
    named = [
        n for n in ast.walk(module.tree) if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)
    ]
    casts += [n for n in named if n not in told and module.qualify(n) in HALF and _chosen(module, n)]
    return called, casts


def _chosen(module: Module, dtype: ast.expr) -> bool:
    """Whether a half type is kept for what is cast to it later, or asked of what makes a network: not compared, not that of a
    region or of one tensor."""
    for around in module.ancestors(dtype):
        if isinstance(around, ast.Compare):
            return False
        if isinstance(around, ast.Call):
            name = module.qualify(around.func) or ""
            default = name.rpartition(".")[2] in ("set_default_dtype", "set_default_tensor_type")
            return default or not name.startswith(("torch.", "apex."))
        if isinstance(around, ast.stmt):
            break
    return True


def _made(module: Module, cast: ast.Call) -> ast.expr:
    """What methods are called on, the last of which makes it half: `self.net` of `self.net.cuda().half()`, `Net()` of
    `Net().half()`."""
    node: ast.expr = cast
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and module.qualify(node.func) is None:
        node = node.func.value
    return node


def _of_torch(project: Project, module: Module, cast: ast.Call) -> bool:
    """Whether a tensor is made half that torch makes there, `torch.zeros(4).half()`, or that a function gives which does to it what
    is done to tensors alone."""
    made = _made(module, cast)
    name = (module.qualify(made.func) or "") if isinstance(made, ast.Call) else ""
    if name.startswith("torch."):
        return not name.startswith(("torch.nn.", "torch.hub."))
    values = project.once(Values).may_be(module, made) if isinstance(made, ast.Call) else ()
    calls = (v.node for v in values if v.kind == "call" and isinstance(v.node, ast.Call) and v.node is not made)
    return any(isinstance(c.func, ast.Attribute) and c.func.attr in KEEPS for c in calls)


def _receiver(module: Module, cast: ast.Call) -> str:
    """The last name of what is made half."""
    made = _made(module, cast)
    made = made.func if isinstance(made, ast.Call) else made
    return made.attr if isinstance(made, ast.Attribute) else made.id if isinstance(made, ast.Name) else ""


def _with_apex(m: Migration, module: Module, node: ast.AST, depth: int = DEPTH) -> bool:
    """Whether a run comes to a place only where mixed precision is on, by what is asked there or around all calls of it."""
    asked = {ast.unparse(ast.parse(part)) for part in asked_around(m.project, module, node)}
    flags = [f for f in m.switch.flags(module.scope_of(node)) if not f.never]
    if flags and all(asked.issuperset(ast.unparse(ast.parse(p)) for p in f.parts or ()) for f in flags):
        return True
    function = m.project.function_of(module, node)
    calls = m.project.calls.get(function, ()) if function is not None and depth else ()
    return bool(calls) and all(_with_apex(m, where, call, depth - 1) for where, call in calls)
