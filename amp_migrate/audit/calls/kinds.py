"""Of what type a value may be, where that can be told: constants, comparisons, options of a command line, arithmetic."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Scope
from amp_migrate.audit.program.syntax import own_nodes
from amp_migrate.audit.unset.given import Given
from amp_migrate.audit.values.origins import in_order
from amp_migrate.audit.values.values import Values

Kinds = frozenset[str]
BOOL, INT, FLOAT, STR, NONE = (frozenset({k}) for k in ("bool", "int", "float", "str", "NoneType"))
CALLS = {
    "bool": BOOL,
    "isinstance": BOOL,
    "issubclass": BOOL,
    "hasattr": BOOL,
    "callable": BOOL,
    "any": BOOL,
    "all": BOOL,
    "str": STR,
    "int": INT,
    "len": INT,
    "float": FLOAT,
    "os.getenv": STR | NONE,
    "os.environ.get": STR | NONE,
    "torch.device": frozenset({"torch.device"}),
    "torch.cuda.is_available": BOOL,
    "torch.distributed.is_initialized": BOOL,
}
METHODS = {"is_enabled": BOOL, "startswith": BOOL, "endswith": BOOL, "is_available": BOOL, "lower": STR, "strip": STR}


TRUE, FALSE = "+", "-"  # how a kind ends that comes of a constant which is true, or false


class KindsOf:
    """Answers for one state of a program. None: anything."""

    def __init__(self, values: Values, given: Given) -> None:
        self.values = values
        self.program = values.program
        self.given = given
        self._by_default = False

    def of(self, scope: Scope, expr: ast.expr) -> Kinds | None:
        """The names of the types that a value may have."""
        return self._plain(scope, expr, -1)

    def of_some_run(self, scope: Scope, expr: ast.expr) -> Kinds | None:
        """The same where a parameter that nothing in sight passes has its default: as in the run that passes nothing."""
        self._by_default = True
        try:
            return self._plain(scope, expr, -1)
        finally:
            self._by_default = False

    def useful(self, scope: Scope, expr: ast.expr) -> Kinds | None:
        """The same without constants that are false: a loss scale of 0 worked nowhere."""
        kinds = self._of(scope, expr, 0)
        return frozenset(k.rstrip(TRUE) for k in kinds if not k.endswith(FALSE)) if kinds is not None else None

    def loaded(self, scope: Scope, expr: ast.expr, depth: int = 0) -> ast.expr | None:
        """What a value may come down to that is an entry of what nothing in sight makes, a configuration or a namespace: a
        number of any kind."""
        if depth > 6:
            return None
        if isinstance(expr, ast.IfExp):
            return self.loaded(scope, expr.body, depth + 1) or self.loaded(scope, expr.orelse, depth + 1)
        if isinstance(expr, ast.BoolOp):
            return next((found for v in expr.values if (found := self.loaded(scope, v, depth + 1)) is not None), None)
        if isinstance(expr, ast.Call):
            taken = isinstance(expr.func, ast.Attribute) and expr.func.attr == "get" and bool(expr.args)
            return expr if taken and self.useful(scope, expr) is None else None
        if not isinstance(expr, (ast.Name, ast.Attribute, ast.Subscript)) or self.useful(scope, expr) is not None:
            return None
        entry = isinstance(expr, (ast.Attribute, ast.Subscript)) and self.program.is_self(scope, expr.value) is None
        made = [(o.module.scope_of(o.node), o.node, o.path) for o in in_order(self.values.origins(scope, expr))]
        inner = [(where, n, path) for where, n, path in made if isinstance(n, ast.expr) and n is not expr]
        if not inner:
            return expr if entry else None
        floats = [(where, arg) for where, node, _ in inner for arg in _made_float(node)]
        cast = {(o.node, o.path) for where, arg in floats for o in self.values.origins(where, arg)}
        for (
            where,
            node,
            path,
        ) in inner:  # `scale = args.scale`, then `scale = float(scale)`: what it was before is no more
            if (node, path) in cast:
                continue
            entry = any(isinstance(key, str) for key in path)
            if (found := expr if entry else None if path else self.loaded(where, node, depth + 1)) is not None:
                return found
        return None

    def _of(self, scope: Scope, expr: ast.expr, depth: int) -> Kinds | None:
        if depth > 6:
            return None
        if isinstance(expr, ast.Constant):
            name = type(expr.value).__name__
            return NONE if expr.value is None else frozenset({f"{name}{TRUE if expr.value else FALSE}"})
        if isinstance(expr, ast.Compare):
            return BOOL
        if isinstance(expr, ast.UnaryOp):
            return BOOL if isinstance(expr.op, ast.Not) else self._of(scope, expr.operand, depth + 1)
        if isinstance(expr, ast.JoinedStr):
            return STR
        if isinstance(expr, ast.IfExp):
            return _union(self._of(scope, expr.body, depth + 1), self._of(scope, expr.orelse, depth + 1))
        if isinstance(expr, ast.BoolOp):
            return self._bool_op(scope, expr, depth)
        if isinstance(expr, ast.BinOp):
            return self._arithmetic(scope, expr, depth)
        if isinstance(expr, ast.Call):
            return self._call(scope, expr, depth)
        if isinstance(expr, ast.Attribute) and (option := self._option(scope, expr, depth)) is not None:
            return option
        if isinstance(expr, (ast.Name, ast.Attribute, ast.Subscript)):
            return self._value(scope, expr, depth)
        return None

    def _bool_op(self, scope: Scope, expr: ast.BoolOp, depth: int) -> Kinds | None:
        """`x and y` is x where that is false, `x or y` x where it is true."""
        result: Kinds | None = frozenset()
        texts = {syntax.text(side) for value in expr.values for side in _compared_with_text(value)}
        for value in expr.values[:-1]:
            kinds = self._of(scope, value, depth + 1)
            if kinds is None and syntax.text(value) in texts:  # level and level != "O0"
                kinds = STR
            if kinds is not None:
                never = (FALSE, "NoneType") if isinstance(expr.op, ast.Or) else (TRUE,)
                kinds = frozenset(k for k in kinds if not k.endswith(never))
            result = _union(result, kinds)
        return _union(result, self._of(scope, expr.values[-1], depth + 1))

    def _arithmetic(self, scope: Scope, expr: ast.BinOp, depth: int) -> Kinds | None:
        left, right = self._plain(scope, expr.left, depth), self._plain(scope, expr.right, depth)
        if isinstance(expr.op, ast.Mod) and left == STR:
            return STR
        if left is None or right is None or not (left | right) <= INT | FLOAT | BOOL:
            return None
        if isinstance(expr.op, ast.Div) or FLOAT in (left, right):
            return FLOAT
        return INT if not FLOAT & (left | right) else INT | FLOAT

    def _plain(self, scope: Scope, expr: ast.expr, depth: int) -> Kinds | None:
        kinds = self._of(scope, expr, depth + 1)
        return frozenset(k.rstrip(TRUE + FALSE) for k in kinds) if kinds is not None else None

    def _call(self, scope: Scope, expr: ast.Call, depth: int) -> Kinds | None:
        name = self.program.dotted(scope, expr.func) or syntax.text(expr.func)
        if name in CALLS and not (name in ("os.getenv", "os.environ.get") and len(expr.args) > 1):
            return CALLS[name]
        found = self.program.definitions(scope, expr.func, guess=False)
        if found:
            return self._returned(found, depth)
        return METHODS.get(expr.func.attr) if isinstance(expr.func, ast.Attribute) else None

    def _returned(self, found: Sequence[Function | Class], depth: int) -> Kinds | None:
        result: Kinds | None = frozenset()
        for function in found:
            if not isinstance(function, Function):
                return None
            values = [n.value for n in own_nodes(function.node) if isinstance(n, ast.Return)]
            if not values or any(isinstance(n, ast.Yield) for n in own_nodes(function.node)):
                return None
            for value in values:
                result = _union(result, self._of(function.scope, value, depth + 1) if value is not None else NONE)
        return result

    def _value(self, scope: Scope, expr: ast.expr, depth: int) -> Kinds | None:
        """Where several assignments count, no order of them is known: only what all agree on is said."""
        if isinstance(expr, ast.Name) and (given := self._given(scope, expr.id, depth)) is not None:
            return given
        found: set[Kinds] = set()
        for origin in self.values.origins(scope, expr):
            if self._by_default and origin.kind == "parameter":
                continue
            if origin.path or origin.kind in ("unknown", "parameter") or not isinstance(origin.node, ast.expr):
                return None
            kinds = self._of(origin.module.scope_of(origin.node), origin.node, depth + 1)
            if origin.node is expr or kinds is None:
                return None
            found.add(kinds)
        return found.pop() if len(found) == 1 else None

    def _given(self, scope: Scope, name: str, depth: int) -> Kinds | None:
        """What a parameter may be that nothing assigns in its function: what each call gives it, a run each."""
        binder = scope.binder(name)
        bound = binder.bindings[name] if binder is not None else []
        if binder is None or len(bound) != 1 or not isinstance(bound[0], ast.arg):
            return None
        if not isinstance(binder.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        function = self.program.function_of(binder.module, binder.node)
        default = function.defaults.get(name)
        result: Kinds | None = frozenset()
        for module, call in self.program.callers(function):
            filled = self.program.arguments(function, call)
            value = filled.get(name, default) if filled is not None else None
            kinds = self._plain(module.scope_of(value), value, depth) if value is not None else None
            if kinds is None and not self._by_default:
                return None
            result = _union(result, kinds or frozenset())
        return result or None

    # -- options ---------------------------------------------------------------------------------------------------

    def _option(self, scope: Scope, expr: ast.Attribute, depth: int) -> Kinds | None:
        """What an option of a command line may be, if nothing else assigns it."""
        if self.values.fields(expr.attr):
            return None
        result: Kinds | None = frozenset()
        for origin in self.values.origins(scope, expr.value):
            call = origin.node
            if (
                not isinstance(call, ast.Call)
                or not isinstance(call.func, ast.Attribute)
                or origin.path not in ((), (0,))
            ):
                return None
            if call.func.attr not in ("parse_args", "parse_known_args"):
                return None
            added = self.given.option(origin.module.scope_of(call), call.func.value, expr.attr)
            if added is None:
                return None
            for where, argument in added:
                result = _union(result, self._argument(where, argument, depth))
        return result or None

    def _argument(self, scope: Scope, call: ast.Call, depth: int) -> Kinds | None:
        given = {k.arg: k.value for k in call.keywords}
        if "nargs" in given or None in given:
            return None
        default = self._of(scope, given["default"], depth + 1) if "default" in given else None
        required = isinstance(given.get("required"), ast.Constant) or _positional(call)
        action = given.get("action")
        if action is not None:
            text = syntax.text(action).strip("'\"").rpartition(".")[2]
            if text in ("store_true", "store_false"):
                return _union(BOOL, default) if "default" in given else BOOL
            if text == "BooleanOptionalAction":
                return _union(BOOL, default if "default" in given else NONE)
            if text != "store":
                return None
        kinds = self._type(scope, given.get("type"), depth)
        if "default" not in given:
            return kinds if required else _union(kinds, NONE)
        if isinstance(given["default"], ast.Constant) and isinstance(given["default"].value, str):
            return kinds  # argparse converts a default that is text, and no other
        return _union(kinds, default)

    def _type(self, scope: Scope, expr: ast.expr | None, depth: int) -> Kinds | None:
        if expr is None:
            return STR
        if isinstance(expr, ast.Name) and expr.id in ("int", "float", "str", "bool"):
            return frozenset({expr.id})
        if isinstance(expr, ast.Lambda):
            return self._of(scope, expr.body, depth + 1)
        found = self.program.definitions(scope, expr, guess=False)
        return self._returned(found, depth) if found else None


def _compared_with_text(value: ast.expr) -> list[ast.expr]:
    """What a test compares with text: `args.amp != "O0"`."""
    if not isinstance(value, ast.Compare):
        return []
    sides = [value.left, *value.comparators]
    return sides if any(isinstance(s, ast.Constant) and isinstance(s.value, str) for s in sides) else []


def _made_float(node: ast.expr) -> list[ast.expr]:
    """What an expression makes a float of."""
    calls = (n for n in syntax.every(node, ast.Call) if isinstance(n.func, ast.Name) and n.func.id == "float")
    return [arg for call in calls for arg in call.args]


def _positional(call: ast.Call) -> bool:
    first = call.args[0] if call.args else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and not first.value.startswith("-")


def _union(a: Kinds | None, b: Kinds | None) -> Kinds | None:
    return None if a is None or b is None else a | b
