"""A command-line option that only fed Apex stays, so that launch scripts keep working; that it does nothing is said.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize
Native: https://docs.python.org/3/library/argparse.html#dest
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from amp_migrate.findings import Code
from amp_migrate.reading.program.command_line import declared
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.cleanup.only_told import OnlyTold
from amp_migrate.rules.migration import Output
from amp_migrate.writing.edits import Edits

CODES = (
    Code(
        "AMP119",
        "An option or a setting has no effect any more",
        "add_argument",
        apex="Options such as keep_batchnorm_fp32 and verbosity are handed to initialize.",
        native="Autocast over float32 weights has no such setting.",
        why="The option is kept: launch scripts that give it keep working; so is a setting of a configuration, and a "
        "parameter of a function that others may call. Whoever gives it should know that nothing reads it.",
        links=(
            "https://nvidia.github.io/apex/amp.html#apex.amp.initialize",
            "https://docs.python.org/3/library/argparse.html",
        ),
    ),
)


def apply(project: Project, targets: Collection[Module], output: Output) -> None:
    """Report options whose every read went with Apex; runs when all edits are made."""
    options = [(m, name, call) for m in project.modules if m in targets for name, call in declared(m)]
    names = {name for _, name, _ in options}
    lost = {
        name
        for module, edits in output.edits.items()
        for name in (names & module.named.keys() if edits else ())
        if any(_gone(project, edits, module, node) for node in module.named[name])
    }
    found: dict[str, list[tuple[Module, ast.AST]]] = {}
    stays = output.by_hand()
    neither = any(f.code == "AMP120" and f.review == "review" for told in output.findings.values() for f in told)
    for module, name, call in options:
        if name not in lost:
            continue
        if name not in found:
            found[name] = [(m, node) for m in project.modules for node in _reads(m, name)]
        near = in_process(project, [module]) - {m for m, other, _ in options if other == name and m is not module}
        reads = [(m, node) for m, node in found[name] if m in near]
        went = [m in output.edits and _gone(project, output.edits[m], m, node) for m, node in reads]
        if not any(went):
            continue  # of another program, which has an option of the name
        gone = all(went)
        written = any(edits.mentions(name) for m, edits in output.edits.items() if m in near)
        option = _called(call, name)
        if (
            not (gone or stays)
            and _offers_apex(call, output.edits.get(module))
            and not any(_asks_for_apex(m, output) for m in project.modules)
        ):
            message = f"{option} still takes 'apex', and nothing asks for that any more"
            message += "" if neither else ": torch's own runs in its place"
            output.note(module, call, "AMP119", "add_argument", message, "look")
        elif reads and not (gone or stays or written) and (where := _only_told(project, output, module, reads)):
            message = f"{option} is kept, but only what is printed or logged hangs on it now ({where})"
            output.note(module, call, "AMP119", "add_argument", message, "look")
        if gone and not written:
            output.note(
                module,
                call,
                "AMP119",
                "add_argument",
                f"{option} is kept, but {reads_no_more(project, name)}",
            )


def _gone(project: Project, edits: Edits, module: Module, read: ast.AST) -> bool:
    """Whether a read goes, or all that read the variable which it is kept in: `level = args.opt_level`."""
    if edits.gone(read):
        return True
    stmt = module.parents.get(read)
    if not isinstance(stmt, ast.Assign) or stmt.value is not read or len(stmt.targets) != 1:
        return False
    kept = stmt.targets[0]
    scope = module.scope_of(kept).lookup(kept.id) if isinstance(kept, ast.Name) else None
    if scope is None or not isinstance(kept, ast.Name) or scope.is_class:
        return False
    reads = scope.reads(kept.id)
    if not reads or not all(edits.gone(n) for n in reads) or edits.mentions(kept.id):
        return False
    return not scope.is_module or not any(project.handed_on.readers(module, kept.id))


def reads_no_more(project: Project, name: str) -> str:
    """That nothing reads a setting, as far as the files of a program could be understood."""
    if any(name in text for text in project.unparsed):
        return "of the files that parse, none reads it any more"
    return "nothing reads it any more: no effect"


def _only_told(project: Project, output: Output, near: Module, reads: list[tuple[Module, ast.AST]]) -> str:
    """Where an option is told of by all that reads it still, in its own file if it is there; empty where it is read for
    something else."""
    told = OnlyTold(project, output)
    idle = all(isinstance(node, ast.Attribute) and told.is_idle(module, node) for module, node in reads)
    if not idle or not told.told:
        return ""
    module, node = next((t for t in told.told if t[0] is near), told.told[0])
    return f"{module.display}:{node.lineno}"


def _called(call: ast.Call, name: str) -> str:
    """What an option is called by whoever gives it."""
    return next((str(a.value) for a in call.args if isinstance(a, ast.Constant)), name)


def _offers_apex(call: ast.Call, edits: Edits | None) -> bool:
    """Whether Apex is one of the values that an option is declared with, and stays one."""
    given = (n for k in call.keywords if k.arg in ("choices", "default") for n in walk(k.value))
    apex = (n for n in given if isinstance(n, ast.Constant) and n.value == "apex")
    return any(edits is None or not edits.gone(n) for n in apex)


def _asks_for_apex(module: Module, output: Output) -> bool:
    """Whether a comparison with that value stays, or is written."""
    edits = output.edits.get(module)
    if "apex" not in module.text:
        return False
    if edits is not None and edits.mentions("apex"):
        return True
    return any(
        isinstance(n, ast.Constant) and n.value == "apex" and (edits is None or not edits.gone(n))
        for node in module.nodes
        if isinstance(node, (ast.Compare, ast.Dict))
        for n in walk(node)
    )


def _reads(module: Module, name: str) -> list[ast.AST]:
    """Where an option may be read: as an attribute, or by its name as text, but for what declares it."""
    named = module.named.get(name, []) if name in module.text else []
    own = [call for option, call in declared(module) if option == name] if named else []
    inside = {n for call in own for n in walk(call)}
    return [n for n in named if n not in inside]
