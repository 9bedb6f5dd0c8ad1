"""Lines that tell which Apex is installed, `print("apex", apex.__version__)`, go with it where they tell nothing else.

Apex: https://github.com/NVIDIA/apex/blob/master/apex/amp/__version__.py
Native: https://pytorch.org/docs/stable/torch.html (torch.__version__ tells of the rest)
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.options import Options
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import names_stored, walk
from amp_migrate.reading.sites.apex import Site, find_sites
from amp_migrate.rules.cleanup.only_told import tells
from amp_migrate.rules.output import Output
from amp_migrate.untaken import describes, only_asks

CODES = (
    Code(
        "AMP107",
        "A line that tells which Apex is installed",
        "apex.__version__",
        apex="Has a version of its own, and one of apex.amp.",
        native="Nothing takes its place: torch.amp is a part of torch and has no version of its own.",
        why="The line would raise where Apex is not installed. It goes, unless it tells more than that, or the file still uses "
        "Apex elsewhere: then it is left, to be changed by hand.",
        links=("https://pytorch.org/docs/stable/amp.html",),
        examples=(Example('print("apex", apex.__version__)', ""),),
    ),
)

VERSIONS = frozenset("apex.__version__ apex.amp.__version__ apex.amp.VERSION apex.amp.__version__.VERSION".split())


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Take them out of a file of which nothing is left with Apex."""
    sites = find_sites(project, module) if project.may_name_apex(module) else []
    versions = [s for s in sites if s.name in VERSIONS]
    if not versions or output.stays(module):
        return
    edits = output.edit(module)
    told = [s for s in versions if not edits.gone(s.node) and not describes(s) and _tells_only(s)]
    if any(s not in told and not (edits.gone(s.node) or only_asks(s) or describes(s)) for s in sites):
        return
    for site in told:
        edits.delete(site.stmt)
        message = "told which Apex is installed, which nothing here needs any more"
        output.done(module, site.node, "AMP107", site.construct, message, "look")


def _tells_only(site: Site) -> bool:
    """Whether the statement around a version prints or logs it, with nothing else that the program has."""
    call = site.stmt.value if isinstance(site.stmt, ast.Expr) else None
    if not isinstance(call, ast.Call) or not tells(call):
        return False
    own = set(walk(site.node)) | set(walk(call.func))
    bound = names_stored(site.stmt)
    scope = site.module.scope_of(site.node)
    others = [n for n in walk(call) if isinstance(n, ast.Name) and n not in own and n.id not in bound]
    return all(scope.lookup(n.id) is None and site.module.qualify(n) is None for n in others)
