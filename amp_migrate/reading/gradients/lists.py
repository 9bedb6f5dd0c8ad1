"""Lists of optimizers that are handed on: `fine_tune([encoder_optimizer, decoder_optimizer])`, which steps each, and what the
function that takes one asks of its type."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache

from amp_migrate.reading.program.definitions import elements
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.view import Node
from amp_migrate.reading.units.places import Keys, Names
from amp_migrate.reading.units.unit import Unit

WHOLE = "*"  # before the name of what holds all that it stands for, not one of them


def whole(unit: Unit, module: Module, value: ast.expr, names: Names) -> Keys:
    """The optimizers of a list that is written out where it is handed on, or where its name is given; none of anything else."""
    if isinstance(value, ast.Name) and WHOLE + value.id in names:
        return names[value.id]
    listed = written_out(unit, module, value)
    here = listed is not None and module.scope_of(listed) is module.scope_of(value)
    each = [unit.optimizers.stands_for(module, e, names if here else {}) for e in elements(listed)] if listed else []
    known = bool(each) and all(len(keys) == 1 for keys in each)
    return frozenset[int]().union(*each) if known else frozenset()


def written_out(unit: Unit, module: Module, value: ast.expr | None) -> ast.List | ast.Tuple | None:
    """The list or tuple that an expression is, if it is seen to be one; a name may also be given what `initialize` made of it."""
    if isinstance(value, ast.Name):
        owner = module.scope_of(value).lookup(value.id)
        bindings = owner.bindings.get(value.id, ()) if owner is not None and owner.module is module else ()
        prepared = {i.stmt for i in unit.inits if _is_named(i.arguments.get("optimizers"), value.id)}
        given = [b for b in bindings if module.statement(b) not in prepared]
        stmt = module.parents.get(given[0]) if len(given) == 1 else None
        value = stmt.value if isinstance(stmt, ast.Assign) and stmt.targets == given else None
    return value if isinstance(value, (ast.List, ast.Tuple)) else None


def _is_named(node: ast.expr | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def of_type(parameter: str, value: ast.List | ast.Tuple, asked: Iterable[str]) -> dict[str, bool]:
    """What conditions that ask of which type a parameter is say of a list or a tuple."""
    kind = "list" if isinstance(value, ast.List) else "tuple"
    answers = ((text, _type_asked(text)) for text in asked)
    return {
        text: kind in types for text, found in answers if found is not None for p, types in [found] if p == parameter
    }


@cache
def _type_asked(text: str) -> tuple[str, frozenset[str]] | None:
    """Of which name a condition asks whether it is of which types: `isinstance(optimizer, (list, tuple))`,
    `type(optimizer) == list`."""
    try:
        test = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    match test:
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="type"), args=[ast.Name(id=name)], keywords=[]),
            ops=[ast.Eq() | ast.Is()],
            comparators=[types],
        ):
            pass
        case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=name), types], keywords=[]):
            pass
        case _:
            return None
    names = [ast.unparse(t) for t in (types.elts if isinstance(types, ast.Tuple) else [types])]
    other = [n for n in names if n not in ("list", "tuple") and not n.rpartition(".")[2].endswith("Optimizer")]
    return None if other else (name, frozenset(names))


def one_by_one(unit: Unit, module: Module, node: Node, names: Names) -> list[Keys]:
    """What the target of a loop over a list of optimizers or models, which is written out there, where it is given its name
    or where it is handed in, stands for, one time after the other."""
    stmt = node.stmt
    if not isinstance(stmt, ast.For) or not isinstance(stmt.target, ast.Name) or len(node.blocks) != 1:
        return []
    listed: ast.expr | None = stmt.iter
    if (
        isinstance(listed, ast.Name)
        and listed.id in names
        and unit.project.slot(module, listed) in unit.optimizer_slots
    ):
        if WHOLE + listed.id in names or len(names[listed.id]) == 1:  # those of one list may count as one
            return [frozenset((key,)) for key in sorted(names[listed.id])]
    if isinstance(listed, ast.Name):
        listed = single_assignment(module, listed)
    if isinstance(listed, ast.ListComp) and len(listed.generators) == 1 and not listed.generators[0].ifs:
        one = listed.generators[0]  # `[o for o in (first, second)]`
        same = isinstance(listed.elt, ast.Name) and ast.unparse(one.target) == listed.elt.id
        listed = one.iter if same else None
    if not isinstance(listed, (ast.List, ast.Tuple)):
        return []
    here = module.scope_of(listed) is module.scope_of(stmt)
    found = [unit.optimizers.stands_for(module, e, names if here else {}) for e in elements(listed)]
    return found if all(found) else []
