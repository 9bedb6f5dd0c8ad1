"""Apex imported by a name that is only known at run time: what is looked up in it cannot be told.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amp_migrate.findings import Code
from amp_migrate.options import Options
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import followed
from amp_migrate.rules.migration import Output

IMPORTERS = ("import_module", "__import__", "importorskip")
NAME = re.compile(r"apex(\.\w+)*")
# What Apex still ships: a name that is looked up there keeps working where Apex is installed.
SHIPPED = ("apex.optimizers", "apex.normalization", "apex.multi_tensor_apply", "apex.contrib", "apex.transformer")

CODES = (
    Code(
        "AMP103",
        "Apex is imported by a name that is only known at run time",
        "importlib.import_module",
        apex="A module like any other: importlib finds it by its name.",
        native="GradScaler and autocast are needed in different places: a table of functions cannot be swapped for another.",
        why="Which of Apex's functions run, and where, is decided while the program runs.",
        links=("https://nvidia.github.io/apex/amp.html", "https://pytorch.org/docs/stable/amp.html"),
    ),
)


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Report every string by which a file imports Apex."""
    if "apex" not in module.text:
        return
    imported = [call.args[0] for call, _ in module.calls if _imports(call) and not _followed(project, module, call)]
    if not imported:
        return
    passed = {id(node) for name in imported for node in _strings(module, name, set())}
    for node in module.of(ast.Constant):
        if not isinstance(node.value, str) or not NAME.fullmatch(node.value):
            continue
        # "apex" is a word of its own, a choice on a command line as often as a module: only what is seen to be
        # imported counts. A dotted name is hardly anything else, but as a mark: set on an object, or compared with.
        if id(node) not in passed and ("." not in node.value or _marks(module, node)):
            continue
        call = module.parents[node]
        if isinstance(call, ast.Call) and _imports(call) and _followed(project, module, call):
            continue
        name = node.value
        if ".".join(name.split(".")[:2]) in SHIPPED:
            message = f'"{name}" is imported by name, which works where Apex is installed: Apex still ships it'
            output.note(module, node, "AMP103", "importlib.import_module", message, "look")
        else:
            message = f'"{name}" is imported by name: write the native path beside it and let the name choose that'
            output.manual(module, node, "AMP103", "importlib.import_module", message)


def _followed(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether it is known which module a call imports, and what is asked of it: such code is migrated like any other."""
    return module.qualify(call) is not None and followed(project, module, call)


def _marks(module: Module, node: ast.Constant) -> bool:
    """Whether a string is only kept on an object or compared with: `optimizer._fp16 = "apex.amp"`."""
    parent = module.parents[node]
    if isinstance(parent, ast.Assign):
        return all(isinstance(target, ast.Attribute) for target in parent.targets)
    return isinstance(parent, ast.Compare)


def _imports(call: ast.Call) -> bool:
    return called_name(call) in IMPORTERS and bool(call.args)


def _strings(module: Module, value: ast.AST, seen: set[ast.AST]) -> Iterator[ast.AST]:
    """The constants that an expression can be, as far as this file says."""
    for node in walk(value):
        if isinstance(node, ast.Constant):
            yield node
        elif isinstance(node, ast.Name):
            owner = module.scope_of(node).lookup(node.id)
            for binding in owner.bindings[node.id] if owner is not None else ():
                if binding not in seen:
                    seen.add(binding)
                    for source in _values(module, binding):
                        yield from _strings(module, source, seen)


def _values(module: Module, binding: ast.AST) -> Iterator[ast.AST]:
    """What is bound to a name: assigned, iterated over, a parameter's default, or an argument of a call."""
    parent = module.parents[binding]
    if isinstance(binding, ast.arg):
        function = module.parents[parent]
        if isinstance(function, FUNCTION_NODES):
            yield from (d for d in (*function.args.defaults, *function.args.kw_defaults) if d is not None)
            for call, _ in module.calls:
                if isinstance(call.func, ast.Name) and call.func.id == function.name:
                    yield from (*call.args, *(k.value for k in call.keywords))
    elif isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        if parent.value is not None:
            yield parent.value
    elif isinstance(parent, (ast.For, ast.comprehension)):
        yield parent.iter
