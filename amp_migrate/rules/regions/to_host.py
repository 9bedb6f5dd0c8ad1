"""Values that go to the CPU, where Apex made them float32: `.float()` is written out, unless they are already.

Apex: https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use
Native: https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.regions.hot import is_loss
from amp_migrate.reading.regions.place import Regions
from amp_migrate.reading.values.dtypes import Dtypes
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions import float_operations
from amp_migrate.rules.regions.casting import CASTABLE, ROUNDING, function_of, named_floating, unrounded, write_float
from amp_migrate.rules.regions.half_values import HalfValues, kept_from
from amp_migrate.rules.regions.own_halves import make_float
from amp_migrate.rules.regions.shown import UNCHANGED

NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.autocast"
WHOLE_NUMBERS = frozenset("argmax argmin argsort topk max min sort long int bool gt lt ge le eq ne round".split())
SAME_DTYPE = frozenset({"data", "T"})  # attributes
PARTS = (ast.Tuple, ast.Slice)  # of a tensor, as they index it
# What is the same of float16 and of its float32 copy.
SAME_VALUES = WHOLE_NUMBERS | frozenset("float double numpy item tolist size dim numel".split())
CODES = (
    Code(
        "AMP504",
        "Values are float32 where they go to the CPU",
        "Tensor.cpu",
        apex="O1 returns float32 from .cpu(), and O2 and O3 from the model.",
        native=".cpu() keeps the dtype: a float16 tensor or array, and for bfloat16 a TypeError from numpy().",
        why="What follows expects float32: NumPy code, metrics over all of a data set, files of results.",
        links=(NATIVE,),
        examples=(
            Example("output.cpu().numpy()", "output.float().cpu().numpy()"),
            Example("outputs.append(output.cpu())", "outputs.append(output.float().cpu())"),
        ),
    ),
)


def apply(m: Migration, found: Regions, inside: set[ast.stmt], cast: set[str]) -> None:
    """The values of one scope's regions; `cast`: names that are made float32 where they leave the region."""
    if m.unit.inits and all(i.levels == {"O0"} for i in m.unit.inits):
        return  # nothing is half
    half = HalfValues(m, found, inside, cast)
    float_operations.apply(m, found.scope.module, found, half)
    _host_copies(m, found.scope.module, found, half)
    _arrays(m, found.scope.module, found, half)


def where_seen(m: Migration) -> None:
    """Cast what NumPy is given in whichever function, where the audit saw that to be half for sure: of several in one line,
    what is seen to be half here, too."""
    for module in m.project.modules:
        if not (lines := m.mended_lines(module, "AMP504")):
            continue
        arrays = [(c, f.value) for c, f in module.method_calls.get("numpy", ()) if c.lineno in lines]
        joined = [c.args[0] for c, _ in module.calls if c.lineno in lines and _is_given_joined(module, c)]
        for given in joined if not arrays else ():
            if not m.edit(module).insertions.keys().isdisjoint(walk(given)):
                continue
            make_float(m, module, given)
            message = f"{module.source(given)} becomes float32 before NumPy sees it"
            m.output.note(module, given, "AMP504", "Tensor.cpu", message, "as-is")
        for call, given in arrays:
            value = _before_the_cpu(given)
            alone = [c.lineno for c, _ in arrays].count(call.lineno) == 1
            if not isinstance(value, CASTABLE) or not m.edit(module).insertions.keys().isdisjoint(walk(given)):
                continue
            if alone or m.project.once(Dtypes).of(module, value) == "half":
                make_float(m, module, value)
                message = f"{module.source(value)} becomes float32 before NumPy sees it"
                m.output.note(module, call, "AMP504", "Tensor.cpu", message, "as-is")


def _is_given_joined(module: Module, call: ast.Call) -> bool:
    """Whether NumPy is given what torch joins: `np.cov(torch.cat(found))`."""
    given = call.args[0] if call.args and (module.qualify(call.func) or "").startswith("numpy.") else None
    return isinstance(given, ast.Call) and module.qualify(given.func) in ("torch.cat", "torch.stack")


def _before_the_cpu(value: ast.expr) -> ast.expr:
    """What goes to the CPU of what NumPy is given, else that: `x.detach()` of `x.detach().cpu().data`."""
    found = current = value
    while True:
        if (
            isinstance(current, ast.Call)
            and isinstance(current.func, ast.Attribute)
            and current.func.attr in UNCHANGED | {"cpu"}
        ):
            found = current.func.value if current.func.attr == "cpu" else found
            current = current.func.value
        elif isinstance(current, ast.Attribute) and current.attr in SAME_DTYPE:
            current = current.value
        else:
            return found


def _level(m: Migration) -> str:
    """The one level that is asked for of those that leave something half; Apex, where there are several."""
    levels = frozenset[str]().union(*(i.levels for i in m.unit.inits)) - {"O0"}
    return next(iter(levels)) if len(levels) == 1 else "Apex"


def bindings(found: Regions, name: str) -> list[ast.stmt]:
    """The statements that bind a name."""
    return [found.scope.module.statement(b) for b in found.scope.bindings.get(name, ())]


def _arrays(m: Migration, module: Module, found: Regions, half: HalfValues) -> None:
    """`value.detach().cpu().numpy()` of something computed in the region, unless that is float32 already."""
    for node in (n for s in found.scope.body for n in walk(s)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "numpy"):
            continue
        before_cpu: ast.expr | None = None
        current: ast.expr = node.func.value
        methods: set[str] = set()
        while not m.regions.is_forward(module, current):
            if isinstance(current, ast.Call) and (applied := function_of(module, current)) is not None:
                methods.add(applied)
                before_cpu = before_cpu or current
                current = current.args[0]
            elif isinstance(current, ast.Call) and isinstance(current.func, ast.Attribute):
                if current.func.attr == "cpu":
                    before_cpu = current.func.value
                methods.add(current.func.attr)
                current = current.func.value
            elif (isinstance(current, ast.Attribute) and current.attr in SAME_DTYPE) or (
                isinstance(current, ast.Subscript) and isinstance(current.slice, PARTS)
            ):
                current = current.value
            else:
                break
        entry = isinstance(current, ast.Subscript) and bool(methods & ROUNDING)  # `torch.sigmoid(outputs[k])`
        named = (isinstance(current, ast.Name) or entry) and half.may_be(current)
        forward = half.is_output(current) and half.stands_inside(current)
        if not (named or forward) or methods & (WHOLE_NUMBERS - {"round"} | {"float", "double"}):
            continue
        if isinstance(current, ast.Name) and _is_float32(m, module, found, current.id):
            continue
        if node.lineno in m.mended_lines(module, "AMP504"):
            continue  # which `where_seen` casts
        if isinstance(current, ast.Name) and half.may_be_whole(current.id) and not methods & ROUNDING:
            message = (
                f"{current.id} may be float16 for NumPy, where {_level(m)} made it float32: .float() keeps it, unless it holds "
                "whole numbers"
            )
            m.output.note(module, node, "AMP504", "Tensor.cpu", message, about=current.id)
            continue
        anchor = unrounded(module, before_cpu if before_cpu is not None else node.func.value)
        if anchor in m.edit(module).insertions:
            continue
        message = f"{ast.unparse(current)} becomes float32 before NumPy sees it"
        if isinstance(current, ast.Name) and half.may_be_indices(current):
            message += ", where it holds no whole numbers"
            text = ast.unparse(current)
            m.edit(module).insert("before", current, f"({text}.float() if {text}.is_floating_point() else ")
            m.edit(module).insert("after", current, ")")
        else:
            write_float(half, anchor)
        m.output.note(module, node, "AMP504", "Tensor.cpu", message, "as-is")


def _is_float32(m: Migration, module: Module, found: Regions, name: str) -> bool:
    """Whether a name only ever holds a loss: autocast computes losses in float32."""
    values = [b.value for b in bindings(found, name) if isinstance(b, ast.Assign)]
    return bool(values) and all(
        isinstance(v, ast.Call) and is_loss(v) and not m.regions.is_forward(module, v) for v in values
    )


def _host_copies(m: Migration, module: Module, found: Regions, half: HalfValues) -> None:
    """`output.cpu()`, where `output` is what the model returned or keeps the dtype of that, whatever becomes of it."""
    edits, seen = m.edit(module), m.mended_lines(module, "AMP504")
    for node in (n for s in found.scope.body for n in walk(s)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cpu"):
            continue
        value = node.func.value
        if not half.may_be(value, outputs=True) or {value, unrounded(module, value)} & edits.insertions.keys():
            continue
        read = read_as(module, node)
        if read == "numpy" and node.lineno in seen:
            continue  # which `where_seen` casts
        root = ast.unparse(kept_from(unrounded(module, value)))
        if half.is_tensor(value) or named_floating(module, kept_from(unrounded(module, value))):
            if read not in SAME_VALUES - ({"numpy"} if not isinstance(kept_from(value), ast.Name) else set()):
                write_float(half, unrounded(module, value))
                stmt = module.statement(node)
                if isinstance(stmt, ast.Assign) and kept_from(stmt.value) is node:
                    half.float_stmts.add(stmt)
                m.output.note(module, node, "AMP504", "Tensor.cpu", f"{root} goes to the CPU as float32", "as-is")
        elif read not in SAME_VALUES and isinstance(value, ast.Name) and half.one_is_half(value):
            edits.insert("before", value, f"({root}.float() if {root}.is_floating_point() else ")
            edits.insert("after", value, ")")
            message = f"{root} goes to the CPU as float32, where it holds no whole numbers"
            m.output.note(module, node, "AMP504", "Tensor.cpu", message, "as-is")
        elif read not in SAME_VALUES - {"numpy"} and not (read == "numpy" and isinstance(_whole(value), ast.Name)):
            message = f"{_level(m)} made {root} float32 on the CPU; it may be float16 now: .float() keeps it"
            handed = read != "numpy" and half.may_be_whole(root)
            if handed:
                message += ", unless it holds whole numbers; code that reads memory as float32 fails silently on halves"
            m.output.note(module, node, "AMP504", "Tensor.cpu", message, "review" if handed else "look", root)


def _whole(value: ast.expr) -> ast.expr:
    """What a value is a part of: `output` of `output[0, :, 1].detach()`; see `_arrays`."""
    current = kept_from(value)
    while isinstance(current, ast.Subscript) and isinstance(current.slice, PARTS):
        current = kept_from(current.value)
    return current


def read_as(module: Module, node: ast.expr) -> str:
    """The method that a value ends in: `item` of `x.detach().data[:, 0].item()`."""
    outer = module.parents.get(node)
    if (isinstance(outer, ast.Attribute) and outer.attr in SAME_DTYPE) or (
        isinstance(outer, ast.Subscript) and outer.value is node and isinstance(outer.slice, PARTS)
    ):
        return read_as(module, outer)
    call = module.parents.get(outer) if isinstance(outer, ast.Attribute) else None
    if not isinstance(outer, ast.Attribute) or not isinstance(call, ast.Call) or call.func is not outer:
        return ""
    return read_as(module, call) if outer.attr in UNCHANGED else outer.attr
