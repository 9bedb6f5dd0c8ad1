"""What is saved is what is loaded, by key; and optimizers whose class changed still load what their predecessor saved.

Proves: every `state_dict()` and `load_state_dict()` of Apex that the program had has a counterpart of a scaler, but for loads
after which no run scales a loss; a key from
which a scaler's state is loaded is one under which a scaler's state is saved,
where the program saves any; the state of
FusedAdam is not handed to a torch optimizer unannounced.

Cannot prove: keys made at run time, states saved by code out of sight (that is told), what other programs read from the file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import product

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.near import near_in
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review, calls_of, mentions
from amp_migrate.audit.sites.loaded_states import may_load
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways.chains import MOST, comes_after
from amp_migrate.audit.ways.off_instead import GRAD_SCALER
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP431",
        title="What is saved and what is loaded do not fit",
        construct="amp.state_dict, optimizer.load_state_dict",
        apex="Apex keeps its loss scalers in amp.state_dict(), FusedAdam its step count in the parameter group.",
        native="A GradScaler has a state_dict of its own; torch's Adam and AdamW keep a step count for each parameter. "
        "`amp-migrate checkpoint` converts old files.",
        why="A key that nothing writes restarts the loss scale at 65536 without a word; a state in another layout raises.",
        links=("https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.load_state_dict",),
    ),
)

FUSED_ADAM = ("apex.optimizers.FusedAdam", "apex.optimizers.fused_adam.FusedAdam", "apex.contrib.optimizers.FusedAdam")


def check(review: Review) -> Iterable[Doubt]:
    yield from _lost(review)
    yield from _keys(review)
    yield from _old_optimizers(review)
    yield from _out_of_sight(review)


CHECKPOINTS = re.compile(
    r"(save|load|resume|restore)\w*(checkpoint|ckpt|state)|(checkpoint|ckpt)\w*(save|load)", re.IGNORECASE
)


def _out_of_sight(review: Review) -> Iterator[Doubt]:
    """Checkpoints that a file which set Apex up has saved or loaded by code out of sight, with the optimizer's state."""
    if any(True for _ in review.calls_before("apex.amp.state_dict", "apex.amp.load_state_dict")):
        return
    for change in review.changes.values():
        module = change.before
        if not any(m is module for m, _, _ in review.calls_before("apex.amp.initialize")):
            continue
        for call in module.calls():
            scope = module.scope_of(call)
            name = review.before.dotted(scope, call.func)
            if name is None or not CHECKPOINTS.search(name.rpartition(".")[2]) or name.startswith("torch."):
                continue
            given = [syntax.text(a) for a in syntax.given(call)]
            if review.before.callees(module, call) or not any("optim" in g for g in given):
                continue
            message = (
                f"{syntax.text(call.func)} is out of sight and is given the optimizer: if it keeps amp.state_dict() in the "
                "checkpoint, the scaler's state_dict() takes its place there, and loading it too"
            )
            # Whose scaler it is handed, with the key of its state, AMP123 tells.
            known = ("AMP123",) if any("scaler" in g.lower() for g in given) else ()
            near = (1, len(module.text))
            yield Doubt(module.path, call.lineno, "AMP431", name.rpartition(".")[2], message, "look", known, near)
            break


def _lost(review: Review) -> Iterator[Doubt]:
    """A save or a load of Apex's state that went without one of a scaler in the same file."""
    for name, verb in (("state_dict", "saved"), ("load_state_dict", "loaded")):
        left = {m.path for m, _, _ in review.calls_after(f"apex.amp.{name}")}
        for module, call, _ in review.calls_before(f"apex.amp.{name}"):
            change = review.changes.get(module.path)
            if change is None or module.path in left:
                continue
            if isinstance(module.parents.get(call), ast.Subscript):
                continue  # only read: the loss scale for a log
            if any(calls_on_scaler(review, name)):
                continue
            if review.wish.dtype == "bfloat16" or not _scales(review.after):
                continue
            if verb == "loaded" and _scaled_by_none(review, module, call):
                continue
            if _scales(review.before) and not _scale_written(review):
                message = (
                    f"Apex's loss scale was {verb} here; the native branch that stays keeps no scaler's state: its scale begins "
                    "at its first value with each run"
                )
                yield Doubt(module.path, call.lineno, "AMP431", f"amp.{name}", message, "review")
                continue
            yield Doubt(
                module.path,
                call.lineno,
                "AMP431",
                f"amp.{name}",
                f"Apex's loss scale was {verb} here, and no scaler's state is {verb} any more",
            )


def _scaled_by_none(review: Review, module: Module, load: ast.Call) -> bool:
    """Whether no run scales a loss once it has loaded Apex's scale: a set-up that only evaluates."""
    chains = mixed(review).before.chains
    loads = chains.to(module, load)
    scaling = {call: other for other, call, _ in review.calls_before("apex.amp.scale_loss")}
    for other in (m for m in review.before.modules.values() if "scale_loss" in m.words):
        scaling |= {call: other for call, _ in other.method_calls("scale_loss")}
    for call, other in scaling.items():
        losses = chains.to(other, call)
        if not losses or max(len(losses), len(loads)) >= MOST:
            return False
        for loss, way in product(losses, loads):
            after = comes_after(loss, way)
            starts = loss.start, way.start
            apart = loss.start.module is not way.start.module and (
                all(map(chains.as_script, starts))
                or not near_in(review.before).together(*(step.module for step in starts))
            )
            if after or (after is None and not apart):
                return False
    return bool(loads and scaling)


def _scale_written(review: Review) -> bool:
    """Whether the migration itself scales a loss, and leaves that not to what the program had besides Apex."""
    changes = review.changes.values()
    return any(c.changed(call) for c in changes for call, _ in c.after.method_calls("scale"))


def _scales(program: Program) -> bool:
    return any(True for _ in calls_of(program, *GRAD_SCALER))


def calls_on_scaler(review: Review, method: str) -> Iterator[tuple[Module, ast.Call]]:
    """Calls of a method in the program after whose receiver is, or may be, a GradScaler."""
    for module in review.after.modules.values():
        if method not in module.text or "scaler" not in module.read.lower():
            continue
        change = review.changes.get(module.path)
        for call, holder in module.method_calls(method):
            written = change is not None and module.statement(call) not in change.same
            if written or "scaler" in syntax.text(holder).lower():
                if _is_scaler(review.values_after, module, holder):
                    yield module, call


def seen_scaler(values: Values, module: Module, receiver: ast.expr) -> bool:
    """Whether some of what an expression may be is seen to be made as a GradScaler."""
    return any(values.maker(o) in GRAD_SCALER for o in values.of(module, receiver))


def _is_scaler(values: Values, module: Module, receiver: ast.expr) -> bool:
    made = {values.maker(o) for o in values.of(module, receiver)}
    return not made.isdisjoint(GRAD_SCALER) or (made <= {None} and "scaler" in syntax.last(receiver).lower())


def _keys(review: Review) -> Iterator[Doubt]:
    saved: dict[Module, set[str | None]] = {}
    for module, call in calls_on_scaler(review, "state_dict"):
        saved.setdefault(module, set()).add(key_saved(review.after, module, call))
    everywhere = {key for keys in saved.values() for key in keys}
    for module, call in calls_on_scaler(review, "load_state_dict"):
        key = _key_loaded(module, call)
        keys = saved.get(module, everywhere)
        if key is None or not keys or None in keys or key in keys or module.path not in review.changes:
            continue
        change = review.changes[module.path]
        if module.statement(call) in change.same or _never_fitted(review, module):
            continue
        yield review.doubt(
            module,
            call,
            "AMP431",
            "load_state_dict",
            f'the scaler\'s state is loaded from "{key}", and the program saves it under '
            f"{listed(k for k in keys if k is not None)}: the loss scale would start again at its first value",
            "review" if _reads_apex_key(review, key) else "refuse",
        )


def _never_fitted(review: Review, module: Module) -> bool:
    """Whether nothing that a file loads as Apex's state was saved under that key before, by any file."""
    saves = [(m, c) for m, c, _ in review.calls_before("apex.amp.state_dict")]
    own = [(m, c) for m, c in saves if m.path == module.path] or saves
    saved = {key_saved(review.before, m, c) for m, c in own}
    loaded = {_key_loaded(m, c) for m, c, _ in review.calls_before("apex.amp.load_state_dict") if m.path == module.path}
    return bool(loaded and saved) and None not in saved | loaded and not saved & loaded


def _reads_apex_key(review: Review, key: str) -> bool:
    """Whether the key is that of old files: converted ones hold a scaler's state there."""
    return any(
        key_saved(review.before, module, call) == key for module, call, _ in review.calls_before("apex.amp.state_dict")
    )


def listed(keys: Iterable[str]) -> str:
    return " or ".join(f'"{k}"' for k in sorted(keys))


def key_saved(program: Program, module: Module, value: ast.expr, depth: int = 0) -> str | None:
    """The key of a dictionary under which a value is put, also by a function that it is handed to."""
    child: ast.AST = value
    for node in module.ancestors(value):
        if isinstance(node, ast.Dict):
            keys = (_text(k) for k, entry in zip(node.keys, node.values, strict=True) if entry is child)
            return next(keys, None)
        if isinstance(node, (ast.Tuple, ast.List)):
            return _key_beside(module, node, child)
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                return str(target.slice.value)
            return _key_of_variable(program, module, node, depth) if isinstance(target, ast.Name) else None
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "dict" and isinstance(child, ast.keyword):
                return child.arg
            if syntax.last(node.func) == "setdefault" and child in node.args[1:2]:
                return _text(node.args[0])
            return _key_of_parameter(program, module, node, child, depth)
        if not isinstance(node, (ast.IfExp, ast.keyword)):
            return None
        child = node
    return None


def _key_beside(module: Module, items: ast.Tuple | ast.List, value: ast.AST) -> str | None:
    """The key that a pair has beside its value (`dict([("scaler", state)])`), or another list that it is zipped with."""
    around = module.parents.get(items)
    if isinstance(around, ast.Call) and syntax.last(around.func) == "zip":
        names, at = around.args[0], next((i for i, v in enumerate(items.elts) if v is value), 0)
        if not isinstance(names, (ast.Tuple, ast.List)) or around.args[1:] != [items]:
            return None
        return _text(names.elts[at]) if len(names.elts) > at else None
    paired = isinstance(items, ast.Tuple) and len(items.elts) == 2 and items.elts[1] is value
    return _text(items.elts[0]) if paired and isinstance(around, (ast.expr, ast.comprehension)) else None


def _text(key: ast.expr | None) -> str | None:
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _key_of_variable(program: Program, module: Module, stmt: ast.Assign, depth: int) -> str | None:
    """The key under which a variable is put that an assignment gives a value: `{"scaler": state}`."""
    target = stmt.targets[0]
    if depth > 3 or not isinstance(target, ast.Name):
        return None
    scope = module.scope_of(stmt)
    reads = [n for n in syntax.every(scope.node, ast.Name) if n.id == target.id and n is not target]
    found = {key_saved(program, module, n, depth + 1) for n in reads if isinstance(n.ctx, ast.Load)} - {None}
    return found.pop() if len(found) == 1 else None


def _key_of_parameter(program: Program, module: Module, call: ast.Call, given: ast.AST, depth: int) -> str | None:
    """The key under which the function that is called puts what it is given; None where that is not seen."""
    value = given.value if isinstance(given, ast.keyword) else given
    keys: set[str | None] = set()
    for function in program.callees(module, call):
        for name, argument in (program.arguments(function, call) or {}).items():
            if argument is value:
                keys |= _keys_of_name(program, function, name, depth)
    keys.discard(None)
    return keys.pop() if len(keys) == 1 else None


def _keys_of_name(program: Program, function: Function, name: str, depth: int) -> set[str | None]:
    """The keys under which a function, or one that it hands its `**kwargs` to, puts a parameter."""
    if depth > 3:
        return set()
    if any(p.arg == name for p in function.parameters):
        reads = [n for n in syntax.every(function.node, ast.Name) if n.id == name]
        return {key_saved(program, function.module, n, depth + 1) for n in reads if isinstance(n.ctx, ast.Load)}
    keys: set[str | None] = set()
    extra = function.node.args.kwarg
    for call in syntax.every(function.node, ast.Call):
        handed = [k.value for k in call.keywords if k.arg is None]
        updates = isinstance(call.func, ast.Attribute) and call.func.attr == "update"
        handed += call.args if updates else []
        if extra is None or not any(isinstance(v, ast.Name) and v.id == extra.arg for v in handed):
            continue
        if updates:  # state.update(kwargs)
            keys.add(name)
        for further in program.callees(function.module, call):
            keys |= _keys_of_name(program, further, name, depth + 1)
    return keys


def _key_loaded(module: Module, call: ast.Call) -> str | None:
    """The key from which the argument of a load is read."""
    if not call.args:
        return None
    arg = call.args[0]
    if isinstance(arg, ast.Subscript):
        return _text(arg.slice)
    if isinstance(arg, ast.Call) and isinstance(arg.func, ast.Attribute) and arg.func.attr in ("get", "pop"):
        return _text(arg.args[0]) if arg.args else None
    return None


def _old_optimizers(review: Review) -> Iterator[Doubt]:
    """FusedAdam that became torch's, in a program that loads optimizer states."""
    swapped: list[tuple[Module, int]] = []
    for change in review.changes.values():
        module = change.before
        named = [n for n, name in mentions(review.before, module, "apex.") if name in FUSED_ADAM]
        named = [n for n in named if not _only_compared(module, n) and not still_fused(review, module, n)]
        swapped += [(module, line) for line in sorted({n.lineno for n in named})]
    handed = list(_handed_on(review))  # under whose names other files make such optimizers
    swapped += [(m, n) for m, n in handed if all(m is not known for known, _ in swapped)]
    if not swapped:
        return
    calls = [(m, *c) for m in review.before.having("load_state_dict") for c in m.method_calls("load_state_dict")]
    calls = [(m, c, holder) for m, c, holder in calls if _of_optimizer(holder) and not _of_this_run(c)]
    for module, line in swapped:
        known = all(m is not module for m, _ in handed)
        loads = [(m, c) for m, c, h in calls if not known or may_load(review.values_before, m, h, module, line)]
        if not loads:
            continue
        where, load = min(loads, key=lambda pair: (_far(module, pair[0]), pair[0].path, pair[1].lineno))
        yield Doubt(
            module.path,
            line,
            "AMP431",
            "FusedAdam",
            f"the state that FusedAdam saved does not load into torch's optimizer ({where.path}:{load.lineno}): it keeps its "
            "step count in the parameter group, torch's keeps one for each parameter (KeyError: 'step'); convert old files "
            "with `amp-migrate checkpoint`",
            "review",
        )


def _of_this_run(load: ast.Call) -> bool:
    """Whether a load takes what an optimizer has just given: `optimizer.load_state_dict(optimizer.state_dict())`."""
    return any(isinstance(a, ast.Call) and syntax.last(a.func) == "state_dict" for a in load.args)


def _far(one: Module, other: Module) -> tuple[bool, int]:
    """How far a file is from another: itself, then those in the same folder, then the rest."""
    mine, its = one.path.split("/")[:-1], other.path.split("/")[:-1]
    return one is not other, -sum(1 for a, b in zip(mine, its, strict=False) if a == b)


def _handed_on(review: Review) -> Iterator[tuple[Module, int]]:
    """Imports of FusedAdam for other files, which get another class under that name now."""
    for path, change in review.changes.items():
        if "FusedAdam" not in change.before.words:
            continue
        after = review.after.modules[path]
        for name, bindings in change.before.top.bindings.items():
            here = ast.Name(name, ast.Load())
            if not any(isinstance(b, ast.ImportFrom) for b in bindings):
                continue
            now = review.after.dotted(after.top, here)
            if review.before.dotted(change.before.top, here) in FUSED_ADAM and (now or "").startswith("torch.optim."):
                last = change.before.name.removesuffix(".__init__").rpartition(".")[2]
                if any(m is not after and name in m.words and last in m.words for m in review.after.modules.values()):
                    yield change.before, bindings[0].lineno  # type: ignore[attr-defined]


def _only_compared(module: Module, name: ast.expr) -> bool:
    """`isinstance(optimizer, FusedAdam)`"""
    calls = (node for node in module.ancestors(name) if isinstance(node, ast.Call))
    return any(syntax.text(call.func) in ("isinstance", "issubclass") for call in calls)


def still_fused(review: Review, module: Module, node: ast.AST) -> bool:
    """Whether Apex's optimizer is still named where it was: the same words mean another class where an import changed."""
    place = review.statement_now(module, node)
    if place is None:
        return False
    now, stmt = place
    named = (n for n, name in mentions(review.after, now, "apex.") if name in FUSED_ADAM)
    return any(now.statement(n) is stmt for n in named)


def _of_optimizer(receiver: ast.expr) -> bool:
    while isinstance(receiver, ast.Subscript):
        receiver = receiver.value
    return "opt" in syntax.last(receiver).lower()
