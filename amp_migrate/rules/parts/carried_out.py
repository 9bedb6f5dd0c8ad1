"""Carries out what the rules about parallel, syncbn, optimizers and normalization decide, and names what they emit.

A name that an import from Apex bound, and that does not speak of Apex, stays and is imported from torch instead; every
other use is written as the file itself names torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from amp_migrate.options import Options
from amp_migrate.reading.program.definitions import dotted
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import within_apex
from amp_migrate.reading.sites.apex import Site, find_sites
from amp_migrate.reading.switch.folds import guard_folds
from amp_migrate.rules.migration import Output
from amp_migrate.rules.parts import larc, no_counterpart, normalization, optimizers, parallel, syncbn
from amp_migrate.rules.parts.around_imports import AroundImports, from_apex
from amp_migrate.rules.parts.belonging import waiting
from amp_migrate.rules.parts.branches import Branches
from amp_migrate.rules.parts.counterpart import Convert, Manual, Native
from amp_migrate.rules.parts.guards import settle_guards
from amp_migrate.rules.parts.imports import (
    Binding,
    ImportEdits,
    binding_line,
    bindings,
    import_line,
    speaks_of_apex,
    stands_for,
    wraps,
)
from amp_migrate.rules.parts.kept_beside import FLOAT32, of_all_runs, read_kept
from amp_migrate.rules.parts.messages import correct_messages
from amp_migrate.rules.parts.optimizer_values import PARTIAL
from amp_migrate.rules.parts.parallel_differs import NATIVE_DDP
from amp_migrate.rules.parts.same import drop_repeated, drop_shortcuts, fold_equal, merge_types
from amp_migrate.writing.calls import Argument, arguments_of, call_code
from amp_migrate.writing.edits import Edits
from amp_migrate.writing.names import exact_name, native_name
from amp_migrate.writing.style import Style

CONVERTERS: dict[str, Convert] = {
    name: rule.convert for rule in (parallel, syncbn, optimizers, normalization, larc) for name in rule.NAMES
}
# Classes that can be imported in the place of Apex's: what an import alone, without a use in sight, becomes.
CLASSES = {
    parallel.DDP: NATIVE_DDP,
    syncbn.LAYER: syncbn.NATIVE_LAYER,
    **{name: native for name, (_, native) in normalization.LAYERS.items()},
    **{name: fused.native for name, fused in optimizers.OPTIMIZERS.items()},
}


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Rewrite the uses of apex.parallel, apex.optimizers and apex.normalization in one file; report what cannot be."""
    if project.may_name_apex(module):
        _Parts(project, module, output).run()


class _Parts:
    def __init__(self, project: Project, module: Module, output: Output) -> None:
        self.project = project
        self.module = module
        self.output = output
        self.edits: Edits = output.edit(module)
        self.imports = ImportEdits(module, self.edits)
        self.folds = guard_folds(project, module)
        self.bindings: dict[tuple[Scope, str], list[Binding]] = {}
        for binding in bindings(module, CONVERTERS.__contains__):
            owner = binding.scope.lookup(binding.name) or binding.scope
            self.bindings.setdefault((owner, binding.name), []).append(binding)
        self.decided: dict[Site, Native | Manual] = {}
        self.shared: set[Binding] = set()  # what another import binds in another branch
        self.held: dict[tuple[Scope, str], Site] = {}  # names that stay Apex's for the sake of a site

    def run(self) -> None:
        for node, runs in parallel.launches(self.module):
            tell = self.output.manual if runs else self.output.note
            tell(self.module, node, "AMP603", "parallel.multiproc", "torchrun starts the processes; see LOCAL_RANK")
        for site, decision in self._wanted():
            if not self.edits.gone(site.node):
                self.decided[site] = decision
            elif (dotted(site.node) or "").partition(".")[0] not in self.edits.emitted_names():
                self._folded(site, decision)
        settle_guards(self.project, self.module, self.folds, self.decided, self.edits)
        folded = Branches(self.project, self.module, self.decided).fold(self.edits, self.folds)
        live = {s: d for s, d in self.decided.items() if self._beside(s.node) is None and not self.edits.gone(s.node)}
        for site, decision in self.decided.items():
            if site not in live:
                self._folded(site, decision)
        groups: dict[tuple[Scope, str], list[Site]] = {key: [] for key in self.bindings if key not in self.held}
        for site in live:
            groups.setdefault(self._key(site), []).append(site)
        for key, sites in groups.items():
            self._group(self.bindings.get(key, []), [(site, live[site]) for site in sites])
        if any(d.code == "AMP601" and isinstance(d, Native) and s.name == parallel.DDP for s, d in live.items()):
            parallel.switch_reduction(self.module, self.edits, self.output)
        fold_equal(live, folded, self.edits)
        around = AroundImports(self.imports, [b for group in self.bindings.values() for b in group], self.shared)
        around.fold_branches()
        around.fold_tries(live)
        drop_shortcuts(live, self.edits)
        around.keep_fallbacks()
        correct_messages(self.module, self.edits, live)
        self.imports.carry_out(around.still_used)

    def _wanted(self) -> Iterator[tuple[Site, Native | Manual]]:
        """Each site with what becomes of it, less those that are to be left alone and what shares a name with them."""
        sites = [s for s in find_sites(self.project, self.module) if s.node not in self.output.taken]
        decisions = {s: d for s in sites if (d := self._decide(s)) is not None and not self._in_fallback(s.node)}
        ignored = [s for s, d in decisions.items() if not self.output.wants_at(self.module, s.call or s.node, d.code)]
        ignored += (waits := waiting(self.project, decisions, ignored, self.output))
        self.held = {key: site for site in ignored if (key := self._key(site)) in self.bindings}
        for site, decision in decisions.items():
            if site in ignored:
                continue
            other = self.held.get(self._key(site))
            if other is None:
                yield site, decision
            else:
                stays = other in waits or (self.module.display, other.at[0]) in self.output.refuted
                why = "which stays with Apex" if stays else f"where {decisions[other].code} is ignored"
                message = f"shares its import with line {other.at[0]}, {why}"
                self.output.manual(self.module, site.call or site.node, decision.code, site.construct, message)

    def _folded(self, site: Site, decision: Native | Manual) -> None:
        """A site that goes: the branch beside its own does the same without Apex, or is taken to, where there is one."""
        stays = self._beside(site.node) or self._spliced(site.node)
        message, review = "the native branch stays" if stays else "goes with the code around it", "as-is"
        if decision.code == "AMP621" and isinstance(decision, Native) and site.argument(6, "weight_decay") is not None:
            message, review = f"{message}: if its weight decay is not {decision.names[0]}'s, the curve differs", "look"
        if decision.code == "AMP611" and isinstance(decision, Native) and decision.review == "review":
            message, review = f"{message}: {decision.message}", decision.review
        if site.name == parallel.DDP and (beside := self._beside(site.node)) is not None:
            told = read_kept(self.project, site, decision, self.output, beside)
            message, review = message + told, "look" if told else review
        if stays and of_all_runs(self.project, site):
            message, review = message + FLOAT32, "look" if review == "as-is" else review
        self._done(site, decision.code, message, review)

    def _decide(self, site: Site) -> Native | Manual | None:
        if site.call in self.output.clipped:
            return optimizers.convert(self.project, site, clipped=True)
        decision = CONVERTERS.get(site.name, no_counterpart.convert)(self.project, site)
        return parallel.answered(decision, site, self.output.mended.get((self.module.display, site.stmt.lineno), {}))

    def _beside(self, node: ast.AST) -> list[ast.stmt] | None:
        """The branch that stays where a node's own goes."""
        child = node
        for parent in self.module.ancestors(node):
            branch = self.folds.splices.get(parent) if isinstance(parent, ast.stmt) else None
            if branch is not None and child is not getattr(parent, "test", None):
                stays: list[ast.stmt] = getattr(parent, branch)
                if not any(child is s for s in stays):
                    return stays
            child = parent
        return None

    def _spliced(self, node: ast.AST) -> bool:
        """Whether another rule left another branch than a node's own."""
        around = [node, *self.module.ancestors(node)]
        for parent in around:
            edit = self.edits.statements.get(parent) if isinstance(parent, ast.stmt) else None
            if isinstance(parent, ast.IfExp) and parent in self.edits.expressions:
                return True
            if edit is not None and edit.kind != "delete" and getattr(parent, "orelse", None):
                return edit.kind == "replace" or {*around}.isdisjoint(getattr(parent, edit.branch))
        return False

    def _in_fallback(self, node: ast.AST) -> bool:
        """Whether a node belongs to a definition that stands in for Apex's."""
        around = {node, *self.module.ancestors(node)}
        return any(b.fallback in around for group in self.bindings.values() for b in group if b.fallback is not None)

    def _key(self, site: Site) -> tuple[Scope, str]:
        name = site.node.id if isinstance(site.node, ast.Name) else ""
        return site.scope.lookup(name) or self.module.root, name

    # -- one name ------------------------------------------------------------------------------------------------

    def _group(self, group: list[Binding], sites: list[tuple[Site, Native | Manual]]) -> None:
        """All uses of one name, or all dotted uses: `group` holds the imports that bind the name, if they are here."""
        native = self._single(group, sites)
        shared = [site for site, _ in sites if native is not None and self._another_import(group, site)]
        if shared and native is not None:
            self._import_beside(group, native, [(s, d) for s, d in sites if s in shared])
            return
        keeps = self._keeps_name(group, native, sites) if native is not None else self._keeps_import(group, sites)
        if keeps and native is not None:
            for binding in group:
                self._import_native(binding, native)
        own = next((t for b in group if keeps and native is not None and (t := self._own(b, native))), None)
        wrapped = native is not None and any(self._wraps(b, native) for b in group)
        for site, decision in sites:
            if isinstance(decision, Manual):
                self._report(site, decision)
                continue
            if decision.define is not None:
                self._done(site, decision.code, decision.message, decision.review)
                for binding in group:
                    self.imports.remove(binding)
                decision.define(site, self.edits)
                continue
            if wrapped and decision.arguments is not None:  # what it adds is for the class itself
                given = tuple(a for a in decision.arguments if a.node is not None)
                message = "what the program itself wraps models in without Apex, in torch's, stays for every run"
                decision = replace(decision, arguments=given, message=message, review="look", then="")
            names = [self.module.source(site.node) if keeps else self._name(site, n, group) for n in decision.names]
            changed = self._write(site, decision, names)
            for module, call, arguments in decision.beside:
                function = module.source(call.func)
                self.output.edit(module).replace(call, call_code(module, call, function, arguments))
            if own is not None:
                self._done(site, decision.code, f"{own}, which stood in where Apex was missing", "look")
            elif changed or group:  # a name that another file hands on and that stays is that file's to tell
                self._done(site, decision.code, decision.message, decision.review)

    def _another_import(self, group: list[Binding], site: Site) -> bool:
        """Whether a name that is used is bound by an import from elsewhere as well, in a branch of its own."""
        if site.call is None or not isinstance(site.node, ast.Name) or self.module.import_above(site.node) is not None:
            return False
        owner = site.scope.lookup(site.node.id)
        stands_in = {b.fallback for b in group}
        bound = (self.module.statement(b) for b in (owner.bindings.get(site.node.id, ()) if owner is not None else ()))
        others = [s for s in bound if isinstance(s, ast.ImportFrom) and s not in stands_in]
        return any(s.level or (s.module or "").split(".")[0] not in ("apex", "torch") for s in others)

    def _import_beside(self, group: list[Binding], native: str, sites: list[tuple[Site, Native | Manual]]) -> None:
        """The import alone gives way to torch's: what is called may be the other class, too."""
        if any(isinstance(d, Manual) or (s.call is not None and s.call.keywords) for s, d in sites):
            for site, decision in sites:
                message = "another import binds this name, too, and takes other arguments: write a call for each"
                self.output.manual(self.module, site.call or site.node, decision.code, site.construct, message)
            return
        self.shared.update(group)
        for binding in group:
            self._import_native(binding, native)
        for site, decision in sites:
            self.edits.replace(site.node, self.module.source(site.node))
            message = f"{decision.message}; another import binds this name, too, so the call stays as it is"
            self._done(site, decision.code, message, "look")

    def _own(self, binding: Binding, native: str) -> str | None:
        """The class of the program's own that an import from Apex gives way to."""
        fallback = self._fallback(binding, native)
        target = stands_for(self.module, fallback, binding.name) if fallback is not None else None
        return target if target is not None and target.split(".")[0] != "torch" else None

    def _report(self, site: Site, decision: Manual) -> None:
        node = site.call or site.node
        if decision.works:
            self.output.kept.add(site.node)
            if site.call is not None and decision.arguments is not None:
                function = self.module.source(site.node)
                self.edits.replace(site.call, call_code(self.module, site.call, function, decision.arguments))
            self.output.note(self.module, node, decision.code, site.construct, decision.message, "review")
        else:
            self.output.manual(self.module, node, decision.code, site.construct, decision.message)

    def _single(self, group: list[Binding], sites: list[tuple[Site, Native | Manual]]) -> str | None:
        """The one native class that all uses of an imported name become; None where there are several, or none."""
        if not group:
            return None
        if not sites:
            native = CLASSES.get(group[0].target)
            return native if native is not None and self._reexported(group[0], native) else None
        names = {n for _, d in sites for n in (d.names if isinstance(d, Native) and d.whole is None else ("", ""))}
        return names.pop() if len(names) == 1 and names <= set(CLASSES.values()) else None

    def _keeps_name(self, group: list[Binding], native: str, sites: list[tuple[Site, Native | Manual]]) -> bool:
        if any(self._fallback(b, native) is not None or self._wraps(b, native) for b in group):
            return True
        if native == NATIVE_DDP and any(exact_name(self.module, native, s.scope, s.node.lineno) for s, _ in sites):
            return False
        if not group[0].scope.is_module and any(native_name(self.module, native, site.scope) for site, _ in sites):
            return False
        return group[0].neutral

    def _keeps_import(self, group: list[Binding], sites: list[tuple[Site, Native | Manual]]) -> bool:
        """Whether a name comes from another file of the project, where it stays on the one class that all uses want."""
        if group or not all(isinstance(site.node, ast.Name) and not speaks_of_apex(site.node.id) for site, _ in sites):
            return False
        return all(isinstance(d, Native) and d.names == (CLASSES.get(site.name),) for site, d in sites)

    def _fallback(self, binding: Binding, native: str) -> ast.stmt | None:
        """What a guard imports where Apex is missing, if that is the counterpart or a class of the program's own."""
        stmt = binding.fallback
        if stmt is None:
            return None
        if self._wraps(binding, native):
            return stmt
        target = stands_for(self.module, stmt, binding.name)
        if target is None or within_apex(target):
            return None
        return stmt if target == native or target.split(".")[0] != "torch" else None

    def _wraps(self, binding: Binding, native: str) -> bool:
        """Whether the program wraps in the native class itself where Apex is not, by a function under the same name."""
        return binding.stand_in is not None and wraps(self.module, binding.stand_in, native)

    def _import_native(self, binding: Binding, native: str) -> None:
        self.imports.remove(binding)
        fallback = self._fallback(binding, native)
        if fallback is not None:
            for stmt in binding.imported_for(fallback):
                self.imports.add(binding, self.module.source(stmt))
                self.edits.delete(stmt)
            self.imports.add(binding, self.module.source(fallback))
        else:
            self.imports.add(binding, binding_line(binding, native))
        if binding.fallback is not None and binding.fallback not in self.edits.statements:
            self.edits.delete(binding.fallback)

    # -- names ---------------------------------------------------------------------------------------------------

    def _name(self, site: Site, native: str, group: list[Binding]) -> str:
        """How a counterpart is written at a site, importing what it takes."""
        head, rest = native, ""
        if native == syncbn.NATIVE_CONVERT:
            head, rest = native.rpartition(".")[0], "." + native.rpartition(".")[2]
        name = native_name(self.module, head, site.scope, site.node.lineno)
        binding = next((b for b in group if b.scope.is_module), None)
        if group and binding is None and name is not None:
            return name + rest  # an import inside a function, for want of Apex: the file's own torch does
        binding = group[0] if group else None
        exact = exact_name(self.module, native, site.scope, site.node.lineno)
        if native == NATIVE_DDP and not exact and binding is not None:
            plain = binding.plain or "DDP"
            if not self._bound(plain):
                self.imports.add(binding, import_line(native, plain))
                return plain
        if name is not None:
            return name + rest
        last = head.rpartition(".")[2]
        if binding is not None and not self._bound(last):
            self.imports.add(binding, import_line(head, last))
            return last + rest
        torch, stmt = Style(self.module).torch_name(site.scope, site.stmt)
        if stmt is not None:
            self.edits.import_torch(stmt)
        return torch + native.removeprefix("torch")

    def _bound(self, name: str) -> bool:
        return any(name in scope.bindings for scope in self.module.scopes.values())

    # -- writing -------------------------------------------------------------------------------------------------

    def _write(self, site: Site, decision: Native, names: list[str]) -> bool:
        """Put what becomes of a site in its place; whether that is anything else than what stands there."""
        if decision.then:
            self.edits.insert_after(site.stmt, decision.then)
        if decision.whole is not None and site.call is not None:
            self.edits.replace(site.call, decision.whole)
            return True
        function = names[0]
        if decision.choose is not None:
            function = f"({names[0]} if {self.module.source(decision.choose)} else {names[1]})"
        if decision.binding:
            self.edits.replace(site.node, f"{self._partial(site)}({function}, {decision.binding})")
            return True
        if site.call is None:
            self.edits.replace(site.node, function)
            merge_types(site, decision.names[0], self.edits)
            drop_repeated(site, decision.names[0], self.edits)
            return function != self.module.source(site.node)
        kept = tuple(map(Argument, arguments_of(site.call)))
        arguments = kept if decision.arguments is None else decision.arguments
        unchanged = not any(a.label for a in arguments) and [a.node for a in arguments] == arguments_of(site.call)
        if unchanged and not decision.suffix and function == self.module.source(site.node):
            self.edits.replace(site.node, function)
            return False
        self.edits.replace(site.call, call_code(self.module, site.call, function, arguments, decision.suffix))
        return True

    def _partial(self, site: Site) -> str:
        """How the file writes `functools.partial`, imported above the statement where it does not."""
        name = exact_name(self.module, PARTIAL, site.scope, site.node.lineno)
        if name is None:
            name = "partial" if not self._bound("partial") else PARTIAL
            body = self.module.tree.body
            imports = [s for s in body if isinstance(s, ast.Import | ast.ImportFrom) and not from_apex(s)]
            first = next((s for s in imports if getattr(s, "module", "") != "__future__"), site.stmt)
            line = "import functools" if name == PARTIAL else "from functools import partial"
            codes = self.edits.before.setdefault(first, [])
            codes += [line] * (line not in codes)
        return name

    def _reexported(self, binding: Binding, native: str) -> bool:
        """Whether another file imports the name from here, or `__all__` offers what is torch's already without Apex."""
        offered = binding.name in (self.module.listed or ()) and self._fallback(binding, native) is not None
        return offered or (binding.scope.is_module and self.project.hands_on(self.module, binding.name))

    def _done(self, site: Site, code: str, message: str, review: str) -> None:
        node = site.call or site.node
        self.output.done(self.module, node, code, site.construct, message, review)  # type: ignore[arg-type]
