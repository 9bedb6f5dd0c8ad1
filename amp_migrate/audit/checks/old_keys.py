"""Nothing of the program waits for the entry under which checkpoints held Apex's state, where they hold a scaler's under another.

Proves: no test asks a checkpoint for a key of Apex's that nothing saves any more (around a load of the scaler's state, around
what a set-up needs, for a switch), unless it asks for the new one, too; none is read or taken out unasked; a loop over the
entries that tells one by the old name knows the new one; none is asked for by a variable that holds the old key. Nor is the
mapping that a scaler's state is put into asked for the old key anywhere that it is handed, nor one with Apex's, which another
program may still fill, for the new one.

Cannot prove: what is asked of a mapping that is not seen to be one of these, keys made at run time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.checks.state import calls_on_scaler, key_saved, listed
from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.values.values import Values
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP431: see `state.py`


def check(review: Review) -> Iterable[Doubt]:
    gone, saved = _keys_gone(review)
    yield from _left_behind(review, gone, saved)
    if gone:
        yield from _asked(review, gone, saved)
        yield from _asked_still(review, gone, saved)
        yield from _read_still(review, gone)
        yield from _removed_still(review, gone)
        yield from _passed_over(review, gone, saved)
        yield from _spoken_of(review, gone, saved)


def _asked(review: Review, gone: set[str], saved: set[str]) -> Iterator[Doubt]:
    """A load of the scaler's state behind a test for the key that held Apex's: what is saved now never has it."""
    for module, call in calls_on_scaler(review, "load_state_dict"):
        for around in module.ancestors(call):
            test = around.test if isinstance(around, (ast.If, ast.IfExp)) else None
            asked = {n.value for n in syntax.every(test, ast.Constant)} if test is not None else set()
            if gone & asked and not asked & saved and test is not None:
                message = (
                    f'the scaler\'s state is loaded only where a checkpoint has or lacks "{min(gone & asked)}", which nothing '
                    "saves any more: the loss scale would start again at its first value"
                )
                yield review.doubt(module, test, "AMP431", "load_state_dict", message)
                break


def _asked_still(review: Review, gone: set[str], saved: set[str]) -> Iterator[Doubt]:
    """What asks a checkpoint for the old entry elsewhere: around a set-up, for a switch. No new file has it."""
    loads = {call for _, call in calls_on_scaler(review, "load_state_dict")}
    for module in _naming(review, gone):
        for node in syntax.walk(module.tree):
            key = node.value if isinstance(node, ast.Constant) else None
            asks, holder = _asks(module, node)
            if key not in gone or asks is None or holder is None or _for_either(module, asks, saved):
                continue
            around = next((a for a in module.ancestors(asks) if isinstance(a, (ast.If, ast.IfExp))), None)
            if around is not None and any(c in loads for c in syntax.walk(around)):
                continue  # see `_asked`
            if _is_file(review, module, holder):
                message = f'{syntax.text(asks)} asks for "{key}", which nothing saves any more: no file saved from now on has it'
                level: Verdict = "refuse" if module.path in review.changes else "review"
                yield review.doubt(module, asks, "AMP431", "amp.state_dict", message, level)


def _left_behind(review: Review, gone: set[str], saved: set[str]) -> Iterator[Doubt]:
    """What asks, in memory, for the key under which the same mapping had Apex's state, or has none of a scaler's."""
    for module, call in calls_on_scaler(review, "state_dict") if gone else ():
        if module.path not in review.changes:
            continue
        for where, asks, key in _asking(review, mappings(review.values_after, module, call), gone):
            if not _for_either(where, asks, saved):
                message = (
                    f'{syntax.text(asks)} at {where.path}:{asks.lineno} asks for "{key}" in what is saved here, which has '
                    "the scaler's state under another key now: it never finds it"
                )
                yield review.doubt(module, call, "AMP431", "amp.state_dict", message)
                break
    for module, call, _ in review.calls_after("apex.amp.state_dict") if saved else ():
        key_now = key_saved(review.after, module, call)
        for where, asks, key in _asking(review, mappings(review.values_after, module, call), saved):
            if where.path in review.changes and key_now is not None and not _for_either(where, asks, {key_now}):
                message = (
                    f'{syntax.text(asks)} asks for "{key}" now, and {module.path}:{call.lineno}, which stays with Apex, gives '
                    f'it a state under "{key_now}": it never finds that'
                )
                yield review.doubt(where, asks, "AMP431", "amp.state_dict", message)


def _asking(review: Review, held: set[ast.AST], keys: set[str]) -> Iterator[tuple[Module, ast.expr, str]]:
    """What asks one of some mappings for a key."""
    for module in _naming(review, keys) if held else ():
        for node in syntax.every(module.tree, ast.Constant):
            asks, holder = _asks(module, node) if node.value in keys else (None, None)
            parent = module.parents.get(node)
            if isinstance(parent, ast.Subscript) and parent.slice is node and not isinstance(parent.ctx, ast.Store):
                asks, holder = parent, parent.value
            if asks is not None and holder is not None and node.value in keys:
                if any(o.node in held for o in review.values_after.of(module, holder)):
                    yield module, asks, str(node.value)


def mappings(values: Values, module: Module, state: ast.expr, depth: int = 0) -> set[ast.AST]:
    """What makes the mappings that a state is put into, also by way of a variable."""
    child: ast.AST = state
    for node in module.ancestors(state):
        if isinstance(node, ast.Dict):
            return {node}
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            if isinstance(target, ast.Subscript):
                return {o.node for o in values.of(module, target.value)}
            named = target.id if isinstance(target, ast.Name) and depth < 3 else None
            reads = (n for n in syntax.every(module.scope_of(node).node, ast.Name) if n.id == named)
            loads = [n for n in reads if isinstance(n.ctx, ast.Load)]
            return {found for n in loads for found in mappings(values, module, n, depth + 1)}
        if isinstance(node, ast.Call):
            by_name = isinstance(child, ast.keyword)
            if by_name and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
                return {o.node for o in values.of(module, node.func.value)}
            return {node} if by_name and syntax.last(node.func) in ("dict", "OrderedDict") else set()
        if not isinstance(node, (ast.IfExp, ast.keyword)):
            return set()
        child = node
    return set()


def _asks(module: Module, key: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """What asks whether a mapping has a key, and the mapping."""
    parent = module.parents.get(key)
    if isinstance(parent, ast.Compare) and parent.left is key and isinstance(parent.ops[0], (ast.In, ast.NotIn)):
        holder = parent.comparators[0]
        if isinstance(holder, ast.Call) and isinstance(holder.func, ast.Attribute) and holder.func.attr == "keys":
            holder = holder.func.value
        return parent, holder
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "get":
        return (None, None) if _loaded(module, parent) else (parent, parent.func.value)
    return None, None


def _for_either(module: Module, asks: ast.expr, saved: set[str]) -> bool:
    """Whether the statement that asks for an entry asks for the new one, too, or loads what it finds."""
    stmt = module.statement(asks)
    own = stmt.test if isinstance(stmt, (ast.If, ast.While)) else stmt
    return any(n.value in saved for n in syntax.every(own, ast.Constant))


def _read_still(review: Review, gone: set[str]) -> Iterator[Doubt]:
    """A checkpoint from which the entry is read under the old key, wherever that goes: new files have none."""
    for module in _naming(review, gone):
        for node in syntax.walk(module.tree):
            if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
                continue
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if key not in gone or _guarded(module, node, key) or _loaded(module, node):
                continue
            if _is_file(review, module, node.value):
                what = f'{syntax.text(node)} is read here, and checkpoints are saved without "{key}" now: a KeyError'
                yield review.doubt(module, node, "AMP431", "amp.state_dict", what)


def _removed_still(review: Review, gone: set[str]) -> Iterator[Doubt]:
    """The entry taken out of a checkpoint under the old key, in a function that loads the scaler's state from the same one."""
    for module, call in calls_on_scaler(review, "load_state_dict"):
        held = {syntax.text(n.value) for a in call.args for n in syntax.every(a, ast.Subscript)}
        funcs = [n.func for a in call.args for n in syntax.every(a, ast.Call)]
        held |= {syntax.text(f.value) for f in funcs if isinstance(f, ast.Attribute) and f.attr in ("get", "pop")}
        for node in syntax.walk(module.around(call)):
            key: ast.expr | None = None
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Del):
                holder, key = node.value, node.slice
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "pop":
                holder, key = node.func.value, node.args[0] if len(node.args) == 1 else None
            else:
                continue
            name = key.value if isinstance(key, ast.Constant) else None
            if name in gone and syntax.text(holder) in held and not _guarded(module, node, name):
                what = f'"{name}" is taken out of {syntax.text(holder)} here, which is saved without it now: a KeyError'
                yield review.doubt(module, node, "AMP431", "amp.state_dict", what)


def _passed_over(review: Review, gone: set[str], saved: set[str]) -> Iterator[Doubt]:
    """A loop over the entries of a checkpoint that tells one by the old key: the new one goes the way of all others."""
    for module in _naming(review, gone):
        for loop in syntax.every(module.tree, ast.For):
            if not syntax.text(loop.iter).endswith((".items()", ".keys()")):
                continue
            key = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else loop.target
            for test in syntax.walk(loop):
                if not isinstance(test, ast.Compare) or syntax.text(test.left) != syntax.text(key):
                    continue
                parts = (n for c in test.comparators for n in syntax.walk(c))
                named = {n.value for n in parts if isinstance(n, ast.Constant) and isinstance(n.value, str)}
                if named & gone and not named & saved:
                    message = (
                        f'"{min(named & gone)}" is told by its name among the entries of a checkpoint: the scaler\'s state, which '
                        f"stands under {listed(saved)} now, is taken for another entry. Name that, too"
                    )
                    yield review.doubt(module, test, "AMP431", "amp.state_dict", message, "review")


def _spoken_of(review: Review, gone: set[str], saved: set[str]) -> Iterator[Doubt]:
    """A checkpoint that is asked for an entry by a name which is spoken of elsewhere: `for name in ["model", "amp"]:`."""
    told: set[ast.AST] = set()
    for module in review.after.having("load") if any(_naming(review, gone)) else ():
        for node in syntax.walk(module.tree):
            key, holder = _asked_by_name(node)
            if key is None or holder is None or not _is_file(review, module, holder):
                continue
            held = (o for o in review.values_after.of(module, key) if not o.path)
            said = [(o.module, o.node) for o in held if isinstance(o.node, ast.Constant)]
            if any(name.value in saved for _, name in said):
                continue
            for where, name in said:
                if name.value in gone and name not in told:
                    told.add(name)
                    message = (
                        f'"{name.value}" is what {module.path}:{review.line(module, node)} asks a checkpoint for, which has '
                        f"the scaler's state under {listed(saved)} now: it never finds it"
                    )
                    level: Verdict = "refuse" if where.path in review.changes else "review"
                    yield review.doubt(where, name, "AMP431", "amp.state_dict", message, level)


def _asked_by_name(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """The variable by which a mapping is asked for an entry, and the mapping."""
    key: ast.expr | None = None
    holder: ast.expr | None = None
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Store):
        key, holder = node.slice, node.value
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        key, holder = node.left, node.comparators[0]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
        key, holder = node.args[0] if node.args else None, node.func.value
    return (key, holder) if isinstance(key, (ast.Name, ast.Attribute)) else (None, None)


def _naming(review: Review, gone: set[str]) -> Iterator[Module]:
    """The files after whose text has one of the old keys."""
    return (m for m in review.after.modules.values() if any(key in m.text for key in gone))


def _is_file(review: Review, module: Module, holder: ast.expr) -> bool:
    """Whether a mapping may be what `torch.load` gave."""
    return "torch.load" in {review.values_after.maker(o) for o in review.values_after.of(module, holder)}


def _loaded(module: Module, node: ast.AST) -> bool:
    """Whether it is what a load is given: see `_keys`."""
    call = module.parents.get(node)
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict"


def _guarded(module: Module, node: ast.AST, key: object) -> bool:
    """Whether a test around a place asks for a key, or an exception that its lack raises is caught."""
    for around in module.ancestors(node):
        if isinstance(around, ast.Try):
            return True
        if isinstance(around, (ast.If, ast.IfExp)) and node is not around.test:
            if any(n.value == key for n in syntax.every(around.test, ast.Constant)):
                return True
    return False


def _put(review: Review, path: str) -> Iterator[str]:
    """The keys under which a file puts anything: an empty state, where there is no scaler."""
    module = review.after.modules.get(path)
    for node in syntax.every(module.tree, ast.Constant) if module is not None else ():
        parent = module.parents.get(node) if module is not None else None
        stored = isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store)
        if isinstance(node.value, str) and (stored or (isinstance(parent, ast.Dict) and node in parent.keys)):
            yield node.value


def _keys_gone(review: Review) -> tuple[set[str], set[str]]:
    """The keys under which Apex's state was saved and nothing is any more, and those of the scalers; none where not all of
    those are known."""
    old = {key_saved(review.before, m, c) for m, c, _ in review.calls_before("apex.amp.state_dict")}
    new = {key_saved(review.after, m, c) for m, c in calls_on_scaler(review, "state_dict")} if old - {None} else {None}
    known = {key for key in new if key is not None}
    still = {key_saved(review.after, m, c) for m, c, _ in review.calls_after("apex.amp.state_dict")}
    still |= {key for m, _, _ in review.calls_before("apex.amp.state_dict") for key in _put(review, m.path)}
    return ({key for key in old - still if key is not None} - known if None not in new else set()), known
