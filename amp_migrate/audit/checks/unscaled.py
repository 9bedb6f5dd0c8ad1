"""A run that set Apex up, and whose backward was not scaled, is told what that run was.

A flag may choose between `amp.scale_loss` and a plain backward that is not the one which set Apex up. Where masters are kept
(O2), only the end of `scale_loss` gives them gradients: a step after a plain backward left every half weight as it was. At
other levels such a run trained, without a loss scale. The migration joins both arms. Compared: the tests on each way to the
plain backward with those of the set-ups before it. A parameter that only chose so, in no run that differs, is named as one
that is read no more.

Cannot prove that a step follows the backward, nor anything of ways of which no set-up is seen to come before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.review import Review, calls_in
from amp_migrate.audit.side import Side
from amp_migrate.audit.sites.setups import INITIALIZE, LEVELS, MASTERS, SCALE, SetUp, argument, asked_level
from amp_migrate.audit.ways.chains import Chain
from amp_migrate.audit.ways.formulas import (
    ATOMS,
    Formula,
    atoms,
    conjunction,
    disjunction,
    example,
    minimal,
    plain,
)
from amp_migrate.audit.ways.off_instead import GRAD_SCALER
from amp_migrate.audit.ways.trails import Place
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP532: see `switch.py`


def check(review: Review) -> Iterable[Doubt]:
    for change in review.changes.values():
        told: set[Function | None] = set()
        for call in _joined(review, change):
            function = change.before.function_around(call)
            if function not in told:
                for doubt in _unscaled(mixed(review), change.before, call):
                    told.add(function)
                    yield doubt
        yield from _without_effect(review, change, told)


def _joined(review: Review, change: Change) -> Iterator[ast.Call]:
    """Plain backwards in place of a `scale_loss` of the same function, which the migration took away or scaled."""
    module = change.before
    if "scale_loss" not in module.words:
        return
    scaling = [c for c in module.calls() if syntax.text(c.func).rpartition(".")[2] == "scale_loss"]
    side = mixed(review).before
    for call in module.calls():
        if getattr(call.func, "attr", "") != "backward":
            continue
        around = (
            syntax.text(i.context_expr) for w in module.ancestors(call) if isinstance(w, ast.With) for i in w.items
        )
        if any("scale_loss" in opened for opened in around):
            continue
        new = change.back.get(module.statement(call))
        if new is not None and any(syntax.text(n) == syntax.text(call) for n in syntax.own_line(new)):
            continue
        function = module.function_around(call)
        beside = [c for c in scaling if module.function_around(c) is function]
        place = side.predicates.trails.anywhere(module.scope_of(call))
        own = _locally(side, module, call, place)
        if any(not _may_hold(conjunction([own, _locally(side, module, c, place)])) for c in beside):
            yield call


def _locally(side: Side, module: Module, call: ast.Call, place: Place) -> Formula:
    """What a function asks before a call in it."""
    return side.predicates.under(side.chains.tests(module, call), place)


def _unscaled(both: Mixed, module: Module, call: ast.Call) -> Iterator[Doubt]:
    """What the runs were that set Apex up and came to a plain backward."""
    side = both.before
    near = [s for s in both.around_of(module) if s.name == INITIALIZE]
    ways = [(s, way) for s in near for way in side.chains.to(s.module, s.call)]
    set_up = disjunction([both.on(s, way, False) for s, way in ways])  # no region, nor weights made half by hand
    for chain in side.chains.to(module, call):
        on = conjunction([set_up, both.under_apex(chain, both.initialized_around(module)).going])
        runs = plain(conjunction([side.predicates.given(chain), on]))
        found = example(runs)
        if found is None:
            continue
        scaled = _may_hold(conjunction([runs, _scales(both)]))
        still, bare = list[str](), list[str]()
        for setup in near:
            for level in sorted(_levels(both, setup, runs)):
                if _masters(setup, level):
                    still.append(level)
                elif scaled and not _unscaled_anyway(setup, level):
                    bare.append(level)
        asked = atoms(plain(_locally(side, module, call, side.predicates.places(chain)[-1])))
        matter = {a: v for a, v in minimal(runs, found).items() if a in asked}
        if (_variables(side, module, call, chain) - atoms(plain(on))) & set(matter):
            continue  # whose values are not seen: one may say the same as a flag of the set-up
        where = " and ".join(_reasons(side, module, call, chain, runs))
        parts = []
        if still:
            parts.append(
                f"under {_list(still)} the step then left all half weights as they were, as their float32 masters get gradients "
                "from amp.scale_loss alone (what was kept in float32, as batch norm, was trained); now it trains them"
            )
        if bare:
            parts.append(
                f"under {_list(bare)} it trained without loss scaling, so that small float16 gradients may have been lost; now the "
                "loss is scaled"
            )
        if parts:
            message = (
                f"Apex was set up, and the loss not scaled here{f' where {where}' if where else ''}: {'; '.join(parts)}"
            )
            yield Doubt(module.path, call.lineno, "AMP532", "backward", message, "review")
            return


def _reasons(side: Side, module: Module, call: ast.Call, chain: Chain, runs: Formula) -> Iterator[str]:
    """Why some runs came to a plain backward and not to the scaled one beside it: parts of tests, as they are written."""
    place = side.predicates.places(chain)[-1]
    shared = [
        {*side.chains.tests(module, c)}
        for c in module.calls()
        if syntax.text(c.func).rpartition(".")[2] == "scale_loss"
        and module.function_around(c) is module.function_around(call)
    ]
    for test, came in side.chains.tests(module, call):
        if all((test, came) in tests for tests in shared) or side.predicates.under([(test, came)], place) is True:
            continue  # no reason, or one in every run
        may = [
            _written(part, holds, plain(side.predicates.of(part, place)))
            for part, holds in _parts(test, came)
            if _may_hold(conjunction([runs, plain(side.predicates.under([(part, holds)], place))]))
        ]
        if may:
            yield may[0] if len(may) == 1 else f"({' or '.join(may)})"


def _parts(test: ast.expr, came: bool) -> Iterator[tuple[ast.expr, bool]]:
    """The parts of a test each of which alone has it come out so."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand, not came)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or if came else ast.And):
        for value in test.values:
            yield from _parts(value, came)
    else:
        yield test, came


def _written(part: ast.expr, holds: bool, meant: Formula) -> str:
    """How a part of a test is named: a variable by the flag that it holds, anything else as it is written."""
    text = meant if isinstance(part, ast.Name) and isinstance(meant, str) else syntax.text(part)
    if holds or isinstance(part, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return text if holds else f"not {text}"
    return f"not ({text})"


def _variables(side: Side, module: Module, call: ast.Call, chain: Chain) -> set[str]:
    """The variables that tests before a call come down to, and whose values are not seen on a way there."""
    place = side.predicates.places(chain)[-1]
    read = (n for test, _ in side.chains.tests(module, call) for n in syntax.walk(test))
    ends = (side.predicates.trails.unseen(n, place) for n in read if isinstance(n, (ast.Name, ast.Attribute)))
    return {name for name in ends if name is not None}


def _list(levels: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(levels))


def _may_hold(formula: Formula) -> bool:
    return len(atoms(formula)) > ATOMS or example(formula) is not None


def _levels(both: Mixed, setup: SetUp, runs: Formula) -> Iterator[str]:
    """The levels but O0 that some runs may have at a set-up."""
    side = both.before
    level = asked_level(side.values, setup.module, setup.call) if setup.name == INITIALIZE else None
    for asked in (setup.levels if setup.known else LEVELS) - {"O0"}:
        if level is None or isinstance(level, ast.Constant):
            yield asked
            continue
        test = ast.copy_location(ast.Compare(left=level, ops=[ast.Eq()], comparators=[ast.Constant(asked)]), level)
        for way in side.chains.to(setup.module, setup.call):
            if _may_hold(conjunction([runs, plain(side.predicates.of(test, side.predicates.places(way)[-1]))])):
                yield asked
                break


def _masters(setup: SetUp, level: str) -> bool:
    """Whether the optimizers of a set-up step float32 masters at a level."""
    if setup.name != INITIALIZE or argument(setup.call, "optimizers", 1) is None:
        return False
    asked = argument(setup.call, "master_weights", MASTERS)
    given = asked.value if isinstance(asked, ast.Constant) else None
    return level in ("O2", "O3") and (level == "O2" if given is None else given in (True, "True"))


def _unscaled_anyway(setup: SetUp, level: str) -> bool:
    """Whether `scale_loss` scaled nothing either."""
    asked = argument(setup.call, "loss_scale", SCALE)
    if asked is None or (isinstance(asked, ast.Constant) and asked.value is None):
        return level == "O3"
    return isinstance(asked, ast.Constant) and asked.value in (1, "1.0", "1")


def _scales(both: Mixed) -> Formula:
    """When some scaler of the program after is enabled."""
    parts: list[Formula] = [False]
    for module in both.after.modules:
        if "GradScaler" in module.words:
            for call, name in calls_in(both.review.after, module, GRAD_SCALER):
                enabled = argument(call, "enabled", GRAD_SCALER[name])
                place = both.after.predicates.trails.anywhere(module.scope_of(call))
                parts.append(True if enabled is None else plain(both.after.predicates.of(enabled, place)))
    return disjunction(parts)


def _without_effect(review: Review, change: Change, told: set[Function | None]) -> Iterator[Doubt]:
    """A parameter with a default that chose whether to scale, and that a function reads no more."""
    for function in change.after.functions:
        old = change.function_before(function)
        if old is None or old in told or "scale_loss" not in change.before.source(old.node):
            continue  # to look into the file's own text is quicker, though comments are in it
        unread = ({p.arg for p in function.parameters} & {p.arg for p in old.parameters}) - _read(function)
        if not unread or "scale_loss" not in syntax.text(old.node):
            continue
        for name in sorted(unread):
            default = old.defaults.get(name)
            if isinstance(default, ast.Constant) and isinstance(default.value, bool) and name in _read(old):
                message = f"{function.name} reads its parameter {name} no more: it chose whether the loss is scaled"
                yield review.doubt(change.after, function.node, "AMP532", name, message, "look")


def _read(function: Function) -> set[str]:
    return {n.id for n in syntax.every(function.node, ast.Name) if isinstance(n.ctx, ast.Load)}
