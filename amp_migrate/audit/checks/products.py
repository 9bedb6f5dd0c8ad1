"""A product of tensors that O1 ran in half, wherever it stood, runs in an autocast region now, or it is told.

O1 patched torch's products for the whole process: `a @ b`, `torch.mm`, `F.linear`, `F.conv2d` of two float32 tensors on the
GPU were half also where no model runs. What models compute is told of their calls. Nothing is said of tensors that are
seen to be on the CPU, where O1 cast nothing, as those that a data set gives, a `collate_fn` puts together or an object has
that nothing moves, nor here of those that come from a region: they are half now as well, or `escapes.py` tells of it. Not
proved: `@` of what is not seen to be torch's (arrays have it too), and products that only code out of sight comes to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amp_migrate.audit.checks.precision import way
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.networks import networks
from amp_migrate.audit.sites.tensors import Tensors
from amp_migrate.audit.ways.chains import Chain
from amp_migrate.audit.ways.formulas import apart, comparable, conjunction, example, matter, minimal, negation, spelled
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP537",
        title="a product of tensors outside of any model ran in half precision and runs in float32 now",
        construct="a product of tensors",
        apex="O1 patched torch for the whole process: products (`@`, matmul, mm, bmm, F.linear, F.conv2d) of float32 tensors on "
        "the GPU ran in half wherever they stood once `amp.initialize` had run.",
        native="Autocast reaches what stands in its region. Put the product into one to have it in half, as it was; leave it to "
        "have it in float32.",
        why="Similarities, metrics and mixed inputs come out with other digits than before, most often better ones, and large "
        "products take longer.",
        links=("https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float16",),
    ),
)

# What O1 ran in half: functions of torch and of torch.nn.functional; the second are methods of tensors as well.
FUNCTIONAL = frozenset("linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d prelu".split())
PRODUCTS = frozenset("matmul mm mv bmm addmm addmv addr addbmm baddbmm".split())
ADDING = frozenset("addmm addmv addr addbmm baddbmm".split())  # what is multiplied comes after what is added to

LIBRARIES = ("torch", "F", "nn.functional", "functional", "torch.nn.functional")
Product = ast.Call | ast.BinOp


@dataclass(frozen=True)
class Lost:
    """A product that is half no more: on which way, when; `sure`: its tensors are seen to be on a device."""

    chain: Chain
    when: str
    sure: bool

    @property
    def node(self) -> ast.expr:
        assert isinstance(self.chain.place.node, ast.expr)
        return self.chain.place.node


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not any(s.patches for s in both.removed):
        return
    tensors = Tensors(both.after.values, both.after.regions, both.after.forwards)
    runs: set[ast.AST] | None = None
    for module in both.near:
        if "@" not in module.text and module.words.isdisjoint(FUNCTIONAL | PRODUCTS):
            continue
        if "torch" not in module.words or not any(s.patches for s in both.near_setups(module)):
            continue
        lost: dict[Function | None, list[Lost]] = {}
        for product in _products(both, module):
            function = module.function_around(product)
            place = _now(both, module, product)
            if place is None:
                continue
            if review.wish.eval == "fp32" and "backward" not in syntax.text(module.around(product)):
                continue
            multiplied = factors(place[1])
            on = {tensors.on(place[0].scope_of(f), f) for f in multiplied}
            if "host" in on or any(tensors.half(place[0].scope_of(f), f) for f in multiplied):
                continue
            if isinstance(product, ast.BinOp) and not any(tensors.torch(place[0].scope_of(f), f) for f in multiplied):
                continue
            if "device" not in on and _loads(both, function):
                continue
            if runs is None:
                runs = {f.call for f, _ in both.forwards_before()} | {f.call for f, _ in networks(both)}
            found = _compared(both, runs, place, tensors, multiplied)
            if found is not None:
                lost.setdefault(function, []).append(Lost(*found, "device" in on))
        yield from (_doubt(both, several) for several in lost.values())


def _loads(both: Mixed, function: Function | None) -> bool:
    """Whether a function prepares data where they are loaded, on the CPU: an item of a data set, a `collate_fn`."""
    if function is None or function.name == "__getitem__":
        return function is not None
    program = both.before.program
    return any(
        keyword.arg == "collate_fn"
        and function in program.definitions(module.scope_of(call), keyword.value, guess=False)
        for module in program.having(function.name)
        if "collate_fn" in module.words
        for call in module.calls()
        for keyword in call.keywords
    )


def _products(both: Mixed, module: Module) -> Iterator[Product]:
    """The products of a file, before."""
    program = both.before.program
    for call in module.calls():
        func = call.func
        last = syntax.last(func)
        if last not in PRODUCTS and last not in FUNCTIONAL:
            continue
        name = program.dotted(module.scope_of(call), func)
        method = isinstance(func, ast.Attribute) and name is None and last in PRODUCTS
        if name in (f"torch.{last}", f"torch.nn.functional.{last}") or (method and not program.methods_named(last)):
            yield call
    if "@" in module.text:
        for node in syntax.every(module.tree, ast.BinOp):
            if isinstance(node.op, ast.MatMult):
                yield node


def factors(product: ast.expr) -> list[ast.expr]:
    """The tensors that are multiplied."""
    if isinstance(product, ast.BinOp):
        return [product.left, product.right]
    assert isinstance(product, ast.Call)
    func, given = product.func, list(product.args)
    last = syntax.last(func)
    library = isinstance(func, ast.Attribute) and syntax.text(func.value) in LIBRARIES
    if isinstance(func, ast.Attribute) and not library and last in PRODUCTS:
        given.insert(0, func.value)
    first = int(last in ADDING)
    return given[first : first + 2] or [product]


def _now(both: Mixed, module: Module, product: Product) -> tuple[Module, Product] | None:
    """A product of the program before, as it stands after."""
    change = both.review.changes.get(module.path)
    if change is None:
        return module, product
    stmt = change.back.get(module.statement(product))
    nodes = syntax.own_line(stmt) if stmt is not None else ()
    same = (n for n in nodes if isinstance(n, (ast.Call, ast.BinOp)) and syntax.text(n) == syntax.text(product))
    found = next(same, None)
    return (change.after, found) if found is not None else None


def _compared(
    both: Mixed, runs: set[ast.AST], place: tuple[Module, Product], tensors: Tensors, factors: list[ast.expr]
) -> tuple[Chain, str] | None:
    """A way on which a product ran in half and does so no more, and when; none of those that a model is run on."""
    for chain in both.after.chains.to(*place):
        old = both.chain_before(chain)
        if old is None or not both.after.chains.certain(chain) or any(s.node in runs for s in old.steps):
            continue
        was, now = both.under_apex(old, frozenset()).half, both.in_region(chain)
        given = conjunction([both.before.predicates.given(old), both.after.predicates.given(chain)])
        lost = conjunction([given, was, negation(now)])
        found = example(lost)
        if found is not None and comparable(now, was) and not _handed_from_host(both, tensors, chain, factors):
            return chain, spelled(apart(given, was, now) or matter(minimal(lost, found), was, now))
    return None


def _handed_from_host(both: Mixed, tensors: Tensors, chain: Chain, factors: list[ast.expr]) -> bool:
    """Whether a function that is handed on along a way is given tensors on the CPU there: `score = pick(name)`, and
    `score(a.cpu(), b.cpu())`."""
    function, program = chain.place.function, both.review.after
    if function is None or not any(step.value for step in chain.steps):
        return False
    names = {n.id for f in factors for n in syntax.every(f, ast.Name)}
    given = [
        [
            (way.module.scope_of(call), v)
            for name, v in (program.arguments(function, call) or {}).items()
            if name in names
        ]
        for way in chain.steps[:-1]
        for call in way.module.calls()
        if way.module.function_around(call) is way.function and isinstance(call.func, (ast.Name, ast.Attribute))
        if any(o.node is function.node for o in tensors.values.origins(way.module.scope_of(call), call.func))
    ]
    return bool(given) and all(any(tensors.on(*value) == "host" for value in values) for values in given)


def _doubt(both: Mixed, several: list[Lost]) -> Doubt:
    """What is said of the products of one function."""
    several.sort(key=lambda p: (p.node.lineno, p.node.col_offset))
    first = several[0]
    place = first.chain.place
    text = syntax.text(place.node)
    text = text if len(text) < 60 else f"{text[:57]}..."
    also = sorted(
        {both.review.line(place.module, p.node) for p in several} - {both.review.line(place.module, place.node)}
    )
    more = f" (and what is multiplied at line {', '.join(map(str, also))})" if also else ""
    where = "" if all(p.sure for p in several) else ", where its tensors are on the GPU"
    message = (
        f"{text}{more} ran in half precision under Apex{first.when}, as O1 reached all products{where}; {way(both, first.chain)}, "
        "no autocast region is around it now: it runs in float32"
    )
    patching = [s for s in both.around_of(place.module) if s.patches]
    if not any(s.usually_patches for s in patching):
        message = f"where the opt level asked for is O1: {message}"
    return both.review.doubt(place.module, place.node, "AMP537", "a product of tensors", message, "look")
