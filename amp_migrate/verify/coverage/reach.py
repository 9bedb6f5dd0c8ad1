"""Why a place did not run, and what would reach it: the outermost thing around it that never happened."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.verify.coverage.project import Call, Program, module_name
from amp_migrate.verify.coverage.statements import Statement

CALLERS = 2  # callers named for a function that was not called
LONG = 60  # characters of a test that are quoted
_NOT_FINITE = ("isnan", "isinf", "isfinite", "OverflowError", "FloatingPointError")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Reason:
    """`why` the place did not run, what would `reach` it (both for people), and how `deep` the runs came."""

    why: str
    reach: tuple[str, ...] = ()
    deep: int = 0


def reason(path: str, statement: Statement, program: Program) -> Reason:
    """Why a statement of the file `path`, one of the places, did not run."""
    chain = statement.chain()
    for deep, outer in enumerate(chain):
        if outer.first is not None and (path, outer.first) not in program.ran:
            told = _file(path, program) if outer.parent is None else _block(path, outer, program)
            return Reason(*told, deep=2 * deep)
        if outer.spot is not None and (path, outer.spot) not in program.ran:
            return Reason(*_left(path, outer, program), deep=2 * deep + 1)
    return Reason(*_not_called(statement.node, path, program), deep=2 * len(chain))


def _file(path: str, program: Program) -> tuple[str, tuple[str, ...]]:
    """Nothing of the file ran."""
    tree = program.parsed(path)
    importers = [
        name for name, _ in program.files_with(module_name(path)) if module_name(path) in program.imports(name)
    ]
    if not importers or (tree is not None and _is_script(tree)):
        return _not_run(path)
    return f"{path} was not imported", tuple(f"imported by {name}" for name in importers[:CALLERS])


def _not_run(path: str) -> tuple[str, tuple[str, ...]]:
    return f"no case runs {path}", (f'a case with script = "{path}"',)


def _block(path: str, statement: Statement, program: Program) -> tuple[str, tuple[str, ...]]:
    """The block that holds `statement` was never entered; what owns the block was reached."""
    owner = statement.parent.node if statement.parent is not None else None
    node = statement.node
    if isinstance(node, ast.ExceptHandler):
        raised = "exception" if node.type is None else f"`{_short(node.type)}`"
        return f"no {raised} was raised", _unusual(node.type)
    if isinstance(node, ast.match_case):
        return f"`case {_short(node.pattern)}` was never met", ()
    if isinstance(owner, ast.ExceptHandler):
        raised = "exception" if owner.type is None else f"`{_short(owner.type)}`"
        return f"no {raised} was raised", _unusual(owner.type)
    if isinstance(owner, ast.match_case):
        return f"`case {_short(owner.pattern)}` was never met", ()
    if isinstance(owner, _FUNCTIONS):
        return _not_called(owner, path, program)
    if isinstance(owner, ast.If) and _is_main(owner.test) and statement.block == "body":
        return _not_run(path)
    if isinstance(owner, (ast.If, ast.While)):
        wanted = statement.block == "body"
        test = _resolved(owner.test, program.parsed(path))
        return f"`{_short(owner.test)}` was never {'true' if wanted else 'false'}", (
            *program.asks(test, wanted),
            *_unusual(owner.test),
        )
    if isinstance(owner, (ast.For, ast.AsyncFor)):
        if statement.block == "body":
            return f"the loop over `{_short(owner.iter)}` had nothing to go through", ()
        return f"the loop over `{_short(owner.iter)}` never came to its end", ()
    return f"{path}:{statement.lines[0]} was not reached", ()


def _left(path: str, statement: Statement, program: Program) -> tuple[str, tuple[str, ...]]:
    """Its block was entered, but `statement` was not reached."""
    function = statement.function()
    where = f"{function.name}()" if function is not None else path
    why = f"{where} was left before it"
    if program.steps is not None:
        return why, (_steps(program),)
    tests = [test for test in _exits(statement) if test is not None]
    if len(tests) == 1:
        test = tests[0]
        return f"{why}, where `{_short(test)}` leaves it", tuple(program.asks(test, False))
    return why, ()


def _exits(statement: Statement) -> Iterator[ast.expr]:
    """The tests before `statement`, in its block, under which the block is left."""
    for sibling in statement.siblings:
        if sibling is statement.node:
            return
        if isinstance(sibling, ast.If) and any(isinstance(n, _LEAVES) for n in sibling.body):
            yield sibling.test


def _not_called(node: object, path: str, program: Program, asking: int = 0) -> tuple[str, tuple[str, ...]]:
    name = getattr(node, "name", "")
    within = (getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0)
    calls = [call for call in program.calls(name) if program.may_call(call, path, within)]
    calls.sort(key=lambda call: (call.path != path, "test" in call.path))
    if not calls:
        others = [
            (file, line) for file, line in program.named(name) if file != path or not within[0] <= line <= within[1]
        ]
        named = [f"named at {file}:{line}" for file, line in others[:CALLERS]]
        return f"{name}() was not called", tuple(named) or ("nothing in the project calls it by name",)
    told = []
    for call in calls[:CALLERS]:
        tests = list(_tests(call.statement))
        under = " and ".join(f"`{_short(test)}` is {'true' if wanted else 'false'}" for test, wanted in tests[-2:])
        told.append(f"called at {call.path}:{call.line}" + (f", if {under}" if under else ""))
        where = (call.path, call.statement.spot)
        if where in program.marked and where not in program.ran and asking < CALLERS:
            told += _again(call, program, asking)
        else:
            told += [a for test, wanted in tests for a in program.asks(test, wanted)]
            told += [_steps(program)] if program.steps is not None else []
    if len(calls) > CALLERS:
        more = len(calls) - CALLERS
        told.append(f"and at {more} more place{'s' if more > 1 else ''}")
    return f"{name}() was not called", tuple(dict.fromkeys(told))


def _again(call: Call, program: Program, asking: int) -> tuple[str, ...]:
    """What reaches a call that was marked as well."""
    for outer in call.statement.chain():
        if outer.parent is not None and outer.first is not None and (call.path, outer.first) not in program.ran:
            owner = outer.parent.node
            if isinstance(owner, _FUNCTIONS):
                return _not_called(owner, call.path, program, asking + 1)[1]
            return _block(call.path, outer, program)[1]
    return reason(call.path, call.statement, program).reach


def _steps(program: Program) -> str:
    return f"the runs end after {program.steps} steps: raise --steps, or shorten an epoch"


def _tests(statement: Statement) -> Iterator[tuple[ast.expr, bool]]:
    """The tests around a statement within its function, and how they must come out."""
    for inner in statement.chain():
        if isinstance(inner.node, _FUNCTIONS):
            continue
        owner = inner.parent.node if inner.parent is not None else None
        if isinstance(owner, ast.If) and not _is_main(owner.test):  # a loop is likely to be entered
            yield owner.test, inner.block == "body"


def _resolved(test: ast.expr, tree: ast.Module | None) -> ast.expr:
    """A name that a file assigns once stands for what it is assigned."""
    inner = test.operand if isinstance(test, ast.UnaryOp) else test
    if not isinstance(inner, ast.Name) or tree is None:
        return test
    values = [
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == inner.id for t in node.targets)
    ]  # fmt: skip
    if len(values) != 1:
        return test
    return ast.UnaryOp(ast.Not(), values[0]) if inner is not test else values[0]


def _unusual(node: ast.expr | None) -> tuple[str, ...]:
    text = "" if node is None else ast.unparse(node)
    return ("a loss or gradient that is not finite",) if any(word in text for word in _NOT_FINITE) else ()


def _is_script(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.If) and _is_main(node.test) for node in tree.body)


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and "__name__" in ast.unparse(test)


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= LONG else f"{text[: LONG - 3]}..."
