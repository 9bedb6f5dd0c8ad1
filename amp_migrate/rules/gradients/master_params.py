"""`amp.master_params(optimizer)` becomes the parameters of the optimizer's groups.

Apex: https://nvidia.github.io/apex/advanced.html#gradient-clipping
Native: https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.definitions import dotted
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.occurrences import Occurrences
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP304",
        "amp.master_params becomes the optimizer's parameters",
        "amp.master_params",
        apex="Yields the parameters that the optimizer steps: float32 masters under O2, the model's own otherwise.",
        native="The model's parameters are the ones stepped.",
        why="model.parameters() where the optimizer was built from exactly these, else the optimizer's groups. Where the "
        "program has a branch without mixed precision, what is clipped there stands for both.",
        links=(
            "https://nvidia.github.io/apex/advanced.html#gradient-clipping",
            "https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping",
        ),
        examples=(
            Example(
                "clip_grad_norm_(amp.master_params(optimizer), 1.0)",
                "scaler.unscale_(optimizer)\nclip_grad_norm_(model.parameters(), 1.0)",
            ),
        ),
    ),
)


def apply(m: Migration) -> None:
    matches = {call: plain for pair in m.pairs.values() for call, plain in pair.items()}
    for site in m.other_sites("master_params"):
        call = site.call
        if call is None or not m.live(site.module, call):
            continue
        plain = matches.get(call)
        optimizer = call.args[0] if call.args else call.keywords[0].value
        edits = m.edit(site.module)
        text = model_parameters(m, site, optimizer)
        proved = text is not None or plain is None
        if text is None and plain is not None:
            text = site.module.source(plain)
        if text is not None:
            edits.replace(call, text)
        else:
            quote = m.style(site.module).quote
            bare = _only_argument(site.module, call)
            inner = ("p for group in ", optimizer, f".param_groups for p in group[{quote}params{quote}]")
            edits.replace(call, inner if bare else ("(", *inner, ")"))
        message = "the parameters that the optimizer steps"
        if not proved:
            message = f"{text}, as without mixed precision: see that the optimizer has just these"
        m.output.done(site.module, call, "AMP304", "amp.master_params", message, "as-is" if proved else "look")


def _only_argument(module: Module, call: ast.Call) -> bool:
    parent = module.parents.get(call)
    return isinstance(parent, ast.Call) and parent.args == [call] and not parent.keywords


def model_parameters(m: Migration, site: Site, optimizer: ast.expr) -> str | None:
    """`model.parameters()` where the optimizer was built from exactly those and the model can be named at the site."""
    slots = set(m.project.sources(site.module, optimizer))
    names: set[str] = set()  # an optimizer that may be one of several has the parameters of none of them for certain
    for module in m.unit.reach:
        for node in m.project.once(Occurrences, module).assigned_to(m.unit.optimizer_slots):
            slot = m.project.slot(module, node.targets[0]) if len(node.targets) == 1 else None
            if slot is None or not slots & m.project.reaches([slot]):
                continue
            if not isinstance(node.value, ast.Call):
                continue
            model = _all_parameters(module, node.value)
            if model is None:
                if _constructs(node.value):
                    return None
                continue
            name = _name_at(m, module, model, site)
            if name is not None:
                names.add(f"{name}.parameters()")
    return names.pop() if len(names) == 1 else None


def _constructs(call: ast.Call) -> bool:
    name = (dotted(call.func) or "").rpartition(".")[2]
    return name[:1].isupper() and bool(call.args) and name != "FP16_Optimizer"


def _all_parameters(module: Module, call: ast.Call) -> ast.expr | None:
    """The model whose every parameter an optimizer is constructed with; None where that is not plain."""
    if not call.args and not any(k.arg == "params" for k in call.keywords):
        return None
    first = call.args[0] if call.args else next(k.value for k in call.keywords if k.arg == "params")
    return _parameters_of(module, first)


def _parameters_of(module: Module, node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parameters":
        return node.func.value if not node.args and not node.keywords else None
    if isinstance(node, ast.Name):
        value = _last_assignment(module, node)
        return _parameters_of(module, value) if value is not None else None
    if isinstance(node, ast.List) and len(node.elts) == 2:
        return _complementary(module, node)
    return None


def _last_assignment(module: Module, name: ast.Name) -> ast.expr | None:
    scope: Scope | None = module.scope_of(name).lookup(name.id)
    bindings = scope.bindings[name.id] if scope is not None else []
    if len(bindings) != 1:
        return None
    stmt = module.parents.get(bindings[0])
    return stmt.value if isinstance(stmt, ast.Assign) else None


def _complementary(module: Module, node: ast.List) -> ast.expr | None:
    """Two groups split by one condition and its opposite hold every named parameter."""
    models: list[ast.expr] = []
    tests: list[ast.expr] = []
    for element in node.elts:
        if not isinstance(element, ast.Dict):
            return None
        chosen = [
            v
            for k, v in zip(element.keys, element.values, strict=True)
            if isinstance(k, ast.Constant) and k.value == "params"
        ]
        if (
            len(chosen) != 1
            or not isinstance(chosen[0], (ast.ListComp, ast.GeneratorExp))
            or len(chosen[0].generators) != 1
        ):
            return None
        generator = chosen[0].generators[0]
        source = generator.iter
        if isinstance(source, ast.Name):
            value = _last_assignment(module, source)
            source = value if value is not None else source
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.func.id == "list":
            source = source.args[0]
        if not (
            isinstance(source, ast.Call)
            and isinstance(source.func, ast.Attribute)
            and source.func.attr == "named_parameters"
            and len(generator.ifs) == 1
        ):
            return None
        models.append(source.func.value)
        tests.append(generator.ifs[0])
    one, two = tests
    opposite = (
        isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.Not) and ast.dump(one.operand) == ast.dump(two)
    ) or (isinstance(two, ast.UnaryOp) and isinstance(two.op, ast.Not) and ast.dump(two.operand) == ast.dump(one))
    if not opposite or ast.dump(models[0]) != ast.dump(models[1]):
        return None
    return models[0]


def _name_at(m: Migration, module: Module, model: ast.expr, site: Site) -> str | None:
    """How the model is named where the site stands."""
    origin = m.project.slot(module, model)
    if origin is None:
        return None
    reached = m.project.reaches([origin])
    text = module.source(model)
    if module is site.module:
        candidate = m.project.slot(site.module, _at(site, model))
        scope = site.scope
        root = text.split(".")[0]
        owner = scope.lookup(root)
        if candidate == origin and owner is module.scope_of(model).lookup(root):
            return text
        if isinstance(model, ast.Attribute) and root == scope.self_name and candidate in reached:
            return text
    for outer in site.scope.chain():
        if not outer.is_function:
            continue
        for name in outer.params:
            if any(s.holder is outer and s.name == name for s in reached) and name in outer.bindings:
                return name
        break
    return None


def _at(site: Site, model: ast.expr) -> ast.expr:
    return model
