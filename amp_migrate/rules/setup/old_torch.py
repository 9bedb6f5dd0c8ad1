"""Branches for a torch older than `torch.amp.GradScaler` go with the Apex in them: they are never taken any more.

Native: https://github.com/pytorch/pytorch/releases (mixed precision of torch's own came with 1.6)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.findings import Code, Example
from amp_migrate.options import Options
from amp_migrate.reading.gradients.uses import GradientUses
from amp_migrate.reading.program.definitions import dotted
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.torch_versions import TorchVersions, is_apex
from amp_migrate.reading.program.tree import identifiers, walk
from amp_migrate.rules.migration import Output
from amp_migrate.rules.twin.remains import always_none, scaled_readers
from amp_migrate.writing.edits import Edits

CODES = (
    Code(
        "AMP124",
        "A branch for an old torch goes",
        "torch.__version__",
        apex="What programs fell back to before torch 1.6 had mixed precision of its own.",
        native="The other branch: with any torch that runs migrated code it is the one that is taken.",
        why="No run comes to the Apex there, so nothing takes its place.",
        links=("https://pytorch.org/docs/stable/amp.html",),
        examples=(
            Example(
                'if version.parse(torch.__version__) < version.parse("1.6"):\n    from apex import amp\n'
                "else:\n    from torch.cuda.amp import autocast\n",
                "from torch import autocast\n",
            ),
        ),
    ),
)


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    versions = module.versions
    if versions is None or not versions.never:
        return
    edits = output.edit(module)
    imports: list[ast.AST] = []
    for node, value in versions.never:
        if edits.gone(node) or node in edits.statements or node in edits.expressions:
            continue
        found = list(_used(node, value))
        if not all(output.wants_at(module, n, "AMP124") for n, _ in found):
            continue
        if isinstance(node, ast.If):
            edits.fold(node, "body" if value else "orelse", about_apex=True)
        else:
            edits.replace(node, (node.body if value else node.orelse,))
        for used, construct in found:
            message = "this branch is for a torch without mixed precision of its own: no run comes here any more"
            output.done(module, used, "AMP124", construct, message, "look")
        imports += [n for n in _branch(node, value) if is_apex(n) and isinstance(n, (ast.Import, ast.ImportFrom))]
    for name in _beside(versions, module):
        if not project.hands_on(module, name) and all(_decided(module, n) for n in module.loads.get(name, ())):
            _without_flag(versions, module, edits, name)
    if imports:
        scaled_readers(output, [module], project.once(GradientUses).reads)
        always_none(project, output, module, imports)


def _beside(versions: TorchVersions, module: Module) -> list[str]:
    """The flags that such branches ask for, or that they and their other sides give a value."""
    asked = identifiers(*(node.test for node, _ in versions.never))
    tests = {node for node, _ in versions.never}
    return [
        name
        for name in versions.flags
        if name in asked or any(a in tests for stmt in versions.setting[name] for a in module.ancestors(stmt))
    ]


def _used(node: ast.If | ast.IfExp, value: bool) -> Iterator[tuple[ast.AST, str]]:
    """The uses of Apex that go with a branch; its import where nothing there uses it."""
    nodes = [n for n in _branch(node, value) if is_apex(n)]
    uses = [n for n in nodes if isinstance(n, ast.Attribute)]
    yield from ((n, dotted(n) or "amp") for n in uses)
    if not uses:
        yield nodes[0], "import apex"


def _branch(node: ast.If | ast.IfExp, value: bool) -> list[ast.AST]:
    branch = node.orelse if value else node.body
    return [n for part in (branch if isinstance(branch, list) else [branch]) for n in walk(part)]


def _decided(module: Module, name: ast.Name) -> bool:
    """Whether a flag is asked where a test can do without it: alone, negated or as one of several conditions."""
    if name in module.never:
        return True
    node: ast.AST = name
    for parent in module.ancestors(name):
        if isinstance(parent, ast.BoolOp | ast.UnaryOp):
            node = parent
            continue
        return isinstance(parent, ast.If | ast.IfExp | ast.Assert) and parent.test is node
    return False


def _without_flag(versions: TorchVersions, module: Module, edits: Edits, name: str) -> None:
    """Write the tests of a flag without it, and take out the statements that give it its value."""
    for load in module.loads.get(name, ()):
        asker = next(a for a in module.ancestors(load) if not isinstance(a, ast.BoolOp | ast.UnaryOp))
        if edits.gone(load) or not isinstance(asker, ast.If | ast.IfExp | ast.Assert) or asker in edits.statements:
            continue
        value = versions.value(asker.test)
        if value is None:
            edits.replace(asker.test, rest(versions, module, asker.test))
        elif isinstance(asker, ast.Assert):
            edits.delete(asker)
        elif isinstance(asker, ast.If):
            edits.fold(asker, "body" if value else "orelse", about_apex=True)
        else:
            edits.replace(asker, (asker.body if value else asker.orelse,))
    for stmt in versions.setting[name]:
        edits.delete(stmt)


def rest(versions: TorchVersions, module: Module, test: ast.expr) -> str:
    """A test as it reads without what the version decides."""
    kept = _kept(versions, test)
    return module.written(kept)


def _kept(versions: TorchVersions, test: ast.expr) -> ast.expr:
    if isinstance(test, ast.BoolOp):
        values = [_kept(versions, v) for v in test.values if not _by_flag(versions, v)]
        return values[0] if len(values) == 1 else ast.BoolOp(test.op, values)
    if isinstance(test, ast.UnaryOp):
        return ast.UnaryOp(test.op, _kept(versions, test.operand))
    return test


def _by_flag(versions: TorchVersions, test: ast.expr) -> bool:
    """Whether a flag decides a test: one that asks for the version itself stays."""
    asks = any(isinstance(n, ast.Name) and n.id in versions.flags for n in walk(test))
    return asks and versions.value(test) is not None
