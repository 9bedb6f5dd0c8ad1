"""The options of a program, as its parsers define them: `add_argument`, `click.option`, `click.argument`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()  # a value that is computed


@dataclass(frozen=True)
class Option:
    """One option or positional argument. `type` is the text of the conversion, "" where there is none."""

    name: str  # of the attribute
    flags: tuple[str, ...]
    action: str = "store"  # store, store_true, store_false, switch (--x/--no-x), or another of argparse's
    default: Any = field(default=None, compare=False)
    type: str = ""
    required: bool = False
    choices: tuple[Any, ...] = ()
    many: bool = False  # takes any number of values

    @property
    def flag(self) -> str:
        """The flag to write: the first long one."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0] if self.flags else "")

    @property
    def takes_value(self) -> bool:
        return self.action not in ("store_true", "store_false", "switch", "count", "help", "version", "store_const")

    def value_of(self, text: str) -> Any:
        """What the program sees for `text` on the command line."""
        for convert in (int, float):
            if self.type == convert.__name__ or (self.type == "" and isinstance(self.default, convert)):
                try:
                    return convert(text)
                except ValueError:
                    return UNKNOWN
        if self.is_boolean:
            return text.lower() in ("1", "true", "yes", "on", "t", "y")
        return text

    @property
    def is_boolean(self) -> bool:
        return "bool" in self.type.lower() or (self.takes_value and isinstance(self.default, bool))


Options = dict[str, Option]


def find(trees: Iterable[ast.AST], command: str = "") -> Options:
    """The options of all parsers in these files, the first of each name, but for those of other sub-commands."""
    found: Options = {}
    for tree in trees:
        of = _sub_commands(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name == "add_argument" or (name in ("option", "argument") and _first_text(node)):
                    option = _option(node, click=name != "add_argument")
                    if option is None or option.action in ("help", "version") or of.get(node, command) != command:
                        continue
                    found.setdefault(option.name, option)
    return found


def commands(trees: Iterable[ast.AST]) -> list[str]:
    """The sub-commands that parsers know."""
    return list(dict.fromkeys(name for tree in trees for name in _sub_commands(tree).values()))


def _sub_commands(tree: ast.AST) -> dict[ast.AST, str]:
    """The calls in functions that make the parser of one sub-command, with its name."""
    found: dict[ast.AST, str] = {}
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            made = [c for c in calls if getattr(c.func, "attr", "") == "add_parser" and _first_text(c)]
            if len(made) == 1:
                name = made[0].args[0].value  # type: ignore[attr-defined]
                found |= dict.fromkeys(calls, str(name))
    return found


def parsed(argv: Sequence[str], options: Options) -> dict[str, Any]:
    """The value of every option under this command line, as far as can be told; defaults for those not given."""
    values = {name: _default(option) for name, option in options.items()}
    by_flag = {flag: option for option in options.values() for flag in option.flags}
    positionals = [option for option in options.values() if not option.flags]
    rest = list(argv)
    while rest:
        token = rest.pop(0)
        flag, equals, text = token.partition("=")
        option = by_flag.get(flag)
        if option is None:
            if flag.startswith("--no-") and (switch := by_flag.get(f"--{flag[5:]}")) is not None:
                values[switch.name] = False
            elif not token.startswith("-") and positionals:
                values[positionals[0].name] = positionals[0].value_of(token)
                positionals = positionals if positionals[0].many else positionals[1:]
            continue
        if not option.takes_value:
            values[option.name] = option.action != "store_false"
            continue
        given = [text] if equals else []
        while not equals and rest and not _is_flag(rest[0]) and (option.many or not given):
            given.append(rest.pop(0))
        if given:
            values[option.name] = UNKNOWN if option.many else option.value_of(given[0])
    return values


def missing(argv: Sequence[str], options: Options) -> list[Option]:
    """The required options that the command line does not give."""
    given = {token.partition("=")[0] for token in argv}
    loose = len([t for i, t in enumerate(argv) if not _is_flag(t) and (i == 0 or not _is_flag(argv[i - 1]))])
    found = [o for o in options.values() if o.required and o.flags and not given & set(o.flags)]
    return found + [o for o in options.values() if o.required and not o.flags][loose:]


def _is_flag(token: str) -> bool:
    return token.startswith("-") and not token.lstrip("-").replace(".", "", 1).replace("e-", "", 1).isdigit()


def _default(option: Option) -> Any:
    if option.default is None and option.action == "store_true":
        return False
    return True if option.default is None and option.action == "store_false" else option.default


def _first_text(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)


def _option(call: ast.Call, *, click: bool) -> Option | None:
    names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    given = {k.arg: k.value for k in call.keywords if k.arg}
    if not names:
        return None
    flags = [name for name in names if name.startswith("-")]
    negative = [part for flag in flags if "/" in flag for part in (flag.split("/")[0],)]
    flags = negative or flags
    longest = next((f for f in flags if f.startswith("--")), flags[0] if flags else names[0])
    plain = next((name for name in names if not name.startswith("-")), longest) if click else longest
    name = str(_constant(given.get("dest"), plain.lstrip("-").replace("-", "_")))
    action = _action(given, click=click, switch=bool(negative))
    count = _constant(given.get("nargs"), None)
    return Option(
        name,
        tuple(flags),
        action,
        _constant(given.get("default"), None),
        ast.unparse(given["type"]) if "type" in given else "",
        _constant(given.get("required"), False) is True or (not flags and count not in ("?", "*")),
        tuple(e.value for e in getattr(given.get("choices"), "elts", ()) if isinstance(e, ast.Constant)),
        count in ("*", "+") or isinstance(count, int),
    )


def _action(given: dict[str, ast.expr], *, click: bool, switch: bool) -> str:
    if click:
        return "switch" if switch else "store_true" if _constant(given.get("is_flag"), False) is True else "store"
    action = given.get("action")
    if action is None:
        return "store"
    if isinstance(action, ast.Constant):
        return str(action.value)
    return "switch" if ast.unparse(action).endswith("BooleanOptionalAction") else "store"


def _constant(node: ast.expr | None, otherwise: Any) -> Any:
    if node is None:
        return otherwise
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return UNKNOWN
