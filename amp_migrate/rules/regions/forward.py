"""Where the switch cannot be handed to the code that runs the model, the model's forward is put under autocast itself, or
which of its methods are called there.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html#torch.autocast
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
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
        native="torch.autocast is a decorator as well: wrapped where initialize stood, the forward takes it along; so does "
        "another method that is called there, `model.infer(x)`.",
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


def wrap(m: Migration, unreached: list[Blocked], calls: Sequence[tuple[Module, ast.Call]]) -> None:
    """Put what runs every model under autocast where it is initialized: its forward, or the methods that are called.

    `calls`: those that run a model out of reach of the switch, as far as they are in sight; one by another method never comes
    by its forward. Raises Blocked where such a method is not in sight, the first that was met where a model has no name
    there, or may be copied.
    """
    by_method = [(module, c) for module, c in calls if m.regions.forwards.by_method(module, c)]
    unseen = [(module, c) for module, c in by_method if not _is_own(m, module, c)]
    if unseen:
        module, call = unseen[0]
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
    methods = ["forward"] if not calls or len(by_method) < len(calls) else []
    methods += dict.fromkeys(_method(c) for _, c in by_method)
    for init in m.unit.inits:
        if init not in m.scaler.again:  # whose model is wrapped where it was given to `initialize` first
            _wrap(m, init, _named(init), methods)


def _is_own(m: Migration, module: Module, call: ast.Call) -> bool:
    """Whether a method is one of the class of each model that is set up, and trains nothing itself: what wraps a model has none
    of its methods."""
    models = [(init.module, model) for init in m.unit.inits for model in _named(init)]
    classes = [m.project.classes_of(where, model) for where, model in models]
    own = [cls.method(_method(call)) for found in classes for cls in found]
    if not all(classes) or not own or _is_unwrapped(module, call):
        return False
    return all(f is not None and not m.regions.runs_backward(f) for f in own)


def _is_unwrapped(module: Module, call: ast.Call) -> bool:
    """Whether a method is one of what a wrapper holds, by that or by a name that is given it: `net.module.infer(x)`."""
    model = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    values = [model]
    if isinstance(model, ast.Name) and (owner := module.scope_of(model).lookup(model.id)) is not None:
        bound = (module.parents.get(b) for b in owner.bindings.get(model.id, ()))
        values += [s.value for s in bound if isinstance(s, ast.Assign)]
    return any(isinstance(n, ast.Attribute) and n.attr == "module" for value in values for n in walk(value))


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


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


def _wrap(m: Migration, init: Init, models: list[ast.expr], methods: list[str]) -> None:
    module, scope = init.module, init.site.scope
    torch, quote = m.torch(module, scope), m.style(module).quote
    flag = init_flag(m.project, init)
    enabled = "" if flag.always else f", enabled={as_bool(m.project, scope, flag.text())}"
    region = f"{torch}.autocast({quote}{m.options.device}{quote}, dtype={torch}.{m.options.dtype}{enabled})"
    wrapped = f"{' and '.join(methods)} {'are' if len(methods) > 1 else 'is'}"
    for model in models:
        name = module.source(model)
        for method in methods:
            m.edit(module).insert_after(init.stmt, f"{name}.{method} = {region}({name}.{method})")
        m.output.note(
            module,
            init.call,
            "AMP509",
            "torch.autocast",
            f"{name} runs where the switch cannot be seen, so its own {wrapped} under autocast; a copy of it "
            f"(copy.deepcopy) would run the {' and the '.join(methods)} of the original. What it gives may be float16 where Apex had "
            "float32, as O1 on the CPU and O2 everywhere: write .float() where that is counted on",
            "review",
        )
