"""`amp.initialize`, `with amp.scale_loss` and steps as they are written: their arguments, targets and names."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property

from amp_migrate.reading.program.definitions import elements, is_none, unpacked_list
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import LOOP_NODES, WITH_NODES, Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.stand_ins import TAKEN
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.inner_clip import InnerClip
from amp_migrate.reading.units.numbered_levels import allowed
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.listed import Listed, listed
from amp_migrate.reading.values.unpacked import Unpacked, unpacked

LEVELS = frozenset(("O0", "O1", "O2", "O3"))


class Blocked(Exception):
    """A unit that must be left alone, and why."""

    def __init__(self, module: Module, node: ast.AST, code: str, construct: str, message: str) -> None:
        super().__init__(message)
        self.module = module
        self.node = node
        self.code = code
        self.construct = construct
        self.message = message

    @classmethod
    def at(cls, site: Site, code: str, message: str, node: ast.AST | None = None) -> Blocked:
        """The same for a site of Apex, or for something in it."""
        return cls(site.module, node or site.call or site.node, code, site.construct, message)


class AddsToEach(Blocked):
    """Code that adds to the gradients of every micro-batch, and can be given the loss scale where it stands."""


class ReadsEach(Blocked):
    """A backward that may add to gradients which were read, and unscaled for that, at `places`."""

    def __init__(self, at: tuple[Module, ast.AST], message: str, places: tuple[tuple[Module, ast.AST], ...]) -> None:
        super().__init__(*at, "AMP307", "unscale_", message)
        self.places = places


class NeverOn(Blocked):
    """Code that only runs in programs without mixed precision: nothing that calls it sets it up."""


@dataclass(eq=False)
class Init:
    """One `amp.initialize` call with its arguments by name."""

    project: Project
    site: Site
    call: ast.Call
    arguments: dict[str, ast.expr]
    model_targets: list[ast.expr]
    optimizer_targets: list[ast.expr]
    spread: Unpacked | None = None  # the mapping whose entries are only known at run time
    held: Listed | None = None  # the list that its models and optimizers come from: `initialize(*things)`

    NAMES = tuple(TAKEN["apex.amp.initialize"])

    seeds: set[Slot] = field(default_factory=set)  # further places where its models live
    handles: list[ast.expr] = field(default_factory=list)  # what holds the handle that `amp.init` returned
    halving: list[tuple[Module, ast.Call]] = field(default_factory=list)  # what makes its models half by hand
    scaling: list[tuple[Module, ast.stmt]] = field(default_factory=list)  # the statements that scale its losses
    together: bool = False  # whether O0 switches its scaler off as well, since a second switch cannot be handed along

    @property
    def module(self) -> Module:
        return self.site.module

    @property
    def stmt(self) -> ast.stmt:
        """The statement whose place the scaler takes."""
        return self.site.stmt

    @property
    def models(self) -> list[ast.expr]:
        return elements(self.arguments.get("models"))

    @property
    def brings_scale(self) -> bool:
        """Whether it makes a loss scale for its optimizer alone."""
        return False

    @property
    def inner_clip(self) -> InnerClip | None:
        """The clipping that its optimizer did inside of the step."""
        return None

    @property
    def optimizers(self) -> list[ast.expr]:
        found = self.arguments.get("optimizers")
        if found is None or is_none(found):
            return []
        return elements(found)

    def item(self, node: ast.expr) -> ast.expr:
        """What an item of the list is that it is given, `things[0]`; any other expression stands for itself."""
        held = self.held
        if held is None or not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
            return node
        place = node.slice.value
        if not isinstance(place, int) or not 0 <= place < len(held.items):
            return node
        named = isinstance(node.value, ast.Name) and node.value.id == held.name.id
        return held.items[place] if named and self.module.scope_of(node) is self.site.scope else node

    def stands_below(self, module: Module, call: ast.Call) -> bool:
        """Whether a call of its scope stands above it, and no loop that holds both comes to that again."""
        loops = {a for a in self.module.ancestors(self.call) if isinstance(a, LOOP_NODES)}
        return call.lineno < self.call.lineno and loops.isdisjoint(module.ancestors(call))

    def stands_above(self, module: Module, node: ast.AST) -> bool:
        """Whether a place of its scope stands below it, and every loop around it is around that, too."""
        loops = {a for a in self.module.ancestors(self.call) if isinstance(a, LOOP_NODES)}
        return self.stmt.lineno < module.statement(node).lineno and loops.issubset(module.ancestors(node))

    def constants(self, name: str) -> frozenset[object] | None:
        """What an argument may be, None where it is left out; None where that is more than constants."""
        node = self.arguments.get(name)
        return frozenset((None,)) if node is None else self.project.once(Values).constants(self.module, node)

    def only(self, name: str) -> object:
        """The one value that an argument may have; None where it is left out, Ellipsis where it may have several."""
        found = self.constants(name)
        return next(iter(found)) if found is not None and len(found) == 1 else ...

    @property
    def levels(self) -> frozenset[str]:
        """The opt levels that may occur; all of them where the program leaves it open."""
        if "opt_level" not in self.arguments:
            return LEVELS if self.spread is not None else frozenset(("O1",))
        levels = frozenset(v.upper() for v in self.constants("opt_level") or () if isinstance(v, str)) & LEVELS
        return (levels or LEVELS) & self.allowed_levels or LEVELS

    @property
    def allowed_levels(self) -> frozenset[str]:
        """The opt levels that what is asked above the call leaves."""
        level = self.arguments.get("opt_level")
        return allowed(self.project, self.module, self.call, level) if level is not None else LEVELS

    def literal(self, name: str) -> object:
        """The value of an argument as it is written; None where absent, Ellipsis where computed."""
        node = self.arguments.get(name)
        return None if node is None else node.value if isinstance(node, ast.Constant) else ...


@dataclass(eq=False)
class Loss:
    """One `with amp.scale_loss(...) as scaled:` statement; or, without `item`, a call of an FP16_Optimizer's `backward`."""

    site: Site
    call: ast.Call
    with_stmt: ast.stmt
    item: ast.withitem | None
    loss: ast.expr
    optimizers: list[ast.expr]
    alias: str | None

    @property
    def module(self) -> Module:
        return self.site.module

    @property
    def delay_unscale(self) -> ast.expr | None:
        return self.site.argument(4, "delay_unscale")


@dataclass(eq=False)
class Step:
    """One `optimizer.step()` of an optimizer that Apex handles."""

    module: Module
    call: ast.Call
    optimizer: ast.expr
    stmt: ast.stmt
    # Of a call that steps, or of a function called before the step, where this is the step seen from there:
    text: str = ""  # the optimizer as it is written there
    within: Step | None = None  # the step in the function that is called
    each: str = ""  # the header of a loop over the optimizers, where the function called steps several
    home: Module | None = None  # where `optimizer` stands
    passed: bool = False  # whether the scaler is asked for by place, not by the optimizer
    kept: ast.Assign | None = None  # what gives the step another name, which is only called: `advance = optimizer.step`

    @cached_property
    def scope(self) -> Scope:
        return self.module.scope_of(self.call)

    @property
    def name(self) -> str:
        """The optimizer as code."""
        return self.text or self.module.source(self.optimizer)

    @property
    def root(self) -> Step:
        """The step itself, whichever functions this is seen through."""
        return self if self.within is None else self.within.root


def read_init(project: Project, site: Site) -> Init | None:
    """The `initialize` call of a site; None where the name is not called.

    Raises Blocked where its arguments cannot be told apart.
    """
    call = site.call
    if call is None:
        return None
    arguments: dict[str, ast.expr] = {}
    open_: list[Unpacked] = []
    things = unpacked_list(site.module, call)
    held = listed(site.module, things) if things is not None else None
    for name, value in zip(Init.NAMES, call.args if held is None else held.items, strict=False):
        if isinstance(value, ast.Starred):
            unseen = f"the arguments of initialize come from *{ast.unparse(value.value)}, whose items are not in sight"
            raise Blocked.at(site, "AMP111", f"{unseen}: write them out")
        arguments[name] = value
    for keyword in call.keywords:
        if keyword.arg is not None:
            arguments[keyword.arg] = keyword.value
            continue
        spread = unpacked(site.module, keyword.value)
        if spread is None or (open_ and spread.mapping is not None):
            raise Blocked.at(
                site,
                "AMP111",
                f"the arguments of initialize come from **{ast.unparse(keyword.value)}, whose contents are not in sight; "
                "write them out, or put them into one variable first, from which the settings can be read",
            )
        arguments.update(spread.known)
        open_ += [spread] if spread.mapping is not None else []
    for spread in open_:
        if missing := [one for one in ("models", "optimizers") if one not in arguments]:
            mapping, them = (
                ast.unparse(next(k.value for k in call.keywords if k.arg is None)),
                "it" if missing[1:] == [] else "them",
            )
            raise Blocked.at(
                site,
                "AMP111",
                f"whether **{mapping} holds {' and '.join(missing)} cannot be told; write {them} out (optimizers=None where there is "
                "none)",
            )
        arguments.update(spread.reads(site.module, set(arguments)))
    models, optimizers = _targets(site, call, arguments)
    return Init(project, site, call, arguments, models, optimizers, open_[0] if open_ else None, held)


def _targets(site: Site, call: ast.Call, arguments: dict[str, ast.expr]) -> tuple[list[ast.expr], list[ast.expr]]:
    parent = site.module.parents.get(call)
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
        return [], []
    target = parent.targets[0]
    optimizers = arguments.get("optimizers")
    if optimizers is None or is_none(optimizers):
        return elements(target), []
    if isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == 2:
        return elements(target.elts[0]), elements(target.elts[1])
    return [], []


def read_loss(site: Site, optimizers: list[ast.expr] | None = None) -> Loss | None:
    """The `with` statement of a scale_loss site; None where it is used in another way. `optimizers`: where it names none."""
    call, loss = site.call, site.argument(0, "loss")
    item = site.module.parents.get(call) if call is not None else None
    if call is None or loss is None or not isinstance(item, ast.withitem):
        return None
    with_stmt = site.module.parents[item]
    assert isinstance(with_stmt, WITH_NODES)
    alias = item.optional_vars.id if isinstance(item.optional_vars, ast.Name) else None
    given = elements(site.argument(1, "optimizers")) if optimizers is None else optimizers
    return Loss(site, call, with_stmt, item, loss, given, alias)
