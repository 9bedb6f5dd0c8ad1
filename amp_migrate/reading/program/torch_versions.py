"""Tests of torch's version: branches for a torch older than any that has `torch.amp.GradScaler` are never taken.

`if version.parse(torch.__version__) < version.parse("1.6"): from apex import amp else: from torch.cuda import amp`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType

from amp_migrate.reading.program.logic import COMPARED, implied, truth
from amp_migrate.reading.program.tree import children, names_stored, walk, within_apex

# The oldest torch that runs what is written: torch.amp.GradScaler came with it.
OLDEST = (2, 3)
# What tests ask of it in other words, `hasattr(torch.amp, "GradScaler")`, and the torch that each name came with.
NAMES: dict[str, dict[object, tuple[int, int]]] = {
    "torch": {"amp": (1, 10), "autocast": (1, 10)},
    "torch.cuda": {"amp": (1, 6)},
    "torch.amp": {"autocast": (1, 10), "GradScaler": (2, 3), "custom_fwd": (2, 4), "custom_bwd": (2, 4)},
}
MIRRORED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}
USED = frozenset({"initialize", "scale_loss", "master_params"})


class TorchVersions:
    """What the tests of one file tell about the version, and the branches with Apex in them that no torch takes."""

    def __init__(self, tree: ast.Module, torch: tuple[int, ...] = (*OLDEST, 1)) -> None:
        self.tree = tree
        self.torch = torch  # of which it is asked; all that are newer than the oldest compare alike
        self.constants: dict[str, ast.expr] = {}  # names that the top of the file gives one value
        self.flags: dict[str, bool] = {}
        self.same: dict[str, tuple[str, bool]] = {}  # flags that are true just where, or just where not, a setting is
        self.setting: dict[str, list[ast.Assign]] = {}  # the statements that give a flag its value, and do nothing else
        self.never: list[tuple[ast.If | ast.IfExp, bool]] = []  # with what the test comes to
        self.nodes: set[ast.AST] = set()  # all that stands in such branches
        self._tested: set[str] = set()  # of the flags, those that a test of the version decides
        self._names()
        self._branches()

    def _names(self) -> None:
        """Read the names that are bound at the top of the file, in order, as far as tests of the version decide."""
        bound: dict[str, int] = {}
        for node in walk(self.tree):
            name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del) else None
            name = node.arg if isinstance(node, ast.arg) else name
            if name is not None:
                bound[name] = bound.get(name, 0) + 1
        self._read(self.tree.body, bound, certain=True)
        for name, statements in list(self.setting.items()):
            elsewhere = bound[name] != len(statements)
            if elsewhere or name not in self._tested or name in self.same:
                self.flags.pop(name, None)
                del self.setting[name]

    def _read(self, block: list[ast.stmt], bound: dict[str, int], *, certain: bool, told: bool = False) -> None:
        """`certain`: the statements run whenever the file does; `told`: a test of the version stands around them."""
        for stmt in block:
            if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Name):
                name = stmt.targets[0].id
                if bound[name] == 1 and certain:
                    self.constants[name] = stmt.value
                value = self._flag(stmt.value)
                if value is not None:
                    self.setting.setdefault(name, []).append(stmt)
                    self._tested |= {name} if told or not isinstance(stmt.value, ast.Constant) else set()
                    if certain:
                        self.flags[name] = value
            elif isinstance(stmt, ast.If):
                value = self.value(stmt.test)
                self._read_alike(stmt, bound)
                known = told or value is not None
                self._read(stmt.body, bound, certain=certain and value is True, told=known)
                self._read(stmt.orelse, bound, certain=certain and value is False, told=known)
                if value is None and certain:
                    stored = names_stored(stmt)
                    self.flags = {name: v for name, v in self.flags.items() if name not in stored}

    def _read_alike(self, stmt: ast.If, bound: Mapping[str, int]) -> None:
        """Read flags of which a setting of the program and the version decide together: `if use_amp: native = version >= ...`
        with `else: native = False`."""
        settings = [(n, on) for n, on in _names_told(stmt.test, True) if bound.get(n) == 1 and n not in self._tested]
        one, other = (self._given(block) if settings else {} for block in (stmt.body, stmt.orelse))
        alike = [n for n in one.keys() & other.keys() if bound[n] == 2 and one[n] is not other[n]]
        self.same |= {n: (name, one[n] is on) for name, on in settings for n in alike}

    def _given(self, block: list[ast.stmt]) -> dict[str, bool]:
        """The flags that some statements give a value."""
        plain = [(s.targets[0], s.value) for s in block if isinstance(s, ast.Assign) and len(s.targets) == 1]
        given = {target.id: self._flag(value) for target, value in plain if isinstance(target, ast.Name)}
        return {name: value for name, value in given.items() if value is not None}

    def _flag(self, given: ast.expr) -> bool | None:
        """What a flag is that is given an expression."""
        value = given.value if isinstance(given, ast.Constant) else self.value(given)
        return value if isinstance(value, bool) else None

    def value(self, test: ast.expr, known: Mapping[str, bool] = MappingProxyType({})) -> bool | None:
        """What a test comes to with any torch that is not too old, where some settings are known; None where it asks for
        something else as well."""
        told = truth(test, partial(self._told, known=known))
        if told is not None or not self.same:
            return told
        settings = {name for name, _ in self.same.values()}
        asked = {self._setting(n.id)[0] for n in walk(test) if isinstance(n, ast.Name)} & settings - known.keys()
        if not asked:
            return None
        one, other = (self.value(test, {**known, min(asked): on}) for on in (True, False))
        return one if one is other else None

    def _setting(self, name: str) -> tuple[str, bool]:
        """The setting that a flag is true with, or false."""
        return self.same.get(name, (name, True))

    def _told(self, test: ast.expr, known: Mapping[str, bool]) -> bool | None:
        if isinstance(test, ast.Name):
            setting, on = self._setting(test.id)
            return known[setting] is on if setting in known else self.flags.get(test.id)
        if isinstance(test, ast.Compare):  # `(1, 5) <= version < (1, 10)` as well
            sides = [test.left, *test.comparators]
            links = [self._compared(sides[i], op, sides[i + 1]) for i, op in enumerate(test.ops)]
            return False if False in links else None if None in links else True
        if isinstance(test, ast.Call) and ast.unparse(test.func) == "hasattr" and len(test.args) == 2:
            holder, name = ast.unparse(test.args[0]), getattr(test.args[1], "value", None)
            if (since := NAMES.get(holder, {}).get(name)) is not None:
                return self.torch > OLDEST or self.torch >= since
        return None

    def comes_to(self, test: ast.expr, constants: Mapping[str, ast.expr]) -> bool | None:
        """The same, where imported names have these values."""
        self.constants = {**constants, **self.constants}
        return self.value(test)

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool | None:
        if type(op) not in COMPARED:
            return None
        if self._asks_torch(right) and not self._asks_torch(left):
            return self._compared(right, MIRRORED[type(op)](), left)
        bound = self._version(right) if self._asks_torch(left) else None
        if bound is None or bound > OLDEST or (bound == OLDEST and type(op) not in (ast.Lt, ast.GtE)):
            return None
        return COMPARED[type(op)](self.torch, bound)

    def _asks_torch(self, expr: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is the version of torch, in whatever form."""
        if isinstance(expr, ast.Name) and expr.id in self.constants and depth < 4:
            return self._asks_torch(self.constants[expr.id], depth + 1)
        found = False
        for node in walk(expr):
            if isinstance(node, ast.Attribute) and node.attr == "__version__":
                if ast.unparse(node) != "torch.__version__":
                    return False
                found = True
            if isinstance(node, ast.Name) and node is not expr and node.id in self.constants and depth < 4:
                found = found or self._asks_torch(self.constants[node.id], depth + 1)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
                return False
        return found

    def _version(self, expr: ast.expr, depth: int = 0) -> tuple[int, ...] | None:
        """A version that is written out: "1.6.0", (1, 6), version.parse("1.6"), 1.6; None for another expression."""
        if isinstance(expr, ast.Name) and expr.id in self.constants and depth < 4:
            return self._version(self.constants[expr.id], depth + 1)
        if isinstance(expr, ast.Call) and len(expr.args) == 1 and not expr.keywords:
            return self._version(expr.args[0], depth)
        if isinstance(expr, ast.Tuple | ast.List) and expr.elts:
            parts = [e.value for e in expr.elts if isinstance(e, ast.Constant) and isinstance(e.value, int)]
            return tuple(parts) if len(parts) == len(expr.elts) else None
        if not isinstance(expr, ast.Constant) or isinstance(expr.value, bool):
            return None
        if not isinstance(expr.value, str | float):
            return None
        found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", str(expr.value))
        return tuple(int(part) for part in found.groups() if part is not None) if found is not None else None

    def _branches(self) -> None:
        """The branches that hold something of Apex; those in one of them go with it."""
        waiting: list[tuple[ast.AST, Mapping[str, bool], tuple[frozenset[str], ...]]] = [(self.tree, {}, ())]
        while waiting:
            node, known, failed = waiting.pop()
            if not isinstance(node, ast.If | ast.IfExp):
                waiting += [(child, known, ()) for child in children(node)]
                continue
            value = self.value(node.test, known)
            if value is None and any(test <= set(map(ast.unparse, self._open(node.test))) for test in failed):
                value = False
            waiting.append((node.test, known, ()))
            for came, side in ((True, node.body), (False, node.orelse)):
                parts = side if isinstance(side, list) else [side]
                if value is (not came) and any(is_apex(n) for part in parts for n in walk(part)):
                    self.never.append((node, not came))
                    self.nodes.update(n for part in parts for n in walk(part))
                else:
                    follows = self._failed(node.test, failed) if not came and len(parts) == 1 else ()
                    waiting += [(part, self._known(node.test, came, known), follows) for part in parts]

    def _known(self, test: ast.expr, came: bool, known: Mapping[str, bool]) -> Mapping[str, bool]:
        """What settings are where a test came out so."""
        told = ((self._setting(name), value) for name, value in _names_told(test, came) if self.same)
        return {**known, **{name: value is on for (name, on), value in told}}

    def _failed(self, test: ast.expr, before: tuple[frozenset[str], ...]) -> tuple[frozenset[str], ...]:
        """What an `elif` may rely on: `fp16` is false behind `if fp16 and native:` where the version says `native`."""
        still = self._open(test) if self.value(test) is None else ()
        calls = any(isinstance(n, ast.Call | ast.NamedExpr | ast.Await) for v in still for n in walk(v))
        decided = len(still) < len(_conditions(test))
        return (*before, frozenset(map(ast.unparse, still))) if still and decided and not calls else before

    def _open(self, test: ast.expr) -> list[ast.expr]:
        """The conditions of a test that the version does not decide."""
        return [v for v in _conditions(test) if self.value(v) is None]


def _conditions(test: ast.expr) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]


def _names_told(test: ast.expr, came: bool) -> Iterator[tuple[str, bool]]:
    """What names are where a test comes out so."""
    return ((part.id, value) for part, value in implied(test, came) if isinstance(part, ast.Name))


def is_apex(node: ast.AST) -> bool:
    """Whether a node names Apex, or one of the functions that only its amp has."""
    if isinstance(node, ast.Import):
        return any(within_apex(a.name) for a in node.names)
    if isinstance(node, ast.ImportFrom):
        return not node.level and within_apex(node.module)
    if isinstance(node, ast.Attribute):
        return node.attr in USED and isinstance(node.value, ast.Name | ast.Attribute)
    return isinstance(node, ast.Name) and node.id == "apex"


def versions(tree: ast.Module, text: str) -> TorchVersions | None:
    """What a file asks of torch's version; None where it does not ask, or has nothing of Apex."""
    asks = "__version__" in text and ("apex" in text or any(name in text for name in USED))
    return TorchVersions(tree) if asks else None
