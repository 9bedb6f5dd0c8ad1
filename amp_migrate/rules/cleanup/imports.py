"""Apex imports, their guards and the flags they set go once nothing uses them: apex.amp was removed in May 2025.
Apex: https://github.com/NVIDIA/apex
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.conditions.tests import availability, only_shipped
from amp_migrate.reading.program.logic import pure
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk, within_apex
from amp_migrate.reading.sites.apex import apex_imports, imports_apex, of_apex
from amp_migrate.rules.cleanup import handles, never_set, stand_ins, torch_imports, where_used
from amp_migrate.rules.cleanup.askers import apex_stays, hangs_on, never_read, not_given
from amp_migrate.rules.cleanup.beside import speaks_of_more
from amp_migrate.rules.cleanup.declarations import drop_declarations
from amp_migrate.rules.cleanup.guards import Guards, under_its_test
from amp_migrate.rules.cleanup.import_texts import keep_only
from amp_migrate.rules.cleanup.loaded import loads_for_others
from amp_migrate.rules.cleanup.own_names import is_own
from amp_migrate.rules.migration import Output
from amp_migrate.writing.edits import Edits

CODES = (
    Code(
        "AMP101",
        "Imports of Apex, their guards and flags go",
        "import apex",
        apex="An optional dependency: imports are guarded, flags remember whether they worked.",
        native="Nothing to import: torch has it all.",
        why="An import stays while anything else in the file still uses it; in the one branch that does, if there is one.",
        links=("https://github.com/NVIDIA/apex/pull/1897",),
        examples=(
            Example(
                "try:\n    from apex import amp\n    APEX_AVAILABLE = True\nexcept ImportError:\n    "
                "APEX_AVAILABLE = False\n",
                "",
            ),
        ),
    ),
    Code(
        "AMP190",
        "amp-migrate itself broke on this code",
        "rewrite",
        apex="Anything.",
        native="Nothing is written.",
        why="A defect of the tool: the file is left as it was and the run exits with 2 or 1, never silently.",
        links=("https://github.com/NVIDIA/apex",),
    ),
    Code(
        "AMP102",
        "A use of Apex that no rule knows",
        "apex",
        apex="Anything else in the package.",
        native="Depends on what it is.",
        why="Nothing is guessed silently.",
        links=("https://github.com/NVIDIA/apex",),
    ),
)


class Cleaner:
    """Takes out of one module what only served Apex, given all other edits."""

    def __init__(self, project: Project, module: Module, output: Output) -> None:
        self.project = project
        self.module = module
        self.output = output
        self.edits: Edits = output.edit(module)
        self.available = availability(project, module)
        self.outer = {name for scope in module.scopes.values() for name in scope.outer}  # in whichever function

    def remove(self, kept: bool) -> None:
        """Take out imports, guards and flags without a remaining use; where Apex is kept, only what lost its uses."""
        imports = [*apex_imports(self.module), *self._handed_imports()]
        names = {a.asname or a.name.split(".")[0] for node in imports for a in node.names if self._of_apex(node, a)}
        flags = () if any(self._marked(node) for node in imports) else self.available.flags
        candidates = {n for n in (*flags, *names) if not self._used(n) and (not kept or self._lost_uses(n))}
        told: dict[ast.AST, list[ast.AST]] = {}
        probes = self._probes(candidates)
        imports = [node for node in imports if self.available._guard(node) not in probes]
        for node in imports:
            if self._import(node, candidates):
                told.setdefault(self.available._guard(node) or node, []).append(node)
        for nodes in told.values():  # once for a guard, however many imports it holds
            message = "nothing uses it any more" if len(nodes) == 1 else "nothing uses these imports any more"
            self.output.note(self.module, nodes[0], "AMP101", "import apex", message, "as-is")
        if kept:
            self._tell_unread(imports)
        for name in candidates:
            self._assignments(name)
        drop_declarations(self.module, self.edits, {*flags, *names})
        for node in imports:
            guard = self.available._guard(node)
            if guard is not None:
                self._guard(guard)
            if not self.edits.gone(node):
                under_its_test(self.edits, self.available, guard or node)
        self._orphans()
        where_used.move(self.module, self.output, None if kept else self._used_elsewhere)

    def _tell_unread(self, imports: list[ast.Import | ast.ImportFrom]) -> None:
        """Imports of Apex that nothing read before, in a file that is left to its owner: it still does not load without."""
        for node in imports:
            bound = [a.asname or a.name.split(".")[0] for a in node.names]
            loads = imports_apex(node) and not self.module.scope_of(node).is_function
            always = self.module.parents.get(node) is self.module.tree and not self._marked(node)
            if loads and always and not self.edits.gone(node) and not any(map(self._used, bound)) and "*" not in bound:
                message = "nothing reads this, and the file cannot be loaded without Apex: delete it once nothing else here needs it"
                self.output.note(self.module, node, "AMP101", "import apex", message, "review")

    def _probes(self, candidates: set[str]) -> set[ast.Try | None]:
        """Guards that something still asks whether Apex is installed, as a value: `return HAS_APEX`. One that keeps an
        import of Apex's goes on telling that, where some of the program needs Apex, or asks for a part that stays, and until
        the files that may ask are given, too; so does one that nobody reads, which refuses to go on without Apex."""
        stays = apex_stays(self.project, self.module, self.output)
        unread: dict[ast.Try, bool] = {}
        asking: dict[ast.Try, bool] = {}
        for node in apex_imports(self.module):
            guard = self.available._guard(node)
            if guard is not None:
                bound = [a.asname or a.name.split(".")[0] for a in node.names]
                mine = all(n in candidates or self._served_here(node, n) for n in bound)
                unread[guard] = unread.get(guard, True) and mine
                asking[guard] = asking.get(guard, True) and never_read(self.project, self.module, node)
        found: set[ast.Try | None] = set()
        for guard, all_unread in unread.items():
            if stays and all_unread and asking[guard] and hangs_on(guard, self._used):
                found.add(guard)
            targets = (t for s in walk(guard) if isinstance(s, ast.Assign) for t in s.targets)
            flags = {t.id for t in targets if isinstance(t, ast.Name)}
            shipped = only_shipped(guard)
            flags = flags if shipped else flags & self.available.flags.keys()
            if all_unread and any(self._used(flag) for flag in flags):
                if stays or shipped or not_given(self.project, self.module, flags):
                    found.add(guard)
        return found

    def _lost_uses(self, name: str) -> bool:
        return any(self.edits.gone(node) and not self._shadowed(node) for node in self.module.loads.get(name, ()))

    def _served_here(self, node: ast.Import | ast.ImportFrom, name: str) -> bool:
        """Whether a function imported a name for itself, and all of its own uses went: what others read, they import."""
        scope = self.module.scope_of(node)
        if not scope.is_function or name in scope.outer or name in self.edits.emitted_names():
            return False
        own = [n for n in scope.reads(name) if not self._shadowed(n)]
        return bool(own) and all(self.edits.gone(n) for n in own)

    def _used(self, name: str) -> bool:
        """Whether anything that stays reads a name."""
        if name in self.edits.emitted_names():
            return True
        if any(not self.edits.gone(node) and not self._shadowed(node) for node in self.module.loads.get(name, ())):
            return True
        if name in (self.module.listed or ()):
            return True
        return self._used_elsewhere(name)

    def _shadowed(self, node: ast.Name) -> bool:
        """Whether a name here is a function's own: `def train(amp):` does not use the import."""
        return is_own(self.module, node)

    def _used_elsewhere(self, name: str) -> bool:
        """Whether another file of the project has a name from here and still uses it, or hands it on."""
        handed_on = self.project.handed_on
        dotted = f"{self.module.name}.{name}"
        edits = self.output.edits
        if any(m not in edits or not edits[m].gone(n) for m, n in handed_on.readers(self.module, name)):
            return True
        starred = (m for m in self.project.modules if self.module.name in m.star_imports)
        if any(name in (m.listed or ()) for m in starred):
            return True
        of_apex = within_apex(handed_on.meaning(dotted))  # then imports of it go as this one does
        return any(
            bound in (other.listed or ())
            or other not in self.project.targets
            or not (of_apex or other.loads.get(bound))
            for other, bound in handed_on.importing(self.module, name)
        )

    def _handed_imports(self) -> list[ast.ImportFrom]:
        """The imports that bring something of Apex's by way of another file of the project."""
        found = [n for n in self.module.of(ast.ImportFrom) if n not in self.module.never]
        if self.module not in self.project.handed_on.from_apex:
            return []
        return [n for n in found if not imports_apex(n) and any(self._of_apex(n, a) for a in n.names)]

    def _import(self, node: ast.Import | ast.ImportFrom, candidates: set[str]) -> bool:
        """Take what nothing uses out of an import; whether anything was."""
        if node in self.edits.statements or self._marked(node):
            return False
        gone = [a for a in node.names if self._goes(node, a, candidates) and not self._loads(node, a)]
        if any(a.name == "*" for a in node.names):
            gone = [] if self._star_used(node) else list(node.names)
        if not gone:
            return False
        keep_only(self.edits, self.module, node, [a for a in node.names if a not in gone])
        return True

    def _loads(self, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> bool:
        return loads_for_others(self.project, self.module, self.output, node, alias)

    def _goes(self, node: ast.Import | ast.ImportFrom, alias: ast.alias, candidates: set[str]) -> bool:
        name = alias.asname or alias.name.split(".")[0]
        if self._of_apex(node, alias):
            if self._served_here(node, name) or self._replaced(node, name):
                return True
            # What is bound nowhere where it is read: the import was meant for that function, too.
            unbound = (n for n in self.module.loads.get(name, ()) if self.module.scope_of(n).lookup(name) is None)
            if name not in candidates or not all(map(self.edits.gone, unbound)):
                return False
            return self._lost_uses(name) or not self._still_there(node, alias)
        return not imports_apex(node) and self._lost_uses(name) and not self._used(name)  # a flag beside amp

    def _replaced(self, node: ast.Import | ast.ImportFrom, name: str) -> bool:
        """Whether an import below binds the name anew, and all went that read it in between."""
        above = ((read, self.module.import_above(read)) for read in self.module.loads.get(name, ()))
        mine = [read for read, found in above if found is not None and found[0] is node]
        return self.module.is_replaced(node, name) and all(map(self.edits.gone, mine))

    def _still_there(self, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> bool:
        """Whether what an import takes from another file of the program is still used there, and so bound: torch's by then."""
        if imports_apex(node) or not isinstance(node, ast.ImportFrom):
            return False
        other = self.project.handed_on.by_name.get(self.module.import_base(node))
        if other is None:
            return False
        edits = self.output.edits.get(other)
        bindings = other.root.bindings.get(alias.name, ())
        own = (b for b in bindings if b in self.project.functions or b in self.project.classes)
        if any(edits is None or not edits.gone(b) for b in own):
            return True  # a function or class of the program's own that does what Apex's does, and stays
        if edits is None:
            return bool(other.loads.get(alias.name))
        return alias.name in edits.emitted_names() or any(not edits.gone(n) for n in other.loads.get(alias.name, ()))

    def _marked(self, node: ast.Import | ast.ImportFrom) -> bool:
        """Whether a comment asks to leave an import as it is; --select and --ignore are about what goes before it."""
        return self.output.wishes.marked(self.module.display, node.lineno, "AMP101")

    def _star_used(self, node: ast.Import | ast.ImportFrom) -> bool:
        """Whether anything that stays uses a name that a star import brings, and no import of its own."""
        base = self.module.import_base(node) if isinstance(node, ast.ImportFrom) else ""
        for name in self.module.of(ast.Name):
            if isinstance(name.ctx, ast.Load) and not self.edits.gone(name):
                bound = self.module.scope_of(name).lookup(name.id) is not None
                if not bound and (self.module.qualify(name) or "").startswith(f"{base}."):
                    return True
        return False

    def _of_apex(self, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> bool:
        if imports_apex(node):
            return isinstance(node, ast.ImportFrom) or of_apex(alias.name)
        base = self.module.import_base(node) if isinstance(node, ast.ImportFrom) else ""
        return within_apex(self.project.handed_on.meaning(f"{base}.{alias.name}"))

    def _assignments(self, name: str) -> None:
        for scope in self.module.scopes.values():
            # In a class the name is a member's, such as that of an enumeration.
            for binding in scope.bindings.get(name, ()) if not scope.is_class else ():
                stmt = self.module.statement(binding)
                if not isinstance(stmt, (ast.Assign, ast.AnnAssign)) or stmt.value is None:
                    continue
                if isinstance(stmt.value, ast.Constant) or self.available.value(stmt.value) is not None:
                    self.edits.delete(stmt)

    def _guard(self, guard: ast.Try) -> None:
        """A try around Apex imports goes with them; what else it holds stays."""
        if guard in self.edits.statements:
            return
        held = [s for s in guard.body if not self._deleted(s)]
        left = [s for s in (*held, *guard.orelse, *guard.finalbody) if not self._deleted(s)]
        if any(isinstance(s, (ast.Import, ast.ImportFrom)) and s in apex_imports(self.module) for s in left):
            return
        said = [s for s in held if speaks_of_more(s)]
        if said and all(self._idle(s) for s in left) and self._only_reports(guard):
            for stmt in held:
                if stmt not in said:
                    self.edits.delete(stmt)
            self.edits.splice(guard, "body")
        elif not left or all(self._idle(s) for s in left):
            self.edits.delete(guard)
        elif held and len(held) == len(left) and self._needs_no_guard(guard, held):
            self.edits.splice(guard, "body")

    def _needs_no_guard(self, guard: ast.Try, held: list[ast.stmt]) -> bool:
        """Whether what is left of a guarded body can stand by itself: it cannot fail, or failing was only reported."""
        if all(isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant) for s in held):
            return True
        return all(isinstance(s, (ast.Import, ast.ImportFrom)) or self._flag(s) for s in held) and self._only_reports(
            guard
        )

    def _deleted(self, stmt: ast.stmt) -> bool:
        edit = self.edits.statements.get(stmt)
        return edit is not None and edit.kind == "delete"

    def _idle(self, stmt: ast.stmt) -> bool:
        """A statement that matters only beside an Apex import: a message, `sys.path.append`, `pass`."""
        if isinstance(stmt, (ast.Pass, ast.Global)):
            return True
        if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
            text = ast.unparse(stmt.value).lower()
            return "apex" in text or text.startswith(("print(", "logging.", "logger.", "warnings."))
        if isinstance(stmt, ast.Expr):
            return isinstance(stmt.value, ast.Constant)
        return False

    def _flag(self, stmt: ast.stmt) -> bool:
        """`HAS_APEX = True`, which something still reads."""
        return isinstance(stmt, ast.Assign) and all(
            isinstance(t, ast.Name) and t.id in self.available.flags for t in stmt.targets
        )

    def _only_reports(self, guard: ast.Try) -> bool:
        return all(
            isinstance(s, (ast.Pass, ast.Raise)) or self._deleted(s) or self._idle(s) or self._flag(s)
            for h in guard.handlers
            for s in h.body
        )

    def _orphans(self) -> None:
        """Imports and simple local values whose every use went with Apex."""
        orphans: dict[ast.Import | ast.ImportFrom, list[str]] = {}
        for scope in self.module.scopes.values():
            for name in list(scope.imports):
                node = self._orphan([b for b in scope.bindings.get(name, ()) if not self.edits.gone(b)], name)
                if node is not None and not imports_apex(node) and all(map(self.edits.gone, scope.reads(name))):
                    orphans.setdefault(node, []).append(name)
            if not scope.is_class:
                for name, bindings in scope.bindings.items():
                    self._orphan_value(scope, name, bindings)
        for node, names in orphans.items():
            kept = [a for a in node.names if (a.asname or a.name.split(".")[0]) not in names]
            keep_only(self.edits, self.module, node, kept)

    def _orphan_value(self, scope: Scope, name: str, bindings: list[ast.AST]) -> None:
        """A variable that was computed only to be handed to Apex."""
        stmts = [self.module.parents.get(target) for target in bindings]
        uses = scope.reads(name)
        if not uses or name in self.edits.emitted_names() or not all(self.edits.gone(n) for n in uses):
            return
        if not scope.is_function and (self._used(name) or self.project.hands_on(self.module, name)):
            return
        if name in self.outer or any(
            s in self.edits.statements and not self.edits.gone(s.value) for s in stmts if isinstance(s, ast.Assign)
        ):
            return  # written anew, to hold something else
        for stmt in stmts:
            alone = isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and stmt.targets[0] in bindings
            if not isinstance(stmt, ast.Assign) or not alone or not pure(stmt.value):
                return
        for stmt in stmts:
            if isinstance(stmt, ast.Assign) and not self.edits.gone(stmt.value):
                self.edits.delete(stmt)

    def _orphan(self, bindings: list[ast.AST], name: str) -> ast.Import | ast.ImportFrom | None:
        """The import of a name that lost all its uses."""
        if len(bindings) != 1 or not isinstance(bindings[0], (ast.Import, ast.ImportFrom)):
            return None
        node = bindings[0]
        if node in self.edits.statements or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            return None
        return node if self._lost_uses(name) and not self._used(name) else None


def fold(project: Project, module: Module, output: Output) -> None:
    """Fold what only asks for Apex, before any file is cleaned: what another file asks for is no use of it then."""
    if output.edit(module) or project.may_name_apex(module):
        stand_ins.remove(project, module, output)
        if not _kept(output, module):
            Guards(project, module, output).fold()
            never_set.fold(module, output.edit(module))


def clean(project: Project, module: Module, output: Output) -> None:
    """Remove what only served Apex, once every file is folded."""
    if output.edit(module) or project.may_name_apex(module):
        handles.drop(project, module, output)
        Cleaner(project, module, output).remove(_kept(output, module))
        torch_imports.gather(module, output.edit(module))


def _kept(output: Output, module: Module) -> bool:
    """Whether a file keeps its guards: those are left to Apex, or to its owner."""
    ignored = any(m is module for m, _ in output.left) or not output.wishes.options.wants("AMP101")
    return ignored or _left_to_apex(output, module)


def _left_to_apex(output: Output, module: Module) -> bool:
    """Whether everything of `apex.amp` in a file needs a hand, or a marked part of it: its guards still guard it."""
    if output.edit(module).comments:
        return True
    findings = output.findings.get(module, [])
    migrated = any(f.status == "done" and f.code.startswith(("AMP1", "AMP2", "AMP70", "AMP71")) for f in findings)
    return not migrated and output.by_hand(module)
