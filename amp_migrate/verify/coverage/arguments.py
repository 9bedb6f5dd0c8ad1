"""From a test in a program to the command line that would make it true: the options that argparse was given."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_TURNS_ON, _TURNS_OFF = "store_true", "store_false"


@dataclass(frozen=True)
class Option:
    """One `add_argument`: the longest flag (or the name of a positional), and what it does."""

    flag: str
    action: str = "store"
    negative: str | None = None  # the flag that switches it off: `--no-x` of a BooleanOptionalAction

    def set_to(self, value: bool) -> str:
        """What to write on the command line so that the value is true, or false."""
        if self.action == _TURNS_ON:
            return self.flag if value else f"without {self.flag}"
        if self.action == _TURNS_OFF:
            return f"without {self.flag}" if value else self.flag
        if self.negative is not None:
            return self.flag if value else self.negative
        return f"{self.flag} ..." if value else f"without {self.flag}"


Options = dict[str, Option]  # by the attribute of the parsed arguments


def find(trees: Iterable[ast.AST]) -> Options:
    """The options of all parsers in these files; one that two parsers define differently is left out."""
    found: dict[str, set[Option]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "add_argument":
                option = _option(node)
                if option is not None:
                    found.setdefault(option[0], set()).add(option[1])
    return {name: options.pop() for name, options in found.items() if len(options) == 1}


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
        yield option.set_to(wanted)
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
            yield option.set_to(bool(other.value) == wanted)
        else:
            yield f"{option.flag} {other.value!s}" if wanted else f"another {option.flag} than {other.value!s}"
    elif isinstance(other, (ast.Tuple, ast.List, ast.Set)) and isinstance(operator, (ast.In, ast.NotIn)):
        values = ", ".join(str(e.value) for e in other.elts if isinstance(e, ast.Constant))
        yield f"{option.flag} {'one of' if wanted else 'none of'} {values}"
    else:
        yield option.flag


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
            yield option.flag


def _option(call: ast.Call) -> tuple[str, Option] | None:
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    given = {k.arg: k.value for k in call.keywords}
    if not flags:
        return None
    flag = max(flags, key=lambda f: (f.startswith("--"), -flags.index(f)))
    destination = given.get("dest")
    name = str(destination.value) if isinstance(destination, ast.Constant) else flag.lstrip("-").replace("-", "_")
    action = given.get("action")
    if isinstance(action, ast.Constant):
        return name, Option(flag, str(action.value))
    if isinstance(action, (ast.Attribute, ast.Name)) and ast.unparse(action).endswith("BooleanOptionalAction"):
        return name, Option(flag, "switch", f"--no-{flag.lstrip('-')}")
    return name, Option(flag)
