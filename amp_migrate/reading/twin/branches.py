"""The switch that chooses Apex, and what chooses the native side instead: read off one test, or where a program sets that side up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.reading.conditions.chains import Link, heads, links
from amp_migrate.reading.conditions.conjunctions import conjuncts
from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.twin.external_scalers import sets_autocast
from amp_migrate.reading.twin.flags import native_flags
from amp_migrate.reading.units.unit import Unit
from amp_migrate.reading.units.wrappers import makes_native

Choice = tuple[str, str]  # what is compared, and with what: `use_amp == "apex"`


def choice_of(test: ast.expr) -> Choice | None:
    """What a comparison asks. A member of an enumeration tells enough by itself: whichever object holds it is meant."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    if not isinstance(test.ops[0], (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
        return None
    return value_chosen(test.left, test.comparators[0])


def value_chosen(holder: ast.expr, value: ast.expr) -> Choice | None:
    if isinstance(value, ast.Constant):
        return ast.unparse(holder), repr(value.value)
    if isinstance(value, ast.Attribute) and isinstance(value.value, (ast.Name, ast.Attribute)):
        return ast.unparse(holder).rpartition(".")[2], ast.unparse(value)
    return None


def flag_asked(test: ast.expr) -> tuple[ast.expr, bool]:
    """What a test asks a flag for, and whether it is to hold: `flag is True` asks what `flag` does; a test that is no such
    comparison stands for itself."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
        value = getattr(test.comparators[0], "value", None)
        if len(test.ops) == 1 and isinstance(value, bool):
            return test.left, value is isinstance(test.ops[0], (ast.Eq, ast.Is))
    return test, True


@dataclass
class Branch:
    """The switch that chooses Apex, with what chooses the native branch instead.

    `native`: the value that the same holder has then (`use_amp == "native"`). `flag`: the flag that is true then, where
    two of them tell (`self.use_apex`, `self.use_amp`). `joined`: a link that sets the native side up under a flag of its
    own, and is to answer to the switch as well. `asked`: all that the native branch asks.
    """

    test: ast.expr
    native: ast.expr | None = None
    flag: ast.expr | None = None
    joined: Link | None = None
    asked: ast.expr | None = None


def residue(project: Project, module: Module, test: ast.expr) -> list[ast.expr] | None:
    """What a test asks beyond Apex and native mixed precision being there, as conjuncts; None where it is false then."""
    rest = availability(project, module).rest(test)
    if rest is None:
        return None
    native = native_flags(project, module)
    kept: list[ast.expr] = []
    for part in (p for r in rest for p in conjuncts(r)):
        value = native.value(part)
        if value is False:
            return None
        if value is None:
            kept.append(part)
    return kept


def branch_of(unit: Unit, module: Module, node: ast.If, sibling: Link | None = None) -> Branch | None:
    """The branch of an `if` on one thing, with what chooses its native sibling: the next link, if none is given."""
    test = asked_by(unit, module, node)
    if test is None:
        return None
    if sibling is None:
        other = node.orelse[0] if len(node.orelse) == 1 else None
        asked = other.test if isinstance(other, ast.If) else None
    else:
        asked = sibling.test
    for one in (*_set_up_under(unit, test), _one(unit, module, asked)):
        if (found := _instead(test, one, asked)) is not None:
            return found
    return Branch(test, asked=asked)


def _instead(test: ast.expr, one: ast.expr | None, asked: ast.expr | None) -> Branch | None:
    """The branch of a test beside which another stands: the same holder with another value, or another flag."""
    mine = choice_of(test)
    if mine is not None and isinstance(one, ast.Compare):
        theirs = choice_of(one)
        if theirs is not None and theirs[0] == mine[0] and isinstance(one.ops[0], (ast.Eq, ast.Is)):
            return Branch(test, one.comparators[0], asked=asked)
    flags = (ast.Name, ast.Attribute)
    if mine is None and isinstance(test, flags) and isinstance(one, flags):
        return Branch(test, flag=one, asked=asked)
    return None


def _set_up_under(unit: Unit, test: ast.expr) -> Iterator[ast.expr]:
    """What is asked where the native side is set up, in a chain with a branch under the test that chooses Apex: the loss may be
    scaled by whether there is a scaler (`elif scaler is not None:`)."""
    for module in unit.modules:
        for head in heads(module):
            asked = [(link, _one(unit, module, link.test)) for link in links(head)]
            if any(one is not None and ast.dump(one) == ast.dump(test) for _, one in asked):
                for link, one in asked:
                    if one is not None and ast.dump(one) != ast.dump(test) and _sets_up(unit.project, module, link):
                        yield one


def _sets_up(project: Project, module: Module, link: Link) -> bool:
    """Whether a branch makes a GradScaler, or what is one, or binds a name to autocast."""
    made = (n for s in link.body for n in walk(s) if isinstance(n, ast.Call))
    scaler = any((project.qualify(module, c.func) or "").endswith("amp.GradScaler") for c in made)
    return (
        scaler or makes_native(project, module, link.body) or any(sets_autocast(project, module, s) for s in link.body)
    )


def _one(unit: Unit, module: Module, test: ast.expr | None) -> ast.expr | None:
    """What a test asks beyond what is installed, where that is one thing."""
    return _only(residue(unit.project, module, test)) if test is not None else None


def asked_by(unit: Unit, module: Module, node: ast.If) -> ast.expr | None:
    """What an `if` asks beyond Apex being installed, where that is one thing."""
    return _only(availability(unit.project, module).rest(node.test))


def _only(rest: list[ast.expr] | None) -> ast.expr | None:
    return rest[0] if rest is not None and len(rest) == 1 else None
