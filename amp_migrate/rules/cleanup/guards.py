"""Conditions that ask whether Apex is installed keep only the rest of what they ask.

Apex: https://github.com/NVIDIA/apex (apex.amp was removed in May 2025)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from itertools import islice

from amp_migrate.reading.conditions.assertions import asserted
from amp_migrate.reading.conditions.conjunctions import conjunction
from amp_migrate.reading.conditions.tests import Availability, asks_for_part, availability, is_chosen
from amp_migrate.reading.program.definitions import ClassInfo, is_off
from amp_migrate.reading.program.logic import pure
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import apex_imports
from amp_migrate.reading.switch.folds import guard_branch
from amp_migrate.rules.cleanup.only_told import tells
from amp_migrate.rules.output import Output
from amp_migrate.rules.parts.same import merge_operands
from amp_migrate.writing.edits import Edits, joined


class Guards:
    """The conditions of one module, given all other edits."""

    def __init__(self, project: Project, module: Module, output: Output) -> None:
        self.project = project
        self.module = module
        self.output = output
        self.edits = output.edit(module)
        self.available = availability(project, module)

    def fold(self) -> None:
        for node in self.module.of(ast.If, ast.IfExp, ast.BoolOp, ast.Assert, ast.Expr):
            if self._still_guards(node):
                continue
            if isinstance(node, ast.If) and node not in self.edits.statements:
                self._fold_if(node)
            elif isinstance(node, ast.IfExp) and not self.edits.gone(node):
                value = self.available.value(node.test)
                if value is not None:
                    self._choose(node, node.body if value is not self._only_tells(node) else node.orelse)
                else:
                    self._fold_same(node)
            elif (
                isinstance(node, ast.BoolOp)
                and not self.edits.gone(node)
                and not any(is_chosen(self.module, v) for v in node.values)
            ):
                asked = list(self._askers(node))
                if not any(isinstance(n, ast.If) or self._still_guards(n) for n in asked):
                    self._fold_operands(node)
            elif isinstance(node, ast.Assert | ast.Expr) and not self.edits.gone(node):
                test = asserted(self.project, node)
                if test is not None and self.available.value(test) is True:
                    self.edits.delete(node)

    def _choose(self, node: ast.IfExp, side: ast.expr) -> None:
        """Leave one side of a choice, without the parentheses that it needs no more: `128 * devices`."""
        around = self.module.parents.get(node)
        if isinstance(around, ast.BinOp) and not self.edits.gone(around):
            operands = [side if o is node else o for o in (around.left, around.right)]
            if all(isinstance(o, (ast.Constant, ast.Name, ast.Attribute, ast.Subscript)) for o in operands):
                sign = ast.unparse(ast.BinOp(ast.Name("_"), around.op, ast.Name("_")))[1:-1]
                self.edits.replace(around, (operands[0], sign, operands[1]))
                return
        self.edits.replace(node, (side,))

    def _only_tells(self, node: ast.IfExp) -> bool:
        """Whether a choice is one of two texts that somebody is told, `log("DDP of %s", "Apex" if has_apex else "torch")`: what is
        said without Apex is true of what is written."""
        texts = all(isinstance(s, ast.Constant) and isinstance(s.value, str) for s in (node.body, node.orelse))
        return texts and any(isinstance(a, ast.Call) and tells(a) for a in self.module.around(node))

    def _fold_same(self, node: ast.IfExp) -> None:
        """A choice between two sides that come to the same now: `model if args.half else model`."""
        edited = any(n in self.edits.expressions for side in (node.body, node.orelse) for n in walk(side))
        if not edited or not pure(node.test) or self.edits.text(node.body) != self.edits.text(node.orelse):
            return
        stmt = self.module.parents.get(node)
        if isinstance(stmt, ast.Assign) and [ast.unparse(t) for t in stmt.targets] == [self.edits.text(node.body)]:
            self.edits.delete(stmt)
        else:
            self.edits.replace(node, (node.body,))

    @cached_property
    def _staying(self) -> set[ast.Name]:
        """Uses of what a guarded import brings of Apex, where they stay for a person to replace or to keep."""
        return {n for n in self._uses if not self.edits.gone(n)}

    @cached_property
    def _uses(self) -> list[ast.Name]:
        """Uses of what a guarded import brings of Apex, but for those that only ask whether it is there."""
        bound = {
            a.asname or a.name.split(".")[0]
            for node in apex_imports(self.module)
            if self.available._guard(node) is not None
            for a in node.names
        }
        loads = (n for name in bound for n in self.module.loads.get(name, ()))
        return [n for n in loads if self.available.value(n) is None or not self._asked(n)]

    def _asked(self, name: ast.Name) -> bool:
        """Whether a name stands in a test: it asks whether Apex is there."""
        parent = self.module.parents.get(name)
        if any(asks_for_part(a) for a in islice(self.module.ancestors(name), 2)):
            return True
        return isinstance(parent, (ast.Compare, ast.UnaryOp, ast.BoolOp, ast.If, ast.IfExp, ast.Assert))

    def _still_guards(self, node: ast.AST) -> bool:
        """Whether a test of Apex being installed is about uses of Apex that stay: it holds one, refuses without, or
        switches them off."""
        if not self._staying:
            return False
        if not isinstance(node, (ast.If, ast.IfExp, ast.BoolOp)) and asserted(self.project, node) is None:
            return False
        if any(n in self._staying for n in walk(node)):
            return True
        if any(isinstance(n, ast.Name) and n.id in self._made_there for n in walk(node)):
            return True
        if self._complains(node):
            return not self._of_what_went(node)
        return self._switches_off(node) and self._beside_staying(node)

    def _complains(self, node: ast.AST) -> bool:
        """Whether a test of Apex being installed does nothing but refuse to go on without."""
        return isinstance(node, (ast.Assert, ast.Expr)) or (
            isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)
        )

    def _of_what_went(self, node: ast.AST) -> bool:
        """Whether a complaint is about the uses of Apex beside it, in the branch of a test, all of which went. At the start of
        a function it speaks for whatever that calls."""
        if not isinstance(self.module.parents.get(node), ast.If):
            return False
        beside = {n for s in self.module.block(self.module.statement(node)) for n in walk(s)}
        own = beside.intersection(self._uses)
        return bool(own) and self._staying.isdisjoint(own)

    def _switches_off(self, node: ast.AST) -> bool:
        """Whether mixed precision is switched off where Apex is wanting: `fp16 = fp16 and HAS_APEX`."""
        if isinstance(node, ast.If):
            absent = node.orelse if self.available.value(node.test) else node.body
            return bool(absent) and isinstance(last := absent[-1], ast.Assign) and is_off(last.value)
        if isinstance(node, ast.IfExp):
            return is_off(node.orelse if self.available.value(node.test) else node.body)
        return isinstance(self.module.parents.get(node), (ast.Assign, ast.keyword))

    def _beside_staying(self, node: ast.AST) -> bool:
        """Whether what runs a place may come to a use of Apex that stays: not where no object has both methods."""
        mine = self._class_around(node)
        others = [self._class_around(n) for n in self._staying]
        return mine is None or any(c is None or mine.shares_instances(c) for c in others)

    def _class_around(self, node: ast.AST) -> ClassInfo | None:
        return self.project.class_of(self.module.scope_of(node))

    @cached_property
    def _made_there(self) -> set[str]:
        """Names that the file has only where such a test about uses of Apex that stay came out so: a class that derives from
        one. Who asks the same before reading them goes on asking."""
        found: set[str] = set()
        for node in self.module.tree.body:
            if isinstance(node, ast.If) and self.available.value(node.test) is not None:
                if any(n in self._staying for n in walk(node)):
                    inner = set(walk(node))
                    given = [
                        s.name for s in (*node.body, *node.orelse) if isinstance(s, (ast.ClassDef, ast.FunctionDef))
                    ]
                    found |= {n for n in given if inner.issuperset(self.module.root.bindings[n])}
        return found

    def _askers(self, node: ast.BoolOp) -> Iterator[ast.If | ast.IfExp | ast.Assert]:
        """The conditions and assertions of whose test an operation is a part."""
        child: ast.AST = node
        for parent in self.module.ancestors(node):
            if isinstance(parent, (ast.If, ast.IfExp, ast.Assert)) and parent.test is child:
                yield parent
            if isinstance(parent, ast.stmt):
                return
            child = parent

    def _fold_operands(self, node: ast.BoolOp) -> None:
        """`use_amp = args.amp and APEX_AVAILABLE` keeps what else it asks."""
        kept = [v for v in node.values if self.available.value(v) is None]
        if len(kept) == len(node.values) or not kept:
            return
        if isinstance(node.op, ast.Or) and any(self.available.value(v) for v in node.values if v not in kept):
            return
        if isinstance(node.op, ast.And) and self._tells_of_apex(node):
            self.edits.replace(node, "False")
            return
        self.edits.replace(node, joined(kept, " and " if isinstance(node.op, ast.And) else " or "))
        above = self.module.parents.get(node)
        if len(kept) == 1 and isinstance(above, ast.BoolOp) and isinstance(above.op, ast.Or):
            merge_operands(above, self.edits)

    def _tells_of_apex(self, node: ast.BoolOp) -> bool:
        """Whether a function only tells by its name whether Apex is used, `return self.on_gpu and has_apex()` in `use_apex`, and
        nothing in sight asks it any more: none is."""
        function = self.module.scope_of(node).node
        if not isinstance(self.module.parents.get(node), ast.Return) or not isinstance(function, ast.FunctionDef):
            return False
        name = function.name
        if "apex" not in name.lower() or not all(self.available.value(v) in (True, None) for v in node.values):
            return False
        for other in (m for m in self.project.modules if name in m.text):
            edits = self.output.edit(other)
            asked = [n for n in other.of(ast.Name, ast.Attribute, ast.Constant) if name in _named(n)]
            if edits.mentions(name) or not all(edits.gone(n) for n in asked):
                return False
        return True

    def _fold_if(self, node: ast.If) -> None:
        value = self.available.value(node.test)
        if value is not None:
            self.edits.fold(node, guard_branch(self.project, self.module, node, apex_in_body=value))
        elif self.available.rest(node.test) is None:
            self.edits.fold(node, "orelse")
        elif self._mentions(node.test):
            kept = self.available.rest(node.test)
            if kept and self._conjunctive(node.test):
                self.edits.replace(node.test, joined(kept, " and "))
                return
            parts = conjunction(self.module, self.available, node.test)
            if parts and self._asks_within(node.test, " and ".join(parts)):
                for inner in walk(node.test):
                    if isinstance(inner, ast.BoolOp):
                        self._fold_operands(inner)
            elif parts:
                text = " and ".join(parts)
                single = len(parts) == 1 and text.startswith("(") and text.count("(") == 1 and text.endswith(")")
                self.edits.replace(node.test, text[1:-1] if single else text)

    def _asks_within(self, test: ast.expr, rest: str) -> bool:
        """Whether the rest of a condition is no other text, `a or (has_apex and b)`, or not all: a part of it is edited."""
        edited = any(n in self.edits.expressions for n in walk(test))
        return edited or ast.dump(ast.parse(rest, mode="eval").body) == ast.dump(test)

    def _conjunctive(self, test: ast.expr) -> bool:
        """A plain `a and b`: its parts can be kept as they are written."""
        return (
            isinstance(test, ast.BoolOp)
            and isinstance(test.op, ast.And)
            and not any(
                isinstance(v, ast.BoolOp) and any(self.available.value(n) is not None for n in v.values)
                for v in test.values
            )
        )

    def _mentions(self, test: ast.expr) -> bool:
        """Whether an operand of a condition asks for Apex; a name inside a call, as in `isinstance(m, FusedLayerNorm)`,
        asks nothing."""
        if isinstance(test, ast.BoolOp):
            operands = test.values
        else:
            operands = [test.operand] if isinstance(test, ast.UnaryOp) else []
        return any(self.available.value(n) is not None or self._mentions(n) for n in operands)


def _named(node: ast.AST) -> tuple[object, ...]:
    """What a name, an attribute or a text in quotes asks for."""
    if isinstance(node, ast.Name):
        return (node.id,)
    return (node.attr,) if isinstance(node, ast.Attribute) else (getattr(node, "value", None),)


def under_its_test(edits: Edits, available: Availability, stmt: ast.stmt) -> None:
    """Leave what asks for Apex and stays under the tests whose branches became one: who passed it by needs no Apex."""
    if stmt in edits.statements or any(w.first is stmt for w in edits.wraps):
        return
    tests: list[tuple[str, ast.expr, str]] = []
    child: ast.AST = stmt
    for around in edits.module.ancestors(stmt):
        edit = edits.statements.get(around) if isinstance(around, ast.stmt) else None
        if edit is None or edit.kind != "splice":
            break
        if isinstance(around, ast.If) and available.value(around.test) is None:
            test, holds = around.test, child in around.body
            while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test, holds = test.operand, not holds
            tests.append(("(" if holds else "not (", test, ")"))
        child = around
    if len(tests) == 1 and tests[0][0] == "(":
        edits.wrap(stmt, stmt, (tests[0][1],), "if")
    elif tests:
        parts = [p for test in reversed(tests) for p in (" and ", *test)]
        edits.wrap(stmt, stmt, tuple(parts[1:]), "if")
