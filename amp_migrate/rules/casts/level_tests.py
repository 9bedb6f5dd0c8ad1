"""A test of the opt level that only picks a dtype holds at each level that computes as O1 did, which are all but O0 now.

`if args.opt_level == "O1": x = x.half()` matches what O1's patched functions gave. O2 and O3 run under autocast after the
migration, which gives the same; under Apex their weights were half, and nothing had to be matched. Tests that choose anything
else stay as they are.

Apex: https://nvidia.github.io/apex/amp.html#opt-levels
Native: https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.definitions import field_name
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.units.unit import Init
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP523",
        "A test of the opt level picks a dtype",
        'opt_level == "O1"',
        apex="O1 patches functions and leaves weights in float32; O2 and O3 patch nothing and cast the weights. Programs that match "
        "dtypes by hand ask which of them it is.",
        native="Every level but O0 runs under autocast, and computes as O1 did: what was cast at O1 is cast at all of them.",
        why="At O2 the cast would be left out that autocast needs: in-place writes (scatter_, masked assignments) raise on "
        "float32 and float16 together.",
        links=(
            "https://nvidia.github.io/apex/amp.html#opt-levels",
            "https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior",
        ),
        examples=(
            Example(
                'if args.opt_level == "O1":\n    logits = logits.half()',
                'if args.opt_level in ("O1", "O2", "O3"):\n    logits = logits.half()',
            ),
        ),
    ),
)
CASTS = frozenset("half float double to type type_as".split())


def apply(m: Migration) -> None:
    if not m.casts or m.options.dtype != "float16":
        return
    for init in m.unit.inits:
        level = init.arguments.get("opt_level")
        if level is None or isinstance(level, ast.Constant) or not init.levels & {"O2", "O3"}:
            continue
        names = set(_names(init, level))
        for module in m.unit.reach:
            if module not in m.project.targets or not any(n in module.text for n in names) or "O1" not in module.text:
                continue
            for test in _picking(module):
                if field_name(test.left) in names and m.live(module, test):
                    _widen(m, module, test)


def _widen(m: Migration, module: Module, test: ast.Compare) -> None:
    if not m.output.wants_at(module, test, "AMP523"):
        return
    quote, level = m.style(module).quote, module.source(test.left)
    m.edit(module).replace(test, f"{level} in ({', '.join(f'{quote}{o}{quote}' for o in ('O1', 'O2', 'O3'))})")
    m.output.done(
        module,
        test,
        "AMP523",
        module.source(test),
        "picks a dtype for what O1 computed, and O2 and O3 compute alike now",
        "look",
    )


def _names(init: Init, level: ast.expr) -> Iterator[str]:
    """What the level is called: the option, the key or the variable it is read from."""
    name = field_name(level)
    if name is not None:
        yield name
    if isinstance(level, ast.Name):
        value = single_assignment(init.module, level)
        if value is not None and not isinstance(value, ast.Name) and (other := field_name(value)) is not None:
            yield other


def _picking(module: Module) -> Iterator[ast.Compare]:
    """The comparisons with O1 that decide about nothing but casts."""
    for node in module.nodes:
        if isinstance(node, ast.If):
            only = all(_casts(s) for s in (*node.body, *node.orelse))
        elif isinstance(node, ast.IfExp):
            only = _cast(node.body) and (_cast(node.orelse) or isinstance(node.orelse, (ast.Name, ast.Attribute)))
        else:
            continue
        if only:
            test = node.test
            asked = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
            yield from (t for t in asked if isinstance(t, ast.Compare) and _asks_for_o1(t))


def _asks_for_o1(test: ast.Compare) -> bool:
    side = test.comparators[0]
    return (
        len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
        and isinstance(side, ast.Constant)
        and str(side.value).upper() == "O1"
    )


def _casts(stmt: ast.stmt) -> bool:
    """`x = x.half()`, `a, b = a.half(), b.half()`."""
    return isinstance(stmt, ast.Assign) and all(
        _cast(v) for v in (stmt.value.elts if isinstance(stmt.value, ast.Tuple) else [stmt.value])
    )


def _cast(value: ast.expr) -> bool:
    if isinstance(value, ast.ListComp):
        return _cast(value.elt)
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in CASTS
