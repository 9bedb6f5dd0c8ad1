"""What to do next, as commands to copy: the last lines of a report that a person reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from amp_migrate import literals
from amp_migrate.findings import LOOSE, FileResult, Report
from amp_migrate.reports import quoting
from amp_migrate.reports.gathered import LISTED
from amp_migrate.reports.text import TEXT
from amp_migrate.requirements import NEEDED

_PROGRAMS = 3  # commands of this kind that are printed


def programs(report: Report) -> list[str]:
    """The changed files that are started as programs; none where the changes lie in what programs import."""
    return [r.path for r in report.results if is_code(r) and _is_started(r.before)]


# A definition at the top level with the lines of its body.
_DEFINITION = re.compile(r"^(?:async[ \t]+)?(def|class)[ \t]+(\w+).*\n(?:(?:[ \t\r\f#)\]}].*)?\n)*", re.M)


def _top_level(text: str) -> list[ast.stmt]:
    """The statements of a file, what stands in functions and classes left out."""
    try:
        return literals.parse(_DEFINITION.sub(_emptied, f"{text}\n")).body
    except SyntaxError:
        return literals.parse(text).body


def _emptied(definition: re.Match[str]) -> str:
    lines = definition[0]
    if lines.count('"""') % 2 or lines.count("'''") % 2:  # a string goes on to the left of it
        return lines
    return f"{definition[1]} {definition[2]}(): pass\n"


def _is_started(text: str) -> bool:
    """Whether a file does more than define when it is run: it asks for its name, reads a command line, loops, or calls
    or hands on one of its own functions."""
    try:
        body = _top_level(text)
    except (SyntaxError, ValueError, RecursionError):
        return re.search(r"^if __name__\s*==", text, re.M) is not None
    own = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    for node in body:
        if isinstance(node, (ast.For, ast.While)) or (
            isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        ):
            return True
        call = node.value if isinstance(node, (ast.Expr, ast.Assign)) else None
        if isinstance(call, ast.Call):
            if getattr(call.func, "attr", "") in ("parse_args", "parse_known_args"):
                return True
            named = {getattr(part, "id", "") for part in (call.func, *call.args)}
            if isinstance(node, ast.Expr) and named & own:
                return True
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(d).endswith(".automain") for d in node.decorator_list):
            return True
    return False


def after_check(report: Report, paths: Sequence[str]) -> list[str]:
    """What follows a reading."""
    if tuple(paths) == ("-",) or not any(r.changed for r in report.results):
        return []
    where = _where(paths)
    return [f"Next: `amp-migrate rewrite --diff {where}` shows the changes, `amp-migrate rewrite {where}` writes them."]


def after_dry(report: Report, paths: Sequence[str]) -> list[str]:
    """What follows a rewrite that wrote nothing."""
    if tuple(paths) == ("-",) or not any(r.changed for r in report.results):
        return []
    commands = _verify(report, paths, "")
    tried = " Whether it trains alike is tried in a copy:" if commands else ""
    return [f"Next: `amp-migrate rewrite {_where(paths)}` writes this.{tried}", *commands]


def after_rewrite(
    report: Report, leftovers: Sequence[FileResult], paths: Sequence[str], revision: str | None, *, proved: bool = False
) -> list[str]:
    """What follows a rewrite; `leftovers` are files outside Python with what is still to do in them, `revision` is the commit
    that holds the original; `proved`: the programs were run, and agree."""
    lines: list[str] = []
    if tuple(paths) == ("-",):
        return lines
    pins = [(r.path, f) for r in leftovers for f in r.findings if f.code == "AMP856"]
    lines += [f"{quoting.path(path)}:{f.line}: {f.message}: raise it." for path, f in pins[:_PROGRAMS]]
    recipes = [(r.path, f) for r in leftovers for f in r.findings if (f.code, f.status) == (TEXT, "manual")]
    lines += [f"{quoting.path(path)}:{f.line}: {f.message}." for path, f in recipes[:_PROGRAMS]]
    said = (TEXT, "AMP856")
    naming = [r for r in leftovers if any(f.status == "manual" and f.code not in said for f in r.findings)]
    if naming:
        named = [quoting.path(result.path) for result in naming]
        rest = f" and {len(named) - _PROGRAMS} more" if len(named) > _PROGRAMS else ""
        told = "still names" if len(named) == 1 else "still name"
        lines.append(
            f"{', '.join(named[:_PROGRAMS])}{rest} {told} Apex: `amp-migrate check {_where(paths)}` lists where."
        )
    lines += _speaking(leftovers)
    commands = [] if proved else _verify(report, paths, f" --original-rev {revision or 'REV'}")
    if commands:
        first = "Then prove" if lines else "prove"
        lines += [f"{first} that the training did not change:", *commands]
        if revision is None:
            lines.append("REV is a commit that holds these files as they were.")
    if lines and not pins and any(map(is_code, report.results)):
        lines.append(f"What is written needs torch>={'.'.join(map(str, NEEDED))}.")
    return lines and [f"Next: {lines[0]}", *lines[1:]]


def _speaking(leftovers: Sequence[FileResult]) -> list[str]:
    """The texts that only speak of Apex, and where."""
    files = [r for r in leftovers if all((f.code, f.status) == (TEXT, "note") for f in r.findings)]
    if not files:
        return []
    told = [f"{quoting.path(r.path)}:{_lines_of(r)}" for r in files[:_PROGRAMS]]
    rest = f" and {len(files) - _PROGRAMS} more files" if len(files) > _PROGRAMS else ""
    return [
        f"{'; '.join(told)}{rest} still {'speaks' if len(files) == 1 else 'speak'} of Apex (lines as they are now): "
        "tell of torch.amp instead."
    ]


def _lines_of(result: FileResult) -> str:
    lines = [str(line) for line in sorted({f.line for f in result.findings})]
    return ", ".join(lines[:LISTED]) + (", ..." if len(lines) > LISTED else "")


def of_many(command: str, report: Report) -> list[str]:
    """What follows a run over many repositories: the one with most to do; once they are written, what proves them."""
    known = {path: one for path, one in report.repositories.items() if path != LOOSE}
    if command == "rewrite":
        return _of_many_written({path: one.sites_manual for path, one in known.items()}, report)
    left = {path: one.sites_manual or one.sites_done for path, one in known.items()}
    first = max(left, key=lambda path: left[path], default=None)
    if first is None or not left[first]:
        return []
    return [f"Next: `amp-migrate {command} {_where([first])}` says more of one; --format html of all."]


def _of_many_written(manual: dict[str, int], report: Report) -> list[str]:
    lines: list[str] = []
    most = max(manual, key=lambda path: manual[path], default=None)
    if most is not None and manual[most]:
        lines.append(f"`amp-migrate check {_where([most])}` says what needs a hand in one.")
    if any(map(is_code, report.results)):
        first = "Then prove" if lines else "prove"
        lines += [
            f"{first} in each repository that the training did not change:",
            "  amp-migrate verify --init --original-rev REV  # finds the cases; `amp-migrate verify` runs them",
            "REV is a commit that holds its files as they were.",
        ]
    return lines and [f"Next: {lines[0]}", *lines[1:]]


def _verify(report: Report, paths: Sequence[str], option: str) -> list[str]:
    """A command for each of a few programs; where there are more, or none, the one that finds them."""
    found = programs(report)
    lines = [f"  amp-migrate verify{option} {quoting.shell(path)} -- ARGS" for path in found[:_PROGRAMS]]
    if 0 < len(found) <= _PROGRAMS or not any(is_code(result) for result in report.results):
        return lines
    where = "" if len(paths) != 1 or paths[0] == "." else f" {quoting.shell(paths[0])}"
    told = f"cases for all {len(found)} programs" if found else "the programs that lead to these files, and their cases"
    return [*lines, f"  amp-migrate verify --init{option}{where}  # finds {told}; `amp-migrate verify` runs them"]


def is_code(result: FileResult) -> bool:
    """Whether it is a changed file of Python."""
    return result.changed and PurePosixPath(result.path).suffix == ".py"


def _where(paths: Sequence[str]) -> str:
    return " ".join(map(quoting.shell, paths)) if len(paths) <= _PROGRAMS else "PATH..."
