"""Lightning: `Trainer(amp_backend="apex", amp_level="O2", precision=16)` becomes `Trainer(precision="16-mixed")`.

Apex: https://lightning.ai/docs/pytorch/1.8.6/common/trainer.html#amp-backend
Native: https://lightning.ai/docs/pytorch/stable/common/precision_basic.html
"""

from __future__ import annotations

import ast
import re

from amp_migrate.findings import Code, Example
from amp_migrate.options import Options
from amp_migrate.reading.program.definitions import called_name, literal
from amp_migrate.reading.program.given_values import alternatives, single_assignment
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.spelled_out import only_looks, other_uses
from amp_migrate.rules.frameworks.calls import (
    belongs_to,
    calls_of,
    change_call,
    keywords,
    named_settings,
    quoted,
    unpacked,
)
from amp_migrate.rules.frameworks.lightning_versions import (
    MIXED,
    NATIVE_SINCE,
    OLD_MIXED,
    gone_since,
    listed,
    refused,
    used_of_old,
)
from amp_migrate.rules.migration import Output

APEX = "https://lightning.ai/docs/pytorch/1.8.6/common/trainer.html#amp-backend"
NATIVE = "https://lightning.ai/docs/pytorch/stable/common/precision_basic.html"
UPGRADE = "https://lightning.ai/docs/pytorch/stable/upgrade/from_1_9.html"

CODES = (
    Code(
        "AMP801",
        "Lightning chooses Apex with amp_backend and amp_level",
        "Trainer(amp_backend=...)",
        apex='precision=16 with amp_backend="apex" runs apex.amp at amp_level (O2 unless given).',
        native='precision="16-mixed" is autocast with a GradScaler. Lightning 2.0 took amp_backend and amp_level away, 0.9 use_amp.',
        why="A Trainer that is given one of them stops with a TypeError. precision=16 is still understood, as another "
        'name of "16-mixed", so a value that is computed can stay. It is what a program is given that is written for another '
        "Lightning, by what else it gives the Trainer (gpus, checkpoint_callback): from 0.7.4 on that is autocast with a "
        "GradScaler, where torch is 1.6 or later.",
        links=(APEX, NATIVE, UPGRADE),
        examples=(
            Example(
                "import pytorch_lightning as pl\n\n"
                'trainer = pl.Trainer(max_epochs=3, precision=16, amp_backend="apex", amp_level="O2")\n',
                'import pytorch_lightning as pl\n\ntrainer = pl.Trainer(max_epochs=3, precision="16-mixed")\n',
            ),
            Example(
                'import pytorch_lightning as pl\n\ntrainer = pl.Trainer(gpus=1, use_amp=True, amp_level="O1")\n',
                "import pytorch_lightning as pl\n\ntrainer = pl.Trainer(gpus=1, precision=16)\n",
            ),
        ),
    ),
    Code(
        "AMP802",
        "Lightning's plugins for Apex and native AMP have gone",
        "ApexMixedPrecisionPlugin",
        apex="ApexMixedPrecisionPlugin(amp_level) ran apex.amp; NativeMixedPrecisionPlugin was the name of the other one.",
        native='precision="16-mixed", or plugins=MixedPrecision("16-mixed", device="cuda", scaler=...) for a scaler of '
        "one's own. Not both: the Trainer refuses them together.",
        why="Lightning 2.0 took both classes away.",
        links=(
            UPGRADE,
            "https://lightning.ai/docs/pytorch/stable/api/lightning.pytorch.plugins.precision.MixedPrecision.html",
        ),
        examples=(
            Example(
                "from pytorch_lightning import Trainer\nfrom pytorch_lightning.plugins import ApexMixedPrecisionPlugin\n\n"
                'trainer = Trainer(max_epochs=3, plugins=[ApexMixedPrecisionPlugin(amp_level="O1")])\n',
                'from pytorch_lightning import Trainer\n\ntrainer = Trainer(max_epochs=3, precision="16-mixed")\n',
            ),
        ),
    ),
)

_PACKAGE = r"(?:pytorch_lightning|lightning(?:\.pytorch)?)"
TRAINER = re.compile(_PACKAGE + r"(?:\.trainer){0,2}\.Trainer(?:\.from_argparse_args)?")
PLUGIN = re.compile(_PACKAGE + r"\.plugins(?:\.\w+)*\.(?:Apex|Native)MixedPrecisionPlugin")
OWN = ("ApexMixedPrecisionPlugin", "TrainerAMPMixin")  # classes that only Lightning itself defines
SETTINGS = ("amp_backend", "amp_level", "use_amp")


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Rewrite the Trainer's arguments; report its settings where they are given out of its sight."""
    if "lightning" not in module.text or belongs_to(module, "pytorch_lightning"):
        return
    if any(name in m.text and re.search(rf"\bclass[\s\\]+{name}\b", m.text) for m in project.modules for name in OWN):
        return
    trainers = [call for call, _ in calls_of(project, module, TRAINER)]
    edits = output.edit(module)
    for call in trainers:
        _trainer(project, module, call, options, output)
        made = _spelled_apart(module, call, trainers)
        if made is not None and not edits.gone(made):
            _trainer(project, module, made, options, output)
    holders = {node for call in trainers for node in unpacked(module, call)}
    for node, name in named_settings(module, SETTINGS[:2], holders):
        if edits.gone(node):
            continue
        stmt = _set_for(module, node, trainers)
        if stmt is not None:
            edits.delete(stmt)
            message = f"{name} went with Lightning 2.0; precision decides alone (O0 was float32: no precision is, too)"
            output.done(module, node, "AMP801", name, message, "look")
        else:
            output.manual(
                module,
                node,
                "AMP801",
                name,
                f"{name} is no longer a setting of Lightning's Trainer: drop it where this reaches one; "
                f'precision="{MIXED[options.dtype]}" is all it needs',
            )
    _elsewhere(project, module, options, output)


def _trainer(project: Project, module: Module, call: ast.Call, options: Options, output: Output) -> None:
    named = keywords(call)
    drop: list[ast.expr | ast.keyword] = [named[name] for name in SETTINGS if name in named]
    plugins = named.get("plugins")
    plugin = _only_plugin(project, module, plugins.value) if plugins is not None else None
    if plugins is not None and plugin is not None:
        drop.append(plugins)
    if not drop:
        return
    give: dict[str, str] = {}
    precision = named.get("precision")
    other = refused(named)
    old = bool(other) or ast.unparse(call.func).endswith(".from_argparse_args") or used_of_old(project) is not None
    mixed = _text(module, OLD_MIXED[options.dtype] if old else MIXED[options.dtype])
    if literal(named["amp_level"].value if "amp_level" in named else None) == "O0":
        if precision is not None:
            drop.append(precision)  # O0 is float32, as is a Trainer without precision
    elif "use_amp" in named or plugin is not None:
        given = named["use_amp"].value if "use_amp" in named else None
        value = literal(given)
        if given is not None and value is ...:
            give["precision"] = f"{mixed} if {module.source(given)} else {_text(module, 32 if old else '32-true')}"
        elif given is None or value:
            give["precision"] = mixed
    elif precision is not None:
        for part in alternatives(precision.value):
            if literal(part) in (16, "16") and mixed != module.source(part):
                output.edit(module).replace(part, mixed)
    change_call(module, output, call, drop=drop, give=give)
    names = [d.arg for d in drop if isinstance(d, ast.keyword) and d.arg is not None and d.arg != "precision"]
    went = [called_name(plugin) if plugin is not None and n == "plugins" else n for n in names]
    level = named.get("amp_level")
    zero = (
        "; an amp_level of O0 meant float32: give precision=32 for it" if level and literal(level.value) is ... else ""
    )
    means = f"precision={mixed} is autocast with a GradScaler"
    if old:
        beside = [n for n in other if n not in names]
        also = listed(beside) if beside else used_of_old(project)
        means = f"precision={mixed} stays what it was called: {NATIVE_SINCE}"
        means += f". Lightning 2 has no {also}, which this program uses" if also else ""
    output.done(
        module,
        call,
        "AMP802" if plugin is not None else "AMP801",
        f"Trainer({names[0]}=...)",
        f"{gone_since(went)}; {means}{zero}",
        "look",
    )


def _text(module: Module, value: str | int) -> str:
    return str(value) if isinstance(value, int) else quoted(module, value)


def _spelled_apart(module: Module, call: ast.Call, trainers: list[ast.Call]) -> ast.Call | None:
    """The `dict(...)` that a Trainer unpacks, where nothing else reads of it what decides about precision."""
    decide = {*SETTINGS, "precision", "plugins"}
    given = [k.value for k in call.keywords if k.arg is None]
    name = given[0] if len(given) == 1 and decide.isdisjoint(keywords(call)) else None
    made = single_assignment(module, name) if isinstance(name, ast.Name) else name
    if not isinstance(made, ast.Call) or ast.unparse(made.func) != "dict" or made.args:
        return None
    for use in other_uses(module, name) if isinstance(name, ast.Name) else ():
        parent = module.parents.get(use)
        if isinstance(parent, ast.Subscript):
            if literal(parent.slice) in (..., *decide):
                return None
        elif not only_looks(module, use) or (
            isinstance(parent, ast.keyword) and module.parents[parent] not in trainers
        ):
            return None
    return made


def _set_for(module: Module, target: ast.AST, trainers: list[ast.Call]) -> ast.Assign | None:
    """The statement that sets a key of a dictionary which is only filled, shown, and unpacked for Trainers."""
    stmt = module.parents.get(target)
    if not isinstance(target, ast.Subscript) or not isinstance(stmt, ast.Assign) or len(stmt.targets) > 1:
        return None
    if not isinstance(target.value, ast.Name):
        return None
    uses = [(use, module.parents.get(use)) for use in (target.value, *other_uses(module, target.value))]
    unpacks = [p for _, p in uses if isinstance(p, ast.keyword) and p.arg is None and module.parents[p] in trainers]
    fills = [p for _, p in uses if isinstance(p, ast.Subscript) and _fills(p, target)]
    shows = [p for use, p in uses if isinstance(p, (ast.Call, ast.FormattedValue)) and only_looks(module, use)]
    return stmt if unpacks and len(unpacks) + len(fills) + len(shows) == len(uses) else None


def _fills(entry: ast.Subscript, target: ast.Subscript) -> bool:
    """Whether an entry is given a value, or is another one than what is set for the Trainer."""
    return isinstance(entry.ctx, ast.Store) or literal(entry.slice) not in (..., literal(target.slice))


def _only_plugin(project: Project, module: Module, value: ast.expr) -> ast.Call | None:
    """The precision plugin, where it is the only plugin and has no scaler of its own."""
    if isinstance(value, (ast.List, ast.Tuple)) and len(value.elts) == 1:
        value = value.elts[0]
    if not isinstance(value, ast.Call) or not PLUGIN.fullmatch(project.qualify(module, value.func) or ""):
        return None
    return None if "scaler" in keywords(value) or len(value.args) > 2 else value


def _elsewhere(project: Project, module: Module, options: Options, output: Output) -> None:
    """Plugins that are made away from their Trainer, and reads of what the Trainer no longer has."""
    edits = output.edit(module)
    for node in module.nodes:
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load) or edits.gone(node):
            continue
        if PLUGIN.fullmatch(project.qualify(module, node) or ""):
            output.manual(
                module,
                node,
                "AMP802",
                module.source(node).rpartition(".")[2],
                f'Lightning 2 has no such plugin: give the Trainer precision="{MIXED[options.dtype]}", or '
                f'MixedPrecision("{MIXED[options.dtype]}", device="{options.device}") of the same package as a plugin',
            )
        elif isinstance(node, ast.Attribute) and node.attr in SETTINGS[:2]:
            if module.source(node.value).rpartition(".")[2].lstrip("_") == "trainer":
                output.note(
                    module,
                    node,
                    "AMP801",
                    f"trainer.{node.attr}",
                    f"Lightning 2's Trainer has no {node.attr}: ask for trainer.precision",
                )
