"""What the opt levels of one `amp.initialize` mean now that autocast and a GradScaler stand for them.

Apex: https://nvidia.github.io/apex/amp.html#opt-levels
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amp_migrate.findings import Code, Review
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.processes import tied, when_run
from amp_migrate.reading.program.signatures import is_public
from amp_migrate.reading.switch.flags import init_flag, plain_at_o0
from amp_migrate.reading.units.calls import LEVELS
from amp_migrate.reading.units.static_scale import asked_scale, static_scale
from amp_migrate.reading.units.unit import Init
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.dtypes import Dtypes
from amp_migrate.reading.values.table import Value
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions.half_values import is_upcast

CODES: tuple[Code, ...] = ()  # reported as AMP112: see `initialize.py`

LEVEL = re.compile(r"\bO[0-3]\b")
BEYOND = re.compile(r"\bO[45]\b")
SKIPPED = "left out steps whose gradients overflowed or were NaN"


def told(m: Migration, init: Init) -> Iterator[tuple[str, Review]]:
    """What is said of the levels that may occur, and how closely a reader has to look."""
    possible = init.levels | (_documented(m, init) & init.allowed_levels)
    if not m.casts or BEYOND.fullmatch(str(init.only("opt_level"))):
        return
    heavy = sorted(possible & {"O2", "O3"})
    off = _switched_off(m, init) if "O0" in possible and len(possible) > 1 else []
    lost = any(SKIPPED in part for part in off)  # by what no other finding tells
    parts = _heavy(m, init, heavy, alone=len(possible) == 1) if heavy else []
    if lost and _defaults(m, init, "opt_level") == {"O0"} and _defaults(m, init, "loss_scale") == {"dynamic"}:
        remedy = "that is the default: enable the scaler there, and switch the casts alone off by the level, to keep it"
        yield "; ".join([*off, remedy, *parts]), "review"
    elif parts or lost:
        yield "; ".join([*parts[:1], *off, *parts[1:]]), "look"


def trains(init: Init) -> bool:
    """Whether a call prepares an optimizer: without one, no loss is scaled in a run that comes by it alone."""
    return init.spread is not None or init.held is not None or bool(init.optimizers)


def _heavy(m: Migration, init: Init, heavy: list[str], alone: bool) -> list[str]:
    """O2 and O3, where they may occur, kept weights of their own."""
    named, halves = " and ".join(heavy), init.only("cast_model_outputs") is None and _gives_half(m)
    saved = "; checkpoints hold float32, as before" if _saves(m, init) else ""
    if alone:
        first = (
            f"{named} kept float16 weights; autocast keeps float32 weights and casts per operation (memory "
            f"and speed can differ{saved})"
        )
        first += "; models give half where they gave float32, cast where that is seen to matter" if halves else ""
    else:
        first = f"{named}, where asked for at run time, now {'mean' if len(heavy) > 1 else 'means'} autocast over "
        first += "float32 weights (memory and speed can differ"
        first += ", and models give half where they gave float32)" if halves else ")"
    found = [first]
    scales = m.scales and trains(init) and static_scale(init) != 1.0
    asked, given = init.constants("loss_scale"), init.arguments.get("loss_scale")
    if "O3" in heavy and scales and None in (asked or {None}):
        where = (
            f" where {init.module.source(given)} is None" if given is not None and asked != frozenset((None,)) else ""
        )
        found.append(f"O3, unscaled under Apex{where}, scales its loss like the others")
    return found


def _switched_off(m: Migration, init: Init) -> list[str]:
    """What O0 means now: Apex cast nothing there, and scaled all the same where a loss scale was asked for beside it; only a
    dynamic one left out steps, which the scaler does where that is seen."""
    given = asked_scale(init, o0=True)
    found = m.project.once(Values).constants(init.module, given) if given is not None else frozenset[object]((None,))
    asked = found or frozenset((...,))
    numbers = asked - {None, "dynamic", 1, "1", "1.0"}
    dynamic = asked & {"dynamic", ...}
    if not m.scales or not trains(init) or not (numbers or dynamic) or plain_at_o0(m.project, init):
        return ["O0 still switches mixed precision off"]
    if init_flag(m.project, init).scaling is not None:
        return ["O0 still switches the casts off alone: it scales its loss, as it did"]
    text = init.module.source(given) if given is not None else "a loss scale"
    off = "O0 still switches the casts off, and now the scaling, too: "
    if asked == {"dynamic"}:
        return [f"{off}with loss_scale={text} Apex scaled there in float32, and {SKIPPED}"]
    if not dynamic:
        known = f"with loss_scale={text}" if asked == numbers else f"where {text} is a number,"
        return [f"{off}{known} Apex scaled there in float32, and left no step out"]
    parts = [f"{off}where {text} is 'dynamic', Apex scaled there in float32, and {SKIPPED}"]
    parts += ["where it is a number, it scaled and left none out"] * bool(numbers)
    parts += ["where it is None, it scaled nothing"] * (None in asked | _defaults(m, init, "loss_scale"))
    return parts


def _defaults(m: Migration, init: Init, name: str) -> frozenset[object]:
    """What an argument is in a run that gives no options; with Ellipsis, more than is seen."""
    node = init.arguments.get(name)
    if node is None:
        return frozenset(("O1" if name == "opt_level" else None,) if init.spread is None else (...,))
    return frozenset(map(_default, m.project.once(Values).may_be(init.module, node)))


def _default(value: Value) -> object:
    if value.kind != "option" or not isinstance(value.node, ast.Call):
        return value.constant
    default = next((k.value for k in value.node.keywords if k.arg == "default"), ast.Constant(None))
    return default.value if isinstance(default, ast.Constant) else ...


def _documented(m: Migration, init: Init) -> frozenset[str]:
    """The levels that a program speaks of, where its level is a setting for people to change; all of them where it is a
    parameter that others may give."""
    level, values = init.arguments.get("opt_level"), m.project.once(Values)
    if level is None or values.fixed(init.module, level) is not None:
        return frozenset()
    owner = init.site.scope.lookup(level.id) if isinstance(level, ast.Name) else None
    taken_by = m.project.functions.get(owner.node) if owner is not None else None
    if taken_by is not None and ast.unparse(level) in taken_by.defaults and is_public(m.project, taken_by):
        return LEVELS
    return frozenset(name for module in m.unit.reach for name in LEVEL.findall(module.text))


def _gives_half(m: Migration) -> bool:
    """Whether some model may give half in a region: not where its output is cast, or is seen to be a loss, a softmax. Apex
    cast what `forward` gives, and nothing that other methods do."""
    calls = [(s, c) for s in m.regions.scopes() for c, inner in s.module.calls if inner is s]
    runs = [(s.module, c) for s, c in calls if m.regions.is_forward(s.module, c)]
    forwards = [(module, c) for module, c in runs if not m.regions.forwards.by_method(module, c)]
    dtypes = m.project.once(Dtypes)
    return not runs or any(
        not is_upcast(m, module, call) and dtypes.of(module, call) in ("half", "either", "unknown")
        for module, call in forwards
    )


def _saves(m: Migration, init: Init) -> bool:
    """Whether a file of the same program saves anything of torch's."""
    near = tied(m.project, [init.module])
    calls = ((module, call) for module in near for call, _ in module.calls if "save" in (called_name(call) or ""))
    return any(
        (module is init.module or not when_run(module, call))
        and not (module.qualify(call.func) or "").startswith("numpy.")
        for module, call in calls
    )
