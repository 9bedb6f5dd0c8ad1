"""Options that a program takes back itself, `if args.fp16 and not args.cuda: args.fp16 = False`, and values that it takes no
more, so that no run asks for them now: lists in `choices=` of an option, `assert kind in [...]` and `if kind not in [...]: raise`,
which the migration made shorter.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.syntax import every, text
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways.chains import Chains
from amp_migrate.audit.ways.formulas import Formula, conjunction

Listed = (ast.List, ast.Tuple, ast.Set)


def taken_back(
    program: Program, values: Values, chains: Chains, option: ast.Attribute
) -> Iterator[tuple[Module, list[ast.expr]]]:
    """The tests of other options that must hold together for the program to switch one off, each with their file; nothing
    where it is given anything else anywhere."""
    base = syntax.text(option.value).rpartition(".")[2]
    given = [
        (module, target, value)
        for module, target, value, item in values.fields(option.attr)
        if syntax.text(target.value).rpartition(".")[2] == base
    ]
    if not given or not all(isinstance(v, ast.Constant) and v.value is False for _, _, v in given):
        return
    for module, target, _ in given:
        stmt = module.statement(target)
        if any(isinstance(a, ast.ExceptHandler) for a in module.ancestors(stmt)):
            continue  # for want of something
        tests = [_wanted(t, came_out) for t, came_out in chains.tests(module, stmt) if option.attr not in _named(t)]
        if tests and all(_of_options(t, base) for t in tests):
            yield module, tests


def _wanted(test: ast.expr, came_out: bool) -> ast.expr:
    return test if came_out else ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=test), test)


def _named(test: ast.expr) -> set[str]:
    return {n.attr for n in syntax.every(test, ast.Attribute)}


def _of_options(test: ast.expr, base: str) -> bool:
    """Whether a test asks for options alone, which stay as they are."""
    if isinstance(test, ast.UnaryOp):
        return _of_options(test.operand, base)
    if isinstance(test, ast.BoolOp):
        return all(_of_options(v, base) for v in test.values)
    return isinstance(test, ast.Attribute) and syntax.text(test.value).rpartition(".")[2] == base


def refused(changes: Iterable[Change]) -> Formula:
    """That nothing is what the program took before, and takes nowhere in the file any more."""
    gone = list[Formula]()
    for change in changes:
        before, after = _taken(change.before), _taken(change.after)
        for name, values in before.items():
            gone += [("not", f".{name} == {value}") for value in sorted(values - after.get(name, values))]
    return conjunction(gone)


def _taken(module: Module) -> dict[str | None, set[str]]:
    found: dict[str | None, set[str]] = defaultdict(set)
    for name, values in _lists(module):
        if isinstance(values, Listed):
            found[name] |= {text(v) for v in values.elts}
    return found


def _lists(module: Module) -> Iterator[tuple[str | None, ast.expr]]:
    asserted = [(node.test, ast.In) for node in every(module.tree, ast.Assert)]
    raised = [(node.test, ast.NotIn) for node in every(module.tree, ast.If) if isinstance(node.body[-1], ast.Raise)]
    for test, asks in (*asserted, *raised):
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], asks):
            yield last_name(test.left), test.comparators[0]
    for call in module.calls_named.get("add_argument", ()):
        flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        long = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
        for keyword in call.keywords:
            if keyword.arg == "choices" and long:
                yield long.lstrip("-").replace("-", "_"), keyword.value
