"""`amp.load_state_dict(...)` becomes a guarded `scaler.load_state_dict(...)`; the codes are those of `save`.

Apex: https://nvidia.github.io/apex/amp.html#checkpointing
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.load_state_dict
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from amp_migrate.reading.program.definitions import is_none
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.scaler.process_wide import ProcessWide
from amp_migrate.reading.units.naming import unbound
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.state.asked import ask_for_the_new, asking
from amp_migrate.rules.state.keys import new_key, renamed, saved_by_others, shared_keys
from amp_migrate.writing.edits import Code

OLD_LAYOUT = "loads the scaler's state where the checkpoint has one; {convert} converts old files"
BOTH_LAYOUTS = "loads the scaler's state, or Apex's where the checkpoint has only that"
SETS_UP = "; mixed precision is on only where it has one, so that an old file that is not converted leaves it off"
NEVER_SET = "; no run that is seen to come here has set the scaler before, and one that is disabled loads nothing"
SEVERAL = (
    "loads the state of each scaler from the list where the checkpoint has one; {convert} --list converts old files"
)
SEVERAL_ANEW = (
    "loads the state of each scaler from the list where the checkpoint has one; after an old file they start anew"
)


@dataclass(frozen=True)
class Entry:
    """`checkpoint["amp"]`, also read by `get` or `pop`. `named`: of a dict that can be named again."""

    node: ast.expr
    holder: ast.expr
    base: str
    key: ast.Constant
    pops: bool
    named: bool


@dataclass(frozen=True)
class Loader:
    """What the ways of loading share."""

    m: Migration
    module: Module
    call: ast.Call
    stmt: ast.stmt
    scalers: list[str]  # one, or one for each entry of the list that is saved
    empty: bool  # whether a saved state may be empty: that of a disabled scaler

    @property
    def indent(self) -> str:
        return self.m.style(self.module).indent

    @property
    def quote(self) -> str:
        return self.m.style(self.module).quote

    def loads(self, state: str) -> str:
        """What loads a scaler's state, or a list of them, that an expression gives."""
        if len(self.scalers) == 1:
            return f"{self.scalers[0]}.load_state_dict({state})"
        scaler, each = self._each(), self.fresh("state", "scaler_state", "saved_scaler_state")
        line = f"{scaler}.load_state_dict({each})"
        line = f"if {each}:\n{self.indent}{line}" if self.empty else line
        return f"for {scaler}, {each} in zip({self._all()}, {state}):\n" + _indented(self.indent, line)

    def from_apex(self, *state: str | ast.expr | ast.stmt) -> tuple[str | ast.expr | ast.stmt, ...]:
        """What loads Apex's state, that an expression gives, as the scaler's own, or as that of each scaler."""
        apex, q = self.fresh("apex_state", "old_state", "apex_scaler_state"), self.quote
        if len(self.scalers) == 1:
            lines = _indented(self.indent, self._converted(self.scalers[0], apex, 1))
            return (f"{self.indent}{apex} = ", *state, f"[{q}loss_scaler0{q}]\n{lines}")
        scaler = self._each()
        lines = _indented(self.indent * 2, self._converted(scaler, apex, 2))
        return (f"{self.indent}for {scaler}, {apex} in zip({self._all()}, ", *state, f".values()):\n{lines}")

    def _each(self) -> str:
        return self.fresh("scaler", "grad_scaler", "each_scaler")

    def _all(self) -> str:
        return f"({', '.join(self.scalers)})"

    def _converted(self, scaler: str, name: str, deep: int) -> str:
        """Apex's state of one scaler, held by a name, loaded as the scaler's own."""
        q, width = self.quote, self.stmt.col_offset + deep * len(self.indent)
        start, end = f"{scaler}.load_state_dict(", ")"
        state = f"{{**{scaler}.state_dict(), {q}scale{q}: {name}[{q}loss_scale{q}], "
        state += f"{q}_growth_tracker{q}: {name}[{q}unskipped{q}]}}"
        if width + len(start) + len(state) + len(end) > 120:
            start, end = f"{start}\n{self.indent}", "\n)"
        return f"{start}{state}{end}"

    def fresh(self, *names: str) -> str:
        return unbound(self.module.scope_of(self.stmt), names)


def load(m: Migration, module: Module, call: ast.Call, stmt: ast.stmt, *, empty: bool) -> None:
    """Put the load of the scaler's state in place of that of Apex's."""
    several = len(m.scalers) > 1
    message = BOTH_LAYOUTS if m.options.checkpoint_compat else OLD_LAYOUT
    if several and not (m.options.checkpoint_compat and _one_loss_each(m)):
        message = SEVERAL if _one_loss_each(m) else SEVERAL_ANEW
    loader = Loader(m, module, call, stmt, [plan.at(module, call) for plan in m.scalers], empty)
    state = call.args[0] if call.args else call.keywords[0].value
    entry = _entry(module, state)
    alone = isinstance(stmt, ast.Expr) and stmt.value is call
    if several and (not alone or (m.options.checkpoint_compat and not _one_loss_each(m))):
        message = (
            f"one load brings the scales of all losses back, and the migration would make {len(m.scalers)} scalers, one for each "
            "optimizer: load each from an entry of its own, by hand"
        )
        raise Blocked(module, call, "AMP402", "amp.load_state_dict", message)
    decides = False
    if entry is not None and entry.named and str(entry.key.value) not in shared_keys(m):
        decides = ask_for_the_new(m, module, stmt, entry.holder, entry.key) and not m.options.checkpoint_compat
    unset = all(isinstance(plan, ProcessWide) for plan in m.scalers) and m.set_up.never_at(module, call)
    message = message.format(convert=_converter(m, entry)) + SETS_UP * decides + NEVER_SET * unset
    m.output.done(module, call, "AMP402", "amp.load_state_dict", message, "review" if decides or unset else "look")
    if not alone:
        _in_place(loader, state, entry)
    elif entry is not None and entry.named and str(entry.key.value) not in shared_keys(m):
        _from_entry(loader, entry)
    else:
        _from_value(loader, state)


def take_out(m: Migration, module: Module, call: ast.Call, stmt: ast.stmt) -> None:
    """Leave out the load of a program that has no scaler. What else asks for the entry asks for that of the scaler where a
    program at hand saves one in its place."""
    entry = _entry(module, call.args[0] if call.args else call.keywords[0].value)
    message = "taken out: there is no scaler"
    if entry is not None and entry.named and (key := str(entry.key.value)) in saved_by_others(m):
        ask_for_the_new(m, module, stmt, entry.holder, entry.key)
        alone = _alone(module, stmt)
        if any(not module.inside_of(asks, [alone]) for _, asks, _, _ in asking(m, module, stmt, entry.holder, key)):
            message += (
                f"; what else asks for its entry asks for {renamed(m, module, entry.key)} now, as files from now on have it; "
                f"{_converter(m, entry)} converts old ones"
            )
    m.output.done(module, call, "AMP402", "amp.load_state_dict", message, "look")
    m.edit(module).delete(stmt)


def _alone(module: Module, stmt: ast.stmt) -> ast.stmt:
    """A statement with the tests around it that only it is under: they go with it."""
    while module.block(stmt) == [stmt] and isinstance(around := module.parents.get(stmt), ast.If) and not around.orelse:
        stmt = around
    return stmt


def _one_loss_each(m: Migration) -> bool:
    """Whether Apex kept a state for each scaler, in their order."""
    numbers = {getattr(x.site.argument(2, "loss_id"), "value", None) for x in m.unit.losses}
    return numbers == set(range(len(m.scalers)))


def _entry(module: Module, node: ast.expr) -> Entry | None:
    key: ast.expr | None = None
    pops = False
    base: ast.expr = node
    if isinstance(node, ast.Subscript):
        base, key = node.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
        base, key, pops = node.func.value, node.args[0] if node.args else None, node.func.attr == "pop"
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return None
    named = not any(isinstance(n, (ast.Call, ast.Await, ast.NamedExpr)) for n in walk(base))
    return Entry(node, base, module.source(base), key, pops, named)


def _in_place(loader: Loader, state: ast.expr, entry: Entry | None) -> None:
    """A load that is part of an expression: there is no place for a guard."""
    m, module = loader.m, loader.module
    if entry is not None:
        m.edit(module).replace(entry.key, renamed(m, module, entry.key))
    m.edit(module).replace(loader.call, (f"{loader.scalers[0]}.load_state_dict(", state, ")"))
    _review(loader, entry)


def _converter(m: Migration, entry: Entry | None) -> str:
    """The command that puts the state of old files where the program finds it."""
    shared = shared_keys(m)
    key = new_key(m, str(entry.key.value)) if entry is not None else min(shared) if len(shared) == 1 else "scaler"
    return "amp-migrate checkpoint" + (f" --to-key {key}" if key != "scaler" else "")


def _review(loader: Loader, entry: Entry | None) -> None:
    loader.m.output.note(
        loader.module,
        loader.call,
        "AMP402",
        "amp.load_state_dict",
        f"what is loaded here must be a scaler's state: convert old files with {_converter(loader.m, entry)}",
        "review",
    )


def _from_entry(loader: Loader, entry: Entry) -> None:
    m, module, indent = loader.m, loader.module, loader.indent
    edits = m.edit(module)
    key = renamed(m, module, entry.key)
    removed = _removed(loader, entry)
    if removed and m.options.checkpoint_compat:
        message = "the entry is taken out by its key, and either of two may be there: take out what is"
        raise Blocked(module, removed[0], "AMP402", "amp.load_state_dict", message)
    for other in removed:
        edits.replace(other, key)
    present = f"{entry.base}.get({key})" if loader.empty else f"{key} in {entry.base}"
    read = f"{entry.base}.pop({key})" if entry.pops else f"{entry.base}[{key}]"
    line = loader.loads(read)
    guarded: list[str | ast.expr | ast.stmt] = [f"if {present}:\n{_indented(indent, line)}"]
    guard = _guard(module, loader.stmt, entry)
    if m.options.checkpoint_compat:
        guarded += [f"\nelif {entry.base}.get(", entry.key, "):\n"]
        guarded += loader.from_apex(f"{entry.base}[", entry.key, "]")
        if guard is not None:
            alone = isinstance(module.parents.get(guard), ast.If) and not _asks_for_absence(guard)
            parts = (f"{key} in {entry.base} or ", entry.key, f" in {entry.base}")
            edits.replace(guard, parts if alone else (f"{'not ' * _asks_for_absence(guard)}(", *parts, ")"))
        edits.replace(loader.stmt, tuple(guarded))
    elif guard is not None and loader.empty and removed:
        # An empty state is taken out like any other.
        edits.replace(guard, f"{key} {'not ' * _asks_for_absence(guard)}in {entry.base}")
        edits.replace(loader.stmt, f"if {read.replace('.pop(', '.get(')}:\n{_indented(indent, line)}")
    elif guard is not None:
        absent, asks = f"not {present}" if loader.empty else f"{key} not in {entry.base}", _asks_for_absence(guard)
        around = module.parents.get(guard)
        if isinstance(around, ast.UnaryOp) and isinstance(around.op, ast.Not):
            guard, asks = around, not asks
        edits.replace(guard, absent if asks else present)
        edits.replace(loader.stmt, line)
    else:
        edits.replace(loader.stmt, tuple(guarded))


def _removed(loader: Loader, entry: Entry) -> list[ast.Constant]:
    """The key where the same function takes the entry out of the same dict: `del checkpoint["amp"]`."""
    module, scope = loader.module, loader.module.scope_of(loader.stmt)
    found: list[ast.Constant] = []
    for node in (n for s in scope.body for n in walk(s)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Del):
            holder, key = node.value, node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "pop"
            and node.args
        ):
            holder, key = node.func.value, node.args[0]
        else:
            continue
        same = isinstance(key, ast.Constant) and key.value == entry.key.value and key is not entry.key
        if same and isinstance(key, ast.Constant) and module.source(holder) == entry.base:
            found.append(key)
    return found


def _indented(indent: str, text: str) -> str:
    return "\n".join(indent + line for line in text.split("\n"))


def _guard(module: Module, stmt: ast.stmt, entry: Entry) -> ast.expr | None:
    """The part of an `if` around the load that asks whether the checkpoint has the entry."""
    for parent in module.ancestors(stmt):
        if not isinstance(parent, ast.If):
            continue
        for node in walk(parent.test):
            if not isinstance(node, ast.Constant) or node.value != entry.key.value:
                continue
            asks: ast.AST = node
            while asks is not parent.test and not isinstance(module.parents[asks], (ast.BoolOp, ast.UnaryOp)):
                asks = module.parents[asks]
            if isinstance(asks, ast.expr):
                return asks
    return None


def _asks_for_absence(guard: ast.expr) -> bool:
    """`"amp" not in checkpoint`: what loads stands in the other branch."""
    if not isinstance(guard, ast.Compare) or len(guard.ops) != 1:
        return False
    op, other = guard.ops[0], guard.comparators[0]
    return isinstance(op, ast.NotIn) or (isinstance(op, (ast.Is, ast.Eq)) and is_none(other))


def _from_value(loader: Loader, state: ast.expr) -> None:
    """The state comes out of a variable or a file of its own."""
    m, module, indent, q = loader.m, loader.module, loader.indent, loader.quote
    edits = m.edit(module)
    compat = m.options.checkpoint_compat
    lines: list[Code] = []
    value = single_assignment(module, state) if isinstance(state, ast.Name) else state
    entry = _entry(module, value) if value is not None else None
    name = module.source(state)
    read: tuple[str | ast.expr | ast.stmt, ...] = (state,)
    new = loader.fresh("scaler_state", "saved_scaler_state", "loaded_scaler_state")
    if entry is not None:
        # The old key stays a node of the original: text that names `amp` would count as a use of the module.
        first = f"{'pop' if entry.pops else 'get'}({renamed(m, module, entry.key)}{', None' if entry.pops else ''})"
        base = entry.base
        if compat and not entry.named:
            lines.append(f"{new} = {base}")
            base = new
        kept = str(entry.key.value) in shared_keys(m)  # whichever layout is there lies under the one key
        read = (f"{base}.{first} or {base}.get(", entry.key, ")") if compat and not kept else (f"{base}.{first}",)
    if entry is not None and value is not state:
        edits.replace(entry.node, read)
    elif any(isinstance(n, (ast.Call, ast.Await, ast.Subscript)) for n in walk(state)):
        name = new
        lines.append((f"{name} = ", *read))
    shared = entry is not None and str(entry.key.value) in shared_keys(m)
    own = f"{q}scale{q} in {name}" if len(loader.scalers) == 1 else f"isinstance({name}, list)"
    present = name if entry is not None and not shared else f"{name} and {own}" if shared else own
    loads = _indented(indent, loader.loads(name))
    if compat:
        inside = "".join(str(part) for part in loader.from_apex(name))
        lines.append(f"if {name} and {q}loss_scaler0{q} in {name}:\n{inside}\nelif {name}:\n{loads}")
        edits.replace(loader.stmt, *lines)
        return
    if entry is None:
        _review(loader, entry)
    edits.replace(loader.stmt, *lines, f"if {present}:\n{loads}")
