"""The arguments with which a program runs without mixed precision, or evaluates and does nothing else.

Named by the user (`--off-args`, `--eval-args`), or found: in the arguments of the case, which say how mixed precision
is switched on, and in what the parsers of the program define, which says what else there is, sub-commands included. What
was found is shown with the verdict; nothing found means that the drill is not tried.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from amp_migrate.verify.case import Program
from amp_migrate.verify.commandline import parsers
from amp_migrate.verify.commandline.files import Project
from amp_migrate.verify.commandline.options import Option, missing, without

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


EVALUATING = re.compile(r"test|val|valid|validate|validation|eval|evaluate|evaluation")  # a mode, or a sub-command
TRAINING = re.compile(r"train|training|fit")
CHECKPOINT = re.compile(
    r"(resume|restore|load|init|pretrained|model|weights?|ckpt|checkpoint)(_?(from|path|file|model|ckpt|checkpoint|weights?))*"
)
SHORT = 60  # characters of arguments that are shown whole
HALF, FULL = re.compile(r"(?:fp|float|f)?16|half|amp|apex|mixed"), re.compile(r"(?:fp|float|f)?32|full|float|none|no")


@dataclass(frozen=True)
class Known:
    """What the parsers of a program define: every option, and the sub-commands."""

    options: tuple[Option, ...] = ()
    commands: tuple[str, ...] = ()

    def of(self, command: str) -> tuple[Option, ...]:
        return tuple(option for option in self.options if option.command in ("", command))

    def called(self, argv: Sequence[str]) -> tuple[Option, ...]:
        """Those of the sub-command that `argv` names."""
        return self.of(parsers.chosen(argv, self.commands))


def known(program: Program) -> Known:
    """Of the script and the files it imports."""
    root = program.tree or program.script.parent
    trees = Project(root).trees(program.script.relative_to(root).as_posix())
    return Known(tuple(parsers.every(trees)), tuple(parsers.commands(trees)))


def switched_off(argv: Sequence[str], known: Known) -> tuple[str, ...] | None:
    """`argv` without what switches mixed precision on, else with what switches it off; None when neither is found."""
    options = known.called(argv)
    by_flag = {flag: option for option in options for flag in option.flags}
    changed: list[str] = []
    skip = found = False
    for position, word in enumerate(argv):
        following = argv[position + 1] if position + 1 < len(argv) else ""
        flag, equals, value = word.partition("=")
        option = by_flag.get(flag)
        if skip:
            skip = False
        elif LEVEL.match(word):
            changed.append(re.sub(r"O[123](['\"]?)$", r"O0\1", word))
            found = True
        elif option is not None and HALF.fullmatch(value if equals else following) and (full := _full(option)):
            changed += [f"{flag}={full}"] if equals else [word, full]
            skip, found = not equals, True
        elif option is not None and _is_plain_bool(option) and SWITCH.match(flag):  # bool("False") is true
            changed += [f"{flag}="]
            skip, found = not equals, True
        elif setting := SET.match(word):
            changed.append(setting[1] + TRUE.get(setting[2], "0"))
            found = True
        elif SWITCH.match(word) and following in TRUE:
            changed += [word, TRUE[following]]
            skip = found = True
        elif SWITCH.match(word) and not LEVEL.match(following):
            found = True
            changed += [option.negative] if option is not None and option.negative and option.default else []
        else:
            changed.append(word)
    if found:
        return tuple(changed)
    return next(((*argv, *words) for option in options if (words := _off(option))), None)


def _off(option: Option) -> list[str]:
    """What switches mixed precision off where the option stands at its default; nothing where it has no say."""
    if not option.flags:
        return []
    if option.takes_value and (OPT_LEVEL.search(option.name) or re.fullmatch("O[123]", str(option.default))):
        return [option.flag, "O0"]
    if option.action == "store_true":
        return [option.flag] if any(AGAINST.match(flag) for flag in option.flags) else []
    switches = any(SWITCH.match(flag) for flag in option.flags) or SWITCH.match(f"--{option.name}")
    if option.action == "store_false":
        return [option.flag] if switches or any(AGAINST.match(flag) for flag in option.flags) else []
    if not option.takes_value:
        return [option.negative] if option.negative and option.default is True and switches else []
    if HALF.fullmatch(str(option.default)) and (full := _full(option)):
        return [option.flag, full]
    if not switches or option.default not in (True, 1):
        return []
    return [f"{option.flag}="] if _is_plain_bool(option) else [option.flag, "False" if option.is_boolean else "0"]


def _full(option: Option) -> str:
    """The choice that stands for full precision."""
    return next((str(choice) for choice in option.choices if FULL.fullmatch(str(choice).lower())), "")


def _is_plain_bool(option: Option) -> bool:
    """argparse with `type=bool`: every text is true but the empty one."""
    return option.takes_value and option.type == "bool" and not option.click


def evaluating(argv: Sequence[str], known: Known) -> tuple[str, ...] | None:
    """`argv` with the program's flag, mode or sub-command for evaluating alone; None when it has none."""
    options = known.called(argv)
    for option in options:
        if option.action == "store_true" and any(EVALUATES.match(name) for name in option.flags):
            return tuple(argv) if set(option.flags) & set(argv) else (*argv, option.flag)
    for option in options:
        modes = [str(choice) for choice in option.choices]
        mode = next((choice for choice in modes if EVALUATING.fullmatch(choice)), None)
        if mode is not None and any(TRAINING.fullmatch(choice) for choice in modes):
            if option.flags:
                return (*without(argv, option), option.flag, mode)
            return tuple(mode if word in modes else word for word in argv)
    return _evaluating_command(argv, known)


def _evaluating_command(argv: Sequence[str], known: Known) -> tuple[str, ...] | None:
    """The sub-command that evaluates in place of the one that trains, with the options that both have."""
    command = parsers.chosen(argv, known.commands)
    other = next((name for name in known.commands if EVALUATING.fullmatch(name)), None)
    if not command or other is None or other == command:
        return None
    its = known.of(other)
    there = {option.name for option in its}
    kept = list(argv)
    for option in known.of(command):
        if option.name not in there:
            kept = without(kept, option)
    words = [other if word == command else word for word in kept]
    for option in missing(words, {option.name: option for option in its}):
        if not option.takes_value or not CHECKPOINT.fullmatch(option.name):
            return None
        words += [*([option.flag] if option.flags else []), "{checkpoint}"]
    return tuple(words)


def shown(argv: Sequence[str], given: Sequence[str] = ()) -> str:
    """For a sentence: `--fp32`; where that is long, how it differs from the arguments `given`."""
    full = shlex.join(argv)
    if len(full) <= SHORT:
        return f"`{full}`" if argv else "no arguments"
    told = []
    for tag, i, j, k, m in SequenceMatcher(None, given, argv, autojunk=False).get_opcodes():
        old, new = shlex.join(given[i:j]), shlex.join(argv[k:m])
        if tag == "replace":
            told.append(f"`{new}` in place of `{old}`")
        elif tag != "equal":
            told.append(f"all arguments but `{old}`" if tag == "delete" else f"`{new}` added")
    return " and ".join(told) if given and 0 < len(told) <= 2 else f"`{full}`"
