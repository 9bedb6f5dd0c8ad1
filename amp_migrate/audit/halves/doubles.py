"""What is float64 because NumPy makes it so where nothing says otherwise, and what a loader gives of it.

Only what is so on every way is said, and only what is made outright: an array without a dtype, one that is asked to be float64,
and what is computed from such an array. What integers come to that are divided is not followed.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.halves.tensors import NOT_TOLD, UNKNOWN, Value, join
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.values.origins import Origin, in_order

if TYPE_CHECKING:
    from amp_migrate.audit.halves.follow import Halves

DOUBLE = Value("?", "?", double=True)  # of NumPy's: nothing else is said of it
MAKING = frozenset("zeros ones empty eye identity linspace randn loadtxt genfromtxt".split())
SIZED = frozenset("random normal uniform random_sample standard_normal rand".split())
ASKED = frozenset({"numpy.float64", "numpy.double", "numpy.float", "float", "float64"})
HANDED_ON = frozenset(
    "from_numpy tensor as_tensor Variable stack concatenate array asarray vstack hstack expand_dims".split()
)
LOADER = "torch.utils.data.DataLoader"
COUNTED = frozenset({"enumerate"})
TURNS = frozenset({"tqdm", "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "iter"})


def asks_for_double(program: Program, scope: Scope, dtype: ast.expr) -> bool:
    """Whether a dtype of NumPy's is float64, by its name or as text."""
    if isinstance(dtype, ast.Constant):
        return dtype.value in ASKED
    return (program.dotted(scope, dtype) or syntax.text(dtype)) in ASKED


def made(program: Program, scope: Scope, call: ast.Call, name: str, given: list[Value]) -> Value | None:
    """What a function makes, as far as it is float64; None where nothing is said of that here."""
    first, last = name.partition(".")[0], name.rpartition(".")[2]
    dtype = next((k.value for k in call.keywords if k.arg == "dtype"), None)
    if syntax.spreads(call):
        return None
    if first == "numpy":
        if dtype is not None:
            return DOUBLE if asks_for_double(program, scope, dtype) else None
        placed = last in ("zeros", "ones", "empty", "array", "asarray") and len(call.args) > 1
        sized = len(call.args) > 2 or any(k.arg == "size" for k in call.keywords) or last not in ("normal", "uniform")
        sampled = last in SIZED and ".random." in name and bool(call.args or call.keywords) and sized
        if placed:
            return DOUBLE if asks_for_double(program, scope, call.args[1]) else None
        if sampled or (last in MAKING and (call.args or call.keywords)):
            return DOUBLE
        if last in ("array", "asarray") and call.args and _pythons(call.args[0]):
            return DOUBLE
    handed = last in HANDED_ON and first in ("numpy", "torch") and dtype is None and bool(given)
    return DOUBLE if handed and given[0].double else None


def _pythons(expr: ast.expr) -> bool:
    """Whether an expression is one of Python's floats, or a list of such: `float(row[1])`."""
    if isinstance(expr, (ast.List, ast.Tuple)):
        return bool(expr.elts) and all(map(_pythons, expr.elts))
    if isinstance(expr, ast.Call):
        return isinstance(expr.func, ast.Name) and expr.func.id == "float"
    return isinstance(expr, ast.Constant) and isinstance(expr.value, float)


class Loaders:
    """What loaders give, of data sets whose items are followed."""

    def __init__(self, halves: Halves) -> None:
        self.halves = halves

    def turn(self, scope: Scope, iterated: ast.expr) -> Value:
        """What a turn of a loop over a loader has that is float64."""
        program = self.halves.program
        if isinstance(iterated, ast.Call) and iterated.args:
            name = program.dotted(scope, iterated.func) or syntax.text(iterated.func)
            if name in COUNTED | TURNS:
                batch = self.turn(scope, iterated.args[0])
                counted = name in COUNTED and batch != UNKNOWN
                return Value("?", "?", (UNKNOWN, batch)) if counted else batch
        found = [self._batch(o) for o in in_order(self.halves.values.origins(scope, iterated))]
        return found[0] if found and all(v == found[0] for v in found) else UNKNOWN

    def _batch(self, loader: Origin) -> Value:
        call = loader.node
        if not isinstance(call, ast.Call) or loader.path or self.halves.values.maker(loader) != LOADER:
            return UNKNOWN
        named = {k.arg: k.value for k in call.keywords}
        data = call.args[0] if call.args else named.get("dataset")
        if data is None or None in named or "collate_fn" in named:
            return UNKNOWN
        items = [self._item(o) for o in in_order(self.halves.values.origins(loader.module.scope_of(call), data))]
        return _doubles(join(items)) if items else UNKNOWN

    def _item(self, data: Origin) -> Value:
        classes = self.halves.values.made(data)
        methods = [f for cls in classes for f in self.halves.program._method(cls, "__getitem__")]
        return self.halves.call(methods[0], {}, False, NOT_TOLD) if len(methods) == len(classes) == 1 else UNKNOWN


def _doubles(value: Value) -> Value:
    """What of a value is float64, and nothing else of it."""
    if value.items is not None:
        items = tuple(_doubles(i) for i in value.items)
        return Value("?", "?", items, keys=value.keys) if any(i != UNKNOWN for i in items) else UNKNOWN
    return DOUBLE if value.double else UNKNOWN
