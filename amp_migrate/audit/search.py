"""One search for where a value may come from: through names, fields, containers, parameters and calls."""

from __future__ import annotations

import ast

from amp_migrate.audit import syntax
from amp_migrate.audit.module import COMPREHENSIONS, Class, Function, Module, Scope
from amp_migrate.audit.origins import Origin, Sources
from amp_migrate.audit.targets import Path, put_later, single, targets

BUDGET = 400  # expressions looked at for one question
DEPTH = 40  # steps from one to the next

# Methods that give the object itself back.
SELF_RETURNING = frozenset(
    "to cuda cpu half float double train eval requires_grad_ type apply share_memory bfloat16".split()
)
# Calls that give one of their arguments back, or what behaves as it does: the position.
HOLDING = frozenset({"torch.nn.ModuleList", "torch.nn.ModuleDict", "torch.nn.Sequential"})  # and give back, by item
PASSING = {
    "apex.amp.initialize": None,  # item by item: see `_initialize`
    "torch.nn.DataParallel": 0,
    "torch.nn.parallel.DataParallel": 0,
    "torch.nn.parallel.DistributedDataParallel": 0,
    "apex.parallel.DistributedDataParallel": 0,
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": 0,
    "apex.parallel.convert_syncbn_model": 0,
    "torch.compile": 0,
    "torch.jit.script": 0,
    "apex.parallel.LARC": 0,
    "apex.parallel.LARC.LARC": 0,
    "apex.fp16_utils.network_to_half": 0,
    "apex.fp16_utils.convert_network": 0,
}


class Search:
    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.program = sources.program
        self.seen: set[tuple[object, object, Path]] = set()
        self.budget = BUDGET
        self.depth = 0

    def run(self, scope: Scope, expr: ast.expr, path: Path) -> set[Origin]:
        key = (scope.module, expr, path)
        if key in self.seen:
            return set()
        self.seen.add(key)
        self.budget -= 1
        module = scope.module
        if self.budget < 0 or len(path) > 4 or self.depth > DEPTH:
            return {Origin(module, expr, "unknown", path)}
        self.depth += 1
        try:
            return self._expression(scope, expr, path)
        finally:
            self.depth -= 1

    def _expression(self, scope: Scope, expr: ast.expr, path: Path) -> set[Origin]:
        module = scope.module
        if isinstance(expr, ast.Constant):
            return {Origin(module, expr, "constant", path)}
        if isinstance(expr, ast.Name):
            found = scope.binder(expr.id)
            return self.name(found, expr.id, path) if found is not None else {Origin(module, expr, "unknown", path)}
        if isinstance(expr, ast.Attribute):
            return self.attribute(scope, expr, path)
        if isinstance(expr, ast.IfExp):
            return self.run(scope, expr.body, path) | self.run(scope, expr.orelse, path)
        if isinstance(expr, ast.BoolOp):
            return {o for v in expr.values for o in self.run(scope, v, path)}
        if isinstance(expr, ast.NamedExpr):
            return self.run(scope, expr.value, path)
        if isinstance(expr, ast.Starred):
            return self.run(scope, expr.value, path)
        if isinstance(expr, ast.Await):
            return self.run(scope, expr.value, path)
        if isinstance(expr, ast.Tuple | ast.List | ast.Set):
            return self.sequence(scope, expr, path)
        if isinstance(expr, ast.Dict):
            return self.mapping(scope, expr, path)
        if isinstance(expr, ast.Subscript):
            index = expr.slice.value if isinstance(expr.slice, ast.Constant) else None
            item = index if isinstance(index, int | str) and not isinstance(index, bool) else None
            return self.run(scope, expr.value, (item, *path))
        if isinstance(expr, COMPREHENSIONS) and not isinstance(expr, ast.DictComp):
            return self.run(scope, expr.elt, path[1:]) if path else {Origin(module, expr, "literal")}
        if isinstance(expr, ast.Call):
            return self.call(scope, expr, path)
        return {Origin(module, expr, "literal" if not path else "unknown", path)}

    def sequence(self, scope: Scope, expr: ast.Tuple | ast.List | ast.Set, path: Path) -> set[Origin]:
        if not path:
            return {Origin(scope.module, expr, "literal")}
        first, rest = path[0], path[1:]
        if isinstance(first, int) and not any(isinstance(e, ast.Starred) for e in expr.elts):
            if -len(expr.elts) <= first < len(expr.elts):
                return self.run(scope, expr.elts[first], rest)
            return set()
        return {o for e in expr.elts for o in self.run(scope, e, rest)}

    def mapping(self, scope: Scope, expr: ast.Dict, path: Path) -> set[Origin]:
        if not path:
            return {Origin(scope.module, expr, "literal")}
        first, rest = path[0], path[1:]
        chosen: list[ast.expr] = []
        for key, value in zip(expr.keys, expr.values, strict=True):
            if key is None:
                chosen.append(value)
                if isinstance(first, str):
                    continue
            if first is None or not isinstance(key, ast.Constant) or key.value == first:
                chosen.append(value)
        return {o for v in chosen for o in self.run(scope, v, rest)}

    # -- names and fields ------------------------------------------------------------------------------------------

    def name(self, found: Scope, name: str, path: Path) -> set[Origin]:
        """What a name holds that a scope binds."""
        result: set[Origin] = set()
        for node in found.bindings[name]:
            result |= self.binding(found, name, node, path)
        if found is found.module.top:
            for inner, value, item in self.sources.set_elsewhere(found.module, name):
                result |= self.run(inner, value, (*item, *path))
        if path:  # what was put into the container later: x.append(v), x["k"] = v
            result |= self.put(found, name, path)
        return result

    def put(self, scope: Scope, name: str, path: Path) -> set[Origin]:
        result: set[Origin] = set()
        calls, items = put_later(scope.module)
        for call in calls.get(name, ()):
            if scope.module.scope_of(call).binder(name) is scope:
                result |= self.run(scope.module.scope_of(call), call.args[-1], path[1:])
        for target, value, item in items.get(name, ()):
            inner = scope.module.scope_of(target)
            index = target.slice.value if isinstance(target.slice, ast.Constant) else None
            if inner.binder(name) is scope:
                if path[0] is None or index is None or index == path[0]:
                    result |= self.run(inner, value, (*item, *path[1:]))
        return result

    def binding(self, scope: Scope, name: str, node: ast.AST, path: Path) -> set[Origin]:
        module = scope.module
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return {Origin(module, node, "function", path)}
        if isinstance(node, ast.ClassDef):
            return {Origin(module, node, "class", path)}
        if isinstance(node, ast.arg):
            return self.parameter(scope, node, path)
        if isinstance(node, ast.Import | ast.ImportFrom):
            return self.imported(scope, name, node, path)
        result: set[Origin] = set()
        for target, value, item in targets(node):
            for found, inner in single(target):
                if isinstance(found, ast.Name) and found.id == name:
                    if value is None:
                        result.add(Origin(module, node, "unknown", path))
                    else:
                        result |= self.run(module.scope_of(value), value, (*item, *inner, *path))
        return result or {Origin(module, node, "unknown", path)}

    def imported(self, scope: Scope, name: str, node: ast.AST, path: Path) -> set[Origin]:
        dotted = self.program._imported(scope.module, name, node)
        if (node, name, path) in self.seen:
            return set()  # two files that import the name from one another
        self.seen.add((node, name, path))
        home = self.program.module_named(dotted.rpartition(".")[0], scope.module) if dotted else None
        if dotted is not None and home is not None:
            last = dotted.rpartition(".")[2]
            result: set[Origin] = set()
            for inner in home.top.bindings.get(last, ()):
                result |= self.binding(home.top, last, inner, path)
            if result:
                return result
        return {Origin(scope.module, node, "unknown", path)}

    def attribute(self, scope: Scope, expr: ast.Attribute, path: Path) -> set[Origin]:
        module = scope.module
        owner = self.program.is_self(scope, expr.value)
        family = set(self.program.family(owner)) if owner is not None else None
        result: set[Origin] = set()
        for where, target, value, item in self.sources.fields(expr.attr):
            its_scope = where.scope_of(target)
            its_owner = self.program.is_self(its_scope, target.value)
            if family is not None and its_owner is not None and its_owner not in family:
                continue
            if family is None and its_owner is None and not self._same_holder(scope, expr, its_scope, target):
                continue
            if value is None:
                result.add(Origin(where, target, "unknown", path))
            else:
                result |= self.run(its_scope, value, (*item, *path))
        if owner is None and (given := self.sources.records.given(expr.attr)):
            makers = [(o.module, o.node) for o in self.run(scope, expr.value, ())]
            for where, value in self.sources.records.of_these(given, makers):
                result |= self.run(where.scope_of(value), value, path)
        if result:
            return result
        if self.program.dotted(scope, expr) is not None:
            dotted = self.program.dotted(scope, expr)
            home = self.program.module_named(dotted.rpartition(".")[0], module) if dotted else None
            if home is not None and expr.attr in home.top.bindings:
                return {o for n in home.top.bindings[expr.attr] for o in self.binding(home.top, expr.attr, n, path)}
        if owner is not None:
            for function in self.program.methods(owner, expr.attr):
                if any(isinstance(d, ast.Name) and d.id == "property" for d in function.node.decorator_list):
                    result |= self.returned(function, path)
                else:
                    result.add(Origin(function.module, function.node, "function", path))
        return result or {Origin(module, expr, "unknown", path)}

    @staticmethod
    def _same_holder(a: Scope, one: ast.Attribute, b: Scope, other: ast.Attribute) -> bool:
        """Whether two attributes outside of classes may be of one object: written alike (`args.fp16`), as people do."""
        return syntax.text(one.value) == syntax.text(other.value) or a.module is not b.module

    # -- parameters and calls --------------------------------------------------------------------------------------

    def parameter(self, scope: Scope, node: ast.arg, path: Path) -> set[Origin]:
        if not isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
            return {Origin(scope.module, node, "parameter", path)}
        function = self.program.function_of(scope.module, scope.node)
        a = function.node.args
        if function.bound and function.parameters and function.parameters[0] is node and function.owner is not None:
            return {Origin(scope.module, function.owner.node, "class", path)}
        if node in (a.vararg, a.kwarg):
            return self._gathered(function, node, path) or {Origin(scope.module, node, "parameter", path)}
        result: set[Origin] = set()
        default = default_of(function.node, node.arg)
        missing = False
        if function not in self.sources.given:
            self.sources.given[function] = [
                (module, call, self.program.arguments(function, call, bound=self._bound(function, module, call)))
                for module, call in self.program.callers(function)
            ]
        callers = self.sources.given[function]
        for module, call, filled in callers:
            if filled is None:
                given = self.handed(function, module, call, node, path)
                missing |= all(o.kind in ("unknown", "parameter") for o in given)
                result |= given
            elif node.arg in filled:
                result |= self.run(module.scope_of(call), filled[node.arg], path)
            else:
                missing = True
        if default is not None and (missing or not callers):
            result |= self.run(scope.parent or scope, default, path)
        if not callers:
            result.add(Origin(scope.module, node, "parameter", path))
        return result

    def handed(self, function: Function, module: Module, call: ast.Call, node: ast.arg, path: Path) -> set[Origin]:
        """What a call with `*args` or `**kwargs` gives a parameter: what it names, what stands before the star, an entry
        of a dictionary."""
        scope = module.scope_of(call)
        for keyword in call.keywords:
            if keyword.arg == node.arg:
                return self.run(scope, keyword.value, path)
        names = [p.arg for p in function.parameters][1 if self._bound(function, module, call) else 0 :]
        star = next((i for i, a in enumerate(call.args) if isinstance(a, ast.Starred)), len(call.args))
        if node.arg in names[:star]:
            return self.run(scope, call.args[names.index(node.arg)], path)
        starred = [k.value for k in call.keywords if k.arg is None]
        last = call.args[star] if star == len(call.args) - 1 else None
        if isinstance(last, ast.Starred) and node.arg in names:
            found = self.run(scope, last.value, (names.index(node.arg) - star, *path))
            if not starred or not all(o.kind in ("unknown", "parameter") for o in found):
                return found
        elif star < len(call.args) or not starred:
            return {Origin(module, call, "unknown", path)}
        found = {o for value in starred for o in self.run(scope, value, (node.arg, *path))}
        return found or {Origin(module, call, "unknown", path)}

    def _gathered(self, function: Function, node: ast.arg, path: Path) -> set[Origin]:
        """What the calls of a function put under a key of its `**kwargs`, or at a place of its `*args`."""
        a = function.node.args
        result: set[Origin] = set()
        for module, call in self.program.callers(function) if path else ():
            scope, first = module.scope_of(call), path[0]
            if node is a.kwarg and isinstance(first, str):
                named = [k.value for k in call.keywords if k.arg == first]
                for value in named:
                    result |= self.run(scope, value, path[1:])
                for value in [k.value for k in call.keywords if k.arg is None and not named]:
                    result |= self.run(scope, value, path)
            elif node is a.vararg and isinstance(first, int):
                own = len([*a.posonlyargs, *a.args]) - (1 if self._bound(function, module, call) else 0)
                star = next((i for i, x in enumerate(call.args) if isinstance(x, ast.Starred)), len(call.args))
                last = call.args[star] if star == len(call.args) - 1 else None
                if own + first < star:
                    result |= self.run(scope, call.args[own + first], path[1:])
                elif isinstance(last, ast.Starred):
                    result |= self.run(scope, last.value, (own + first - star, *path[1:]))
        return result

    def _bound(self, function: Function, module: Module, call: ast.Call) -> bool:
        """Whether a call of a method fills `self`: not where it goes through the class, `Trainer.fit(trainer, x)`."""
        if not function.bound:
            return False
        if isinstance(call.func, ast.Attribute) and function.name != "__init__":
            scope = module.scope_of(call)
            called_on = self.program.definitions(scope, call.func.value, guess=False)
            return not any(isinstance(d, Class) for d in called_on)
        return True

    def call(self, scope: Scope, expr: ast.Call, path: Path) -> set[Origin]:
        name = self.program.dotted(scope, expr.func)
        if name == "apex.amp.initialize":
            return self._initialize(scope, expr, path)
        position = PASSING.get(name or "")
        if position is not None and len(expr.args) > position:
            return self.run(scope, expr.args[position], path)
        if path and name in HOLDING and expr.args:
            if name == "torch.nn.Sequential":
                return self.sequence(scope, ast.List(elts=expr.args, ctx=ast.Load()), path)
            return self.run(scope, expr.args[0], path)
        if isinstance(expr.func, ast.Attribute) and expr.func.attr in SELF_RETURNING:
            if self.program.dotted(scope, expr.func) is None:
                return self.run(scope, expr.func.value, path)
        if isinstance(expr.func, ast.Name) and expr.func.id == "getattr" and len(expr.args) >= 2:
            if isinstance(expr.args[1], ast.Constant) and isinstance(expr.args[1].value, str):
                made = ast.Attribute(value=expr.args[0], attr=expr.args[1].value, ctx=ast.Load())
                return self.attribute(scope, ast.copy_location(made, expr), path)
        if path and isinstance(path[0], str) and isinstance(expr.func, ast.Name) and expr.func.id == "dict":
            named = [k.value for k in expr.keywords if k.arg == path[0]]
            if len(named) == 1 and scope.binder("dict") is None:
                return self.run(scope, named[0], path[1:])
        found = self.program.definitions(scope, expr.func, guess=False)
        functions = [d for d in found if isinstance(d, Function)]
        if functions:
            own = {Origin(scope.module, expr, "call", path)} if any(map(self._makes_own, functions)) else set()
            given = {o for f in functions for o in self.returned(f, path)}
            return own | {o for o in given if not any(_of_own_class(f, o) for f in functions)}
        return {Origin(scope.module, expr, "call", path)}

    def _makes_own(self, function: Function) -> bool:
        """Whether a class method gives an object that it makes with `cls(...)`: of the class that it is called on."""
        made = self.sources.made
        if function not in made:
            made[function] = False
            if _class_method(function) and function.parameters:
                found = Search(self.sources).returned(function, ())  # a search of its own: this one has been here
                made[function] = any(_of_own_class(function, o) for o in found)
        return made[function]

    def _initialize(self, scope: Scope, expr: ast.Call, path: Path) -> set[Origin]:
        """`amp.initialize` gives back what it is given: the models, or models and optimizers."""
        given = [*expr.args, *(k.value for k in expr.keywords if k.arg in ("models", "optimizers"))]
        optimizers = len(expr.args) > 1 or any(k.arg == "optimizers" for k in expr.keywords)
        if not given:
            return {Origin(scope.module, expr, "unknown", path)}
        if not optimizers:
            return self.run(scope, given[0], path)
        if path and isinstance(path[0], int) and 0 <= path[0] < 2 and len(given) > path[0]:
            return self.run(scope, given[path[0]], path[1:])
        return {Origin(scope.module, expr, "call", path)}

    def returned(self, function: Function, path: Path) -> set[Origin]:
        """What a function may return."""
        result: set[Origin] = set()
        returns = self.sources.returns
        if function not in returns:
            returns[function] = [n for n in syntax.own_nodes(function.node) if isinstance(n, ast.Return | ast.Yield)]
        for node in returns[function]:
            if node.value is not None:
                result |= self.run(function.module.scope_of(node.value), node.value, path)
        return result


def _class_method(function: Function) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "classmethod" for d in function.node.decorator_list)


def _of_own_class(function: Function, origin: Origin) -> bool:
    """Whether an object is made with the `cls(...)` of a class method."""
    func = origin.node.func if isinstance(origin.node, ast.Call) else None
    return (
        isinstance(func, ast.Name)
        and origin.module is function.module
        and _class_method(function)
        and bool(function.parameters)
        and func.id == function.parameters[0].arg
    )


def default_of(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    """The default of a parameter, if it has one."""
    a = node.args
    positional = [*a.posonlyargs, *a.args]
    for arg, value in zip(reversed(positional), reversed(a.defaults), strict=False):
        if arg.arg == name:
            return value
    for arg, other in zip(a.kwonlyargs, a.kw_defaults, strict=True):
        if arg.arg == name:
            return other
    return None
