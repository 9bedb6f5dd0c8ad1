"""Which statements and tests of a program have to do with Apex or mixed precision."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import head
from amp_migrate.audit.program.handing import hands_to_apex
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.torch_version import by_version

ABOUT = re.compile(
    r"apex|amp|fp16|fp32|float16|float32|bf16|half|mixed|precision|scal|opt_level|optlevel|\bO[0-3]\b|master|unscale|"
    r"autocast|overflow|syncbn|sync_bn|fused|larc|allreduce|all_reduce",
    re.IGNORECASE,
)


class About:
    """The same of one file of a program with Apex."""

    def __init__(self, program: Program, module: Module) -> None:
        self.program = program
        self.module = module

    @cached_property
    def tests(self) -> set[str]:
        """Tests that decide whether something of Apex runs, as they are written, with their parts."""
        found: set[str] = set()
        for node in syntax.walk(self.module.tree):
            if isinstance(node, (ast.Name, ast.Attribute)) and self.of_apex(node):
                for around in self.module.ancestors(node):
                    if isinstance(around, (ast.If, ast.IfExp, ast.While)):
                        found |= {self._asked(part) for part in parts(around.test)}
        return found

    def _asked(self, test: ast.expr) -> str:
        """What a test asks, in words that are the same wherever that is asked: an option of the command line by its name, and of
        what an object keeps (`self.args.fp16`) what is read there."""
        if isinstance(test, ast.Compare) and isinstance(getattr(test.comparators[0], "value", None), bool):
            test = test.left if len(test.ops) == 1 else test
        if not isinstance(test, ast.Attribute):
            return syntax.text(test)
        option = f"--{test.attr}"
        if any(option in m.text or option.replace("_", "-") in m.text for m in self.program.having(test.attr)):
            return option
        return ".".join(syntax.text(test).split(".")[-2:])

    def of_apex(self, node: ast.Name | ast.Attribute) -> bool:
        scope = self.module.scope_of(node)
        name = self.program.dotted(scope, node)
        if name is None and isinstance(node, ast.Name):
            return node.id in self._imported_inside and scope.binder(node.id) is None
        return name is not None and name.split(".")[0] == "apex"

    @cached_property
    def _imported_inside(self) -> set[str]:
        """Names that some import of Apex binds, be it in another function than the one that reads them and fails."""
        imports = (n for n in syntax.every(self.module.tree, ast.ImportFrom))
        return {a.asname or a.name for n in imports if (n.module or "").split(".")[0] == "apex" for a in n.names}

    @cached_property
    def renamed(self) -> set[str]:
        """Names that are given what is Apex's: `float_function = amp.float_function`."""
        given = ((n.targets, n.value) for n in syntax.every(self.module.tree, ast.Assign))
        named = (
            t for targets, v in given if isinstance(v, (ast.Name, ast.Attribute)) and self.of_apex(v) for t in targets
        )
        return {t.id for t in named if isinstance(t, ast.Name)}

    @cached_property
    def given_back(self) -> set[str]:
        """Names that hold what a function of Apex gave back: `model, optim = amp.initialize(...)`."""
        found: set[str] = set()
        for node in syntax.walk(self.module.tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                func = node.value.func
                if isinstance(func, (ast.Name, ast.Attribute)) and self.of_apex(func):
                    found |= {syntax.text(t) for t in written(node)}
        return found

    def stepping(self, stmt: ast.stmt) -> bool:
        """Whether a statement holds a part of the step (a backward, a clip, a step, a read of gradients), by itself or in
        what it calls: a function of the program, a name that such a part was given."""
        if _stepping(stmt):
            return True
        calls = syntax.every(stmt, ast.Call)
        if any(isinstance(c.func, ast.Name) and c.func.id in self._kept for c in calls):
            return True
        return any(_stepping(f.node) for c in calls for f in self.program.callees(self.module, c))

    @cached_property
    def _kept(self) -> set[str]:
        """Names that are given a part of the step: `advance = optimizer.step`, `advance = lambda: optimizer.step()`."""
        kept = (n for n in syntax.every(self.module.tree, ast.Assign) if _stepping(n.value))
        values = (ast.Attribute, ast.Call, ast.Lambda)
        return {t.id for n in kept if isinstance(n.value, values) for t in n.targets if isinstance(t, ast.Name)}

    def test(self, test: ast.expr) -> bool:
        """Whether a test has to do with mixed precision."""
        if ABOUT.search(syntax.text(test)):
            return True
        return any(self._asked(p) in self.tests or self._answers(p) for p in parts(test))

    def frees(self, test: ast.expr, branch: bool) -> bool:
        """Whether what stood in a branch of such a test may stand without it: not what a flag had to be true for."""
        return self.test(test) and not (branch and self._answers(test))

    def _answers(self, test: ast.expr) -> bool:
        """Whether a test asks for a flag of its function that is true only where one of those tests made it so."""
        return isinstance(test, ast.Name) and (self.module.function_around(test), test.id) in self._flags

    @cached_property
    def _flags(self) -> set[tuple[Function | None, str]]:
        """The flags that a function sets to False, and to True under such a test alone."""
        given: dict[tuple[Function | None, str], list[ast.Assign]] = {}
        for stmt in syntax.every(self.module.tree, ast.Assign):
            for target in written(stmt):
                if isinstance(target, ast.Name):
                    given.setdefault((self.module.function_around(stmt), target.id), []).append(stmt)
        return {key for key, found in given.items() if key[0] is not None and self._told_so(found)}

    def _told_so(self, given: list[ast.Assign]) -> bool:
        on = [s for s in given if not (isinstance(s.value, ast.Constant) and s.value.value is False)]
        return 0 < len(on) < len(given) and all(
            isinstance(s.value, ast.Constant)
            and s.value.value is True
            and any(
                isinstance(a, ast.If) and any(self._asked(p) in self.tests for p in parts(a.test))
                for a in self.module.ancestors(s)
            )
            for s in on
        )

    def statement(self, stmt: ast.stmt) -> bool:
        """Whether a statement has to do with it: it says so, it is part of the step (which has a check of its own), or it
        stands where a test or a guard about it put it."""
        if ABOUT.search(head(stmt)) or self.stepping(stmt):
            return True
        if isinstance(stmt, ast.Assign) and syntax.text(stmt.value) in self.given_back:
            return True
        if isinstance(stmt, ast.Assign) and any(map(self._answers, stmt.targets)):
            return True
        read = [n for n in syntax.walk(stmt) if isinstance(n, (ast.Name, ast.Attribute))]
        if any(self.of_apex(n) or (isinstance(n, ast.Name) and n.id in self.renamed) for n in read):
            return True
        called = [f for c in syntax.every(stmt, ast.Call) for f in self.program.callees(self.module, c)]
        if any(ABOUT.search(f.name) or hands_to_apex(self.program, f) for f in called):  # under whatever name here
            return True
        inner: ast.AST = stmt
        for around in self.module.ancestors(stmt):
            if isinstance(around, (ast.If, ast.While)) and self.test(around.test):
                return True
            if isinstance(around, ast.If) and (taken := by_version(self.module, around.test)) is not None:
                if inner in around.body if taken is False else inner in around.orelse:
                    return True  # no torch that runs the migrated program comes there
            inner = around
            if isinstance(around, ast.With) and ABOUT.search(head(around)):
                return True
            if isinstance(around, (ast.ExceptHandler, ast.Try)):
                guard = around if isinstance(around, ast.Try) else self.module.parents[around]
                if any(ABOUT.search(head(s)) for s in getattr(guard, "body", ())):
                    return True
        return False


def _stepping(root: ast.AST) -> bool:
    for node in syntax.walk(root):
        if isinstance(node, ast.Attribute) and node.attr in STEPPING:
            return True
        if isinstance(node, ast.Name) and (node.id in STEPPING or "grad_norm" in node.id):
            return True
        if isinstance(node, ast.Call) and syntax.text(node.func) == "getattr":
            if any(isinstance(a, ast.Constant) and a.value in STEPPING for a in node.args[1:2]):
                return True
    return False


STEPPING = frozenset(
    "step backward zero_grad clip_grad_norm_ clip_grad_norm clip_grad_value_ clip_master_grads grad synchronize".split()
)


def parts(test: ast.expr) -> Iterator[ast.expr]:
    """The tests that a test is made of."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from parts(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from parts(test.operand)
    else:
        yield test


def written(stmt: ast.stmt) -> list[ast.expr]:
    """The single targets of an assignment."""
    todo = list(stmt.targets) if isinstance(stmt, ast.Assign) else []
    found: list[ast.expr] = [stmt.target] if isinstance(stmt, ast.AugAssign) else []
    for target in todo:
        if isinstance(target, (ast.Tuple, ast.List)):
            todo += target.elts
        else:
            found.append(target)
    return found
