"""What `apex.fp16_utils` does to models goes; its small helpers become plain PyTorch.

Apex: https://nvidia.github.io/apex/fp16_utils.html
Native: https://pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.options import Options
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.regions.companions import NETWORK_METHODS, STATE_METHODS
from amp_migrate.reading.sites.apex import Site, find_sites
from amp_migrate.reading.sites.half_casts import cast_to_half, casts_nothing, half_arguments
from amp_migrate.reading.units.legacy import LegacyInit
from amp_migrate.reading.units.legacy_models import HALVERS
from amp_migrate.reading.units.run_apart import run_apart
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration, Output
from amp_migrate.rules.older import other_sequentials, sequential_keys
from amp_migrate.rules.older.half_switch import same_switch
from amp_migrate.rules.setup.when_on import never_on
from amp_migrate.writing.style import Style

APEX = "https://nvidia.github.io/apex/fp16_utils.html"
NATIVE = "https://pytorch.org/docs/stable/amp.html"
PLAIN = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
MASTERS = frozenset(["prep_param_lists", "model_grads_to_master_grads", "master_params_to_model_params"])
SCALERS = frozenset(["LossScaler", "DynamicLossScaler"])

CODES = (
    Code(
        "AMP720",
        "Models keep their float32 weights",
        "fp16_utils.network_to_half",
        apex="network_to_half, convert_network, BN_convert_float and model.half() make weights float16 for an "
        "FP16_Optimizer.",
        native="Weights stay float32; autocast casts them per operation.",
        why="GradScaler refuses to unscale float16 gradients. network_to_half also put the model in a Sequential: "
        "keys of its old checkpoints start with `1.`.",
        links=(APEX, NATIVE),
        examples=(Example("model = network_to_half(model)", ""), Example("model.half()", "")),
    ),
    Code(
        "AMP721",
        "to_python_float becomes item",
        "fp16_utils.to_python_float",
        apex="Reads a number out of a tensor of one element.",
        native="tensor.item()",
        why="It served PyTorch before 0.4.",
        links=(APEX, "https://pytorch.org/docs/stable/generated/torch.Tensor.item.html"),
        examples=(Example("losses.update(to_python_float(loss))", "losses.update(loss.item())"),),
    ),
    Code(
        "AMP722",
        "clip_grad_norm of fp16_utils is torch's",
        "fp16_utils.clip_grad_norm",
        apex="An alias of the clip_grad_norm_ of the installed PyTorch.",
        native="torch.nn.utils.clip_grad_norm_",
        why="The alias served PyTorch before 0.4.",
        links=(APEX, "https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html"),
        examples=(
            Example(
                "clip_grad_norm(model.parameters(), 1.0)", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
            ),
        ),
    ),
    Code(
        "AMP723",
        "A loop that keeps master weights by hand",
        "fp16_utils.prep_param_lists",
        apex="prep_param_lists, model_grads_to_master_grads, master_params_to_model_params: steps of a training loop "
        "written around float16 weights.",
        native="Autocast over float32 weights needs none of it: scaler.scale(loss).backward(), scaler.step(optimizer), "
        "scaler.update().",
        why="Where the loss is scaled, the gradients divided and the step skipped is the program's own affair.",
        links=(APEX, "https://pytorch.org/docs/stable/notes/amp_examples.html"),
    ),
    Code(
        "AMP724",
        "Half precision without an FP16_Optimizer",
        "fp16_utils.network_to_half",
        apex="Casts a model to float16, batch norm excepted, and its inputs with it.",
        native="torch.autocast around the forward; or model.half() for inference, batch norm included.",
        why="What it is for decides: without an optimizer in sight it may serve inference or a loop written by hand.",
        links=(APEX, NATIVE),
    ),
)


# -- models of a unit --------------------------------------------------------------------------------------------------


def unit(m: Migration) -> None:
    """Leave the models of an FP16_Optimizer in float32; of those that are only run, tell what their state was called."""
    sequential_keys.note(m, [(i.module, i.call) for i in m.unit.inits if i.site.short == "network_to_half"])
    inits = [i for i in m.unit.inits if isinstance(i, LegacyInit) and i.wraps]
    if not inits:
        return
    halvers = {s.node for s in m.unit.sites if s.short in HALVERS}
    in_sequential: list[tuple[Module, ast.Call]] = []
    for module in m.unit.cast:  # others, that never call what wraps, have models of their own
        near = module in m.unit.modules
        if not near and not any(name in module.text for name in ("half", "Half", "float16", *HALVERS)):
            continue
        inputs: list[ast.Call] = []
        for node in walk(module.tree):
            if not isinstance(node, ast.Call):
                continue
            name = other_sequentials.halver(m, node)
            named = bool(name) and bool(node.args) and not _defined_here(m, module, node)
            if node.func in halvers or (named and (near or is_model(m, module, node.args[0]))):
                _keep(m, module, node, name)
                if sequential_keys.place(m, node) is not None:
                    in_sequential.append((module, node))
            elif isinstance(node.func, ast.Attribute) and node.func.attr in ("half", "type", "to"):
                if not _defined_here(m, module, node):  # others may call it, who train nothing
                    inputs += [node] if _cast(m, module, node, node.func) else []
        _tell_inputs(m, module, inputs)
    states = sequential_keys.note(m, in_sequential)
    going = other_sequentials.tell(m, in_sequential, states)
    for module, call in going:
        _keep(m, module, call, "network_to_half")
    sequential_keys.note(m, going)
    sequential_keys.take_items(m, [*in_sequential, *going])


def _cast(m: Migration, module: Module, call: ast.Call, func: ast.Attribute) -> bool:
    """`.half()`, `.type(torch.cuda.HalfTensor)` and `.to(torch.half)` of a model, or of what it is given: whether it is that."""
    if casts_nothing(m.project, module, call):
        return False
    if func.attr == "half" and not call.args:
        if m.scales and never_on(m, module, call):
            return False  # for runs that only evaluate: no scaler comes there
        if is_model(m, module, func.value):
            _keep(m, module, call, "half")
        elif module in m.unit.modules and m.live(module, call) and _is_network(m, module, call, func.value):
            if m.scales and run_apart(m.project, module, func.value):
                message = f"{module.source(func.value)} is made here and only run, by itself: its weights stay float16"
                m.output.note(module, call, "AMP720", "half", message, "as-is")
            elif m.scales and not m.project.callees(module, call):  # what a method of the program's does is asked there
                raise Blocked(
                    module,
                    call,
                    "AMP720",
                    "half",
                    f"makes {module.source(func.value)} float16, and whether its weights are the ones stepped here cannot be "
                    "told: a GradScaler refuses their gradients; leave it float32 where it is trained",
                )
        else:
            return _is_input(m, module, call, func)
        return False
    if cast_to_half(module, call) and is_model(m, module, func.value):
        same_switch(m, module, call, func.attr)
        keep_float32(m, module, call, func)
        return False
    return (
        cast_to_half(module, call) and not _is_network(m, module, call, func.value) and _is_input(m, module, call, func)
    )


def _is_input(m: Migration, module: Module, call: ast.Call, func: ast.Attribute) -> bool:
    """Whether a tensor that the program makes half itself is to be told of; in other files of the programs that train, an item
    for sure."""
    known = module in m.unit.modules or (isinstance(func.value, ast.Subscript) and not never_on(m, module, call))
    return known and m.live(module, call)


def _tell_inputs(m: Migration, module: Module, inputs: list[ast.Call]) -> None:
    """Tell of the tensors that a file makes half, once."""
    ordered = sorted(inputs, key=lambda c: (c.end_lineno or 0, c.end_col_offset or 0))
    for call in ordered[:1]:
        lines = [str(line) for line in dict.fromkeys(c.lineno for c in ordered) if line != call.lineno]
        also = f" (and in line{'s' * (len(lines) > 1)} {', '.join(lines)})" if lines else ""
        message = f"inputs may stay float32: autocast casts what needs it, outside of it half can clash{also}"
        m.output.note(module, call, "AMP720", called_name(call), message)


def _is_network(m: Migration, module: Module, call: ast.Call, value: ast.expr) -> bool:
    """Whether what becomes half is a network and no tensor: in place, or because something else is done to it that only a
    network can do."""
    if isinstance(module.parents.get(call), ast.Expr):
        return True
    slot = m.project.slot(module, value) if isinstance(value, (ast.Name, ast.Attribute)) else None
    if slot is None:
        return False
    methods = (func for name in NETWORK_METHODS | STATE_METHODS for _, func in module.method_calls.get(name, ()))
    return any(m.project.slot(module, func.value) == slot for func in methods)


def keep_float32(m: Migration, module: Module, call: ast.Call, func: ast.Attribute) -> None:
    """Take the cast to float16 off a model."""
    without_half(m, module, call, func)
    m.output.done(module, call, "AMP720", func.attr, "the weights stay float32; autocast casts", "look")


def without_half(m: Migration, module: Module, call: ast.Call, func: ast.Attribute) -> None:
    """Take a cast to float16 off something; the other arguments of `.to` stay."""
    edits = m.edit(module)
    halves = half_arguments(module, call)
    others = [a for a in (*call.args, *call.keywords) if a not in halves]
    if func.attr == "type" and "cuda" in ast.unparse(halves[0]):
        edits.replace(call, (func.value, ".cuda()"))
    elif others:
        first, *more = others
        parts: list[str | ast.expr | ast.stmt] = [func, "(", module.source(first)]  # type: ignore[arg-type]
        for other in more:
            parts += [", ", module.source(other)]  # type: ignore[arg-type]
        edits.replace(call, (*parts, ")"))
    elif isinstance(module.parents.get(call), ast.Expr) and not isinstance(func.value, ast.Call):
        edits.delete(module.statement(call))
    else:
        edits.replace(call, (func.value,))
        _self_assignment(m, module, module.statement(call))


def _defined_here(m: Migration, module: Module, call: ast.Call) -> bool:
    """Whether a call stands in the program's own copy of fp16_utils: a function of such a name, or beside one."""
    function = m.project.function_of(module, call)
    return function is not None and (
        function.name in HALVERS or (function.cls is not None and function.cls.name in HALVERS)
    )


def is_model(m: Migration, module: Module, node: ast.expr) -> bool:
    """Whether an expression is one of the unit's models, or is assigned to one."""
    slots = set(m.project.sources(module, node))
    if m.project.function_of(module, node) in m.unit.early:  # whose variables are no longer there once Apex is set up
        slots = m.project.origins(slots)
    stmt = module.statement(node)
    if not slots and isinstance(stmt, ast.Assign):
        slots = m.project.slots(module, _assigned(stmt, node))
    return bool(slots & m.unit.model_slots)


def _assigned(stmt: ast.Assign, node: ast.expr) -> list[ast.expr]:
    """The targets that an expression, or the element of a tuple that holds it, is assigned to."""
    if not isinstance(stmt.value, ast.Tuple):
        return stmt.targets
    place = next((i for i, element in enumerate(stmt.value.elts) if node in walk(element)), 0)
    return [
        t.elts[place] if isinstance(t, ast.Tuple) and len(t.elts) == len(stmt.value.elts) else t for t in stmt.targets
    ]


def _keep(m: Migration, module: Module, call: ast.Call, name: str) -> None:
    """Put the model in place of what made it half."""
    back = other_sequentials.float_after(module, call)  # it computes in float32, whoever trains
    if not back:
        same_switch(m, module, call, name)
    edits = m.edit(module)
    stmt = module.statement(call)
    value: ast.expr | None = call.func.value if isinstance(call.func, ast.Attribute) and name == "half" else None
    if name != "half":
        value = (
            call.args[0]
            if call.args
            else next((k.value for k in call.keywords if k.arg in ("network", "module")), None)
        )
    parent = module.parents.get(call)
    if name == "tofp16" and isinstance(parent, ast.Call) and len(parent.args) == 2:
        edits.replace(parent, (parent.args[1],))
        m.output.done(module, call, "AMP720", name, "inputs stay float32; autocast casts", "look")
        return
    if value is None:
        raise Blocked(module, call, "AMP724", f"fp16_utils.{name}", "the model that becomes half cannot be told")
    message = "the weights stay float32; autocast casts"
    if call.lineno in m.mended_lines(module, "AMP534"):
        edits.replace(call, (value, ".float()"))
        message = "a network out of a file that was written before has float16 weights, which a GradScaler refuses: made float32"
    elif isinstance(stmt, ast.Expr) and stmt.value is call and not isinstance(value, ast.Call):
        edits.delete(stmt)
    else:
        edits.replace(call, (value,))
        _self_assignment(m, module, stmt)
    if back:
        message = "taken out, with what it puts around the model: it is made float32 below, before anything runs it"
    m.output.done(module, call, "AMP720", name, message, "look")


def _self_assignment(m: Migration, module: Module, stmt: ast.stmt) -> None:
    """`model = model`, once everything around the model is gone."""
    edits = m.edit(module)
    if (
        isinstance(stmt, ast.Assign)
        and len(stmt.targets) == 1
        and _spelled(edits.text(stmt.value)) == ast.unparse(stmt.targets[0])
    ):
        edits.delete(stmt)


def _spelled(text: str) -> str:
    """An expression as Python reads it: with the letters and spaces that every spelling of it comes to."""
    try:
        return ast.unparse(ast.parse(text, mode="eval"))
    except SyntaxError:
        return text


# -- helpers ---------------------------------------------------------------------------------------------------------


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Replace the helpers of one file; report what a loop written by hand does with the others."""
    if "fp16_utils" not in module.text:
        return
    for site in find_sites(project, module):
        if not site.name.startswith("apex.fp16_utils.") or output.edit(module).gone(site.node):
            continue
        _helper(module, site, output)


def _helper(module: Module, site: Site, output: Output) -> None:
    edits, call = output.edit(module), site.call
    if site.short == "to_python_float" and call is not None and len(call.args) == 1:
        value = call.args[0]
        edits.replace(call, (value, ".item()") if isinstance(value, PLAIN) else ("(", value, ").item()"))
        output.done(module, call, "AMP721", site.construct, "reads the number out of the tensor")
    elif site.short == "to_python_float" and call is None:
        edits.replace(site.node, "lambda t: t.item()")
        output.done(module, site.node, "AMP721", site.construct, "reads the number out of the tensor")
    elif site.short == "clip_grad_norm":
        name, stmt = Style(module).torch_name(site.scope)
        if stmt is not None:
            edits.import_torch(stmt)
        edits.replace(site.node, f"{name}.nn.utils.clip_grad_norm_")
        output.done(module, site.node, "AMP722", site.construct, "torch's own")
    elif site.short in MASTERS or site.short in SCALERS:
        output.manual(
            module,
            site.node,
            "AMP723",
            site.construct,
            f"{site.short} is part of a loop that keeps master weights or a loss scale by hand: leave the weights "
            "float32, put forward and loss under torch.autocast, and let a torch.amp.GradScaler scale, step and update",
        )
    elif site.short in HALVERS and not any(f.line == site.at[0] for f in output.findings.get(module, [])):
        output.manual(
            module,
            site.node,
            "AMP724",
            site.construct,
            f"{site.short} without an FP16_Optimizer: leave the model float32 under torch.autocast, or, for inference, "
            "call model.half() and cast its inputs",
        )
