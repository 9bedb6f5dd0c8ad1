"""Operations that Apex O1 ran in float32 and autocast does not: named, for the results differ a little.

Apex: https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use
Native: https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amp_migrate.findings import Code
from amp_migrate.reading.conditions.tests import excludes
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.roles import role
from amp_migrate.reading.switch.flags import asked_around, flag_around
from amp_migrate.reading.values.dtypes import Dtypes
from amp_migrate.rules.migration import Migration

NATIVE = "https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior"
GRID = ", where both are half: coordinates of 11 bits. .float() on either keeps it"
# What is divided by one of these: a normalization written out.
NORMAL = {
    "var": ", and what is divided by it here: where that is half, a variance above 65504 is inf and an eps below 3e-8 is 0. "
    ".float() on the input keeps it",
    "std": ", and what is divided by it here: where that is half, an eps below 3e-8 is 0. .float() on the input keeps it",
}
F = "torch.nn.functional."
OBJECT = re.compile(r"\bself\.(?=\w+[.\[])")
UPCAST = {f"{F}gelu", f"{F}grid_sample", "torch.std", "torch.var", "torch.nn.GELU"}
_SHAPES = frozenset(
    "permute transpose view reshape contiguous flatten squeeze unsqueeze detach clone t narrow select expand".split()
)
_HOOKS = ("register_forward_hook", "register_forward_pre_hook")

CODES = (
    Code(
        "AMP508",
        "An operation that O1 ran in float32 runs in its input's dtype",
        "torch.nn.functional.gelu",
        apex="O1's list of float32 functions holds gelu, grid_sample, std and var, and made what they are given float32.",
        native="Autocast's list does not: they run in the dtype of what they are given, float16 after a matrix product "
        "(grid_sample in the wider of its two).",
        why="The difference is of the size of float16 rounding, but where a normalization that is written out divides by it: half "
        "has no variance above 65504 and no eps below 3e-8. Where it matters, call the operation on input.float().",
        links=("https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use", NATIVE),
    ),
)


def apply(m: Migration) -> None:
    """Name each such operation once a file, of all that may run in one process with `initialize`."""
    if not m.unit.inits or all(i.only("opt_level") in ("O0", "O2", "O3") for i in m.unit.inits):
        return
    for module in m.unit.cast:
        told: set[str] = set()
        for name, node, certain in m.project.once(_uses, module) if role(module) != "test" else ():
            short = name.rpartition(".")[2]
            call = module.parents.get(node)
            cast = isinstance(call, ast.Call) and not m.edit(module).insertions.keys().isdisjoint(call.args)
            normal = NORMAL.get(short, "") if _divides(module, node, added=short == "var") else ""
            if (
                short.lower() + normal not in told
                and not cast
                and not _is_off(m, module, node)
                and (certain or module in m.unit.modules)
            ):
                told.add(short.lower() + normal)
                where = " where that is half" * (not certain)
                message = f"O1 computed {short} in float32, autocast computes it in its input's dtype"
                message += normal or (GRID if short == "grid_sample" else f": a small difference{where}")
                looks = short == "grid_sample" or normal
                m.output.note(module, node, "AMP508", name, message, "look" if looks else "as-is")


def _is_off(m: Migration, module: Module, node: ast.AST) -> bool:
    """Whether what is asked around a node excludes every set-up, also where an object has kept the settings: `self.opt.fp16`."""
    asked = [OBJECT.sub("", part) for part in asked_around(m.project, module, node)]
    flags = [flag_around(m.project, init).parts or () for init in m.unit.inits] if asked else []
    return bool(flags) and all(any(excludes(OBJECT.sub("", p), q) for p in parts for q in asked) for parts in flags)


def _uses(project: Project, module: Module) -> list[tuple[str, ast.expr, bool]]:
    """Where a file uses such operations on what may be half, in source order, by name, and whether that is mostly so; see
    `Project.once`."""
    return sorted(_found(project, module), key=lambda use: (use[1].lineno, use[1].col_offset))


def _found(project: Project, module: Module) -> Iterator[tuple[str, ast.expr, bool]]:
    dtypes = project.once(Dtypes)
    words = {w.rpartition(".")[2] for w in UPCAST}
    for word in words & (module.named.keys() | module.loads.keys()):
        for node in (*module.named.get(word, ()), *module.loads.get(word, ())):
            if not isinstance(node, (ast.Name, ast.Attribute)) or (name := module.qualify(node)) not in UPCAST:
                continue
            call = module.parents.get(node)
            called = isinstance(call, ast.Call) and call.func is node
            if not name.startswith("torch.nn.G") and not (called and isinstance(node, ast.Attribute)):
                continue  # kept before initialize patched torch: `activation = F.gelu`
            given = call.args[:2] if isinstance(call, ast.Call) and called else []
            found = {dtypes.of(module, v) for v in given[: 2 if word == "grid_sample" else 1]}
            mostly = word in ("gelu", "GELU") or (word == "grid_sample" and _in_network(project, module, node))
            if not found & {"float32", "scalar", "integer", "host"} and not _left(module, node):
                yield name, node, mostly or found == {"half"}
    for word in ("std", "var"):
        for call, func in module.method_calls.get(word, ()):
            if module.qualify(func) is not None or _left(module, call):
                continue
            dtype = dtypes.of(module, func.value)
            if dtype == "half" or (dtype == "unknown" and _is_input(project, module, func.value)):
                yield f"torch.{word}", call, True


def _divides(module: Module, node: ast.AST, added: bool) -> bool:
    """Whether something is divided by what an operation gives, also by its name: `(x - mean) / torch.sqrt(x.var(-1) + eps)`.
    Without `added`: by that and what is added to it."""
    child = node
    for at in module.ancestors(node):
        if isinstance(at, ast.stmt):
            names = [t.id for t in at.targets if isinstance(t, ast.Name)] if isinstance(at, ast.Assign) else []
            uses = (u for name in names for u in module.loads.get(name, ()) if u.lineno > at.lineno)
            return any(module.scope_of(u) is module.scope_of(at) and _divides(module, u, added) for u in uses)
        added = added or (isinstance(at, ast.BinOp) and isinstance(at.op, ast.Add))
        divided = isinstance(at, ast.BinOp) and isinstance(at.op, ast.Div) and at.right is child
        if divided or (isinstance(at, ast.Call) and called_name(at) == "rsqrt"):
            return added
        child = at
    return False


def _is_input(project: Project, module: Module, value: ast.expr) -> bool:
    """Whether a value is what a method of a network is given, or a forward hook: features, half where a product made them; in
    whatever shape."""
    while True:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _SHAPES:
            value = value.func.value
        elif isinstance(value, ast.Subscript):
            value = value.value
        else:
            break
    own = module.scope_of(value)
    if not isinstance(value, ast.Name) or value.id not in own.params:
        return False
    return _in_network(project, module, value) or _hooked(project, module, own)


def _hooked(project: Project, module: Module, scope: Scope) -> bool:
    """Whether a function is a forward hook of a layer: it is given what the layer is, and gives."""
    function = project.functions.get(scope.node)
    if function is None:
        return False
    hooks = (c for name in _HOOKS for c, _ in module.method_calls.get(name, ()))
    own = function.cls.methods if function.cls is not None else {}
    return any(
        (isinstance(c.args[0], ast.Attribute) and own.get(c.args[0].attr) is function)
        or function.node in project.definitions(module, c.args[0])
        for c in hooks
        if c.args
    )


def _in_network(project: Project, module: Module, node: ast.AST) -> bool:
    """Whether a node stands in a method of a network: what that samples are features, which come after a product."""
    cls = project.class_of(module.scope_of(node))
    return cls is not None and cls.is_module


def _left(module: Module, node: ast.AST) -> bool:
    """Whether a node stands below a statement of its block that leaves it: nothing comes there."""
    child: ast.AST = node
    for parent in module.ancestors(node):
        for block in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and child in block:
                above = block[: block.index(child)]
                if any(isinstance(s, (ast.Return, ast.Raise, ast.Continue, ast.Break)) for s in above):
                    return True
        child = parent
    return False
