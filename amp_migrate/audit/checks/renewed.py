"""No optimizer is stepped for a network that was made anew after it: its parameters get no gradient, and the scaler raises.

From each `scaler.step(optimizer)` up through the calls that lead there: where the network whose parameters that optimizer was
made with is given another one on a path to it, and the optimizer is not made anew. Apex's step went on and did nothing.
Not proved: networks in containers, networks that code out of sight makes anew, and optimizers that are changed through
functions that are given the whole object.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.paths.flow import Graph, Node, TooManyPaths, walk
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.targets import assignments
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.new_networks import COPIES, NewNetworks
from amp_migrate.audit.stepping.bodies import Bodies, Owner
from amp_migrate.audit.stepping.objects import Objects
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP233",
        title="the network is made anew, and its optimizer is not",
        construct="optimizer.step",
        apex="The step of an optimizer whose parameters got no gradient does nothing.",
        native="scaler.step raises where none of the optimizer's parameters has a gradient: No inf checks were recorded for this "
        "optimizer. Make the optimizer anew with the network; a step that trains nothing may go.",
        why="The optimizer holds the parameters of the network that went: the new one was never trained.",
        links=(
            "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers",
        ),
    ),
)

DEPTH = 4  # calls between a step and the code that makes its network anew
Made = tuple[Module, ast.expr]
UNKNOWN, OWN = "?", "own"  # else: the line that made the network anew


def check(review: Review) -> Iterable[Doubt]:
    if review.wish.dtype == "bfloat16" or not any("GradScaler" in m.text for m in review.after.modules.values()):
        return
    networks = NewNetworks(review.values_after)
    modules = [m for m in review.after.modules.values() if "step" in m.words and networks.renewed(m)]
    if not modules:
        return
    bodies = review.__dict__.get("_bodies") or Bodies(Objects(review.values_after))
    told: set[Made] = set()
    for use in _uses(bodies):
        if not _changed(review, use.first):
            continue
        for made in Walks(bodies, networks, use).found():
            if made not in told:
                told.add(made)
                yield _doubt(review, use, made)


def _changed(review: Review, first: tuple[Module, ast.AST]) -> bool:
    change = review.changes.get(first[0].path)
    return change is not None and change.changed(first[1])


@dataclass(frozen=True)
class Use:
    """Where a body comes to the step of an optimizer, itself or through a call; `given`: what that call hands on."""

    owner: Owner
    node: ast.expr
    optimizer: str  # as the body writes it
    first: tuple[Module, ast.AST]  # the step itself
    given: frozenset[str] | None = None

    @property
    def module(self) -> Module:
        return self.owner.module if isinstance(self.owner, Function) else self.owner

    @property
    def scope(self) -> Scope:
        return self.module.scope_of(self.node)


def _uses(bodies: Bodies) -> Iterator[Use]:
    todo: list[tuple[Use, int]] = []
    for owner, actions in bodies.own.items():
        for action in actions:
            if action.name == "step" and action.scaler and isinstance(action.node, ast.Call) and action.node.args:
                text = syntax.text(action.node.args[0])
                todo.append((Use(owner, action.node, text, (action.module, action.node)), 0))
    seen: set[tuple[Owner, ast.AST, str]] = set()
    while todo:
        use, depth = todo.pop(0)
        key = (use.owner, use.node, use.optimizer)
        if key in seen:
            continue
        seen.add(key)
        yield use
        if isinstance(use.owner, Function) and depth < DEPTH:
            todo += [(u, depth + 1) for u in _callers(bodies, use, use.owner)]


def _callers(bodies: Bodies, use: Use, function: Function) -> Iterator[Use]:
    """The same step, as those come to it who call the function."""
    first = use.optimizer.partition(".")[0]
    for module, call in bodies.program.callers(function):
        given = bodies.program.arguments(function, call) or {}
        filled = {name: syntax.text(value) for name, value in given.items()}
        if function.bound and function.parameters and isinstance(call.func, ast.Attribute):
            filled.setdefault(function.parameters[0].arg, syntax.text(call.func.value))
        if first in filled:
            optimizer = filled[first] + use.optimizer[len(first) :]
        elif first not in function.scope.bindings and module is function.module:
            optimizer = use.optimizer
        else:
            continue
        yield Use(module.function_around(call) or module, call, optimizer, use.first, frozenset(filled.values()))


class Walks:
    """The paths of a body to one use."""

    def __init__(self, bodies: Bodies, networks: NewNetworks, use: Use) -> None:
        self.bodies = bodies
        self.networks = networks
        self.use = use
        self.program = bodies.program
        self._effects: dict[tuple[Function, str], frozenset[str]] = {}
        self._made: dict[str, Made] = {}
        self._active: set[Function] = set()

    def found(self) -> Iterator[Made]:
        """What makes the network anew on a way to the use."""
        for model in sorted(self._models()):
            if model == self.use.optimizer or not self._runs(model):
                continue
            for line in sorted(self._lines(model)):
                yield self._made[line]

    def _models(self) -> set[str]:
        """How networks are written whose parameters alone the optimizer was made with, and that get another one here."""
        use, found = self.use, set()
        holder = use.optimizer.rpartition(".")[0]
        modules = {use.module} | ({c.module for c in self._family()} if holder else set())
        for module in modules:
            for target, value, item in assignments(module):
                if item or value is None or not isinstance(target, (ast.Name, ast.Attribute)):
                    continue
                text = syntax.text(target)
                if holder and text.partition(".")[0] == "self" and self._family():
                    text = holder + text[4:]
                elif module is not use.module or (module.function_around(target) or module) is not use.owner:
                    continue
                if text not in found and self.networks.new(module, value):
                    found.add(text)
        return {m for m in found if self._alone(m, use.optimizer)}

    def _family(self) -> list[Class]:
        """The classes of the object that holds the optimizer."""
        if "." not in self.use.optimizer:
            return []
        owner = self.use.first[0].function_around(self.use.first[1])
        return self.program.family(owner.owner) if owner is not None and owner.owner is not None else []

    def _alone(self, model: str, optimizer: str) -> bool:
        """Whether each place that makes the optimizer gives it the parameters of this network, and of no other."""
        objects, own = self.bodies.objects, _expression(self.use, model)
        origins = {o for o in objects.values.origins(self.use.scope, own) if o.kind != "unknown"}
        makers = objects.values.origins(self.use.scope, _expression(self.use, optimizer))
        for maker in makers:
            if not isinstance(maker.node, ast.Call) or objects.role(maker) != "optimizer":
                return False
            scope = maker.module.scope_of(maker.node)
            given = _networks_given(maker.module, maker.node)
            if len({syntax.text(n) for n in given}) != 1 or not origins & objects.values.origins(scope, given[0]):
                return False
        return bool(makers)

    def _runs(self, model: str) -> bool:
        """Whether what comes to the step may run this network: it is handed on, or called, and goes by no other name."""
        use = self.use
        body = use.owner.node if isinstance(use.owner, Function) else use.owner.tree
        calls = syntax.own(body, ast.Call)
        held = "." in model
        handed = use.given is not None and model in use.given
        called = any(syntax.text(c.func) == model or syntax.text(c.func).startswith(f"{model}.") for c in calls)
        if not held and not handed and not called:
            return False
        others = {
            syntax.text(t)
            for n in syntax.own(body, ast.Assign)
            if any(syntax.text(e) == model for e in _handed(n.value))
            for t in n.targets
        } - {model}
        run = {syntax.text(c.func) for c in calls} | (use.given or frozenset())
        return not others & run

    def _lines(self, model: str) -> set[str]:
        body = self.use.owner.node.body if isinstance(self.use.owner, Function) else self.use.owner.tree.body
        reached: set[str] = set()
        start = OWN if self._had_before() else UNKNOWN

        def step(node: Node, state: str) -> Iterable[str]:
            if node.stmt is None or node.kind == "leave":
                return [state]
            line = list(syntax.own_line(node.stmt)) if not isinstance(node.stmt, ast.ClassDef) else []
            if self.use.node in line and state not in (UNKNOWN, OWN):
                reached.add(state)
            return self._after(self.use.module, node.stmt, line, state, model, self.use.optimizer)

        try:
            walk(Graph(body), [(frozenset(), start)], step)
        except TooManyPaths:
            return set()
        return reached

    def _had_before(self) -> bool:
        """Whether the optimizer is there when the body begins."""
        first = self.use.optimizer.partition(".")[0]
        if not isinstance(self.use.owner, Function):
            return False
        function = self.use.owner
        return function.name != "__init__" and (
            first in {p.arg for p in function.parameters} or first not in function.scope.bindings
        )

    def _after(
        self, module: Module, stmt: ast.stmt, line: list[ast.AST], state: str, model: str, optimizer: str
    ) -> Iterable[str]:
        """What is so after a statement: whether the optimizer is the network's own."""
        states = {state}
        for call in line:
            if isinstance(call, ast.Call):
                if _adds(call, optimizer):
                    states = {OWN}
                effects = self._of_call(module, call, model, optimizer)
                states = {s if e == "" else e for s in states for e in effects}
        for target, value in _assigned(stmt):
            text = syntax.text(target)
            if text == optimizer:
                states = {OWN}
            elif text == model:
                states = {self._given(module, value, s, model) for s in states}
        return sorted(states)

    def _given(self, module: Module, value: ast.expr | None, state: str, model: str) -> str:
        if state == UNKNOWN or value is None:
            return UNKNOWN
        copied = isinstance(value, ast.Call) and self.program.dotted(module.scope_of(value), value.func) in COPIES
        mentions = any(isinstance(n, ast.expr) and syntax.text(n) == model for n in syntax.walk(value))
        if mentions and not copied:
            return state  # `model = DataParallel(model)`
        if not self.networks.new(module, value):
            return UNKNOWN
        line = f"{module.path}:{value.lineno}"
        self._made[line] = module, value
        return line

    def _of_call(self, module: Module, call: ast.Call, model: str, optimizer: str) -> Iterable[str]:
        """What a method of the object that holds both does to them: "" where it leaves them alone."""
        holder = optimizer.rpartition(".")[0]
        func = call.func
        if not holder:
            return [""]
        if any(syntax.text(a) == holder for a in syntax.given(call)):
            return [UNKNOWN]
        if not isinstance(func, ast.Attribute) or syntax.text(func.value) != holder:
            return [""]
        found: set[str] = set()
        for method in self.bodies.objects.methods(module.scope_of(call), func.value, func.attr):
            found |= self._effect(method, f"self{model[len(holder) :]}", f"self{optimizer[len(holder) :]}")
        return found or [""]

    def _effect(self, method: Function, model: str, optimizer: str) -> frozenset[str]:
        key = (method, model)
        if key not in self._effects:
            if method in self._active or len(self._active) > DEPTH:
                return frozenset({""})
            self._active.add(method)
            ends: set[str] = set()

            def step(node: Node, state: str) -> Iterable[str]:
                if node.stmt is None or node.kind == "leave":
                    return [state]
                line = list(syntax.own_line(node.stmt))
                return self._after(method.module, node.stmt, line, state, model, optimizer)

            try:
                ends = {s for _, s in walk(Graph(method.node.body), [(frozenset(), "")], step).ends}
            except TooManyPaths:
                ends = {UNKNOWN}
            self._active.discard(method)
            self._effects[key] = frozenset(ends or {""})
        return self._effects[key]


def _expression(use: Use, text: str) -> ast.expr:
    """The optimizer as an expression of the body."""
    for node in syntax.walk(use.node):
        if isinstance(node, (ast.Name, ast.Attribute)) and syntax.text(node) == text:
            return node
    made = ast.parse(text, mode="eval").body
    return ast.copy_location(made, use.node)


def _networks_given(module: Module, call: ast.Call) -> list[ast.expr]:
    """The networks whose parameters an optimizer is made with."""
    first = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "params"), None)
    if first is None:
        return []
    scope = module.scope_of(call)
    found: list[ast.expr] = []
    asked: set[str] = set()
    todo: list[ast.expr] = [first]
    while todo:
        for node in syntax.walk(todo.pop()):
            if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters"):
                found.append(node.value)
            elif isinstance(node, ast.Name) and node.id not in asked:
                asked.add(node.id)
                todo += [
                    v
                    for t, v, _ in assignments(module)
                    if isinstance(t, ast.Name)
                    and t.id == node.id
                    and v is not None
                    and module.scope_of(t) is scope
                    and (isinstance(v, (ast.List, ast.ListComp, ast.Dict)) or ".parameters" in syntax.text(v))
                ]
    return found


def _assigned(stmt: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if isinstance(stmt, ast.Assign):
        for target in stmt.targets:
            if isinstance(target, (ast.Tuple, ast.List)):
                yield from ((e, None) for e in target.elts)
            else:
                yield target, stmt.value
    elif isinstance(stmt, ast.AnnAssign) and stmt.value is not None:
        yield stmt.target, stmt.value
    elif isinstance(stmt, (ast.For, ast.AsyncFor)):
        yield from ((e, None) for e in syntax.walk(stmt.target) if isinstance(e, ast.expr))


def _handed(value: ast.expr) -> list[ast.expr]:
    """A value, or what a call is given to keep."""
    return [*syntax.given(value)] if isinstance(value, ast.Call) else [value]


def _adds(call: ast.Call, optimizer: str) -> bool:
    """`optimizer.add_param_group({"params": model.parameters()})`."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "add_param_group"
        and syntax.text(call.func.value) == optimizer
    )


def _doubt(review: Review, use: Use, made: Made) -> Doubt:
    step = f"{use.first[0].path}:{review.line(*use.first)}"
    message = (
        f"a network is made anew here after {use.optimizer} was made with the parameters of the one before, which get no gradient "
        f"any more: scaler.step raises at {step} (No inf checks were recorded), where Apex's step did nothing. Make the "
        "optimizer anew with the network"
    )
    return review.doubt(*made, "AMP233", "optimizer.step", message, "review", ("AMP219",))
