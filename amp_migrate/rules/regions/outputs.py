"""Values that leave an autocast region where Apex promised float32: `.float()` is written out.

Apex: https://nvidia.github.io/apex/amp.html#o2-almost-fp16-mixed-precision (cast_model_outputs)
Native: https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

import ast
from math import inf

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.regions.place import Regions
from amp_migrate.reading.regions.refused import refuses
from amp_migrate.reading.values.dtypes import Dtypes
from amp_migrate.reading.values.entries import DISPLAYS
from amp_migrate.reading.values.reaching import reaching
from amp_migrate.reading.values.tensors import held, only_described
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions import bce, to_host
from amp_migrate.rules.regions.autocast import chosen, covered, wanted
from amp_migrate.rules.regions.casting import WHOLE_WORDS
from amp_migrate.rules.regions.half_values import MAY_BE_WHOLE, NUMBER_NAMES, HalfValues, is_upcast
from amp_migrate.rules.regions.own_halves import make_float
from amp_migrate.rules.regions.promised import gives_floats, promises_float32
from amp_migrate.rules.regions.to_host import bindings, read_as
from amp_migrate.writing.edits import Edits

NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.autocast"
# Uses of a value that only a tensor has.
TENSOR_METHODS = frozenset(
    "argmax argmin max min softmax log_softmax sigmoid topk sum mean sort norm std var cpu numpy "
    "data detach squeeze view numel nelement size dim item "
    "reshape exp log abs clamp flatten tolist".split()
)
WRITERS = frozenset("scatter_ scatter_add_ index_add_ index_copy_ index_put_ masked_scatter_".split())
CODES = (
    Code(
        "AMP503",
        "Model outputs are float32 where they leave the region",
        "cast_model_outputs",
        apex="O2 and O3 return float32 from the model's forward.",
        native="Autocast leaves outputs in the dtype of the last operation.",
        why="Metrics and losses outside the region would otherwise be computed in half precision. Only what is certainly "
        "one tensor is cast, because the forward returns one or a use shows it: a list or a dict has no float().",
        links=("https://nvidia.github.io/apex/amp.html#o2-almost-fp16-mixed-precision", NATIVE),
        examples=(Example("output = model(input)", "output = model(input).float()"),),
    ),
)


def apply(m: Migration) -> None:
    promised = promises_float32(m)
    for scope in m.regions.scopes():
        found = m.regions.read(scope)
        regions = [r for r in wanted(m, found) if r.first not in m.float32]
        refused = bce.islands(m, found, chosen(m, found))
        if not regions and not refused:
            continue
        inside = covered(m, found, regions)
        cast = _outputs(m, scope.module, found, inside, set(refused), everything=promised)
        if promised and not found.trained:
            _returned(m, scope.module, inside)
        to_host.apply(m, found, inside, cast)
        if promised:
            _parts(m, scope.module, found, inside, cast)
        for stmt in refused:
            bce.take_out(m, found, stmt, inside, cast)


def _outputs(
    m: Migration, module: Module, found: Regions, inside: set[ast.stmt], refused: set[ast.stmt], *, everything: bool
) -> set[str]:
    """`output = model(x)` whose value is used as a tensor outside the region. Returns the names made float32."""
    scope = found.scope
    cast: set[str] = set()
    # Where the audit saw what is given come to what Apex ran in float32, in whichever function.
    seen = m.mended_lines(module, "AMP503")
    assigned = [n for s in inside for n in walk(s) if isinstance(n, ast.Assign)]
    beside = {t.id for s in assigned if s.value.lineno in seen for t in s.targets if isinstance(t, ast.Name)}
    for stmt in (n for s in inside for n in walk(s)):
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not isinstance(stmt.targets[0], ast.Name):
            continue
        value = stmt.value
        if not isinstance(value, ast.Call) or not m.regions.is_forward(module, value) or is_upcast(m, module, value):
            continue
        # Apex patched the forward alone: what another method or a part gave, `model.encoder(ids)`, came as it was.
        promised = everything and gives_floats(m, module, value)
        name = stmt.targets[0].id
        uses = [n for n in _read_after(scope, name, stmt) if _may_read(scope, n, stmt)]
        rebound = min((b.lineno for b in bindings(found, name) if b.lineno > stmt.lineno), default=None)
        first_uses = [n for n in uses if rebound is None or n.lineno <= rebound]
        outside = [n for n in uses if not module.inside_of(n, inside)]
        # Where the model computes a loss too, in float32, that is what such a name holds.
        if "loss" in name.lower() and "float32" in m.project.once(Dtypes).single(module, value):
            outside = [n for n in outside if n in first_uses]
        refusing = [n for n in uses if module.inside_of(n, refused)]
        in_island = bool(refusing) or (promised and any(_written(module, n) for n in uses))
        sure = (
            promised and m.regions.returns.of(module, value) == "tensor"
        )  # whatever is asked of it, a tensor is asked
        told = sure and not all(only_described(module, n) or _is_cast(module, n) for n in outside if n in first_uses)
        if (
            not promised
            and all(_tensor_use(module, n) or _is_handed_on(module, n) for n in uses)
            and _is_tensor(m, module, value, uses)
        ):
            m.output.castable.add((module.display, value.lineno))
            sure = promised = told = value.lineno in seen or any(_goes_with(module, n, beside) for n in uses)
        if not in_island and not told and not (promised and outside and all(_tensor_use(module, n) for n in outside)):
            continue
        if not sure and any(not _tensor_use(module, n) and not (promised and _written(module, n)) for n in uses):
            continue
        if not _is_tensor(m, module, value, first_uses) and not any(_refused_input(m, module, n) for n in refusing):
            if in_island and not outside:
                message = (
                    f"O2 and O3 returned {name} as float32, which is written into another tensor: .float() keeps it"
                )
                m.output.note(module, stmt, "AMP503", "cast_model_outputs", message)
            continue
        make_float(m, module, value)
        m.output.note(module, stmt, "AMP503", "cast_model_outputs", f"{name} leaves the region as float32", "as-is")
        cast.add(name)
    return cast


def _read_after(scope: Scope, name: str, stmt: ast.stmt) -> list[ast.Name]:
    """Where a name is read below a statement, in the scope or within it."""
    nodes = (n for s in scope.body for n in walk(s) if isinstance(n, ast.Name) and n.lineno > stmt.lineno)
    return [n for n in nodes if n.id == name and isinstance(n.ctx, ast.Load)]


def _may_read(scope: Scope, use: ast.Name, stmt: ast.Assign) -> bool:
    """Whether a name may hold at a use what a statement gave it, or what was computed from that under the same name."""
    for binding in reaching(scope, use):
        made = scope.module.statement(binding)
        if made is stmt or any(isinstance(n, ast.Name) and n.id == use.id and n is not binding for n in walk(made)):
            return True
    return False


def _returned(m: Migration, module: Module, inside: set[ast.stmt]) -> None:
    """`return model(x)` of a function that computes no loss, where a forward certainly gives one tensor."""
    for stmt in (n for s in inside for n in walk(s) if isinstance(n, ast.Return)):
        value = stmt.value
        if not isinstance(value, ast.Call) or not m.regions.is_forward(module, value):
            continue
        if not gives_floats(m, module, value) or m.regions.returns.of(module, value) != "tensor":
            continue
        if MAY_BE_WHOLE & m.project.once(Dtypes).single(module, value) or is_upcast(m, module, value):
            continue
        make_float(m, module, value)
        m.output.note(
            module, stmt, "AMP503", "cast_model_outputs", "what is returned leaves the region as float32", "as-is"
        )


def _is_tensor(m: Migration, module: Module, value: ast.Call, uses: list[ast.Name]) -> bool:
    """Whether a value is certainly one floating tensor: the model's forward returns one, or a use shows it. A list has no
    `.float()`, and a model may return one as well."""
    if MAY_BE_WHOLE & m.project.once(Dtypes).single(module, value):
        return False
    returned = m.regions.returns.of(module, value)
    return returned == "tensor" or (returned == "unknown" and _shows(m, module, uses))


def _refused_input(m: Migration, module: Module, node: ast.Name) -> bool:
    """Whether a value is what binary_cross_entropy is given."""
    call = module.parents.get(node)
    return isinstance(call, ast.Call) and node in call.args and refuses(m.project, module, call)


def _tensor_use(module: Module, node: ast.Name) -> bool:
    parent = module.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr in TENSOR_METHODS or only_described(module, node)
    if isinstance(parent, ast.Call) and node in parent.args:
        return True
    if isinstance(parent, ast.Subscript) and parent.value is node:
        return isinstance(parent.slice, ast.Tuple)  # `output[:, 0]`: no list and no dictionary of a model's
    return isinstance(parent, (ast.Compare, ast.BinOp))


def _is_handed_on(module: Module, node: ast.Name) -> bool:
    """Whether a value is put into a list, or handed on or back, as it is."""
    return isinstance(module.parents.get(node), (ast.List, ast.Tuple, ast.Dict, ast.keyword, ast.Return))


def _goes_with(module: Module, node: ast.Name, names: set[str]) -> bool:
    """Whether a value is handed on together with one of some names: what takes both may take one dtype alone."""
    parent = module.parents.get(node)
    around = parent if isinstance(parent, (ast.List, ast.Tuple, ast.Call, ast.BinOp)) else None
    return around is not None and any(isinstance(n, ast.Name) and n.id in names for n in ast.iter_child_nodes(around))


def _is_cast(module: Module, node: ast.Name) -> bool:
    """Whether a value is only asked for a float32 copy."""
    parent = module.parents.get(node)
    return isinstance(parent, ast.Attribute) and parent.attr in ("float", "double")


def _written(module: Module, node: ast.Name) -> bool:
    """Whether a value is used where float16 raises: written into a part of another tensor, which must have its dtype
    (`buffer[i] = output`), or given to a Fourier transform, which takes it in sizes that are powers of two only."""
    stmt = module.statement(node)
    if isinstance(stmt, ast.Assign) and any(isinstance(target, ast.Subscript) for target in stmt.targets):
        return node in walk(stmt.value)
    call = module.parents.get(node)
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    name = module.qualify(call.func) or ""
    return call.func.attr in WRITERS or name.startswith("torch.fft.") or name in ("torch.stft", "torch.istft")


def _parts(m: Migration, module: Module, found: Regions, inside: set[ast.stmt], cast: set[str]) -> None:
    """`output, features = model(x)` where O2 and O3 returned each as float32: cast where they are used outside."""
    edits = m.edit(module)
    for stmt in (n for s in inside for n in walk(s)):
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not isinstance(stmt.value, ast.Call):
            continue
        if not m.regions.is_forward(module, stmt.value) or not gives_floats(m, module, stmt.value):
            continue
        target = stmt.targets[0]
        half = HalfValues(m, found, inside, cast)
        names = [e.id for e in ast.walk(target) if isinstance(e, ast.Name)]
        for name in [n for n in names if half.may_give(stmt, n)]:
            uses = _read_after(found.scope, name, stmt)
            last = _last_line(found, name, stmt, inside)
            uses = [n for n in uses if last is not None and n.lineno <= last]
            outside = [n for n in uses if not module.inside_of(n, inside) and not _cast_there(module, edits, n)]
            if name in cast or all(only_described(module, n) for n in outside):
                continue
            if entries := [e for n in outside if (e := _entry(module, n)) is not None]:
                for entry in (e for e in entries if e not in edits.insertions):
                    make_float(m, module, entry)
                m.output.note(module, stmt, "AMP503", "cast_model_outputs", f"{name} is used as float32", "as-is")
                continue
            # What may hold whole numbers is not cast: where it goes to the CPU, its doubt is said there.
            doubtful = half.may_be_whole(name) and held(module, uses) != "float"
            outside = [n for n in outside if not doubtful or read_as(module, n) not in ("cpu", "numpy")]
            if (
                isinstance(target, DISPLAYS)
                and not doubtful
                and all(_tensor_use(module, n) for n in outside)
                and _shows(m, module, uses)
            ):
                for node in (n for n in outside if not only_described(module, n)):
                    make_float(m, module, node)
                m.output.note(module, stmt, "AMP503", "cast_model_outputs", f"{name} is used as float32", "as-is")
            elif any(_tensor_use(module, n) for n in outside) and "loss" not in name.lower():  # float32 in a region too
                whole = isinstance(target, ast.Name) and m.regions.returns.of(module, stmt.value) == "other"
                several = whole or held(module, uses) in ("list", "other", "odd")
                kept = ".float() on the tensors in it keeps them" if several else ".float() keeps it"
                seen = half.given(stmt, name) != "unknown"  # else it may end in what is float32 in a region, too
                now = "it is float16 now" if seen else "it may be float16 now"
                message = f"O2 and O3 returned {name} as float32; outside the region {now}: {kept}"
                if doubtful or NUMBER_NAMES.search(name) or WHOLE_WORDS.search(name):
                    message += ", unless it holds whole numbers"
                m.output.note(module, stmt, "AMP503", "cast_model_outputs", message, about=name)


def _cast_there(module: Module, edits: Edits, node: ast.AST) -> bool:
    """Whether a use is cast already, itself or after what is called or taken of it: `feat.detach().float().cpu()`."""
    parent = module.parents.get(node)
    called = isinstance(parent, (ast.Attribute, ast.Call, ast.Subscript)) and node in (
        getattr(parent, "value", 0),
        getattr(parent, "func", 0),
    )
    return node in edits.insertions or (called and parent is not None and _cast_there(module, edits, parent))


def _entry(module: Module, node: ast.Name) -> ast.Subscript | None:
    """A part of what a model's tuple holds at one place, which shows that to be a tensor: `outputs[0][:, -1, :]`."""
    entry = module.parents.get(node)
    if not isinstance(entry, ast.Subscript) or entry.value is not node or not isinstance(entry.slice, ast.Constant):
        return None
    part = module.parents.get(entry)
    if not isinstance(part, ast.Subscript) or part.value is not entry or not isinstance(part.ctx, ast.Load):
        return None
    return part if isinstance(part.slice, ast.Tuple) else None


def _shows(m: Migration, module: Module, uses: list[ast.Name]) -> bool:
    """Whether some use shows that a value is a tensor, and none that it is a tuple or a dict of them."""
    kind = held(module, uses)
    if kind in ("list", "other", "odd"):
        return False
    return kind != "unknown" or any(_shows_tensor(m, module, n) for n in uses)


def _shows_tensor(m: Migration, module: Module, node: ast.Name) -> bool:
    parent = module.parents.get(node)
    if isinstance(parent, ast.Assign):  # `buffer[i] = output`: a tensor takes nothing else, a list or a dict anything
        targets = [t.value for t in parent.targets if isinstance(t, ast.Subscript)]
        return any(m.regions.returns.of(module, t) == "tensor" for t in targets)
    if isinstance(parent, ast.Call):
        returns, name = m.regions.returns, module.qualify(parent.func) or ""
        if isinstance(parent.func, ast.Attribute) and parent.func.attr in WRITERS:
            return True
        return node in parent.args[:1] and (name.startswith("torch.fft.") or returns.takes_tensor(module, parent.func))
    if isinstance(parent, ast.Compare) and any(
        isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in parent.ops
    ):
        return False
    return _tensor_use(module, node)


def _last_line(found: Regions, name: str, first: ast.stmt, inside: set[ast.stmt]) -> float | None:
    """The last line that a value may come to under its name; None where the name is bound to something else. What is computed
    from the value itself, outside of the region, under a condition (`if denormalize: pred = scale(pred)`) may not be."""
    module, last = found.scope.module, inf
    for stmt in bindings(found, name):
        if stmt is first:
            continue
        value = stmt.value if isinstance(stmt, ast.Assign) else None
        computed = value is not None and any(isinstance(n, ast.Name) and n.id == name for n in walk(value))
        if not computed or stmt.lineno <= first.lineno or module.inside_of(stmt, inside):
            return None
        if not isinstance(module.parents.get(stmt), ast.If):
            last = min(last, stmt.lineno)
    return last
