"""A run that asks for Apex by an option that the program only reads gets the native side: its tests ask for both."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import spelled
from amp_migrate.reading.switch.flags import init_flag
from amp_migrate.reading.twin.branches import choice_of, value_chosen
from amp_migrate.reading.twin.options import read_by_name
from amp_migrate.reading.twin.sides import NativeTwin
from amp_migrate.reading.values.sources import Sources
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.twin.accepted import checks


def answer_options(m: Migration, twin: NativeTwin) -> None:
    """Ask for both options where the native one was asked for, of two that the program only reads: `args.native` becomes
    `args.apex or args.native`, for a run that asks for Apex finds nobody else who answers."""
    sources = m.project.once(Sources)
    for name, native in twin.flags.items():
        (mine, _, apex), (theirs, _, own) = name.rpartition("."), ast.unparse(native).rpartition(".")
        if not mine or mine != theirs or twin.given(name) or twin.given(ast.unparse(native)):
            continue
        declared = sources.declaring(own)
        if not declared or not declared <= sources.declaring(apex):
            continue
        if sources.set_by_name(own) or sources.set_by_name(apex):
            continue
        reads = _reads(m, own)
        whole = all(isinstance(n.value, ast.Name) and module in twin.modules for module, n in reads)
        whole = whole and not any(read_by_name(m.project, reads, option) for option in (own, apex))
        if not whole or not _always_on(m):
            continue
        for module, node in reads:
            text = f"{ast.unparse(node.value)}.{apex} or {ast.unparse(node)}"
            alone = isinstance(module.parents.get(node), (ast.If, ast.keyword, ast.Call, ast.Assign, ast.IfExp))
            m.edit(module).replace(node, text if alone else f"({text})")
        twin.answered.add(name)


def answer_choices(m: Migration, twin: NativeTwin) -> None:
    """The same of one option with two values: `cfg.backend == "native"` becomes `cfg.backend in ("apex", "native")`. Where the
    program checks what it accepts, the value is refused there instead."""
    if checks(m, twin):
        return
    for (holder, value), native in twin.choices.items():
        chosen = value_chosen(ast.Name(holder), native) if native is not None else None
        *above, name = holder.split(".")
        if not above or "." in value or chosen is None or any(m.project.once(Sources).stored(name)):
            continue
        tail = [*above[1:], name][-2:]  # also through another name for the settings
        reads = [(where, n) for where, n in _reads(m, name) if spelled(n).split(".")[-len(tail) :] == tail]
        if not _always_on(m) or not all(_asks(node, where.parents.get(node), holder) for where, node in reads):
            continue
        if read_by_name(m.project, reads, name):
            continue
        for module, node in reads:
            test = module.parents.get(node)
            if isinstance(test, ast.Compare) and choice_of(test) == chosen:
                within = "in" if isinstance(test.ops[0], (ast.Eq, ast.Is)) else "not in"
                text = f"{holder} {within} ({value}, {chosen[1]})"
                m.edit(module).replace(test, text.replace("'", m.style(module).quote))
        twin.answered.add(holder)


def _always_on(m: Migration) -> bool:
    """Whether every set-up switches mixed precision on wherever it is come by."""
    return all(init_flag(m.project, init).parts == () for init in m.unit.inits)


def _reads(m: Migration, name: str) -> list[tuple[Module, ast.Attribute]]:
    """Where the program reads attributes of a name."""
    named = ((module, n) for module in m.project.modules for n in module.named.get(name, ()))
    return [(module, n) for module, n in named if isinstance(n, ast.Attribute)]


def _asks(node: ast.Attribute, parent: ast.AST | None, holder: str) -> bool:
    """Whether a read only compares, under the one name, with a text; or says what was asked for."""
    compares = isinstance(parent, ast.Compare) and choice_of(parent) is not None and parent.left is node
    return ast.unparse(node) == holder and (compares or isinstance(parent, ast.FormattedValue))
