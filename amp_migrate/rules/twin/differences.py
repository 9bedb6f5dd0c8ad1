"""What was otherwise in a run that asked for Apex than on the native side, beside set-up, loss and state: such a run takes the
native side's now.

Reported as AMP120: see `branch.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from amp_migrate.reading.conditions.chains import head_of, links
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.twin.runs import Runs
from amp_migrate.reading.twin.sides import NativeTwin, tells
from amp_migrate.rules.migration import Migration

ABOUT = re.compile(r"scaler|scale_loss|autocast|(?:^|_)amp(?:$|_)|apex|fp16|half", re.IGNORECASE)
RUN = (
    "backward",
    "step",
    "zero_grad",
    "clip_grad_norm_",
    "clip_grad_value_",
)  # an iteration's, which other rules follow


def differences(m: Migration, twin: NativeTwin) -> None:
    """Say where a value or a branch was another with Apex than natively."""
    for module in twin.modules:
        runs = Runs(twin, module)
        for node in _outermost(module, (n for n in module.nodes if _differs(module, runs, n))):
            if not _of_mixed_precision(m, module, runs, node):
                text = ast.unparse(_asked_in(module, node) or node)
                message = (
                    f"a run that asked for Apex differed here from one of the native side (`{text}`), and does as that does now: "
                    "see that this is meant"
                )
                m.output.note(module, node, "AMP120", text, message, "review")


def _asked_in(module: Module, node: ast.AST) -> ast.expr | None:
    """What a statement, a choice or a value that is computed of flags asks."""
    if isinstance(node, (ast.If, ast.IfExp)):
        return node.test
    if isinstance(node, ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        around = module.parents.get(node)
        return node if isinstance(around, (ast.Assign, ast.AnnAssign, ast.keyword, ast.Call)) else None
    return None


def _differs(module: Module, runs: Runs, node: ast.AST) -> bool:
    asked = _asked_in(module, node)
    return asked is not None and runs.differ(asked)


def _outermost(module: Module, found: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Of each chain of tests, or of what one of them decides about, the first."""
    seen: set[ast.AST] = set()
    for node in found:
        whole = head_of(module, node) if isinstance(node, ast.If) else node
        if seen.isdisjoint([node, *module.ancestors(node)]):
            seen.add(whole)
            yield node


def _of_mixed_precision(m: Migration, module: Module, runs: Runs, node: ast.AST) -> bool:
    """Whether what a test decides about is set-up, loss or state of mixed precision, a choice of it, or only says something."""
    stmt = module.statement(node)
    if isinstance(node, ast.If):
        stmts = [s for link in links(head_of(module, node)) for s in link.body]
        chosen = all(tells(s) or isinstance(s, ast.Pass) or runs.twin.chooses(s) for s in stmts)
        return chosen or _about(m, module, runs, stmts)
    if tells(stmt):
        return True
    call = next((a for a in module.ancestors(node) if isinstance(a, (ast.Call, *FUNCTION_NODES))), None)
    if isinstance(call, ast.Call) and _about(m, module, runs, [call.func]):
        return True
    if isinstance(node, ast.IfExp):
        return _about(m, module, runs, [node.body, node.orelse])
    around = module.parents.get(node)
    targets = around.targets if isinstance(around, ast.Assign) else [getattr(around, "target", None)]
    named = [ast.unparse(t) for t in targets if t is not None] + [getattr(around, "arg", None) or ""]
    return any(ABOUT.search(name) or "native" in name.lower() for name in named)


def _about(m: Migration, module: Module, runs: Runs, held: Iterable[ast.AST]) -> bool:
    """Whether code names something of mixed precision, or runs a part of an iteration; not by what asks which run it is."""
    for root in held:
        asked = set(_asked(runs, root))
        for node in walk(root):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if name and node not in asked and ABOUT.search(name):
                return True
            if isinstance(node, ast.Call) and called_name(node) in RUN:
                return True
            if name and (m.project.qualify(module, node) or "").startswith("apex."):
                return True
    return False


def _asked(runs: Runs, root: ast.AST) -> Iterator[ast.AST]:
    """The names in what asks which run it is."""
    for node in walk(root):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Compare)) and runs.asks(node):
            yield from walk(node)
