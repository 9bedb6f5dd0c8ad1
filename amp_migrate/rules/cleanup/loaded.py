"""What an import brings into being besides the names that it binds: the submodule that it loads is an attribute of its package
from then on, for whoever reads it there (`from apex.amp import __version__`, and `apex.amp.__version__.VERSION`)."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import STAR_EXPORTS, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.rules.migration import Output

# What Apex loads itself, whatever is imported of it.
AT_ONCE = frozenset(
    f"apex.{name}" for name in "amp parallel fp16_utils optimizers normalization multi_tensor_apply".split()
)


def loads_for_others(
    project: Project, module: Module, output: Output, node: ast.Import | ast.ImportFrom, alias: ast.alias
) -> bool:
    """Whether something that stays, in any file, reads through another name what an import may load."""
    full = _full_name(module, node, alias)
    package, _, last = full.rpartition(".")
    if not package or full in AT_ONCE or last in STAR_EXPORTS.get(package, ()):
        return False  # what a package defines is there with it
    for other in project.modules:
        edits = output.edits.get(other)
        for read in other.of(ast.Attribute) if last in other.text else ():
            if read.attr == last and isinstance(read.value, (ast.Name, ast.Attribute)) and other.qualify(read) == full:
                if (edits is None or not edits.gone(read)) and not _loaded_there(other, output, full, node):
                    return True
    return False


def _loaded_there(module: Module, output: Output, full: str, but: ast.AST) -> bool:
    """Whether another import of a file that stays loads a submodule itself, or one within it."""
    edits = output.edits.get(module)
    for node in module.imports:
        if node is but or (edits is not None and edits.gone(node)):
            continue
        if any(f"{_full_name(module, node, alias)}.".startswith(f"{full}.") for alias in node.names):
            return True
    return False


def _full_name(module: Module, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    return f"{module.import_base(node)}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
