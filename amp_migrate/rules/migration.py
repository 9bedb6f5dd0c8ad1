"""One unit on its way to native AMP: what the rules share. They read through it and write edits and findings into it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from amp_migrate.options import Options
from amp_migrate.reading.gradients.divisible import Divided
from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.view import Folds
from amp_migrate.reading.regions.place import RegionReader
from amp_migrate.reading.regions.set_up import SetUp
from amp_migrate.reading.scaler.from_users import FromUsers
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.scaler.process_wide import LastHome, ProcessWide
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.sites.casts import is_cast
from amp_migrate.reading.switch.flags import init_flag
from amp_migrate.reading.switch.folds import guard_folds, pair_folds
from amp_migrate.reading.units.legacy import LegacyInit, is_legacy
from amp_migrate.reading.units.naming import scaler_stem
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.reading.units.unit import Blocked, Init, Unit
from amp_migrate.rules.output import Output as Output
from amp_migrate.rules.switch import Switch
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
    `helpers` are functions that run a forward, and stand in the regions of who calls them; `inner` such as variables hold,
    which have their regions inside.
    `divided` are the gradients that are read divided by the loss scale, where no `unscale_` can come before; `moves`: what
    adds to those of each micro-batch moves to the step, where that failed.
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
        inner: frozenset[Function] = frozenset(),
        moves: bool = False,
    ) -> None:
        self.unit = unit
        self.divided = divided or {}
        self.moves = moves
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
        self.regions = RegionReader(whole or unit, self.folds, taken, helpers, inner)
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
        self.set_for: dict[Init, str] = {}  # where a scaler of another unit is set, for regions that ask it
        self.asked: dict[
            Module, dict[str, str]
        ] = {}  # what asks for an entry that has another key now, as it reads then
        self.float32: set[ast.stmt] = set()  # where a region would begin that is not written: nothing is half there
        self.casts = True  # whether anything of the unit runs under autocast in the end
        self.plain_steps: Collection[ast.Call] = ()  # those that stay, since no scaled backward comes before them
        self.updates: dict[Scope, list[ast.stmt]] = {}  # the statements after which the scale is updated
        self.idle_steps: Mapping[ast.Call, bool] = {}  # those some path has no backward for: whether gradients are gone
        self.emptied_steps: set[ast.Call] = set()  # those of them that come after another step on such a path
        self.unscaled_steps: set[ast.Call] = set()  # those whose gradients are unscaled before
        self.computed_apart = (
            False  # whether what `scale_loss` was given ran a model, which now stands in a region above
        )
        self.switch = Switch(self)

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
        off, or the scale is 1 in every run."""
        scaled = not self.unit.only_inference and not self.unit.plain_losses
        return self.options.dtype == "float16" and scaled and not (self.written_off or self.scaled_by_one)

    @cached_property
    def written_off(self) -> bool:
        """Whether all set-ups are written as off, `opt_level="O0"` or `enabled=False`, and nothing asks for a loss scale or for
        casts: torch alone does the same, with no region and no scaler."""
        flags = [init_flag(self.project, init) for init in self.unit.inits]
        asked = any(init.literal("loss_scale") not in (None, 1, "1", "1.0") for init in self.unit.inits)
        private = any("_amp_state" in module.text for module in self.unit.modules)
        casts = any(is_cast(site) for site in self.unit.sites)
        return bool(flags) and all(flag.never for flag in flags) and not (asked or private or casts)

    @cached_property
    def scaled_by_one(self) -> bool:
        """Whether Apex multiplied every loss by 1 and skipped no step, and nothing keeps or asks for the state of that."""
        inits = self.unit.inits
        if not inits or is_legacy(self.unit) or any("_amp_state" in module.text for module in self.unit.modules):
            return False
        states = any(
            site.short in ("state_dict", "load_state_dict") or site.name == "apex.amp" for site in self.unit.sites
        )
        return not states and all(static_scale(init) == 1.0 for init in inits)

    @property
    def plain(self) -> str:
        """Why a backward is a plain one where there is no scaler."""
        if self.options.dtype == "float16" and self.scaled_by_one and not self.written_off:
            return "a plain backward: the loss scale was always 1"
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
        enabled = self.switch.at(module, node)  # first: it may turn out that nothing can be written here
        scope = module.scope_of(node)
        torch = self.torch(module, scope)
        quote = self.style(module).quote
        text = f"{torch}.autocast({quote}{self.options.device}{quote}, dtype={torch}.{self.options.dtype}"
        return f"{text})" if enabled is None else f"{text}, enabled={enabled})"

    @cached_property
    def set_up(self) -> SetUp:
        """Where mixed precision is never set up."""
        return SetUp(self.unit)

    @property
    def scale_is_one(self) -> bool:
        """Whether no loss is ever scaled: gradients are what they are whenever they are read, and the scaler does nothing."""
        inits = self.unit.inits
        return bool(inits) and all(not isinstance(i, LegacyInit) and static_scale(i) == 1.0 for i in inits)

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
    return Style(module, project)
