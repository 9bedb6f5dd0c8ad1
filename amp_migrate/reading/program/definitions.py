"""The functions and classes of a program, and the expressions that name them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

from amp_migrate.reading.program.module import FUNCTION_NODES, FunctionNode, Module, Scope
from amp_migrate.reading.program.tree import reached, walk

# Method names too common to tell the class from.
COMMON_METHODS = frozenset(
    "__init__ forward backward step train eval update zero_grad state_dict load_state_dict save load "
    "run fit get set add from_pretrained from_config "
    "append items keys values close open read write log reset init start stop process call apply "
    "parameters to cuda cpu half float double bfloat16 type detach clone "
    "next size mean item copy pop format join split strip index count sort extend clear insert remove".split()
)


class Function:
    """A function or method of the program."""

    def __init__(self, scope: Scope, cls: ClassInfo | None) -> None:
        assert isinstance(scope.node, FUNCTION_NODES)
        self.scope = scope
        self.node: FunctionNode = scope.node
        self.cls = cls
        self.module = scope.module

    @property
    def name(self) -> str:
        return self.node.name

    @cached_property
    def is_static(self) -> bool:
        return "staticmethod" in self._decorators

    @cached_property
    def is_unbound(self) -> bool:
        """Whether it is a static or class method: called through its class it is given no `self`."""
        return self.is_static or "classmethod" in self._decorators

    @cached_property
    def is_property(self) -> bool:
        """Whether reading an attribute runs it."""
        named = (dotted(d) or "" for d in self.node.decorator_list)
        return self.cls is not None and any(n.rpartition(".")[2] in ("property", "cached_property") for n in named)

    @cached_property
    def is_command(self) -> bool:
        """Whether it is a command of a command line, of which a run is one: `@cli.command()`, `@app.command("train")`."""
        made = (d.func if isinstance(d, ast.Call) else d for d in self.node.decorator_list)
        named = any(isinstance(m, ast.Attribute) and m.attr == "command" and dotted(m.value) for m in made)
        return named and "chain=True" not in self.module.text  # of click: several commands, one after another

    @cached_property
    def is_abstract(self) -> bool:
        """Whether it is there for others to be written in its place: an abstract method, or one that only raises."""
        named = (dotted(d) or "" for d in self.node.decorator_list)
        body = [s for s in self.node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        only_raises = len(body) == 1 and isinstance(body[0], ast.Raise)
        return self.cls is not None and (only_raises or any(n.endswith("abstractmethod") for n in named))

    @cached_property
    def _decorators(self) -> set[str]:
        return {d.id for d in self.node.decorator_list if isinstance(d, ast.Name)}

    @cached_property
    def by_place(self) -> list[ast.arg]:
        """The parameters that can be given by position."""
        return [*self.node.args.posonlyargs, *self.node.args.args]

    @cached_property
    def parameters(self) -> list[ast.arg]:
        """All parameters but `*args` and `**kwargs`."""
        return [*self.by_place, *self.node.args.kwonlyargs]

    @cached_property
    def positional(self) -> list[str]:
        """Parameter names a positional argument can reach, without `self`."""
        args = [a.arg for a in self.by_place]
        return args[1:] if self.cls is not None and not self.is_static else args

    @cached_property
    def defaults(self) -> dict[str, ast.expr]:
        """The default values of its parameters."""
        a = self.node.args
        found = {p.arg: d for p, d in zip(reversed(self.by_place), reversed(a.defaults), strict=False)}
        return found | {p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}

    @cached_property
    def inside(self) -> list[ast.AST]:
        """Every node of its body."""
        return [n for s in self.node.body for n in walk(s)]

    @cached_property
    def unpacking(self) -> list[tuple[ast.Call, list[ast.Starred], list[ast.keyword]]]:
        """The calls in it that unpack its own `*args` and `**kwargs`, and where they do."""
        a, found = self.node.args, []
        for inner in self.inside if a.vararg is not None or a.kwarg is not None else ():
            if isinstance(inner, ast.Call) and self.module.scope_of(inner) is self.scope:
                stars = [arg for arg in inner.args if isinstance(arg, ast.Starred) and _is(arg.value, a.vararg)]
                unpacked = [k for k in inner.keywords if k.arg is None and _is(k.value, a.kwarg)]
                if stars or unpacked:
                    found.append((inner, stars, unpacked))
        return found

    @cached_property
    def constant_defaults(self) -> dict[str, str]:
        """Parameters that are a literal where a call leaves them out, as text."""
        return {name: self.module.source(d) for name, d in self.defaults.items() if isinstance(d, ast.Constant)}

    def takes(self, call: ast.Call) -> bool:
        """Whether a call gives what the function asks for, and no more: Python refuses it else. A call that unpacks
        something, or a method called on its class, may."""
        a = self.node.args
        if self.cls is not None and isinstance(call.func, ast.Attribute):
            return True
        if unpacks(call):
            return True
        named = {k.arg for k in call.keywords if k.arg is not None}
        filled = {*self.positional[: len(call.args)], *named}
        known = {*self.positional, *(p.arg for p in a.kwonlyargs)}
        asked = known - self.defaults.keys()
        return (
            asked <= filled
            and (a.vararg is not None or len(call.args) <= len(self.positional))
            and (a.kwarg is not None or named <= known)
        )

    def lacks(self, call: ast.Call, given: Collection[str]) -> bool:
        """Whether a call leaves out what the function must be given: it raises, and hands nothing over. An argument too few
        shifts all others: `validate(loader, model)` of `def validate(epoch, loader, model)`."""
        if self.node.decorator_list or unpacks(call):
            return False
        required = [p.arg for p in self.by_place[: len(self.by_place) - len(self.node.args.defaults)]]
        return any(name not in given for name in required[1 if self.cls is not None else 0 :])

    def parameter(self, name: str) -> ast.arg | None:
        return next((p for p in self.parameters if p.arg == name), None)


class ClassInfo:
    """A class of the program."""

    def __init__(self, scope: Scope) -> None:
        assert isinstance(scope.node, ast.ClassDef)
        self.scope = scope
        self.node: ast.ClassDef = scope.node
        self.module = scope.module
        self.methods: dict[str, Function] = {}
        self.variants: dict[
            str, list[Function]
        ] = {}  # all that the class defines under a name: in an `if` and its `else`
        self.bases: list[ClassInfo] = []
        self.base_names: list[str] = []
        self.subclasses: list[ClassInfo] = []
        self.linked = False  # whether that is all there is
        self._above: tuple[ClassInfo, ...] = ()
        self._below: tuple[ClassInfo, ...] = ()

    @property
    def name(self) -> str:
        return self.node.name

    def ancestry(self) -> Iterable[ClassInfo]:
        """The class and all that it derives from, the nearest first."""
        if not self.linked:
            return reached([self], lambda cls: cls.bases)
        self._above = self._above or tuple(reached([self], lambda cls: cls.bases))
        return self._above

    def descendants(self) -> Iterable[ClassInfo]:
        """The class and all that derive from it, the nearest first."""
        if not self.linked:
            return reached([self], lambda cls: cls.subclasses)
        self._below = self._below or tuple(reached([self], lambda cls: cls.subclasses))
        return self._below

    @cached_property
    def has_module(self) -> bool:
        """Whether the class itself gives something the name `module`."""
        return any(
            (isinstance(n, ast.Attribute) and n.attr == "module" and isinstance(n.ctx, ast.Store))
            or (isinstance(n, FUNCTION_NODES) and n.name == "module")
            for n in walk(self.node)
        )

    @cached_property
    def annotated(self) -> list[str]:
        """The fields of a class whose constructor is made from them (a dataclass, attrs, a NamedTuple), in order."""
        classes = list(self.ancestry())
        if any("__init__" in c.methods for c in classes):
            return []
        bodies = [c.node.body for c in reversed(classes)]
        names = [
            s.target.id
            for body in bodies
            for s in body
            if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
        ]
        return list(dict.fromkeys(names))

    def given(self, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        """What a call of such a class gives its fields."""
        if self.annotated and not any(isinstance(a, ast.Starred) for a in call.args):
            yield from zip(self.annotated, call.args, strict=False)
            yield from ((k.arg, k.value) for k in call.keywords if k.arg in self.annotated and k.arg is not None)

    def shares_instances(self, other: ClassInfo) -> bool:
        """Whether one object can be of both classes: one derives from the other, or a third from both."""
        return any(other in cls.ancestry() for cls in self.descendants())

    @cached_property
    def family(self) -> ClassInfo:
        """The root that stands for all classes sharing instances' attributes with this one."""
        top = self
        seen = {self}
        while top.bases and top.bases[0] not in seen:
            top = top.bases[0]
            seen.add(top)
        return top

    def method(self, name: str) -> Function | None:
        for cls in self.ancestry():
            if name in cls.methods:
                return cls.methods[name]
        return None

    def variants_of(self, name: str) -> list[Function]:
        """The methods of a name that the class has or inherits, where it is defined more than once."""
        return next((cls.variants[name] for cls in self.ancestry() if name in cls.variants), [])

    @cached_property
    def is_module(self) -> bool:
        """Whether instances are `torch.nn.Module`s (so that calling them runs their forward)."""
        for cls in self.ancestry():
            if any(
                n.endswith(("nn.Module", "PreTrainedModel", "Model"))
                or (n.split(".")[0] in ("torch", "nn") and not n.startswith(NO_MODULES))
                or n == "Module"
                for n in cls.base_names
            ):
                return True
        return False


# Parts of torch whose classes are no modules: schedulers and optimizers, data sets, autograd functions.
NO_MODULES = ("torch.optim.", "torch.utils.", "torch.autograd.", "torch.distributions.")


def unpacks(call: ast.Call) -> bool:
    """Whether some arguments of a call are not written one by one: `*values`, `**settings`."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)


def unpacked_list(module: Module, call: ast.Call) -> ast.expr | None:
    """The list that all arguments by place come from, `call(*things)`; not what a function was given itself (`*args`)."""
    first = call.args[0].value if len(call.args) == 1 and isinstance(call.args[0], ast.Starred) else None
    given = isinstance(first, ast.Name) and first.id in module.scope_of(first).params
    return None if given else first


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
        return call.args[position]
    return None


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` as text, for names and attributes."""
    if type(node) is ast.Name:
        return node.id
    if type(node) is not ast.Attribute:
        return None
    at: ast.AST = node
    text = ""
    while type(at) is ast.Attribute:
        text = f".{at.attr}{text}"
        at = at.value
    return f"{at.id}{text}" if type(at) is ast.Name else None


def field_name(node: ast.AST) -> str | None:
    """The last name of where a value is kept: of an attribute, under a written key, or of a variable."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value
    return node.id if isinstance(node, ast.Name) else None


def called_name(call: ast.Call) -> str:
    """The last name of what a call runs."""
    func = call.func
    if type(func) is ast.Name:
        return func.id
    if type(func) is ast.Attribute:
        return func.attr
    return ast.unparse(func).rpartition(".")[2]


def literal(node: ast.AST | None) -> object:
    """The value of a literal; Ellipsis for what is computed, and for no node."""
    try:
        return ast.literal_eval(node) if isinstance(node, ast.expr) else ...
    except (ValueError, TypeError, SyntaxError):
        return ...


def is_none(node: ast.AST | None) -> bool:
    """Whether an expression is a written None."""
    return isinstance(node, ast.Constant) and node.value is None


def is_off(node: ast.AST | None) -> bool:
    """Whether an expression is written as what a test takes for false: `False`, `None`, `0`, `""`."""
    return isinstance(node, ast.Constant) and not node.value


def elements(node: ast.expr | None) -> list[ast.expr]:
    """The members of a literal list or tuple; any other expression stands for itself."""
    if node is None:
        return []
    if isinstance(node, (ast.List, ast.Tuple)):
        return [e.value if isinstance(e, ast.Starred) else e for e in node.elts]
    return [node]


def written_out(args: Iterable[ast.expr]) -> Iterator[ast.expr]:
    """Positional arguments, with those of `*(a, b)` one by one."""
    for arg in args:
        if isinstance(arg, ast.Starred) and isinstance(arg.value, (ast.Tuple, ast.List)):
            yield from written_out(arg.value.elts)
        else:
            yield arg


def entries(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """What a mapping that is written out holds under each name: `{"a": x}`, `dict(a=x)`."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
            elif key is None:
                yield from entries(value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        for keyword in node.keywords:
            if keyword.arg is not None:
                yield keyword.arg, keyword.value
            else:
                yield from entries(keyword.value)


def in_rows(node: ast.expr) -> Iterator[tuple[int, ast.expr]]:
    """What a list of tuples that is written out holds in each place of them: `[("first", x), ("second", y)]`."""
    rows = node.elts if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else ()
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        rows = [node.elt]
    for row in rows:
        yield from enumerate(row.elts) if isinstance(row, ast.Tuple) else ()


def _is(value: ast.expr, parameter: ast.arg | None) -> bool:
    return parameter is not None and isinstance(value, ast.Name) and value.id == parameter.arg
