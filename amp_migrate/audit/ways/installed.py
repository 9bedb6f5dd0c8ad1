"""Whether Apex is there: which names of a program tell, what a test asks of them, and what is reached only with Apex."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cached_property

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import statements
from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.torch_version import by_version
from amp_migrate.audit.ways.chains import Chains


def tries_apex(stmt: ast.Try) -> bool:
    return any(imports_apex(n) for node in stmt.body for n in syntax.walk(node))


def catches_import(handler: ast.ExceptHandler) -> bool:
    caught = syntax.text(handler.type) if handler.type is not None else "Exception"
    return any(n in caught for n in ("ImportError", "ModuleNotFoundError", "Exception"))


class Installed:
    """The names of a program that tell whether Apex is there."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @kept
    def flags(self, module: Module) -> dict[str, bool]:
        """What tells it in a file, as it is written there, also what other files hand on: its value with Apex."""
        found = dict(self._own.get(module, {}))
        for home, own in self._own.items():
            for name in own if home is not module else ():
                for word in self.program.spelled(name):
                    for node in module.loads.get(word, ()):
                        if (home, name) in self.program.way(module.scope_of(node), node):
                            found[syntax.text(node)] = own[name]
        return found

    @cached_property
    def _own(self) -> dict[Module, dict[str, bool]]:
        return {module: own for module in self.program.having("apex") if (own := _flags(module))}


def _flags(module: Module) -> dict[str, bool]:
    """Names that tell whether Apex is there by how they are set: what they are when it is."""
    flags: dict[str, bool] = {}
    for stmt in module.tree.body:
        if isinstance(stmt, ast.Assign) and (looked_up := _looks_up(stmt.value)) is not None:
            flags.update((syntax.text(target), looked_up) for target in stmt.targets)
    for stmt in statements(module.tree):
        if not isinstance(stmt, ast.Try) or not tries_apex(stmt):
            continue
        given: dict[str, dict[bool, bool]] = {}  # by whether Apex is there, the last value
        for body, there in ((stmt.body, True), (stmt.orelse, True), *((h.body, False) for h in stmt.handlers)):
            for s in body:
                if isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant) and isinstance(s.value.value, bool):
                    for target in s.targets:
                        flags[syntax.text(target)] = s.value.value if there else not s.value.value
                        given.setdefault(syntax.text(target), {})[there] = s.value.value
                if (
                    not there
                    and isinstance(s, ast.Assign)
                    and isinstance(s.value, ast.Constant)
                    and s.value.value is None
                ):
                    for target in s.targets:
                        flags[syntax.text(target)] = True
        for name, values in given.items():
            if len(values) == 2 and values[True] is values[False]:
                del flags[name]  # the same with it and without: it tells nothing
    return flags


def _looks_up(value: ast.expr) -> bool | None:
    """What a value is with Apex, if it only looks for it: `find_spec("apex") is not None`; None where it is something else."""
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
        inner = _looks_up(value.operand)
        return None if inner is None else not inner
    if isinstance(value, ast.Compare) and len(value.ops) == 1 and syntax.text(value.comparators[0]) == "None":
        there = isinstance(value.ops[0], (ast.IsNot, ast.NotEq))
        return there if _looks_up(value.left) and (there or isinstance(value.ops[0], (ast.Is, ast.Eq))) else None
    if not isinstance(value, ast.Call):
        return None
    named = syntax.last(value.func)
    if named == "bool" and len(value.args) == 1:
        return _looks_up(value.args[0])
    text = value.args[0].value if value.args and isinstance(value.args[0], ast.Constant) else None
    found = named in ("find_spec", "find_loader") and isinstance(text, str) and text.split(".")[0] == "apex"
    return True if found else None


def asks(test: ast.expr, flags: dict[str, bool]) -> bool | None:
    """Whether a test is true only with Apex (True), only without (False), or asks something else (None)."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = asks(test.operand, flags)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        inner, other = flags.get(syntax.text(test.left)), test.comparators[0].value
        if inner is None or not (other is None or isinstance(other, bool)):
            return None
        return inner is (isinstance(test.ops[0], (ast.Is, ast.Eq)) is (other is True))
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        found = [asks(v, flags) for v in test.values]
        return True if True in found else False if False in found else None
    return flags.get(syntax.text(test))


def only_with_it(
    chains: Chains, module: Module, node: ast.AST, flags: dict[str, bool], depth: int = 4
) -> ast.expr | None:
    """The test that asks whether Apex is there, where a place is reached only if it is."""
    for test, came_out in chains.tests(module, node):
        if asks(test, flags) is came_out:
            return test
        if depth and came_out and (asked := _true_only_with_it(chains, module, test, flags, depth)) is not None:
            return asked
    return None


def _true_only_with_it(
    chains: Chains, module: Module, test: ast.expr, flags: dict[str, bool], depth: int
) -> ast.expr | None:
    """The same of what a test asks for: a variable that is set under such a test alone, or computed from the flag."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        found = (_true_only_with_it(chains, module, value, flags, depth) for value in test.values)
        return next((asked for asked in found if asked is not None), None)
    wanted: object = True
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        other = test.comparators[0]
        if not isinstance(other, ast.Constant):
            return None
        test, wanted = test.left, other.value
    if not isinstance(test, (ast.Name, ast.Attribute)):
        return None
    name, asked = syntax.text(test), None
    assigned = _assigned(module, test, name)
    for stmt in assigned or ():  # `fp16 = fp16 and HAS_APEX`, whatever it was before
        computed = _computed_with_it(stmt.value, flags)
        if computed is not None and (
            isinstance(test, ast.Attribute) or name in map(syntax.text, syntax.walk(computed))
        ):
            return computed
    if assigned is None or isinstance(test, ast.Attribute):  # an option that the command line may set, an argument
        return None
    for stmt in assigned:
        value = stmt.value
        if isinstance(value, ast.Constant) and (value.value != wanted if wanted is not True else not value.value):
            continue
        asked = _computed_with_it(value, flags) or only_with_it(chains, module, stmt, flags, depth - 1)
        if asked is None:
            return None
    return asked


def _assigned(module: Module, test: ast.Name | ast.Attribute, name: str) -> list[ast.Assign] | None:
    """The assignments to what a test asks for; None where a name is given otherwise, too."""
    if isinstance(test, ast.Name):
        found = module.scope_of(test).binder(name)
        bound = found.bindings[name] if found is not None else []
        assigned = [node for node in bound if isinstance(node, ast.Assign)]
        return assigned if len(assigned) == len(bound) else None
    every = (stmt for stmt in statements(module.tree) if isinstance(stmt, ast.Assign))
    return [stmt for stmt in every if name in map(syntax.text, stmt.targets)]


def _computed_with_it(value: ast.expr, flags: dict[str, bool]) -> ast.expr | None:
    """The flag in `fp16 and HAS_APEX`, or in `fp16 if HAS_APEX else False`, which are false without Apex."""
    if asks(value, flags) is True:
        return value
    if isinstance(value, ast.IfExp) and (there := asks(value.test, flags)) is not None:
        if syntax.is_false(value.orelse if there else value.body):
            return value.test
    return None


def always_imported(program: Program, module: Module, seen: frozenset[Module] = frozenset()) -> bool:
    """Whether a file cannot be loaded without Apex: it, or a file that it imports, imports it under no condition."""
    if "apex" not in module.text or module in seen:
        return False
    for stmt in module.tree.body:
        names = [a.name for a in stmt.names] if isinstance(stmt, ast.Import) else []
        names += [program._base(module, stmt)] if isinstance(stmt, ast.ImportFrom) else []
        for name in names:
            home = program.module_named(name, module)
            if home is None and name.split(".")[0] == "apex":
                return True
            if home is not None and always_imported(program, home, seen | {module}):
                return True
    return False


def fails_without(module: Module, flags: dict[str, bool], about: set[str]) -> bool:
    """Whether the program ends where it misses Apex: an assertion, or a branch that raises or exits. Not one that only what
    another part of Apex serves comes to: `if optimizer == "Adam": ... elif HAS_APEX and optimizer == "LAMB": ... else: raise`.
    `about`: what a set-up depends on."""
    for stmt in statements(module.tree):
        if isinstance(stmt, ast.Assert) and any(syntax.text(n) in flags for n in syntax.walk(stmt.test)):
            return True
        if isinstance(stmt, ast.If) and (there := asks(stmt.test, flags)) is not None:
            without = stmt.orelse if there else stmt.body
            if ends(without) and not _of_another_part(module, stmt, about):
                return True
    return False


def asked_of(expr: ast.expr) -> set[str]:
    """The variables, options and fields that an expression names: `args.level`, not `args` by that."""
    parts = [n for n in syntax.walk(expr) if isinstance(n, (ast.Name, ast.Attribute))]
    holders = {n.value for n in parts if isinstance(n, ast.Attribute)}
    return {syntax.text(n) for n in parts if n not in holders}


def _of_another_part(module: Module, stmt: ast.If, about: set[str]) -> bool:
    """Whether a test stands among the alternatives of a choice that is none of a set-up's, of which others go on."""
    child: ast.AST = stmt
    for around in module.ancestors(stmt):
        if not isinstance(around, ast.If):
            return False
        others = child in around.orelse and not ends(around.body)
        if others and about.isdisjoint(asked_of(around.test)):
            return True
        child = around
    return False


def ends(body: list[ast.stmt]) -> bool:
    """Whether a block raises, or leaves the program."""
    return any(isinstance(n, ast.Raise) or _exits(n) for s in body for n in syntax.walk(s))


def _exits(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and syntax.text(node.func).rpartition(".")[2] in ("exit", "_exit", "error")


def native_without(module: Module, asked: ast.expr) -> bool:
    """Whether the branch for want of Apex turned torch's own on, with nothing more asked for."""
    at: ast.stmt = module.statement(asked)
    if isinstance(at, ast.Assign):
        return _beside_without(module, at)
    while isinstance(at, ast.If) and at.orelse:
        further = at.orelse[0] if len(at.orelse) == 1 and isinstance(at.orelse[0], ast.If) else None
        body = at.orelse if further is None else further.body
        if _native(body):
            asks = syntax.walk(further.test) if further is not None else ()
            return all(isinstance(n, (ast.Name, ast.expr_context)) for n in asks)
        if further is None:
            break
        at = further
    return False


def _beside_without(module: Module, flag: ast.Assign) -> bool:
    """Whether another flag, which asks that what this one asks for is not there, turns torch's own on: `native = fp16 and not
    HAS_APEX` beside `apex = fp16 and HAS_APEX`."""
    names = {n.id for n in syntax.every(flag.value, ast.Name)}
    native = [syntax.text(stmt.test) for stmt in syntax.every(module.tree, ast.If) if _native(stmt.body)]
    for other in syntax.every(module.tree, ast.Assign):
        denied = (n.operand for n in syntax.every(other.value, ast.UnaryOp) if isinstance(n.op, ast.Not))
        if any(isinstance(n, ast.Name) and n.id in names for n in denied):
            if any(syntax.text(t) in native for t in other.targets):
                return True
    return False


def native_where(module: Module, asked: ast.expr) -> str | None:
    """What a branch for want of Apex asks that turns torch's own on, in the chain in which Apex is asked for."""
    at: ast.stmt = module.statement(asked)
    while isinstance(at, ast.If) and len(at.orelse) == 1 and isinstance(at.orelse[0], ast.If):
        at = at.orelse[0]
        if _native(at.body):
            return syntax.text(at.test)
    return None


def _native(body: list[ast.stmt]) -> bool:
    """Whether a branch turns torch's own on."""
    return any(word in syntax.text(s) for s in body for word in ("native", "autocast", "GradScaler"))


def set_with_it(program: Program, module: Module, asked: ast.expr, flags: dict[str, bool]) -> bool:
    """Whether what is asked for beside Apex is only ever true where Apex is: no option gives it, and what sets it stands in a branch
    for Apex."""
    parts = asked.values if isinstance(asked, ast.BoolOp) and isinstance(asked.op, ast.And) else [asked]
    wanted = [p.attr for p in parts if isinstance(p, ast.Attribute) and asks(p, flags) is None]
    if len(wanted) != 1:
        return False
    (name,) = wanted
    found = False
    spelled = {f"--{name}", f"--{name.replace('_', '-')}", name}
    for home in program.modules.values():
        near = any(text.lstrip("-") in home.text for text in spelled)
        if near and any(c.value in spelled for c in syntax.every(home.tree, ast.Constant)):
            return False  # an option, or a key
    for home in program.having(name):
        for stmt in syntax.every(home.tree, ast.Assign):
            if not any(isinstance(t, ast.Attribute) and t.attr == name for t in stmt.targets):
                continue
            if isinstance(stmt.value, ast.Constant) and not stmt.value.value:
                continue
            around = home.parents.get(stmt)
            if home is not module or not isinstance(around, ast.If) or stmt not in around.body:
                return False
            if asks(around.test, flags) is not True:
                return False
            found = True
    return found


def halved_without(module: Module, asked: ast.expr, call: ast.Call) -> ast.Call | None:
    """What makes a model half in the branch beside the set-up: `network_to_half(model)`, `model.half()`."""
    at = module.statement(asked)
    if not isinstance(at, ast.If):
        return None
    around = set(module.ancestors(call))
    other = at.orelse if any(s in around for s in at.body) or module.statement(call) in at.body else at.body
    calls = (c for s in other for c in syntax.every(s, ast.Call))
    return next((c for c in calls if syntax.last(c.func) in ("half", "network_to_half", "convert_network")), None)


def of_apex(name: str) -> bool:
    """Whether a name says that Apex is there: `HAS_APEX`, `is_apex_available`."""
    called = name.rpartition(".")[2].lower()
    return "apex" in called and ("has" in called or "avail" in called)


def beside_import(module: Module, node: ast.AST) -> bool:
    """Whether a binding stands in a `try` around an import of Apex: it says whether Apex is there."""
    return any(isinstance(at, ast.Try) and any(imports_apex(s) for s in at.body) for at in module.ancestors(node))


def tells(bindings: Sequence[ast.AST]) -> bool:
    """Whether what a name is given around an import of Apex says whether that is there: not `USE_AMP = False` with it and
    without."""
    values = [n.value.value for n in bindings if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)]
    return len(bindings) < 2 or len(values) < len(bindings) or len(set(map(repr, values))) > 1


def import_or_none(scope: Scope, name: str) -> ast.AST | None:
    """The one import that gives a name its value, where all else gives it None: `if fp16: from apex import amp`; where nothing
    else does, one of Apex."""
    imports = [n for n in scope.bindings[name] if isinstance(n, (ast.Import, ast.ImportFrom))]
    others = [n.value for n in scope.bindings[name] if isinstance(n, ast.Assign)]
    none = all(isinstance(v, ast.Constant) and v.value is None for v in others)
    alone = len(imports) == 1 and none and 1 + len(others) == len(scope.bindings[name])
    return imports[0] if alone and (others or imports_apex(imports[0])) else None


def caught(module: Module, node: ast.AST) -> bool:
    return any(isinstance(at, ast.ExceptHandler) for at in module.ancestors(node))


def imports_apex(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(a.name.split(".")[0] == "apex" for a in node.names)
    return isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "apex"


def on_or_off(program: Program, module: Module, value: ast.expr) -> bool | None:
    """What a switch is given, also one that is Apex itself, or None: `self.amp = amp`; or a test of torch's version."""
    if isinstance(value, ast.Constant):
        return bool(value.value) if value.value is None or isinstance(value.value, bool) else None
    apex = (program.dotted(module.scope_of(value), value) or "").startswith("apex.")
    return True if apex and isinstance(value, (ast.Name, ast.Attribute)) else by_version(module, value)
