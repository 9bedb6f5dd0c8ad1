"""What no rule took: units that stay as they are and why, and uses of Apex that would be left silently."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from amp_migrate.findings import lines_told

if TYPE_CHECKING:
    from amp_migrate.findings import Cause
    from amp_migrate.reading.program.module import Module
    from amp_migrate.reading.program.project import Project
    from amp_migrate.reading.sites.apex import Site
    from amp_migrate.reading.sites.unbound import Unbound
    from amp_migrate.reading.units.unit import Unit
    from amp_migrate.rules.migration import Migration, Output
    from amp_migrate.writing.edits import Edits

# Names of modules, which a program can hand on, store, or ask for.
MODULES = ("apex", "apex.amp", "apex.amp.__dict__")
# Files of Apex's that implement it: what a program takes from them no rule knows.
INNER = tuple(f"apex.amp.{name}." for name in ("scaler", "wrap", "utils", "opt", "compat", "rnn_compat"))
NO_RULE = "has no rule; see what it does and replace it by hand"
SCALER = (
    "holds a loss scale of the program's own, which is not that of initialize: keep the number yourself, where loss_scale() is asked "
    "for it and _loss_scale is set, or in another GradScaler"
)
LOOKING = ("getattr", "hasattr", "setattr", "vars", "dir", "print", "type", "id")  # what asks an object for something
SHIPPED = {"amp_C", "apex_C"}  # extensions that today's Apex still builds
NAMED = 3  # lines that are named
SET_UPS = {"initialize", "init", "FP16_Optimizer"}
KERNELS = "kept: Apex still ships its kernels and they need no apex.amp, so Apex stays installed, built with --cuda_ext"


def no_rule(site: Site) -> str:
    """What is said of a name of Apex's that no rule takes."""
    return f"{site.name} {SCALER if site.name == 'apex.amp.scaler.LossScaler' else NO_RULE}"


def whole(unit: Unit, migration: Migration, loose: Sequence[Site]) -> None:
    """Raise Blocked where a use of the unit is left that no rule took: `getattr(amp, name)`, say; or one in its files that
    belongs to no unit and does something with the module: `(found and amp).master_params(optimizer)`."""
    from amp_migrate.reading.conditions.tests import is_chosen
    from amp_migrate.reading.units.unit import Blocked

    objects = [s for s in (*unit.sites, *loose) if s.module in unit.modules and is_chosen(s.module, s.node)]
    others = [s for s in loose if s not in unit.sites and (s in objects or _by_value(s))]
    for site in (*unit.sites, *others):
        edits = migration.output.edits.get(site.module)
        if edits is not None and edits.gone(site.node):
            continue
        told = any(f.line == site.at[0] for f in migration.output.findings.get(site.module, ()))
        if migration.scales and _by_value(site) and not told:
            raise Blocked.at(site, "AMP102", no_rule(site))
        if site.name not in MODULES or (told and site not in objects) or only_asks(site):
            continue
        message = "what is done with the module amp is only known at run time: the unit is left whole; write it out"
        if _handed_over(site):
            instead = "give a GradScaler there instead"
            if not migration.scales:
                instead = "no loss is scaled here, so that no scaler could stand there: leave it out, or give one that you make"
            message = f"hands the module amp over, which may save or load its state: {instead}"
        raise Blocked.at(site, "AMP102", message)


def _handed_over(site: Site) -> bool:
    """Whether the module is put somewhere, or given to something: `Checkpoint(amp=amp)`, `to_save["amp"] = amp`."""
    user = site.module.parents.get(site.node)
    if isinstance(user, ast.Assign):
        return user.value is site.node and any(isinstance(t, ast.Subscript) for t in user.targets)
    if isinstance(user, ast.Call):
        return site.node in user.args and not (isinstance(user.func, ast.Name) and user.func.id in LOOKING)
    return isinstance(user, (ast.keyword, ast.Dict, ast.List, ast.Tuple))


def _by_value(site: Site) -> bool:
    """Whether something of amp is called where a program handed it, `options["amp"].float_function`: the scaler is there then."""
    of_amp = site.name.startswith("apex.amp.") and not site.name.startswith("apex.amp.handle.")
    called = site.call is not None and site.name not in MODULES
    return of_amp and called and site.module.qualify(site.node) is None


def refuse(unit: Unit, failure: Exception, output: Output) -> Mapping[Module, Edits]:
    from amp_migrate.findings import Cause
    from amp_migrate.reading.units.unit import Blocked

    assert isinstance(failure, Blocked)
    output.manual(failure.module, failure.node, failure.code, failure.construct, failure.message)
    output.refused.append((unit, Cause(failure.module.display, getattr(failure.node, "lineno", 1), failure.code)))
    own = {site.call or site.node: site for site in unit.sites if site.name.startswith(INNER)}
    for module, node, code, construct in unit_sites(unit):
        if node is failure.node:
            continue
        if node in own:  # which would stay without the failure, too
            output.manual(module, node, code, construct, no_rule(own[node]))
        else:
            output.waits(module, node, code, construct, failure)
    return {}


def unit_sites(unit: Unit) -> Iterable[tuple[Module, ast.AST, str, str]]:
    for init in unit.inits:
        yield init.module, init.call, "AMP110", init.site.construct
    for loss in unit.losses:
        yield loss.module, loss.call, "AMP201", loss.site.construct
    for site in unit.sites:
        yield site.module, site.call or site.node, "AMP102", site.construct


def _awaited_by_callers(project: Project, module: Module, names: set[str], output: Output) -> Cause | None:
    """What the calls wait for of functions that hold all that a file does with names of Apex's: a wrapper of `scale_loss`."""
    edits = output.edit(module)
    reads = [n for name in names for n in module.loads.get(name, ()) if not edits.gone(n)]
    functions = dict.fromkeys(project.function_of(module, n) for n in reads)
    if None in functions:
        return None
    calls = (place for function in functions if function is not None for place in project.calls.get(function, ()))
    return next((cause for home, call in calls for cause in output.causes(home, {call.lineno})), None)


def leftovers(project: Project, module: Module, sites: Iterable[Site], output: Output) -> None:
    """Every use of Apex that is still there without a finding gets one: nothing is left silently."""
    from amp_migrate.reading.sites.apex import apex_imports
    from amp_migrate.rules.cleanup.askers import awaited
    from amp_migrate.rules.setup.out_of_sight import still_asks, still_imports

    edits = output.edit(module)
    findings = output.findings.setdefault(module, [])
    manual_lines = {f.line for f in findings if f.status == "manual"}
    for site in sites:
        if site.module is not module or edits.gone(site.node) or site.at[0] in manual_lines:
            continue
        if output.left & {(module, line) for line in (site.at[0], site.call.lineno if site.call is not None else 0)}:
            continue
        if site.call is not None and site.call.lineno in manual_lines:
            continue
        if site.node in output.kept or site.node in output.taken or only_asks(site):
            continue
        if describes(site):
            output.kept.add(site.node)
            message = "tells which Apex is installed, and that none is where it is not: it may stay"
            output.note(module, site.node, "AMP101", site.construct, message, "as-is")
            continue
        if site.name.partition(".")[0] in SHIPPED:
            continue  # its import is told of
        output.manual(module, site.node, "AMP102", site.construct, no_rule(site))
    left = [f for f in output.findings[module] if f.status == "manual"]
    if not left and not any(m is module for m, _ in output.left):
        kept = {n.id for node in output.kept for n in ast.walk(node) if isinstance(n, ast.Name)}
        for node in apex_imports(module):
            names = _left_of(module, edits, node)
            bound = {name.split(".")[0] for name in names}
            marked = output.wishes.marked(module.display, node.lineno, "AMP101")
            if names and not marked and not bound & kept:
                if bound <= SHIPPED:
                    if not any(f.code == "AMP642" for f in findings):  # said where its operations are applied
                        output.note(module, node, "AMP642", "import amp_C", KERNELS, "review")
                elif (waits := awaited(project, module, node, output)) is not None:
                    output.manual(module, node, "AMP116", "import apex", waits)
                elif (asked := still_asks(project, module, edits, node)) is not None:
                    output.note(module, node, "AMP101", "import apex", asked)
                elif (cause := _awaited_by_callers(project, module, bound, output)) is not None:
                    output.waits_for(module, node, "AMP102", "import apex", cause)
                else:
                    output.manual(module, node, "AMP102", "import apex", still_imports(module, edits, node))


def _left_of(module: Module, edits: Edits, node: ast.Import | ast.ImportFrom) -> list[str]:
    """The names that an import of Apex binds which stays as it is; of one that binds fewer now, those that nothing reads."""
    from amp_migrate.reading.sites.apex import imports_apex

    edit = edits.statements.get(node)
    if edits.gone(node if edit is None else module.parents[node]):
        return []
    if edit is None:
        return [a.asname or a.name for a in node.names]
    written = (n for code in edit.codes if isinstance(code, str) for n in ast.walk(ast.parse(code)))
    left = [n for n in written if isinstance(n, (ast.Import, ast.ImportFrom)) and imports_apex(n)]
    names = [a.asname or a.name for n in left for a in n.names]
    read = any(not edits.gone(n) for name in names for n in module.loads.get(name.split(".")[0], ()))
    return [] if read else names


def extensions(project: Project, module: Module, output: Output) -> None:
    """Imports of what Apex's set-up compiles under other names than its own."""
    from amp_migrate.reading.sites.apex import compiled_imports, compiled_loads

    for node in compiled_imports(project, module):
        guarded = any(isinstance(a, ast.Try) and a.handlers for a in module.ancestors(node))
        if not guarded and output.wants_at(module, node, "AMP102"):
            name = node.names[0].name if isinstance(node, ast.Import) else str(node.module)
            message = f"{name} is an extension that Apex's set-up compiles: without Apex this import fails"
            output.manual(module, node, "AMP102", f"import {name}", message)
    for call, name in compiled_loads(project, module):
        guarded = any(isinstance(a, ast.Try) and a.handlers for a in module.ancestors(call))
        if guarded or output.edit(module).gone(call) or not output.wants_at(module, call, "AMP102"):
            continue
        message = f"{name} is an extension that Apex's set-up compiles: without Apex this import fails"
        stmt = module.parents.get(call)
        given = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
        if isinstance(given, ast.Name) and not module.loads.get(given.id):
            message += f", and nothing in this file uses {given.id}: delete the statement"
        output.manual(module, call, "AMP102", f"import {name}", message)


def unimported(project: Project, module: Module, output: Output) -> None:
    """Uses of Apex that no import of it reaches, of the file's or of another function's: they raise a NameError with Apex
    installed, too."""
    from amp_migrate.reading.program.lifted import caught
    from amp_migrate.reading.sites.unbound import unbound
    from amp_migrate.reading.values.never_run import never_taken

    _taken_for_all(module, output)
    for missing in unbound(project, module):
        never = {n: never_taken(project, module, n) for n in missing.uses}
        running = [n for n in missing.uses if never[n] is None]
        first, *_ = running or missing.uses
        if not output.wants_at(module, first, "AMP102"):
            continue
        where = lines_told((n.lineno for n in running or missing.uses), NAMED)
        if not running and missing.placed is None:
            asked = dict.fromkeys((module.source(b.test.test), b.holds) for b in never.values() if b is not None)
            tests = " and ".join(f"{test} {'never' if holds else 'always'} holds" for test, holds in asked)
            message = (
                f"{missing.name} is used ({where}) and not imported, but no run comes to that, as {tests}: these branches "
                "do nothing, need no Apex, and can go"
            )
            output.note(module, first, "AMP102", missing.name, message, "look")
            continue
        imported = f"imported into {', '.join(missing.homes)} alone" if missing.homes else "never imported"
        how = "import it to have it migrated, or delete it"
        if not _sets_up(project, module, missing):
            how = "nothing in sight sets Apex up for it, so that an import alone would not help: delete it"
        message = (
            f"{missing.name} is used ({where}) and {imported}: this raises a NameError with Apex installed, too"
            f"{', which is caught there' if caught(module, first) else ''}, so what it was to do is not known to have run; {how}"
        )
        if missing.placed is not None:
            message = (
                f"{missing.name} is used ({where}), and line {missing.placed} puts it among the globals by hand, which is not "
                "followed: import it at the top of the file instead, to have it migrated"
            )
        output.manual(module, first, "AMP102", missing.name, message)
        output.unbound.add(module)


def _taken_for_all(module: Module, output: Output) -> None:
    """Imports of one function that are read as the file's: by them a program that ended in a NameError is migrated."""
    for name, scope in module.lifted.items():
        reads = [n for n in module.loads.get(name, ()) if scope not in module.scope_of(n).chain()]
        stmt = next(iter(module.root.bindings[name]))
        if not reads or not output.wants_at(module, stmt, "AMP102"):
            continue
        where = lines_told((n.lineno for n in reads), NAMED)
        message = (
            f"{name} is imported into {scope.name} alone, and read elsewhere ({where}): with Apex installed, too, a run "
            "that came there ended in a NameError"
        )
        if all(map(output.edit(module).gone, reads)):
            message += (
                ". It was taken for what it means in the whole file: mixed precision runs there now for the first time"
            )
        output.note(module, stmt, "AMP102", name, message, "review")


def _sets_up(project: Project, module: Module, missing: Unbound) -> bool:
    """Whether Apex is set up by what is taken of a name that nothing imports, or anywhere in the program."""
    from amp_migrate.reading.sites.apex import find_sites
    from amp_migrate.reading.sites.unbound import taken_of

    files = (m for m in project.modules if project.may_name_apex(m))
    names = {s.name.rpartition(".")[2] for m in files for s in find_sites(project, m)}
    return not SET_UPS.isdisjoint(names | {attribute for use in missing.uses for attribute in taken_of(module, use)})


def describes(site: Site) -> bool:
    """Whether a site asks what is installed, `apex.__file__`, in a `try` that does without: a report of the environment."""
    if site.name not in ("apex.__file__", "apex.__version__", "apex.__path__"):
        return False
    tries = [a for a in site.module.ancestors(site.node) if isinstance(a, ast.Try)]
    inside = [t for t in tries if any(site.stmt is n for s in t.body for n in ast.walk(s))]
    caught = {
        n.id
        for t in inside
        for h in t.handlers
        if h.type is not None
        for n in ast.walk(h.type)
        if isinstance(n, ast.Name)
    }
    every = any(h.type is None for t in inside for h in t.handlers)
    return every or bool(caught & {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def only_asks(site: Site) -> bool:
    """`amp is not None`, `assert amp`: a question about the module, which the guards' own rule answers."""
    from amp_migrate.reading.conditions.tests import asks_for_part, is_chosen

    asker = site.module.parents.get(site.node)
    if is_chosen(site.module, site.node):
        return False
    return site.name in MODULES and (
        (asker is not None and asks_for_part(asker))
        or isinstance(asker, (ast.Compare, ast.BoolOp, ast.UnaryOp))
        or (isinstance(asker, (ast.If, ast.IfExp, ast.Assert)) and asker.test is site.node)
    )
