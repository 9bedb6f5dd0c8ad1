"""The arguments with which a program runs without mixed precision, or evaluates and does nothing else.

Named by the user (`--off-args`, `--eval-args`), or found: in the arguments of the case, which say how mixed precision
is switched on, and in the `add_argument` calls of the script, which say what else there is. What was found is shown
with the verdict; nothing found means that the drill is not tried.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LEVEL = re.compile(r"^(--?[\w-]+=|[\w.]+=)?(['\"]?)O[123]\2$")
_NAME = r"(?:use[-_]?|enable[-_]?|with[-_]?)?(?:fp16|amp|apex|half|float16|mixed[-_]?precision)(?:[-_](?:run|mode|training))?"
SWITCH = re.compile(rf"^--?{_NAME}$", re.IGNORECASE)
SET = re.compile(rf"^((?:--?)?(?:[\w.]*\.)?{_NAME}=)(1|true|yes|on)$", re.IGNORECASE)
TRUE = {"1": "0", "true": "false", "True": "False", "yes": "no", "on": "off"}
AGAINST = re.compile(rf"^--?(?:(?:no|disable|without)[-_]?{_NAME}|fp32|float32|full[-_]?precision)$", re.IGNORECASE)
OPT_LEVEL = re.compile(r"opt[-_]?level$")
EVALUATES = re.compile(
    r"^--?(?:e|evaluate|eval|validate|inference|(?:evaluate|eval|test|val|validate)[-_]only|only[-_](?:evaluate|eval|test|val))$"
)


@dataclass(frozen=True)
class Option:
    """One `add_argument`: its names, and whether it takes no value."""

    names: tuple[str, ...]
    flag: bool

    @property
    def longest(self) -> str:
        return max(self.names, key=len)


def switched_off(argv: Sequence[str], script: Path) -> tuple[str, ...] | None:
    """`argv` without what switches mixed precision on, else with what switches it off; None when neither is found."""
    changed: list[str] = []
    skip = found = False
    for position, word in enumerate(argv):
        following = argv[position + 1] if position + 1 < len(argv) else ""
        if skip:
            skip = False
            continue
        if LEVEL.match(word):
            changed.append(re.sub(r"O[123](['\"]?)$", r"O0\1", word))
            found = True
        elif setting := SET.match(word):
            changed.append(setting[1] + TRUE.get(setting[2], "0"))
            found = True
        elif SWITCH.match(word) and following in TRUE:
            changed += [word, TRUE[following]]
            skip = found = True
        elif SWITCH.match(word) and not LEVEL.match(following):
            found = True
        else:
            changed.append(word)
    if found:
        return tuple(changed)
    for option in options(script):
        if any(OPT_LEVEL.search(name) for name in option.names) and not option.flag:
            return (*argv, option.longest, "O0")
        if option.flag and any(AGAINST.match(name) for name in option.names):
            return (*argv, option.longest)
    return None


def evaluating(argv: Sequence[str], script: Path) -> tuple[str, ...] | None:
    """`argv` with the script's flag for evaluating alone; None when it has none."""
    for option in options(script):
        if option.flag and any(EVALUATES.match(name) for name in option.names):
            return tuple(argv) if set(option.names) & set(argv) else (*argv, option.longest)
    return None


def options(script: Path) -> Iterator[Option]:
    """The optional arguments that the script itself declares."""
    try:
        tree = ast.parse(script.read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            action = next((k.value for k in node.keywords if k.arg == "action"), None)
            if names and all(name.startswith("-") for name in names):
                flag = isinstance(action, ast.Constant) and action.value == "store_true"
                yield Option(tuple(names), flag)


def shown(argv: Sequence[str]) -> str:
    """For a sentence: `--fp32`."""
    return f"`{shlex.join(argv)}`" if argv else "no arguments"
