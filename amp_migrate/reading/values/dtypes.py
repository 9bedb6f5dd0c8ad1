"""One answer to the question what dtype a value has that is computed in an autocast region on a CUDA device.

Values are followed by the table of what expressions may be; what operations of torch make of them, `operations.py` tells.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from amp_migrate.reading.program.definitions import ClassInfo, Function, called_name
from amp_migrate.reading.program.handed_back import SAME_OBJECT_METHODS
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import reached
from amp_migrate.reading.values import operations as known
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.buffers import registered
from amp_migrate.reading.values.entries import DISPLAYS, appended, has_one_dimension, is_number, parts
from amp_migrate.reading.values.expressions import COMPREHENSIONS
from amp_migrate.reading.values.reaching import reaching
from amp_migrate.reading.values.returned import Returns, only_value
from amp_migrate.reading.values.table import BESIDE, Answer, Path, Value

# scalar: float32 without dimensions, which half times it does not become; integer: of a tensor, which may be float32 by another
# way; number: of Python; host: no tensor, or one that NumPy has; either: half or integer, by the way; unknown: any of these, for
# what makes it is out of sight, or differs by the way.
# "nothing" is said of what hangs on itself, while the rest of it is asked.
Dtype = Literal["half", "float32", "scalar", "integer", "number", "host", "either", "unknown", "nothing"]
FLOAT32 = frozenset({"float32", "scalar"})
MOST = 300  # steps of one question
DESCRIPTIONS = frozenset("shape device dtype is_cuda requires_grad ndim".split())


class Dtypes:
    """Answers for one program; see `Project.once`."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.returns = project.once(Returns)
        self.values = project.once(Values)
        self._known: dict[object, Dtype] = {}
        self._open: set[object] = set()
        self._hung: set[object] = set()  # what is open that the present answer hangs on
        self._steps = 0

    def of(self, module: Module, node: ast.expr) -> Dtype:
        """What an expression comes to; of a list or a tuple, its entries."""
        return self._asked(node, lambda: self._expression(module, node))

    def _asked(self, about: object, work: Callable[[], Dtype]) -> Dtype:
        """One answer to what is asked about one thing, also where that is part of what it hangs on."""
        if about in self._known:
            return self._known[about]
        if about in self._open:
            self._hung.add(about)
            return "nothing"
        self._steps = self._steps + 1 if self._open else 0
        if self._steps > MOST:
            return "unknown"
        outer, self._hung = self._hung, set()
        self._open.add(about)
        answer = work()
        self._open.discard(about)
        self._hung.discard(about)
        if not self._hung:  # else it is part of an answer that is not all there
            answer = self._known[about] = "unknown" if answer == "nothing" else answer
        self._hung |= outer
        return answer

    def single(self, module: Module, call: ast.expr) -> set[Dtype]:
        """What the one thing may be that a call of the program returns."""
        found = self.returns.given_back(module, call) if isinstance(call, ast.Call) else ()
        return {self.of(home, value) for home, value in found}

    def given(self, module: Module, stmt: ast.stmt, name: str, forwards: Iterable[Function] = ()) -> Dtype:
        """What an assignment gives a name, also as one of several. `forwards`: what it runs where that is not in sight."""
        if not isinstance(stmt, ast.Assign):
            return "unknown"
        found = {self.of(module, stmt.value) for t in stmt.targets if isinstance(t, ast.Name) and t.id == name}
        for part, index, length in (p for target in stmt.targets for p in parts(target)):
            if part == name:
                found |= self._part(module, stmt.value, index, length, forwards)
        return joined(found)

    def _part(
        self, module: Module, node: ast.expr, index: int, length: int, forwards: Iterable[Function]
    ) -> set[Dtype]:
        """What the part at an index of `length` parts may be."""
        found = self.returns.given_back(module, node, forwards) if isinstance(node, ast.Call) else []
        apart = self.returns.apart(module, node, length, forwards) if isinstance(node, ast.Call) else []
        if apart or found:
            return {self.of(home, value) for home, value in [(home, t.elts[index]) for home, t in apart] or found}
        return {self._all(node, self.values.may_be(module, node, (index,)))}

    def _taken_apart(self, module: Module, name: ast.Name) -> Dtype | None:
        """What a name is of what gives so many things on some of its ways: no row of what it gives on the others."""
        scope = module.scope_of(name)
        bound = reaching(scope, name) if scope.lookup(name.id) is scope else ()
        stmt = module.statement(bound[0]) if len(bound) == 1 else None
        if not isinstance(stmt, ast.Assign) or not isinstance(stmt.value, ast.Call):
            return None
        places = [(i, n) for target in stmt.targets for part, i, n in parts(target) if part == name.id]
        tuples = [(home, t.elts[i]) for i, n in places for home, t in self.returns.apart(module, stmt.value, n)]
        return joined(self.of(home, value) for home, value in tuples) if tuples else None

    def entry(self, module: Module, call: ast.expr, index: int, forwards: Iterable[Function] = ()) -> set[Dtype]:
        """What the entry at an index may be of several things that a call of the program returns; nothing where it returns one."""
        found = self.returns.given_back(module, call, forwards) if isinstance(call, ast.Call) else []
        apart = [(home, value.elts) for home, value in found if isinstance(value, DISPLAYS)]
        if any(isinstance(e, ast.Starred) for _, entries in apart for e in entries):
            return set()
        return {self.of(home, entries[index]) for home, entries in apart if -len(entries) <= index < len(entries)}

    # -- expressions -------------------------------------------------------------------------------------------------

    def _expression(self, module: Module, node: ast.expr) -> Dtype:
        if isinstance(node, ast.UnaryOp):
            return "integer" if isinstance(node.op, ast.Not) else self.of(module, node.operand)
        if isinstance(node, ast.Compare):
            return "integer"
        if isinstance(node, ast.BinOp):
            return self._arithmetic(module, node)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return joined(self.of(module, e) for e in node.elts)
        if isinstance(node, COMPREHENSIONS):
            return self.of(module, node.value if isinstance(node, ast.DictComp) else node.elt)
        if isinstance(node, ast.Attribute):
            if node.attr in DESCRIPTIONS:
                return "host"
            if node.attr in ("values", "indices") and (pair := self._pair(module, node.value)) is not None:
                return pair if node.attr == "values" else "integer"
            if node.attr in ("data", "T", "mT"):
                return self.of(module, node.value)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, (ast.Slice, ast.Tuple)):
            return self.of(module, node.value)
        if (
            isinstance(node, ast.Call) and called_name(node) in SAME_OBJECT_METHODS
        ):  # of a network; a tensor is another one
            return self._call(module, node)
        if isinstance(node, ast.Name) and (put := appended(module.scope_of(node), node.id)):
            return joined(self.of(module, value) for value in put)
        found = self._all(node, self.values.may_be(module, node))
        if found in ("half", "unknown") and isinstance(node, ast.Name):
            found = self._taken_apart(module, node) or found
        if found == "unknown" and isinstance(node, ast.Attribute):
            return joined(self.of(home, value) for home, value in registered(self.project, module, node)) or found
        if found == "unknown" and isinstance(node, ast.Subscript):  # a row of a tensor, an entry of what holds alike
            whole = self.of(module, node.value)
            return "scalar" if whole == "float32" and is_number(module, node.slice) else whole
        if found == "unknown" and isinstance(node, ast.Name) and (only := only_value(module, node)) is not None:
            return self.of(module, only)
        generates = isinstance(node, ast.Call) and called_name(node) in known.GENERATORS
        return "integer" if found == "unknown" and generates else found

    def _arithmetic(self, module: Module, node: ast.BinOp) -> Dtype:
        sides = [self.of(module, node.left), self.of(module, node.right)]
        if isinstance(node.op, ast.MatMult):
            return "half"
        both = promoted(sides)
        if isinstance(node.op, ast.Pow) and both in ("half", "unknown"):
            return "float32"
        if isinstance(node.op, (ast.Div, ast.Pow)) and both == "either":
            return "unknown"
        return "float32" if isinstance(node.op, ast.Div) and both == "integer" else both

    def _all(self, node: ast.AST, answer: Answer) -> Dtype:
        """What several values come to, of which one may be what a node gives itself."""
        found = sorted(answer, key=lambda v: v.place)
        added = [v for v in found if v.kind == "computed" and isinstance(v.node, ast.AugAssign)]
        told = joined(d for v in found if v not in added and (d := self._told(node, v)) is not None)
        if added and told in ("number", "unknown"):  # what adds in place keeps the dtype of what it adds to
            return joined(self.of(v.module, v.node.value) for v in added if isinstance(v.node, ast.AugAssign))
        return told

    def _told(self, asked: ast.AST, value: Value) -> Dtype | None:
        """What a value is; None of what says nothing: None itself, and what nothing in sight gives."""
        module, node = value.module, value.node
        if value.kind == "constant":
            return None if value.constant is None else "number" if isinstance(value.constant, (int, float)) else "host"
        if value.kind == "parameter" and value.name == BESIDE:
            return None
        if value.kind == "call" and isinstance(node, ast.Call):
            return self._call(module, node) if node is asked else self.of(module, node)
        if value.kind == "item" and isinstance(node, ast.Call):
            return self._item(module, node, value.path)
        if value.kind == "computed" and isinstance(node, ast.expr) and node is not asked:
            return self.of(module, node)
        return "unknown"

    def _item(self, module: Module, call: ast.Call, path: Path) -> Dtype:
        if (pair := self._pair(module, call)) is not None:
            return "integer" if path[0] == 1 else pair
        forwards = [f for f in self.returns.forwards(module, call.func) if not self.project.handed_back(f)]
        if forwards:
            found = joined(self._returned(f, path) for f in forwards)
            if isinstance(path[0], int) or found not in ("unknown", "nothing"):
                return found
        whole = self.of(module, call)  # rows of a tensor, any of several
        return "scalar" if whole == "float32" and has_one_dimension(call) else whole

    def _returned(self, forward: Function, path: Path) -> Dtype:
        """What an item may be of what a network returns; of one that may hold itself, the other that it holds gives it."""
        return self._asked((forward, path), lambda: self._all(forward.node, self.values.returned(forward, path)))

    def _pair(self, module: Module, node: ast.expr) -> Dtype | None:
        """Of which dtype the values are beside the indices of a call that gives both: `x.max(1)`."""
        if not isinstance(node, ast.Call) or called_name(node) not in known.PAIRS:
            return None
        given = self._given(module, node)
        return self.of(module, given[0]) if given else "unknown"

    # -- calls -------------------------------------------------------------------------------------------------------

    def _given(self, module: Module, call: ast.Call) -> Sequence[ast.expr]:
        """What an operation is given, the tensor whose method it is first."""
        method = isinstance(call.func, ast.Attribute) and not (module.qualify(call.func) or "").startswith("torch.")
        first = [k.value for k in call.keywords if k.arg == "input"]
        return [*([call.func.value] if method else first), *call.args]  # type: ignore[attr-defined]

    def _call(self, module: Module, call: ast.Call) -> Dtype:
        func, name = call.func, module.qualify(call.func) or ""
        last = name.rpartition(".")[2]
        if name.startswith("torch."):
            if last == "Parameter" and call.args:
                return self.of(module, call.args[0])
            return self._operation(module, call, last) if last[:1].islower() else "unknown"
        if name.partition(".")[0] in ("numpy", "math", "random", "cv2"):
            return "host"
        if isinstance(func, ast.Name) and func.id in ("len", "int", "float"):
            return "number"
        if isinstance(func, ast.Name) and func.id in ("sum", "max", "min", "list", "tuple", "sorted", "reversed"):
            return self._first(module, call)
        layers = self.values.may_be(module, func)
        if any(v.kind == "call" for v in layers):
            return joined(d for v in layers if (d := self._run(v, lambda: self._first(module, call))) is not None)
        if not isinstance(func, ast.Attribute) or self.project.resolved.get(call):
            return "unknown"
        own = isinstance(func.value, ast.Name) and func.value.id == module.scope_of(call).self_name
        return "unknown" if own else self._operation(module, call, func.attr)

    def _first(self, module: Module, call: ast.Call) -> Dtype:
        return self.of(module, call.args[0]) if call.args else "unknown"

    def _operation(self, module: Module, call: ast.Call, name: str) -> Dtype:
        given = self._given(module, call)
        named = {k.arg: k.value for k in call.keywords}
        if "out" in named or None in named:
            return "unknown"
        asked = [named["dtype"]] if "dtype" in named else given[1:] if name in ("to", "type") else ()
        if name == "tensor" and given and self.of(module, given[0]) == "number":
            return "scalar"
        for wanted in asked:
            if (dtype := _of_type(module.qualify(wanted) or "")) is not None:
                return dtype
        if "dtype" in named or name == "type":
            return "unknown"
        if name in ("float", "double", "half", "bfloat16"):
            return "half" if name in ("half", "bfloat16") else "float32"
        if name in known.HALF:
            return "half"
        if name in known.INTEGERS:
            return "integer"
        if name in known.HOST or (name in ("size", "numel", "nelement", "dim") and given):
            return "host"
        if name in known.LOSSES:
            reduction = named.get("reduction")
            return "float32" if isinstance(reduction, ast.Constant) and reduction.value == "none" else "scalar"
        if name in known.MAKING:
            size = given[0] if given else None
            return (
                "scalar" if size is None or (isinstance(size, (ast.List, ast.Tuple)) and not size.elts) else "float32"
            )
        if not given:
            return "float32" if name in known.FLOAT32 else "unknown"
        if name in known.JOINING:
            entries = given[0].elts if isinstance(given[0], (ast.List, ast.Tuple)) else given[:1]
            return promoted([self.of(module, e) for e in entries])
        if name in known.PROMOTING or name == "grid_sample":
            others = [named[n] for n in ("other", "grid") if n in named]
            return promoted([self.of(module, v) for v in (given[1:3] if name == "where" else [*given[:2], *others])])
        first = self.of(module, given[1] if name == "type_as" and len(given) > 1 else given[0])
        if name in known.FLOAT32:
            whole = first == "integer" and name in ("cumsum", "cumprod", "pow")
            return first if whole or first == "scalar" else "float32"
        if name in known.REDUCTIONS:
            return first if first == "integer" else "float32" if _has_axis(call, name, given) else "scalar"
        if name in ("mean", "max", "min", "amax", "amin", "std", "var") and first == "float32":
            return "float32" if _has_axis(call, name, given) else "scalar"
        keeps = name in known.KEEPING or name in known.PAIRS or name in ("to", "type_as") or name.endswith("_like")
        return first if keeps else "unknown"

    # -- layers ------------------------------------------------------------------------------------------------------

    def _run(self, value: Value, given: Callable[[], Dtype]) -> Dtype | None:
        """What running a layer or network comes to that a value is."""
        if value.kind == "constant" and value.constant is None:
            return None
        if value.kind != "call" or not isinstance(value.node, ast.Call):
            return "unknown"
        made, module = value.node, value.module
        return joined(self._of_layer(kind, made, module, given) for kind in self._kinds(module, made.func))

    def _kinds(self, module: Module, func: ast.expr) -> Iterator[str | ClassInfo]:
        """The layers of torch's, by name, and classes of the program that a call may make one of."""
        name = module.qualify(func) or ""
        if name.startswith("torch."):
            yield name
            return
        for v in reached(self.values.may_be(module, func), self._bound):
            if v.kind == "named":
                yield v.name
            elif v.kind == "class" and v.node in self.project.classes:
                yield self.project.classes[v.node]
            elif v.kind != "constant" and not (v.kind == "parameter" and v.name == BESIDE) and not self._bound(v):
                yield ""

    def _bound(self, value: Value) -> Answer:
        """What a `partial` calls."""
        call = value.node
        if value.kind != "call" or not isinstance(call, ast.Call) or called_name(call) != "partial" or not call.args:
            return frozenset()
        return self.values.may_be(value.module, call.args[0])

    def _of_layer(self, kind: str | ClassInfo, made: ast.Call, module: Module, given: Callable[[], Dtype]) -> Dtype:
        if isinstance(kind, ClassInfo):
            forward = kind.method("forward") or kind.method("__call__")
            if forward is None:
                return "unknown"
            back = self.project.handed_back(forward)  # what it returns as it came is no part of what it returns
            return joined([self._all(made, self.values.returned(forward)), *([given()] if back else [])])
        last = kind.rpartition(".")[2]
        if not kind.startswith(("torch.nn.", "apex.normalization.")):
            return "unknown"
        if last in known.HALF_LAYERS:
            return "half"
        if last in known.FLOAT32_LAYERS:
            return "float32"
        if last in known.LOSS_LAYERS:
            none = any(isinstance(k.value, ast.Constant) and k.value.value == "none" for k in made.keywords)
            return "float32" if none else "scalar"
        if last != "Sequential":
            return given() if last in known.KEEPING_LAYERS else "unknown"
        if made.func in self._open:  # it stands in itself
            self._hung.add(made.func)
            return "nothing"
        result: Callable[[], Dtype] = given
        for layer in made.args:
            if isinstance(layer, ast.Starred):
                return "unknown"
            result = self._after(module, layer, result)
        self._open.add(made.func)
        found = result()
        self._open.discard(made.func)
        self._hung.discard(made.func)
        return found

    def _after(self, module: Module, layer: ast.expr, given: Callable[[], Dtype]) -> Callable[[], Dtype]:
        found = self.values.may_be(module, layer)
        return lambda: joined(d for v in found if (d := self._run(v, given)) is not None)


def promoted(found: Sequence[Dtype]) -> Dtype:
    """What arithmetic of several gives."""
    found = [dtype for dtype in found if dtype != "nothing"] or found
    if "host" in found:
        return "host" if set(found) <= {"host", "number"} else "unknown"
    order: tuple[Dtype, ...] = ("float32", "unknown", "either", "half", "scalar", "integer", "number", "nothing")
    return next((dtype for dtype in order if dtype in found), "unknown")


def joined(found: Iterable[Dtype]) -> Dtype:
    """One of several, by whichever way it comes."""
    kinds = set(found)
    for less in ("nothing", "number"):
        if len(kinds) > 1:
            kinds.discard(less)
    if len(kinds) == 1:
        return kinds.pop()
    if kinds & {"half", "either"}:
        return "either" if kinds & {"integer", "either"} else "half"
    if kinds == FLOAT32:
        return "scalar"
    return "integer" if kinds and kinds <= {"integer", *FLOAT32} else "unknown"


def _of_type(name: str) -> Dtype | None:
    if name in known.FLOAT_TYPES:
        return "float32"
    return "half" if name in known.HALF_TYPES else "integer" if name in known.INTEGER_TYPES else None


def _has_axis(call: ast.Call, name: str, given: Sequence[ast.expr]) -> bool:
    """Whether a reduction leaves dimensions."""
    before = 2 if name in ("norm", "dist") else 1  # the order of a norm
    return any(k.arg in ("dim", "axis") for k in call.keywords) or len(given) > before
