"""Where Apex was never set up: code of programs beside the one that trains, which share its files and no call of
`initialize`, and modes of that program which pass it by. Nothing was ever cast there, so nothing has to run under autocast."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Sequence
from functools import cached_property

from amp_migrate.reading.conditions.chains import parting
from amp_migrate.reading.conditions.tests import opposite
from amp_migrate.reading.gradients.walked import leaves
from amp_migrate.reading.program.definitions import ClassInfo, Function, called_name
from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, Module, Scope
from amp_migrate.reading.program.processes import Imports, imported, when_run
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.roles import role
from amp_migrate.reading.program.signatures import is_public
from amp_migrate.reading.program.tree import reached, walk
from amp_migrate.reading.regions.returned import left_early
from amp_migrate.reading.switch.flags import asked_around
from amp_migrate.reading.units.set_ups import set_ups
from amp_migrate.reading.units.unit import Unit
from amp_migrate.reading.values.sources import Sources

KIND_ASKED = frozenset(["super", "isinstance", "issubclass"])
Place = Function | Scope
Call = tuple[Module, ast.Call]


class SetUp:
    """Asks for code of a program whether it may run in a process that came by an `initialize` of one unit."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.project: Project = unit.project
        self.places = set_ups(unit)
        self._by_start: dict[Module, bool] = {}
        self._left_out: dict[Scope, bool] = {}

    def never(self, scope: Scope) -> bool:
        """Whether all that leads to the code of a scope is known: scripts, tests and notebooks that never come by
        `initialize`, or modes of a program that pass it by."""
        scripts = self.project.once(Imports).scripts
        starts = self._starts(scope, self._calls_or_makers)
        if starts and all((run or m in scripts) and not self.comes_by(m) for m, run in starts):
            return True
        return self._passes_by(scope) == {True}

    def never_at(self, module: Module, node: ast.AST) -> bool:
        """The same of a node, which may stand in another branch than what leads to `initialize` in its own function."""
        scope = module.scope_of(node).outermost
        return self.passed_by(module, node) or (scope not in self._leads and self.never(scope))

    def passed_by(self, module: Module, node: ast.AST) -> bool:
        """Whether a place is not come to in a run that sets something up, as far as its own function tells: that stands in
        another branch, or runs in no process that begins here."""
        scope = module.scope_of(node).outermost
        leads = self._leads.get(scope)
        if leads is None:
            return self.in_demo(module, node)
        return all(self._either(module, node, lead) for lead in leads) and not self._led_to(scope)

    def in_demo(self, module: Module, node: ast.AST) -> bool:
        """Whether a place is come to only as a file is run that others import, and that run sets nothing up."""
        return module.scope_of(node).is_module and when_run(module, node) and not self.comes_by(module)

    def runs_at_load(self, module: Module) -> bool:
        """Whether what a file runs as it is loaded, or started, leads to `initialize`."""
        return bool(self._leads.get(module.root))

    def apart(self, module: Module, node: ast.AST) -> bool:
        """The same of a node that may also stand in what a file runs as it is loaded, which nothing in sight loads."""
        if self.never_at(module, node):
            return True
        loaded = bool(self.project.once(Imports).importers[module])
        return module.scope_of(node).outermost.is_module and not loaded and not self.comes_by(module)

    def left_out(self, scope: Scope) -> bool:
        """Whether some script, test or notebook, or a file that no set-up comes to, leads to the code of a scope and never
        comes by `initialize`; or a mode of a program that passes it by."""
        if scope not in self._left_out:
            scripts = self.project.once(Imports).scripts
            starts = self._starts(scope, self._calls)
            cast = self.unit.cast
            beside = (m for m, run in starts if run or m in scripts or m not in cast)
            by_some = any(not self.comes_by(m) for m in beside) or True in self._passes_by(scope)
            self._left_out[scope] = by_some or self.never(scope)
        return self._left_out[scope]

    def entered_alone(self, scope: Scope) -> bool:
        """Whether a function that sets nothing up leads to the code of a scope, and code out of sight, or a test, may begin with
        it."""

        def above(at: Scope) -> list[Scope]:
            return [] if leads(at) else [m.scope_of(c).outermost for m, c in self._calls(at)]

        def leads(at: Scope) -> bool:
            return at in self._leading or self.project.functions.get(at.node) in self._leading

        return any(self._begins(at) for at in reached([scope.outermost], above) if not leads(at))

    def begins_alone(self, function: Function) -> bool:
        """Whether code out of sight may begin with a function, which sets nothing up: nothing but tests calls it in sight."""
        called = any(not self.tested(m.scope_of(c)) for m, c in self._calls(function.scope))
        return self._is_open(function) and not called and function not in self._leading

    def _is_open(self, function: Function) -> bool:
        public = function.cls is None and is_public(self.project, function) and not self._kept(function)
        return public and not self.runs_at_load(function.module)

    def _begins(self, scope: Scope) -> bool:
        function = self.project.functions.get(scope.node)
        if function is None:
            return False
        if role(scope.module) == "test":  # each of which may be all that runs
            return function.name.startswith("test")
        return not self._calls(scope) and self._is_open(function)

    def tested(self, scope: Scope) -> bool:
        """Whether a scope is a test's own, which may run alone and sets nothing up."""
        return role(scope.module) == "test" and self._begins(scope.outermost) and self.entered_alone(scope)

    def _passes_by(self, scope: Scope) -> set[bool]:
        """Of each way to the code of a scope whether it passes every set-up of its program by, in another branch:
        `if mode == "train": train(model)` / `else: test(model)`. Code that nothing in sight runs is no such way."""
        found: set[bool] = set()
        queue, seen = [scope.outermost], {scope.outermost}
        while queue:
            current = queue.pop()
            function, calls = self.project.functions.get(current.node), self._calls(current)
            leads = current in self._leading or function in self._leading
            if function is None or leads or self._kept(function):
                return {False}
            if self._runs_alone(function):
                found.add(True)
            elif not calls:
                return {False}
            for module, call in calls:
                there = module.scope_of(call).outermost
                leads_here = (lead for lead in self._leads.get(there, ()) if lead is not call or _in_loop(module, call))
                leads_here = (lead for lead in leads_here if not self._of_another_class(module, function, call, lead))
                if any(not self._either(module, call, lead) for lead in leads_here):
                    found.add(False)
                elif self.project.functions.get(there.node) in self._leading or there in self._leading:
                    found.add(not self._led_to(there))
                elif there not in seen:
                    seen.add(there)
                    queue.append(there)
        return found

    def _of_another_class(self, module: Module, method: Function, call: ast.Call, lead: ast.AST) -> bool:
        """Whether a method that a call runs and one that leads to `initialize` are called on one object, and those of its class
        lead there by none: `solver.set_up()` and `solver.run()`, where `Solver` is imported here or there."""
        named = [c.func for c in (call, lead) if isinstance(c, ast.Call) and isinstance(c.func, ast.Attribute)]
        holders = [f.value.id for f in named if isinstance(f.value, ast.Name)]
        if method.cls is None or len(holders) < 2 or holders[0] != holders[1]:
            return False
        owner = module.scope_of(call).lookup(holders[0])
        bound = owner.bindings.get(holders[0], []) if owner is not None else []
        if len(bound) != 1 or _in_loop(module, bound[0]):
            return False
        kinds = [c for c in method.cls.descendants() if c.method(method.name) is method]
        run = [c.method(named[1].attr) for c in kinds]
        return bool(run) and self._leading.isdisjoint(f for f in run if f is not None)

    def _runs_alone(self, function: Function) -> bool:
        """Whether a function is a command, and what it is a command of sets nothing up: a run of it comes by no other."""
        named = (n for d in function.node.decorator_list for n in walk(d) if isinstance(n, ast.Name))
        around = {d for name in named for d in self.project.definitions(function.module, name)}
        return function.is_command and around.isdisjoint(place.node for place in self._leading)

    def _led_to(self, scope: Scope) -> bool:
        """Whether a function that leads to `initialize` may run again once it has, or after another that does."""
        for current in reached([scope], lambda at: [m.scope_of(c).outermost for m, c in self._calls(at)]):
            function = self.project.functions.get(current.node)
            if function is not None and self._kept(function):
                return True
            for module, call in self._calls(current):
                others = [lead for lead in self._leads.get(module.scope_of(call).outermost, ()) if lead is not call]
                if _in_loop(module, call) or any(not self._either(module, call, lead) for lead in others):
                    return True
        return False

    def _either(self, module: Module, one: ast.AST, other: ast.AST) -> bool:
        """Whether a run does not come to one place once it has come to another, by where they stand or by what is asked there:
        `if args.do_train:` and, below, `if not args.do_train and args.do_eval:`."""
        if _stand_apart(module, one, other):
            return True
        asked, excluded = ({*asked_around(self.project, module, node)} for node in (one, other))
        if any(opposite(p, q) and _stays(module, p, one, other) for p in asked for q in excluded):
            return True
        return isinstance(other, ast.Call) and self._left_early(module, one, other)

    def _left_early(self, module: Module, node: ast.AST, lead: ast.Call) -> bool:
        """Whether a call that leads to `initialize` has left what it runs before that, in each run that comes to a node."""
        ran = [f for f in self.project.resolved.get(lead, ()) if f in self._leading]
        within = [(f, inner) for f in ran for inner in self._leads.get(f.scope, ())]
        return bool(within) and all(
            left_early(self.project, module, node, lead, function, inner, _stays) for function, inner in within
        )

    def _kept(self, function: Function) -> bool:
        """Whether a function is a value that may be called anywhere, and not only what processes begin with."""
        sources = self.project.once(Sources)
        return sources.is_value(function) and not sources.only_starts_processes(function)

    def _calls(self, scope: Scope) -> Sequence[Call]:
        """The calls of the function that a scope is."""
        function = self.project.functions.get(scope.node)
        return self.project.calls.get(function, ()) if function is not None else ()

    def _calls_or_makers(self, scope: Scope) -> Sequence[Call]:
        """The calls of the function that a scope is; of a method that nothing in sight calls, what makes its objects: but for
        its objects themselves, one of which something else has made."""
        calls = self._calls(scope)
        function = self.project.functions.get(scope.node)
        if calls or function is None or function.cls is None or function.name == "__init__":
            return calls
        sources = self.project.once(Sources)
        classes = function.cls.descendants()
        if any(cls.node.decorator_list or sources.is_value(cls) for cls in classes):
            return calls
        own = {*classes, *function.cls.ancestry()}
        made = (at for cls in classes for at in sources.made(cls))
        return [(module, call) for module, call in made if self.project.class_around(module.scope_of(call)) not in own]

    @cached_property
    def _leads(self) -> dict[Scope, list[ast.AST]]:
        """The calls in each scope that lead to `initialize`, or are one."""
        found: dict[Scope, list[ast.AST]] = {}
        for module, call in self.places:
            found.setdefault(module.scope_of(call).outermost, []).append(call)
        for place in self._leading:
            for module, call in self.project.calls.get(place, ()) if isinstance(place, Function) else ():
                found.setdefault(module.scope_of(call).outermost, []).append(call)
        return found

    def _starts(self, scope: Scope, calls_of: Callable[[Scope], Sequence[Call]]) -> set[tuple[Module, bool]]:
        """The modules in which the chains of calls begin that lead to a scope, and whether only where they are run."""

        def run(module: Module, call: ast.Call) -> bool:
            return module.scope_of(call).is_module and when_run(module, call)

        def above(at: Scope) -> list[Scope]:
            return [m.scope_of(c).outermost for m, c in calls_of(at) if not run(m, c)]

        found: set[tuple[Module, bool]] = set()
        for current in reached([scope.outermost], above):
            function, calls = self.project.functions.get(current.node), calls_of(current)
            if function is not None and self.project.once(Sources).is_value(function):
                found.add((current.module, False))
            elif not calls:
                found |= {(m, False) for m in self._could_call(current, function)}
            found |= {(m, True) for m, c in calls if run(m, c)}
        return found

    def _could_call(self, scope: Scope, function: Function | None) -> set[Module]:
        """The files that may yet call what nothing calls: those that import it, or else its file, where all of them are scripts."""
        known = self.project.once(Imports)
        importers = known.importers[scope.module] if function is not None and function.cls is None else set[Module]()
        naming = {m for m in importers if function is not None and _imports(m, function.name)} or importers
        return naming if naming and naming <= known.scripts else {scope.module}

    @cached_property
    def _leading(self) -> set[Place]:
        """All from which a call of `initialize` is reached."""
        found: set[Place] = set()
        for module, call in self.places:
            scope = module.scope_of(call).outermost
            function = self.project.functions.get(scope.node)
            found |= {scope} if function is None else self.project.callers(function)
        return found

    def comes_by(self, start: Module) -> bool:
        """Whether a process that begins with a module may come by `initialize`: something of the module leads there, or
        some file that it loads keeps as a value, or calls in a way that cannot be followed, what does."""
        if start not in self._by_start:
            inside = any((p.module if isinstance(p, (Function, Scope)) else None) is start for p in self._leading)
            loaded = imported(self.project, start)
            self._by_start[start] = inside or any(
                self._mentions(module, place, module is start)
                for place in self._leading
                if isinstance(place, Function)
                for module in loaded
            )
        return self._by_start[start]

    def _mentions(self, module: Module, function: Function, run: bool) -> bool:
        """Whether a file, which is `run` or only loaded, uses a function in a way that is no call in sight."""
        if function.cls is not None and function.name == "__init__":
            return any(self._makes(module, cls, run) for cls in function.cls.descendants())
        for node in _named(module, function.name):
            if self.project.functions.get(module.scope_of(node).outermost.node) in self._leading:
                continue
            if not run and when_run(module, node):
                continue
            if function.node in self.project.definitions(module, node):
                return True
            call = module.parents.get(node)
            if function.cls is None or not isinstance(node, ast.Attribute):
                continue
            if not isinstance(call, ast.Call) or call.func is not node or not self.project.resolved.get(call):
                return True
        return False

    def _makes(self, module: Module, cls: ClassInfo, run: bool) -> bool:
        """Whether a file, which is `run` or only loaded, uses a class other than in what leads to `initialize` anyway."""
        return any(
            cls.node in self.project.definitions(module, node)
            for node in _named(module, cls.name)
            if self.project.functions.get(module.scope_of(node).outermost.node) not in self._leading
            and (run or not when_run(module, node))
            and not _says_kind(module, node)
        )


def _says_kind(module: Module, node: ast.AST) -> bool:
    """Whether a class is named as what another derives from, or is asked to be: that makes no object of it."""
    parent = module.parents.get(node)
    if isinstance(parent, ast.ClassDef):
        return node in parent.bases
    return isinstance(parent, ast.Call) and node in parent.args and called_name(parent) in KIND_ASKED


def _imports(module: Module, name: str) -> bool:
    return any(path.rpartition(".")[2] == name for scope in module.scopes.values() for path in scope.imports.values())


def _named(module: Module, name: str) -> list[ast.AST]:
    """Where a file has a word, as a name or as an attribute."""
    return [*module.loads.get(name, ()), *module.named.get(name, ())]


def _stand_apart(module: Module, one: ast.AST, other: ast.AST) -> bool:
    """Whether a run does not come to one place once it has come to another: they stand in the two branches of one `if`, or one
    in a branch that ends by leaving the function, above the other, and no loop comes to the `if` again; or it stands above
    the other, in no loop with it."""
    apart = any(not _in_loop(module, test) for test in parting(module, one, other))
    apart = apart or _leaves_above(module, one, other) or _leaves_above(module, other, one)
    return apart or _comes_first(module, one, other)


def _comes_first(module: Module, one: ast.AST, other: ast.AST) -> bool:
    """Whether a place stands above another in one body, and no loop holds both."""
    if module.scope_of(one) is not module.scope_of(other):
        return False
    first, second = module.statement(one), module.statement(other)
    if (first.end_lineno or first.lineno) >= second.lineno:
        return False
    around = {a for a in module.ancestors(one) if isinstance(a, LOOP_NODES)}
    return around.isdisjoint(module.ancestors(other))


def _leaves_above(module: Module, one: ast.AST, other: ast.AST) -> bool:
    """Whether a place stands in a branch that leaves the function before another place is reached."""
    around = [one, *module.ancestors(one)]
    for below, above in itertools.pairwise(around):
        if isinstance(above, FUNCTION_NODES):
            return False
        if isinstance(above, ast.If) and (above.end_lineno or above.lineno) < module.statement(other).lineno:
            branch = next((b for b in (above.body, above.orelse) if below in b), None)
            if _in_loop(module, above):
                return False
            if branch and (isinstance(branch[-1], (ast.Return, ast.Raise)) or leaves(module, branch[-1])):
                return True
    return False


def _stays(module: Module, test: str, one: ast.AST, other: ast.AST) -> bool:
    """Whether what a condition reads is the same at two places of a function, in every turn of a loop around both."""
    tree = ast.parse(test, mode="eval").body
    if any(isinstance(n, ast.Call) for n in walk(tree)):
        return False
    read = {ast.unparse(n) for n in walk(tree) if isinstance(n, (ast.Name, ast.Attribute))}
    around = [a for a in module.ancestors(one) if isinstance(a, LOOP_NODES) and a in module.ancestors(other)]
    first = min(n.lineno for n in (*around, one, other))  # type: ignore[attr-defined]
    last = max(getattr(n, "end_lineno", 0) for n in (*around, one, other))
    stored = (
        n
        for n in walk(module.scope_of(one).node)
        if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, (ast.Store, ast.Del))
    )
    return not any(first <= n.lineno <= last and ast.unparse(n) in read for n in stored)


def _in_loop(module: Module, node: ast.AST) -> bool:
    for above in module.ancestors(node):
        if isinstance(above, FUNCTION_NODES):
            return False
        if isinstance(above, LOOP_NODES):
            return True
    return False
