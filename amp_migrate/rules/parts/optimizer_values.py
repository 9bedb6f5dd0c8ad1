"""Apex's optimizers where they are not called: bound by `functools.partial`, the base of a class, kept to be called later.

Native: https://docs.python.org/3/library/functools.html#functools.partial
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import method_called, walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.parts.counterpart import Manual, Native, is_base
from amp_migrate.rules.parts.derived import arriving
from amp_migrate.writing.calls import Argument

PARTIAL = "functools.partial"
# A site, a call, the names of its positional arguments in their order.
Called = Callable[[Site, ast.Call, tuple[str, ...]], Native | Manual]
# What objects of Apex's classes have and torch's have not.
OWN_FIELDS = frozenset(
    "adam_w_mode bias_correction capturable master_weights multi_tensor_adam multi_tensor_adam_capturable set_grad_none "
    "_dummy_overflow_buf param_groups_master overflow_buf most_recent_scale scale_set_by_backward wd_after_momentum".split()
)


def bound(site: Site) -> ast.Call | None:
    """The `partial(FusedAdam, ...)` that binds arguments of an optimizer, if a site stands in one."""
    parent = site.module.parents.get(site.node)
    named = isinstance(parent, ast.Call) and site.module.qualify(parent.func) == PARTIAL
    return parent if isinstance(parent, ast.Call) and named and parent.args[:1] == [site.node] else None


def in_partial(site: Site, call: ast.Call, called: Called, positions: tuple[str, ...], own: str) -> Native | Manual:
    """`partial(FusedAdam, eps=1e-6)` binds the same of torch's class, and what else that takes for its defaults."""
    found = called(site, call, ("", *positions))
    if isinstance(found, Manual) or found.choose is not None or found.arguments is None:
        return found if isinstance(found, Manual) else Manual(found.code, f"which class {own} cannot be told")
    message = f"{found.message}; what calls it later must not give it options of Apex's own ({own})"
    beside = ((site.module, call, found.arguments),)
    return Native(found.code, found.names, message, "look", beside=beside)


def as_base(project: Project, site: Site, called: Called, positions: tuple[str, ...], code: str) -> Native | Manual:
    """`class Adam(FusedAdam)` derives from torch's class, whose `__init__` is given what Apex's had."""
    cls = project.classes.get(site.module.parents[site.node])
    if cls is None:
        return Manual(code, "the class that derives from it is out of sight")
    reads = {n.attr for c in cls.descendants() for n in walk(c.node) if isinstance(n, ast.Attribute)}
    reads |= {n.value for c in cls.descendants() for n in walk(c.node) if _is_key(c.module, n)}  # type: ignore[attr-defined]
    if own := sorted(reads & OWN_FIELDS):
        return Manual(code, f"{cls.name} reads {own[0]}, which torch's class has not: write that part anew")
    found: list[tuple[Module, ast.Call, tuple[Argument, ...]]] = []
    bases: set[tuple[str, ...]] = set()
    for module, call, names, _ in arriving(project, cls, positions):
        if method_called(call) != "__init__" and cls.method("__init__") is not None:
            continue  # what its own __init__ hands on is seen there
        if module not in project.targets:
            return Manual(code, f"{module.display}:{call.lineno} makes one, and torch's class has other defaults")
        native = called(Site(module, call.func, site.name), call, names)
        if isinstance(native, Manual) or native.choose is not None or native.arguments is None:
            return Manual(code, native.message)
        bases.add(native.names)
        found.append((module, call, native.arguments))
    if len(bases) != 1:
        return Manual(code, f"nothing in sight tells what {cls.name} is made with: torch's class has other defaults")
    (names,) = bases
    message = f"{names[0]} is the base, given by {len(found)} call{'s' * (len(found) > 1)} what Apex's class had"
    return Native(code, names, message, "look", beside=tuple(found))


def _is_key(module: Module, node: ast.AST) -> bool:
    """Whether a node is the key that something is asked for: `group["bias_correction"]`."""
    subscript = module.parents.get(node)
    return isinstance(node, ast.Constant) and isinstance(subscript, ast.Subscript) and subscript.slice is node


def kept_to_be_called(site: Site) -> bool:
    """Whether a name that is neither called nor a base is only kept for a call: a name that it is given is not asked what an
    object is, has no attribute read, and no class derives from it."""
    stmt, module = site.stmt, site.module
    parent = module.parents.get(site.node)
    if is_base(site) or isinstance(parent, ast.Attribute):
        return False
    if not isinstance(stmt, ast.Assign) or stmt.value is not site.node:
        return not isinstance(parent, ast.FormattedValue)
    names = [t.id for t in stmt.targets if isinstance(t, ast.Name)]
    uses = [n for name in names for n in module.loads.get(name, ()) if isinstance(n, ast.expr)]
    return not any(_as_class(module, use) for use in uses)


def kept_calls(site: Site) -> list[ast.Call] | None:
    """The calls of the name that a site is kept under, where that is all that is done with it: `SGD = FusedSGD`; not whether a
    test asks if it is some word, which no class is."""
    stmt, module = site.stmt, site.module
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    if not isinstance(stmt, ast.Assign) or stmt.value is not site.node or not isinstance(target, ast.Name):
        return None
    calls: list[ast.Call] = []
    for use in module.loads.get(target.id, ()):
        call = module.parents.get(use)
        if _asks_for_words(call):
            continue
        if not isinstance(call, ast.Call) or call.func is not use:
            return None
        calls.append(call)
    return calls or None


def _as_class(module: Module, node: ast.expr) -> bool:
    parent = module.parents.get(node)
    while isinstance(parent, ast.Tuple):
        node, parent = parent, module.parents.get(parent)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and node in parent.args[1:]:
        return parent.func.id in ("isinstance", "issubclass")
    return isinstance(parent, (ast.Attribute, ast.ClassDef, ast.Compare)) and not _asks_for_words(parent)


def _asks_for_words(node: ast.AST | None) -> bool:
    """Whether a test compares with written text or None: `optimizer == "adam"`, before a class takes the place of its name."""
    sides = (node.left, *node.comparators) if isinstance(node, ast.Compare) else ()
    return any(isinstance(s, ast.Constant) and (s.value is None or isinstance(s.value, str)) for s in sides)
