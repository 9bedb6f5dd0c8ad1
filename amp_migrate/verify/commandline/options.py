"""The options of a program, and what a command line says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    negative: str = ""  # the flag that switches it off
    const: Any = field(default=None, compare=False)  # the value of the flag alone, where a value may follow
    command: str = ""  # the sub-command it belongs to
    click: bool = False  # else argparse

    @property
    def flag(self) -> str:
        """The flag to write: the first long one."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0] if self.flags else "")

    @property
    def shown(self) -> str:
        return self.flag or self.name

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


def parsed(argv: Sequence[str], options: Options) -> dict[str, Any]:
    """The value of every option under this command line, as far as can be told; defaults for those not given."""
    values = {name: _default(option) for name, option in options.items()}
    for option, flag, given in _read(argv, options):
        if flag and flag == option.negative:
            values[option.name] = False
        elif not option.takes_value:
            values[option.name] = option.action != "store_false"
        elif given:
            values[option.name] = UNKNOWN if option.many else option.value_of(given[0])
        elif option.const is not None:
            values[option.name] = option.const
    return values


def missing(argv: Sequence[str], options: Options) -> list[Option]:
    """The required options that the command line does not give; those with a flag first."""
    there = {option.name for option, _, _ in _read(argv, options)}
    found = [option for option in options.values() if option.required and option.name not in there]
    return sorted(found, key=lambda option: not option.flags)


def without(argv: Sequence[str], option: Option) -> list[str]:
    """The command line with the option, and its value, taken away."""
    kept, rest = list[str](), list(argv)
    while rest:
        word = rest.pop(0)
        flag = word.partition("=")[0]
        if flag not in option.flags and (not option.negative or flag != option.negative):
            kept.append(word)
            continue
        first = True
        while flag != option.negative and option.takes_value and "=" not in word and rest and not _is_flag(rest[0]):
            if not first and not option.many:
                break
            rest.pop(0)
            first = False
    return kept


def _read(argv: Sequence[str], options: Options) -> Iterator[tuple[Option, str, list[str]]]:
    """What the command line gives: options, the flag that stands there ("" for positionals), the values."""
    by_flag = {flag: o for o in options.values() for flag in (*o.flags, o.negative) if flag}
    positionals = [option for option in options.values() if not option.flags]
    commands = {option.command for option in options.values()}
    rest = list(argv)
    while rest:
        token = rest.pop(0)
        flag, equals, text = token.partition("=")
        option = by_flag.get(flag)
        if option is not None:
            given = [text] if equals else []
            takes = option.takes_value and flag != option.negative and not equals
            while takes and rest and not _is_flag(rest[0]) and (option.many or not given):
                given.append(rest.pop(0))
            yield option, flag, given
        elif token in commands:
            commands = set()
        elif positionals and not _is_flag(token):
            yield positionals[0], "", [token]
            positionals = positionals if positionals[0].many else positionals[1:]


def _is_flag(token: str) -> bool:
    return token.startswith("-") and not token.lstrip("-").replace(".", "", 1).replace("e-", "", 1).isdigit()


def _default(option: Option) -> Any:
    if option.default is None and option.action == "store_true":
        return False
    return True if option.default is None and option.action == "store_false" else option.default
