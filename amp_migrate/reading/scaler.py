"""Where the GradScaler of a unit lives, and how each piece of code reaches it.

In this order: the same scope; `self.scaler` beside `self.optimizer`; a script's module level; a parameter next to the
optimizer, added to each function on the way and to every call found; the object that carries the optimizer.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from amp_migrate.reading.flags import Flag, guard_parts, init_flag, visible
from amp_migrate.reading.module import FUNCTION_NODES, LOOP_NODES, Module, Scope
from amp_migrate.reading.project import ClassInfo, Function, Project, Slot
from amp_migrate.reading.unit import Blocked, Init, Unit


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


@dataclass
class Thread:
    """A parameter that hands the scaler to a function, and the calls that pass it."""

    function: Function
    name: str
    calls: list[tuple[Module, ast.Call]]
    default: str | None = None  # for a parameter that callers may leave out
    replaces: str | None = None  # the parameter that handed `amp` itself over: the scaler takes its place


class ScalerPlan:
    """Homes and paths of one unit's scaler. Asking `at(...)` records what has to be threaded."""

    def __init__(self, unit: Unit, name: str = "scaler", optimizer: str = "") -> None:
        self.unit = unit
        self.optimizer = optimizer  # the one it serves, where each has its own
        self.optional = False  # whether a function may also be called by code that knows nothing of mixed precision
        self.project: Project = unit.project
        self.base_name = name
        self.homes: list[Home] = []
        self.threads: dict[Function, Thread] = {}
        self.attributes: dict[ast.stmt, tuple[Module, str, str]] = {}  # assignment -> (module, target, value)
        self.families: dict[object, str] = {}
        self._names: dict[Scope, str] = {}
        self._busy: set[Function] = set()
        self._asked: Function | None = None

    # -- homes ---------------------------------------------------------------------------------------------------

    def settle(self, uses: list[tuple[Module, ast.AST]]) -> None:
        """Decide the homes, given every node that will use the scaler.

        Raises Blocked where no place can be seen from all uses.
        """
        for init in self.unit.inits:
            self._settle(init, uses)
        for home in self.homes:
            for other in self.homes:
                if home.anchor is other.anchor and home.kind == other.kind:
                    home.flag = other.flag = home.flag.either(other.flag)

    def _settle(self, init: Init, uses: list[tuple[Module, ast.AST]]) -> None:
        scope = init.site.scope
        inside = [(m, n) for m, n in uses if m is init.module and _within(m, n, scope)]
        outside = [(m, n) for m, n in uses if not (m is init.module and _within(m, n, scope))]
        inside += self._calls_leading_to(init, outside)
        function = self.project.functions.get(scope.node)
        own = [n for n in inside if n[1] is not init.call]
        if self._carried(init):
            return
        if function is not None and outside and not self._on_self(init, outside):
            if self._moved_to_callers(init, function, used_here=bool(own)):
                return
        kind = "self" if outside and self._on_self(init, outside) else "local"
        if kind == "self":
            owner = scope.owner_class
            assert owner is not None
            self.families[self.project.classes[owner.node].family] = self.base_name
        flag = init_flag(self.project, init)
        anchor: ast.stmt = init.stmt
        home = Home(init, kind, scope, anchor, flag)
        self._climb(home, inside, bool(outside))
        self.homes.append(home)

    def _carried(self, init: Init) -> bool:
        """Where the program keeps `amp` on an object (`args.amp = amp`), the scaler is kept there too."""
        for site in self.unit.sites:
            stmt = site.stmt
            if site.name != "apex.amp" or site.module is not init.module or not isinstance(stmt, ast.Assign):
                continue
            target = stmt.targets[0]
            if stmt.value is not site.node or not isinstance(target, ast.Attribute):
                continue
            if isinstance(target.value, ast.Name) and target.value.id == site.scope.self_name:
                continue
            base = site.module.source(target.value)
            flag = init_flag(self.project, init)
            home = Home(init, "local", site.scope, stmt, flag, carrier=base)
            self._climb(home, [], outside=True)
            self.homes.append(home)
            return True
        return False

    def _calls_leading_to(self, init: Init, outside: list[tuple[Module, ast.AST]]) -> list[tuple[Module, ast.AST]]:
        """Calls in the scope of an `initialize` through which the scaler reaches the functions that use it."""
        found: list[tuple[Module, ast.AST]] = []
        seen: set[Function] = set()
        queue = [self.project.function_of(m, n) for m, n in outside]
        while queue:
            function = queue.pop()
            if function is None or function in seen:
                continue
            seen.add(function)
            for module, call in self.project.calls.get(function, []):
                if module is init.module and _within(module, call, init.site.scope):
                    found.append((module, call))
                else:
                    queue.append(self.project.function_of(module, call))
        return found

    def _on_self(self, init: Init, outside: list[tuple[Module, ast.AST]]) -> bool:
        """Whether the scaler belongs on `self`: other methods of the class use it."""
        scope = init.site.scope
        owner = scope.owner_class
        if owner is None or not scope.is_function:
            return False
        family = self.project.classes[owner.node].family
        for module, node in outside:
            other = module.scope_of(node).owner_class
            if other is not None and self.project.classes[other.node].family is family:
                return True
        return any(
            isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name) and t.value.id == scope.self_name
            for t in (*init.optimizer_targets, *init.optimizers, *init.handles)
        )

    def _climb(self, home: Home, inside: list[tuple[Module, ast.AST]], outside: bool) -> None:
        """Move the creation out of conditions that do not also hold its uses; they become `enabled`."""
        module = home.init.module
        anchor = home.anchor
        guards = dict(guard_parts(self.project, module, anchor, None))
        pending: list[tuple[ast.stmt, list[ast.If], Flag]] = []
        flag, climbed = home.flag, list(home.climbed)
        latched = False
        holds_all = (home.kind != "self" and not outside) or (home.kind == "local" and home.scope.is_function)
        for parent in module.ancestors(home.anchor):
            if parent in module.scopes or isinstance(parent, LOOP_NODES):
                break
            if not isinstance(parent, ast.stmt):
                continue
            if holds_all and inside and all(_under(module, n, parent) for _, n in inside):
                if not _is_amp_only_guard(self, module, parent):
                    break
            if isinstance(parent, ast.If):
                if _is_main_guard(parent):
                    break
                if _latch(parent):
                    latched = True
                    continue
                parts = guards.get(parent)
                if parts is None:
                    break
                flag = flag.joined(parts)
                if latched:
                    # Creation stays inside `if not initialized:`; the switch around that dissolves.
                    if parent.orelse:
                        break
                    home.flag = flag
                    home.dissolved.append(parent)
                    continue
                climbed.append(parent)
                anchor = parent
                pending.append((anchor, list(climbed), flag))
            elif isinstance(parent, (ast.Try, ast.With)):
                anchor = parent
            else:
                break
        if pending and not latched:
            home.anchor, home.climbed, home.flag = pending[-1]
        self._before_uses(home, [(s.module, s.node) for s in self.unit.sites if s.short == "load_state_dict"])

    def _before_uses(self, home: Home, inside: list[tuple[Module, ast.AST]]) -> None:
        """The scaler is created before its first use, also where that stands above `initialize`."""
        module = home.init.module
        block = module.block(home.anchor)
        for stmt in block[: block.index(home.anchor)]:
            if any(m is module and module.scope_of(n) is home.scope and _under(module, n, stmt) for m, n in inside):
                home.anchor = stmt
                return

    def _moved_to_callers(self, init: Init, function: Function, *, used_here: bool) -> bool:
        """Where a function prepares and returns the optimizer: create the scaler in its callers, after the call, or
        before it where the function needs the scaler as well."""
        returned = {Slot(function, "return"), *(Slot(function, f"return#{i}") for i in range(8))}
        if not returned & self.unit.optimizer_slots:
            return False
        calls = self.project.calls.get(function, [])
        if not calls:
            return False
        flag = init_flag(self.project, init)
        for _, parts in guard_parts(self.project, init.module, init.stmt, None):
            flag = flag.joined(parts or [])
        for module, call in calls:
            stmt = module.statement(call)
            scope = module.scope_of(call)
            translated = self._translate(flag, function, module, call, scope)
            if translated is None or not isinstance(stmt, (ast.Assign, ast.AnnAssign)):
                raise Blocked(
                    init.module,
                    init.call,
                    "AMP113",
                    "amp.initialize",
                    f"{function.name} hands the optimizer to its caller, which cannot see whether mixed precision is on "
                    f"({flag.text()}); create the scaler there by hand",
                )
            kind = "local"
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            if (
                any(
                    isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == scope.self_name
                    for t in targets
                    for n in ast.walk(t)
                )
                and scope.owner_class is not None
            ):
                kind = "self"
                self.families[self.project.classes[scope.owner_class.node].family] = self.base_name
            self.homes.append(Home(init, kind, scope, stmt, translated, after=not used_here))
        return True

    def _translate(self, flag: Flag, function: Function, module: Module, call: ast.Call, scope: Scope) -> Flag | None:
        if flag.parts is None:
            return Flag(scope, None)
        given = dict(self.project.arguments(function, call))
        parts: list[str] = []
        for part in flag.parts:
            if visible(self.project, part, function.scope, scope):
                parts.append(part)
                continue
            if not function.scope.params:
                return None
            translated = _substitute(part, {k: module.source(v) for k, v in given.items()}, function.scope)
            if translated is None:
                return None
            parts.append(translated)
        return Flag(scope, tuple(parts))

    # -- access --------------------------------------------------------------------------------------------------

    def at(self, module: Module, node: ast.AST, optimizer: ast.expr | None = None) -> str:
        """The expression that gives the scaler where a node stands.

        Raises Blocked where it cannot be handed there.
        """
        scope = module.scope_of(node)
        if isinstance(node, FUNCTION_NODES):
            scope = module.scopes[node]
        top = scope
        while top.parent is not None and top.parent.is_function:
            top = top.parent
        self._asked = self.project.functions.get(top.node)
        carrier = self._carrier(module, optimizer)
        return carrier or self._reach(module, scope, node)

    def _carrier(self, module: Module, optimizer: ast.expr | None) -> str | None:
        """`trainer.scaler` for an optimizer written `trainer.optimizer`, where Trainer keeps the scaler."""
        if isinstance(optimizer, ast.Attribute) and not isinstance(optimizer.value, ast.Call):
            for cls in self.project.classes_of(module, optimizer.value):
                if cls.family in self.families or self._family_carries(cls):
                    return f"{module.source(optimizer.value)}.{self.families[cls.family]}"
        return None

    def _reach(self, module: Module, scope: Scope, node: ast.AST) -> str:
        chain = list(scope.chain())
        for home in self.homes:
            if home.carrier and visible(self.project, home.carrier, home.scope, scope):
                return f"{home.carrier}.{self.base_name}"
            if home.kind == "local" and not home.carrier and home.scope in chain:
                outermost = self.project.functions.get(_outermost(scope).node) if home.scope.is_module else None
                if outermost is not None and self._amp_parameter(outermost) is not None:
                    return self._thread(outermost, node)  # handed `amp` or its handle already
                return self.name_in(home.scope)
        owner = scope.owner_class
        if owner is not None:
            cls = self.project.classes[owner.node]
            if cls.family in self.families or self._family_carries(cls):
                return f"{scope.self_name}.{self.families[cls.family]}"
        function = self.project.functions.get(_outermost(scope).node)
        if function is None:
            raise Blocked(
                module,
                node,
                "AMP213",
                "GradScaler",
                "module-level code uses the scaler, which is created inside a function",
            )
        return self._thread(function, node)

    def near(self, scope: Scope) -> bool:
        """Whether the scaler can be named in a scope without being handed there first."""
        if any(h.kind == "local" and h.scope in list(scope.chain()) for h in self.homes):
            return True
        if any(h.carrier and visible(self.project, h.carrier, h.scope, scope) for h in self.homes):
            return True
        owner = scope.owner_class
        if owner is not None and self.project.classes[owner.node].family in self.families:
            return True
        return self.project.functions.get(_outermost(scope).node) in self.threads

    def _thread(self, function: Function, node: ast.AST) -> str:
        if function in self.threads:
            return self.threads[function].name
        if function in self._busy:
            return self.base_name
        calls = self._all_calls(function)
        if self.optional:
            return self._thread_optional(function, calls)
        if not calls:
            raise Blocked(
                function.module,
                node,
                "AMP213",
                "GradScaler",
                f"{function.name} needs the scaler, but nothing in sight calls it with one; rewrite it together with "
                "the files that do, or hand the scaler over yourself",
            )
        if self._escapes(function):
            raise Blocked(
                function.module,
                node,
                "AMP213",
                "GradScaler",
                f"{function.name} needs the scaler, but is also passed around as a value, so its callers are not known",
            )
        self._busy.add(function)
        name = self.base_name if self.base_name not in function.scope.bindings else f"grad_{self.base_name}"
        self.threads[function] = Thread(function, name, calls, replaces=self._amp_parameter(function))
        for module, call in calls:
            self._reach(module, module.scope_of(call), call)
        self._busy.discard(function)
        return name

    def _thread_optional(self, function: Function, calls: list[tuple[Module, ast.Call]]) -> str:
        """A parameter with a default: callers that never initialize mixed precision need not know of it."""
        self._busy.add(function)
        thread = Thread(function, self.base_name, [], default="False")
        self.threads[function] = thread
        for module, call in calls:
            try:
                self._reach(module, module.scope_of(call), call)
            except Blocked:
                continue
            thread.calls.append((module, call))
        self._busy.discard(function)
        if not thread.calls and function is not self._asked:
            del self.threads[function]
            raise Blocked(
                function.module, function.node, "AMP213", "GradScaler", f"nothing that calls {function.name} can tell"
            )
        return self.base_name

    def snapshot(self) -> tuple[object, ...]:
        """What asking for the scaler has recorded so far, to be put back by `restore`."""
        return dict(self.threads), dict(self.attributes), dict(self.families)

    def restore(self, saved: tuple[object, ...]) -> None:
        self.threads, self.attributes, self.families = saved  # type: ignore[assignment]
        self._busy.clear()

    def _amp_parameter(self, function: Function) -> str | None:
        """The parameter through which callers pass `apex.amp` itself, or the handle of `amp.init`."""
        for module, call in self.project.calls.get(function, []):
            for parameter, value in self.project.arguments(function, call):
                if function.parameter(parameter) is None:
                    continue
                handle = self.project.slot(module, value) in self.unit.handle_slots
                if handle or self.project.qualify(module, value) == "apex.amp":
                    return parameter
        return None

    def _all_calls(self, function: Function) -> list[tuple[Module, ast.Call]]:
        seen: dict[ast.Call, Module] = {}
        for module, call in self.project.calls.get(function, []):
            seen[call] = module
        return [(m, c) for c, m in seen.items()]

    def _escapes(self, function: Function) -> bool:
        called = {id(c.func) for _, c in self._all_calls(function)}
        for module in self.project.modules:
            if function.name not in module.text:
                continue
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Name) and node.id == function.name and isinstance(node.ctx, ast.Load):
                    owner = module.scope_of(node).lookup(node.id)
                    own = owner is not None and function.node in owner.bindings[node.id]
                    if own and id(node) not in called and not isinstance(module.parents.get(node), ast.Attribute):
                        return True
        return False

    def _family_carries(self, cls: ClassInfo) -> bool:
        """Whether instances keep the unit's optimizer in an attribute: then they keep the scaler beside it."""
        family = cls.family
        carried = {s.name for s in self.unit.optimizer_slots if s.holder is family}
        if not carried:
            return False
        found: list[tuple[Module, ast.Assign, Function]] = []
        for member in family.descendants():
            for method in member.methods.values():
                for node in ast.walk(method.node):
                    if isinstance(node, ast.Assign) and len(node.targets) == 1:
                        target = node.targets[0]
                        slot = self.project.slot(member.module, target)
                        sources = set(self.project.sources(member.module, node.value))
                        if (
                            isinstance(target, ast.Attribute)
                            and slot is not None
                            and slot.holder is family
                            and slot.name in carried
                            and sources & self.unit.optimizer_slots
                            and not any(s.holder is family for s in sources)
                        ):
                            found.append((member.module, node, method))
        if not found:
            return False
        self.families[family] = self.base_name
        for module, stmt, method in found:
            value = self._reach_outside(module, method, stmt)
            target = stmt.targets[0]
            assert isinstance(target, ast.Attribute)
            self.attributes[stmt] = (module, f"{module.source(target.value)}.{self.base_name}", value)
        return True

    def _reach_outside(self, module: Module, method: Function, stmt: ast.stmt) -> str:
        """The scaler inside the method that stores the optimizer, without going through `self`."""
        for home in self.homes:
            if home.kind == "local" and home.scope in list(method.scope.chain()):
                return self.name_in(home.scope)
        return self._thread(method, stmt)

    def name_in(self, scope: Scope) -> str:
        """The variable name of a scaler created in a scope: `scaler`, unless something else has that name there."""
        if scope not in self._names:
            taken = self.base_name in scope.bindings
            self._names[scope] = f"grad_{self.base_name}" if taken else self.base_name
        return self._names[scope]


def _outermost(scope: Scope) -> Scope:
    """The function that a nested function stands in, or the function itself."""
    while scope.parent is not None and scope.parent.is_function:
        scope = scope.parent
    return scope


def _within(module: Module, node: ast.AST, scope: Scope) -> bool:
    """Whether a node stands in a function scope or one nested in it; for a module scope, directly in it."""
    inner = module.scope_of(node)
    if scope.is_module:
        return inner.module is scope.module
    return scope in list(inner.chain())


def _under(module: Module, node: ast.AST, parent: ast.AST) -> bool:
    return node is parent or any(a is parent for a in module.ancestors(node))


def _is_main_guard(node: ast.If) -> bool:
    return "__name__" in ast.unparse(node.test)


def _latch(node: ast.If) -> bool:
    """`if not self.initialized:` around a body that sets it: run once, must stay."""
    test = node.test
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    subject = test.operand if negated and isinstance(test, ast.UnaryOp) else None
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        subject = test.left
    if subject is None:
        return False
    text = ast.unparse(subject)
    return any(
        isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store) and ast.unparse(n) == text
        for s in node.body
        for n in ast.walk(s)
    )


def _is_amp_only_guard(plan: ScalerPlan, module: Module, parent: ast.stmt) -> bool:
    """An `if` that only asks whether Apex is installed: it goes, so creation need not stay inside."""
    from amp_migrate.reading.conditions import availability

    return isinstance(parent, ast.If) and availability(plan.project, module).value(parent.test) is not None


def _substitute(text: str, given: dict[str, str], scope: Scope) -> str | None:
    """An expression over a function's parameters, in terms of the arguments of one call."""
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if node.id in scope.params:
                if node.id not in given:
                    return None
            elif scope.lookup(node.id) is not None and scope.lookup(node.id) is scope:
                return None

    class _Swap(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            if node.id in scope.params:
                return ast.parse(given[node.id], mode="eval").body
            return node

    return ast.unparse(_Swap().visit(tree))
