"""Apex imported by name at run time: what is looked up in it cannot be told.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

import ast
import re

from amp_migrate.findings import Code
from amp_migrate.options import Options
from amp_migrate.reading.module import Module
from amp_migrate.reading.project import Project
from amp_migrate.rules.migration import Output

IMPORTERS = re.compile(r"\bimport_module\b|\b__import__\b|\bfind_spec\b|\bimportorskip\b")
NAME = re.compile(r"apex(\.\w+)*")

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
    """Report every string that names Apex in a file which imports modules by name."""
    if "apex" not in module.text or not IMPORTERS.search(module.text):
        return
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
            output.manual(
                module,
                node,
                "AMP103",
                "importlib.import_module",
                f'"{node.value}" is imported by name: write the native path beside it and let the name choose that',
            )
