"""Which modules run in one process with a call of `initialize`.

Apex patches torch for the whole process, and for no other one: a script of its own that never comes by the call, an
evaluation tool or a converter beside the training script, runs without mixed precision however much code they share.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable

from amp_migrate.reading.program.definitions import ClassInfo, Function, called_name
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.roles import role
from amp_migrate.reading.program.tree import reached, walk


class Imports:
    """How the modules of one program import each other; see `Project.once`."""

    def __init__(self, project: Project) -> None:
        self.imports = project.imports
        self.importers: dict[Module, set[Module]] = {module: set() for module in project.modules}
        for module, others in self.imports.items():
            for other in others:
                self.importers[other].add(module)
        roots = [m for m in project.modules if not self.importers[m]]
        self.scripts = {m for m in roots if is_script(m)}
        # A module that nothing imports but that is no script may be loaded by name. Modules that import each other in a
        # ring have no root.
        below_roots = set(reached(roots, self.imports.__getitem__))
        self.anywhere = (set(project.modules) - below_roots).union(
            reached((m for m in roots if m not in self.scripts), self.imports.__getitem__)
        )
        self.in_trees: dict[tuple[str, ...], set[Module]] = {}  # those, by the tree that they lie in
        for module in self.anywhere:
            self.in_trees.setdefault(_tree(module), set()).add(module)

    def loaded_beside(self, others: Collection[Module]) -> set[Module]:
        """What may be loaded by name in a process of other modules: not what lies in a tree beside all of theirs."""
        trees = {_tree(m) for m in others}
        near = (t for t in self.in_trees if any(t[: len(other)] == other[: len(t)] for other in trees))
        found = set(reached((m for tree in near for m in self.in_trees[tree]), self.imports.__getitem__))
        return found & self.anywhere


def _tree(module: Module) -> tuple[str, ...]:
    """The folder from which alone a file can be imported: the lowest above it that no import can name (`my-project`)."""
    folders = module.path.parts[:-1]
    while folders and folders[-1].isidentifier():
        folders = folders[:-1]
    return folders


def in_process(project: Project, starts: Collection[Module]) -> frozenset[Module]:
    """The modules that may run in one process with one of `starts`.

    Left out are scripts that do not import any of them, directly or through others, and what only such scripts import; what
    no import ties to them and lies in a project beside theirs; and files that work with another framework, which never see
    a tensor of torch's.
    """
    known = project.once(Imports)
    above = set(reached(starts, known.importers.__getitem__))
    run = set(reached((m for m in above if m in known.scripts), known.imports.__getitem__)).union(starts)
    found = known.loaded_beside(above.union(run, reached(starts, known.imports.__getitem__))).union(run)
    return frozenset((found - project.once(of_another_framework)).union(starts))


FRAMEWORKS = re.compile(r"^[ \t]*(?:import|from)[\s\\]+(?:tensorflow|mindspore|paddle|mxnet|jax|flax)\b", re.MULTILINE)
TORCH = re.compile(r"^[ \t]*(?:import|from)[\s\\]+(?:torch|apex)\b", re.MULTILINE)

LOADS_TORCH = re.compile(r"^[ \t]*(?:import|from)\b[^#\n]*torch", re.MULTILINE)  # torchvision and the like, too


def of_another_framework(project: Project) -> set[Module]:
    """The files that work with another framework than torch, and not with torch; see `Project.once`."""
    return {m for m in project.modules if FRAMEWORKS.search(m.text) is not None and TORCH.search(m.text) is None}


def framework_of(project: Project, start: Module) -> str | None:
    """The other framework that a file works with, where neither it nor what it imports loads torch but through Apex;
    see `Project.once`."""
    named = FRAMEWORKS.search(start.text)
    if named is None or any(LOADS_TORCH.search(m.text) for m in imported(project, start)):
        return None
    return named[0].split()[-1]


def tied(project: Project, starts: Iterable[Module]) -> frozenset[Module]:
    """The modules that imports tie to one of `starts`: those that import it, through others too, and all they import."""
    known = project.once(Imports)
    return frozenset(reached(reached(starts, known.importers.__getitem__), known.imports.__getitem__))


def importing(project: Project, start: Module) -> set[Module]:
    """A module and all that import it, through others too."""
    return set(reached([start], project.once(Imports).importers.__getitem__))


def imported(project: Project, start: Module) -> set[Module]:
    """A module and all that it imports, through others too."""
    return set(reached([start], project.once(Imports).imports.__getitem__))


def loaded_with(project: Project, start: Module) -> set[Module]:
    """A module and all that its import loads while it is not loaded itself, through others too: the packages that it lies
    in are there by then, or on their way."""
    return set(reached([start], lambda module: project.once(_named, module)))


def _named(project: Project, module: Module) -> set[Module]:
    """The modules that the import statements of a file name themselves."""
    return {m for node in module.imports for m in named_by(project, module, node)}


def named_by(project: Project, module: Module, node: ast.Import | ast.ImportFrom) -> set[Module]:
    """The modules of the program that an import statement of a file names."""
    if isinstance(node, ast.Import):
        found = {project.by_name.get(module.absolute(alias.name)) for alias in node.names}
    else:
        base = module.import_base(node)
        within = ((alias, project.by_name.get(f"{base}.{alias.name}".lstrip("."))) for alias in node.names)
        found = {one or project.by_name.get(base) for _, one in within}
    return {m for m in found if m is not None}


def passing_by(project: Project, functions: Collection[Function]) -> frozenset[Module]:
    """The files that run statements of their own, are imported by none, and call none of some functions, not through others
    either, of which all ways are seen; what a test calls is run in the process of that test."""
    ways = set[Function | Scope]().union(*(project.callers(f) for f in functions))
    starts = [w for w in starts_of(project, ways) if isinstance(w, Scope) or role(w.module) != "test"]
    if (functions and not starts) or not all(isinstance(s, Scope) for s in starts):
        return frozenset()
    calls = (c for way in ways if isinstance(way, Function) for c in project.calls.get(way, ()))
    # What a file imports may call one when it is loaded.
    calling = {m for m, call in calls if m.scope_of(call).is_module and not when_run(m, call)}
    alone = project.once(_started) - {w.module for w in ways}
    return frozenset(m for m in alone if calling.isdisjoint(imported(project, m))) if calling else alone


def starts_of(project: Project, ways: Iterable[Function | Scope]) -> list[Function | Scope]:
    """What nothing in sight calls: files, and functions."""
    return [w for w in ways if isinstance(w, Scope) or not project.calls.get(w)]


def _started(project: Project) -> frozenset[Module]:
    """The files that run statements of their own and are imported by none; see `Project.once`."""
    loops = (ast.For, ast.While, ast.With)
    alone = (m for m, importers in project.once(Imports).importers.items() if not importers)
    return frozenset(
        m for m in alone if is_script(m) or any(isinstance(s, loops) or _calls(project, s) for s in m.tree.body)
    )


def _calls(project: Project, stmt: ast.stmt) -> bool:
    """Whether a statement of a file calls a function of the program's."""
    simple = isinstance(stmt, (ast.Expr, ast.Assign))
    return simple and any(isinstance(n, ast.Call) and bool(project.resolved.get(n)) for n in walk(stmt))


def when_run(module: Module, node: ast.AST) -> bool:
    """Whether a file comes to a place only as the script that is run."""
    return any(isinstance(a, ast.If) and "__name__" in ast.unparse(a.test) for a in module.ancestors(node))


def module_of(slot: Slot) -> Module | None:
    """The module that a slot lies in, where it lies in one."""
    holder = slot.holder
    while isinstance(holder, Slot):
        holder = holder.holder
    return holder.module if isinstance(holder, (Scope, Function, ClassInfo)) else None


def is_script(module: Module) -> bool:
    """Whether a module is started by itself: it asks for `__main__`, or reads the command line as it is loaded; or it is a
    notebook, or a test, which only shares a process with what it imports."""
    if role(module) == "notebook" or (role(module) == "test" and not module.name.endswith("conftest")):
        return True
    for stmt in module.tree.body:
        if isinstance(stmt, ast.If) and any(isinstance(n, ast.Name) and n.id == "__name__" for n in walk(stmt.test)):
            return True
    return any(s.is_module and called_name(c) in ("parse_args", "parse_known_args") for c, s in module.calls)
