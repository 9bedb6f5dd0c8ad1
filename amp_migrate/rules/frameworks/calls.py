"""What the rules about frameworks share: their calls found by name, and written again without some arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping

from amp_migrate.reading.program.definitions import literal
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.spelled_out import other_uses
from amp_migrate.rules.migration import Output
from amp_migrate.writing.calls import Argument, arguments_of, call_code
from amp_migrate.writing.style import Style


def belongs_to(module: Module, *packages: str) -> bool:
    """Whether a file is part of the framework itself, whose settings it defines rather than uses."""
    parts = {*module.name.split("."), *module.display.replace("\\", "/").split("/")}
    return not parts.isdisjoint(packages)


def calls_of(project: Project, module: Module, name: re.Pattern[str]) -> Iterator[tuple[ast.Call, str]]:
    """Calls of what a dotted name stands for, and that name."""
    for call, _ in module.calls:
        found = project.qualify(module, call.func)
        if found is not None and name.fullmatch(found):
            yield call, found


def keywords(call: ast.Call) -> dict[str, ast.keyword]:
    return {k.arg: k for k in call.keywords if k.arg is not None}


def change_call(
    module: Module,
    output: Output,
    call: ast.Call,
    *,
    function: str | None = None,
    drop: Collection[ast.expr | ast.keyword] = (),
    give: Mapping[str, str] | None = None,
) -> None:
    """Write a call again under another name, without some arguments and with others (`give`: keyword to source)."""
    edits = output.edit(module)
    named = keywords(call)
    arguments = [Argument(a) for a in arguments_of(call) if a not in drop]
    for name, code in (give or {}).items():
        if name in named and named[name] not in drop:
            edits.replace(named[name].value, code)
        else:
            unpacked = next((i for i, a in enumerate(arguments) if _unpacks(a.node)), len(arguments))
            arguments.insert(unpacked, Argument(None, f"{name}={code}"))
    if len(arguments) == len(arguments_of(call)) and not drop:
        if function is not None:
            edits.replace(call.func, function)
        return
    edits.replace(call, call_code(module, call, function or module.source(call.func), arguments))


def _unpacks(node: ast.AST | None) -> bool:
    return isinstance(node, ast.keyword) and node.arg is None


def quoted(module: Module, text: str) -> str:
    """A string in the quotes of the file."""
    quote = Style(module).quote
    return f"{quote}{text}{quote}"


def unpacked(module: Module, call: ast.Call) -> Iterator[ast.expr]:
    """What a call unpacks by name: dictionaries, and for a variable all reads of it and what it is given."""
    for keyword in call.keywords:
        if keyword.arg is None:
            yield keyword.value
            if isinstance(keyword.value, ast.Name):
                yield from other_uses(module, keyword.value)
                owner = module.scope_of(keyword.value).lookup(keyword.value.id)
                for name in owner.bindings.get(keyword.value.id, ()) if owner is not None else ():
                    stmt = module.parents.get(name)
                    if isinstance(stmt, ast.Assign) and name in stmt.targets:
                        yield stmt.value


def named_settings(
    module: Module, names: Collection[str], holders: Collection[ast.AST] = ()
) -> Iterator[tuple[ast.AST, str]]:
    """Settings with a literal text, collected by name for a later call: dictionary entries, keys or attributes set. With any
    value where `holders` has the dictionary or the variable."""
    for node in module.of(ast.Call, ast.Dict, ast.Assign):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            held = node in holders
            yield from ((k, str(k.arg)) for k in node.keywords if k.arg in names and (held or _text(k.value)))
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value in names and (node in holders or _text(value)):
                    yield key, str(key.value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if not _text(node.value) and not (isinstance(target, ast.Subscript) and target.value in holders):
                    continue
                name = literal(target.slice) if isinstance(target, ast.Subscript) else getattr(target, "attr", None)
                if name in names:
                    yield target, str(name)


def _text(node: ast.expr) -> bool:
    return isinstance(literal(node), str)


def rename_import(module: Module, output: Output, node: ast.expr, new: str) -> None:
    """Let a name that `from ... import OLD` brought in be imported as another one; `node` is a use of it."""
    if not isinstance(node, ast.Name):
        return
    scope = module.scope_of(node).lookup(node.id)
    edits = output.edit(module)
    for stmt in scope.bindings.get(node.id, ()) if scope is not None else ():
        if not isinstance(stmt, ast.ImportFrom) or stmt in edits.statements:
            continue
        old = next(a for a in stmt.names if (a.asname or a.name) == node.id)
        others = {a.name for a in stmt.names if a is not old}
        text = module.source(stmt)
        if new in others:
            text = re.sub(rf"\b{old.name}\b\s*,\s*|,\s*\b{old.name}\b", "", text, count=1)
        else:
            text = re.sub(rf"\b{old.name}\b", new, text)
        edits.replace(stmt, text)
