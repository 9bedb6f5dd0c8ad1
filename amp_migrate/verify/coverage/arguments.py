"""From a test in a program to the command line that would make it true: the options that its parsers define."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from amp_migrate.verify.commandline import parsers
from amp_migrate.verify.commandline.options import Option, Options


def find(trees: Iterable[ast.AST]) -> Options:
    """The options of all parsers in these files; one that two parsers define differently is left out."""
    found: dict[str, dict[tuple[str, str], Option]] = {}
    for option in parsers.every(trees):
        found.setdefault(option.name, {}).setdefault((option.flag, option.action), option)
    options = {name: parsers.joined(list(known.values())) for name, known in found.items()}
    return {name: option for name, option in options.items() if option is not None}


def _set_to(option: Option, value: bool) -> str:
    """What to write on the command line so that the value is true, or false."""
    flag = option.shown
    if option.action == "store_false" or option.action == "store_true":
        return flag if value == (option.action == "store_true") else f"without {flag}"
    if option.negative:
        return flag if value else option.negative
    return f"{flag} ..." if value else f"without {flag}"


def asked(test: ast.expr, options: Options, wanted: bool = True) -> list[str]:
    """What on the command line bears on `test` becoming `wanted`; empty when nothing that is known does."""
    return list(dict.fromkeys(_asked(test, options, wanted)))


def without_given(asks: Iterable[str], argv: Sequence[str]) -> list[str]:
    """What of it the command line `argv` does not do already."""
    words = [
        word for argument in argv for word in (argument.split("=", 1) if argument.startswith("--") else [argument])
    ]
    return [ask for ask in asks if not _is_given(ask.split(), words)]


def _is_given(ask: list[str], words: list[str]) -> bool:
    if ask[0] == "without":
        return ask[1] not in words
    if ask[-1] == "...":
        ask = ask[:-1]
    return any(words[i : i + len(ask)] == ask for i in range(len(words)))


def _asked(test: ast.expr, options: Options, wanted: bool) -> Iterator[str]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _asked(test.operand, options, not wanted)
    elif isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _asked(value, options, wanted)
    elif (option := _named(test, options)) is not None:
        yield _set_to(option, wanted)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        yield from _compared(test, options, wanted)
    else:
        yield from _mentioned(test, options)


def _compared(test: ast.Compare, options: Options, wanted: bool) -> Iterator[str]:
    left, right, operator = test.left, test.comparators[0], test.ops[0]
    option, other = _named(left, options), right
    if option is None:
        option, other = _named(right, options), left
    if option is None:
        yield from _mentioned(test, options)
        return
    if isinstance(operator, (ast.NotEq, ast.IsNot, ast.NotIn)):
        wanted = not wanted
    if isinstance(other, ast.Constant) and isinstance(operator, (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)):
        if other.value is None or isinstance(other.value, bool):
            yield _set_to(option, bool(other.value) == wanted)
        else:
            yield f"{option.shown} {other.value!s}" if wanted else f"another {option.shown} than {other.value!s}"
    elif isinstance(other, (ast.Tuple, ast.List, ast.Set)) and isinstance(operator, (ast.In, ast.NotIn)):
        values = ", ".join(str(e.value) for e in other.elts if isinstance(e, ast.Constant))
        yield f"{option.shown} {'one of' if wanted else 'none of'} {values}"
    else:
        yield option.shown


def _named(node: ast.expr, options: Options) -> Option | None:
    """The option a value comes from: `args.x`, `args["x"]`, or a plain `x` that was unpacked."""
    if isinstance(node, ast.Attribute):
        return options.get(node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return options.get(str(node.slice.value))
    return options.get(node.id) if isinstance(node, ast.Name) else None


def _mentioned(node: ast.expr, options: Options) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.expr) and (option := _named(part, options)) is not None:
            yield option.shown
