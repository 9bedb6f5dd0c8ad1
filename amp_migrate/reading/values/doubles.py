"""One answer to the question whether a value is float64, on purpose or because NumPy computes in it where nothing says otherwise.

Values are followed through names, functions of the program with what each call gives them, and data sets: `data_sets.py`. What
is not in sight is unknown. A branch that the constants of the program never take counts for nothing.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from amp_migrate.reading.program.definitions import Function, dotted, elements
from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import own_nodes
from amp_migrate.reading.values import arrays as known
from amp_migrate.reading.values.analysis import Values, of_tensors
from amp_migrate.reading.values.array_operations import Operations
from amp_migrate.reading.values.arrays import NOTHING, UNKNOWN, Kind, Kinds, only
from amp_migrate.reading.values.data_sets import DataSets
from amp_migrate.reading.values.expressions import COMPREHENSIONS
from amp_migrate.reading.values.reaching import reaching
from amp_migrate.reading.values.sources import given_to, key_of
from amp_migrate.reading.values.table import BESIDE, Path, Value
from amp_migrate.reading.values.unpacked import unpacked_otherwise

MOST = 1500  # steps of one question
DEEPEST = 120  # questions that wait for each other
LONGEST = 4  # items of items
FEW = 12  # values of an attribute or a variable of a file; of more, nothing is said
TURNS = frozenset("tqdm tqdm.tqdm tqdm.auto.tqdm tqdm.notebook.tqdm tqdm.std.tqdm".split())
LOADER = "torch.utils.data.DataLoader"
TURNED = frozenset("enumerate zip iter next list tuple reversed".split())
ROWS = (ast.Slice, ast.Tuple)


Asked = tuple[ast.AST, Path, int]


class Call(NamedTuple):
    """A call of a function of the program: what its parameters are then, and what a test in it comes to."""

    function: Function
    given: Mapping[str, Callable[[Path], Kinds]]
    told: Callable[[ast.expr], bool | None]


class Doubles:
    """Answers for one program; see `Project.once`."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.values = project.once(of_tensors)
        self._constants = project.once(Values)
        self._data, self._operations = DataSets(self), Operations(self)
        self._known: dict[Asked, Kinds] = {}  # of what stands in no call that is followed
        self._within: dict[Asked, Kinds] = {}  # of what does, for one question
        self._open: set[Asked] = set()
        # What is open that the present answer hangs on; None: that no more is asked.
        self._hung: set[Asked | None] = set()
        self._calls: list[Call] = []  # of one question
        self._steps = 0

    def of(self, module: Module, node: ast.expr, path: Path = (), call: Call | None = None) -> Kinds:
        """What an expression, or the item of it at a path, may be; nothing of what hangs on itself."""
        asked = node, path, id(call) if call is not None else 0
        known = self._known if call is None else self._within
        if asked in known:
            return known[asked]
        if asked in self._open:
            self._hung.add(asked)
            return NOTHING
        if not self._open:
            self._steps = 0
        self._steps += 1
        if self._steps > MOST or len(self._open) > DEEPEST or len(path) > LONGEST:
            self._hung.add(None)
            return UNKNOWN
        outer, self._hung = self._hung, set()
        self._open.add(asked)
        found = self._expression(module, node, path, call)
        self._open.discard(asked)
        self._hung.discard(asked)
        if not self._hung:  # else it is part of an answer that is not all there
            known[asked] = found
        self._hung |= outer
        if not self._open:
            self._within, self._calls, self._hung = {}, [], set()
            self._known[asked] = found
        return found

    # -- expressions -------------------------------------------------------------------------------------------------

    def _expression(self, module: Module, node: ast.expr, path: Path, call: Call | None) -> Kinds:
        if isinstance(node, ast.Name):
            return self._name(module, node, path, call)
        if isinstance(node, ast.Call):
            return self._call(module, node, path, call)
        if isinstance(node, ast.Subscript):
            return self._subscript(module, node, path, call)
        if isinstance(node, ast.IfExp):
            truth = self._truth(module, node.test, call)
            sides = [s for s, yes in ((node.body, True), (node.orelse, False)) if truth is None or truth is yes]
            return self._any(module, sides, path, call)
        if isinstance(node, ast.BoolOp):
            return self._any(module, node.values, path, call)
        if isinstance(node, (ast.NamedExpr, ast.Starred, ast.Await)):
            return self.of(module, node.value, path, call)
        if isinstance(node, COMPREHENSIONS) and path and path[0] is None and not isinstance(node, ast.DictComp):
            return self.of(module, node.elt, path[1:], call)
        if isinstance(node, (ast.List, ast.Tuple)) and path and not any(isinstance(e, ast.Starred) for e in node.elts):
            at = path[0]
            entries = node.elts if at is None else node.elts[at:][:1] if isinstance(at, int) else []
            return self._any(module, entries, path[1:], call)
        if isinstance(node, ast.Dict) and path:
            seen = all(isinstance(k, ast.Constant) for k in node.keys)
            keyed = zip(node.keys, node.values, strict=True)
            entries = [v for k, v in keyed if isinstance(k, ast.Constant) and k.value == path[0]]
            return self._any(module, entries, path[1:], call) if entries or seen else UNKNOWN
        if isinstance(node, ast.BinOp):
            both = [self.of(module, side, (), call) for side in (node.left, node.right)]
            return known.folded(both, isinstance(node.op, ast.Div), module, node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            return self.of(module, node.operand, path, call)
        if isinstance(node, ast.Attribute):
            if node.attr in ("T", "data", "values") and (held := self.of(module, node.value, (), call)) != UNKNOWN:
                return held
            return self._stored(module, node, path)
        if isinstance(node, ast.Constant) and not path:
            value = node.value
            if isinstance(value, float):
                return only("real", module, node)
            return only("none" if value is None else "whole" if isinstance(value, int) else "unknown")
        return UNKNOWN

    def _any(self, module: Module, nodes: Iterable[ast.expr], path: Path, call: Call | None) -> Kinds:
        return NOTHING.union(*(self.of(module, n, path, call) for n in nodes))

    def _name(self, module: Module, node: ast.Name, path: Path, call: Call | None) -> Kinds:
        owner = module.scope_of(node).lookup(node.id)
        elsewhere = owner is None or owner.is_class or (owner.is_module and module.scope_of(node) is not owner)
        if owner is None or elsewhere or not all(isinstance(b, (ast.Name, ast.arg)) for b in owner.bindings[node.id]):
            return self._stored(module, node, path)
        found = [
            self._by_way(module, b, call, partial(self._bound, module, b, path, call))
            for b in reaching(owner, node)
            if b is not node and not self._replaced(module, b, node, call)
        ]
        if path and path[0] is None:
            found += [self.of(module, value, path[1:], call) for value in _appended(module, owner, node.id)]
        elif path:
            found += self._put(module, owner.reads(node.id), path, call)
        return NOTHING.union(*found) if found else UNKNOWN

    def _put(self, module: Module, uses: Iterable[ast.Name], path: Path, call: Call | None) -> list[Kinds]:
        """What is put into a container of a function under a key."""
        puts = [module.parents[use] for use in uses]
        named = [
            p
            for p in puts
            if isinstance(p, ast.Subscript) and isinstance(p.ctx, ast.Store) and key_of(p.slice) == path[0]
        ]
        given = [given_to(module, p) for p in named]
        return [self.of(module, g.value, (*g.path, *path[1:]), call) if g.value is not None else UNKNOWN for g in given]

    def _bound(self, module: Module, binding: ast.AST, path: Path, call: Call | None) -> Kinds:
        if isinstance(binding, ast.arg):
            scope = module.scope_of(binding)
            if call is not None and call.function.scope is scope:
                return call.given[binding.arg](path) if binding.arg in call.given else UNKNOWN
            function = self.project.functions.get(scope.node)
            if function is None:
                return UNKNOWN
            return NOTHING.union(*(self._told(v, binding) for v in self.values.passed(function, binding.arg, path)))
        if isinstance(module.parents[binding], ast.AugAssign) and isinstance(binding, ast.Name):
            return self._name(module, binding, path, call)  # in place: an array keeps its dtype
        given = given_to(module, binding)
        if given.value is None:
            return UNKNOWN
        found = self.of(module, given.value, (*given.path, *path), call)
        if len(found) > 1 and given.path and unpacked_otherwise(module, binding, given.value):
            return _perhaps(found)  # which of the data sets it is decides which branch is taken
        return found

    def _subscript(self, module: Module, node: ast.Subscript, path: Path, call: Call | None) -> Kinds:
        if isinstance(node.slice, ROWS):
            return self.of(module, node.value, path, call)
        if not path:
            whole = self.of(module, node.value, (), call)
            if whole and all(k.among(*known.ARRAYS) for k in whole):
                return whole | {k._replace(dtype="scalar") for k in whole if k.dtype == "double"}
        return self.of(module, node.value, (key_of(node.slice), *path), call)

    def _stored(self, module: Module, node: ast.expr, path: Path) -> Kinds:
        """What is known of a variable of a file, or an attribute."""
        found = [v for v in self.values.may_be(module, node, path) if v.kind != "unknown" or v.name != BESIDE]
        # One number is as another.
        found = list({(type(v.constant), v.kind == "constant" or v): v for v in found}.values())
        if len(found) > FEW or self._steps > MOST:
            return UNKNOWN
        if any(isinstance(at, str) for at in path) and not all(v.kind == "item" for v in found):
            return UNKNOWN  # what is put under a key may be put into another container that has it
        told = (self._by_way(v.module, v.node, None, partial(self._told, v, node)) for v in found)
        return NOTHING.union(*told) if found else UNKNOWN

    def _told(self, value: Value, asked: ast.AST) -> Kinds:
        node, module = value.node, value.module
        if value.kind == "item" and isinstance(node, ast.Call):
            return self._item(module, node, value.path, None)
        if not isinstance(node, ast.expr) or node is asked:
            return NOTHING if isinstance(node, ast.AugAssign) else UNKNOWN
        seen = value.kind in ("call", "computed", "constant") or isinstance(node, ast.BinOp)
        return self.of(module, node) if seen else UNKNOWN

    # -- ways --------------------------------------------------------------------------------------------------------

    def _truth(self, module: Module, test: ast.expr, call: Call | None) -> bool | None:
        if call is not None and module.scope_of(test) is call.function.scope:
            return call.told(test)
        return self._constants.truth(module, test)

    def _by_way(self, module: Module, node: ast.AST, call: Call | None, ask: Callable[[], Kinds]) -> Kinds:
        """What is asked of a node: nothing where its branch is never taken, for all that the program says; where the constants
        that objects are made with choose it, another object may be the one that is float64."""
        chosen = False
        for test, wanted in _tests(module, node):
            truth = self._truth(module, test, call)
            if truth is not None and truth is not wanted:
                return NOTHING
            chosen |= truth is None and self._constants.constants(module, test) is not None
        found = ask()
        return found if not chosen else _perhaps(found)

    def _replaced(self, module: Module, binding: ast.AST, use: ast.Name, call: Call | None) -> bool:
        """Whether a binding is followed by an `if` before a use, each branch of which binds the name again, or leaves."""
        stmt = module.statement(use)
        around = {stmt, *module.ancestors(stmt)}
        function = module.scope_of(binding).node
        if isinstance(binding, ast.arg):
            block = function.body if isinstance(function, FUNCTION_NODES) else []
        else:
            block = module.block(module.statement(binding))
            block = block[block.index(module.statement(binding)) + 1 :]
        if not around.intersection(block):
            return False
        before = itertools.takewhile(lambda s: s not in around, block)
        return any(isinstance(s, ast.If) and self._binds(module, s, use.id, call) for s in before)

    def _binds(self, module: Module, stmt: ast.If, name: str, call: Call | None) -> bool:
        truth = self._truth(module, stmt.test, call)
        blocks = [b for b, yes in ((stmt.body, True), (stmt.orelse, False)) if truth is None or truth is yes]
        return all(
            any(_gives(s, name) or (isinstance(s, ast.If) and self._binds(module, s, name, call)) for s in block)
            for block in blocks
        )

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, module: Module, node: ast.Call, path: Path, call: Call | None) -> Kinds:
        functions = self.project.resolved.get(node) or self.project.callees(module, node)
        if functions:
            if any(f.name == "__init__" for f in functions):
                return UNKNOWN
            return NOTHING.union(*(self.returned(f, path, self._run(f, module, node, call)) for f in functions))
        name = module.qualify(node.func) or dotted(node.func) or ""
        if name == "zip" and len(node.args) == 1 and isinstance(node.args[0], ast.Starred):
            if len(path) > 1 and isinstance(path[0], int) and path[1] is None:  # zip(*batch)
                return self.of(module, node.args[0].value, (None, path[0], *path[2:]), call)
            return UNKNOWN
        if path and name in TURNED:
            return self._turned(module, node, name, path, call)
        if path:
            return self._item(module, node, path, call)
        return self._operations.of(module, node, name, call)

    def _turned(self, module: Module, node: ast.Call, name: str, path: Path, call: Call | None) -> Kinds:
        if not node.args:
            return UNKNOWN
        first, rest = node.args[0], path[1:]
        if name == "next":
            return self.of(module, first, (None, *path), call)
        if name == "enumerate":
            return self.of(module, first, (None, *rest[1:]), call) if rest and rest[0] == 1 else only("whole")
        if name == "zip":
            at = rest[0] if rest else None
            return (
                self.of(module, node.args[at], (None, *rest[1:]), call)
                if isinstance(at, int) and at < len(node.args)
                else UNKNOWN
            )
        return self.of(module, first, path if path[0] is None else (None, *rest), call)

    def _item(self, module: Module, node: ast.Call, path: Path, call: Call | None) -> Kinds:
        """An item of what a call out of sight gives."""
        name = module.qualify(node.func) or ""
        if name in TURNS and node.args:
            return self.of(module, node.args[0], path, call)
        if name == LOADER:
            return self._data.loaded(module, node, path) if path and path[0] is None else UNKNOWN
        if name == "sklearn.model_selection.train_test_split" and isinstance(path[0], int):
            taken = node.args[path[0] // 2 :][:1] if path[0] >= 0 else []
            return self._any(module, taken, (), call) if taken else UNKNOWN
        moved = isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop") and not name
        if moved and node.args and (key := key_of(node.args[0])) is not None:
            return self.of(module, node.func.value, (key, *path), call)  # type: ignore[attr-defined]
        if all(p is None or isinstance(p, int) for p in path):
            rows = self._operations.of(module, node, name, call)
            return rows if all(k.among(*known.ARRAYS) for k in rows) else UNKNOWN
        return UNKNOWN

    def _run(self, function: Function, module: Module, node: ast.Call, outer: Call | None) -> Call:
        def of_argument(value: ast.expr) -> Callable[[Path], Kinds]:
            return lambda path: self.of(module, value, path, outer)

        def of_default(value: ast.expr) -> Callable[[Path], Kinds]:
            return lambda path: self.of(function.module, value, path)

        given = {name: of_default(value) for name, value in function.defaults.items()}
        given |= {name: of_argument(value) for name, value in self.project.arguments(function, node)}
        return self.called(function, given, lambda test: self._constants.told(function, module, node, test))

    def called(
        self,
        function: Function,
        given: Mapping[str, Callable[[Path], Kinds]],
        told: Callable[[ast.expr], bool | None] = lambda test: None,
    ) -> Call:
        """A call that stays the same one while a question is asked about it."""
        call = Call(function, given, told)
        self._calls.append(call)
        return call

    def returned(self, function: Function, path: Path, call: Call | None) -> Kinds:
        """What a function returns in a call; of what yields, what a turn of a loop over it has."""
        module, nodes = function.module, list(own_nodes(function.node.body))
        yields = [n for n in nodes if isinstance(n, (ast.Yield, ast.YieldFrom))]
        if yields and (not path or path[0] is not None):
            return UNKNOWN
        rest = path[1:] if yields else path
        ends = [n for n in (yields or nodes) if isinstance(n, ast.Yield if yields else ast.Return)]
        values = [n.value for n in ends if isinstance(n, (ast.Yield, ast.Return)) and n.value is not None]
        found = [self._by_way(module, v, call, partial(self.of, module, v, rest, call)) for v in values]
        return NOTHING.union(*found) if found and len(ends) >= len(yields) else UNKNOWN

    # -- what operations are given -----------------------------------------------------------------------------------

    def elements(self, module: Module, node: ast.expr, call: Call | None) -> Kinds:
        """What is joined in one array or tensor: the entries of a list, rows of an array, an array itself."""
        if isinstance(node, (ast.List, ast.Tuple)):
            return known.folded([self.elements(module, e, call) for e in node.elts], False, module, node)
        if isinstance(node, COMPREHENSIONS) and not isinstance(node, ast.DictComp):
            return self.elements(module, node.elt, call)
        whole = self.of(module, node, (), call)
        return whole if whole and not any(k.dtype == "unknown" for k in whole) else self.of(module, node, (None,), call)

    def of_dtype(self, module: Module, node: ast.expr, made: ast.AST) -> Kinds:
        """What is made in a dtype that is asked for."""
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
        name = text or module.qualify(node) or (node.id if isinstance(node, ast.Name) else "")
        dtype = known.of_name(name)
        return only(dtype, module, made) if dtype == "double" else only(dtype)


def _perhaps(found: Kinds) -> Kinds:
    """What may be something else wherever it may be float64."""
    return frozenset(Kind("unknown") if k.dtype == "double" else k for k in found)


def _tests(module: Module, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The tests that lead to a node in its function, each with what it has to come to: of the branches around it, and of what
    leaves the function before."""
    child = node
    for parent in module.ancestors(node):
        if isinstance(child, ast.stmt) and not isinstance(child, FUNCTION_NODES):
            block = module.block(child)
            for stmt in block[: block.index(child)]:
                if isinstance(stmt, ast.If) and isinstance(stmt.body[-1], ast.Return) and not stmt.orelse:
                    yield stmt.test, False
        if isinstance(parent, FUNCTION_NODES):
            return
        if isinstance(parent, ast.If) and child is not parent.test:
            yield parent.test, not any(s is child for s in parent.orelse)
        child = parent


def _appended(module: Module, owner: Scope, name: str) -> list[ast.expr]:
    return [c.args[0] for c in module.calls_in(owner) if c.args and dotted(c.func) == f"{name}.append"]


def _gives(stmt: ast.stmt, name: str) -> bool:
    """Whether a statement binds a name, or does not come to an end."""
    if isinstance(stmt, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
        return True
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        return dotted(stmt.value.func) in ("sys.exit", "exit", "quit")
    names = [e for t in stmt.targets for e in elements(t)] if isinstance(stmt, ast.Assign) else []
    return any(isinstance(n, ast.Name) and n.id == name for n in names)
