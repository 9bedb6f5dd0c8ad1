"""Networks that Apex was not given: a teacher, a memory bank, a flow network. O1 ran them mixed too, O2 and O3 did not."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeGuard

from amp_migrate.audit.dtypes import FLOAT_LAYERS, HALF_LAYERS
from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.targets import assignments
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.sites.lookalikes import RUNNING
from amp_migrate.audit.sites.mentioned import in_runs_before
from amp_migrate.audit.sites.setups import Identity, identities
from amp_migrate.audit.sites.within import apart_from_given, given_itself, within_given
from amp_migrate.audit.sites.writers import without_gradients
from amp_migrate.audit.values.names import last_name

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed

COPY = "copy.deepcopy"
RUN_IN_HALF = HALF_LAYERS | {"Sequential"}

TENSORFLOW = re.compile(r"^[ \t]*(?:import|from)[\s\\]+(?:tensorflow|keras|jax|flax)\b", re.MULTILINE)
TORCH = re.compile(r"^[ \t]*(?:import|from)[\s\\]+torch\b", re.MULTILINE)
MODULES = frozenset({"Module", "ModuleList", "ModuleDict", "Sequential"})
KEEPERS = re.compile(
    r"sched|engine|loss|criterion|sampler|loader|meter|scaler|handler", re.IGNORECASE
)  # have a state, too
EMBEDDING = re.compile(r"(?:^|_)(?:emb|embeds?|embeddings?|wte|wpe)$", re.IGNORECASE)
IDS = re.compile(r"(?:^|_)(?:ids?|idx|ind(?:ex|ices)|tokens?)$", re.IGNORECASE)
OF_MODULES = frozenset("parameters named_parameters train eval state_dict load_state_dict".split())
NO_NETWORKS = frozenset({"abc.ABC", "typing.Generic", "typing.Protocol", "torch.autograd.Function"})
FLUENT = frozenset("train eval to cuda cpu requires_grad_".split())  # give back what they are called of
SURELY = OF_MODULES - frozenset("train state_dict load_state_dict".split())  # what trainers have not
MOVING = frozenset({"cuda", "to"})
OF_STATE = frozenset("state_dict load_state_dict".split())  # of schedulers, counters, keepers of checkpoints, too


def network_names(modules: Iterable[Module], methods: frozenset[str] = OF_MODULES) -> set[str]:
    """Names of what is trained, evaluated, saved or loaded as a module is."""
    return {name for module in modules for name in _network_names(module, methods)}


@kept  # for most files stay as they are
def _network_names(module: Module, methods: frozenset[str]) -> set[str]:
    calls = [(c, c.func) for c in module.calls() if isinstance(c.func, ast.Attribute)]
    on = [(last_name(syntax.chained(f.value, FLUENT)), f.attr) for _, f in calls]
    found = {name for name, method in on if name is not None and method in methods}
    found |= {name for call, f in calls if f.attr in methods & FLUENT for name in _kept_as(module, call)}
    moved = {name for name, method in on if name is not None and method in MOVING and method not in methods}
    if moved and "from_pretrained" in module.text:
        for target, value, _ in assignments(module):
            name = last_name(target)
            if name in moved and isinstance(value, ast.Call):
                if syntax.text(value.func).endswith("from_pretrained"):
                    found.add(name)
    return found


@kept
def run_by_method(module: Module) -> set[str]:
    """Names of what is evaluated, or moved where it is made, in a file, as a network is: of which `predict`, `generate` and the
    like run it."""
    moved = {n for call in module.calls() if _moves(call) for n in _kept_as(module, call)}
    return {n for n in _network_names(module, SURELY) | moved if n not in ("self", "cls") and not KEEPERS.search(n)}


def _moves(call: ast.Call) -> bool:
    """Whether what a call gives is moved: `build().cuda()`, `Net.load(path).to(device).eval()`."""
    made = syntax.chained(call, FLUENT)
    moved = {n.func.attr for n in syntax.every(call, ast.Call) if isinstance(n.func, ast.Attribute)} & MOVING
    return bool(moved) and isinstance(made, ast.Call)


def _kept_as(module: Module, call: ast.Call) -> Iterator[str]:
    """The names that a network gets with what a method of it gives back: `self.teacher = net.eval()`."""
    stmt = module.parents.get(call)
    for target in stmt.targets if isinstance(stmt, ast.Assign) and stmt.value is call else ():
        if (name := last_name(target)) is not None:
            yield name


def others(both: Mixed) -> Iterator[tuple[Forward, frozenset[Identity]]]:
    """The calls, before, of networks that no set-up was given, from outside of any module; with what they may be.

    A parameter of a function that is only handed on (`Monitor(validate)`) may be a model that a set-up was given.
    """
    for forward, model in networks(both):
        if not model & both.initialized:
            yield forward, both.initialized if _handed_on(both, forward, model) else frozenset()
    own = (forward for module in both.near for forward in both.before.own_calls.of(module))
    whole = (forward for forward in own if forward.runs == "forward")  # of parts the one that is initialized tells
    yield from ((forward, frozenset()) for forward in whole if not both.itself(forward))


def networks(both: Mixed) -> Iterator[tuple[Forward, frozenset[Identity]]]:
    """The calls, before, of all networks, from outside of any module; with what they may be."""
    by_name = {f.call for f, _ in named(both)}
    for module in both.near:
        for forward in both.before.forwards.of(module) if not _other_framework(module) else ():
            if forward.call in by_name or _of_class(both, forward) or _of_torch(both, forward):
                yield forward, both.before.forwards.identities(forward)


@kept
def named(both: Mixed) -> list[tuple[Forward, frozenset[Identity]]]:
    """The like of what is treated as a network somewhere, under the name it has there."""
    names = both.network_names
    surely = network_names(both.near, OF_MODULES - OF_STATE)
    by_method = {n for module in both.near for n in run_by_method(module)}
    found: list[tuple[Forward, frozenset[Identity]]] = []
    for module in both.near:
        if (names | by_method).isdisjoint(module.words) or _other_framework(module):
            continue
        for forward in both.before.forwards.of(module):
            plain, blind = forward.method is None, without_gradients(both.review.before, module, forward.call)
            by_name = names | by_method if plain and blind else names if plain else by_method
            if _named(both, forward, by_name, surely | by_method if blind or not plain else surely):
                found.append((forward, both.before.forwards.identities(forward)))
    return found


def _named(both: Mixed, forward: Forward, names: set[str], surely: set[str]) -> bool:
    """Whether an object of such a name is called, and may be a network where it stands."""
    name = last_name(forward.model) or ""
    if isinstance(forward.model, ast.Subscript) and name not in names:
        name = last_name(forward.model.value) or ""  # one of several: `self.models["teacher"](x)`
    if "optim" in name.lower() or (name not in surely and KEEPERS.search(name)):
        return False  # which has a state, and is made by a call of its class
    return (
        name in names
        and (forward.method is None or runs_unseen(both, forward))
        and not _part(both, forward)
        and not both.before.forwards.no_network(forward)
        and not float_layer(both, forward)
        and not _keeps_books(both, forward, name in surely)
    )


def runs_unseen(both: Mixed, forward: Forward) -> bool:
    """Whether a method runs a network of which it is not seen that it does not: `teacher.generate(x)`, of a class out of sight or
    of one whose base is, and which has a part of it run."""
    if forward.method not in RUNNING:
        return False
    runs = both.before.forwards.runs(forward)
    return all(both.before.forwards.computes(f) for f in runs)


def _of_class(both: Mixed, forward: Forward) -> bool:
    """Whether a network of the program is run that is seen to be made, under whatever name, and no loss: itself, or another
    method of it that runs parts of it (`teacher.embed(x)`)."""
    classes = both.before.forwards.classes(forward)
    if not classes or not all(is_network(both.before.program, c) for c in classes) or _part(both, forward):
        return False
    name = last_name(forward.model) or ""
    if KEEPERS.search(name) or any(KEEPERS.search(c.name) for c in classes):
        return False
    runs = both.before.forwards.runs(forward)
    return bool(runs) and (forward.method is None or all(both.before.forwards.computes(f) for f in runs))


def _of_torch(both: Mixed, forward: Forward) -> bool:
    """Whether a layer of torch's that O1 ran in half is run, or several in a row, under whatever name, and outside of any module."""
    return of_half_layers(both, forward) and not _part(both, forward)


def of_half_layers(both: Mixed, forward: Forward) -> bool:
    """The same wherever it is run."""
    made = both.before.forwards.identities(forward)
    if forward.method is not None or not made:
        return False
    for call, *_, module in made:
        if (
            not isinstance(call, ast.Call)
            or not isinstance(module, Module)
            or syntax.last(call.func) not in RUN_IN_HALF
        ):
            return False
        if not (both.review.before.dotted(module.scope_of(call), call.func) or "").startswith("torch.nn."):
            return False
    return True


def is_network(program: Program, cls: Class) -> bool:
    """Whether a class is a network, or derives from what a library has and has a forward of its own."""
    if program.is_network(cls):
        return True
    bases = [b for b in program.external_bases(cls) if b not in NO_NETWORKS and not hasattr(builtins, b)]
    return bool(bases) and any(f.bound for f in program._method(cls, "forward"))


def own_runs(both: Mixed) -> Iterator[tuple[Forward, list[tuple[Module, ast.Call]]]]:
    """The calls, before, that run a network in a method of its own, `self.forward(x)` in `encode`; with what calls that method
    of objects."""
    program = both.before.program
    called: dict[str, list[tuple[Module, ast.Call]]] = {}
    for module in both.near:
        for call in module.calls():
            if isinstance(call.func, ast.Attribute) and syntax.text(call.func.value) != "self":
                called.setdefault(call.func.attr, []).append((module, call))
    for module in both.near:
        for cls in module.classes:
            if not any(b.rpartition(".")[2] in MODULES for b in program.external_bases(cls)):
                continue
            within = {n.attr for f in program.methods(cls, "forward") for n in syntax.every(f.node, ast.Attribute)}
            methods = [f for n in sorted(cls.methods.keys() & called.keys() - within) for f in cls.methods[n]]
            public = [f for f in methods if f.name != "forward" and not f.name.startswith("_")]
            runs = [(f, n) for f in public for n in syntax.own_nodes(f.node) if _of_itself(n)]
            for method, call in runs if runs and in_runs_before(both).cls(cls) else ():
                itself = call.func.value if isinstance(call.func, ast.Attribute) else call.func
                yield Forward(module, call, itself, "forward"), called[method.name]


def _of_itself(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and syntax.text(node.func) in ("self", "self.forward")


@kept
def _other_framework(module: Module) -> bool:
    """Whether the networks of a file are TensorFlow's, which Apex never touched."""
    return bool(TENSORFLOW.search(module.read)) and not TORCH.search(module.read)


def _handed_on(both: Mixed, forward: Forward, model: frozenset[Identity]) -> bool:
    function = forward.module.function_around(forward.call)
    return (
        function is not None
        and bool(model)
        and all(isinstance(i[0], ast.arg) for i in model)
        and not both.before.program.callers(function)
        and bool(both.before.chains.mentions(function))
    )


def _part(both: Mixed, forward: Forward) -> bool:
    """Whether a network is called by a module that it is a part of."""
    function = forward.module.function_around(forward.call)
    owner = function.owner if function is not None else None
    if owner is None:
        return False
    program = both.before.program
    bases = program.external_bases(owner)
    # What derives from something out of sight and has a forward is a module, whatever a library calls its base.
    return any(b.rpartition(".")[2] in MODULES for b in bases) or (
        bool(bases) and bool(program.methods(owner, "forward"))
    )


def _keeps_books(both: Mixed, forward: Forward, surely: bool) -> bool:
    """Whether what is called only has a state as networks have one: nothing takes what it gives, or its class is seen and
    is no network's; or it is told of a network in a statement of its own (`saver(loss, model)`)."""
    call = forward.call
    if isinstance(forward.module.parents.get(call), ast.Expr):
        given = {last_name(v) for v in syntax.given(call)}
        return not surely or not given.isdisjoint(both.start)
    classes = both.before.forwards.classes(forward) if not surely else []
    return bool(classes) and not any(both.before.program.is_network(c) for c in classes)


def float_layer(both: Mixed, forward: Forward) -> bool:
    """Whether a network is one layer of torch that never ran in half for its own sake: an embedding, a norm, a loss; seen to
    be made, or called an embedding and given ids."""
    made = both.review.values_before.makers(forward.scope, forward.model) or ()
    if made:
        return all(m.startswith("torch.nn.") and m.rpartition(".")[2] in FLOAT_LAYERS for m in made)
    given = [last_name(a) or "" for a in forward.call.args[:1]]
    return (
        forward.method is None
        and EMBEDDING.search(last_name(forward.model) or "") is not None
        and any(map(IDS.search, given))
    )


def part_of_given(both: Mixed, forward: Forward) -> bool:
    """Whether what is called, before, is taken out of something that a set-up was given: `model[0](x)`."""
    whole = forward.model
    while isinstance(whole, (ast.Attribute, ast.Subscript)):
        whole = whole.value
        if isinstance(whole, (ast.Name, ast.Attribute)):
            if identities(both.review.values_before, forward.scope, whole) & both.initialized:
                return True
    return False


def is_given(both: Mixed, module: Module, model: ast.expr) -> bool:
    """Whether a set-up was given a network, or that cannot be told."""
    scope = module.scope_of(model)
    if last_name(model) in both.start and not _made_here(both, module, model):
        return True
    whole = model.value if isinstance(model, ast.Attribute) else None
    if isinstance(whole, (ast.Name, ast.Attribute)) and last_name(whole) in both.start:
        return True  # `model.encoder`: a part
    found = identities(both.review.values_after, scope, model)
    if found and all(isinstance(i[0], ast.arg) for i in found):
        return True  # what a function is given that only code out of sight calls, or an object that it was handed on to
    if any(_copied(both, i) for i in found):
        return True  # a copy of one, which was half as that was
    return (given_itself(both, found) and not apart_from_given(both, module, model)) or within_given(both, found)


def _copied(both: Mixed, identity: Identity) -> bool:
    node, module = identity[0], identity[-1]
    was = both.was(module, node) if isinstance(node, ast.Call) and isinstance(module, Module) else None
    return was is not None and copied_since(both, *was)


def _made_here(both: Mixed, module: Module, model: ast.expr) -> bool:
    """Whether a network is seen to be made where it runs, whatever it is called: `model = Net.load(path)`."""
    found = identities(both.review.values_after, module.scope_of(model), model)
    function = module.function_around(model)
    return bool(found) and all(
        isinstance(i[0], ast.Call) and i[-1] is module and module.function_around(i[0]) is function for i in found
    )


def copied_since(both: Mixed, module: Module, call: ast.AST) -> bool:
    """Whether a call of the program before copies a model whose weights Apex may have made half by then."""
    if not isinstance(call, ast.Call) or len(call.args) != 1:
        return False
    scope = module.scope_of(call)
    if both.before.program.dotted(scope, call.func) != COPY:
        return False
    return may_be_half(both, module, call, identities(both.review.values_before, scope, call.args[0]))


def may_be_half(both: Mixed, module: Module, node: ast.AST, model: frozenset[Identity]) -> bool:
    """Whether the weights of a model may be half where a node stands: some way to it comes by a set-up that made them so."""
    model &= both.initialized_around(module)
    if not model or not (both.floats(module) or both.asks(module)):
        return False
    return any(both.under_apex(way, model).half is not False for way in both.before.chains.to(module, node))
