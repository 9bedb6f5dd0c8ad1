"""Operations of torch and NumPy on values: what they computed in before, and what they compute in now."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from amp_migrate.audit import dtypes as known
from amp_migrate.audit.halves.given import Given
from amp_migrate.audit.halves.tensors import (
    FLOAT,
    HALVES,
    INTEGER,
    NUMBER,
    PRODUCTS,
    UNKNOWN,
    Dtype,
    Env,
    Told,
    Value,
    came_of,
    join,
    narrowed,
    promoted,
)
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module

if TYPE_CHECKING:
    from amp_migrate.audit.halves.follow import Halves


_BRACKET = re.compile(r"\[")
WIDE = ("float", "both")  # what Apex had in float32, on some way at least
NARROW = ("half", "partly", "maybe")  # on none that is seen
# What is told of code that a region reaches beside its models.
RAISING = ("inplace", "write", "apart")
BESIDE = (*RAISING, "double loss", *"double like product unpatched narrow inside operation single numpy file".split())
# What a region computes otherwise than O1 did, whatever becomes of it.
OF_THE_REGION = ("double", "double loss", "island", "unpatched", "perhaps unpatched", "narrow")


class Operations:
    """What operations give in one body, in or out of a region."""

    def __init__(self, halves: Halves, module: Module, env: Env, inside: bool, told: Told) -> None:
        self.halves = halves
        self.module = module
        self.env = env
        self.inside = inside
        self.told = told
        self.keyed: set[str] = set()  # the containers of which an entry has a value of its own
        self.returned: list[Value] = []
        self.method: Function | None = None  # whose body this is
        self.given: Mapping[str, Given] = {}  # what is known of the parameters in the call that this is run for
        self.early = False  # while a function of torch's runs that was kept before Apex patched torch
        self.bound: set[str] = set()  # names that it has given values since

    @property
    def patches(self) -> bool:
        """Whether Apex may have patched what is called here."""
        return self.halves.patches(self.module) and not self.early

    def store(self, text: str, value: Value) -> None:
        if "[" in text:
            for place in (text,) if self.keyed else (text, *self.env):
                self.keyed.update(place[: found.start()] for found in _BRACKET.finditer(place))
        self.env[text] = value

    def of(self, expr: ast.expr | None) -> Value:
        """The value of an expression."""
        raise NotImplementedError

    def arithmetic(self, expr: ast.expr, given: list[Value]) -> Value:
        """What a method or function gives that an operator stands for: `x.mul(0.5)`."""
        raise NotImplementedError

    def tell(self, kind: str, node: ast.AST, value: Value, detail: str) -> None:
        if not self.told or (self.told == PRODUCTS and kind not in BESIDE):
            return
        if kind == "numpy" and self.inside and not value.origin:
            kind = "below"
            if value.now == "maybe":  # what is out of sight gives it: of what it is only put on the CPU for, it is told
                if ".cpu" in syntax.text(node) or value.host:
                    self.halves.report("perhaps below", self.module, node, value, detail, self.halves.at)
                return
        if self.halves.below:  # certain halves alone: nothing is said there of what may be half
            certain = kind in ("below", "write") or (kind in RAISING and value.now == "half")
            told = kind in OF_THE_REGION or certain
        else:
            told = value.now == "half" or bool(value.origin) or kind in ("integer", *OF_THE_REGION)
        if told:
            self.halves.report(kind, self.module, node, value, detail, self.halves.at)

    def operation(self, expr: ast.expr, name: str, given: list[Value], functional: bool) -> Value:
        """An operation of torch on values: what it computed in before, and what it computes in now."""
        if not given:
            return UNKNOWN
        in_place = (
            name.endswith("_") and name[:-1] in known.SENSITIVE
        )  # O1 refused those on half that it ran in float32
        name = name[:-1] if in_place else name
        first = given[0].entry() if given[0].items else given[0]
        if name in known.ARITHMETIC:
            return self.arithmetic(expr, given)
        if name in known.INTEGERS:
            return INTEGER._replace(mask=name in known.MASKS, places=name in known.INDICES)
        if (first.mask or first.places) and name in known.RESHAPING:
            return first
        if name in known.PAIRS and (len(given) > 1 or name in ("topk", "sort") or has_axis(expr)):
            values = first.holding(None)
            return values.holding((values, INTEGER._replace(places=True)))
        if name in ("numpy", "tolist", "item"):
            return self.out(expr, name, first)
        if name in known.ALIKE_NATIVE or (name in known.ALIKE and not self.inside):
            self.alike(expr, name, name, given)
        on_host = any(v.host for v in given if v.half)  # a region for the GPU casts nothing on the CPU
        if name in known.PROMOTING and (on_host or not self.inside):
            given = self.beside_data(expr, given)
        origin = came_of(given)
        now, was = self.plain([v.now for v in given]), self.plain([v.was for v in given])
        floats = functional if name in known.SOFTMAX else name in known.FLOAT_BOTH or name in known.FLOAT_APEX
        upcasts = name in known.FLOAT_BOTH or name in known.FLOAT_NATIVE or name in known.SOFTMAX
        host = name == "cpu" or on_host
        if name == "cpu" and self.patches and now in HALVES:
            was = "float"
        kept = any(v.kept for v in given)
        widened = name in known.PROMOTED and not all(v.half for v in given[:2])
        if self.inside and not on_host:
            if name in known.HALF_BOTH | known.HALF_NATIVE:
                if any(v.double for v in given) and all(v.double or v == UNKNOWN for v in given):
                    return join(given)  # float64 as before
                if self.product(expr, name, given, kept):
                    if self.halves.floats(self.module) and not self.patches:
                        return Value("float", "half", origin=origin, kept=True)
                apart = name in known.HALF_NATIVE and self.patches  # which O1 left to its arguments
                return Value(was if apart and was in WIDE else "half", "half", origin=origin)
            if upcasts:
                if floats and name in known.LOSS_FUNCTIONS:
                    self.double_loss(expr, name, given)
                was = was if self.halves.floats(self.module) else "float"
                return Value(was, "float", origin=origin, kept=kept, single=_whole(expr, name))
            if name in known.FLOAT_APEX and self.patches:
                was = "float"
                if now == "half" and not widened:
                    self.tell("narrow", expr, first, name)
            if name in known.SENSITIVE and not widened and not self.halves.below and not _picks(expr):
                if (output := next((v for v in given if v.widened and v.half and v.origin), None)) is not None:
                    self.tell("inside", expr, output, name)
            keeps = Value(was, now, host=host, origin=origin, kept=kept, narrowed=narrowed(given))
            double, either = now in ("float", "?") and first.double, first.either and len(given) == 1
            keeps = keeps._replace(double=double, either=either)
            return keeps if name in known.KEEPING else UNKNOWN
        patches = self.patches and not host and not in_place
        if patches and floats:
            was = "float"
            if name in known.LOSS_FUNCTIONS:
                self.double_loss(expr, name, given)
        elif patches and name in known.HALF_BOTH:
            was = "half"
            if self.told and not self.halves.below and all(v.now == "float" and not v.kept for v in given[:2]):
                self.halves.report("lost", self.module, expr, first, name, self.halves.at)
        halves = [v for v in given if v.half]
        if halves and Value(was, now).widened and now in HALVES and (name in known.SENSITIVE and not _picks(expr)):
            known_was = halves[0].widened or (patches and floats)
            if known_was:
                if not halves[0].reduced:  # whose reduction was told
                    self.tell("operation", expr, halves[0], name)
                if name in ("sum", "mean"):
                    return Value(was, now, reduced=True, origin=origin)
                return Value(was, "?", origin=origin)
        if name in known.KEEPING or name in known.SENSITIVE:
            reduced, kept = any(v.reduced for v in given), kept and now == "float"
            result = Value(was, now, host=host, origin=origin, reduced=reduced, kept=kept, narrowed=narrowed(given))
            return result._replace(double=now in ("float", "?") and name in known.KEEPING and first.double)
        return UNKNOWN

    def beside_data(self, expr: ast.expr, given: list[Value]) -> list[Value]:
        """The arguments of a loss that computes in the wider dtype: data that no region gave are float32."""
        if not isinstance(expr, ast.Call) or len(given) < 2 or [v.half for v in given[:2]].count(True) != 1:
            return given
        at = int(given[0].half)
        if (
            given[at] != UNKNOWN
            or len(expr.args) < 2
            or self.halves.tensors.half(self.module.scope_of(expr), expr.args[at])
        ):
            return given
        return [FLOAT if i == at else v for i, v in enumerate(given)]

    def piece(self, expr: ast.Call, given: list[Value]) -> Value:
        """What a part of a model gives that is out of sight: where it has weights, these are half or float32."""
        self.doubles(expr, syntax.text(expr.func), given)
        return Value("maybe", "maybe")

    def doubles(self, expr: ast.expr, name: str, given: Iterable[Value]) -> bool:
        """Whether float64 comes to what raises on it beside half: autocast leaves it alone."""
        double = next((v for v in given if v.double), None)
        if double is not None:
            self.tell("double", expr, double, name)
        return double is not None

    def double_loss(self, expr: ast.expr, name: str, given: Iterable[Value]) -> None:
        """A loss that O1 computed in float32, and that is float64 now, in a region or out of it, as one of its arguments is."""
        double = next((v for v in given if v.double), None)
        if double is not None and self.patches:
            self.tell("double loss", expr, double, name)

    def product(self, expr: ast.expr, name: str, given: list[Value], kept: bool) -> bool:
        """A product in a region: half now, whatever it was. Whether it was one of what the program made float32 itself."""
        if self.doubles(expr, name, given):
            return False
        if kept and all(v.kept or (v.was in ("float", "?", "number") and not v.origin) for v in given):
            uncast = self.patches and name in known.HALF_NATIVE - self.halves.both.registered
            kind = "unpatched" if uncast and not self.halves.floats(self.module) else "island"
            self.tell(kind, expr, next(v for v in given if v.kept), name)
            return True
        if not self.patches or self.halves.floats(self.module):
            output = next((v for v in given if v.was == "float" and v.origin), None)
            if output is not None and not self.halves.below:
                self.tell("product", expr, output, name)
        elif name in known.HALF_NATIVE - self.halves.both.registered and not any(v.was in NARROW for v in given):
            floats = sorted((v for v in given if v.was in WIDE), key=lambda v: v.was == "both")
            if floats and (kept or not self.halves.unseen):  # beside what is float32, half raised
                self.tell("unpatched", expr, floats[0], name)
            elif name != "scaled_dot_product_attention":  # which is given what linear layers made
                self.tell("perhaps unpatched", expr, given[0], name)
        return False

    def alike(self, expr: ast.expr, what: str, name: str, given: list[Value]) -> None:
        """What takes tensors of one dtype alone, and raises on half and float32 together."""
        entries = [v.entry() for v in given]
        half = next((v for v in entries if v.half), None)
        if half is None or not any(v.now == "float" for v in entries):
            return
        were = {v.was for v in entries} - {"number", "int"}
        alike = were <= {"float"} or were <= {*HALVES}
        if alike or (self.patches and name in known.ALIKE_APEX and not half.host):
            self.tell("apart", expr, half, what)

    def plain_of(self, given: list[Value]) -> Value:
        """What an operation gives that promotes its arguments and casts nothing."""
        now, was = self.plain([v.now for v in given]), self.plain([v.was for v in given])
        origin, kept = came_of(given), any(v.kept for v in given)
        return Value(was, now, origin=origin, kept=kept, narrowed=narrowed(given))

    def write(self, expr: ast.AST, name: str, into: Value, value: Value) -> None:
        """A write of values into a tensor, which takes those of its own dtype alone, in a region too."""
        sure = ("half", "float")  # of the other side, where one is either
        apart = {into.now, value.now} == {*sure}
        apart = apart or (value.either and into.now in sure) or (into.either and value.now in sure)
        if apart and into.was == value.was and (value.host or (self.inside and self.halves.floats(self.module))):
            self.tell("write", expr, value._replace(now="half"), name)
        elif {into.now, value.now} in ({"partly", "float"}, {"partly", "half"}):  # on some way; all was half
            known_one = into if value.now == "partly" else value
            if known_one.was == "half" and self.inside and not self.patches:
                self.tell("write", expr, value._replace(now="partly"), name)

    def plain(self, given: list[Dtype]) -> Dtype:
        result: Dtype = given[0]
        for dtype in given[1:]:
            if dtype not in ("?", "number", "int"):
                result = promoted(result, dtype)
        return result

    def out(self, expr: ast.expr, name: str, value: Value) -> Value:
        """Values that leave torch: half becomes float16 for NumPy, which computes in it; others are Python's numbers."""
        if name in ("tolist", "item"):
            return NUMBER
        if not value.half or not value.widened:
            return value
        parent = self.module.parents.get(expr)
        if isinstance(parent, ast.Attribute) and parent.attr in (
            "tolist",
            "astype",
            "argmax",
            "item",
            "shape",
            "argsort",
        ):
            return UNKNOWN
        self.tell("numpy", expr, value, "")
        return UNKNOWN


def _picks(expr: ast.expr) -> bool:
    """Whether an interpolation only repeats values, in whichever dtype: the nearest, which is the default."""
    if not isinstance(expr, ast.Call) or not syntax.text(expr.func).endswith("interpolate"):
        return False
    modes = [k.value for k in expr.keywords if k.arg == "mode"] or expr.args[3:4]
    return not modes or (isinstance(modes[0], ast.Constant) and str(modes[0].value).startswith("nearest"))


def _whole(expr: ast.expr, name: str) -> bool:
    """Whether a reduction leaves no dimension: `torch.norm(x)`, `x.sum()`."""
    if not isinstance(expr, ast.Call) or name not in ("sum", "norm", "prod"):
        return False
    if any(k.arg in ("dim", "axis", None) for k in expr.keywords):
        return False
    of_torch = isinstance(expr.func, ast.Attribute) and syntax.text(expr.func.value) in ("torch", "torch.linalg")
    return len(expr.args) <= of_torch + (name == "norm")


def has_axis(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Call) and (any(k.arg in ("dim", "axis") for k in expr.keywords) or bool(expr.args))


def functional_of(layer: str) -> str:
    return {
        "Softmax": "softmax",
        "LogSoftmax": "log_softmax",
        "GELU": "gelu",
        "Sigmoid": "sigmoid",
        "LogSigmoid": "logsigmoid",
        "CosineSimilarity": "cosine_similarity",
        "CrossEntropyLoss": "cross_entropy",
        "NLLLoss": "nll_loss",
        "MSELoss": "mse_loss",
        "L1Loss": "l1_loss",
        "SmoothL1Loss": "smooth_l1_loss",
        "KLDivLoss": "kl_div",
        "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    }.get(layer, layer)
