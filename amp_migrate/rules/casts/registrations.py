"""`amp.register_half_function(torch, "einsum")` and its siblings."""

from __future__ import annotations

import ast
from typing import NamedTuple

from amp_migrate.findings import Review
from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope
from amp_migrate.reading.program.tree import reached, walk
from amp_migrate.reading.sites.apex import Site, find_sites
from amp_migrate.reading.sites.casts import NATIVE, REGISTRATIONS, is_cast
from amp_migrate.reading.units.naming import unbound
from amp_migrate.reading.units.unit import only_asks
from amp_migrate.rules.casts.functions import Cast, always_on, cast_definition, method_of
from amp_migrate.rules.migration import Migration
from amp_migrate.writing.names import native_name

TORCH = ("torch", "torch.nn.functional", "torch.Tensor")
REVIEWS: tuple[Review, ...] = ("as-is", "look", "review")
# Modules whose forward calls the function of torch that is registered.
LAYERS = {"torch.sigmoid": "torch.nn.Sigmoid", "torch.tanh": "torch.nn.Tanh", "torch.relu": "torch.nn.ReLU"}
# Functions of torch with more than one floating point tensor among their leading arguments.
INPUTS = dict.fromkeys("atan2 cross dot dist where lerp minimum maximum fmod remainder".split(), 2)
# Products of matrices, whose leading arguments are all tensors, and how many these are: what autocast makes half runs in
# float32 only where it is off.
PRODUCTS = {**dict.fromkeys("matmul mm bmm mv".split(), 2), **dict.fromkeys("addmm addmv addbmm baddbmm".split(), 3)}
# What is registered so that the probabilities that go into a BCELoss are float32.
FOR_BCE = ("sigmoid", "binary_cross_entropy")


def convert_registration(m: Migration, site: Site) -> None:
    """Take one registration out, after casting what it would have cast.

    Raises Blocked where that is not in sight.
    """
    cast = Cast(REGISTRATIONS[site.short], site)
    target, name = site.argument(0, "module"), site.argument(1, "name")
    if site.call is None or target is None or name is None:
        raise cast.refuse(f"{site.construct} is passed on; its calls are not in sight")
    names = literal_names(site.module, name)
    if not names:
        raise cast.refuse("which function is registered is only known at run time; cast its inputs where it is called")
    finish(m, site, name, "AMP513", [_convert(m, cast, target, each) for each in names])


class Said(NamedTuple):
    """What is said of one function that was told how to be cast."""

    message: str
    review: Review = "look"


def finish(m: Migration, site: Site, names: ast.expr, code: str, said: list[Said]) -> None:
    """Take a registration out, or the loop around it that registers several functions, and say what stands for it."""
    loop = _loop(site.module, names)
    m.edit(site.module).delete(loop if loop is not None else site.stmt)
    review = max((x.review for x in said), key=REVIEWS.index)
    m.output.done(site.module, site.stmt, code, site.construct, "; ".join(x.message for x in said), review)


def literal_names(module: Module, node: ast.expr) -> list[str]:
    """The function names that an argument stands for: literals, or a variable that loops over them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        values = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        return values if len(values) == len(node.elts) else []
    loop = _loop(module, node)
    return literal_names(module, loop.iter) if loop is not None and len(loop.body) == 1 else []


def _loop(module: Module, node: ast.expr) -> ast.For | None:
    parent = module.parents.get(module.statement(node))
    if isinstance(parent, ast.For) and isinstance(parent.target, ast.Name) and isinstance(node, ast.Name):
        return parent if parent.target.id == node.id and not parent.orelse else None
    return None


def _convert(m: Migration, cast: Cast, target: ast.expr, name: str) -> Said:
    """Cast what one registration casts; the message that says so."""
    module = cast.site.module
    base = m.project.qualify(module, target) or ast.unparse(target)
    if base in TORCH:
        return convert_torch(m, cast, base, name)
    full = f"{base}.{name}"
    if base == "torch.nn" and name[:1].isupper():
        return Said(f"{full} is a class: what was cast is what its layers are made with, and no tensor")
    if _definition(m, cast, module, target, name):
        return Said(f"the inputs of {full} are cast in its body")
    _refuse_unless_plain(m, cast, full)
    raise cast.refuse(f"which inputs of {full} are tensors cannot be told; cast them where it is called")


def convert_torch(m: Migration, cast: Cast, base: str, name: str) -> Said:
    """Cast what torch is told to cast in a function of its own, where autocast does not by itself; the message for it."""
    full = f"{base}.{name}"
    said = _by_itself(cast.to, name)
    if said is not None:
        exact, unused = cast.to == "half" and name in NATIVE.halves, not _in_sight(m, name)
        said += ", and nothing in sight uses it" if exact and unused else ""
        return Said(
            f"{full} {said}" if m.unit.inits else _without_program(m, cast, full, said),
            "as-is" if exact and unused else "look",
        )
    _refuse_unless_plain(m, cast, full)
    done = _at_calls(m, cast, full, name)
    if cast.to == "float" and name in FOR_BCE:  # Apex let a BCELoss pass whose inputs are float32, autocast none
        reason = "if that was for a BCELoss out of sight: autocast refuses it on float32 inputs too; keep it out of the region"
        return Said(f"{done.message}; {reason}", done.review)
    return done


def _in_sight(m: Migration, name: str) -> bool:
    """Whether a file of the run names a function, other than in quotes."""
    return any(
        name in module.text
        and (name in module.loads or any(isinstance(n, ast.Attribute) for n in module.named.get(name, ())))
        for module in m.unit.reach
    )


def _refuse_unless_plain(m: Migration, cast: Cast, full: str) -> None:
    """Casts that are not the same in every run cannot be written at the calls."""
    if cast.to == "promote":
        raise cast.refuse(f"promote the inputs of {full} where it is called")
    if cast.to == "half" and not always_on(m):
        raise cast.refuse(f"cast the inputs of {full} to {m.options.dtype} where it is called, if autocast is on")


def _without_program(m: Migration, cast: Cast, full: str, said: str) -> str:
    """What is said of a registration where no `initialize` of its unit is in sight.

    Raises Blocked where something else of amp is left to Apex there: the registration is for that.
    """
    migrated = False
    for module in m.unit.tied:
        for site in find_sites(m.project, module) if m.project.may_name_apex(module) else ():
            if not site.name.startswith("apex.amp") or is_cast(site) or only_asks(site):
                continue
            written = m.earlier.edits.get(module)
            if written is not None and written.gone(site.node):
                migrated = True
            else:
                raise cast.refuse(
                    f"which program registers {full} for Apex is not in sight ({module.display}:{site.at[0]} uses amp too): "
                    "rewrite this file together with the one that calls initialize"
                )
    return f"{full} {said}" if migrated else f"taken out: nothing in sight sets mixed precision up for {full}"


def _by_itself(to: str, name: str) -> str | None:
    """What autocast does with a function of torch without being told, where that answers the registration."""
    if to == "promote":
        return "promotes its inputs by itself" if name in NATIVE.promotes else None
    if to == "float":
        return "runs in float32 under autocast by itself" if name in NATIVE.floats else None
    if name in NATIVE.halves:
        return "runs in lower precision under autocast by itself"
    if name in NATIVE.floats:
        return "runs in float32 under autocast, which is more exact than what was registered"
    return None


def _definition(m: Migration, cast: Cast, module: Module, target: ast.expr, name: str) -> bool:
    """Cast in the body of a registered function of the program itself; False where it is not in sight."""
    scope: Scope | None = None
    owner = module
    base = m.project.qualify(module, target)
    if ast.unparse(target) == "sys.modules[__name__]":
        scope = module.root
    elif base is not None and base in m.project.by_name:
        owner = m.project.by_name[base]
        scope = owner.root
    else:
        info = m.project.find_class(module, target)
        if info is not None:
            owner, scope = info.module, info.scope
    if scope is None:
        return False
    for binding in scope.bindings.get(name, ()):
        if isinstance(binding, FUNCTION_NODES):
            cast_definition(m, cast, owner, binding, None)
            return True
    return False


# -- calls of functions of torch -------------------------------------------------------------------------------------


def _at_calls(m: Migration, cast: Cast, full: str, name: str) -> Said:
    apart = cast.to == "float" and name in NATIVE.halves
    if apart and name not in PRODUCTS:
        raise cast.refuse(
            f"autocast runs {full} in lower precision: call it on float32 inputs where autocast is disabled"
        )
    if full.startswith("torch.Tensor."):
        raise cast.refuse(f"methods of tensors cannot be told from others; cast the input of {name} where it is called")
    calls, layers = _calls(m, full)
    if not calls and not layers and not m.unit.inits:
        raise cast.refuse(f"no call of {full} is in sight: cast its input where it is called, as in {full}(x.float())")
    if not calls and not layers:
        return Said(f"nothing in sight calls {full}; where a library does, it runs as autocast has it", "review")
    method = method_of(m, cast.to)
    for module, call, count in calls:
        if apart and _in_float(m, module, call):
            continue
        if len(call.args) < count or any(isinstance(a, ast.Starred) for a in call.args[:count]):
            raise cast.refuse(f"the inputs of {full} cannot be told apart: cast them at {module.display}:{call.lineno}")
        for value in call.args[:count]:
            _cast(m, module, value, method)
        if apart:
            off = m.off("autocast", module, module.scope_of(call))
            m.edit(module).replace(call.func, f"{off}({module.source(call.func)})")
    for module, nodes in layers.items():
        _cast_inside(m, module, nodes, LAYERS[full], method)
    sites = [
        *((module, call) for module, call, _ in calls),
        *((module, n) for module in layers for n in layers[module]),
    ]
    places = ", ".join(sorted({f"{module.display}:{node.lineno}" for module, node in sites}))
    where = f"{places}, where autocast is off for it" if apart else places
    return Said(f"the input of {full} is cast at {where}; calls inside of libraries are not")


def _in_float(m: Migration, module: Module, call: ast.Call) -> bool:
    """Whether a call stands in a function that runs in float32 because Apex was told so of it."""
    return any(
        isinstance(holder, FUNCTION_NODES)
        and any((m.project.qualify(module, d) or "") == "apex.amp.float_function" for d in holder.decorator_list)
        for holder in module.ancestors(call)
    )


def _cast(m: Migration, module: Module, value: ast.expr, method: str) -> None:
    """`x` becomes `x.float()`, unless it is already that."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        given = [*value.args, *(k.value for k in value.keywords)]
        typed = value.func.attr in ("to", "type") and [module.qualify(a) for a in given] == ["torch.float32"]
        if value.func.attr == method or (typed and method == "float"):
            return
    edits = m.edit(module)
    if ("after", f".{method}()") in edits.insertions.get(value, ()):
        return  # registered twice
    if not isinstance(value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        edits.insert("before", value, "(")
        edits.insert("after", value, ")")
    edits.insert("after", value, f".{method}()")


def _calls(m: Migration, full: str) -> tuple[list[tuple[Module, ast.Call, int]], dict[Module, list[ast.expr]]]:
    """Calls of a function of torch by the unit's program, those of its layers among them, and how many inputs each has;
    by file, the layers whose calls are not in sight, and classes of such layers that are passed on."""
    last = full.rpartition(".")[2]
    layer = LAYERS.get(full)
    calls: list[tuple[Module, ast.Call, int]] = []
    layers: dict[Module, list[ast.expr]] = {}
    for module in _program(m):
        if last.lower() not in module.text.lower():
            continue
        for node in walk(module.tree):
            if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
                continue
            name = m.project.qualify(module, node)
            if name is None or name not in (full, layer) or not m.live(module, node):
                continue
            parent = module.parents[node]
            called = isinstance(parent, ast.Call) and parent.func is node
            if name == full:
                if called and isinstance(parent, ast.Call):
                    calls.append((module, parent, PRODUCTS.get(last) or INPUTS.get(last, 1)))
            elif called and isinstance(parent, ast.Call) and (seen := _layer_calls(m, module, parent)):
                calls += ((module, call, 1) for call in seen)
            elif called or _passed_on(parent):
                layers.setdefault(module, []).append(node)
    return calls, layers


def _layer_calls(m: Migration, module: Module, made: ast.Call) -> list[ast.Call]:
    """The calls of `self.act = nn.Sigmoid()`; none where what calls the layer is not in sight."""
    stmt = module.parents.get(made)
    slot = m.project.slot(module, stmt.targets[0]) if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    return [
        node
        for node in walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, (ast.Name, ast.Attribute))
        and slot is not None
        and m.project.slot(module, node.func) == slot
    ]


def _passed_on(holder: ast.AST) -> bool:
    """Whether a class that stands in there will be made something of: `{"sigmoid": nn.Sigmoid}`, `Head(act=nn.Sigmoid)`."""
    if isinstance(holder, ast.Call):
        return not (isinstance(holder.func, ast.Name) and holder.func.id in ("isinstance", "issubclass"))
    return isinstance(holder, (ast.keyword, ast.arguments, ast.Dict, ast.IfExp, ast.Return, ast.Assign))


def _cast_inside(m: Migration, module: Module, layers: list[ast.expr], layer: str, method: str) -> None:
    """Give a container, or whoever else calls these layers, a class of them that casts what comes in."""
    ours = unbound(module.root, [f"{method.capitalize()}{layer.rpartition('.')[2]}"])
    body = module.tree.body
    first = next(s for node in layers for s in (module.statement(node), *module.ancestors(node)) if s in body)
    base = native_name(module, layer, module.root, first.lineno)
    base = base or f"{m.torch(module, module.root)}.{layer.partition('.')[2]}"
    indent = m.style(module).indent
    m.edit(module).insert_before(
        first,
        f"class {ours}({base}):\n{indent}def forward(self, input):\n"
        f"{indent}{indent}return super().forward(input.{method}())",
    )
    for node in layers:
        m.edit(module).replace(node, ours)


def _program(m: Migration) -> list[Module]:
    """The unit's files and those that they import, directly or not; where none of them sets up, all that imports tie to them."""
    by_name = m.project.by_name
    if not m.unit.inits:
        return [module for module in m.project.modules if module in m.unit.tied]

    def imported(module: Module) -> list[Module]:
        names = [name for _, target in module.imported for name in (target, target.rpartition(".")[0])]
        return [by_name[name] for name in (*names, *module.star_imports) if name in by_name]

    return list(reached(m.unit.modules, imported))
