"""Which values of a scope may be half where they are used outside of its regions: by the bindings that reach the use."""

from __future__ import annotations

import ast
import re
from functools import cached_property

from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.regions.place import Regions
from amp_migrate.reading.values.dtypes import FLOAT32, Dtype, Dtypes
from amp_migrate.reading.values.entries import DISPLAYS, appended, entries_in, entry_at, entry_of, parts, values_of_pair
from amp_migrate.reading.values.expressions import COMPREHENSIONS
from amp_migrate.reading.values.operations import INTEGERS, JOINING
from amp_migrate.reading.values.reaching import reaching
from amp_migrate.reading.values.returned import Returns
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions.shown import FLOATING, KEEPING, UNCHANGED, shows_floating, shows_whole

HALVING = frozenset({"half", "bfloat16"})
# What a model returns beside its predictions may be indices; these names are given to floating values.
OUTPUT_NAMES = re.compile(r"logit|prob|score|embed|feature|hidden|output|loss|audio|mel|spec", re.IGNORECASE)
# Names that say how many, or which: `mel_lengths` beside `mels`.
NUMBER_NAMES = re.compile(r"(?:^|_)(?:len|lens|lengths?|ids?|idxs?|index|indices|counts?|sizes?)$", re.IGNORECASE)
NO_TENSOR: frozenset[Dtype] = frozenset({"integer", "number", "host"})  # nothing that could be half
MAY_BE_WHOLE: frozenset[Dtype] = frozenset({"integer", "either"})  # of what some return gives
DEPTH = 8  # bindings followed
JOINTS = frozenset(f"torch.{name}" for name in JOINING)


class HalfValues:
    """The values of one scope. `outputs`: only what models return counts, not all that regions compute."""

    def __init__(self, m: Migration, found: Regions, inside: set[ast.stmt], cast: set[str]) -> None:
        self.m = m
        self.module = found.scope.module
        self.found = found
        self.dtypes = m.project.once(Dtypes)
        self.inside = inside
        self.cast = cast
        self.float_calls: set[ast.expr] = set()  # operations that are given float32 by what is written
        self.float_stmts: set[ast.stmt] = set()  # statements that give float32 by what is written

    def stands_inside(self, node: ast.AST) -> bool:
        return self.module.inside_of(node, self.inside)

    @property
    def _upcasts(self) -> bool:
        """Whether autocast runs softmax, exp and log in float32: it does on CUDA devices, on the CPU in half."""
        return self.m.options.device == "cuda"

    @property
    def _patched(self) -> bool:
        """Whether Apex patched torch's functions, whatever is asked for."""
        return bool(self.m.unit.inits) and all(i.levels <= {"O0", "O1"} for i in self.m.unit.inits)

    def reaching(self, use: ast.Name) -> list[ast.stmt]:
        """The statements whose binding of a name may be what a use reads."""
        return list(dict.fromkeys(map(self.module.statement, reaching(self.found.scope, use))))

    def may_be(self, node: ast.expr, *, outputs: bool = False, depth: int = DEPTH) -> bool:
        """Whether an expression may be half: computed in a region, or from what was by what keeps the dtype."""
        if depth <= 0 or node in self.float_calls or self.dtypes.of(self.module, node) in NO_TENSOR:
            return False
        if (held := self._held(node)) is not None:
            return any(self.may_be(v, outputs=outputs, depth=depth - 1) for v in held)
        if isinstance(node, ast.Name):
            half = any(self._gives(b, node.id, outputs, depth - 1) for b in self.reaching(node))
            return half and not self._counts(node.id)
        if isinstance(node, ast.Subscript):
            if (place := self._entry(node)) is not None and not self._may_be_half(*place, depth):
                return False
            return self.may_be(node.value, outputs=outputs, depth=depth)
        if isinstance(node, ast.Attribute):
            return node.attr in ("data", "T") and self.may_be(node.value, outputs=outputs, depth=depth)
        if isinstance(node, ast.BinOp):
            if any(self.is_float32(side, depth) for side in (node.left, node.right)):
                return False  # half and float32 give float32
            return any(self.may_be(side, outputs=outputs, depth=depth) for side in (node.left, node.right))
        if not isinstance(node, ast.Call):
            return False
        if self.is_output(node):
            return self.stands_inside(node) and not is_upcast(self.m, self.module, node)
        if not isinstance(node.func, (ast.Name, ast.Attribute)):
            return False
        last = called_name(node)
        if last in HALVING and isinstance(node.func, ast.Attribute):
            return self._patched  # O1 gives what it patched float32 of this as well
        moved = last in ("to", "cuda") and self.dtypes.of(self.module, node) == "half"
        if not moved and (
            last not in KEEPING | {"mean"} or (last not in UNCHANGED and self.stands_inside(node) and self._upcasts)
        ):
            return False
        given = [*node.args[:1], *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        return any(self.may_be(g, outputs=outputs, depth=depth) for g in given)

    def _entry(self, node: ast.expr) -> tuple[ast.Call, int] | None:
        """The forward and the place of `outputs[1]`, of what a model gave."""
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
            return None
        made, index = self._single(node.value), node.slice.value
        if not isinstance(made, ast.Call) or type(index) is not int or not self.is_output(made):
            return None
        return made, index

    def _may_be_half(self, made: ast.Call, index: int, depth: int) -> bool:
        """Whether an entry of what a model gave may be half: no softmax, which a region computes in float32, no whole numbers,
        and of what its forward only hands back, what may be half there."""
        if (handed := self.m.regions.returns.handed(self.module, made, index, self._forwards)) is not None:
            return any(self.may_be(argument, depth=depth - 1) for argument in handed)
        found = self.dtypes.entry(self.module, made, index, self._forwards)
        upcast = self._upcasts and self.stands_inside(made) and found <= FLOAT32
        return not found or not (upcast or found <= NO_TENSOR)

    def is_float32(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether an expression is a float32 tensor with dimensions, by what is computed in the regions and out of them."""
        known = depth > 0 and self.dtypes.of(self.module, node) == "float32"
        return known and not self.may_be(node, depth=depth)

    def _held(self, node: ast.expr) -> list[ast.expr] | None:
        """What an entry, a joint or the values of a pair are made of; None for everything else."""
        if isinstance(node, ast.Name):
            held = entry_of(self.module, node)
            return [held] if held is not None else appended(self.found.scope, node.id) or None
        if isinstance(node, COMPREHENSIONS) and not isinstance(node, ast.DictComp):
            return [node.elt]
        if isinstance(node, (ast.List, ast.Tuple)):
            return node.elts
        if isinstance(node, ast.Call) and (self.module.qualify(node.func) or "") in JOINTS and node.args:
            return node.args[:1]
        if isinstance(node, ast.Subscript) and (put := entry_at(self.found.scope, node)):
            return put
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == 0:
            values = values_of_pair(node.value)
            return [values] if values is not None else None
        if isinstance(node, ast.Attribute) and node.attr == "values":
            made = self._single(node.value)
            values = values_of_pair(made) if made is not None else None
            return [values] if values is not None else None
        return None

    def _single(self, node: ast.expr) -> ast.expr | None:
        """What a name was given last, where that is one assignment; any other expression is itself."""
        if not isinstance(node, ast.Name):
            return node
        reached = self.reaching(node)
        stmt = reached[0] if len(reached) == 1 else None
        return stmt.value if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name) else None

    def _gives(self, stmt: ast.stmt, name: str, outputs: bool, depth: int) -> bool:
        if name in self.cast or stmt in self.float_stmts or not self.may_give(stmt, name, depth):
            return False
        if not isinstance(stmt, ast.Assign):
            held = entries_in(stmt.target, stmt.iter, name) if isinstance(stmt, ast.For) else None
            if held is not None and self.may_be(held, outputs=outputs, depth=depth):
                return True
            return not outputs and self._computed(stmt, name)
        if isinstance(stmt.targets[0], DISPLAYS) and (values := values_of_pair(stmt.value)) is not None:
            first = stmt.targets[0].elts[0]
            return (
                isinstance(first, ast.Name) and first.id == name and self.may_be(values, outputs=outputs, depth=depth)
            )
        target, kept = stmt.targets[0], kept_from(stmt.value)
        if isinstance(target, DISPLAYS) and isinstance(stmt.value, DISPLAYS):
            pairs = zip(target.elts, stmt.value.elts, strict=False)
            return any(self.may_be(v, outputs=outputs, depth=depth) for t, v in pairs if ast.unparse(t) == name)
        if isinstance(target, ast.Name) and isinstance(kept, ast.Name) and self._only_outputs(kept):
            return self.may_be(kept, outputs=outputs, depth=depth)
        if outputs and "loss" in name.lower():
            return False  # losses are float32 in a region as well
        if not self._computed(stmt, name):
            if not isinstance(stmt.targets[0], ast.Name) and "loss" in name.lower():
                return False
            # One of several: `loss, logits = outputs[:2]`.
            return self.may_be(stmt.value, outputs=outputs, depth=depth)
        return not outputs or self.may_be(stmt.value, outputs=True, depth=depth)

    def _only_outputs(self, use: ast.Name) -> bool:
        """Whether all that a name may hold is what models gave, or a part of it."""
        reached = self.reaching(use)
        return bool(reached) and all(isinstance(s, ast.Assign) and self.is_output(s.value) for s in reached)

    def _computed(self, stmt: ast.stmt, name: str) -> bool:
        """Whether a statement computes a name in a region, of this migration or of the program's own."""
        own = self.found.native or bool(self.found.switched)
        return name in self.found.values and (self.stands_inside(stmt) or own)

    def is_output(self, node: ast.expr) -> bool:
        """Whether an expression is what a model computes, no tokens."""
        forward = isinstance(node, ast.Call) and self.m.regions.is_forward(self.module, node)
        return forward and self.dtypes.of(self.module, node) not in NO_TENSOR

    def given(self, stmt: ast.stmt, name: str) -> Dtype:
        """What a statement gives a name, as far as that does not hang on the regions that are written."""
        forward = isinstance(stmt, ast.Assign) and self.m.regions.is_forward(self.module, stmt.value)
        found = self.dtypes.given(self.module, stmt, name, self._forwards if forward else ())
        return "unknown" if found in FLOAT32 and not (self._upcasts and self.stands_inside(stmt)) else found

    def may_give(self, stmt: ast.stmt, name: str, depth: int = DEPTH) -> bool:
        """Whether what a statement gives a name may be half. What a forward only hands back is what it was given."""
        if self.given(stmt, name) not in ("half", "either", "unknown"):
            return False
        if not isinstance(stmt, ast.Assign) or not self.is_output(stmt.value) or not isinstance(stmt.value, ast.Call):
            return True
        for index, length in [(i, n) for target in stmt.targets for part, i, n in parts(target) if part == name]:
            handed = self.m.regions.returns.handed(self.module, stmt.value, index, self._forwards, length)
            return handed is None or any(self.may_be(argument, depth=depth - 1) for argument in handed)
        return True

    def is_tensor(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether what may be half is certainly one floating tensor: no part of several things, which may be indices."""
        if depth <= 0:
            return False
        if isinstance(node, ast.Name) and (held := entry_of(self.module, node)) is not None:
            return self._entries(held, depth - 1)
        if isinstance(node, (ast.Attribute, ast.Subscript)) and (made := self._held(node)) is not None:
            return all(self.is_tensor(v, depth - 1) for v in made)
        if isinstance(node, ast.Call) and (self.module.qualify(node.func) or "") in JOINTS and node.args:
            return self._entries(node.args[0], depth - 1)
        if isinstance(node, ast.Name):
            return all(self._tensor(b, node.id, depth - 1) for b in self.reaching(node))
        if isinstance(node, ast.Subscript):
            constant = isinstance(node.slice, (ast.Constant, ast.UnaryOp))
            return not constant and self.is_tensor(node.value, depth)
        if isinstance(node, ast.Attribute):
            return self.is_tensor(node.value, depth)
        if isinstance(node, ast.BinOp):
            return any(self.may_be(s) and self.is_tensor(s, depth) for s in (node.left, node.right))
        if not isinstance(node, ast.Call):
            return False
        if self.is_output(node):
            whole = MAY_BE_WHOLE & self.dtypes.single(self.module, node)
            return not whole and self.m.regions.returns.of(self.module, node) in ("tensor", "unknown")
        last = called_name(node)
        given = [*node.args[:1], *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        return last in FLOATING | HALVING or any(self.may_be(g) and self.is_tensor(g, depth) for g in given)

    def _entries(self, node: ast.expr, depth: int) -> bool:
        """Whether each entry of something is certainly one floating tensor."""
        if depth <= 0:
            return False
        if isinstance(node, ast.Name) and entry_of(self.module, node) is None:
            if put := appended(self.found.scope, node.id):
                return all(self.is_tensor(v, depth - 1) for v in put)
            made = self._single(node)
            return made is not None and made is not node and self._entries(made, depth - 1)
        held = self._held(node)
        if isinstance(node, (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp)) and held:
            return all(self.is_tensor(v, depth - 1) for v in held)
        if isinstance(node, ast.Call) and self.is_output(node):
            found = self.m.regions.returns.entries(self.module, node, self._forwards)
            floating = all(
                self.dtypes.of(home, e) in {"half", *FLOAT32} for home, listed in found or () for e in listed
            )
            rows = self.m.regions.returns.of(self.module, node) == "tensor"
            return rows or (bool(found) and floating)
        return self.is_tensor(node, depth)  # the rows of a tensor

    def _tensor(self, stmt: ast.stmt, name: str, depth: int) -> bool:
        if isinstance(stmt, ast.For):
            held = entries_in(stmt.target, stmt.iter, name)
            return held is not None and self._entries(held, depth)
        if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], DISPLAYS):
            values = values_of_pair(stmt.value)
            if values is not None:
                return self.is_tensor(values, depth)
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            return False
        if isinstance(stmt.targets[0], DISPLAYS):
            made = self._single(stmt.value)
            if made is not None and self.is_output(made) and self._entries(made, depth):
                return True
            return self.is_output(stmt.value) and not self.may_be_whole(name)
        return isinstance(stmt.targets[0], ast.Name) and self.is_tensor(stmt.value, depth)

    def _several(self, value: ast.expr) -> bool:
        """Whether an expression is what a model returned, or a part of it: `outputs[:2]`."""
        return self.m.regions.is_forward(self.module, value) or (
            isinstance(value, (ast.Subscript, ast.Name)) and self.may_be(value)
        )

    def is_floating(self, node: ast.expr) -> bool:
        """Whether what is certainly one tensor holds no whole numbers: by its name, another use, or what a forward returns."""
        while isinstance(node, (ast.Subscript, ast.Attribute)):
            node = node.value
        if not isinstance(node, ast.Name):
            return isinstance(node, ast.Call)
        bound = (self.module.statement(b) for b in self.found.scope.bindings.get(node.id, ()))
        values = [b.value for b in bound if isinstance(b, ast.Assign) and isinstance(b.value, ast.Call)]
        if any(self.m.regions.returns.of(self.module, v) == "tensor" for v in values):
            return True
        uses = (n for n in self.module.loads.get(node.id, ()) if self.module.scope_of(n) is self.found.scope)
        return OUTPUT_NAMES.search(node.id) is not None or any(shows_floating(self.module, n) for n in uses)

    @cached_property
    def _forwards(self) -> list[Function]:
        """The forwards of the models given to `initialize`: what a call of a model runs whose class is not in sight."""
        returns = self.m.project.once(Returns)
        return [f for i in self.m.unit.inits for model in i.models for f in returns.forwards(i.module, model)]

    def may_be_indices(self, use: ast.Name) -> bool:
        """Whether what a name holds may be whole numbers: an entry of what a model returned, or on one way its argmax."""
        given = [s.value for s in self.reaching(use) if isinstance(s, ast.Assign)]
        calls = [v.func for v in given if isinstance(v, ast.Call)]
        return self._is_entry(use) or any(ast.unparse(f).rpartition(".")[2] in INTEGERS for f in calls)

    def _is_entry(self, use: ast.Name) -> bool:
        """Whether a name goes through several things that a model may have returned, of which some may hold indices."""
        held = self._gone_through(use)
        if held is None or not self._out_of_sight(held, DEPTH):
            return False
        named = (n.lower().replace("output", "") for n in (use.id, ast.unparse(held)))
        return not any(OUTPUT_NAMES.search(n) and not NUMBER_NAMES.search(n) for n in named)

    def _gone_through(self, use: ast.Name) -> ast.expr | None:
        """What a comprehension or a loop goes through that binds a name."""
        if (held := entry_of(self.module, use)) is not None:
            return held
        loops = [s for s in self.reaching(use) if isinstance(s, ast.For)]
        return next((h for s in loops if (h := entries_in(s.target, s.iter, use.id)) is not None), None)

    def one_is_half(self, use: ast.Name) -> bool:
        """Whether a name goes through several things that a model gave, of which one is half for sure."""
        held = self._gone_through(use)
        made = self._single(held) if held is not None else None
        if not isinstance(made, ast.Call) or not self.is_output(made):
            return False
        found = self.m.regions.returns.entries(self.module, made, self._forwards) or ()
        return any(self.dtypes.of(home, e) == "half" for home, listed in found for e in listed)

    def _out_of_sight(self, node: ast.expr, depth: int) -> bool:
        """Whether an expression is, or is a slice of, what a model gives of which is not seen whether it is one tensor."""
        if depth and isinstance(node, ast.Name):
            made = [s.value for s in self.reaching(node) if isinstance(s, ast.Assign) and s.targets[0] is not node]
            return any(self._out_of_sight(value, depth - 1) for value in made)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return self._out_of_sight(node.value, depth)
        if not self.is_output(node) or self.m.regions.returns.of(self.module, node) == "tensor":
            return False
        return not self._entries(node, DEPTH)

    def _counts(self, name: str) -> bool:
        """Whether what a name holds says how many, or which: it is bound once, and handed to what takes whole numbers alone."""
        if len(self.found.scope.bindings.get(name, ())) != 1:
            return False
        uses = [n for n in self.module.loads.get(name, ()) if self.module.scope_of(n) is self.found.scope]
        return any(shows_whole(self.module, n) for n in uses)

    def may_be_whole(self, name: str) -> bool:
        """Whether a name is one of several things that a model returns, and nothing shows that it holds no indices."""
        statements = {self.module.statement(b) for b in self.found.scope.bindings.get(name, ())}
        bound = [b for b in statements if isinstance(b, ast.Assign)]
        parts = [b for b in bound if isinstance(b.targets[0], DISPLAYS) and self._several(b.value)]
        if parts and NUMBER_NAMES.search(name):
            return True
        given = {self.given(b, name) for b in bound}
        if "either" not in given and (not parts or OUTPUT_NAMES.search(name) or given == {"half"}):
            return False
        uses = [n for n in self.module.loads.get(name, ()) if self.module.scope_of(n) is self.found.scope]
        return not any(shows_floating(self.module, n) for n in uses)


def kept_from(node: ast.expr) -> ast.expr:
    """What an expression takes its dtype from: `x` of `x.detach().view(-1)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in UNCHANGED:
        return kept_from(node.func.value)
    return kept_from(node.value) if isinstance(node, ast.Attribute) and node.attr == "data" else node


def is_upcast(m: Migration, module: Module, value: ast.expr) -> bool:
    """Whether what a model returns is float32 in a region as well: the last of it is a norm or a softmax. Autocast on the CPU
    runs those in half."""
    found = m.project.once(Dtypes).single(module, value) if m.options.device == "cuda" else set()
    return bool(found) and found <= FLOAT32
