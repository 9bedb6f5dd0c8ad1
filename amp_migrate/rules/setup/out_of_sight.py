"""Why one end of a unit is missing, as far as the files given tell: what is not there, or is there and not connected.

No codes of its own: `initialize.py` and `step.py` refuse with these reasons.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from amp_migrate.reading.program.definitions import ClassInfo, Function
from amp_migrate.reading.program.handed_on import OUTSIDE
from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope
from amp_migrate.reading.program.processes import Imports, importing, in_process
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site, find_sites
from amp_migrate.reading.sites.unbound import part, unbound
from amp_migrate.reading.units.calls import Step, read_loss
from amp_migrate.reading.units.unit import only_asks
from amp_migrate.reading.units.unscaled import CASTING
from amp_migrate.reading.units.unused_keepers import named_in_quotes
from amp_migrate.reading.values.sources import Sources
from amp_migrate.rules.cleanup.askers import never_read
from amp_migrate.rules.cleanup.own_names import is_own
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.setup.by_framework import by_framework
from amp_migrate.writing.edits import Edits

NAMED = 3  # places told


def no_initialize(m: Migration, site: Site) -> str:
    """Why nothing is known to set up the mixed precision that a site needs."""
    found = _places(m, "initialize", "init")
    if m.unit.unready:
        named = ", ".join(site.module.source(n) for x in m.unit.losses for n in x.optimizers)
        return (
            f"no amp.initialize is given {named}, so that Apex raises here where mixed precision is on: give it to one, or delete "
            "what no run can come by"
        )
    never = _never_made(m, site) if found else None
    if never is not None:
        return never
    if not found and not m.unit.losses and all(only_asks(s) for s in m.unit.sites):
        return (
            f"nothing in sight trains with Apex, and {site.construct} is only asked for: what hangs on the answer "
            "may reach Apex through a package out of sight. See what that takes in its place, and delete the question with the import"
        )
    if any(name.placed == site.at[0] for name in unbound(m.project, site.module)):
        return (
            f"{site.construct} is put among the globals by hand here, and what reads it there is not followed: import it at the "
            "top of the file instead, to have both migrated"
        )
    parent = site.module.parents.get(site.node)
    if not found and site.name in ("apex", "apex.amp") and not isinstance(parent, ast.Attribute):
        return (
            f"{site.construct} is handed on as a value here, and no initialize is seen to be called through it: import amp where "
            "it is called, or rewrite this file together with the one that calls it"
        )
    together = in_process(m.project, [site.module])
    near = any(place.module in together for place in _sites(m, "initialize", "init"))
    if not near and (reason := by_framework(m, site)) is not None:
        return reason
    if not found and len(m.project.modules) > 1:
        return (
            "none of the files read calls amp.initialize, without which Apex raises here: rewrite this file together with "
            "the one that does, or delete what no run can come by"
        )
    if not found:
        return "amp.initialize is not in sight; rewrite this file together with the one that calls it"
    if not near:
        return (
            f"no run of this file comes by an amp.initialize (those of {found} are other programs'), without which Apex raises "
            "here: call it before, or delete this"
        )
    found = _listed(place for place in _sites(m, "initialize", "init") if place.module in together)
    uncalled = _uncalled(m, site.module, site.node)
    function = m.project.function_of(site.module, site.node)
    if uncalled is not None and function is not None and function.node.decorator_list:
        signs = ", ".join(f"@{site.module.source(d)}" for d in function.node.decorator_list)
        return (
            f"nothing in sight calls {uncalled} but, perhaps, what decorates it ({signs}), so which amp.initialize ({found}) it "
            "belongs to cannot be told: rewrite it together with the code that calls it, or by hand for the runs that come here"
        )
    if function is not None and uncalled is not None and (place := _kept_at(m, function)):
        return (
            f"{place} keeps {uncalled} as a value, and what calls it there is out of sight, so which amp.initialize ({found}) it "
            "belongs to cannot be told: call it by its name, or migrate it by hand for the runs that come here"
        )
    if uncalled is not None:
        return (
            f"nothing in sight calls {uncalled}, so which amp.initialize ({found}) it belongs to cannot be told: delete it, "
            "or rewrite it together with the code that calls it"
        )
    return (
        f"amp.initialize ({found}) is not seen to prepare what this is about: how the optimizer comes here could not be "
        "followed"
    )


def other_framework(name: str) -> str:
    """Why what is no torch program is left as it is."""
    return (
        f"this program trains with {name} and imports no torch, so that Apex raises here and torch's mixed precision has nothing to "
        f"work on: delete what it has of Apex, or use the mixed precision of {name}"
    )


def no_loss(m: Migration) -> str:
    """Why no scaled loss is known for an optimizer that is initialized."""
    plain = [s for s in m.unit.steps if _runs_backward(s.scope)]
    if missing := _without_import(m, plain):
        return (
            f"{missing} scales a loss for this optimizer by an amp that no import reaches, which raises a NameError where mixed "
            "precision is on: import amp at the top of that file, and rewrite again"
        )
    if elsewhere := _entered_elsewhere(m):
        return (
            f"{elsewhere[0]} makes the context of amp.scale_loss and {elsewhere[1]}: write "
            "`with amp.scale_loss(...) as scaled_loss:` around the backward, and rewrite again"
        )
    if unknown := _by_unknown(m):
        return (
            f"{unknown} scales a loss, and that what it is called on holds amp could not be followed: call amp.scale_loss by "
            "the name that an import gives it there, and rewrite again"
        )
    found = _listed(s for s in _sites(m, "scale_loss") if s.module in _near(m))
    if plain:
        place = f"{plain[0].module.display}:{plain[0].call.lineno}"
        stepped = f"no loss is scaled for this optimizer, which {place} steps after a plain backward"
        if not all(init.levels <= CASTING for init in m.unit.inits):
            return f"{stepped}: {_stepped_at(m)}; scale the loss, or take initialize out and put the forward under torch.autocast"
        if found:
            return f"{stepped}, and how it comes to those that are ({found}) could not be followed"
    takers, lacking = _takers(m)
    if lacking:
        return f"no amp.scale_loss is seen to be for this optimizer: it is handed to {lacking}: mend the import"
    if plain and not takers:
        return f"{stepped}, and not all its steps do; put the forward under torch.autocast in place of initialize"
    base = _base_out_of_sight(m) if not found and not plain else None
    if base is not None:
        return (
            f"no amp.scale_loss for this optimizer is in sight: {base}, whose files are not read, scales the loss where it does: "
            "add them, or ask for its own mixed precision, and take this set-up out"
        )
    if takers:
        return (
            f"no amp.scale_loss is seen to be for this optimizer: it is handed to {takers}, not among the files read: add what "
            "defines that, or mend the import if there is no such file; of a library, ask for its own mixed precision, and take "
            "this set-up out"
        )
    if not found and not plain:
        return "no amp.scale_loss for this optimizer is in sight; rewrite this file together with the one that trains"
    return f"no amp.scale_loss is seen to be for this optimizer: how it comes to those in sight ({found}) could not be followed"


def _stepped_at(m: Migration) -> str:
    """What a step after a plain backward did, at each level that some `initialize` may ask for: where the optimizer has
    float32 masters of half weights, these get their gradients from `amp.scale_loss` alone; else it has the weights themselves."""
    lost = "the float32 masters of half weights, which get gradients from amp.scale_loss alone, were not stepped"
    told = {
        "O0": "amp did nothing",
        "O1": "only the casts were Apex's",
        "O2": lost,
        "O3": "the half weights were stepped by their own gradients, unscaled",
    }
    levels = frozenset[str]().union(*(init.levels for init in m.unit.inits))
    for init in m.unit.inits:
        asked = init.only("master_weights")
        if asked is not None:
            by_it = lost if asked in (True, "True") else told["O3"]
            told |= dict.fromkeys(
                ("O2", "O3"), by_it if asked is not ... else f"{lost} where master_weights has them made"
            )
    said: dict[str, list[str]] = {}
    for level in sorted(levels, reverse=True):
        said.setdefault(told[level], []).append(level)
    return ", ".join(f"at {' and '.join(sorted(at))} {what}" for what, at in said.items())


def _without_import(m: Migration, steps: Iterable[Step]) -> str | None:
    """Where a function that steps scales a loss by a name that nothing binds there."""
    scopes = {step.scope: step.module for step in steps}
    for module in dict.fromkeys(scopes.values()):
        for missing in unbound(m.project, module):
            for use in missing.uses:
                if part(module, use) == "scale_loss" and module.scope_of(use) in scopes:
                    return f"{module.display}:{use.lineno}"
    return None


def _near(m: Migration) -> Collection[Module]:
    """The files that may be of one run with the unit: all, where nothing in sight imports what it lies in, and no script is
    among that."""
    scripts = m.project.once(Imports).scripts
    seen = any(len(importing(m.project, module)) > 1 or module in scripts for module in m.unit.modules)
    return m.unit.tied if seen else m.project.modules


def _entered_elsewhere(m: Migration) -> tuple[str, str] | None:
    """Where the context of a scaled loss is made that no `with` enters, and what becomes of it: `return amp.scale_loss(loss,
    optimizer)`; `context = amp.scale_loss(loss, optimizer)`, `context.__enter__()`."""
    for site in m.unit.sites:
        if site.name == "apex.amp.scale_loss" and site.call is not None and read_loss(site) is None:
            by_hand = any(
                site.module.scope_of(call) is site.scope for call, _ in site.module.method_calls.get("__enter__", ())
            )
            way = "enters it by hand, by __enter__()" if by_hand else "does not enter it itself"
            return (
                f"{site.module.display}:{site.at[0]}",
                f"{way}, {'which' if by_hand else 'and what does'} is not followed",
            )
    return None


def _by_unknown(m: Migration) -> str | None:
    """Where a loss is scaled by what may be amp, handed here as a value: `self.amp.scale_loss`, `config["amp"].scale_loss`."""
    for module in m.unit.reach:
        for call, func in module.method_calls.get("scale_loss", ()) if module in _near(m) else ():
            if module.qualify(func) is None and not m.project.resolved.get(call):
                return f"{module.source(func)} ({module.display}:{call.lineno})"
    return None


def _runs_backward(scope: Scope) -> bool:
    """Whether a function calls `loss.backward()` itself: what is given a loss may do anything with it."""
    calls = (n for n in walk(scope.node) if isinstance(n, ast.Call) and not n.args)
    return any(isinstance(call.func, ast.Attribute) and call.func.attr == "backward" for call in calls)


def _takers(m: Migration) -> tuple[str, str]:
    """The functions that the optimizer is handed to, and where they are imported from: those out of sight, and those that the
    file read under that name does not have."""
    unread: dict[str, list[str]] = {}
    lacking: dict[str, str] = {}
    for module in dict.fromkeys(init.module for init in m.unit.inits):
        for call, _ in module.calls:
            given = (*call.args, *(k.value for k in call.keywords))
            if not any(m.project.slot(module, v) in m.unit.optimizer_slots for v in given):
                continue
            name = module.qualify(call.func) or ""
            home, _, last = name.rpartition(".")
            if not home or home.partition(".")[0] in OUTSIDE or m.project.resolved.get(call):
                continue
            files = m.project.meant(module, home)
            if not files:
                unread.setdefault(home, []).append(last)
            elif all(_lacks(m, file, last) for file in files):
                lacking[name] = f"{last} of {home}, and {files[0].display} has no {last}"
    shown = (f"{', '.join(dict.fromkeys(names))} of {home}" for home, names in unread.items())
    return " and ".join(shown), "; and to ".join(lacking.values())


def _base_out_of_sight(m: Migration) -> str | None:
    """What the class that sets mixed precision up derives from, where that is not read: `transformers.Trainer`."""
    for init in m.unit.inits:
        cls = m.project.class_of(init.site.scope)
        for each in cls.ancestry() if cls is not None else ():
            for base in each.node.bases:
                name = each.module.qualify(base) or ""
                if (
                    "." in name
                    and name.partition(".")[0] not in OUTSIDE
                    and m.project.find_class(each.module, base) is None
                ):
                    return f"{name}, which {each.name} derives from"
    return None


def _lacks(m: Migration, module: Module, name: str) -> bool:
    """Whether importing a name from a file raises: nothing binds it there, and nothing may by other means."""
    bound = {name, "__getattr__"} & {*module.root.bindings, *module.root.imports}
    starred = any(base not in m.project.by_name for base in module.star_imports)
    brought = m.project.handed_on.brought(module, name) is not None
    return not (bound or starred or brought or module.loads.get("globals"))


def still_asks(project: Project, module: Module, edits: Edits, node: ast.Import | ast.ImportFrom) -> str | None:
    """What an import of Apex asks that stays only for its answer: `HAS_APEX = True` beside it, or that nothing goes on
    without; None where it is used."""
    guard = next((a for a in module.ancestors(node) if isinstance(a, ast.Try)), None)
    if guard is None or _reads(module, edits, [(a.asname or a.name).split(".")[0] for a in node.names]):
        return None
    targets = {t.id for s in walk(guard) if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)}
    flags = sorted(targets & {n.id for name in targets for n in module.loads.get(name, ()) if not edits.gone(n)})
    if not flags and never_read(project, module, node):
        return (
            "stays: nothing reads it, but it asks whether Apex is installed, and some of the program is left with Apex"
        )
    if not flags:
        return None
    return (
        f"stays, for it tells by {', '.join(flags)} whether Apex is installed, which some of the program that is left "
        "with Apex may ask"
    )


def _reads(module: Module, edits: Edits, names: Iterable[str]) -> list[ast.Name]:
    """Where names of a module are read that are no function's own."""
    return [n for name in names for n in module.loads.get(name, ()) if not edits.gone(n) and not is_own(module, n)]


def still_imports(module: Module, edits: Edits, node: ast.Import | ast.ImportFrom) -> str:
    """What an import of Apex that stays is for."""
    names = [(a.asname or a.name).split(".")[0] for a in node.names]
    if "*" in names:
        return "still imports Apex: which of its names are used cannot be told"
    used = sorted({n.lineno for n in _reads(module, edits, names)})
    function = next((a for a in module.ancestors(node) if isinstance(a, FUNCTION_NODES)), None)
    if not used and function is not None:
        return (
            f"still imports Apex into {function.name} alone, where nothing reads it: what other functions read under that "
            "name is not bound there; import it at the top of the file, from torch where it has a counterpart"
        )
    if not used:
        return "still imports Apex, though nothing here reads it; another file may import it from here"
    lines = ", ".join(map(str, used[:NAMED])) + (", ..." if len(used) > NAMED else "")
    return (
        f"still imports Apex: {', '.join(names)} {'is' if len(names) == 1 else 'are'} used in "
        f"{'line' if len(used) == 1 else 'lines'} {lines}, which no rule knows; see what it does and replace it by hand"
    )


def _sites(m: Migration, *names: str) -> Iterator[Site]:
    """The calls of functions of amp in the files given."""
    wanted = {f"apex.amp.{name}" for name in names}
    for module in m.project.modules:
        if m.project.may_name_apex(module):
            yield from (site for site in find_sites(m.project, module) if site.name in wanted)


def _places(m: Migration, *names: str) -> str:
    """Where the files given call functions of amp; empty where they do not."""
    return _listed(_sites(m, *names))


def _listed(sites: Iterable[Site]) -> str:
    """The first few places of sites."""
    found = sorted((site.module.display, site.at[0]) for site in sites)
    shown = ", ".join(f"{path}:{line}" for path, line in found[:NAMED])
    return f"{shown}, ..." if len(found) > NAMED else shown


def _never_made(m: Migration, site: Site) -> str | None:
    """Which class a site stands in of which the program never makes an instance."""
    cls = m.project.class_around(site.scope)
    if cls is None or any(m.project.once(Sources).made(c) for c in cls.descendants()):
        return None
    if quoted := named_in_quotes(m.project, cls.name):
        return (
            f"{quoted[0].display}:{quoted[1].lineno} may ask for {cls.name} by its name, and what makes it there is out of sight, so "
            "which scaler it would keep cannot be told: hand it the scaler of that program"
        )
    if place := next((at for c in cls.descendants() if (at := _kept_at(m, c))), None):
        return (
            f"{place} keeps {cls.name} as a value, and what makes one of it is out of sight, so which scaler it would keep cannot be "
            "told: hand it the scaler of that program"
        )
    article = "an" if cls.name[0] in "AEIOU" else "a"
    return (
        f"nothing here makes {article} {cls.name}, so which scaler it would keep cannot be told: delete the class, or hand it "
        "the scaler of the program that is to use it"
    )


def _kept_at(m: Migration, definition: Function | ClassInfo) -> str | None:
    """Where a function or class is a value: what calls it may have it from there."""
    found = m.project.once(Sources).value_at(definition)
    return f"{found[0].display}:{getattr(found[1], 'lineno', 1)}" if found is not None else None


def _uncalled(m: Migration, module: Module, node: ast.AST) -> str | None:
    """The function around a node, where nothing in sight calls it."""
    function = m.project.function_of(module, node)
    if function is None or m.project.calls.get(function):
        return None
    if function.cls is not None and any(other.method_calls.get(function.name) for other in m.project.modules):
        return None  # on an object that cannot be told, perhaps one of this class
    return function.name if function.cls is None else f"{function.cls.name}.{function.name}"
