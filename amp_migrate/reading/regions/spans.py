"""Which statements one region spans, once it is known which must stand in some region: as a person would write it.

Several with nothing but cheap tensor code between them become one; one around nothing but an `if` goes into its body;
arithmetic that autocast leaves alone needs none.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from amp_migrate.reading.program.definitions import called_name, dotted
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.view import Block, Node, find
from amp_migrate.reading.regions.computing import TRIVIAL_CALLS, worth
from amp_migrate.reading.values.returned import MAKERS
from amp_migrate.reading.values.tensors import SELECTING_METHODS, SHAPE_METHODS

# What makes scores of an output, which Apex computed in float32 and autocast does: outside of a region they would be half.
SCORING_LAYERS = frozenset("Softmax LogSoftmax Sigmoid".split())
SCORING = SCORING_LAYERS | frozenset("softmax log_softmax sigmoid".split())
# Calls between two regions that one around both may cover: they move, shape or make tensors, or ask what something is.
QUIET_CALLS = (
    SHAPE_METHODS
    | SELECTING_METHODS
    | MAKERS
    | frozenset(
        "bool dim float getattr half hasattr int is_tensor isinstance len long numel ones_like permute range size squeeze "
        "tensor to type type_as zeros_like argmax topk".split()
    )
    | SCORING
) - {"cpu"}
COLD = 2  # quiet statements that a region takes in for each that must be in one


@dataclass
class Region:
    """A run of statements of one block to put under autocast; `join`: add it to this `with torch.no_grad()` instead."""

    first: ast.stmt
    last: ast.stmt
    join: ast.With | None = None


@dataclass(frozen=True)
class Spans:
    """Shapes the regions of one scope. `hot`: what must stand in one; `barrier`: what must not."""

    module: Module
    hot: set[Node]
    forwards: set[Node]
    barrier: Callable[[Node], bool]

    def shaped(self, block: Block, regions: list[Region]) -> list[Region]:
        """The regions of a block, in source order."""
        found = [self._tight(block, r) for r in self._merged(block, regions)]
        found = [part for region in found for part in self._apart(block, region)]
        needed = [r for r in found if r.join is not None or not self._idle(block, r)]
        return needed or found

    # -- several that are one ------------------------------------------------------------------------------------

    def _merged(self, block: Block, regions: list[Region]) -> list[Region]:
        spans: list[tuple[int, int, list[Region]]] = []
        for index, node in enumerate(block.nodes):
            if spans and index <= spans[-1][1]:
                continue
            own = next((r for r in regions if r.first is node.stmt), None)
            if own is not None:
                last = next((i for i, n in enumerate(block.nodes) if n.stmt is own.last), index)
                spans.append((index, last, [own]))
                continue
            inner = [r for b in node.blocks for r in self._merged(b, regions)]
            if inner:
                spans.append((index, index, inner))
        if is_elif(self.module, block):
            return [r for _, _, inside in spans for r in inside]
        out: list[tuple[int, int, list[Region]]] = []
        for start, end, inside in spans:
            if out:
                whole = self._one(block, out[-1][0], end, [*out[-1][2], *inside])
                if whole is not None:
                    out[-1] = (out[-1][0], end, [whole])
                    continue
            whole = self._one(block, start, end, inside)
            out.append((start, end, [whole] if whole is not None else inside))
        return [r for _, _, inside in out for r in inside]

    def _one(self, block: Block, start: int, end: int, inside: list[Region]) -> Region | None:
        """The region in place of several, or None where that would take in what belongs in none."""
        if len(inside) < 2 or any(r.join is not None for r in inside):
            return None
        nodes = block.nodes[start : end + 1]
        # What these take in they take in anyway.
        beside = [r for r in inside if any(r.first is node.stmt for node in nodes)]
        held = [n for node in nodes for n in node.walk() if n not in self.hot and not self._covered(n, beside)]
        # What calls the same as a statement that must be in a region may be in it as well: `y = gather(y)` beside `x`.
        hot = [n for node in nodes for n in node.walk() if n in self.hot]
        called = {dotted(a.func) for n in hot for a in n.calls} - {None} | _scoring(held)
        if any(self.barrier(node) for node in nodes) or not all(_quiet(n, called) for n in held):
            return None
        simple = sum(not n.blocks for node in nodes for n in node.walk())
        if sum(not n.blocks for n in held) > COLD * simple / (COLD + 1):
            return None
        return Region(nodes[0].stmt, nodes[-1].stmt)

    def _covered(self, node: Node, regions: list[Region]) -> bool:
        """Whether a statement stands in one of some regions."""
        current: Node | None = node
        while current is not None:
            stmt = current.stmt
            if any(
                r.first.lineno <= stmt.lineno and (stmt.end_lineno or 0) <= (r.last.end_lineno or 0) for r in regions
            ):
                return True
            current = current.parent.holder
        return False

    # -- one that is too wide ------------------------------------------------------------------------------------

    def _tight(self, block: Block, region: Region) -> Region:
        """A region around an `if` without `else` goes into its body."""
        if region.join is not None or region.first is not region.last or not isinstance(region.first, ast.If):
            return region
        node = next(n for n in block.walk() if n.stmt is region.first)
        if node in self.hot or len(node.blocks) != 1:
            return region
        held = [n for n in node.blocks[0].nodes if any(x in self.hot for x in n.walk())]
        return self._tight(block, Region(held[0].stmt, held[-1].stmt)) if held else region

    def _apart(self, block: Block, region: Region) -> list[Region]:
        """A region that crosses the line of a statement that dissolves, a `with amp.scale_loss`: one on either side."""
        if region.first is region.last:
            return [region]
        runs: list[tuple[int, list[ast.stmt]]] = []
        for stmt in statements(block, region):
            home = id(self.module.block(stmt))
            if runs and runs[-1][0] == home:
                runs[-1][1].append(stmt)
            else:
                runs.append((home, [stmt]))
        return [region] if len(runs) == 1 else [Region(run[0], run[-1]) for _, run in runs]

    def _idle(self, block: Block, region: Region) -> bool:
        """Whether autocast changes nothing in a region: `loss = loss.mean()` has the dtype of what it is given."""
        held = [n for n in block.walk() if self._covered(n, [region])]
        return not any(n in self.forwards or worth(n) or _cast(n) for n in held)


def statements(view: Block, region: Region) -> list[ast.stmt]:
    """The statements of a region in the scope it stands in, as that will read: also those on both sides of the line of a
    `with amp.scale_loss`, or of an `if`, that dissolves."""
    first = find(view, region.first) if region.first is not region.last else None
    if first is None:
        return [region.first]
    found: list[ast.stmt] = []
    for node in first.parent.nodes[first.index :]:
        found.append(node.stmt)
        if node.stmt is region.last:
            break
    return found


def is_elif(module: Module, block: Block) -> bool:
    """Whether a block is no more than the `elif` of the statement that holds it."""
    if block.holder is None or len(block.nodes) != 1:
        return False
    holder, stmt = block.holder.stmt, block.nodes[0].stmt
    if not isinstance(holder, ast.If) or holder.orelse != [stmt] or not isinstance(stmt, ast.If):
        return False
    return module.lines[stmt.lineno - 1][stmt.col_offset :].startswith(b"elif")


def _scoring(nodes: list[Node]) -> set[str | None]:
    """The names that statements give to layers which make scores: `soft = nn.Softmax(dim=1)`."""
    made = [n.stmt for n in nodes if isinstance(n.stmt, ast.Assign) and isinstance(n.stmt.value, ast.Call)]
    return {
        dotted(target)
        for stmt in made
        for target in stmt.targets
        if isinstance(stmt.value, ast.Call) and called_name(stmt.value) in SCORING_LAYERS
    }


def _quiet(node: Node, called: set[str | None]) -> bool:
    """Whether a statement may stand in a region though nothing in it needs one."""
    stmt = node.stmt
    if isinstance(stmt, ast.For):
        if not isinstance(stmt.iter, ast.Call) or called_name(stmt.iter) != "range":
            return False
    elif not isinstance(stmt, ast.If if node.blocks else (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Pass)):
        return False
    if any(isinstance(a, (ast.Await, ast.Yield, ast.YieldFrom)) for a in node.own):
        return False
    for call in node.calls:
        name = called_name(call)
        if dotted(call.func) in called and name not in TRIVIAL_CALLS:
            continue
        if name not in QUIET_CALLS or (isinstance(call.func, ast.Name) and name in ("float", "int")):
            return False
    return True


def _cast(node: Node) -> bool:
    """Whether a statement sums, multiplies matrices or takes a power, which autocast casts."""
    return any(
        (isinstance(a, ast.BinOp) and isinstance(a.op, (ast.MatMult, ast.Pow)))
        or (isinstance(a, ast.Call) and called_name(a) in ("sum", "norm"))
        for a in node.own
    )
