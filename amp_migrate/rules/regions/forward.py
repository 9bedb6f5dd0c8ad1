"""Where the switch cannot be handed to the code that runs the model, the model's forward is put under autocast itself.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html#torch.autocast
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.switch.flags import init_flag
from amp_migrate.reading.units.unit import Blocked, Init
from amp_migrate.reading.values.bools import as_bool
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP509",
        "The model's own forward runs under autocast",
        "torch.autocast",
        apex="Casting is global: a framework may run the model.",
        native="torch.autocast is a decorator as well: wrapped where initialize stood, the forward takes it along.",
        why="The model runs in a framework, or in a function that is passed around, where neither the scaler nor the "
        "switch can be seen. A copy of the model (copy.deepcopy) would keep the forward of the original.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.autocast",),
        examples=(
            Example(
                'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\nRunner(model, step, optimizer)',
                'model.forward = torch.autocast("cuda", dtype=torch.float16)(model.forward)\n'
                "Runner(model, step, optimizer)",
            ),
        ),
    ),
)


def wrap(m: Migration, unreached: list[Blocked], methods: Sequence[tuple[Module, ast.Call]]) -> None:
    """Put the forward of every model under autocast where it is initialized.

    `methods`: calls that run a model by another method, which never comes by its forward. Raises Blocked, the first that
    was met, where there are any, where a model has no name there, or may be copied.
    """
    if methods:
        module, call = methods[0]
        raise Blocked(
            module,
            call,
            "AMP509",
            "torch.autocast",
            f"{ast.unparse(call.func)} runs the model where the switch cannot be seen, and does not go by its forward: "
            "hand the switch there and put it in a region",
        )
    if not possible(m):
        raise unreached[0]
    for init in m.unit.inits:
        if init not in m.scaler.again:  # whose model is wrapped where it was given to `initialize` first
            _wrap(m, init, _named(init))


def possible(m: Migration) -> bool:
    """Whether every model has a name where it is initialized, and is neither copied nor compiled: a script of the model
    is made of its class's forward."""
    if any(_copies(m, module) or _scripts(module) for module in m.unit.modules):
        return False
    models = [_named(init) for init in m.unit.inits]
    return all(found and all(isinstance(x, (ast.Name, ast.Attribute)) for x in found) for found in models)


def _named(init: Init) -> list[ast.expr]:
    """How the models are called that a set-up prepares, one by one: a variable may hold the list of them."""
    found = init.model_targets or init.models
    if len(found) != 1 or not isinstance(init.arguments.get("models"), (ast.List, ast.Tuple)):
        return found
    unpacked = getattr(init.module.parents.get(found[0]), "elts", ())  # `[model], optimizer = ...`
    return found if len(unpacked) == 1 else init.models


def _copies(m: Migration, module: Module) -> bool:
    """Whether one of the models may be what `copy.deepcopy` is given: not where that is an attribute or name of its own."""
    for call, _ in module.calls if "deepcopy" in module.text else ():
        if called_name(call) == "deepcopy" and call.args:
            given = call.args[0]
            if not isinstance(given, (ast.Name, ast.Attribute)) or m.regions.forwards.is_model(module, given):
                return True
            if any(word in ast.unparse(given).lower() for word in ("model", "net", "self")):
                return True
    return False


def _scripts(module: Module) -> bool:
    return "jit" in module.text and any(module.qualify(call.func) == "torch.jit.script" for call, _ in module.calls)


def _wrap(m: Migration, init: Init, models: list[ast.expr]) -> None:
    module, scope = init.module, init.site.scope
    torch, quote = m.torch(module, scope), m.style(module).quote
    flag = init_flag(m.project, init)
    enabled = "" if flag.always else f", enabled={as_bool(m.project, scope, flag.text())}"
    region = f"{torch}.autocast({quote}{m.options.device}{quote}, dtype={torch}.{m.options.dtype}{enabled})"
    for model in models:
        name = module.source(model)
        m.edit(module).insert_after(init.stmt, f"{name}.forward = {region}({name}.forward)")
        m.output.note(
            module,
            init.call,
            "AMP509",
            "torch.autocast",
            f"{name} runs where the switch cannot be seen, so its own forward is under autocast; a copy of it "
            "(copy.deepcopy) would run the forward of the original",
            "review",
        )
