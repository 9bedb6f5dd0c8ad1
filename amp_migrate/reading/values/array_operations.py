"""What operations of NumPy, torch and what reads images give."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amp_migrate.reading.program.definitions import argument, is_none, unpacks
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.values import arrays as known
from amp_migrate.reading.values.arrays import UNKNOWN, Kind, Kinds, only

if TYPE_CHECKING:
    from amp_migrate.reading.values.doubles import Call, Doubles

TENSORS = frozenset("tensor as_tensor".split())
DEVICES = re.compile(r"dev|cuda|cpu|gpu|rank", re.IGNORECASE)


class Operations:
    """The rules for what is out of sight; `doubles` is asked for what it is given."""

    def __init__(self, doubles: Doubles) -> None:
        self.doubles = doubles

    def of(self, module: Module, node: ast.Call, name: str, call: Call | None) -> Kinds:
        first, last = name.partition(".")[0], name.rpartition(".")[2]
        if unpacks(node):
            return UNKNOWN
        if first == "numpy":
            return self._numpy(module, node, name, last, call)
        if first == "torch":
            return self._torch(module, node, name, last, call)
        if first == "cv2":
            return self._cv2(module, node, last, call)
        if first == "PIL":
            made = last == "open" or (last in known.IMAGES and "ImageOps" in name)
            return only("image") if made else UNKNOWN
        if first == "random" and last in ("random", "uniform", "gauss", "normalvariate", "betavariate"):
            return only("real", module, node)
        if isinstance(node.func, ast.Name):
            made_by = {"float": "real", "int": "whole", "len": "whole"}.get(name, "unknown")
            return only(made_by, module, node) if made_by == "real" else only(made_by)  # type: ignore[arg-type]
        return self._method(module, node, node.func, call) if isinstance(node.func, ast.Attribute) else UNKNOWN

    def _given(self, module: Module, node: ast.Call, call: Call | None) -> list[Kinds]:
        return [self.doubles.of(module, a, (), call) for a in node.args]

    def _numpy(self, module: Module, node: ast.Call, name: str, last: str, call: Call | None) -> Kinds:
        named, args, made = {k.arg: k.value for k in node.keywords}, node.args, only("double", module, node)
        place = 2 if last == "full" else 1 if last in ("array", "asarray", "zeros", "ones", "empty") else len(args)
        dtype = named.get("dtype") or (args[place] if place < len(args) else None)
        if dtype is not None and not is_none(dtype):
            return self.doubles.of_dtype(module, dtype, node)
        given = self._given(module, node, call)
        if last in known.SAMPLING and name.startswith("numpy.random."):
            sized = "size" in named or (last[:4] in ("rand", "stan") and args) or len(args) > 2
            numbers = all(k.among("real", "whole") for kinds in given for k in kinds)
            return made if sized else only("real", module, node) if numbers else UNKNOWN
        if last in known.MAKING:
            return made
        if not args:
            return UNKNOWN
        if known.of_name(name) != "unknown":  # np.float32(x)
            if known.of_name(name) == "double":
                return frozenset((Kind("double", module, node), Kind("scalar", module, node)))
            return only(known.of_name(name))
        if last == "arange":
            reals = {k.dtype for kinds in given for k in kinds}
            return made if "real" in reals else only("integer") if reals == {"whole"} else UNKNOWN
        if last == "full" and len(given) > 1:
            return self._arrays(given[1], module, node)
        if last in known.JOINING:
            return self._arrays(self.doubles.elements(module, args[0], call), module, node)
        if last == "where" and len(given) == 3:
            return self._arrays(known.folded(given[1:], False, module, node), module, node)
        if last in known.TWO and len(given) > 1:
            return known.folded(given, last in ("divide", "true_divide"), module, node)
        if last in known.ELEMENTWISE:
            return frozenset(_elementwise(k) for k in given[0])
        if last in known.AVERAGING | known.SUMMING:
            along = "axis" in named or len(args) > (2 if "centile" in last or "quantile" in last else 1)
            return frozenset(known.reduced(k, last in known.AVERAGING, along, module, node) for k in given[0])
        return given[0] if last in known.KEEPING else UNKNOWN

    def _arrays(self, kinds: Kinds, module: Module, node: ast.AST) -> Kinds:
        return frozenset(known.as_array(k, module, node) for k in kinds)

    def _torch(self, module: Module, node: ast.Call, name: str, last: str, call: Call | None) -> Kinds:
        named = {k.arg: k.value for k in node.keywords}
        if "dtype" in named and not is_none(named["dtype"]):
            return _tensors(self.doubles.of_dtype(module, named["dtype"], node))
        if last.endswith("Tensor") and name.count(".") < 3:
            dtype = known.of_name(name)
            return _tensors(only(dtype, module, node)) if dtype == "double" else only(dtype)
        taken = argument(node, 0, "data")
        if taken is None:
            return UNKNOWN
        if last in TENSORS:
            elements = self.doubles.elements(module, taken, call)
            return frozenset(known.as_tensor(k, module, node) for k in elements)
        if last in ("from_numpy", "Variable"):
            return frozenset(known.as_tensor(k, module, node) for k in self.doubles.of(module, taken, (), call))
        if last in ("stack", "cat", "concat", "vstack", "hstack"):
            return _tensors(self.doubles.elements(module, taken, call))
        if last in ("randint", "randperm"):
            return only("index")
        if last == "arange":
            given = self._given(module, node, call)
            return only("index") if all(k.dtype == "whole" for kinds in given for k in kinds) else UNKNOWN
        if last in ("zeros", "ones", "rand", "randn", "empty", "full", "linspace", "eye"):
            return only("single")
        keeps = last in known.KEEPING and name.count(".") == 1
        return self.doubles.of(module, taken, (), call) if keeps else UNKNOWN

    def _cv2(self, module: Module, node: ast.Call, last: str, call: Call | None) -> Kinds:
        if last == "imread":
            flag = argument(node, 1, "flags")
            text = module.source(flag) if flag is not None else ""
            return UNKNOWN if text.rpartition(".")[2] in known.STORED or text[:1] == "-" else only("integer")
        return self.doubles.of(module, node.args[0], (), call) if last in known.OF_CV2 and node.args else UNKNOWN

    def _method(self, module: Module, node: ast.Call, func: ast.Attribute, call: Call | None) -> Kinds:
        attr, args = func.attr, node.args
        named = {k.arg: k.value for k in node.keywords}
        if attr in ("float", "half", "bfloat16") and not args:
            return only("single")
        if attr == "double" and not args:
            return _tensors(only("double", module, node))
        if attr in ("long", "int", "short", "byte", "bool") and not args:
            return only("index")
        if attr in ("astype", "to", "type"):
            asked = [*args[:1], *(v for k, v in named.items() if k == "dtype")]
            if not asked and attr != "to":
                return UNKNOWN
            found = [self.doubles.of_dtype(module, a, node) for a in asked]
            if attr != "to" or any(f != UNKNOWN for f in found):
                cast = next((f for f in found if f != UNKNOWN), UNKNOWN)
                return cast if attr == "astype" else _tensors(cast)
            if not all(_is_place(module, a) for a in args):
                return UNKNOWN
            return self.doubles.of(module, func.value, (), call)
        receiver = self.doubles.of(module, func.value, (), call)
        if receiver and all(k.dtype == "image" for k in receiver):
            return receiver if attr in known.IMAGES and not any("F" in module.source(a) for a in args) else UNKNOWN
        if attr == "numpy":
            return frozenset(Kind("integer") if k.dtype == "index" else k._replace(tensor=False) for k in receiver)
        if attr in known.WRITING and args:
            return known.folded([receiver, *self._given(module, node, call)[:1]], attr == "div", module, node)
        if attr == "type_as" and args:
            return self.doubles.of(module, args[0], (), call)
        if attr in known.AVERAGING | known.SUMMING:
            along = bool(args) or "axis" in named or "dim" in named
            return frozenset(known.reduced(k, attr in known.AVERAGING, along, module, node) for k in receiver)
        return receiver if attr in known.KEEPING or attr == "clip" else UNKNOWN


def _tensors(kinds: Kinds) -> Kinds:
    return frozenset(k._replace(tensor=True) if k.among("double", "floating") else k for k in kinds)


def _elementwise(kind: Kind) -> Kind:
    if kind.among("real", "whole", "scalar"):
        return Kind("scalar", kind.module, kind.node)
    return kind if kind.among("double", "single") else Kind("floating")


def _is_place(module: Module, node: ast.expr) -> bool:
    """Whether what a tensor is moved to is a device, no dtype."""
    return isinstance(node, ast.Constant) or bool(DEVICES.search(module.source(node)))
