"""What a program's own native side does without the Apex beside it: clears no gradients, reads scaled ones, hands an `amp` that
is None on.

Reported as AMP122 (see `branch.py`) and AMP124 (see `old_torch.py`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice

from amp_migrate.findings import lines_told
from amp_migrate.reading.conditions.chains import Link, head_of, links
from amp_migrate.reading.program.definitions import Function, called_name, is_none
from amp_migrate.reading.program.logic import is_asked
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import method_called, methods_called, walk
from amp_migrate.reading.twin.sides import NativeTwin
from amp_migrate.reading.units.unit import Blocked, Loss
from amp_migrate.reading.units.wrappers import scales_natively
from amp_migrate.rules.migration import Output

NAMED = 3  # callers that are named
_OTHERS = re.compile(r"sched|profiler|\bprof\b|\benv\b|lr_", re.IGNORECASE)  # what steps beside optimizers


def scaled_readers(output: Output, modules: Collection[Module], reads: Callable[[Module, ast.AST], bool]) -> None:
    """Say where gradients are read though the native branch, as the program has it, never unscales them."""
    if any(module.calls_naming({"unscale_"}) for module in modules):
        return
    for module in modules:
        if not any(isinstance(call.func, ast.Attribute) for call, _ in module.calls_naming({"scale"})):
            continue
        for node in module.nodes:
            if reads(module, node) and not output.edit(module).gone(node):
                output.note(
                    module,
                    node,
                    "AMP122",
                    "unscale_",
                    "reads gradients that the native branch beside Apex's never unscales: call scaler.unscale_(optimizer) "
                    "before, or a threshold here meets gradients times the scale",
                    "review",
                )
                return


def turned_off(output: Output, module: Module, twin: NativeTwin, branch: ast.If) -> None:
    """Say where a branch of Apex's turned mixed precision off again: `use_amp = None` beside nn.DataParallel. Who asked for Apex
    gets the native side, on which nothing does so."""
    held = {*(holder for holder, _ in twin.choices), *twin.flags}
    for stmt in (n for s in branch.body for n in walk(s)):
        if not isinstance(stmt, ast.Assign) or not isinstance(stmt.value, ast.Constant) or twin.chooses(stmt):
            continue
        if stmt.value.value or not held & {ast.unparse(t) for t in stmt.targets}:
            continue
        text = ast.unparse(stmt)
        message = (
            f"a run that asked for Apex went on in float32 from here, by `{text}`; it takes the native branch now, which this does "
            "not turn off, and is in mixed precision"
        )
        output.note(module, stmt, "AMP120", text, message, "review")


def still_asked(project: Project, output: Output, twin: NativeTwin, flags: Collection[str]) -> None:
    """Say where a flag that chose Apex is asked, or handed on to be, and is not read as what it is now: the native side."""
    for module, flag in ((m, f) for m in project.modules for f in sorted(flags) if f in m.named):
        for node in module.named[flag]:
            if not isinstance(node, ast.Attribute) or output.edit(module).gone(node):
                continue
            parent = module.parents.get(node)
            call = module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
            handed = isinstance(call, ast.Call) and call.func is not parent and bool(project.resolved.get(call))
            asked = is_asked(parent, node) or isinstance(parent, ast.Compare) or handed
            if asked and (handed or twin.value(node) is None):
                told = module.source(node)
                if flag in twin.options.values() and node not in twin.options:
                    message = (
                        f"whether `{told}` is what chose Apex is not known, and it stays as it is: a run that asked for Apex takes "
                        "the native branch now"
                    )
                    output.note(module, node, "AMP120", told, message, "look")
                    continue
                message = (
                    f"a run that asked for Apex (`{told}`) takes the native branch now, and is still told to "
                    "have chosen Apex here: see that it does what a run of the native side does"
                )
                output.note(module, node, "AMP120", told, message, "review")
                return


def divided_losses(output: Output, losses: Iterable[Loss]) -> None:
    """Say where the native side divides a loss, by the batches that are added up, and Apex's did not."""
    for loss in losses:
        for mine, native in islice(_branches(loss), 1):
            divided, own = (list(_divisors(x.body)) for x in (native, mine))
            if divided and not own:
                message = (
                    f"the native branch divides the loss by {divided[0]}, and Apex's did not: where that is more than 1, the "
                    "gradients of a run that asked for Apex are that much smaller now (a clip binds less, and the learning rate "
                    "means another thing)"
                )
                output.note(loss.module, loss.with_stmt, "AMP120", "amp.scale_loss", message, "review")
                return


def _branches(loss: Loss) -> Iterator[tuple[Link, Link]]:
    """The branches that a loss stands in, the innermost first, where one beside scales natively; with that."""
    module = loss.module
    for parent in (p for p in module.ancestors(loss.with_stmt) if isinstance(p, ast.If)):
        chain = links(head_of(module, parent))
        mine = next((x for x in chain if any(n is loss.with_stmt for s in x.body for n in walk(s))), chain[0])
        native = next((x for x in chain if x is not mine and scales_natively(x.body)), None)
        if native is not None:
            yield mine, native


def _divisors(block: Sequence[ast.stmt]) -> Iterator[str]:
    """By what a branch divides what it scales: `loss = loss / steps`, `loss /= steps`, `scaler.scale(loss / steps)`."""
    nodes = [n for s in block for n in walk(s)]
    calls = (n for n in nodes if isinstance(n, ast.Call) and called_name(n) in ("scale", "scale_loss"))
    scaled = [c.args[0] for c in calls if c.args]
    texts = {ast.unparse(value) for value in scaled}
    inside = {n for value in scaled for n in walk(value)}
    for node in nodes:
        if isinstance(node, (ast.AugAssign, ast.BinOp)) and isinstance(node.op, ast.Div):
            dividend, by = (node.target, node.value) if isinstance(node, ast.AugAssign) else (node.left, node.right)
            if node in inside or ast.unparse(dividend) in texts:
                yield ast.unparse(by)


def refuse_uncleared(project: Project, losses: Iterable[Loss]) -> None:
    """Refuse where Apex's branch clears gradients, and the native one that stays in its place does so nowhere."""
    for loss in losses:
        module = loss.module
        every = _clearing(module.scope_of(loss.with_stmt).body)
        for mine, native in _branches(loss):
            cleared = _clearing(mine.body)
            if not cleared or len(cleared) < len(every):
                continue
            called = (f for s in native.body for c in walk(s) for f in project.resolved.get(c, ()))  # type: ignore[call-overload]
            if not _clearing(f.node for f in called):
                line = (native.test or native.body[0]).lineno
                message = (
                    f"the native branch at line {line} would stay in place of this one, and clears no gradients: those of every "
                    "step would add up. Clear them there as here, and rewrite again"
                )
                raise Blocked(module, cleared[0], "AMP120", "zero_grad", message)


def _clearing(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    return [n for node in nodes for n in walk(node) if method_called(n) == "zero_grad"]


def plain_steps(project: Project, output: Output, losses: Iterable[Loss]) -> None:
    """Say where callers of a function that only runs the backward step the optimizer themselves: Apex's side of it left them
    gradients without the scale, and the native one leaves them scaled."""
    told: set[Function] = set()
    for loss in losses:
        function = project.function_of(loss.module, loss.with_stmt)
        if function is None or function in told or not scales_natively([function.node]):
            continue
        if methods_called([function.node]) & {"step", "unscale_"}:
            continue
        plain = sorted(
            (module.display, step.lineno)
            for module, caller in {(m, project.function_of(m, c)) for m, c in project.calls.get(function, ())}
            if caller is not None and (step := _steps_plainly(caller)) is not None
        )
        if plain:
            told.add(function)
            named = ", ".join(f"{path}:{line}" for path, line in plain[:NAMED])
            more = f" and {len(plain) - NAMED} more" if len(plain) > NAMED else ""
            message = (
                f"gradients leave {function.name} times the scale now: Apex unscaled them as its with statement ended, and "
                f"what calls it steps the optimizer itself ({named}{more}). Step with scaler.step(optimizer) there and call "
                "scaler.update() after it, or the weights are off by the scale"
            )
            output.note(loss.module, loss.with_stmt, "AMP122", "unscale_", message, "review")


def _steps_plainly(caller: Function) -> ast.Call | None:
    """The first step of an optimizer in a function in which no scaler unscales or steps."""
    steps = [n for n in walk(caller.node) if isinstance(n, ast.Call) and method_called(n) == "step"]
    plain = [s for s in steps if not s.args and not _OTHERS.search(ast.unparse(s.func).rpartition(".")[0])]
    scaled = "unscale_" in methods_called([caller.node]) or any("scaler" in ast.unparse(s.func).lower() for s in steps)
    return min(plain, key=lambda s: s.lineno) if plain and not scaled else None


def always_none(project: Project, output: Output, module: Module, imports: Collection[ast.AST]) -> None:
    """Name what is left of `amp = None` where only a branch that went imported `amp`: code that no run comes to."""
    edits = output.edit(module)
    for stmt in imports:
        for alias in stmt.names if isinstance(stmt, (ast.Import, ast.ImportFrom)) else ():
            name = alias.asname or alias.name
            scope = module.scope_of(stmt)
            bound = [n for n in scope.bindings.get(name, ()) if not edits.gone(n)]
            left = [n for n in scope.reads(name) if not edits.gone(n)]
            if not bound or not left or not all(_none(module, b) for b in bound):
                continue
            lines = lines_told(n.lineno for n in (*left, *_handed_on(project, module, left)))
            message = f"{name} is None on every run now: take out what is left of it ({lines})"
            output.note(module, bound[0], "AMP124", name, message)


def _none(module: Module, bound: ast.AST) -> bool:
    """Whether a name is given None here: `amp = None`, `amp, scaler = None, None`."""
    stmt = module.statement(bound)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return False
    target, value = stmt.targets[0], stmt.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return any(t is bound and is_none(v) for t, v in zip(target.elts, value.elts, strict=True))
    return target is bound and is_none(value)


def _handed_on(project: Project, module: Module, values: Collection[ast.AST]) -> Iterator[ast.Name]:
    """The uses of parameters of the same file that such a name is handed to by every call."""
    for value in values:
        parent = module.parents.get(value)
        call = module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call):
            continue
        for node in project.definitions(module, call.func):
            function = project.functions.get(node)
            if function is None or function.module is not module or len(module.calls_naming({function.name})) != 1:
                continue
            for name in (p for p, v in project.arguments(function, call) if v is value):
                for n in module.loads.get(name, ()):
                    if isinstance(n, ast.Name) and module.scope_of(n).lookup(name) is function.scope:
                        yield n
