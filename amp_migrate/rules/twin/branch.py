"""Where a native branch already stands beside the Apex one, the Apex branch goes and the native one stays as it is.

Native: https://pytorch.org/docs/stable/notes/amp_examples.html
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.conditions.chains import head_of, links
from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.definitions import ClassInfo
from amp_migrate.reading.program.logic import LOOSE, is_asked
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.twin.branches import flag_asked
from amp_migrate.reading.twin.sides import NativeTwin, flat
from amp_migrate.reading.units.wrappers import scales_natively
from amp_migrate.rules.cleanup.import_texts import keep_only
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.scale.clamp import unbounded
from amp_migrate.rules.twin.accepted import accept_no_more
from amp_migrate.rules.twin.answers import answer_choices, answer_options
from amp_migrate.rules.twin.choice import fold_native_flags, join_choices, join_flags
from amp_migrate.rules.twin.differences import differences
from amp_migrate.rules.twin.old_checkpoints import keys_of_native_runs, old_checkpoints
from amp_migrate.rules.twin.remains import (
    divided_losses,
    plain_steps,
    refuse_uncleared,
    scaled_readers,
    still_asked,
    turned_off,
)
from amp_migrate.writing.edits import Edits, joined

CODES = (
    Code(
        "AMP120",
        "The Apex branch goes where a native one stands beside it",
        "amp.initialize",
        apex="One of two ways to train, chosen by a switch.",
        native="The other way: it is already written.",
        why="Nothing needs to be added. Whoever asked for Apex gets the native path, where the program computes both switches or "
        "sets them; what becomes of a run that asks for Apex by an option of its own is said.",
        links=("https://pytorch.org/docs/stable/notes/amp_examples.html",),
        examples=(
            Example(
                'if use_amp == "apex":\n    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n'
                'elif use_amp == "native":\n    scaler.scale(loss).backward()',
                'if use_amp == "native":\n    scaler.scale(loss).backward()',
            ),
        ),
    ),
    Code(
        "AMP122",
        "The program's own native branch reads scaled gradients",
        "unscale_",
        apex="Gradients were unscaled when the with statement ended.",
        native="scaler.unscale_(optimizer) must come before the first reader of .grad; this program never calls it.",
        why="The native branch is the program's own and stays as it is, but its clip does not do what the Apex one did.",
        links=("https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping",),
    ),
    Code(
        "AMP123",
        "Old checkpoints hold the scale under Apex's key",
        "state_dict_key",
        apex="The object that scaled through Apex kept its state under a key of its own.",
        native="The native one looks under another key, and begins with a scale of 65536 where that is missing.",
        why="amp-migrate checkpoint converts the state and puts it where the native object looks.",
        links=("https://github.com/huggingface/pytorch-image-models/blob/v1.0.22/timm/utils/cuda.py",),
    ),
)


def apply(m: Migration, twin: NativeTwin) -> bool:
    """Take the Apex branches out; False, with nothing kept, where some use of Apex is not in one of them. Raises Blocked where the
    native one would not do the same."""
    answer_options(m, twin)
    answer_choices(m, twin)
    for module in twin.modules:
        join_choices(m, module, twin)
        join_flags(m, module, twin)
        _module(m, module, twin)
        fold_native_flags(m, module)
    if not all(_retire(m, cls) for cls in twin.classes):
        return False
    unit = m.unit
    nodes: list[tuple[Module, ast.AST, str, str]] = [
        *((i.module, i.call, "amp.initialize", "AMP110") for i in unit.inits),
        *((x.module, x.call, "amp.scale_loss", "AMP201") for x in unit.losses),
        *((s.module, s.node, s.construct, "AMP120") for s in unit.sites),
    ]
    if any(not m.edit(module).gone(node) for module, node, _, _ in nodes):
        return False
    refuse_uncleared(m.project, unit.losses)
    for home, mine in [g for name in twin.flags for g in twin.given(name) if g[1] in twin.taken_over]:
        _delete_unread(m, home, mine)
    closed = twin.closed()
    without = "" if closed else _left_without(m, twin)
    taken = not closed and not without  # by a run that asks for Apex
    message = "the native branch beside it stays"
    if twin.taken_over or twin.answered or taken:
        message += ", and is taken where Apex was asked for, too"
    for module, node, construct, _ in nodes:
        if not without:
            m.output.done(module, node, "AMP120", construct, message, "look")
        else:  # once for all
            told = node is nodes[0][1]
            m.output.done(module, node, "AMP120", construct, message + without * told, "review" if told else "as-is")
    scaled_readers(m.output, {x.module: None for x in m.unit.losses}, m.gradients.reads_here)
    plain_steps(m.project, m.output, m.unit.losses)
    if not without:  # who asked for Apex comes to the native branch
        divided_losses(m.output, unit.losses)
        keys_of_native_runs(m, twin)
        differences(m, twin)
        flags = (flag_asked(branch.test)[0] for branch in twin.branches)
        still_asked(m.project, m.output, twin, {f.attr for f in flags if isinstance(f, ast.Attribute)})
    unbounded(m)
    old_checkpoints(m, twin)
    return True


def _left_without(m: Migration, twin: NativeTwin) -> str:
    """What becomes of a run that asks for Apex still, in words; empty where it comes to the native branch."""
    branch, *_ = twin.branches
    outcome = "gets neither branch now"
    for loss in m.unit.losses[:1]:
        around = (p for p in loss.module.ancestors(loss.with_stmt) if isinstance(p, ast.If))
        chains = [c for p in around if len(c := links(head_of(loss.module, p))) > 1]
        choosing = [c for c in chains if any(x.test is not None and twin.value(x.test) is False for x in c)]
        chain = next(iter(choosing or chains), None)
        last = chain[-1] if chain is not None else None
        if last is None or loss.with_stmt in last.body:
            continue
        if last.test is not None:
            outcome = "runs no backward here now"
        elif scales_natively(last.body):
            return ""
        elif any(isinstance(s, ast.Raise) for s in last.body):
            outcome = "stops here now"
        elif any(isinstance(n, ast.Attribute) and n.attr == "backward" for s in last.body for n in walk(s)):
            outcome = "trains in float32 now, and no error says so"
    if (checked := accept_no_more(m, twin)) is not None:
        outcome = f"is refused in {checked}, which takes it no more"
    text = ast.unparse(branch.test)
    computed = [s.value for _, s in twin.given(text) if not isinstance(s.value, ast.Constant)]
    asked = f"`{text}`" + (f", which is `{ast.unparse(computed[0])}`" if len(computed) == 1 else "")
    other = f" (`{ast.unparse(branch.asked)}`)" if branch.asked is not None else ""
    return f"; a run that asks for Apex ({asked}) and not for the native one{other} {outcome}"


def _delete_unread(m: Migration, module: Module, stmt: ast.Assign) -> None:
    """Take out what computed the flag of Apex, where it is an attribute that nothing reads any more."""
    (target,) = stmt.targets
    if not isinstance(target, ast.Attribute) or any(isinstance(n, ast.Call) for n in walk(stmt.value)):
        return
    for other in m.project.modules:
        if target.attr in other.text:
            read = [n for n in other.of(ast.Attribute) if n.attr == target.attr and n is not target]
            asked = [n for n in other.of(ast.Constant) if n.value == target.attr]
            if m.edit(other).mentions(target.attr) or not all(m.edit(other).gone(n) for n in (*read, *asked)):
                return
    m.edit(module).delete(stmt)


def _module(m: Migration, module: Module, twin: NativeTwin) -> None:
    edits = m.edit(module)
    available = availability(m.project, module)
    mine = {s.node for s in m.unit.sites if s.module is module}
    for node in walk(module.tree):
        if isinstance(node, ast.stmt) and node in edits.statements:
            continue
        if isinstance(node, ast.If):
            value = twin.value(node.test)
            if value is None:
                rest = available.rest(node.test)
                if rest is not None and any(twin.value(part) is False for part in rest):
                    value = False
            if value is None and available.value(node.test) is True and node.orelse:
                value = False if any(n in mine for s in node.body for n in walk(s)) else None
            if value is False or (value is None and _only_apex(module, twin, node)):
                turned_off(m.output, module, twin, node)
                edits.fold(node, "orelse")
            elif value is True:
                edits.splice(node, "body")
        elif isinstance(node, ast.Assert) and twin.value(node.test) is True:
            edits.delete(node)
        elif isinstance(node, ast.IfExp):
            value = twin.value(node.test)
            if value is not None:
                edits.replace(node, (node.body if value else node.orelse,))
        elif isinstance(node, ast.BoolOp | ast.UnaryOp | ast.Compare) and not edits.gone(node):
            _pare(module, twin, edits, node)
        elif isinstance(node, ast.Assign) and twin.chooses(node) and not edits.gone(node):
            native = twin.instead(node)
            if native is not None:
                target, chosen = native
                edits.replace(node.value, ast.unparse(chosen).replace("'", m.style(module).quote))
                if ast.dump(target) != ast.dump(node.targets[0]):
                    edits.replace(node.targets[0], ast.unparse(target))


def _pare(module: Module, twin: NativeTwin, edits: Edits, node: ast.BoolOp | ast.UnaryOp | ast.Compare) -> None:
    """Leave of what asks for Apex as well what else it asks: `fp16` of `fp16 and not args.apex`."""
    if any(isinstance(a, (ast.If, ast.Assert)) and twin.value(a.test) is not None for a in module.around(node)):
        return
    value, parent = twin.value(node), module.parents.get(node)
    if value is not None:
        if not is_asked(parent, node) and not isinstance(parent, ast.Assert):
            edits.replace(node, str(value))
    elif isinstance(node, ast.BoolOp):
        kept = [v for v in node.values if twin.value(v) is None]
        if len(kept) < len(node.values):
            code = joined(kept, " and " if isinstance(node.op, ast.And) else " or ")
            loose = (
                len(kept) == 1
                and isinstance(kept[0], (ast.BoolOp, *LOOSE))
                and isinstance(parent, ast.BoolOp | ast.UnaryOp)
            )
            edits.replace(node, ("(", *code, ")") if loose else code)


def _only_apex(module: Module, twin: NativeTwin, node: ast.If) -> bool:
    """Whether a branch does nothing but choose Apex, which nothing native can be chosen instead of."""
    chosen = [s for s in flat(twin.project, module, node.body) if isinstance(s, ast.Assign) and twin.chooses(s)]
    return twin.only_chooses(module, node.body) and all(twin.instead(s) is None for s in chosen)


def _retire(m: Migration, cls: ClassInfo) -> bool:
    """Take out a class that only served Apex, and the imports of it; False where something that stays still uses it."""
    m.edit(cls.module).delete(cls.node)
    for module in m.project.modules:
        if cls.name not in module.text:
            continue
        edits = m.edit(module)
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom) and any(_brings(m, module, node, a, cls) for a in node.names):
                kept = [a for a in node.names if not _brings(m, module, node, a, cls)]
                keep_only(edits, module, node, kept)
            elif isinstance(node, (ast.Name, ast.Attribute)) and m.project.find_class(module, node) is cls:
                if not edits.gone(node):
                    return False
            elif isinstance(node, ast.Constant) and node.value == cls.name and not edits.gone(node):
                return False  # an entry of __all__, or a class looked up by its name
    return True


def _brings(m: Migration, module: Module, stmt: ast.ImportFrom, alias: ast.alias, cls: ClassInfo) -> bool:
    """Whether an imported name stands for a class."""
    target = module.scope_of(stmt).imports.get(alias.asname or alias.name)
    return target is not None and m.project.class_named(target) is cls
