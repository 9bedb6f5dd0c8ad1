"""Whole or not at all: what belongs to a unit that stays with Apex stays with Apex too.

Proves: where an `amp.initialize` or an `FP16_Optimizer` is still there, the optimizers and models that it is given were not
made anew by the migration, no wrapper of them (LARC, DistributedDataParallel) was replaced, and no function was taken from
the casts that Apex has been told of. A class that objects of Apex's are told by stays as long as they are made, and goes
with all of them.

Cannot prove: objects that reach Apex on ways that `values.py` does not follow. Not asked with `--partial`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import product

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review, names_called
from amp_migrate.audit.sites.kept_wrappers import WRAPPERS, replaced_wrappers, same_call
from amp_migrate.audit.sites.setups import FP16_OPTIMIZER, setups
from amp_migrate.audit.ways.chains import Chain
from amp_migrate.audit.ways.formulas import conjunction, example
from amp_migrate.findings import Code

# FP16_Optimizer of these hands the norms of the gradients to the step of the optimizer it was given.
NORMED = ("apex.optimizers.FP16_Optimizer", "apex.contrib.optimizers.FP16_Optimizer")
CODES = (
    Code(
        code="AMP135",
        title="A part of a program that stays with Apex",
        construct="optimizers, LARC, DistributedDataParallel, registrations",
        apex="amp.initialize accepts torch's optimizers and Apex's own LARC; FP16_Optimizer calls its optimizer with arguments "
        "of its own; registrations act on what initialize patches.",
        native="Nothing: while the rest stays with Apex, this stays too.",
        why="Code that mixes Apex and native AMP for one optimizer is never written.",
    ),
)

KEEPERS = {"apex.amp.initialize": (0, 1), **dict.fromkeys(FP16_OPTIMIZER, (0,))}
REGISTRATIONS = tuple(
    f"apex.amp.{n}" for n in ("register_half_function", "register_float_function", "register_promote_function")
)
# Classes by which programs tell what Apex made.
TYPES = (
    *WRAPPERS,
    *(f"apex.optimizers.{n}" for n in ("FusedAdam", "FusedSGD", "FusedAdagrad", "FusedLAMB", "FusedNovoGrad")),
    *(
        f"apex.normalization.{n}"
        for n in ("FusedLayerNorm", "FusedRMSNorm", "MixedFusedLayerNorm", "MixedFusedRMSNorm")
    ),
    "apex.parallel.SyncBatchNorm",
)


def check(review: Review) -> Iterable[Doubt]:
    yield from _types(review)
    yield from _told_apart(review)
    yield from _handles(review)
    if review.wish.partial:
        return
    keepers = list(_keepers(review))
    yield from _left_behind(review)
    yield from _without_norms(review)
    if not keepers:
        return
    yield from _in_one_process(review)
    anew = list(_made_anew(review, keepers))
    said = {(d.path, d.line) for d in anew}
    yield from anew
    yield from (d for d in replaced_wrappers(review) if (d.path, d.line) not in said)
    if not _initialized(review):
        yield from _registrations(review, keepers)


def _handles(review: Review) -> Iterator[Doubt]:
    """`amp.init` that stays where no loss is scaled any more: it keeps half copies of the weights until one is."""
    scales = {m.path for m, _, _ in review.calls_before("apex.amp.scale_loss")}
    scales -= {m.path for m, _, _ in review.calls_after("apex.amp.scale_loss")}
    for module, call, _ in review.calls_after("apex.amp.init"):
        if module.path in scales:
            message = "left with Apex: amp.init still patches torch here, and casts with weights that only scale_loss refreshed"
            yield review.doubt(module, call, "AMP135", "amp.init", message)


def _without_norms(review: Review) -> Iterator[Doubt]:
    """An optimizer of Apex's that limits norms inside of its step, while the FP16_Optimizer that measured them goes."""
    for module, call, name in review.calls_before(*NORMED):
        given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "init_optimizer"), None)
        if given is None or same_call(review, module, call, name):
            continue
        for origin in sorted(review.values_before.of(module, given), key=lambda o: (o.module.path, o.line)):
            home, new = review.statement_now(origin.module, origin.node) or (origin.module, None)
            program = review.before if home is origin.module else review.after
            for node in syntax.every(new, ast.Call) if new is not None else ():
                maker = program.dotted(home.scope_of(node), node.func) or ""
                limits = any(k.arg == "max_grad_norm" for k in node.keywords)
                if limits and maker.startswith("apex.") and maker.endswith(".FusedAdam"):
                    message = "left with Apex: FusedAdam limits norms that FP16_Optimizer hands to its step, and raises without them"
                    yield Doubt(module.path, call.lineno, "AMP135", "FP16_Optimizer", message)


def _types(review: Review) -> Iterator[Doubt]:
    """Apex's class as a type, in `isinstance` or a tuple for it, that is torch's now while Apex's are still made."""
    made = {name.rpartition(".")[2] for _, _, name in review.calls_after(*TYPES)}
    for before in review.before.using(made):
        change = review.changes.get(before.path)
        if change is None:
            continue
        for node in syntax.walk(before.tree):
            if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
                continue
            parent = before.parents.get(node)
            if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node):
                continue
            name = review.before.dotted(before.scope_of(node), node)
            if name not in TYPES or name.rpartition(".")[2] not in made:
                continue
            stmt = change.back.get(before.statement(node))
            if stmt is None or not any(
                isinstance(n, (ast.Name, ast.Attribute)) and review.after.dotted(change.after.scope_of(n), n) == name
                for n in syntax.walk(stmt)
            ):
                what = name.rpartition(".")[2]
                message = f"left with Apex: Apex's {what} is still made, and would be no instance of what stands here"
                yield Doubt(before.path, getattr(node, "lineno", 1), "AMP135", what, message)


def _told_apart(review: Review) -> Iterator[Doubt]:
    """The other way round: what was made of Apex's and is torch's now, while a test still asks for Apex's class alone."""
    asked: dict[str, str] = {}
    for module in review.after.using(TYPES):
        for call in module.calls_named.get("isinstance", ()):
            named = syntax.walk(call.args[1]) if len(call.args) == 2 else ()
            names = {
                review.after.dotted(module.scope_of(n), n) for n in named if isinstance(n, (ast.Name, ast.Attribute))
            }
            if any((n or "").startswith("torch") for n in names):
                continue  # it asks for both
            for name in names & set(TYPES):
                asked.setdefault(name or "", f"{module.path}:{review.line(module, call)}")
    for module, call, name in review.calls_before(*asked) if asked else ():
        if not same_call(review, module, call, name):
            what = name.rpartition(".")[2]
            message = f"left with Apex: {asked[name]} tells it by Apex's {what}, which torch's is no instance of"
            yield Doubt(module.path, call.lineno, "AMP135", what, message)


def _keepers(review: Review) -> Iterator[tuple[Module, ast.Call, list[ast.expr]]]:
    """Calls of Apex after the migration that hold a unit together, with the models and optimizers they are given."""
    for module, call, name in review.calls_after(*KEEPERS):
        given = [call.args[i] for i in KEEPERS[name] if i < len(call.args)]
        given += [k.value for k in call.keywords if k.arg in ("models", "optimizers", "init_optimizer")]
        yield module, call, given


def _initialized(review: Review) -> bool:
    """Whether a unit was migrated: an `initialize` that went."""
    return len(list(review.calls_after("apex.amp.initialize"))) < len(list(review.calls_before("apex.amp.initialize")))


def _left_behind(review: Review) -> Iterator[Doubt]:
    """`scale_loss` that is still called, under whatever name, where every `initialize` went: it raises without one. Not that of
    a script which shares no process with the one that set up."""
    if any(review.calls_after("apex.amp.initialize")) or any(review.calls_after("apex.amp.init")):
        return
    gone = sorted(review.calls_before("apex.amp.initialize"), key=lambda c: (c[0].path, c[1].lineno))
    near, files = mixed(review).nearness, review.before.modules
    left = list(_scaled(review)) if gone else []
    for module, call, _ in gone if left else ():
        place = next((f"{m.path}:{line}" for m, line in left if near.together(module, files[m.path])), None)
        if place is not None:
            message = f"left with Apex: scale_loss is still used, at {place}, and raises where nothing was initialized"
            yield Doubt(module.path, call.lineno, "AMP135", "amp.initialize", message)


def _scaled(review: Review) -> Iterator[tuple[Module, int]]:
    """Where the program after uses `scale_loss`: called on whatever is Apex's module, or kept as a value. Not where it raised
    before as well, for nothing prepared its optimizer."""
    raising = _never_prepared(review)
    for module in review.after.using(["apex.amp.scale_loss"]):
        for node in syntax.walk(module.tree):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                name = review.after.dotted(module.scope_of(node), node)
                if module.statement(node) in raising:
                    continue
                if name == "apex.amp.scale_loss" and not _never_made(review, module, node):
                    yield module, review.line(module, node)
    for module, call, _ in review.calls_after("apex.amp.scale_loss"):
        if not _never_made(review, module, call) and module.statement(call) not in raising:
            yield module, review.line(module, call)


def _never_prepared(review: Review) -> set[ast.stmt]:
    """The statements (after) that scale a loss for optimizers which are made in sight, and which no `initialize` was given."""

    def made(calls: Iterator[tuple[Module, ast.Call, str]]) -> Iterator[tuple[Module, ast.Call, set[ast.AST]]]:
        for module, call, _ in calls:
            given = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "optimizers")]
            given = [e for x in given for e in (x.elts if isinstance(x, (ast.List, ast.Tuple)) else [x])]
            yield module, call, {o.node for e in given for o in review.values_before.of(module, e)}

    prepared = {n for *_, nodes in made(review.calls_before("apex.amp.initialize")) for n in nodes}
    made_in_sight = (
        isinstance(n, ast.Constant) or (isinstance(n, ast.Call) and syntax.text(n.func) != "getattr") for n in prepared
    )
    if not all(made_in_sight):  # lists that are filled, parameters, fields by name: any optimizer may be among them
        return set()
    found: set[ast.stmt] = set()
    for module, call, nodes in made(review.calls_before("apex.amp.scale_loss")):
        if nodes and nodes.isdisjoint(prepared) and all(isinstance(n, ast.Call) for n in nodes):
            place = review.statement_now(module, call)
            found |= {place[1]} if place is not None else set()
    return found


def _never_made(review: Review, module: Module, node: ast.AST) -> bool:
    """Whether a place stands in a method of a class whose name nothing says again: no run comes there."""
    function = module.function_around(node)
    owner = function.owner if function is not None else None
    if owner is None or any(owner.name in m.words for m in review.after.modules.values() if m is not module):
        return False
    said = (getattr(n, "id", None) or getattr(n, "attr", None) for n in syntax.walk(module.tree))
    return owner.name not in said


def _in_one_process(review: Review) -> Iterator[Doubt]:
    """A set-up that went where another one stays that patches torch (O1) in the same run.

    The half copies of weights that its patches keep are dropped by `scale_loss`, which the migrated part calls no more.
    """
    both = mixed(review)
    staying = [s for s in setups(review.after, review.values_after) if s.patches and not s.off]
    if not staying:
        return
    chains, predicates = both.after.chains, both.after.predicates
    stays = [(s, way) for s in staying for way in chains.to(s.module, s.call)]
    for gone in both.removed:
        if gone.name != "apex.amp.initialize":
            continue
        for way, (setup, other) in product(both.before.chains.to(gone.module, gone.call), stays):
            if not (_one_run(way, other) or _one_object(review, way, other)):
                continue
            given = [both.before.predicates.given(way, loops=False), predicates.given(other, loops=False)]
            if example(conjunction(given)) is not None:
                place = f"{setup.module.path}:{review.line(setup.module, setup.call)}"
                message = f"left with Apex: {place} still sets Apex up in the same run, and patches torch for all of it"
                yield Doubt(gone.module.path, gone.call.lineno, "AMP135", "amp.initialize", message)
                break


def _one_run(way: Chain, other: Chain) -> bool:
    """Whether one script comes by both places."""
    return not way.open and not other.open and way.start.module.path == other.start.module.path


def _one_object(review: Review, way: Chain, other: Chain) -> bool:
    """Whether both begin with methods of one class, called out of sight: an object of it may be asked for both."""
    first, second = way.start.function, other.start.function
    if not (way.open and other.open and first and second and first.owner and second.owner):
        return False
    ancestry = [
        [(c.module.path, c.qualname) for c in program.family_up(owner)]
        for program, owner in ((review.before, first.owner), (review.after, second.owner))
    ]
    return ancestry[0][0] in ancestry[1] or ancestry[1][0] in ancestry[0]


def _made_anew(review: Review, keepers: list[tuple[Module, ast.Call, list[ast.expr]]]) -> Iterator[Doubt]:
    for module, call, given in keepers:
        for expr in given:
            for origin in sorted(review.values_after.of(module, expr), key=lambda o: (o.module.path, o.line)):
                change = review.changes.get(origin.module.path)
                maker = review.values_after.maker(origin)
                if not isinstance(origin.node, ast.Call) or change is None or (maker or "").startswith("apex."):
                    continue
                was = change.was(origin.module.statement(origin.node))
                made = names_called(review.before, change.before, was) if was is not None else ()
                if maker not in made and any(name.startswith("apex.") for name in made):
                    yield review.doubt(
                        origin.module,
                        origin.node,
                        "AMP135",
                        syntax.text(origin.node.func),
                        f"left with Apex: {module.path}:{review.line(module, call)} still hands it to {syntax.text(call.func)}, "
                        "which takes what Apex made",
                    )


def _registrations(review: Review, keepers: list[tuple[Module, ast.Call, list[ast.expr]]]) -> Iterator[Doubt]:
    """Registrations that went although every `initialize` stays."""
    for module, call, name in review.calls_before(*REGISTRATIONS):
        if not same_call(review, module, call, name):
            where, keeper, _ = keepers[0]
            yield Doubt(
                module.path,
                call.lineno,
                "AMP135",
                f"amp.{name.rpartition('.')[2]}",
                f"left with Apex: {where.path}:{review.line(where, keeper)} still runs under Apex, which this registration is for",
            )
