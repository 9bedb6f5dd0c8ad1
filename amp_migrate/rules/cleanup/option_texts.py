"""Options whose help still says Apex: `--fp16`, "Use 16-bit precision (through NVIDIA apex)". They stay, and so does the text.

Native: https://docs.python.org/3/library/argparse.html#help
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from amp_migrate.findings import Code
from amp_migrate.reading.program.command_line import declared
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.cleanup.said_texts import SAYS_APEX, note
from amp_migrate.rules.migration import Output

CODES: tuple[Code, ...] = ()  # reported as AMP854: see `leftovers.py`

BARE = ("amp", "apex")  # names that nothing binds


def apply(project: Project, targets: Collection[Module], output: Output) -> None:
    """Name them once a file; not what code reads in which something is left with Apex, or by which a part that stays is chosen,
    nor what another script declares.
    What never imported Apex (`untaken.py`) keeps none either, but its own options are not told that torch's took over."""
    manual = {m: [f for f in found if f.status == "manual"] for m, found in output.findings.items()}
    kept = {m for m, found in manual.items() if found}
    left = {m for m in kept if m not in output.unbound or any(f.construct not in BARE for f in manual[m])}
    written = {m for m, edits in output.edits.items() if edits} - kept
    for module in targets if written else ():
        if module in kept - left:
            continue
        said = list(_saying(module)) if SAYS_APEX.search(module.text) else []
        calls = [
            (call, shown)
            for name, shown, call in said
            for near in [_served(project, module, call)]
            if any(_reads(project, m, name, near) and (m is module or not _declares(m, name)) for m in written & near)
            and not any(_chooses(m, name, output.kept) for m in near if name in m.named)
            and not any(_reads(project, m, name, near) for m in left & near)
            and not (module in output.edits and output.edits[module].gone(call))
        ]
        calls.sort(key=lambda told: told[0].lineno)
        shown = ", ".join(shown for _, shown in calls)
        note(module, [call for call, _ in calls], "add_argument", f"the help of {shown}", output)


def _saying(module: Module) -> Iterator[tuple[str, str, ast.Call]]:
    """The options whose help says Apex, as they are read, as they are shown, and as they are declared: with argparse, click or
    absl, or as a field of a class of settings with a help in its metadata."""
    options = {call: name for name, call in declared(module)}
    for call, _ in module.calls:
        if not _says(call):
            continue
        shown = _option(call)
        stmt = module.parents.get(call)
        if isinstance(stmt, ast.AnnAssign) and stmt.value is call and isinstance(stmt.target, ast.Name):
            shown = stmt.target.id
        name = options.get(call) or shown.lstrip("-").replace("-", "_")
        if name:
            yield name, shown, call


def _served(project: Project, module: Module, call: ast.Call) -> frozenset[Module]:
    """The files of the processes that an option is declared in: of those alone that call the function it is declared in,
    where there are any."""
    function = project.functions.get(module.scope_of(call).node)
    calling = {m for m, _ in project.calls.get(function, ())} if function is not None else set()
    return in_process(project, calling or (module, *_by_another_name(project, module)))


def _by_another_name(project: Project, module: Module) -> list[Module]:
    """The files that import from a file under a name which nothing in sight has: `from qa.config import options`, where the
    folder `qa` is called otherwise here, and its `config.py` has `options`."""
    last = module.name.rpartition(".")[2]
    found: list[Module] = []
    for other in project.modules:
        sources = (target.rpartition(".") for target in other.root.imports.values())
        if any(
            source.rpartition(".")[2] == last and source not in project.by_name and name in module.root.bindings
            for source, _, name in sources
        ):
            found.append(other)
    return found


def _reads(project: Project, module: Module, name: str, near: Collection[Module]) -> bool:
    """Whether a file reads an option, or another file does and hands it to a function there (`train(mixed=args.fp16)`)."""
    return bool(_named(module, name)) or any(
        function.module is module
        for other in near
        for node in _named(other, name)
        for around in other.ancestors(node)
        if isinstance(around, ast.Call)
        for function in project.resolved.get(around, ())
    )


def _named(module: Module, name: str) -> list[ast.AST]:
    """Where an option is named; one that click declares is a parameter of the function."""
    return [*module.named.get(name, ()), *(module.loads.get(name, ()) if "click" in module.text else ())]


def _declares(module: Module, option: str) -> bool:
    """Whether a file has an option of that name of its own: another's is none that it reads."""
    return any(name == option for name, _ in declared(module))


def _chooses(module: Module, name: str, kept: Collection[ast.AST]) -> bool:
    """Whether an option says that a part of Apex is taken, which stays: its help is right. Among others
    (`args.optimizer == "LAMB"`), or it is asked for nothing else."""
    ifs = {
        a
        for part in kept
        if part in module.parents
        for a in module.ancestors(part)
        if isinstance(a, (ast.If, ast.IfExp))
    }
    asked = {n for a in ifs for n in walk(a.test) if isinstance(n, ast.Attribute) and n.attr == name}
    tests = (t for n in asked if isinstance(t := module.parents.get(n), ast.Compare))
    compared = any(isinstance(t.ops[0], (ast.Eq, ast.In)) for t in tests)
    return compared or (bool(asked) and asked == {*module.named[name]})


def _says(call: ast.Call) -> bool:
    helps = [k.value for k in call.keywords if k.arg in ("help", "metadata")]
    helps += call.args[2:] if called_name(call).startswith("DEFINE_") else []
    texts = (n.value for told in helps for n in walk(told) if isinstance(n, ast.Constant))
    return any(isinstance(text, str) and SAYS_APEX.search(text) for text in texts)


def _option(call: ast.Call) -> str:
    names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return next((n for n in names if n.startswith("--")), names[0] if names else "")
