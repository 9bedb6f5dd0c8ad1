"""How each piece of code reaches the GradScaler of its unit.

In this order: a name in sight; `self.scaler` beside `self.optimizer`; a parameter next to the optimizer, added to each
function on the way and to every call found; the object that carries the optimizer.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cached_property

from amp_migrate.reading.program.definitions import ClassInfo, Function, dotted
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope
from amp_migrate.reading.program.processes import when_run
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.scaler.amp_kept import (
    entry_held,
    given_handle,
    given_local,
    given_sometimes,
    object_held,
    without_entry,
)
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.scaler.keepers import Keepers
from amp_migrate.reading.switch.elsewhere import visible
from amp_migrate.reading.switch.said_by import said_by
from amp_migrate.reading.units.unit import Blocked, Init, NeverOn, Unit
from amp_migrate.reading.values.bound import bound_before
from amp_migrate.reading.values.sources import Sources


class ScalerPlan(Keepers):
    """Homes and paths of one unit's scaler. Asking `at(...)` records what has to be threaded."""

    def __init__(self, unit: Unit, name: str = "scaler", optimizer: str = "") -> None:
        super().__init__(unit, name, optimizer)
        self.what = "the scaler"  # for the report
        self.seen: Callable[[Module, ast.AST], str | None] | None = (
            None  # how a switch reads where it can be evaluated anew
        )
        self.never: Callable[[Module, ast.AST], bool] | None = None  # where a switch is off in any case, and left out
        self.created: list[Home] = []  # the homes whose creation is written
        self.unread: list[Home] = []  # those whose creation was taken back, since nothing reads what it makes
        self.served: dict[Init, Home] = {}  # the earlier home whose scaler serves where a call stood
        self.reads: dict[
            Scope, list[tuple[Module, ast.AST]]
        ] = {}  # by the scope of the home, where its variable is read
        self.given: set[tuple[ast.Call, str]] = set()  # calls that pass it already
        self.key: Callable[[str], str] = lambda name: name  # what an entry is called then that held amp
        self.locals: dict[tuple[Scope, str], None] = {}  # the variables that take it over from amp
        self.keys_asked: set[str] = set()  # the keys under which mappings had amp, where they are asked for it
        self.declared: dict[str, None] = {}  # the fields of what functions are given

    def at(self, module: Module, node: ast.AST, optimizer: ast.expr | None = None) -> str:
        """The expression that gives the scaler where a node stands.

        Raises Blocked where it cannot be handed there.
        """
        scope = module.scope_of(node)
        if isinstance(node, FUNCTION_NODES):
            scope = module.scopes[node]
        self._asked = self.project.functions.get(scope.outermost.node)
        carrier = self._carrier(module, optimizer)
        return carrier or self._reach(module, scope, node)

    def _carrier(self, module: Module, optimizer: ast.expr | None) -> str | None:
        """`trainer.scaler` for an optimizer written `trainer.optimizer`, where Trainer keeps the scaler."""
        if isinstance(optimizer, ast.Attribute) and not isinstance(optimizer.value, ast.Call):
            stepped = self.unit.wrapped_steps.values()  # themselves, by the scaler
            classes = [c for c in self.project.classes_of(module, optimizer.value) if c not in stepped]
            carrying = [c for c in classes if self.kept_by(c)]
            if carrying and len(carrying) < len(classes):
                raise Blocked(
                    module,
                    optimizer,
                    "AMP213",
                    "GradScaler",
                    f"{module.source(optimizer.value)} may be of any of the classes {', '.join(c.name for c in classes)}, "
                    "and these do not all keep the scaler: hand it over yourself",
                )
            if carrying:
                return f"{module.source(optimizer.value)}.{self.base_name}"
            if isinstance(optimizer.value, ast.Name) and self._hooked(module, optimizer.value):
                return f"{optimizer.value.id}.{self.base_name}"
        return None

    def _hooked(self, module: Module, holder: ast.Name) -> bool:
        """Whether a name is the parameter of a hook, a method that only a framework calls, and stands for the object of
        the framework that was given the optimizer under that name: `runner` in `after_train_iter(self, runner)`."""
        owner = module.scope_of(holder).lookup(holder.id)
        function = self.project.functions.get(owner.node) if owner is not None else None
        if function is None or function.cls is None or holder.id not in function.positional:
            return False
        if self.project.calls.get(function):
            return False
        if self._is_own_runner(holder.id):
            return True
        return self._extends_framework(function.cls) and self._hand_to(lambda name: name == holder.id)

    def _is_own_runner(self, name: str) -> bool:
        """Whether an object of that name, made where mixed precision is set up, is of classes of the program that keep the
        optimizer and hand themselves to methods which they look up by name: `getattr(hook, "after_step")(self)`."""
        scopes = [home.scope for home in self.homes if home.kind == "local" and not home.carrier]
        classes = {c for scope in scopes for c in self.project.instances.get(Slot(scope, name), ())}
        return bool(classes) and all(_hands_itself_on(c) and self.kept_by(c) for c in classes)

    def _hand_to(self, wanted: Callable[[str], bool]) -> bool:
        """Give the scaler to the objects out of sight that are given the optimizer, where they have a wanted name."""
        found = False
        for home in self.homes:
            if home.kind != "local" or home.carrier:
                continue
            module = home.scope.module
            for call, scope in module.calls:
                stmt = module.parents[call]
                if scope is not home.scope or not isinstance(stmt, ast.Assign) or call.lineno < home.anchor.lineno:
                    continue
                target = stmt.targets[0]
                if not isinstance(target, ast.Name) or not wanted(target.id) or self.project.callees(module, call):
                    continue
                if self.project.find_class(module, call.func) is None and self._given_optimizer(module, call):
                    value = self._local(home.scope)
                    self.attributes[stmt] = (module, f"{target.id}.{self.base_name}", value)
                    found = True
        return found

    def _given_optimizer(self, module: Module, call: ast.Call) -> bool:
        values = [*call.args, *(k.value for k in call.keywords)]
        values += [k.value for v in values if isinstance(v, ast.Call) for k in v.keywords]  # default_args=dict(...)
        slots = {self.project.slot(module, v) for v in values if isinstance(v, (ast.Name, ast.Attribute))}
        return bool(slots & self.unit.optimizer_slots)

    def _reach(self, module: Module, scope: Scope, node: ast.AST) -> str:
        if self.never is not None and self.never(module, node):
            raise NeverOn(module, node, "AMP213", "GradScaler", "no run that comes here sets mixed precision up")
        if self.seen is not None and module in self.unit.reach and (text := self.seen(module, node)) is not None:
            return text
        chain = list(scope.chain())
        for home in self.homes:
            if (
                home.carrier
                and visible(self.project, home.carrier, home.scope, scope)
                and not self._on_own(scope, node)
            ):
                return f"{home.carrier}.{self.base_name}"
            if home.kind == "local" and not home.carrier and home.scope in chain:
                if home.idle and not self.optional:
                    message = "nothing is trained where this is called, so there is no scaler"
                    raise Blocked(module, node, "AMP213", "GradScaler", message)
                if home.scope.is_module and (held := self._where_amp_was(module, scope, node)) is not None:
                    return held
                outermost = self.project.functions.get(scope.outermost.node) if home.scope.is_module else None
                # A function that is handed `amp` or its handle already; or a switch that whoever imports the file lacks.
                lacking = self.optional and when_run(home.scope.module, home.anchor)
                lacking = lacking or (outermost is not None and self._run_before(outermost))
                lacking = lacking or (outermost is not None and self._sometimes_never(outermost))
                if outermost is not None and (lacking or self.amp_parameter(outermost) is not None):
                    return self._thread(outermost, node)
                self.reads.setdefault(home.scope, []).append((module, node))
                return self._local(home.scope)
        cls = self.project.class_of(scope)
        own = self.project.functions.get(scope.node)
        if own is not None and self._hands_on(own, node):
            return self._thread(own, node)
        if cls is not None and not self._without_object(scope, node):
            if self.kept_by(cls):
                return self._of_object(cls, scope)
            named = " ".join([cls.name, *(n.rpartition(".")[2] for n in cls.base_names)]).lower()
            if self._extends_framework(cls) and self._hand_to(lambda name: name.lower() in named):
                return f"{scope.self_name}.{self.base_name}"  # a runner of the project's own
        holder = self._where_amp_was(module, scope, node) or self.holder(module, scope, node)
        if holder is not None:
            return holder
        function = self.project.functions.get(scope.outermost.node)
        if function is None:
            raise Blocked(
                module,
                node,
                "AMP213",
                "GradScaler",
                "the scaler would have to be handed over here, at module level, and is created inside a function",
            )
        return self._thread(function, node)

    def _sometimes_never(self, function: Function) -> bool:
        """Whether a switch is off in any case at some calls of a function, and what they share cannot tell."""
        calls = self.project.calls.get(function, ())
        return self.never is not None and any(self.never(module, call) for module, call in calls)

    def _on_own(self, scope: Scope, node: ast.AST) -> bool:
        """Whether the object of a method has the scaler, whatever variable of that name the file has for it."""
        return self.keeps(self.project.class_of(scope)) and not self._without_object(scope, node)

    def _where_amp_was(self, module: Module, scope: Scope, node: ast.AST) -> str | None:
        """The scaler where a function finds `amp`: in a field of its object, a mapping, a variable. It takes the same way."""
        if self.optional or not self.alone or not (self.project.passed_modules or self.unit.handle_slots):
            return None
        cls = self.project.class_of(scope)
        if cls is not None and self._fields_held(cls) and not self._without_object(scope, node):
            if self.kept_by(cls):
                return self._of_object(cls, scope)
        local = given_local(self.project, scope) or given_handle(self.project, scope, self.unit.handle_slots)
        if local is not None:
            self.locals[local] = None
            return self.name_in(local[0])
        if not scope.is_function:
            return None
        if (entry := entry_held(self.project, scope)) is not None:
            if (lacking := without_entry(self.project, scope, *entry)) is not None:
                raise Blocked(
                    *lacking, "AMP213", "GradScaler", f"this hands over no {entry[1]!r}, where the scaler is then"
                )
            quote = '"' if module.prefers_double else "'"
            self.keys_asked.add(entry[1])
            return f"{entry[0]}[{quote}{self.key(entry[1])}{quote}]"
        if (held := object_held(self.project, scope)) is not None:
            self.declared[held[1]] = None
            return f"{held[0]}.{self.base_name}"
        return None

    def _without_object(self, scope: Scope, node: ast.AST) -> bool:
        """Whether the fields of its object cannot be asked where a node stands: in a class method there is none, and a call of
        the `__init__` of a base is what gives them."""
        function = self.project.functions.get(scope.node)
        if function is None or function.cls is None:
            return False
        if function.is_unbound:
            return True
        run = self.project.resolved.get(node, ()) if isinstance(node, ast.Call) else ()
        bases = {cls for cls in function.cls.ancestry() if cls is not function.cls}
        return function.name == "__init__" and any(f.name == "__init__" and f.cls in bases for f in run)

    def _hands_on(self, function: Function, node: ast.AST) -> bool:
        """Whether a method gives an optimizer that it was given to one that keeps it: the scaler comes with it."""
        if not isinstance(node, ast.Call) or self.storing.isdisjoint(self.project.resolved.get(node, ())):
            return False
        given = (v for v in (*node.args, *(k.value for k in node.keywords)) if isinstance(v, ast.Name))
        names = {v.id for v in given} & set(function.scope.params)
        return any(Slot(function.scope, name) in self.unit.optimizer_slots for name in names)

    def holder(self, module: Module, scope: Scope, node: ast.AST) -> str | None:
        """`accelerator.scaler`, `self.trainer.scaler`: where one object in sight keeps the scaler; of several, the one that a
        call is given a field of."""
        if self.optional or not self.keepers:
            return None
        if self._on_own(scope, node):
            return f"{scope.self_name}.{self.base_name}"
        slots = {Slot(s, name): name for s in scope.chain() if not s.is_class for name in s.bindings}
        if (cls := self.project.class_of(scope)) is not None:
            kept = self.project.once(_fields_of_objects).get(cls.family, ())
            slots |= {s: f"{scope.self_name}.{s.name}" for s in kept}
        found: list[str] = []
        for slot, text in slots.items():
            classes = self.project.instances.get(slot, ())
            if not classes or not all(map(self.keeps, classes)) or not self._held_before(module, slot, scope, node):
                continue
            if self._is_one_object(scope.module, slot):
                found.append(text)
        if len(found) > 1 and isinstance(node, ast.Call):
            values = [*node.args, *(k.value for k in node.keywords)]
            given = {dotted(value.value) for value in values if isinstance(value, ast.Attribute)}
            found = [text for text in found if text in given]
        return f"{found[0]}.{self.base_name}" if len(found) == 1 else None

    def _held_before(self, module: Module, slot: Slot, scope: Scope, node: ast.AST) -> bool:
        """Whether a local name holds its object where a node stands: not yet in the statement that makes the object."""
        return slot.holder is not scope or bound_before(module, scope, slot.name, node)

    def _is_one_object(self, module: Module, slot: Slot) -> bool:
        """Whether what lives in a slot is used as an object, and never as a list of them."""
        name = slot.name
        uses = [n for n in (*module.loads.get(name, ()), *module.named.get(name, ())) if isinstance(n, ast.expr)]
        parents = [module.parents[n] for n in uses if self.project.slot(module, n) == slot]
        listed = any(
            isinstance(p, (ast.Subscript, ast.For, ast.AsyncFor, ast.comprehension, ast.Starred)) for p in parents
        )
        return not listed and any(isinstance(p, ast.Attribute) for p in parents)

    def as_seen(self, text: str, home: Scope, there: Scope, at: ast.stmt | None = None) -> str | None:
        """An expression that is valid in one scope as it reads in another, or at a statement: `trainer.config` is `self.config` in
        the methods of the trainer that carries the scaler, and a global of the script what a function is given for it. None where
        it cannot be read there."""
        if (own := said_by(self.project, text, home, there)) is not None:
            return own
        if visible(self.project, text, home, there, at):
            return text
        carriers = {h.carrier for h in self.homes if h.carrier}
        if not self.keeps(self.project.class_of(there)):
            return None
        tree = ast.parse(text, mode="eval")
        names = [n for n in walk(tree) if isinstance(n, ast.Name)]
        if not names or any(n.id not in carriers for n in names):
            return None
        for name in names:
            name.id = there.self_name or name.id
        return there.module.written(tree)

    def governing(self, scope: Scope) -> list[Home]:
        """The homes from which the code of a scope is reached; all of them where that cannot be told."""
        found: list[Home] = []
        queue, seen = [scope], {scope}
        while queue:
            current = queue.pop()
            mine = [h for h in self.homes if not h.carrier and self._holds(h, current)]
            found += mine
            if mine:
                continue
            function = self.project.functions.get(current.outermost.node)
            callers = [m.scope_of(c) for m, c in self.project.calls.get(function, [])] if function is not None else []
            if function is None or not callers or self.project.once(Sources).is_value(function):
                return self.homes
            queue += [c for c in callers if c not in seen]
            seen.update(callers)
        return found or self.homes

    def _holds(self, home: Home, scope: Scope) -> bool:
        """Whether a home is in a scope or around it, or on the `self` of its methods."""
        if home.kind == "local":
            return home.scope in list(scope.chain())
        mine, theirs = self.project.class_of(home.scope), self.project.class_of(scope)
        return mine is not None and theirs is not None and mine.shares_instances(theirs)

    def near(self, scope: Scope) -> bool:
        """Whether the scaler can be named in a scope without being handed there first."""
        own = self.project.functions.get(scope.outermost.node)
        there = [h for h in self.homes if h.kind == "local" and not h.idle and h.scope in list(scope.chain())]
        if any(own is None or not h.scope.is_module or not self._run_before(own) for h in there):
            return True
        if any(h.carrier and visible(self.project, h.carrier, h.scope, scope) for h in self.homes):
            return True
        return self.keeps(self.project.class_of(scope)) or own in self.threads

    def snapshot(self) -> tuple[object, ...]:
        """What asking for the scaler has recorded so far, to be put back by `restore`."""
        return dict(self.threads), dict(self.told), dict(self.attributes), set(self.keepers)

    def restore(self, saved: tuple[object, ...]) -> None:
        self.threads, self.told, self.attributes, self.keepers = saved  # type: ignore[assignment]
        self._busy.clear()

    @cached_property
    def given_sometimes(self) -> bool:
        """Whether what a function gives back is one of several things that a variable may hold: it knows whether it is on."""
        return given_sometimes(self.project, self.unit.handle_slots)


def _hands_itself_on(cls: ClassInfo) -> bool:
    """Whether a method of a class gives its object to what it looks up by name."""
    calls = (n for c in cls.ancestry() for f in c.methods.values() for n in f.inside if isinstance(n, ast.Call))
    return any(
        isinstance(call.func, ast.Call)
        and ast.unparse(call.func.func) == "getattr"
        and any(isinstance(a, ast.Name) and a.id == "self" for a in call.args)
        for call in calls
    )


def _fields_of_objects(project: Project) -> dict[object, list[Slot]]:
    """What is kept in fields and is known to be of classes of the program, by whose fields they are; see `Project.once`."""
    found: dict[object, list[Slot]] = {}
    for slot in project.instances:
        found.setdefault(slot.holder, []).append(slot)
    return found
