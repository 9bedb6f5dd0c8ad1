"""`amp.master_params(optimizer)` becomes the parameters of the optimizer's groups.

Apex: https://nvidia.github.io/apex/advanced.html#gradient-clipping
Native: https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.findings import Code, Example
from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.logic import LOOSE
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.occurrences import Occurrences
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.naming import free
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.table import BESIDE
from amp_migrate.rules.gradients.whole_model import beside, held, stays_whole, steps_whole
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP304",
        "amp.master_params becomes the optimizer's parameters",
        "amp.master_params",
        apex="Yields the parameters that the optimizer steps: float32 masters under O2, the model's own otherwise.",
        native="The model's parameters are the ones stepped.",
        why="model.parameters() where the optimizer was built from exactly these, else the optimizer's groups. Where the "
        "program has a branch without mixed precision, what is clipped there stands for both; where the optimizer visibly has "
        "others (a second model's, a part alone), each keeps its own.",
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
WIDEST = 120  # columns


def apply(m: Migration) -> None:
    matches = {call: (stmt, plain) for stmt, pair in m.pairs.items() for call, plain in pair.items()}
    for site in m.other_sites("master_params"):
        call = site.call
        if call is None or not m.live(site.module, call):
            continue
        choice, plain = matches.get(call, (None, None))
        optimizer = call.args[0] if call.args else call.keywords[0].value
        edits = m.edit(site.module)
        renewed = _renewed(m, site, optimizer)
        text = model_parameters(m, site, optimizer) if renewed is None else None
        enabled = _asked(m, site, choice) if choice is not None else None
        other = _other(m, site, optimizer, plain) if plain is not None else None
        differs = renewed is not None or other is not None
        beyond = plain is not None and enabled is not None and _has_more(m, site, optimizer, plain)
        more = plain is not None and enabled is not None and (differs or beyond)
        proved = (text is not None or plain is None or other is not None) and not more
        if text is None and plain is not None and not more and not differs:
            text = site.module.source(plain)
        bare = _only_argument(site.module, call) and not more
        quote = m.style(site.module).quote
        each, group = _unnamed(site, ("p", "param", "parameter")), _unnamed(site, ("group", "param_group", "of_group"))
        groups = (f"{each} for {group} in ", optimizer, f".param_groups for {each} in {group}[{quote}params{quote}]")
        parts = (text,) if text is not None else groups if bare else ("(", *groups, ")")
        message = "the parameters that the optimizer steps"
        in_lines = False
        if more and plain is not None and enabled is not None:
            chosen = "".join(site.module.source(p) if isinstance(p, ast.AST) else p for p in parts)
            in_lines = _in_lines(m, site, chosen, plain, enabled)
            plain_text = site.module.source(plain)
            parts = (*parts, f" if {enabled} else {plain_text}")
            if not isinstance(site.module.parents.get(call), (ast.Call, ast.Assign)):
                parts = ("(", *parts, ")")
            others = f", of which line {renewed.lineno} may give the model others" if renewed is not None else ""
            which = f"has none of {other}" if other is not None else "has more" if beyond else "may have more"
            message += f"{others}; {plain_text}, which {which}, without mixed precision, as before"
        elif renewed is not None:
            proved = False
            message += f", of which line {renewed.lineno} may give the model others: no scaler would unscale those"
        elif not (proved := proved or _proved(m, site, optimizer, plain)):
            message = f"{text}, as without mixed precision: see that the optimizer has just these"
        if not in_lines:
            edits.replace(call, parts)
        m.output.done(site.module, call, "AMP304", "amp.master_params", message, "as-is" if proved else "look")


def _unnamed(site: Site, candidates: tuple[str, ...]) -> str:
    """The first name of some that nothing else of the statement has, so that no reader takes one for the other."""
    alone = not hasattr(site.stmt, "body")  # what a loop gives the name of is another thing in each line of it
    named = {n.id for n in walk(site.stmt) if alone and isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return next((name for name in candidates if name not in named), candidates[-1])


def _in_lines(m: Migration, site: Site, chosen: str, plain: ast.expr, enabled: str) -> bool:
    """Choose the parameters above the line that takes them, where one line would be longer than people read."""
    module, call = site.module, site.call
    stmt = module.statement(call) if call is not None else None
    if call is None or not isinstance(stmt, (ast.Expr, ast.Assign)) or not _only_clipped(site):
        return False
    length = stmt.col_offset + len(module.source(stmt)) + len(f"{chosen} if {enabled} else {module.source(plain)}")
    if length - len(module.source(call)) <= WIDEST or stmt.lineno != stmt.end_lineno:
        return False
    name = free(m.unit, ("clipped_parameters",))
    m.edit(module).insert_before(stmt, f"{name} = {module.source(plain)}\nif {enabled}:\n    {name} = {chosen}")
    m.edit(module).replace(call, name)
    return True


def _asked(m: Migration, site: Site, choice: ast.stmt) -> str | None:
    """What chose the parameters that the optimizer steps, as the program asks it: mixed precision may be off there, at O0."""
    switch = m.switch.at(site.module, choice)
    if not isinstance(choice, ast.If):
        return switch
    rest = availability(m.project, site.module).rest(choice.test)
    if not rest or site.call is None or not site.module.inside_of(site.call, choice.body):
        return switch
    several = len(rest) > 1
    texts = [(site.module.source(part), several and isinstance(part, (ast.BoolOp, *LOOSE))) for part in rest]
    return " and ".join(f"({text})" if bracketed else text for text, bracketed in texts)


def _proved(m: Migration, site: Site, optimizer: ast.expr, plain: ast.expr | None) -> bool:
    """Whether what stands for the parameters without mixed precision is all that the optimizer was made with."""
    whole = _parameters_of(site.module, plain) if plain is not None else None
    return whole is not None and steps_whole(m, site.module, optimizer, whole)


def _only_argument(module: Module, call: ast.Call) -> bool:
    parent = module.parents.get(call)
    return isinstance(parent, ast.Call) and parent.args == [call] and not parent.keywords


def model_parameters(m: Migration, site: Site, optimizer: ast.expr) -> str | None:
    """`model.parameters()` where the optimizer was built from exactly those and the model can be named at the site."""
    if _may_be_another(m, site, optimizer):
        return None
    names: set[str] = set()  # an optimizer that may be one of several has the parameters of none of them for certain
    for module, call in _built(m, site, optimizer):
        one = held(m.project, module, call)
        if one is None and not _constructs(call):
            continue
        if one is None or not stays_whole(m, one) or (one.unfrozen and not _only_clipped(site)):
            return None
        name = _name_at(m, one.module, one.model, site)
        if name is not None:
            names.add(f"{name}.parameters()")
    return names.pop() if len(names) == 1 else None


def _may_be_another(m: Migration, site: Site, optimizer: ast.expr) -> bool:
    """Whether an optimizer may be one that no variable of its name was given where it was made: an item of a list."""
    found = m.project.once(Values).may_be(site.module, optimizer)
    built = {call for _, call in _built(m, site, optimizer)}
    calls = [(v.module, v.node) for v in found if isinstance(v.node, ast.Call) and v.kind == "call"]
    made = [call for module, call in calls if held(m.project, module, call)]
    beside = any(v.kind == "unknown" and v.name == BESIDE for v in found)
    return beside or any(call not in built for call in made)


def _built(m: Migration, site: Site, optimizer: ast.expr) -> Iterator[tuple[Module, ast.Call]]:
    """The calls whose result the optimizer at a site may be."""
    slots = set(m.project.sources(site.module, optimizer))
    for module in m.unit.reach:
        for node in m.project.once(Occurrences, module).assigned_to(m.unit.optimizer_slots):
            slot = m.project.slot(module, node.targets[0]) if len(node.targets) == 1 else None
            if slot is not None and slots & m.project.reaches([slot]) and isinstance(node.value, ast.Call):
                yield module, node.value


def _renewed(m: Migration, site: Site, optimizer: ast.expr) -> ast.Call | None:
    """What replaces parameters of a model after its optimizer was made with them, or given to `initialize`, as some language
    models do before training: the optimizer steps the old ones, and the new ones get gradients that it never sees."""
    for module, call in (*_built(m, site, optimizer), *((i.module, i.call) for i in m.unit.inits)):
        for other, _ in module.method_calls.get("resize_token_embeddings", ()):
            if module.scope_of(other) is module.scope_of(call) and other.lineno > call.lineno:
                return other
    return None


def _has_more(m: Migration, site: Site, optimizer: ast.expr, plain: ast.expr) -> bool:
    """Whether what stands for the parameters without mixed precision is a whole model, of which the optimizer has a part."""
    whole = _parameters_of(site.module, plain)
    if whole is None:
        return False
    origin, text = m.project.slot(site.module, whole), site.module.source(whole)
    for module, call in _built(m, site, optimizer):
        one = held(m.project, module, call)
        if one is None:
            continue
        slot = m.project.slot(one.module, one.model)
        same = slot is not None and origin is not None and m.project.origins([slot]) & m.project.origins([origin])
        inner = one.module is site.module and one.module.source(one.model).startswith(f"{text}.")
        if inner or (one.part and same):
            return True
    return False


def _other(m: Migration, site: Site, optimizer: ast.expr, plain: ast.expr) -> str | None:
    """A model of which the optimizer has parameters, too, where what stands for them without mixed precision is another."""
    whole = _parameters_of(site.module, plain)
    if whole is None:
        return None
    built = (
        (module, beside(m.project, module, call, (site.module, whole))) for module, call in _built(m, site, optimizer)
    )
    return next((module.source(other) for module, other in built if other is not None), None)


def _only_clipped(site: Site) -> bool:
    """Whether the parameters go to torch's clips, which pass over those without a gradient."""
    parent = site.module.parents.get(site.call) if site.call is not None else None
    return isinstance(parent, ast.Call) and called_name(parent).startswith("clip_grad_")


def _constructs(call: ast.Call) -> bool:
    name = called_name(call)
    return name[:1].isupper() and bool(call.args) and name != "FP16_Optimizer"


def _parameters_of(module: Module, node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parameters":
        return node.func.value if not node.args and not node.keywords else None
    if isinstance(node, ast.Name):
        value = single_assignment(module, node)
        return _parameters_of(module, value) if value is not None else None
    return None


def _name_at(m: Migration, module: Module, model: ast.expr, site: Site) -> str | None:
    """How the model is named where the site stands."""
    origin = m.project.slot(module, model)
    if origin is None:
        return None
    reached = m.project.reaches([origin])
    text = module.source(model)
    if module is site.module and not _wrapped(m, module, model):
        candidate = m.project.slot(site.module, model)
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


def _wrapped(m: Migration, module: Module, model: ast.expr) -> bool:
    """Whether what a part is named by (`model` of `model.encoder`) is put into a wrapper, which lacks the part."""
    while isinstance(model, ast.Attribute):
        model = model.value
        whole = m.project.slot(module, model)
        for given in m.project.once(Occurrences, module).assigned_to([whole] if whole is not None else []):
            value = given.value
            if isinstance(value, ast.Call) and any(ast.dump(a) == ast.dump(model) for a in value.args):
                if called_name(value)[:1].isupper():
                    return True
    return False
