"""No autocast region reaches an operation that autocast refuses: `binary_cross_entropy`, `BCELoss`.

Every call of one is followed up through its callers, loss classes and models included, to the regions around them. A
region that stood there before the migration is the program's own. Not proved: losses chosen out of sight.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.dtypes import REFUSED
from amp_migrate.audit.kept import kept
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.targets import assignments
from amp_migrate.audit.review import Review, calls_of, mentions
from amp_migrate.audit.ways.formulas import conjunction, example
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP533",
        title="an autocast region reaches an operation that autocast refuses",
        construct="binary_cross_entropy",
        apex="O2 gave the models' outputs in float32, so `BCELoss` worked; O1 took float32 inputs.",
        native="`binary_cross_entropy_with_logits`, or the loss outside of the region on `.float()` inputs.",
        why="Autocast raises a RuntimeError at `binary_cross_entropy`, whatever comes in.",
    ),
)


def check(review: Review) -> Iterable[Doubt]:
    if not any("autocast" in c.after.text for c in review.changes.values()):
        return
    both = mixed(review)
    uses = [(module, call, sure, (module, call)) for module, call, sure in _uses(both)]
    for module, call, sure, (home, computed) in [*uses, *_by_value(both)]:
        for chain in both.after.chains.to(module, call):
            region = both.in_region(chain)
            if region is False:
                continue
            if example(conjunction([region, both.after.predicates.given(chain)])) is None:
                continue
            old = both.chain_before(chain)
            if old is not None and both.own_region(old) is not False:
                continue
            if not any(s.module.path in review.changes for s in chain.steps):
                continue
            certain = sure and both.after.chains.certain(chain)
            verdict: Verdict = "refuse" if certain else "review"
            place, node = module, call
            if module.path not in review.changes:  # what a changed file reaches is told there
                step = next(s for s in reversed(chain.steps) if s.module.path in review.changes)
                place, node = step.module, step.node  # type: ignore[assignment]
            what = f"{syntax.text(call.func)} (line {review.line(module, call)} of {module.path})"
            is_bce = "is" if sure else "may be"
            message = (
                f"autocast refuses binary_cross_entropy, and {what} {is_bce} one that the autocast region reaches: it "
                "raises a RuntimeError; use binary_cross_entropy_with_logits, or leave the region and cast to float32 first"
            )
            doubt = review.doubt(place, node, "AMP533", "binary_cross_entropy", message, verdict, ("AMP505",))
            yield replace(doubt, remedy=(home.path, review.line(home, computed)))
            break


def _uses(both: Mixed) -> Iterator[tuple[Module, ast.Call, bool]]:
    """Calls that run one of them, and whether that is sure."""
    program = both.review.after
    names: set[str] = set()
    made: dict[ast.AST, Module] = {}
    for module, call, name in calls_of(program, *REFUSED):
        if name == "torch.nn.BCELoss":
            made[call] = module
            names.add("BCELoss")
        else:
            yield module, call, True
    yield from ((module, call, True) for module, call in _derived(both))
    for module, node in _chosen(both):
        made[node] = module
        names.add("BCELoss")
    yield from _called(both, dict(_functions(both)))
    yield from _of_class(both, made)
    if not made:
        return
    for node, home in made.items():
        parent = home.parents.get(node)
        if isinstance(parent, ast.Call) and parent.func is node:  # nn.BCELoss()(output, target)
            yield home, parent, True
    yield from _kept(both, made)
    yield from _handed_out_of_sight(both, made)
    yield from _called(both, made)
    for forward in both.after.forwards.among(names):
        found = both.after.forwards.identities(forward)
        if any(i[0] in made for i in found):
            yield forward.module, forward.call, all(i[0] in made and isinstance(i[0], ast.Call) for i in found)


def _of_class(both: Mixed, made: Collection[ast.AST]) -> Iterator[tuple[Module, ast.Call, bool]]:
    """The calls of objects that are made of a class which is kept as a value: `losses = {"bce": nn.BCELoss}` in a class body."""
    for module in both.after.modules if any("BCELoss" in m.words for m in both.after.modules) else ():
        for forward in both.after.forwards.of(module):
            if len(syntax.given(forward.call)) > 1 and forward.method is None:
                kinds = both.after.values.instances.of(forward.scope, forward.model)
                known = any(i[0] in made for i in both.after.forwards.identities(forward))
                if "torch.nn.BCELoss" in kinds and not known:
                    yield module, forward.call, len(kinds) == 1


def _derived(both: Mixed) -> Iterator[tuple[Module, ast.Call]]:
    """What a loss of the program's own that derives from one asks of it: `super().forward(output, target)`."""
    program = both.review.after
    for module in both.after.modules:
        for name in ("forward", "__call__"):
            for call, holder in module.method_calls(name):
                made = isinstance(holder, ast.Call) and syntax.text(holder.func) == "super"
                function = module.function_around(call) if made else None
                owner = function.owner if function is not None else None
                up = program.family_up(owner) if owner is not None else []
                if any("torch.nn.BCELoss" in program.external_bases(c) for c in up):
                    yield module, call


def _functions(both: Mixed) -> Iterator[tuple[ast.AST, Module]]:
    """The function itself as a value: `{"bce": F.binary_cross_entropy}`, `partial(F.binary_cross_entropy, ...)`."""
    for module in both.after.modules:
        if "binary_cross_entropy" not in module.words:
            continue
        for node, name in mentions(both.review.after, module, "torch."):
            parent = module.parents.get(node)
            if (
                name not in REFUSED
                or name == "torch.nn.BCELoss"
                or (isinstance(parent, ast.Call) and parent.func is node)
            ):
                continue
            yield node, module
            if isinstance(node, ast.Name):  # followed to what brings the name, with others perhaps
                froms = (s for s in syntax.every(module.tree, ast.ImportFrom) if s.module == "torch.nn.functional")
                yield from ((s, module) for s in froms if any(f"torch.nn.functional.{a.name}" == name for a in s.names))
            if isinstance(parent, ast.Call) and syntax.last(parent.func) in ("partial", "staticmethod"):
                yield parent, module


def _by_value(both: Mixed) -> Iterator[tuple[Module, ast.Call, bool, tuple[Module, ast.Call]]]:
    """The calls of functions that compute one and are kept as values, `LOSSES[name](x, y)`, and where those do."""
    program = both.review.after
    made: dict[ast.AST, tuple[Module, ast.Call]] = {}
    for module, computed, name in calls_of(program, *REFUSED):
        if name == "torch.nn.BCELoss":
            continue
        for chain in both.after.chains.to(module, computed):
            around = (both.after.regions.nearest(s.module, s.node) for s in chain.steps)
            if any(region is not None and region.off for region in around):
                continue
            for function in dict.fromkeys(s.function for s in chain.steps if s.function is not None):
                made[function.node] = module, computed
                made.update((node, (module, computed)) for _, node in program.mentions(function))
        inner = next((n for n in module.ancestors(computed) if isinstance(n, (ast.Lambda, ast.FunctionDef))), None)
        if isinstance(inner, ast.Lambda):
            made[inner] = module, computed
    for module, call, found in _calling(both, made):
        for node in dict.fromkeys(n for n in found if n in made):
            where = (module, call) if isinstance(node, ast.Lambda) else made[node]  # in which nothing can stand
            yield module, call, all(n in made for n in found), where


def _called(both: Mixed, made: dict[ast.AST, Module]) -> Iterator[tuple[Module, ast.Call, bool]]:
    """The calls of what containers hold, whatever that is named there: `sum(f(x, y) for f in self.losses.values())`."""
    for module, call, found in _calling(both, made):
        yield module, call, all(n in made and not _one_of_several(n) for n in found)


def _calling(both: Mixed, made: Collection[ast.AST]) -> Iterator[tuple[Module, ast.Call, list[ast.AST]]]:
    """The calls of values one of which is among those given, with all that they may be."""
    for module, call, found in _of_values(both) if made else ():
        if any(n in made for n in found):
            yield module, call, found


@kept
def _of_values(both: Mixed) -> list[tuple[Module, ast.Call, list[ast.AST]]]:
    """The calls, with as much as a loss is given, of what is no name of something: of what a variable or container holds."""
    program, values = both.review.after, both.after.values
    calls: list[tuple[Module, ast.Call, list[ast.AST]]] = []
    for module in both.after.modules:
        for call in module.calls():
            scope = module.scope_of(call)
            if len(call.args) + len(call.keywords) < 2 or not isinstance(
                call.func, (ast.Name, ast.Attribute, ast.Subscript)
            ):
                continue
            run = program.callees(module, call)
            if program.dotted(scope, call.func) is not None or (
                run and not any(_unfollowed(program, f, call) for f in run)
            ):
                continue
            calls.append((module, call, [o.node for o in values.instances.called(scope, call.func)]))
    return calls


def _unfollowed(program: Program, function: Function, call: ast.Call) -> bool:
    """Whether a call runs a function, as an entry of a table, and is none of those by which ways come to it."""
    return all(known is not call for _, known in program.callers(function))


def _one_of_several(node: ast.AST) -> bool:
    """Whether a node is known to stand for it only among others: a class that a test may choose, an import."""
    return isinstance(node, ast.ImportFrom) or (isinstance(node, ast.expr) and syntax.last(node) == "BCELoss")


def _handed_out_of_sight(both: Mixed, made: dict[ast.AST, Module]) -> Iterator[tuple[Module, ast.Call, bool]]:
    """The calls of a parameter of a function that is handed on as a value (`partial(train, model)(criterion)`), where what
    the program keeps by the name of the parameter is one of them."""
    kept: dict[str, list[bool]] = {}
    for module in both.after.modules:
        for target, value, _ in assignments(module):
            if isinstance(target, ast.Name):
                kept.setdefault(target.id, []).append(value in made)
    named = {name for name, given in kept.items() if any(given)}
    for forward in both.after.forwards.among(named) if named else ():
        function, model = forward.module.function_around(forward.call), forward.model
        if function is None or not isinstance(model, ast.Name) or model.id not in named:
            continue
        if model.id in {p.arg for p in function.parameters} and both.review.after.mentions(function):
            yield forward.module, forward.call, all(kept[model.id])


def _kept(both: Mixed, made: dict[ast.AST, Module]) -> Iterator[tuple[Module, ast.Call, bool]]:
    """The calls of `self.loss = nn.BCELoss()` in the class that makes it and in those that derive from it."""
    program = both.review.after
    for home in dict.fromkeys(made.values()):
        kept: dict[tuple[Class, str], list[ast.expr | None]] = {}
        for target, value, _ in assignments(home):
            if isinstance(target, ast.Attribute) and (cls := program.is_self(home.scope_of(target), target.value)):
                kept.setdefault((cls, target.attr), []).append(value)
        for (owner, name), values in kept.items():
            if not any(n in made for v in values if v is not None for n in syntax.walk(v)):
                continue
            for cls in program.family(owner):
                for call, holder in cls.module.method_calls(name) if owner in program.family_up(cls) else ():
                    if program.is_self(cls.module.scope_of(call), holder) is cls:
                        yield cls.module, call, all(v in made for v in values)


def _chosen(both: Mixed) -> Iterator[tuple[Module, ast.AST]]:
    """`{"bce": nn.BCELoss, ...}[name]()`: the call that makes one of several losses."""
    program, values = both.review.after, both.after.values
    for module in both.after.modules:
        if "BCELoss" not in module.text:
            continue
        for call in module.calls():
            if (
                isinstance(call.func, (ast.Subscript, ast.Name))
                and program.dotted(module.scope_of(call), call.func) is None
            ):
                for origin in values.origins(module.scope_of(call), call.func):
                    node = origin.node
                    if isinstance(node, ast.Attribute) and node.attr == "BCELoss":
                        yield module, call
