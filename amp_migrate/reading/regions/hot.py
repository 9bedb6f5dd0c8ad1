"""Hot statements: those between a forward and the loss, which Apex ran in mixed precision."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from amp_migrate.reading.conditions.chains import exclusive
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import FUNCTION_NODES, WITH_NODES, Module
from amp_migrate.reading.program.tree import children
from amp_migrate.reading.program.view import Node
from amp_migrate.reading.regions.computing import TRIVIAL_CALLS, computes, plain_numbers, worth
from amp_migrate.reading.regions.forwards import Forwards
from amp_migrate.reading.regions.kept_lambdas import in_kept_lambda
from amp_migrate.reading.regions.kept_losses import NOT_LOSSES, keeps_loss
from amp_migrate.reading.regions.no_grad import under_no_grad
from amp_migrate.reading.regions.stored import Stores, defines, defines_or_fills, reads_names
from amp_migrate.reading.units.telling_names import MODEL_NAMES
from amp_migrate.reading.values.operations import LOSS_NAMES
from amp_migrate.reading.values.tensors import SHAPE_METHODS

COUNTS = frozenset("dim int len ndimension nelement numel size".split())  # what gives a number of what it is asked of


@dataclass(frozen=True)
class Root:
    """Names that hold a loss; `before`: the statement that scales it, None where the function returns them."""

    names: frozenset[str]
    before: ast.stmt | None = None


def hot_statements(
    reader: Forwards,
    module: Module,
    nodes: list[Node],
    forwards: set[Node],
    roots: list[Root],
    training: bool,
    outputs: Outputs,
) -> set[Node]:
    """Statements between a forward and the loss: they carry its value on and the loss needs them."""
    kept = partial(in_kept_lambda, reader.project, module)

    def idle(call: ast.Call) -> bool:
        return reader.hands_on(module, call) or kept(call)

    simple = [n for n in nodes if not isinstance(n.stmt, (*FUNCTION_NODES, ast.ClassDef))]
    covered = {n for n in simple if any(reader.own_region(module, c) for c in n.calls)}
    seeds = [n for n in simple if n in forwards or n in covered]
    stores = defines
    slice_nodes = _sliced(reader, module, simple, roots, stores)
    if training and seeds and not any(n in seeds for n in slice_nodes):
        stores = defines_or_fills
        slice_nodes = _sliced(reader, module, simple, roots, stores)
    hot: set[Node] = set()
    if training and not any(n in seeds for n in slice_nodes):
        found = _taken_for_forwards(reader, module, [n for n in slice_nodes if not n.blocks and computes(n, kept)])
        seeds += found
        hot |= set(found)
    elif training:  # beside a forward, what the user hands in to run the model in its place
        found = [n for n in slice_nodes if not n.blocks and any(_handed_over(reader, module, a) for a in n.calls)]
        seeds += found
        hot |= set(found)
    tainted: set[str] = set()
    reading: set[Node] = set()
    clean: set[Node] = set()
    for n in simple:  # in source order: what later statements compute does not reach back
        if any(not _renewed(n, name, clean) for name in reads_names(n) & tainted):
            reading.add(n)
        if n in seeds or (n in reading and _carries(n)):
            tainted |= stores(n)
        elif n not in reading and not n.blocks:
            clean.add(n)
    for n in slice_nodes:
        if n.blocks or n in covered or not (n in forwards or n in reading):
            continue
        if n not in forwards and not worth(n, idle):
            continue
        hot.add(n)
    # Reduced outside of a region an output would be a float16 scalar, whose gradient is the scale: infinite.
    outputs.reduced = [n for n in outputs.reduced if n in slice_nodes]
    hot |= {n for n in outputs.reduced if any(map(outputs.sums, n.own))}
    # Evaluation: the loss of outputs, though nothing is scaled.
    for n in simple:
        if not n.blocks and n in reading and (_calls_loss(reader, module, n) or keeps_loss(module, n, defines(n))):
            hot.add(n)
    if any(root.names for root in roots) and hot:
        plain = [n for n in slice_nodes if not any(_goes_on(reader, module, a) or kept(a) for a in n.calls)]
        hot |= _arithmetic(plain, hot, tainted)
    return hot


def _renewed(node: Node, name: str, clean: set[Node]) -> bool:
    """Whether what gives a name its value right above a statement, in every run, is no forward's: one of the `clean`."""
    current: Node | None = node
    while current is not None:
        for above in reversed(current.parent.nodes[: current.index]):
            giving = [n for n in above.walk() if name in defines(n)]
            if giving:
                last = giving[-1]
                plain = above is last or (isinstance(above.stmt, WITH_NODES) and last.parent.holder is above)
                return plain and last in clean
        current = current.parent.holder
    return False


class Outputs:
    """What forwards gave, as long as nothing has reduced it or made a loss of it: it may be float16.

    `runs` tells a forward; `given` are the parameters that such an output is passed for; `graded`: the names of those through
    which a gradient comes.
    """

    def __init__(
        self, nodes: list[Node], runs: Callable[[ast.AST], bool], given: set[str], module: Module | None = None
    ) -> None:
        self.runs = runs
        self.names = set(given)
        self.graded = set(given)
        self.module = module
        self.reduced: list[Node] = []  # simple statements that reduce one
        for n in nodes:
            forward = any(runs(a) for a in n.calls)
            if n.blocks or not (forward or reads_names(n) & self.names):
                continue
            if any(self.sums(a) or self.averages(a) is not None for a in n.own):
                self.reduced.append(n)
            elif forward or (_carries(n) and not any(is_loss(a) for a in n.calls)):
                new = {d for d in defines(n) if not LOSS_NAMES.search(d)}
                self.names |= new
                self.graded |= new if self.has_gradient(n.stmt) else set()

    def has_gradient(self, node: ast.AST) -> bool:
        """Whether a gradient comes through a statement or an expression to some forward."""
        if self.module is not None and under_no_grad(self.module, node):
            return False
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            return self.has_gradient(node.value)
        if isinstance(node, ast.Call) and called_name(node) == "detach":
            return False
        if isinstance(node, ast.Attribute) and node.attr == "data":
            return False
        if (isinstance(node, ast.Name) and node.id in self.graded) or self.runs(node):
            return True
        return any(self.has_gradient(child) for child in children(node))

    def sums(self, node: ast.AST) -> bool:
        """Whether a call reduces an output in float32, where it stands in a region."""
        taken = _taken(node, SUMMING | AVERAGING)
        return taken is not None and self.holds(taken) and self.averages(node) is None

    def averages(self, node: ast.AST) -> ast.expr | None:
        """What a call takes the mean of, where that is an output: autocast does so in float16."""
        taken = _taken(node, AVERAGING)
        if taken is None or not self.holds(taken) or any(isinstance(a, ast.Pow) for a in ast.walk(taken)):
            return None
        computed = (a for a in self._parts(taken) if isinstance(a, ast.Call) and not self.runs(a))
        # What other calls give may be float32 in a region.
        return taken if all(called_name(a) in SHAPE_METHODS - {"sum"} for a in computed) else None

    def holds(self, node: ast.AST) -> bool:
        """Whether an expression takes an output as it is, or reduced."""
        return any((isinstance(a, ast.Name) and a.id in self.names) or self.runs(a) for a in self._parts(node))

    def _parts(self, node: ast.AST) -> Iterator[ast.AST]:
        """The parts of an expression, but for what calls of anything other than methods and forwards are given."""
        yield node
        if not self.runs(node):
            for child in children(node):
                if not isinstance(child, ast.Call) or isinstance(child.func, ast.Attribute) or self.runs(child):
                    yield from self._parts(child)


SUMMING = frozenset("sum norm prod logsumexp".split())  # in float32 under autocast
AVERAGING = frozenset("mean var std".split())  # not


def _taken(node: ast.AST, methods: frozenset[str]) -> ast.expr | None:
    """What a call of one of some methods, or of torch's functions of that name, is applied to."""
    if not isinstance(node, ast.Call) or called_name(node) not in methods:
        return None
    taken = node.func.value if isinstance(node.func, ast.Attribute) else None
    if taken is None or (isinstance(taken, ast.Name) and taken.id == "torch"):
        return node.args[0] if node.args else None
    return taken


def _sliced(reader: Forwards, module: Module, nodes: list[Node], roots: list[Root], stores: Stores) -> list[Node]:
    """What computes the losses, in source order."""
    slices = [_slice(module, nodes, root, stores) for root in roots]
    return [n for n in nodes if any(n in found for found in slices) and not reader.stores_model(module, n.stmt)]


def _slice(module: Module, nodes: list[Node], root: Root, stores: Stores) -> set[Node]:
    """What computes a loss: nothing below the statement that scales it, or in the other branch of an `if` around that."""
    end = root.before
    above = [n for n in nodes if end is None or (n.stmt.lineno <= end.lineno and not exclusive(module, n.stmt, end))]
    needed = set(root.names)
    for _ in range(8):
        size = len(needed)
        for n in above:
            if stores(n) & needed:
                needed |= reads_names(n)
        if len(needed) == size:
            break
    return {n for n in above if stores(n) & needed}


def _handed_over(reader: Forwards, module: Module, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and reader.handed_over(module, node)


def _taken_for_forwards(reader: Forwards, module: Module, nodes: list[Node]) -> list[Node]:
    """Nothing a loss is computed from is known to be a model: calls of variables are (`net(x)`, `self.net(x)`), of what has
    a model's name (`state.model(x)`), or what is handed a model; where only criterions are called so, any real
    computation."""

    def runs(node: Node) -> bool:
        calls = [a for a in node.calls if called_name(a) in MODEL_NAMES or reader.calls_variable(module, a)]
        return any(not LOSS_NAMES.search(ast.unparse(call.func)) for call in calls)

    return [n for n in nodes if runs(n)] or nodes


def _arithmetic(slice_nodes: list[Node], hot: set[Node], tainted: set[str]) -> set[Node]:
    """Cheap arithmetic on the loss right after it is computed stays with it (`loss = loss / steps`)."""
    more: set[Node] = set()
    for n in slice_nodes:
        if n.blocks or n in hot or not reads_names(n) & tainted or not _carries(n):
            continue
        holder = n.parent.holder
        # `if n_gpu > 1: loss = loss.mean()` goes with the loss; a branch that also does other things does not.
        within = [x for x in holder.walk() if not x.blocks] if holder is not None else []
        whole = holder is not None and all(x in slice_nodes for x in within)
        for link in [holder, n] if whole and holder is not None else [n]:
            above = (b for b in reversed(link.parent.nodes[: link.index]) if not _counts(b))
            if any(x in hot or x in more for b in [*above][:1] for x in b.walk()):
                more.add(n)
    return more


def _goes_on(reader: Forwards, module: Module, call: ast.Call) -> bool:
    """Whether a call goes on with something else than a loss: a game, a data set."""
    return called_name(call) in ("step", "next") or reader.hands_on(module, call)


def _counts(node: Node) -> bool:
    """Whether a statement only keeps numbers: `seen += loss.numel()`, `step += 1`."""
    if node.blocks or not isinstance(node.stmt, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return False
    value = node.stmt.value
    whole = value is not None and all(isinstance(a, (ast.Call, ast.Constant, ast.BinOp)) for a in _terms(value))
    return whole and all(called_name(a) in COUNTS for a in node.calls)


def _terms(value: ast.expr) -> Iterator[ast.expr]:
    """What a number is added up from."""
    yield value
    if isinstance(value, ast.BinOp):
        yield from _terms(value.left)
        yield from _terms(value.right)


def _carries(node: Node) -> bool:
    """Whether a statement hands on tensors of the forward: not plain numbers and not bookkeeping."""
    if isinstance(node.stmt, (ast.Assign, ast.AnnAssign)) and isinstance(node.stmt.value, ast.Call):
        name = called_name(node.stmt.value)
        numbers = ("item", "tolist", "len", "numpy", "time", "int", "float")
        return not plain_numbers(node.stmt.value) and name not in numbers
    return True


def _calls_loss(reader: Forwards, module: Module, node: Node) -> bool:
    if not isinstance(node.stmt, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)):
        return False
    whole = node.stmt.value if isinstance(node.stmt, ast.Expr) else None  # `record_loss(output)` computes none
    for a in node.own:
        if isinstance(a, ast.Call) and a is not whole and is_loss(a) and not _makes_object(reader, a):
            if not (reader.own_region(module, a) or reader.on_host(a) or reader.hands_on(module, a)):
                return True
    return False


def _makes_object(reader: Forwards, call: ast.Call) -> bool:
    """Whether a call makes an object of a class of the program: `ScaledLoss(value, optimizer)` computes nothing."""
    functions = reader.project.resolved.get(call, [])
    return bool(functions) and all(f.name == "__init__" for f in functions)


def is_loss(call: ast.Call) -> bool:
    """Whether a call computes a loss, by its name."""
    name = called_name(call)
    return bool(LOSS_NAMES.search(name)) and name not in TRIVIAL_CALLS and not NOT_LOSSES.search(name)
