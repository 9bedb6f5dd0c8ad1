"""The ways that lead to a place: from the code that a process starts with, call by call, and under which tests."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.near import Loaded
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.rerun import run_by, run_there
from amp_migrate.audit.program.stopping import stops_at
from amp_migrate.audit.sites.forwards import Forwards
from amp_migrate.audit.values.names import bound, calls_by_name, last_name
from amp_migrate.audit.ways.receivers import Receiver, Receivers
from amp_migrate.audit.ways.shares import in_turn
from amp_migrate.audit.ways.texts import start_of_method
from amp_migrate.audit.ways.within import Tests, may_follow, tests_around

MOST = 24  # ways to one place that are looked at
DEEPEST = 9


@dataclass(frozen=True, eq=False)
class Step:
    """One place on a way: a call, and at last the place itself. `value`: the function is only handed on here. `in_lambda`: it
    stands in a lambda of its function, which the call before it runs."""

    module: Module
    function: Function | None  # None: code of the module itself
    node: ast.AST
    value: bool = False
    in_lambda: bool = False

    @property
    def called(self) -> Function | None:
        """The function that the call before it runs, and fills the parameters of."""
        return self.function if not self.in_lambda else None

    @property
    def begins_process(self) -> bool:
        """Whether the function is handed on for another process to run: `Process(target=work)`, `mp.spawn(work, ...)`."""
        taker = self.module.parents.get(self.node)
        call = self.module.parents.get(taker) if isinstance(taker, ast.keyword) and taker.arg == "target" else taker
        starts = isinstance(call, ast.Call) and last_name(call.func) in ("spawn", "start_processes", "Process")
        return self.value and starts  # a thread shares this one


@dataclass(frozen=True, eq=False)
class Chain:
    """One way, the start first. `open`: it starts with a function that nothing in sight calls, and that is no command."""

    steps: tuple[Step, ...]

    @property
    def start(self) -> Step:
        return self.steps[0]

    @cached_property
    def open(self) -> bool:
        return self.start.function is not None and not self.command

    @property
    def command(self) -> bool:
        """Whether it starts with a command of a command line (click, typer): of these one runs in a process."""
        return self.start.function is not None and is_command(self.start.function)

    @property
    def place(self) -> Step:
        return self.steps[-1]

    def ending(self, node: ast.AST) -> Chain:
        """The way that comes to another place of the body it ends in."""
        return Chain((*self.steps[:-1], replace(self.place, node=node)))

    @kept
    def part(self, start: int) -> Chain:
        """The way from one of its steps on."""
        return Chain(self.steps[start:])


class Chains:
    """Ways in one state of a program. `complete(node)` tells whether all of them were followed."""

    def __init__(self, program: Program, forwards: Forwards) -> None:
        self.program = program
        self.forwards = forwards
        self.receivers = Receivers(forwards.values)
        self._loaded = Loaded(program)

    @kept
    def to(self, module: Module, node: ast.AST) -> tuple[Chain, ...]:
        found: list[Chain] = []
        self._up(module, node, (), found, False, None)
        return tuple(found)

    def _up(
        self,
        module: Module,
        node: ast.AST,
        below: tuple[Step, ...],
        found: list[Chain],
        value: bool,
        classes: frozenset[Class] | None,
    ) -> None:
        """`classes`: of which the object is whose method this is in, by what comes further down."""
        if len(found) >= MOST:
            return
        function = module.function_around(node)
        held = _lambda_around(module, node)
        calling = self._calling(module, held) if held is not None else []
        steps = (Step(module, function, node, value, bool(calling)), *below)
        if function is None and not calling:
            if self._one_process(steps):
                found.append(Chain(steps))
            return
        mine = steps[0].called  # one that calls itself ends; a lambda may be called by the function that it stands in
        if len(steps) > DEEPEST or any(s.node is node or (mine is not None and s.called is mine) for s in below):
            return
        for caller, call in calling:
            self._up(caller, call, steps, found, False, None)
        if calling or function is None:
            return
        callers = [*self.program.callers(function), *self.forwards.callers(function)]
        callers = callers or self.on_objects(function) or self._by_name(function)
        callers = [(m, call) for m, call in callers if stops_at(self.program, m) is None]
        classes = self.receivers.having(function) if classes is None else classes
        each: list[list[Chain]] = []
        for caller, call in callers:
            if not below and sum(map(len, each)) > 4 * MOST:
                break
            on = self.receivers.of(caller, call, function, classes) if classes is not None else None
            if on is None or on.classes:
                each.append(found if below else [])
                self._up(caller, call, steps, each[-1], False, on.classes if on is not None and on.own else None)
        found += in_turn([ways for ways in each if ways is not found], MOST - len(found))
        if not each:
            mentions = self.mentions(function)
            for caller, expr in mentions[:3]:
                runs = run_there(self.program, caller, expr)
                self._up(caller, runs or expr, steps, found, runs is None, None)
            taken = self._taken_by(function) if not mentions else None
            if taken is not None:
                self._up(module, taken, steps, found, True, None)
            elif not mentions:
                found.append(Chain(steps))

    def _taken_by(self, function: Function) -> ast.expr | None:
        """The decorator that hands a function on which nothing else names: `@trainer.on(event)`. One within another function
        is run by what decorators make of it, or never; of the others, only what an object of the file takes."""
        scope = function.scope.parent
        if scope is None or function.owner is not None or is_command(function):
            return None
        for decorator in function.node.decorator_list:
            if scope.function is not None:
                return decorator
            func = decorator.func if isinstance(decorator, ast.Call) else decorator
            on = func.value if isinstance(func, ast.Attribute) else None
            if isinstance(on, ast.Name) and any(isinstance(b, ast.Assign) for b in scope.bindings.get(on.id, ())):
                return decorator
        return None

    @kept
    def _calling(self, module: Module, held: ast.Lambda) -> list[tuple[Module, ast.Call]]:
        """The calls of a lambda, by a name that it is kept under where it is made."""
        return [
            (where, call)
            for where, call in calls_by_name(self.program, module, held)
            if any(bound(o.node) is held for o in self.forwards.values.origins(where.scope_of(call), call.func))
        ]

    @kept
    def called_on(self, chain: Chain) -> tuple[Receiver | None, ...]:
        """Step by step, the object on which a call of a way runs the method that comes next; None where it runs none."""
        found: list[Receiver | None] = [None]
        for step, after in zip(chain.steps[-2::-1], chain.steps[:0:-1], strict=True):
            later = found[-1]
            classes = later.classes if later is not None and later.own else None
            if classes is None and after.function is not None and not step.value:
                classes = self.receivers.having(after.function)
            on = None
            if classes is not None and after.function is not None and not step.value:
                on = self.receivers.of(step.module, step.node, after.function, classes)
            found.append(on)
        return tuple(reversed(found))

    @kept
    def objects(self, chain: Chain) -> frozenset[Class] | None:
        """The classes of which the object is in whose method a way ends; None where it ends in none."""
        function = chain.place.function
        classes = self.receivers.having(function) if function is not None else None
        for on in self.called_on(chain)[-2::-1]:
            if on is None:
                break
            classes = on.classes
            if not on.own:
                break
        return classes

    @kept
    def making(self, chain: Chain, cls: Class) -> tuple[int, Module, ast.Call] | None:
        """The one call that makes the object, of a class, by whose methods a way comes in the end; and the step of the way that
        names the object."""
        calls = list(zip(chain.steps, self.called_on(chain), chain.steps[1:], strict=False))
        for at, (step, on, after) in reversed(list(enumerate(calls))):
            owner = after.function.owner if after.function is not None else None
            if on is None or on.own or owner is None or cls not in self.program.family(owner):
                continue
            if not isinstance(step.node, ast.Call) or not isinstance(step.node.func, ast.Attribute):
                return None
            found = list(self.forwards.values.origins(step.module.scope_of(step.node), step.node.func.value))
            made = found[0] if len(found) == 1 and not found[0].path else None
            return (at, made.module, made.node) if made is not None and isinstance(made.node, ast.Call) else None
        return None

    def as_script(self, step: Step) -> bool:
        """Whether a place is what a file does only when it is run itself."""
        return any("__name__" in syntax.text(test) for test, _ in self.tests(step.module, step.node))

    def may_load(self, start: Step, module: Module) -> bool:
        """Whether a process that starts at a place may have loaded a file: a script has what it imports."""
        loaded = self._loaded.of(start.module) if self.as_script(start) else None
        return loaded is None or module in loaded

    def _one_process(self, steps: tuple[Step, ...]) -> bool:
        """Whether a script loads all files that a way comes by: what another one makes is none of its objects."""
        return all(self.may_load(steps[0], s.module) for s in steps)

    def certain(self, chain: Chain) -> bool:
        """Whether each call of a way surely runs the function that comes next, not only one of that name."""
        for step, after in zip(chain.steps, chain.steps[1:], strict=False):
            if step.value or not isinstance(step.node, ast.Call) or after.called is None:
                continue
            scope = step.module.scope_of(step.node)
            called = run_by(self.program, scope, step.node) or step.node.func
            found = self.program.definitions(scope, called, guess=False)
            functions = {d for d in found if isinstance(d, Function)}
            functions |= {f for d in found if not isinstance(d, Function) for f in self.program._method(d, "__init__")}
            if after.called not in functions and step.node not in {c for _, c in self.forwards.callers(after.called)}:
                if not self._of_class(step.module, step.node, after.called):
                    return False
        return True

    def _of_class(self, module: Module, call: ast.Call, function: Function) -> bool:
        """Whether a method is called on what is seen to be made as an object of its class."""
        func = call.func
        if not isinstance(func, ast.Attribute) or function.owner is None:
            return False
        return function in self.forwards.values.methods(module.scope_of(call), func.value, function.name)

    def on_objects(self, function: Function) -> list[tuple[Module, ast.Call]]:
        """The calls of a method, also of one that many classes have, on objects that are seen to be made of its class:
        `task.train()`."""
        if function.owner is None or function.name.startswith("__"):
            return []
        return [
            (module, call)
            for module in self.program.having(function.name)
            for call in module.calls_named.get(function.name, ())
            if self._of_class(module, call, function)
        ]

    def _by_name(self, function: Function) -> list[tuple[Module, ast.Call]]:
        """The calls by which a class runs whichever of its methods has a name that is put together: `getattr(self, kind)(x)`."""
        if function.owner is None:
            return []
        return [
            (cls.module, call)
            for cls in self.program.family(function.owner)
            for call, start in self._choosing(cls)
            if function.name.startswith(start)
        ]

    @kept
    def _choosing(self, cls: Class) -> list[tuple[ast.Call, str]]:
        calls = [c for c in cls.module.calls() if isinstance(c.func, ast.Call)] if "self" in cls.module.words else []
        starts = [(c, start_of_method(c.func)) for c in calls]
        return [
            (c, start)
            for c, start in starts
            if start is not None and (f := cls.module.function_around(c)) is not None and f.owner is cls
        ]

    @kept
    def made_for_libraries(self, owner: Class) -> list[Chain]:
        """The ways to where objects of a class are made whose methods a library may run, for the base that it has of it: it
        has such an object only from there on."""
        if all(base.partition(".")[0] in ("torch", "object") for base in self.program.external_bases(owner)):
            return []
        return [
            way
            for cls in (owner, *self.program.below(owner))
            for module in self.program.having(cls.name)
            for call in module.calls_named.get(cls.name, ())
            if cls in self.program.definitions(module.scope_of(call), call.func, guess=False)
            for way in self.to(module, call)
        ]

    @kept
    def mentions(self, function: Function) -> list[tuple[Module, ast.expr]]:
        return self.program.mentions(function)

    @kept
    def tests(self, module: Module, node: ast.AST) -> Tests:
        """What must have come out how for a node to run within its function: enclosing tests, and those that leave."""
        return tests_around(module, node)

    def _of_others(self, scope: Scope, node: ast.AST, classes: frozenset[Class]) -> bool:
        """Whether a statement gives a name an object that is seen to be of none of these classes."""
        made = self.receivers.made(scope, node.value) if isinstance(node, ast.Assign) else None
        return made is not None and made.isdisjoint(classes)

    def held(self, module: Module, node: ast.AST, on: Receiver | None = None) -> Tests:
        """What must have come out how for a call to find the object it is called on: the tests around the one place of its
        body that assigns it, or one of the class that is called, without which the run fails before it comes here."""
        name = node.func if isinstance(node, ast.Call) else None
        while isinstance(name, ast.Attribute):
            name = name.value
        scope = module.scope_of(node)
        if not isinstance(name, ast.Name) or scope.binder(name.id) is not scope:
            return []
        bound = [b for b in scope.bindings[name.id] if not _again(b, name.id)]
        if on is not None and len(bound) > 1:
            bound = [b for b in bound if not self._of_others(scope, b, on.classes)]
        one = bound[0] if len(bound) == 1 else None
        if not isinstance(one, ast.Assign) or module.scope_of(one) is not scope:
            return []
        return self.tests(module, one)


def _lambda_around(module: Module, node: ast.AST) -> ast.Lambda | None:
    """The lambda of its function that a place stands in: what is called there runs where that is called."""
    opening = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)
    opened = next((n for n in module.ancestors(node) if isinstance(n, opening)), None)
    return opened if isinstance(opened, ast.Lambda) else None


def as_written(chain: Chain) -> bool:
    """Whether a way goes by calls of names that are given one thing, with arguments that are seen: not `run = train` and
    `run = print` below, nor `train(**given)`."""
    return all(_by_one_name(step) for step in chain.steps)


def _by_one_name(step: Step) -> bool:
    if not isinstance(step.node, ast.Call):
        return True
    func = step.node.func
    scope = step.module.scope_of(step.node).binder(func.id) if isinstance(func, ast.Name) else None
    several = scope is not None and isinstance(func, ast.Name) and len(scope.bindings.get(func.id, ())) > 1
    return not several and not any(k.arg is None for k in step.node.keywords)


@kept
def is_command(function: Function) -> bool:
    """Whether a function is a command of a command line: `@cli.command()`, `@click.command`, `@app.command("train")`."""
    if "chain=True" in function.module.text:  # commands of click that run one after another
        return False
    made = [d.func if isinstance(d, ast.Call) else d for d in function.node.decorator_list]
    return any(isinstance(m, ast.Attribute) and m.attr == "command" and isinstance(m.value, ast.Name) for m in made)


def is_test(function: Function | None) -> bool:
    """Whether pytest runs a function, in a process that comes by no set-up but its own: a test, or whatever else stands beside
    tests in a folder of them."""
    if function is None:
        return False
    path = PurePosixPath(function.module.path)
    beside = path.parent.name in ("test", "tests")
    return (path.stem.startswith("test_") or path.stem.endswith("_test")) and (
        beside or function.name.startswith("test")
    )


def _again(node: ast.AST, name: str) -> bool:
    """Whether a name is assigned what is made of it: `model = DataParallel(model)`."""
    if not isinstance(node, ast.Assign):
        return False
    return any(n.id == name for n in syntax.every(node.value, ast.Name))


def comes_after(chain: Chain, first: Chain) -> bool | None:
    """Whether a way may come to its end after another one came to its own, where both begin alike; None where they do not."""
    for one, other in zip(first.steps, chain.steps, strict=False):
        if one.function is not other.function or one.module is not other.module:
            return None
        if one.node is not other.node:
            later = may_follow(one.module, one.node, other.node)
            return later or (other.value and may_follow(one.module, other.node, one.node))
    return None
