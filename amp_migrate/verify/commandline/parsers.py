"""What parsers define: `add_argument` of argparse, `option` and `argument` of click, and the sub-commands of both."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from amp_migrate.verify.commandline.options import UNKNOWN, Option, Options

_SHORT = ("add", "add_arg")  # configargparse; a set or a list has an `add` too, but no flag and none of these
_SAID = {"type", "action", "help", "default", "required", "choices", "nargs", "metavar", "dest"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def find(trees: Iterable[ast.AST], command: str = "") -> Options:
    """The options of all parsers in these files by name, the first of each, but for those of other sub-commands."""
    found: Options = {}
    for option in every(trees):
        if option.command in ("", command):
            first = found.setdefault(option.name, option)
            found[option.name] = joined([first, option]) or first
    return found


def joined(same: Sequence[Option]) -> Option | None:
    """One option for those of one name: two flags that set it on and off are a switch; None where they differ otherwise."""
    if len({(option.flag, option.action) for option in same}) == 1:
        return same[0]
    if len(same) != 2 or {option.action for option in same} != {"store_true", "store_false"}:
        return None
    on, off = sorted(same, key=lambda option: option.action != "store_true")
    default = same[0].default if same[0].default is not None else same[0] is off
    return replace(on, action="switch", negative=off.flag, default=default)


def every(trees: Iterable[ast.AST]) -> Iterator[Option]:
    """All options, with the sub-command of each; `set_defaults` is heard."""
    for tree in trees:
        of = _sub_commands(tree)
        defaults = _set_defaults(tree)
        aliases = _aliases(tree)
        for call in _calls(tree):
            option = _option(call, aliases)
            if option is not None and option.action not in ("help", "version"):
                option = replace(option, command=of.get(call, ""))
                yield replace(option, default=defaults[option.name]) if option.name in defaults else option


def commands(trees: Iterable[ast.AST]) -> list[str]:
    """The sub-commands that parsers know."""
    found: list[str] = []
    for tree in trees:
        called = {node: place for place, node in enumerate(_calls(tree))}
        made = [(called.get(call, 0), name) for call, name in _made(tree)]
        made += [(len(called), name) for name, _ in _click_commands(tree)]
        found += [name for _, name in sorted(made)]
    return list(dict.fromkeys(found))


def chosen(argv: Sequence[str], known: Sequence[str]) -> str:
    """The sub-command that a command line names, "" where it names none."""
    return next((word for word in argv if word in known), "")


def _calls(tree: ast.AST) -> list[ast.Call]:
    """In the order of the text."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def _made(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """The calls that make the parser of a sub-command."""
    for call in _calls(tree):
        if getattr(call.func, "attr", "") == "add_parser" and (name := _first_text(call)):
            yield call, name


def _sub_commands(tree: ast.AST) -> dict[ast.Call, str]:
    """The calls that define options of one sub-command, with its name: on a name that holds its parser, in a function
    that is given it; the decorators of a command of click."""
    made = dict(_made(tree))
    found: dict[ast.Call, str] = {}
    for body in [tree, *(node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))]:
        own = _own_calls(body)
        holders = _holders(body, made)
        for call in own:
            if isinstance(call.func, ast.Attribute):
                if call.func.value in made:  # subparsers.add_parser("x").add_argument(...)
                    found[call] = made[call.func.value]
                elif (name := _held(call.func.value, call, holders)) is not None:
                    found[call] = name
            given = [(at, _held(argument, call, holders)) for at, argument in enumerate(call.args)]
            for function in _named(tree, call) if any(name for _, name in given) else ():
                for inner in _own_calls(function):
                    receiver = getattr(inner.func, "value", None)
                    for at, name in given:
                        parameters = [argument.arg for argument in function.args.args]
                        if name and at < len(parameters) and getattr(receiver, "id", "") == parameters[at]:
                            found[inner] = name
    for name, function in _click_commands(tree):
        found |= {node: name for node in function.decorator_list if isinstance(node, ast.Call)}
    return found


def _own_calls(body: ast.AST) -> list[ast.Call]:
    """Those of a function or module that stand in no function within it."""
    found, waiting = [], list(ast.iter_child_nodes(body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, _FUNCTIONS):
            continue
        if isinstance(node, ast.Call):
            found.append(node)
        waiting += ast.iter_child_nodes(node)
    return found


def _holders(body: ast.AST, made: dict[ast.Call, str]) -> list[tuple[str, int, str | None]]:
    """Names that are assigned the parser of a sub-command, a group of one, or (None) something else, with the line."""
    found: list[tuple[str, int, str | None]] = []
    nodes = [node for node in ast.walk(body) if isinstance(node, ast.Assign) and len(node.targets) == 1]
    for node in sorted(nodes, key=lambda n: n.lineno):
        command = made.get(node.value) if isinstance(node.value, ast.Call) else None
        if command is None and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            if node.value.func.attr in ("add_argument_group", "add_mutually_exclusive_group"):
                command = _held(node.value.func.value, node.value, found)
        found.append((ast.unparse(node.targets[0]), node.lineno, command))
    return found


def _held(node: ast.expr, call: ast.Call, holders: list[tuple[str, int, str | None]]) -> str | None:
    """The sub-command whose parser a name holds where the call stands."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    text = ast.unparse(node)
    before = [command for name, line, command in holders if name == text and line < call.lineno]
    return before[-1] if before else None


def _named(tree: ast.AST, call: ast.Call) -> list[ast.FunctionDef]:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]


def _click_commands(tree: ast.AST) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions that are commands of a group: `@cli.command()`, or given to `cli.add_command`."""
    added = {
        getattr(argument, "id", "")
        for call in _calls(tree)
        if getattr(call.func, "attr", "") == "add_command"
        for argument in call.args[:1]
    }
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in function.decorator_list:
            made = node.func if isinstance(node, ast.Call) else node
            if isinstance(made, ast.Attribute) and made.attr == "command":
                if ast.unparse(made.value) != "click" or function.name in added:
                    given = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}
                    text = _first_text(node) if isinstance(node, ast.Call) else ""
                    yield str(text or _constant(given.get("name"), function.name.replace("_", "-"))), function


def _set_defaults(tree: ast.AST) -> dict[str, Any]:
    return {
        keyword.arg: _constant(keyword.value, None)
        for call in _calls(tree)
        if getattr(call.func, "attr", "") == "set_defaults"
        for keyword in call.keywords
        if keyword.arg and not isinstance(keyword.value, (ast.Name, ast.Attribute, ast.Lambda))
    }


def _first_text(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def _is_flag(names: Sequence[str]) -> bool:
    return bool(names) and names[0].startswith("-")


def _option(call: ast.Call, aliases: Collection[str]) -> Option | None:
    """The option that a call defines, if it defines one."""
    called = getattr(call.func, "attr", getattr(call.func, "id", ""))
    click = called in ("option", "argument")
    names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    given = {k.arg: k.value for k in call.keywords if k.arg}
    short = called in _SHORT and isinstance(call.func, ast.Attribute) and bool(given.keys() & _SAID)
    if called != "add_argument" and not click and called not in aliases and not (short and _is_flag(names)):
        return None
    if not names:
        return None
    flags = [flag for name in names if name.startswith("-") for flag in (name.split("/")[0].strip(),)]
    negative = next((name.split("/")[1].strip() for name in names if name.startswith("-") and "/" in name), "")
    longest = next((f for f in flags if f.startswith("--")), flags[0] if flags else names[0])
    plain = next((name for name in names if not name.startswith("-")), longest) if click else longest
    action = _action(given, click=click, switch=bool(negative))
    count = _constant(given.get("nargs"), None)
    return Option(
        str(_constant(given.get("dest"), plain.lstrip("-").replace("-", "_"))),
        tuple(flags),
        action,
        _constant(given.get("default"), None),
        ast.unparse(given["type"]) if "type" in given else "",
        _constant(given.get("required"), False) is True or (not flags and count not in ("?", "*")),
        tuple(e.value for e in _items(given.get("choices", given.get("type"))) if isinstance(e, ast.Constant)),
        count in ("*", "+") or isinstance(count, int),
        negative or (f"--no-{longest.lstrip('-')}" if action == "switch" else ""),
        _constant(given.get("const"), None) if action == "store" else None,
        click=click,
    )


def _aliases(tree: ast.AST) -> frozenset[str]:
    """`arg = parser.add_argument`."""
    return frozenset(
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and getattr(node.value, "attr", "") == "add_argument"
        for target in node.targets
        if isinstance(target, ast.Name)
    )


def _items(node: ast.expr | None) -> list[ast.expr]:
    """Of `choices=[...]`, or of `type=click.Choice([...])`."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Choice") and node.args:
        node = node.args[0]
    return getattr(node, "elts", [])


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
