"""What is said of each `amp.initialize` once its unit is migrated: what stands in its place now, and what differs.

Runs last, for it tells what the other rules have done. The codes are those of `initialize.py`.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize
"""

from __future__ import annotations

import ast
import copy

from amp_migrate.findings import Code, Review
from amp_migrate.reading.program.command_line import declared
from amp_migrate.reading.program.definitions import is_none
from amp_migrate.reading.program.given_values import given_once, single_assignment
from amp_migrate.reading.program.logic import truth
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.processes import imported
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.switch.flags import flag_around
from amp_migrate.reading.units.calls import LEVELS
from amp_migrate.reading.units.legacy import LegacyInit
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.reading.units.unit import Init
from amp_migrate.reading.values.analysis import Values
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.setup import levels
from amp_migrate.rules.setup.levels import trains

CODES: tuple[Code, ...] = ()
REPLACED = "replaced by a GradScaler"
SETS = "sets the GradScaler that regions of this program ask"
CASTS = "taken out; what runs in an autocast region is cast, and nothing else"


def apply(m: Migration) -> None:
    for init in m.unit.inits:
        if init.site.short == "network_to_half":
            message = "the weights stay float32, and autocast casts: memory and speed can differ"
            m.output.done(init.module, init.call, "AMP720", init.site.construct, message, "look")
        elif not isinstance(init, LegacyInit):
            message = placed(m, init)
            if m.scales and message == REPLACED:
                message += _left_open(m, init)
            review: Review = (
                "as-is" if message in (REPLACED, CASTS, SETS) or not (m.scales or m.written_off) else "look"
            )
            m.output.done(init.module, init.call, "AMP110", "amp.initialize", message, review)
            _explain(m, init)


def _left_open(m: Migration, init: Init) -> str:
    """What a reader has to see to of the `enabled=` that stands for a level: nothing where it asks the level itself."""
    level = init.arguments.get("opt_level")
    known = frozenset(str(v) for v in init.constants("opt_level") or (None,)) <= LEVELS
    open_ = level is not None and not known and not _only_read(init.module, level)
    more = ": see that its enabled= is what was asked for at run time" if open_ or init.spread is not None else ""
    if option := _without_default(m, init):
        more += f"; without {option}, which has no default, Apex raised, and that counts as on now"
    return more


def _only_read(module: Module, level: ast.expr) -> bool:
    """Whether a level is a setting as it was given, or a text put together of one (`f"O{args.amp}"`), and not looked up or
    computed: `level != "O0"` says all of it."""
    if isinstance(level, ast.IfExp):
        return _only_read(module, level.body) and _only_read(module, level.orelse)
    if isinstance(level, ast.BinOp):
        return _only_read(module, level.left) and _only_read(module, level.right)
    if isinstance(level, (ast.JoinedStr, ast.Tuple)):
        return all(_only_read(module, n) for n in (level.values if isinstance(level, ast.JoinedStr) else level.elts))
    if isinstance(level, ast.FormattedValue):
        return _only_read(module, level.value)
    if isinstance(level, ast.Call) and not level.keywords and _puts_together(level.func):
        return all(_only_read(module, a) for a in level.args)
    if isinstance(level, ast.Name) and (value := single_assignment(module, level)) is not None:
        return _only_read(module, value)
    while isinstance(level, ast.Attribute) or (
        isinstance(level, ast.Subscript) and isinstance(level.slice, ast.Constant)
    ):
        level = level.value
    return isinstance(level, (ast.Constant, ast.Name))


def _puts_together(called: ast.expr) -> bool:
    """Whether `str(number)` or `"O{}".format(number)` is called."""
    if isinstance(called, ast.Name):
        return called.id == "str"
    return isinstance(called, ast.Attribute) and called.attr == "format" and isinstance(called.value, ast.Constant)


def _without_default(m: Migration, init: Init) -> str:
    """The option of the command line that gives the level, where a run may leave it out and nothing else sets it."""
    level = init.arguments.get("opt_level")
    if not isinstance(level, ast.Attribute):
        return ""
    for module in m.project.modules:
        written = (n for n in module.nodes if isinstance(n, ast.Attribute) and n.attr == level.attr)
        if level.attr in module.text and any(isinstance(n.ctx, ast.Store) for n in written):
            return ""
    for module in imported(m.project, init.module):
        for option, call in declared(module):
            names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            given = {k.arg for k in call.keywords if k.arg != "default" or not is_none(k.value)}
            if option == level.attr and names and names[-1].startswith("-"):
                left_out = given.isdisjoint({"default", "required", "action", None}) and _comes_with_none(
                    m, init, level
                )
                return names[-1] if left_out else ""
    return ""


def _comes_with_none(m: Migration, init: Init, level: ast.expr) -> bool:
    """Whether a run comes to the call where its level is None, as far as the tests around it tell."""
    scope, values, given = init.site.scope, m.project.once(Values), ast.unparse(level)

    def told(test: ast.expr) -> bool | None:
        return values.truth(scope.module, scope.module.imagine(ast.unparse(test), scope))

    for part in flag_around(m.project, init).parts or ():
        test = ast.parse(part, mode="eval")
        _WithNone(given, scope).visit(test)
        if truth(test.body, told) is False:
            return False
    return True


class _WithNone(ast.NodeTransformer):
    """Put None in place of an expression, also in what names are made of it: `fp16 = bool(args.level)`."""

    def __init__(self, text: str, scope: Scope) -> None:
        self.text = text
        self.scope = scope

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and ast.unparse(node) == self.text:
            return ast.Constant(None)
        value = given_once(self.scope.lookup(node.id), node.id) if isinstance(node, ast.Name) else None
        if value is not None and any(isinstance(n, ast.Attribute) and ast.unparse(n) == self.text for n in walk(value)):
            return ast.Constant(None) if ast.unparse(value) == self.text else self.generic_visit(copy.deepcopy(value))
        return self.generic_visit(node)


def placed(m: Migration, init: Init) -> str:
    """What became of a call."""
    if m.written_off:
        return "taken out: written as off, it changed nothing, and torch computes in float32 without it"
    if init in m.set_for:
        return SETS
    if not m.scales:
        return CASTS if m.casts else "taken out"
    here = [h for h in m.created if h.init is init]
    if not here and not trains(init):
        return CASTS if m.casts else "taken out"
    if any(h.scope is init.site.scope for h in here):
        off = init.scale.off if isinstance(init, LegacyInit) else static_scale(init) == 1.0
        return REPLACED + (" that is off: its loss was not scaled" if off else "")
    if here:
        callers = sorted({(h.scope.module.display, h.anchor.lineno) for h in here})
        return f"taken out: the GradScaler is created by what calls this ({_lines(init, callers)})"
    own = [h for plan in m.scalers for h in plan.homes if h.init is init]
    serving = [plan.served[init] for plan in m.scalers if init in plan.served]
    if m.created and (not own or any(h in m.created for h in serving)):
        message = (
            f"taken out: the GradScaler in place of the call at {_places(init, serving or m.created)} serves here too"
        )
        again = any(init in plan.again for plan in m.scalers)
        return message + "; Apex raised here, where an optimizer that it had prepared came once more" * again
    if m.created:
        scaling = f"what scales a loss has the one in place of the call at {_places(init, m.created)}"
        return f"taken out: nothing would read a GradScaler made here; {scaling}"
    return "taken out: nothing is trained with what it prepares, so there is no GradScaler"


def _places(init: Init, homes: list[Home]) -> str:
    """The calls in whose place scalers stand."""
    return _lines(init, sorted({(h.init.module.display, h.init.call.lineno) for h in homes}))


def _lines(init: Init, places: list[tuple[str, int]]) -> str:
    own = init.module.display
    return ", ".join(f"line {line}" if path == own else f"{path}:{line}" for path, line in places[:4])


def _explain(m: Migration, init: Init) -> None:
    """Say what differs, once per initialize call."""
    scale, idle = static_scale(init), _set_elsewhere(init)
    for message, review in levels.told(m, init):
        _note(m, init, "AMP112", message, review)
    _beyond(m, init)
    _overridden(m, init)
    if isinstance(scale, float) and scale != 1.0 and m.scales:
        message = f"the scale stays {scale:g}; unlike Apex, a step whose gradients overflow is skipped"
        _note(m, init, "AMP114", message)
    elif isinstance(scale, ast.expr) and m.scales:
        message = f"{_decides(init, scale)} decides the loss scale at run time: where it is a number, the scale stays that number; "
        _note(m, init, "AMP114", f"{message}unlike Apex, a step whose gradients overflow is then skipped")
    elif scale is None and m.scales and idle:
        _note(m, init, "AMP114", f"the scale is dynamic{idle}", "review")
    for name in ("keep_batchnorm_fp32", "master_weights", "cast_model_type", "patch_torch_functions"):
        if init.only(name) is ... and not _a_dtype(init, name):
            text = init.module.source(init.arguments[name])
            message = f"{name}={text} has no effect any more: weights stay float32, autocast casts per operation"
            _note(m, init, "AMP112", message)
    by_id = any(x.site.argument(2, "loss_id") is not None for x in m.unit.losses)
    if m.scales and init.only("num_losses") not in (None, 1) and not by_id:
        text = init.module.source(init.arguments["num_losses"])
        message = f"num_losses={text} made scalers of which no scale_loss picks one by loss_id: all losses went through the first"
        _note(m, init, "AMP110", message, "as-is")
    if init.spread is not None and init.spread.mapping is not None:
        mapping = init.module.source(init.spread.mapping)
        message = f"the settings are read from {mapping} at run time, as far as a GradScaler has them"
        if init.spread.keys is None:
            message += (
                ": loss_scale, opt_level and enabled; its other entries, such as cast_model_outputs, num_losses, "
                "patch_torch_functions or max_loss_scale, have no effect any more"
            )
        _note(m, init, "AMP111", message, "review" if init.spread.keys is None else "look")
    if m.unit.only_inference and init not in m.set_for:
        message = "no loss is scaled and no optimizer of it stepped in sight: no GradScaler is needed"
        _note(m, init, "AMP115", message, "as-is")
    elif m.unit.plain_losses:
        message = (
            "no loss is scaled: O1 only cast, and autocast does. Only amp.scale_loss drops O1's half copies of weights, so that "
            "steps may not have reached them: they do now. Small float16 gradients are lost as they were; a GradScaler would keep "
            "them"
        )
        _note(m, init, "AMP115", message, "review")


def _note(m: Migration, init: Init, code: str, message: str, review: Review = "look") -> None:
    m.output.note(init.module, init.call, code, "amp.initialize", message, review)


def _set_elsewhere(init: Init) -> str:
    """What to say of a parameter that a loss scale is read from, which is known all the same."""
    given = init.arguments.get("loss_scale")
    owner = init.site.scope.lookup(given.id) if isinstance(given, ast.Name) else None
    parameter = owner is not None and isinstance(given, ast.Name) and given.id in owner.params
    if given is not None and parameter:
        return f", as all that is in sight says of {init.module.source(given)}, which has no effect any more"
    return ""


def _beyond(m: Migration, init: Init) -> None:
    """O4 and O5 are bfloat16: upstream Apex refuses them, so whoever asks for one has ROCm's."""
    level, values = init.arguments.get("opt_level"), m.project.once(Values)
    if level is None or not (m.casts and m.options.dtype == "float16"):
        return
    asked = {v.upper() for v in init.constants("opt_level") or () if isinstance(v, str)}
    if values.fixed(init.module, level) is None:
        asked |= {name for module in m.unit.reach for name in levels.BEYOND.findall(module.text)}
        asked |= _counted(m, init, level)
    if beyond := sorted(name for name in asked if levels.BEYOND.fullmatch(name)):
        named, several = " and ".join(beyond), len(beyond) > 1
        message = (
            f"{named}, which only ROCm's Apex has, cast{'s' * (not several)} to bfloat16 and scale{'s' * (not several)} no loss; "
            f"{'they are' if several else 'it is'} float16 with a GradScaler now. Refuse {'them' if several else 'it'}, or give "
            "autocast dtype=torch.bfloat16 and switch the scaler off there"
        )
        _note(m, init, "AMP112", message, "review")


def _counted(m: Migration, init: Init, level: ast.expr) -> set[str]:
    """The levels that a number chooses: `"O%d" % args.level` of choices up to 5."""
    values = m.project.once(Values)
    parts = [n for n in walk(level) if n is not level and isinstance(n, (ast.Attribute, ast.Name))]
    found = (number for part in parts for number in values.constants(init.module, part) or ())
    return {f"O{number}" for number in found if isinstance(number, (int, str))}


def _overridden(m: Migration, init: Init) -> None:
    """An option beside the level that took mixed precision out of it, or put it in, which the level alone decides now."""
    possible = init.levels
    if init.only("patch_torch_functions") is False and "O1" in possible and m.casts:
        message = "patch_torch_functions=False left O1 without its casts, in float32; autocast casts now"
        _note(m, init, "AMP112", message)
    dtype = init.arguments.get("cast_model_type")
    name = (init.module.qualify(dtype) or "") if dtype is not None else ""
    if name in ("torch.float32", "torch.float") and possible & {"O2", "O3"} and m.casts:
        message = f"cast_model_type={name} kept all of the model in float32; autocast casts now"
        _note(m, init, "AMP112", message)
    if name.startswith("torch.") and name not in ("torch.float32", "torch.float") and "O0" in possible:
        message = f"cast_model_type={name} cast the model at O0 too, which is float32 now"
        _note(m, init, "AMP112", message)


def _decides(init: Init, scale: ast.expr) -> str:
    """What decides a loss scale, short enough to be read: the names in a choice between several."""
    if not isinstance(scale, ast.IfExp):
        return init.module.source(scale) if hasattr(scale, "lineno") else ast.unparse(scale)
    names = {
        ast.unparse(n)
        for n in walk(scale)
        if isinstance(n, (ast.Name, ast.Attribute)) and not isinstance(getattr(n, "ctx", None), ast.Store)
    }
    whole = [n for n in sorted(names) if not any(other.startswith(f"{n}.") for other in names)]
    return " and ".join(whole) or init.module.source(scale)


def _a_dtype(init: Init, name: str) -> bool:
    """Whether an argument is a dtype written out, such as `torch.float16`: part of what the level already says."""
    return (init.module.qualify(init.arguments[name]) or "").startswith("torch.")
