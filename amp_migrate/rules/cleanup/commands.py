"""Commands and questions about the installed Apex in the code of a program that needs none any more: `pip show apex`.

Native: https://docs.python.org/3/library/subprocess.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from amp_migrate.findings import Code, Review
from amp_migrate.reading.program.definitions import argument
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.values.analysis import Values
from amp_migrate.rules.migration import Output

CODES: tuple[Code, ...] = ()  # reported as AMP852: see `leftovers.py`

RAISES = frozenset(("subprocess.check_call", "subprocess.check_output"))
RUNS = RAISES | {f"subprocess.{n}" for n in ("run", "call", "Popen", "getoutput", "getstatusoutput")}
RUNS |= {"os.system", "os.popen"}
ASKS = frozenset(
    f"{home}.{name}"
    for home, names in (
        ("importlib.metadata", ("version", "distribution", "metadata", "requires")),
        ("importlib_metadata", ("version", "distribution", "metadata", "requires")),
        ("pkg_resources", ("require", "get_distribution")),
    )
    for name in names
)
_SAYS = re.compile(r"\bapex\b|_ext\b", re.IGNORECASE)
_COMMAND = re.compile(
    r"\b(?:pip3?|conda|mamba|uv|easy_install)\b.*(?<![\w.-])(?:nvidia[-_.])?apex(?![\w-])"
    r"|\bgithub\.com[/:][\w.-]+/apex(?:\.git)?(?![\w-])|--(?:cpp|cuda)_ext\b|\bimport\s+apex\b",
    re.IGNORECASE,
)
_PACKAGE = re.compile(r"\s*(?:nvidia[-_.])?apex\s*(?:[=<>!~\[].*)?", re.IGNORECASE)


def apply(project: Project, targets: Collection[Module], output: Output) -> None:
    """Name them where a program is migrated that shares a process with them, or that they are apart from, and nothing that
    needs Apex is left of it."""
    needs = {m for m, found in output.findings.items() if any(f.needs_apex for f in found)}
    needs |= {m for m, _ in output.left}
    written = {m for m, edits in output.edits.items() if edits}
    for module in targets if written else ():
        if _SAYS.search(module.text) is None:
            continue
        calls = [(c, t) for c, t in _calls(project, module) if not _gone(output, module, c)]
        if not calls:
            continue
        near = in_process(project, (module,))
        if needs & (near if near & written else set(project.modules)):
            continue
        for call, text in calls:
            output.note(module, call, "AMP852", "command", *_told(module, call, text))


def _calls(project: Project, module: Module) -> Iterator[tuple[ast.Call, str]]:
    """Calls that run a command about Apex, or ask for its package, with what they say."""
    for call, _ in module.calls:
        name = module.qualify(call.func) or ""
        given = argument(call, 0, "args") or argument(call, 0, "distribution_name") if name in RUNS | ASKS else None
        for text in _texts(project, module, given) if given is not None else ():
            if (_COMMAND.search if name in RUNS else _PACKAGE.fullmatch)(text):
                yield call, text
                break


def _texts(project: Project, module: Module, node: ast.expr) -> Iterator[str]:
    """What is written in a command: a text, or the texts of a list."""
    for value in project.once(Values).may_be(module, node):
        if isinstance(value.node, ast.AST):
            yield " ".join(
                n.value for n in walk(value.node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            )


def _told(module: Module, call: ast.Call, text: str) -> tuple[str, Review]:
    name = module.qualify(call.func) or ""
    check = next((k.value for k in call.keywords if k.arg == "check"), None)
    fails = name in RAISES | ASKS or (check is not None and not (isinstance(check, ast.Constant) and not check.value))
    caught = any(
        isinstance(a, ast.Try) and a.handlers and any(call in walk(s) for s in a.body) for a in module.ancestors(call)
    )
    what = f"`{' '.join(text.split())}`" + (" is run here" if name in RUNS else " is asked for here")
    raising = " and raises where that fails" if name in RUNS else " and raises where Apex is not installed"
    message = f"{what}{raising if fails else ''}: the migrated program needs no Apex; take it out"
    return message, "look" if caught or not fails else "review"


def _gone(output: Output, module: Module, call: ast.Call) -> bool:
    return module in output.edits and output.edits[module].gone(call)
