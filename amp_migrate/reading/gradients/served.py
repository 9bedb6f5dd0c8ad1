"""Scaled backwards that no step in sight goes with: what steps with their gradients is hidden, beside a step that is not.

A step goes with a backward that comes before it, or that runs in the same loop; not with one of a loop that has a backward
of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.gradients.updates import over_optimizers
from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope
from amp_migrate.reading.program.occurrences import PLACES, Occurrences
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import spelled, walk
from amp_migrate.reading.program.turns import repeats
from amp_migrate.reading.program.view import Block, Node, chain, find
from amp_migrate.reading.units.spoken_steps import spoken_steps
from amp_migrate.reading.units.unit import Loss, Step, Unit
from amp_migrate.reading.units.unscaled import is_scheduler


class Served:
    """Asks for each loss whether one of some steps goes with it."""

    def __init__(
        self, unit: Unit, reader: GradientReader, view: Callable[[Scope], Block], steps: Iterable[Step]
    ) -> None:
        self.unit = unit
        self.project = unit.project
        self.reader = reader
        self.view = view
        self.steps = {s.call: s for s in steps}
        steps_in = (unit.project.way(s.module, s.call) for s in self.steps.values())
        self._stepping = {f for _, f in unit.project.ways_to(steps_in) if f is not None}
        self._entries = {f for f in self._stepping if not self.project.calls.get(f)}
        self._nodes: dict[Scope, list[Node]] = {}

    def serves(self, loss: Loss) -> bool:
        """Whether a step goes with a loss, wherever it is computed."""
        scope = loss.module.scope_of(loss.call)
        inside = set(walk(loss.with_stmt))
        node = next((n for n in self.view(scope).walk() if n.stmt in inside), None)
        return node is None or self._served(scope, node, frozenset())

    def _served(self, scope: Scope, node: Node, seen: frozenset[Function]) -> bool:
        if any(self._goes_with(node, other) for other in self._steps_in(scope)):
            return True
        function = self.project.functions.get(scope.node)
        if function is None:
            return False
        if function in seen:
            return True
        calls = self.project.calls.get(function, [])
        if not calls:  # called out of sight, as the function that steps may be, or by a receiver that is not known
            named = [(m, c) for m in self.unit.tied for c, _ in m.method_calls.get(function.name, ())]
            return any(entry is not function for entry in self._entries) or any(
                self._served_at(m, c, seen | {function}) for m, c in named if not self.project.resolved.get(c)
            )
        return all(self._served_at(m, c, seen | {function}) for m, c in calls)

    def _served_at(self, module: Module, call: ast.Call, seen: frozenset[Function]) -> bool:
        scope = module.scope_of(call)
        node = find(self.view(scope), module.statement(call))
        return node is None or self._served(scope, node, seen)

    def _steps_in(self, scope: Scope) -> list[Node]:
        """The statements of a scope that step, or that call what does."""
        if scope not in self._nodes:
            self._nodes[scope] = [n for n in self.view(scope).walk() if any(map(self._steps, n.calls))]
        return self._nodes[scope]

    def _steps(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        return node in self.steps or not self._stepping.isdisjoint(self.project.resolved.get(node, ()))

    def _goes_with(self, node: Node, step: Node) -> bool:
        if node is step:
            return sum(map(self._steps, node.calls)) > 1
        mine, theirs = chain(node), chain(step)
        blocks = [link.parent for link in mine]
        above = next((link for link in theirs if link.parent in blocks), None)
        if above is None:
            return False
        below = theirs[: theirs.index(above) + 1]
        beside = mine[blocks.index(above.parent)]
        if any(self._has_own(link, node) for link in below):
            return False
        return beside.index <= above.index or any(repeats(n.stmt) for n in chain(above)[1:])

    def _has_own(self, loop: Node, node: Node) -> bool:
        """Whether a loop around a step runs backwards of its own, other than what a statement does."""
        if not repeats(loop.stmt) or loop in chain(node):
            return False
        steps = [self.steps[n] for n in loop.all_calls if n in self.steps]
        if steps and over_optimizers(loop, steps):
            return False
        return any(self.reader.scaled(n) for n in loop.walk())


def handed_out(unit: Unit) -> tuple[Module, ast.Call] | None:
    """A call that gives something out of sight one of a unit's optimizers, which may step it."""
    for module in unit.tied:
        for call, _ in unit.project.once(Occurrences, module).calls_about(unit.optimizer_slots):
            if unit.project.resolved.get(call) or all(map(_only_keeps, _called(unit, module, call))):
                continue
            values = [*call.args, *(k.value for k in call.keywords)]
            values = [v.value if isinstance(v, ast.Starred) else v for v in values]
            if any(unit.project.slot(module, v) in unit.optimizer_slots for v in values if isinstance(v, PLACES)):
                return module, call
    return None


def stays_local(loss: Loss) -> bool:
    """Whether the optimizers of a loss are variables of its function that are only asked for their attributes and given to
    calls: nothing else can step what no call does."""
    module = loss.module
    scope = module.scope_of(loss.call)
    if not loss.optimizers or not isinstance(scope.node, FUNCTION_NODES):
        return False
    for optimizer in loss.optimizers:
        if not isinstance(optimizer, ast.Name) or optimizer.id in scope.params or optimizer.id not in scope.bindings:
            return False
        for use in module.loads.get(optimizer.id, ()):
            if module.scope_of(use).lookup(optimizer.id) is not scope:
                continue
            if module.scope_of(use) is not scope or not isinstance(
                module.parents[use], (ast.Attribute, ast.Call, ast.keyword)
            ):
                return False
    return True


def _called(unit: Unit, module: Module, call: ast.Call) -> list[str]:
    """The names of what a call out of sight may run: of `super().__init__(optimizer)` those of the bases."""
    held = call.func.value if isinstance(call.func, ast.Attribute) else None
    cls = unit.project.class_of(module.scope_of(call))
    if cls is not None and isinstance(held, ast.Call) and isinstance(held.func, ast.Name) and held.func.id == "super":
        return list(cls.base_names)
    return [module.qualify(call.func) or spelled(call.func)]


def _only_keeps(name: str) -> bool:
    """Whether what is so called keeps an optimizer that it is given, or reads it, and does not step it."""
    last = name.rpartition(".")[2]
    return name.startswith(OF_TORCH) or last in KEEPING or is_scheduler(last)


OF_TORCH = ("torch.", "apex.", "amp.")
KEEPING = frozenset(
    "append extend add list tuple zip enumerate iter reversed sorted len print isinstance type id str repr vars hasattr dict "
    "master_params scale unscale_".split()
)


BY_SCALER = (
    "GradScaler must make the call: write scaler.step(optimizer) where it is called, and one scaler.update() after the last "
    "optimizer's step"
)
REPLACED = (
    "Apex puts a step of its own there after an overflow, by which this sees one, and GradScaler does not: see whether "
    "scaler.get_scale() fell"
)


def kept_steps(unit: Unit) -> Iterator[tuple[Module, ast.expr, str]]:
    """Where the step of one of a unit's optimizers is reached in another way than `optimizer.step()`: with why that is
    in the way."""
    for module in unit.reach:
        named, handed = unit.project.once(_unusual_steps, module)
        told = {s.method for s in unit.project.once(spoken_steps, module)}
        for node in named:
            if node in told or module.parents.get(node) in told:
                continue
            if isinstance(node, ast.Attribute):
                yield from _kept(unit, module, node)
            else:
                yield from _by_name(unit, module, node)
        for call, way in handed:
            yield from _handed(unit, module, call, way)


def _unusual_steps(
    project: Project, module: Module
) -> tuple[list[ast.Attribute | ast.Constant], list[tuple[ast.Call, str]]]:
    """Where a file may reach the step of an optimizer in such a way, whosever it is; see `Project.once`."""
    named: list[ast.Attribute | ast.Constant] = []
    for node in module.named.get("step", ()):
        if isinstance(node, ast.Attribute):
            parent = module.parents.get(node)
            called = isinstance(parent, ast.Call) and parent.func is node
            if not called or _of_class(project, module, node):
                named.append(node)
        elif isinstance(node, ast.Constant):
            named.append(node)
    ways = ((call, _stepping(project, module, call)) for call, _ in module.calls if call.args)
    return named, [(call, way) for call, way in ways if way]


def _of_class(project: Project, module: Module, node: ast.Attribute) -> bool:
    """Whether a step is that of a class, of torch's or of the program's."""
    if (module.qualify(node) or "").startswith("torch.optim."):
        return True
    cls = project.find_class(module, node.value)
    return cls is not None and cls.method("step") is not None


def _kept(unit: Unit, module: Module, node: ast.Attribute) -> Iterator[tuple[Module, ast.expr, str]]:
    """`go = optimizer.step`; `torch.optim.SGD.step(optimizer)`."""
    parent = module.parents.get(node)
    called = isinstance(parent, ast.Call) and parent.func is node
    if not called and (_only_asked(module, node) or _put_back(module, node)):
        return
    if not called and unit.project.slot(module, node.value) in unit.optimizer_slots:
        text, compared = ast.unparse(node), _compared(module, node)
        if compared is not None:
            line = f"kept here and compared with what it is at line {compared.lineno}"
            yield module, node, f"{text} is {line}: {REPLACED}"
            return
        yield module, node, f"{text} is kept as a value here and called later; {BY_SCALER}"
    if not _of_class(unit.project, module, node):
        return
    name = module.qualify(node) or ""
    cls = unit.project.find_class(module, node.value)
    if "lr_scheduler" in name or (cls is not None and isinstance(node.value, ast.Name) and node.value.id == "self"):
        return
    given = parent.args[:1] if called and isinstance(parent, ast.Call) else ()
    if any(unit.project.slot(module, a) in unit.optimizer_slots for a in given):
        yield module, node, f"{ast.unparse(node)} is called through the class here; {BY_SCALER}"
    elif not called and module in unit.tied and name.startswith("torch.optim."):
        yield module, node, f"{ast.unparse(node)} is handed on as a value here; {BY_SCALER}"


def _compared(module: Module, node: ast.Attribute) -> ast.Compare | None:
    """Where a name that a step is kept under is all that is asked for: compared with what the step is by then."""
    stmt = module.statement(node)
    if not isinstance(stmt, ast.Assign) or stmt.value is not node or not isinstance(stmt.targets[0], ast.Name):
        return None
    scope = module.scope_of(stmt)
    reads = [n for n in module.loads.get(stmt.targets[0].id, ()) if module.scope_of(n) is scope]
    tests = [module.parents.get(n) for n in reads]
    compared = [t for t in tests if isinstance(t, ast.Compare)]
    return compared[0] if compared and len(compared) == len(tests) else None


ASKS = frozenset("callable bool isinstance hasattr type id repr str print".split()) | {
    "inspect.signature",
    "inspect.getsource",
}
FACTS = frozenset("__name__ __qualname__ __doc__ __module__ __code__ __annotations__ __defaults__".split())


def _only_asked(module: Module, node: ast.expr) -> bool:
    """Whether something is asked about a method, and the method neither kept nor called: `callable(optimizer.step)`."""
    parent = module.parents.get(node)
    if isinstance(parent, ast.BoolOp):
        return _only_asked(module, parent)  # what it gives may be the method
    if isinstance(parent, ast.Call):
        return node in parent.args and (module.qualify(parent.func) or ast.unparse(parent.func)) in ASKS
    if isinstance(parent, ast.Attribute):
        return parent.attr in FACTS or not parent.attr.startswith("__")  # of a test's stand-in: `step.call_count`
    if isinstance(parent, (ast.If, ast.While, ast.IfExp, ast.Assert)):
        return parent.test is node
    return isinstance(parent, ast.Compare) or (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not))


def _put_back(module: Module, node: ast.Attribute) -> bool:
    """Whether the step is wrapped where it is, as torch's schedulers count it: `optimizer.step = counted(optimizer.step)`.
    `scaler.step(optimizer)` calls what stands there."""
    stmt = module.statement(node)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not isinstance(stmt.value, ast.Call):
        return False
    target, given = stmt.targets[0], stmt.value.args
    kept = [a for a in given if ast.unparse(a) == ast.unparse(target)]
    return isinstance(target, ast.Attribute) and len(kept) == 1 and node in (target, *kept)


def _by_name(unit: Unit, module: Module, node: ast.Constant) -> Iterator[tuple[Module, ast.expr, str]]:
    """`getattr(optimizer, "step")()`; `operator.methodcaller("step")`."""
    call = module.parents.get(node)
    if not isinstance(call, ast.Call) or node not in call.args[:2]:
        return
    name = module.qualify(call.func) or spelled(call.func)
    asked = name == "getattr" and unit.project.slot(module, call.args[0]) in unit.optimizer_slots
    if asked or (name in ("operator.methodcaller", "operator.attrgetter") and module in unit.tied):
        yield module, call, f"{ast.unparse(call)} asks for the step by its name here; {BY_SCALER}"


def _handed(unit: Unit, module: Module, call: ast.Call, way: str) -> Iterator[tuple[Module, ast.expr, str]]:
    """`map(lambda o: o.step(), optimizers)`; `getattr(optimizer, name)()`; `strategy.optimizer_step(optimizer)`."""
    args = [a.value if isinstance(a, ast.Starred) else a for a in call.args]
    if not any(unit.project.slot(module, a) in unit.optimizer_slots for a in args if isinstance(a, PLACES)):
        return
    if (module.qualify(call.func) or "").startswith("torch.optim."):
        return
    if way == "lambda":
        yield module, call, f"a lambda steps the optimizers that are handed to it here; {BY_SCALER}"
    elif way == "by name":
        yield module, call, f"{ast.unparse(call)} may ask for the step by its name here; {BY_SCALER}"
    else:
        yield module, call, f"{ast.unparse(call.func)} may step the optimizer that it is given here; {BY_SCALER}"


def _stepping(project: Project, module: Module, call: ast.Call) -> str:
    """In which way a call may step what it is given, if any."""
    args = [a.value if isinstance(a, ast.Starred) else a for a in call.args]
    if any(isinstance(a, ast.Lambda) and _steps_its_own(a) for a in args):
        return "lambda"
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if name == "getattr" and len(args) > 1 and not isinstance(args[1], ast.Constant):
        parent = module.parents.get(call)
        return "by name" if isinstance(parent, ast.Call) and parent.func is call else ""
    if name not in ("step", "optimizer_step") or project.resolved.get(call) or _of_schedule(call.func):
        return ""
    if on_tpu(project, module, call):
        return ""
    if _of_scaler(project, module, call.func) or project.find_class(module, call.func) is not None:
        return ""
    return "out of sight"


def on_tpu(project: Project, module: Module, call: ast.Call) -> bool:
    """`xm.optimizer_step(optimizer)`, which runs where Apex never did: its initialize wants parameters on a CUDA device."""
    if called_name(call) != "optimizer_step":
        return False
    if (module.qualify(call.func) or "").startswith("torch_xla."):
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    holder = call.func.value
    if isinstance(holder, ast.Name) and holder.id == "xm" and module.scope_of(holder).lookup("xm") is None:
        return True  # known by its usual name: no import brings it here
    return project.slot(module, holder) in project.once(_of_tpus)


def _of_tpus(project: Project) -> set[Slot]:
    """The variables and fields that may hold a module of torch_xla: `args.xla_model = xm`; see `Project.once`."""
    return project.holding("torch_xla", lambda m, stmt: (m.qualify(stmt.value) or "").startswith("torch_xla."))


def tpu_steps(unit: Unit) -> Iterator[tuple[Module, ast.Call]]:
    """Such steps of a unit's optimizers."""
    for module in unit.reach:
        for call, _ in module.calls_naming({"optimizer_step"}):
            if on_tpu(unit.project, module, call) and any(
                unit.project.slot(module, a) in unit.optimizer_slots for a in call.args
            ):
                yield module, call


def _of_schedule(method: ast.expr) -> bool:
    """Whether a method is that of a learning rate schedule, by its object's name: it sets rates, and steps nothing."""
    holder = method.value if isinstance(method, ast.Attribute) else None
    name = holder.attr if isinstance(holder, ast.Attribute) else holder.id if isinstance(holder, ast.Name) else ""
    return is_scheduler(name)


def _of_scaler(project: Project, module: Module, method: ast.expr) -> bool:
    """Whether a method is that of a GradScaler: the program has one for another back end."""
    if "scaler" in ast.unparse(method).lower():
        return True
    return isinstance(method, ast.Attribute) and project.slot(module, method.value) in project.once(_scalers)


def _scalers(project: Project) -> set[Slot]:
    """The variables that may hold a GradScaler of the program's own; see `Project.once`."""
    return project.holding("GradScaler", lambda _, stmt: "GradScaler(" in ast.unparse(stmt.value))


def _steps_its_own(node: ast.Lambda) -> bool:
    names = {a.arg for a in node.args.args}
    return any(
        isinstance(n, ast.Attribute) and n.attr == "step" and isinstance(n.value, ast.Name) and n.value.id in names
        for n in walk(node.body)
    )
