"""Classes that inherit a method which reads the scaler, and that create none: they find a disabled one.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler

Apex keeps its state in its own module, so that such objects train and predict in float32. The constructor of the base that
keeps the optimizer gives each object the scaler's name. No code of its own in the report: AMP110 speaks of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import ClassInfo, Function, called_name
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.home import Home
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.setup.until_configured import disabled

CODES: tuple[Code, ...] = ()
BY_NAME = ("globals()", "locals()", "vars(", "getattr(", "eval(", "__dict__")


def apply(m: Migration) -> None:
    """Give objects a disabled scaler that read one and are made without."""
    for plan in m.scalers if m.scales else ():
        homes = [h for h in plan.created if h.kind == "self" and not h.carrier]
        creators = [f for h in homes if (f := m.project.functions.get(h.scope.node)) is not None]
        found: dict[Function, dict[ClassInfo, None]] = {}
        for cls in dict.fromkeys(_without(m, plan, creators)):
            made = _constructor(m, cls)
            if made is not None:
                found.setdefault(made, {})[cls] = None
        for made, classes in found.items():
            given = any(module.scope_of(stmt) is made.scope for module, stmt, _ in m.until_then)
            if given or made in creators or not all(_comes_after(m, home, made) for home in homes):
                continue
            names = ", ".join(sorted(c.name for c in classes))
            message = f"a disabled scaler for {names}: methods that they inherit read one, and they create none"
            disabled(m, homes[0], made, _beside_optimizer(m, made), plan, message)


def _without(m: Migration, plan: ScalerPlan, creators: list[Function]) -> Iterator[ClassInfo]:
    """The classes of objects that run a method as it stands which reads the scaler, and that have none which creates it."""
    for scope in plan.methods:
        reader = m.project.functions.get(scope.node)
        if reader is None or reader.cls is None or not any(_related(reader.cls, f) for f in creators):
            continue
        for cls in reader.cls.descendants():
            own = set(cls.ancestry())
            if cls.method(reader.name) is reader and not any(f.cls in own for f in creators) and _may_be_made(m, cls):
                yield cls


def _related(cls: ClassInfo, creator: Function) -> bool:
    return creator.cls is not None and cls in creator.cls.ancestry()


def _may_be_made(m: Migration, cls: ClassInfo) -> bool:
    """Whether objects of a class are made: by a call in sight, or by a name that something puts together."""
    for module in m.unit.reach:
        for node in (*module.loads.get(cls.name, ()), *module.named.get(cls.name, ())):
            parent = module.parents.get(node)
            if isinstance(parent, ast.Call) and parent.func is node and m.project.find_class(module, node) is cls:
                return True
        bound = not {cls.name, cls.module.name.rpartition(".")[2]}.isdisjoint(module.root.bindings)
        if bound and not cls.subclasses and any(words in module.text for words in BY_NAME):
            return True
    return any("regist" in ast.unparse(d).lower() for d in cls.node.decorator_list)


def _constructor(m: Migration, cls: ClassInfo) -> Function | None:
    """The constructor of the highest base that keeps an optimizer, where that of a class surely runs it."""
    stored = {s.name for s in m.unit.optimizer_slots}
    own = cls.method("__init__")
    bases = [c.methods["__init__"] for c in cls.ancestry() if "__init__" in c.methods]
    for made in reversed(bases):
        keeps = any(
            isinstance(t, ast.Attribute) and t.attr in stored
            for s in made.scope.body
            if isinstance(s, ast.Assign)
            for t in s.targets
        )
        if keeps and own is not None:
            return made if own is made or any(_runs(m, own, s, made) for s in own.scope.body) else None
    return None


def _runs(m: Migration, constructor: Function, stmt: ast.stmt, made: Function) -> bool:
    """Whether a statement of a constructor runs another, itself or through those of the classes between: `super().__init__()`."""
    calls = (n for n in walk(stmt) if isinstance(n, ast.Call) and called_name(n) == "__init__")
    for function in (f for n in calls for f in m.project.callees(constructor.module, n)):
        if function is made or (
            function is not constructor and any(_runs(m, function, s, made) for s in function.scope.body)
        ):
            return True
    return False


def _comes_after(m: Migration, home: Home, made: Function) -> bool:
    """Whether a scaler is created in a constructor that has run the one of the base by then, or in a class without that."""
    creator = m.project.functions.get(home.scope.node)
    if creator is None or creator.cls is None or not any(c is made.cls for c in creator.cls.ancestry()):
        return True
    body = creator.scope.body
    ran = next((i for i, s in enumerate(body) if _runs(m, creator, s, made)), None)
    created = next((i for i, s in enumerate(body) if home.anchor in walk(s)), None)
    return creator.name == "__init__" and ran is not None and created is not None and ran <= created


def _beside_optimizer(m: Migration, made: Function) -> ast.stmt:
    stored = {s.name for s in m.unit.optimizer_slots}
    return next(
        s
        for s in made.scope.body
        if isinstance(s, ast.Assign) and any(isinstance(t, ast.Attribute) and t.attr in stored for t in s.targets)
    )
