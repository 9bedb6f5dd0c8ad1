"""The functions that train, called in other ways."""

from __future__ import annotations

import ast
from collections.abc import Callable

from tests.metamorphic.program import Project, Reading, expression, statements

Called = tuple[ast.Call, ast.FunctionDef]


def calling(change: Callable[[Reading, ast.Call, ast.FunctionDef], bool]) -> Callable[[Reading], Project | None]:
    """Every call of a function that trains, rewritten; None if no call could be."""

    def transform(reading: Reading) -> Project | None:
        changed = [change(reading, call, function) for call, function in reading.calls()]
        return reading.project() if any(changed) else None

    return transform


def function_value(reading: Reading, call: ast.Call, function: ast.FunctionDef) -> bool:
    """`fn = train; fn(...)`."""
    if not reading.plain(call):
        return False
    name = reading.fresh("fn")
    reading.insert(reading.statement(call), *statements(f"{name} = {ast.unparse(call.func)}"))
    reading.swap(call.func, expression(name))
    return True


def table(reading: Reading, call: ast.Call, function: ast.FunctionDef) -> bool:
    """`phases = {"train": train}; phases["train"](...)`."""
    if not reading.plain(call):
        return False
    name = reading.fresh("phases")
    reading.insert(reading.statement(call), *statements(f"{name} = {{'train': {ast.unparse(call.func)}}}"))
    reading.swap(call.func, expression(f"{name}['train']"))
    return True


def in_lambda(reading: Reading, call: ast.Call, function: ast.FunctionDef) -> bool:
    """`run = lambda: train(...); run()`."""
    if not reading.plain(call):
        return False
    name = reading.fresh("run_it")
    reading.insert(reading.statement(call), *statements(f"{name} = lambda: {ast.unparse(call)}"))
    reading.swap(call, expression(f"{name}()"))
    return True


def partial(reading: Reading, call: ast.Call, function: ast.FunctionDef) -> bool:
    """`functools.partial(train, model)(rest)`."""
    if any(isinstance(a, ast.Starred) for a in call.args):
        return False
    if "functools" not in reading.taken:
        reading.use("import functools")
        reading.taken.add("functools")
    first = ", ".join(ast.unparse(a) for a in (call.func, *call.args[:1]))
    reading.swap(call.func, expression(f"functools.partial({first})"))
    call.args = call.args[1:]
    return True


def named(reading: Reading, call: ast.Call, function: ast.FunctionDef) -> list[ast.keyword] | None:
    """The arguments by the names of their parameters."""
    parameters = [a.arg for a in [*function.args.posonlyargs, *function.args.args]][reading.is_method(function) :]
    if function.args.posonlyargs or function.args.vararg or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    if any(k.arg is None for k in call.keywords) or len(call.args) > len(parameters):
        return None
    return [ast.keyword(n, v) for n, v in zip(parameters, call.args, strict=False)] + call.keywords


def by_keyword(reading: Reading, call: ast.Call, function: ast.FunctionDef) -> bool:
    """`train(model=model, loader=loader)`."""
    arguments = named(reading, call, function)
    if not arguments or not call.args:
        return False
    call.args, call.keywords = [], arguments
    return True


def in_literal(reading: Reading, call: ast.Call, function: ast.FunctionDef) -> bool:
    """`train(**{"model": model})`."""
    arguments = named(reading, call, function)
    if not arguments:
        return False
    items = ", ".join(f"{k.arg!r}: {ast.unparse(k.value)}" for k in arguments)
    call.args, call.keywords = [], [ast.keyword(None, expression("{" + items + "}"))]
    return True


def in_dict(reading: Reading, call: ast.Call, function: ast.FunctionDef) -> bool:
    """`options = dict(model=model); train(**options)`."""
    arguments = named(reading, call, function)
    if not arguments or not reading.plain(call):
        return False
    name = reading.fresh("options")
    items = ", ".join(f"{k.arg}={ast.unparse(k.value)}" for k in arguments)
    reading.insert(reading.statement(call), *statements(f"{name} = dict({items})"))
    call.args, call.keywords = [], [ast.keyword(None, expression(name))]
    return True


def in_tuple(reading: Reading, call: ast.Call, function: ast.FunctionDef) -> bool:
    """`values = (model, loader); train(*values)`."""
    if not call.args or not reading.plain(call):
        return False
    name = reading.fresh("values")
    reading.insert(reading.statement(call), *statements(f"{name} = ({', '.join(map(ast.unparse, call.args))},)"))
    call.args = [ast.Starred(expression(name), ast.Load())]
    return True


def defining(make: Callable[[Reading, ast.FunctionDef, str, str], str | None]) -> Callable[[Reading], Project | None]:
    """Every function that trains renamed, and another under its name that hands on: `make` gives the text of that."""

    def transform(reading: Reading) -> Project | None:
        changed = False
        for function in {f.name: f for _, f in reading.calls()}.values():
            receiver = function.args.args[0].arg if reading.is_method(function) and function.args.args else ""
            inner = reading.fresh(f"{function.name}_impl")
            text = make(reading, function, inner, receiver)
            if text is None:
                continue
            block = reading.block(function)
            (new,) = statements(text)
            block.insert(block.index(function) + 1, new)
            function.name = inner
            changed = True
        return reading.project() if changed else None

    return transform


def kwargs_on(reading: Reading, function: ast.FunctionDef, inner: str, receiver: str) -> str:
    """`def train(*args, **kwargs): return train_impl(*args, **kwargs)`."""
    head = f"{receiver}, " if receiver else ""
    call = f"{receiver}.{inner}" if receiver else inner
    return f"def {function.name}({head}*args, **kwargs):\n    return {call}(*args, **kwargs)"


def keywords_only_on(reading: Reading, function: ast.FunctionDef, inner: str, receiver: str) -> str | None:
    """`def train(**kwargs): return train_impl(**kwargs)`, and every call by keyword."""
    calls = [call for call, called in reading.calls() if called is function]
    arguments = [named(reading, call, function) for call in calls]
    if not reading.only_called(function) or not all(arguments):
        return None
    for call, items in zip(calls, arguments, strict=True):
        call.args, call.keywords = [], items or []
    head = f"{receiver}, " if receiver else ""
    call_text = f"{receiver}.{inner}" if receiver else inner
    return f"def {function.name}({head}**kwargs):\n    return {call_text}(**kwargs)"


def decorated(reading: Reading) -> Project | None:
    """A decorator of the program that hands everything on."""
    text = """
def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper
"""
    functions = {f.name: f for _, f in reading.calls()}.values()
    for function in functions:
        function.decorator_list.append(expression("logged"))
    if not functions:
        return None
    reading.define(*statements(text))
    reading.use("import functools")
    return reading.project()


def in_class(reading: Reading) -> Project | None:
    """Each function that trains is a method of a class of its own: `Train().train(...)`."""
    changed = False
    for function in list(reading.trained):
        if reading.is_method(function) or not reading.only_called(function):
            continue
        if any(isinstance(n, (ast.Global, ast.Nonlocal)) for n in ast.walk(function)):
            continue
        name = reading.fresh(f"{function.name.title().replace('_', '')}Runner")
        for call, called in reading.calls():
            if called is function:
                reading.swap(call.func, expression(f"{name}().{function.name}"))
        (made,) = statements(f"class {name}:\n    pass")
        assert isinstance(made, ast.ClassDef)
        made.body = [function]
        reading.replace(function, made)
        function.args.args.insert(0, ast.arg("self"))
        changed = True
    return reading.project() if changed else None


def in_main(reading: Reading) -> Project | None:
    """A script's statements in `def main()`: only where no function reads what they bind."""
    body = reading.tree.body
    keep = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    at = max((i for i, s in enumerate(body) if isinstance(s, keep) or _guards_import(s)), default=-1) + 1
    moved = body[at:]
    if not moved or not any(above in moved for s in reading.scaled for above in reading.above(s)):
        return None
    bound = {n.id for s in moved for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    rest = body[:at]
    if any(isinstance(n, ast.Name) and n.id in bound for s in rest for n in ast.walk(s)):
        return None
    (main,) = statements("def main():\n    pass")
    assert isinstance(main, ast.FunctionDef)
    main.body = moved
    reading.tree.body = [*rest, main, *statements("if __name__ == '__main__':\n    main()")]
    return reading.project()


def _guards_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Try)


TRANSFORMS = {
    "function as a value": calling(function_value),
    "function in a table": calling(table),
    "call in a lambda": calling(in_lambda),
    "partial": calling(partial),
    "arguments by keyword": calling(by_keyword),
    "arguments in a literal": calling(in_literal),
    "arguments in a dict": calling(in_dict),
    "arguments in a tuple": calling(in_tuple),
    "args and kwargs handed on": defining(kwargs_on),
    "kwargs handed on": defining(keywords_only_on),
    "decorated": decorated,
    "functions as methods": in_class,
    "script in main": in_main,
}
