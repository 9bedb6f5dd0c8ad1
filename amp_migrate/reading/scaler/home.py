"""One place where a GradScaler is created, and which `initialize` calls it serves."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from amp_migrate.reading.conditions.conjunctions import conjuncts
from amp_migrate.reading.program.module import Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers, names_stored, walk
from amp_migrate.reading.switch.flag import Flag, distinct
from amp_migrate.reading.units.unit import Blocked, Init


@dataclass
class Home:
    """Where one `initialize` call's scaler is created."""

    init: Init
    kind: str  # "local" or "self"
    scope: Scope
    anchor: ast.stmt  # the statement whose place it takes, or before which it stands
    flag: Flag
    climbed: list[ast.If] = field(default_factory=list)
    dissolved: list[ast.If] = field(default_factory=list)  # switches around a run-once guard that holds the creation
    carrier: str = ""  # the object that carried `amp` itself
    after: bool = False  # stands after the anchor: a call that returns what initialize made
    idle: bool = False  # nothing is trained there: the helper that initializes was given no optimizer
    # Where settings are only known under the switch, the scaler is created there, and a disabled one before `above`:
    above: ast.stmt | None = None
    inside: list[ast.If] = field(default_factory=list)  # the branches between the two
    own: Flag | None = None  # what enables it there
    stays: bool = False  # under its condition, where that does not hold, the object keeps the scaler that it has
    lines: list[str] = field(default_factory=list)  # what creates it, as it was written


def only_inside(init: Init, branches: list[ast.If], node: ast.AST) -> bool:
    """Whether an expression reads a name that nothing but branches around `initialize` binds."""
    module, scope = init.module, init.site.scope
    names = (n.id for n in walk(node) if isinstance(n, ast.Name) and n.id not in scope.params)
    bindings = (scope.bindings.get(name, []) for name in names)
    return any(bound and all(any(a in branches for a in module.ancestors(b)) for b in bound) for bound in bindings)


def changed_inside(init: Init, branches: list[ast.If], node: ast.AST) -> bool:
    """Whether branches around `initialize` assign, above the call, what an expression reads there."""
    inside = (n for b in branches for n in walk(b) if getattr(n, "lineno", init.stmt.lineno) < init.stmt.lineno)
    stored = {ast.unparse(n) for n in inside if isinstance(getattr(n, "ctx", None), ast.Store)}
    return any(ast.unparse(n) in stored for n in walk(node) if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript)))


def found_by(home: Home) -> bool:
    """Whether a run-time loss scale is an item that a branch around `initialize` asks for: `"amp" in params`, as it stands
    there or kept in a flag."""
    module, scale = home.init.module, home.init.arguments.get("loss_scale")
    items = [n for n in walk(scale) if isinstance(n, ast.Subscript)] if scale is not None else []
    wanted = {f"{module.source(n.slice)} in {module.source(n.value)}" for n in items}
    tests = [part for branch in home.climbed for part in conjuncts(branch.test)] if wanted else []
    for test in list(tests):
        given = [
            n.value
            for n in walk(home.init.site.scope.node)
            if isinstance(n, ast.Assign) and any(ast.unparse(t) == ast.unparse(test) for t in n.targets)
        ]
        tests += [part for value in given for part in conjuncts(value)] if len(given) == 1 else []
    return any(module.source(test) in wanted for test in tests)


def join(homes: list[Home]) -> None:
    """One scaler that serves several `initialize` calls is on where any of them was reached.

    Raises Blocked where the condition of a later one is not known yet where the scaler is created.
    """
    for at, home in enumerate(homes):
        for earlier in homes[:at]:
            if home.anchor is earlier.anchor and home.kind == earlier.kind:
                joined = home.flag.either(earlier.flag)
            elif covers(earlier, home) and not earlier.flag.always and not _left(earlier):
                home.flag = _as_noted(earlier, home.flag)
                joined = earlier.flag.either(home.flag)
                if not joined.same(earlier.flag) and not _known_at(earlier, home.flag):
                    raise _too_late(home)
            else:
                continue
            for other in homes[: at + 1]:
                if other is home or other.flag is earlier.flag:
                    other.flag = joined


def raised_again(project: Project, homes: list[Home], home: Home) -> bool:
    """Whether `initialize` always comes too late in a method, since the object was made with an optimizer that has been
    through it: Apex raises there ("should only be passed through amp.initialize once"), so no run goes on from it."""
    return any(other is not home and _made_with(project, other, home) for other in homes)


def _made_with(project: Project, made: Home, home: Home) -> bool:
    first, function = project.functions.get(made.scope.node), project.functions.get(home.scope.node)
    if made.kind != "self" or first is None or function is None or first.cls is None or function.cls is None:
        return False
    if first.name != "__init__" or function.name == "__init__" or first.cls not in function.cls.ancestry():
        return False
    if made.flag.parts is None or home.flag.parts is None or not set(made.flag.parts) <= set(home.flag.parts):
        return False
    slots = [{project.slot(h.init.module, node) for node in h.init.optimizers} for h in (made, home)]
    if not slots[0] or slots[0] != slots[1] or None in slots[0]:
        return False
    names = {slot.name for slot in slots[0] if slot is not None}
    given = {n for h in (made, home) for n in walk(h.init.stmt)}
    methods = (m for cls in first.cls.family.descendants() for m in cls.methods.values() if m.name != "__init__")
    return not any(
        isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and n.attr in names and n not in given
        for method in methods
        for n in method.inside
    )


def may_be_on(project: Project, homes: list[Home], home: Home) -> bool:
    """Whether another method may have switched mixed precision on for an object where the condition of this one does not
    hold: Apex was not switched off by that."""
    function = project.functions.get(home.scope.node)
    if not home.climbed or home.kind != "self" or home.carrier or home.above is not None or function is None:
        return False
    if function.cls is None or function.name == "__init__":
        return False
    others = (h for h in homes if h.kind == "self" and h.scope is not home.scope and not h.flag.never)
    classes = (project.class_of(h.scope) for h in others if not h.carrier and not h.flag.same(home.flag))
    return any(cls is not None and function.cls.shares_instances(cls) for cls in classes)


def fails_before(project: Project, home: Home) -> bool:
    """Whether the branch of an `initialize` call that its scaler leaves may raise on the way to the call (`assert
    self.optimizer is not None`): the object outlives that, and is to be in mixed precision no more than it was."""
    init, function = home.init.stmt, project.functions.get(home.scope.node)
    if function is None or function.name == "__init__":
        return False  # without the object
    inside = [n for n in walk(home.anchor) if getattr(n, "lineno", init.lineno) < init.lineno]
    bound = names_stored(home.anchor)
    asked = identifiers(*map(ast.parse, home.flag.parts or ()))
    if bound & asked or any(isinstance(n, ast.Return) for n in walk(home.anchor)):
        return False
    called = (f for n in inside if isinstance(n, ast.Call) for f in project.resolved.get(n, ()))
    return any(isinstance(n, (ast.Assert, ast.Raise)) for nodes in (inside, *(f.inside for f in called)) for n in nodes)


def covers(earlier: Home, home: Home) -> bool:
    """Whether a creation stands on the way to another in the same place: on the same path, and before it."""
    if earlier.kind != home.kind or earlier.scope is not home.scope:
        return False
    if earlier.kind == "self" and home.scope.owner_class is None:
        return False
    module = home.scope.module if home.after else home.init.module
    block = module.block(earlier.anchor)  # what follows in it, and what is nested there, runs after the earlier one
    return module.inside_of(home.anchor, block[block.index(earlier.anchor) :])


def _left(home: Home) -> bool:
    """Whether the branch of an `initialize` call leaves, so that what follows is another path."""
    module = home.init.module
    branches = (b for node in home.climbed for b in (node.body, node.orelse) if module.inside_of(home.init.stmt, b))
    return any(isinstance(b[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break)) for b in branches)


def _known_at(home: Home, flag: Flag) -> bool:
    """Whether all that a condition reads is bound before a scaler is created."""
    names = identifiers(*map(ast.parse, flag.parts or ()))
    bound = (b for name in names.difference(home.scope.params) for b in home.scope.bindings.get(name, ()))
    return all(getattr(b, "lineno", 0) < home.anchor.lineno for b in bound)


def _as_noted(earlier: Home, flag: Flag) -> Flag:
    """A condition that asks by a name whether the branch of another set-up was taken, in terms of what that asks:
    `use_amp = False` above it, `use_amp = True` in it."""
    noted = [part for part in flag.parts or () if _notes(earlier, part)]
    if not noted or earlier.flag.parts is None:
        return flag
    rest = [part for part in flag.parts or () if part not in noted]
    return Flag(flag.scope, distinct([*earlier.flag.parts, *rest])).with_scaling(earlier.flag.of_scaler.joined(rest))


def _notes(earlier: Home, name: str) -> bool:
    """Whether a name is true where the branch of a set-up was taken, and false where it was not."""
    branch, inside = earlier.anchor, False
    if not isinstance(branch, ast.If) or branch not in earlier.climbed or earlier.init.stmt not in branch.body:
        return False
    for bound in earlier.scope.bindings.get(name, ()):
        given = earlier.init.module.parents.get(bound)
        if not isinstance(given, ast.Assign) or not isinstance(given.value, ast.Constant):
            return False
        within = given in branch.body
        if bool(given.value.value) is not within or not (within or given.lineno < branch.lineno):
            return False
        inside = inside or within
    return inside


def _too_late(home: Home) -> Blocked:
    return Blocked(
        home.init.module,
        home.init.call,
        "AMP113",
        "amp.initialize",
        f"one scaler serves several initialize calls, and whether this one is reached ({home.flag.text()}) is only known "
        "below the place where it is created; initialize all in one place",
    )
