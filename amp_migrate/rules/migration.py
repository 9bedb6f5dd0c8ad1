"""One unit on its way to native AMP: what the rules share. They read through it and write edits and findings into it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from amp_migrate.options import Options
from amp_migrate.reading.conditions.tests import excludes
from amp_migrate.reading.gradients.divisible import Divided
from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers, walk
from amp_migrate.reading.program.view import Folds
from amp_migrate.reading.regions.place import RegionReader
from amp_migrate.reading.regions.renewed import never_cast
from amp_migrate.reading.regions.set_up import SetUp
from amp_migrate.reading.scaler.from_users import FromUsers
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.scaler.left_out import left_out
from amp_migrate.reading.scaler.process_wide import LastHome, ProcessWide
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.sites.casts import is_cast
from amp_migrate.reading.switch.elsewhere import expanded, through_field, visible
from amp_migrate.reading.switch.flags import Flag, distinct, flag_around, guard_parts, init_flag, without_implied
from amp_migrate.reading.switch.folds import guard_folds, pair_folds
from amp_migrate.reading.switch.ways import on_the_way
from amp_migrate.reading.units.legacy import LegacyInit
from amp_migrate.reading.units.naming import free, scaler_stem
from amp_migrate.reading.units.native_switches import shared_switches
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.reading.units.unit import Blocked, Init, Unit
from amp_migrate.reading.values.bools import as_bool
from amp_migrate.rules.output import Output as Output
from amp_migrate.writing.edits import Edits
from amp_migrate.writing.style import Style

if TYPE_CHECKING:
    from amp_migrate.rules.carried_setting import CarriedSetting


class Migration:
    """The state of one unit's migration.

    `whole` is the unit with the losses that stay with Apex (`--partial`): they are computed under autocast all the same.
    `earlier` is what the units before it wrote: of code that it shares with them, they have decided the regions.
    `last_home` is the module at whose level the scaler lives, where it could not be handed over.
    `users` is why the unit has no set-up, where the users of a library are taken to have it.
    `helpers` are functions that run a forward, and stand in the regions of who calls them.
    `divided` are the gradients that are read divided by the loss scale, where no `unscale_` can come before.
    `folds` are the branches that die, `pairs` the plain counterparts of `master_params` calls in folded pairs.
    """

    def __init__(
        self,
        unit: Unit,
        options: Options,
        taken: Callable[[Scope], bool] = lambda _: False,
        whole: Unit | None = None,
        earlier: Output | None = None,
        last_home: LastHome | None = None,
        users: Blocked | None = None,
        divided: Divided | None = None,
        helpers: frozenset[Function] = frozenset(),
    ) -> None:
        self.unit = unit
        self.divided = divided or {}
        self.project: Project = unit.project
        self.options = options
        self.output = Output()
        self.earlier = earlier or Output()
        self.folds: dict[Module, Folds] = {}
        self.pairs: dict[ast.If, dict[ast.Call, ast.expr]] = {}
        own = set(unit.modules)
        for module in self.project.modules:
            self.folds[module] = guard_folds(self.project, module)
            if module in own:
                self.pairs.update(pair_folds(unit, module, self.folds[module]))
        self.regions = RegionReader(whole or unit, self.folds, taken, helpers)
        suffixes = unit.scaler_suffixes or {"": ""}
        others = self.earlier.wide if last_home is None else self.earlier.global_names
        others_here = {name for module, name in others if module in unit.modules}
        self.stem = scaler_stem(unit, suffixes.values(), others_here)  # what all its scalers are called
        self.scalers = [self._plan(f"{self.stem}{s}", text, last_home, users) for text, s in suffixes.items()]
        for plan in self.scalers:
            plan.alone = len(self.scalers) == 1
            plan.passed_by = lambda module, node: self.set_up.never_at(module, node)  # made once it is asked
        self.held: dict[tuple[ScalerPlan, str], CarriedSetting] = {}  # settings that go with a scaler
        self.until_then: list[tuple[Module, ast.stmt, str]] = []  # where an object is given a disabled scaler first
        self.created: list[Home] = []  # where scalers are created
        self.asked: dict[
            Module, dict[str, str]
        ] = {}  # what asks for an entry that has another key now, as it reads then
        self.float32: set[ast.stmt] = set()  # where a region would begin that is not written: nothing is half there
        self.casts = True  # whether anything of the unit runs under autocast in the end
        self.plain_steps: Collection[ast.Call] = ()  # those that stay, since no scaled backward comes before them
        self.updates: dict[Scope, list[ast.stmt]] = {}  # the statements after which the scale is updated
        self.idle_steps: Mapping[ast.Call, bool] = {}  # those some path has no backward for: whether gradients are gone
        self.computed_apart = (
            False  # whether what `scale_loss` was given ran a model, which now stands in a region above
        )
        self.switch: ScalerPlan | None = None
        self.switch_used = False

    def _plan(self, name: str, optimizer: str, last_home: LastHome | None, users: Blocked | None) -> ScalerPlan:
        if users is not None:
            return FromUsers(self.unit, name, optimizer, users)
        if last_home is not None:
            return ProcessWide(self.unit, name, optimizer, last_home)
        return ScalerPlan(self.unit, name, optimizer)

    # -- what is emitted -----------------------------------------------------------------------------------------

    @property
    def scales(self) -> bool:
        """Whether the unit needs a GradScaler: not for inference, not where no loss was scaled, not in bfloat16, not where it is
        off."""
        scaled = not self.unit.only_inference and not self.unit.plain_losses
        return self.options.dtype == "float16" and scaled and not self.written_off

    @cached_property
    def written_off(self) -> bool:
        """Whether all set-ups are written as off, `opt_level="O0"` or `enabled=False`, and nothing asks for a loss scale or for
        casts: torch alone does the same, with no region and no scaler."""
        flags = [init_flag(self.project, init) for init in self.unit.inits]
        asked = any(init.literal("loss_scale") not in (None, 1, "1", "1.0") for init in self.unit.inits)
        private = any("_amp_state" in module.text for module in self.unit.modules)
        casts = any(is_cast(site) for site in self.unit.sites)
        return bool(flags) and all(flag.never for flag in flags) and not (asked or private or casts)

    @property
    def plain(self) -> str:
        """Why a backward is a plain one where there is no scaler."""
        return "a plain backward: " + ("it was never scaled" if self.written_off else "bfloat16 needs no scaling")

    def style(self, module: Module) -> Style:
        return self.project.once(_style, module)

    def mended_lines(self, module: Module, code: str) -> set[int]:
        """The lines of a file at which the audit wants something written otherwise."""
        wanted = self.unit.mended.items()
        return {line for (path, line), codes in wanted if path == module.display and code in codes}

    def edit(self, module: Module) -> Edits:
        return self.output.edit(module)

    def torch(self, module: Module, scope: Scope) -> str:
        """How the file names torch; imports it where it does not."""
        name, stmt = self.style(module).torch_name(scope)
        if stmt is not None:
            self.edit(module).import_torch(stmt)
        return name

    def off(self, what: str, module: Module, scope: Scope) -> str:
        """`autocast` or `amp.GradScaler` of torch, without effect."""
        quote = self.style(module).quote
        return f"{self.torch(module, scope)}.{what}({quote}{self.options.device}{quote}, enabled=False)"

    def scaler_off(self, module: Module, scope: Scope) -> str:
        return self.off("amp.GradScaler", module, scope)

    def create(self, home: Home, lines: Sequence[str], until_then: Sequence[str]) -> None:
        """Put lines where a scaler is created; `until_then` above the branch that holds the place, if one does."""
        edits = self.edit(home.scope.module)
        if home.above is not None:
            edits.insert_before(home.above, *until_then)
        (edits.insert_after if home.after else edits.insert_before)(home.anchor, *lines)

    def autocast(self, module: Module, node: ast.AST) -> str:
        """The autocast call for a region at a node, with its `enabled` where there is a switch."""
        enabled = self.enabled_at(module, node)  # first: it may turn out that nothing can be written here
        scope = module.scope_of(node)
        torch = self.torch(module, scope)
        quote = self.style(module).quote
        text = f"{torch}.autocast({quote}{self.options.device}{quote}, dtype={torch}.{self.options.dtype}"
        return f"{text})" if enabled is None else f"{text}, enabled={enabled})"

    def enabled_at(self, module: Module, node: ast.AST) -> str | None:
        """The switch as it can be written at a node; None where mixed precision is always on."""
        scope = module.scope_of(node)
        if scope in self.unit.handed:
            try:
                return self._switch_at(module, node)
            except Blocked:
                if self.unit.handed[scope]:
                    raise
                del self.unit.handed[scope]
        flags = self._flags(scope)
        if self.scales and any(left_out(self.project, h) for h in self.scaler.governing(scope) if h.scope is not scope):
            return (self._without if self._runs_without(scope) else self._asked)(module, node)
        way = self._on_the_way(scope)
        if not flags or all(f.always for f in flags):
            if self.scales and self.scaler.given_sometimes and all(f.scope is not scope for f in flags):
                return self._asked(module, node)
            if self._runs_without(scope):
                return self._without(module, node)
            return as_bool(self.project, scope, " and ".join(way)) if way else None
        if len({f.text() for f in flags}) > 1:
            return self._asked(module, node)
        flag = self._asked_around(flags[0], module, node)
        if flag.always:
            return None
        if not flag.never and self._runs_without(scope):
            return self._without(module, node)
        seen = self._seen_from(flag, scope)
        if seen is not None and not flag.never:
            seen = " and ".join(without_implied(distinct([*way, seen])))
        read = any(i.spread is not None for i in self.unit.inits)  # out of a mapping: once, not at every region
        if flag.never or (seen is not None and flag.simple and not read):
            return as_bool(self.project, scope, seen or flag.text())
        held = self.scales and not self._scaling_off() and not any(h.idle for h in self.scaler.governing(scope))
        near = held and self.scaler.near(scope)
        if near or (held and seen is None and not (flag.simple and not read and self._at_hand(scope))):
            return self._asked(module, node)
        if seen is None:
            return self._switch_at(module, node)
        return as_bool(self.project, scope, seen)

    def _without(self, module: Module, node: ast.AST) -> str:
        """The switch where a program runs that sets nothing up: of a scaler that is there, and disabled for such a program,
        or handed along by itself."""
        threads = self.scaler.threads.values() if self.scales else ()
        apart = any(thread.apart or thread.stands_in for thread in threads)
        asks = apart and self.scaler.near(module.scope_of(node))
        return self._asked(module, node) if asks else self._switch_at(module, node)

    def _flags(self, scope: Scope) -> list[Flag]:
        """The switches of the scalers that govern a scope; those of the `initialize` calls where there is none."""
        return [h.flag for h in self.scaler.governing(scope)] or [
            flag_around(self.project, init) for init in self.unit.inits
        ]

    def _asked_around(self, flag: Flag, module: Module, node: ast.AST) -> Flag:
        """The switch without what the conditions around a node ask already, off where they exclude it; not those that go,
        as both branches are one."""
        if flag.parts is None or flag.scope is not module.scope_of(node):
            return flag
        asked: set[str] = set()
        for guard, parts in guard_parts(self.project, module, module.statement(node)):
            if guard in self.pairs:
                continue
            inside = {n for s in (*guard.body, *guard.orelse) for n in walk(s)}
            for part in parts or ():
                names = identifiers(ast.parse(part))
                if not any(b in inside for name in names for b in flag.scope.bindings.get(name, ())):
                    asked.add(ast.unparse(ast.parse(part)))
        if any(excludes(part, other) for part in flag.parts for other in asked):
            return Flag(flag.scope, None)
        return Flag(flag.scope, tuple(p for p in flag.parts if ast.unparse(ast.parse(p)) not in asked))

    def off_at(self, module: Module, node: ast.AST) -> bool:
        """Whether what is asked around a node excludes every switch, one at least of which is on in some runs."""
        flags = [f for f in self._flags(module.scope_of(node)) if not f.never]
        return bool(flags) and all(self._asked_around(f, module, node).never for f in flags)

    def _told_at(self, module: Module, node: ast.AST) -> str | None:
        """The switch as an argument where a node stands: evaluated there, or asked of an object in sight that keeps the
        scaler."""
        scope = module.scope_of(node)
        text = self.evaluated(scope)
        off = self._is_beside(scope) or self._runs_without(scope) or not self.scales or self._scaling_off()
        if text is not None or off:
            return text
        holder = self.scaler.holder(module, scope, node)
        return f"{holder}.is_enabled()" if holder is not None else None

    def evaluated(self, scope: Scope) -> str | None:
        """The switch as an argument, where it is not set by several `initialize` calls and can be evaluated in a scope."""
        handed = scope in self.unit.handed or self._runs_without(scope) or scope.module not in self.unit.cast
        text = None if handed or self._is_beside(scope) else self.switch_in(scope)
        if text is None:
            return None
        parts = distinct(self._on_the_way(scope) + ([] if text == "True" else [text]))
        return as_bool(self.project, scope, " and ".join(without_implied(parts)) or text)

    def _is_beside(self, scope: Scope) -> bool:
        """Whether a scope is that of a script beside the one that trains."""
        return scope.is_module and not self.set_up.comes_by(scope.module)

    def _at_hand(self, scope: Scope) -> bool:
        """Whether all that calls a function can tell it whether mixed precision is on: a scaler that it is only to ask would be
        one parameter more of a kind that it has no use for."""
        function = self.project.functions.get(scope.node)
        calls = self.project.calls.get(function, []) if function is not None else []
        return bool(calls) and all(self.evaluated(module.scope_of(call)) is not None for module, call in calls)

    def switch_in(self, scope: Scope) -> str | None:
        """The switch as it reads in a scope, `True` where mixed precision is always on; None where it cannot be read."""
        flags = self._flags(scope)
        if not flags or all(f.always for f in flags):
            return "True"
        return self._seen_from(flags[0], scope, by_field=True) if len({f.text() for f in flags}) == 1 else None

    def _asked(self, module: Module, node: ast.AST) -> str:
        """`scaler.is_enabled()`, where the scaler can be handed to a node; else the variable that holds the switch."""
        if self.scales and not self._scaling_off():
            saved = self.scaler.snapshot()
            self.scaler.demands = False  # only to ask whether it is enabled
            try:
                return f"{self.scaler.at(module, node)}.is_enabled()"
            except Blocked:
                self.scaler.restore(saved)
            finally:
                self.scaler.demands = True
        return self._switch_at(module, node)

    def _switch_at(self, module: Module, node: ast.AST) -> str:
        """A variable that holds the switch, handed along like a scaler: nothing else reaches this place."""
        if self.switch is None:
            names = ("use_amp", "amp_enabled", "mixed_precision", "autocast_enabled", "native_amp_enabled")
            self.switch = ScalerPlan(self.unit, free(self.unit, names))
            self.switch.optional = True
            self.switch.taken = shared_switches(self.unit) | self.earlier.switches
            self.switch.seen, self.switch.never = self._told_at, self._float32_at
            self.switch.passed_by = self.set_up.never_at
            self.switch.settle([(module, node)])
        saved = self.switch.snapshot()
        try:
            text = self.switch.at(module, node)
        except Blocked:
            self.switch.restore(saved)
            raise
        self.switch_used = True
        return text

    def _float32_at(self, module: Module, node: ast.AST) -> bool:
        """Whether what a call runs was in float32: no set-up comes before it, or it is given a network that none is about."""
        given = [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else []
        models = [value for value in given if self.regions.forwards.is_model(module, value)]
        return self.set_up.never_at(module, node) or any(never_cast(self.unit, module, model) for model in models)

    def _seen_from(self, flag: Flag, scope: Scope, by_field: bool = False) -> str | None:
        """The switch as it reads in a scope; None where it cannot be evaluated there. A field of the object is read where no
        scaler is kept beside it, that can be asked, or `by_field`."""
        if flag.parts is None:
            return "False"
        texts: list[str] = []
        asks = not by_field and self.scales and self.scaler.keeps(self.project.class_of(scope))
        for part in flag.parts:
            seen = self.scaler.as_seen(part, flag.scope, scope)
            if seen is None and not asks:
                seen = through_field(self.project, part, flag.scope, scope)
            if seen is not None:
                texts.append(seen)
                continue
            longer = expanded(flag.scope, part)
            if longer in (part, "True", "False") or not visible(self.project, longer, flag.scope, scope):
                return None  # a literal is what a name is set to today: whoever sets it otherwise asks by the name
            texts.append(longer)
        return " and ".join(without_implied(distinct(texts)))

    def _on_the_way(self, scope: Scope) -> list[str]:
        """What a run asks for that comes by `initialize` before it comes to a scope, as it reads there: other runs had no
        mixed precision."""
        asked, *others = [on_the_way(self.project, *place, scope) for place in self.set_up.places] or [[]]
        if any(other != asked for other in others):
            return []
        seen = [self.scaler.as_seen(part, home, scope) for part, home in asked]
        return [part for part in seen if part is not None] if None not in seen else []

    def _runs_without(self, scope: Scope) -> bool:
        """Whether a program that never sets mixed precision up runs what stands in a scope: it stays in float32."""
        return bool(self.unit.inits) and self.set_up.left_out(scope)

    @cached_property
    def set_up(self) -> SetUp:
        """Where mixed precision is never set up."""
        return SetUp(self.unit)

    @property
    def scale_is_one(self) -> bool:
        """Whether no loss is ever scaled: gradients are what they are whenever they are read, and the scaler does nothing."""
        inits = self.unit.inits
        return bool(inits) and all(not isinstance(i, LegacyInit) and static_scale(i) == 1.0 for i in inits)

    def _scaling_off(self) -> bool:
        return any(static_scale(i) == 1.0 or (isinstance(i, LegacyInit) and i.scale.off) for i in self.unit.inits)

    @cached_property
    def gradients(self) -> GradientReader:
        """Who reads gradients."""
        return GradientReader(self.unit, self.divided)

    @property
    def scaler(self) -> ScalerPlan:
        """The scaler of the unit; the first of them where optimizers have their own."""
        return self.scalers[0]

    def scaler_of(self, module: Module, optimizer: ast.expr | None) -> ScalerPlan:
        """The scaler that serves an optimizer.

        Raises Blocked where it may be any of several.
        """
        if optimizer is None or len(self.scalers) == 1:
            return self.scaler
        number = self.unit.optimizers.number(module, optimizer)
        text = self.unit.apart.get(number) if number is not None else None
        if text is None:
            raise Blocked(
                module,
                optimizer,
                "AMP213",
                "GradScaler",
                f"{module.source(optimizer)} may be any of several optimizers, each with a scaler of its own: hand the "
                "scaler along with its optimizer",
            )
        return next(s for s in self.scalers if s.optimizer == text)

    def plan_of_loss(self, number: ast.expr | None) -> ScalerPlan | None:
        """The scaler that serves the loss of an id; None where there are several and the id is not written out."""
        if len(self.scalers) == 1:
            return self.scaler
        if not isinstance(number, ast.Constant):
            return None
        for loss in self.unit.losses:
            own = loss.site.argument(2, "loss_id")
            if isinstance(own, ast.Constant) and own.value == number.value and loss.optimizers:
                return self.scaler_of(loss.module, loss.optimizers[0])
        return None

    def plans_by_loss(self) -> list[ScalerPlan]:
        """The scalers in the order of the ids of the losses; none where an id that Apex was asked for has no loss."""
        numbers = {i.only("num_losses") for i in self.unit.inits}
        (number,) = numbers if len(numbers) == 1 else (None,)
        plans = [self.plan_of_loss(ast.Constant(i)) for i in range(number)] if isinstance(number, int) else []
        return [] if None in plans else [p for p in plans if p is not None]

    def inits_of(self, module: Module, optimizer: ast.expr | None) -> list[Init]:
        """The `initialize` calls whose settings the scaler of an optimizer has."""
        plan = self.scaler_of(module, optimizer)
        return [init for init in self.unit.inits if plan.serves(init)]

    def inits_for(self, module: Module, node: ast.AST, optimizer: ast.expr | None) -> list[Init]:
        """Those of them that may have run when a node is reached: where its own scope creates the scaler, no others."""
        chain = list(module.scope_of(node).chain())
        homes = self.scaler_of(module, optimizer).homes
        own = [h.init for h in homes if h.kind == "local" and not h.carrier and h.scope in chain]
        return [i for i in self.inits_of(module, optimizer) if i in own or not own]

    def scaler_at(self, module: Module, node: ast.AST, optimizer: ast.expr | None = None) -> str:
        """The expression that gives an optimizer's scaler where a node stands."""
        return self.scaler_of(module, optimizer).at(module, node, optimizer)

    def live(self, module: Module, node: ast.AST) -> bool:
        """Whether a node is outside the branches that die, and outside float32 copies that stay as they are."""
        folds = self.folds[module]
        if folds.plain and any(a in folds.plain for a in (node, *module.ancestors(node))):
            return False
        child: ast.AST = node
        for parent in module.ancestors(node):
            if parent in folds.deleted:
                return False
            if isinstance(parent, ast.stmt) and parent in folds.splices and child is not getattr(parent, "test", None):
                if not any(child is s for s in getattr(parent, folds.splices[parent])) and child not in getattr(
                    parent, "items", ()
                ):
                    return False
            child = parent
        return True

    def other_sites(self, *shorts: str) -> Iterable[Site]:
        """The unit's sites other than initialize and scale_loss, by their last name."""
        return [s for s in self.unit.sites if s.short in shorts and s.name.startswith("apex.amp.")]


def _style(project: Project, module: Module) -> Style:
    """How a file writes things, the same for all its units; see `Project.once`."""
    return Style(module)
