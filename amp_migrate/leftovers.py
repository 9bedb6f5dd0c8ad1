"""What of Apex stays behind outside the code: requirements, installation commands, launch options, documentation.

Only read and reported. Words are not enough: `apex` is also an English word, a package of another kind and a
programming language, so a line counts when it requires, installs, clones, imports or links NVIDIA's Apex.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from amp_migrate import requirements
from amp_migrate.findings import Code, FileResult, Finding
from amp_migrate.requirements import NEEDED, Requirement, excludes, image, installed, stated
from amp_migrate.sources.discover import Found
from amp_migrate.sources.failures import SourceError, failure, os_failure
from amp_migrate.sources.files import read_bytes
from amp_migrate.sources.outputs import is_report
from amp_migrate.texts import Kind, kind_of, lines_of

if TYPE_CHECKING:
    from amp_migrate.sources.notebooks import Notebook

Named = Callable[[str], bool]
REQUIRING: tuple[requirements.Kind, ...] = ("requirements", "environment", "pyproject", "setup.cfg", "setup.py")

REQUIREMENT = "AMP851"
INSTALLATION = "AMP852"
LAUNCH_OPTION = "AMP853"
REFERENCE = "AMP854"
FRAMEWORK_OPTION = "AMP855"
TORCH_REQUIREMENT = "AMP856"

# What to do about them, unless a part of Apex stays.
_REMOVE = ": remove it; native AMP comes with torch>=2.4"
_DELETE = ": delete the command; the migrated program does not need it"
_UNUSED = "which the migrated program no longer uses"

_REMOVED = "https://github.com/NVIDIA/apex"
_NATIVE = "https://pytorch.org/docs/stable/amp.html"

CODES = (
    Code(
        code=REQUIREMENT,
        title="A requirement on Apex",
        construct="requirement",
        apex="Was built from source or required from its repository.",
        native="Remove the requirement. Native AMP is part of torch; the emitted code needs torch>=2.4. Where FusedLAMB or "
        "FusedNovoGrad stay with Apex (AMP641), Apex must stay installed for them, and the finding says so.",
        why="Current Apex no longer contains amp, and `apex` on PyPI is another project altogether: whoever installs "
        "the requirements gets a failing build or the wrong package.",
        links=(_REMOVED, _NATIVE),
    ),
    Code(
        code=INSTALLATION,
        title="A command that installs or uses Apex",
        construct="command",
        apex="Had to be cloned and compiled with --cpp_ext and --cuda_ext.",
        native="Delete the command, and what only serves it (the clone, the build options, a compiler).",
        why="It costs minutes of every image and CI run, and current Apex has no amp to install.",
        links=(_REMOVED,),
    ),
    Code(
        code=LAUNCH_OPTION,
        title="A launch command that sets an Apex option",
        construct="command-line option",
        apex="Chose an optimization level from O0 to O3.",
        native="Nothing to do: the migrated program still accepts its options. O0 turns mixed precision off, "
        "O1 to O3 all mean autocast with a GradScaler.",
        why="Command-line options are kept so that launch scripts keep working.",
        links=(_NATIVE,),
    ),
    Code(
        code=REFERENCE,
        title="A text that still refers to Apex",
        construct="reference",
        apex="Was named as a dependency, or shown in an example; in the help of options, in what programs print and log, and "
        "in comments.",
        native="Tell readers about torch.amp instead.",
        why="Readers would install something the program no longer uses, or take what ran for Apex's.",
        links=(_NATIVE,),
    ),
    Code(
        code=FRAMEWORK_OPTION,
        title="A launch command that gives a framework an option it no longer has",
        construct="command-line option",
        apex="--amp_backend and --amp_level were Lightning's, --fp16_backend, --half_precision_backend and "
        "--fp16_opt_level those of Transformers, --fp16-impl apex that of ParlAI.",
        native="Delete the option. Lightning: --precision 16-mixed (or trainer.precision=16-mixed); Transformers: --fp16; "
        "ParlAI: --fp16-impl safe.",
        why="No program of the project defines the option itself, so the framework would have to, and its current version "
        "stops at an argument it does not know.",
        links=(
            "https://lightning.ai/docs/pytorch/stable/upgrade/from_1_9.html",
            "https://github.com/huggingface/transformers/pull/41404",
        ),
    ),
    Code(
        code=TORCH_REQUIREMENT,
        title="A requirement that holds torch below what the migrated program needs",
        construct="requirement",
        apex="Worked with any torch from 1.0 on, and is often pinned to the one it was compiled for.",
        native="Raise it: torch.autocast and torch.amp.GradScaler are as they are written from torch 2.4 on. Told where a "
        "program is migrated, also of a command that installs such a torch and of an image that has it by its name; a "
        "requirement that a torch of today satisfies is left alone.",
        why="Whoever installs the requirements gets a torch on which the migrated program stops with AttributeError.",
        links=(_NATIVE,),
    ),
)

_NAME = r"(?:nvidia[-_.])?apex"
_REPOSITORY = r"(?:github\.com[/:]|git@github\.com:)[\w.-]+/apex(?:\.git)?(?![\w-])"
_END = r"(?![\w.-]*\w)"

_APEX = re.compile(
    rf"^\s*(?:[\w-]+::)?(?:(?:-e|--editable)[ =]+)?(?:{_NAME}\s*(?:\[[^\]]*\]\s*)?(?:[=<>!~;@#,^]|$)|\S*{_REPOSITORY})",
    re.I,
)
_INSTALLS = re.compile(
    rf"\bgit\s+(?:clone|submodule\s+add)\b[^|;&]*{_REPOSITORY}"
    # The first "install" after it will do, and is kept to: of thousands, each is not tried with each.
    r"|\b(?:pip3?|conda|mamba|uv|poetry|easy_install)\b"
    r"(?=(?P<upto>[^|;&`(]*?\b(?:install|add|wheel)\b))(?P=upto)[^|;&`(]*"
    rf"(?:(?<![\w.-]){_NAME}{_END}|{_REPOSITORY})"
    r"|(?:\bpython3?\s+setup\.py[^|;&`]*)?--(?:cpp|cuda)_ext\b"
    rf"|\bcd\s+(?:[^\s;&|]*/)?{_NAME}/?\s*(?:&&|;)\s*(?:pip3?\s+install|python3?\s+setup\.py\s+install)\b"
    r"|\bpython3?\s+-c\s+[\"'][^\"']*\bimport\s+(?:[\w.]+\s*,\s*)*apex\b"
    r"|(?:\b(?:bash|sh|source)\s+|^\s*(?:-\s+)?(?:RUN\s+|run:\s*)?)\S*install[-_]apex\w*\.sh\b",
    re.I,
)
# One of these stands in all that is looked for in commands: long lines without are not searched for each of it.
_WORDS = re.compile(r"apex|_ext\b|opt[-_]level|amp_level|_backend|fp16[-_]impl", re.I)
# Lines that only mean Apex in a file that also clones or builds it.
_BUILDS = re.compile(rf"(?:\bcd|\bpushd|\brm\s+-\w+|\bCOPY|\bADD)\s+(?:[^\s;&|]*/)?{_NAME}/?(?=\s|$|[;&|`])", re.I)
_LAUNCH = re.compile(r"--(?:\w+[-_])*opt[-_]level[=\s]+[\"']?(?:O[0-3]\b|\$)|--(?:use[-_])?apex(?:[-_]amp)?\b(?!-)")
# Options that frameworks defined; with a value, `--trainer.x=` and `trainer.x=` as their own command lines take them.
_FRAMEWORK = re.compile(
    r"(?:--|(?<!\S)\+{0,2})(?:\w+\.)*"
    r"(?:(?P<backend>amp_backend|fp16_backend|half_precision_backend|fp16[-_]impl)[=\s]+[\"']?(?:apex|native|auto)\b"
    r"|(?P<level>amp_level|fp16_opt_level)[=\s]+[\"']?O[0-3]\b)"
)
_REFERS = re.compile(
    r"github\.com[/:]nvidia/apex(?![\w-])|nvidia\.github\.io/apex|^\s*(?:>>>\s*)?(?:from|import)\s+apex\b", re.I
)
# Without a link, where the text around it is about training.
_SAYS = re.compile(
    r"\binstall(?:s|ed|ing)?\s+(?:the\s+)?(?:\w*nvidia(?:'s)?[- ])?apex\b(?![-/\w])|\bnvidia(?:'s)?[- ]apex\b", re.I
)
_TRAINING = re.compile(r"torch|cuda|fp16|mixed[- ]precision", re.I)
# Where the program that the text is about needs no Apex any more, the word alone says it: as no part of a path or a name.
_MENTIONS = re.compile(r"(?<![\w./@-])apex(?![\w/@-]|\.\w)", re.I)
_COMMENT = re.compile(r"(?:^|\s)#.*")
# What may stand before a command: prompts and list marks, then nothing or the beginning of a longer command.
_PROMPT = re.compile(
    r"[\s$>#*`!%|&;:\d.()\[\]\"'-]*"
    r"(?:$|(?:RUN|run:|sudo|pip3?|python3?|conda|mamba|uv|git|cd|make|bash|sh|export|if|[A-Z_\d]+=)\b|.*&&|[A-Z_\d]+=)"
)
_SUBMODULE = re.compile(rf"^\s*url\s*=.*?{_REPOSITORY}", re.I)


def scan(
    found: Found, named: Named = lambda option: True, *, migrated: bool = False, free: bool = False
) -> FileResult | None:
    """The leftovers of one file that is not migrated, or None where there are none.

    `named` says whether the project's own Python code names an option, `migrated` whether code of it is, `free` whether
    nothing of it needs Apex any more then.
    """
    kind = kind_of(found.path)
    if kind is None:
        return None
    try:
        data = read_bytes(found.path)
    except OSError as error:
        return os_failure(found.display, error)
    except SourceError as error:
        return failure(found.display, error)
    if is_report(data):
        return None
    lowered = data.lower()
    words = (b"apex", b"opt_level", b"opt-level", b"amp_level", b"_backend", *([b"torch"] if migrated else []))
    if not any(word in lowered for word in words):
        return None
    findings = sorted(set(leftovers(data.decode("utf-8", errors="replace"), kind, named, migrated=migrated, free=free)))
    if not findings:
        return None
    manual = any(finding.status == "manual" for finding in findings)
    return FileResult(path=found.display, status="blocked" if manual else "unchanged", findings=findings)


def leftovers(
    text: str, kind: Kind, named: Named = lambda option: True, *, migrated: bool = False, free: bool = False
) -> Iterator[Finding]:
    """The leftovers in the text of a file of this kind; `migrated`: the program becomes one of today's torch, `free`: one
    that needs no Apex."""
    lines = list(lines_of(text, joined=kind in ("commands", "prose", "environment")))
    if kind in REQUIRING:
        for requirement in stated(text, lines, kind):
            if _APEX.search(requirement.text):
                yield _required(requirement)
            elif migrated and (pin := excludes(requirement.text)) is not None:
                yield _held_below(requirement, pin)
    elif kind == "gitmodules":
        yield from (_installed(n, m) for n, line in lines if (m := _SUBMODULE.search(line)))
    else:
        found = list(_in_commands(lines, kind == "prose", named))
        yield from found
        yield from _old_torch(lines, kind == "prose") if migrated else ()
        yield from _mentioned(text, lines, kind == "prose", found, free=free)


def _mentioned(
    text: str, lines: list[tuple[int, str]], prose: bool, found: list[Finding], *, free: bool
) -> Iterator[Finding]:
    """Lines that speak of Apex beside those that were found: in prose, and in comments of what has no command to take out."""
    if prose and (free or _TRAINING.search(text)):
        known = {n for n, line in lines if _REFERS.search(line) or _INSTALLS.search(line)} | {f.line for f in found}
        says = _MENTIONS if free else _SAYS
        yield from (_reference(n, m) for n, line in lines if n not in known and (m := says.search(line)))
    elif free and not any(finding.code == INSTALLATION for finding in found):
        for number, line in lines:
            if (comment := _COMMENT.search(line)) and (match := _MENTIONS.search(line, comment.start())):
                yield _reference(number, match)


def to_do(finding: Finding) -> bool:
    """Whether a person has something to do about it."""
    return finding.status == "manual" or (finding.code == REFERENCE and finding.review == "look")


def beside_kept(result: FileResult, kept: str) -> FileResult:
    """The leftovers of one file where the program keeps a part of Apex, named by `kept`, which must stay installed."""
    findings = [_beside_kept(finding, kept) for finding in result.findings]
    settled = result.status == "blocked" and not any(finding.status == "manual" for finding in findings)
    return replace(result, findings=findings, status="unchanged" if settled else result.status)


def _beside_kept(finding: Finding, kept: str) -> Finding:
    if finding.code == REFERENCE:
        message = finding.message.replace(_UNUSED, f"which is still needed for {kept}")
        return replace(finding, review="as-is", message=message)
    if finding.code not in (REQUIREMENT, INSTALLATION):
        return finding
    subject = finding.message.removesuffix(_REMOVE).removesuffix(_DELETE)
    message = f"{subject}: Apex is still needed for {kept}; elsewhere it can go"
    return replace(finding, status="note", review="review", message=message)


def in_notebook(notebook: Notebook) -> list[Finding]:
    """The shell commands of a notebook that install Apex."""
    found = []
    for cell, first, text in notebook.shell():
        for finding in _in_commands(list(lines_of(text, joined=True)), prose=False):
            found.append(notebook.at(cell, first + finding.line - 1, finding))
    return found


def _required(found: Requirement) -> Finding:
    message = f"requirement {found.text!r}{_REMOVE}"
    return Finding(found.line, found.column, REQUIREMENT, "requirement", "manual", "as-is", message)


def _held_below(found: Requirement, pin: str) -> Finding:
    needed = ".".join(map(str, NEEDED))
    message = f"requirement {found.text!r} holds torch at {pin}: the migrated program needs torch>={needed}"
    return Finding(found.line, found.column, TORCH_REQUIREMENT, "requirement", "manual", "look", message)


def _old_torch(lines: list[tuple[int, str]], prose: bool) -> Iterator[Finding]:
    """Commands that install a torch on which the migrated program stops, and images by whose name they hold one."""
    needed = ".".join(map(str, NEEDED))
    for number, line in lines:
        if not prose and line.lstrip().startswith("#"):
            continue
        if not prose and (base := image(number, line)) is not None:
            found, version = base
            message = f"image {found.text!r} has {version}: the migrated program needs torch>={needed}"
            yield Finding(found.line, found.column, TORCH_REQUIREMENT, "requirement", "manual", "look", message)
        for found in installed(number, line):
            shown = not prose or _PROMPT.match(line.split("\n")[0]) is not None
            if shown and (pin := excludes(found.text)) is not None:
                yield _held_below(found, pin)


def _at(line: int, match: re.Match[str]) -> tuple[int, int]:
    """The position of a match in a line that may be several joined ones."""
    start = match.start() + len(match[0]) - len(match[0].lstrip())
    before = match.string[:start]
    return line + before.count("\n"), start - before.rfind("\n")


def _installed(line: int, match: re.Match[str]) -> Finding:
    shown = " ".join(match[0].split())
    return Finding(
        *_at(line, match),
        INSTALLATION,
        "command",
        "manual",
        "as-is",
        f"`{shown}` serves Apex{_DELETE}",
    )


def _in_commands(lines: list[tuple[int, str]], prose: bool, named: Named = lambda option: True) -> Iterator[Finding]:
    lines = [(number, line) for number, line in lines if _WORDS.search(line)]
    installs = any(_INSTALLS.search(line) for _, line in lines if prose or not line.lstrip().startswith("#"))
    for number, line in lines:
        if not prose and line.lstrip().startswith("#"):
            continue
        hits = list(_INSTALLS.finditer(line))
        if installs and not hits:
            hits = list(_BUILDS.finditer(line))
        # One finding a physical line: `--cpp_ext --cuda_ext` is one thing to delete.
        for match in {_at(number, hit)[0]: hit for hit in reversed(hits)}.values():
            yield _reference(number, match) if prose and _in_a_sentence(match) else _installed(number, match)
        if hits:
            continue
        framework = [m for m in _FRAMEWORK.finditer(line) if not named(m["backend"] or m["level"])]
        yield from (_framework_option(number, match) for match in framework)
        for match in _LAUNCH.finditer(line):
            if not any(m.start() <= match.start() < m.end() for m in framework):
                yield _launch_option(number, match)
        if match_ := _REFERS.search(line):
            yield _reference(number, match_)


def _in_a_sentence(match: re.Match[str]) -> bool:
    """Whether words stand before a command, so that it is spoken of rather than shown."""
    line = match.string[match.string.rfind("\n", 0, match.start()) + 1 : match.start()]
    return _PROMPT.match(line) is None


def _launch_option(line: int, match: re.Match[str]) -> Finding:
    option = match[0].replace("=", " ").split()[0]
    level = re.search(r"O[0-3]|\$", match[0])
    now = "O1, O2 and O3 now all mean autocast" if level else "it now asks for autocast"
    message = f"{option} is still accepted by the migrated program; {now}"
    return Finding(*_at(line, match), LAUNCH_OPTION, "command-line option", "note", "as-is", message)


def _framework_option(line: int, match: re.Match[str]) -> Finding:
    option = (match["backend"] or match["level"]).replace("-", "_")
    instead = "--fp16-impl safe" if option == "fp16_impl" else "--fp16"
    if option.startswith("amp_"):
        instead = "--precision 16-mixed"
    message = f"`{' '.join(match[0].split())}`: the framework no longer has this option; delete it and use {instead}"
    return Finding(*_at(line, match), FRAMEWORK_OPTION, "command-line option", "manual", "as-is", message)


def _reference(line: int, match: re.Match[str]) -> Finding:
    message = f"refers to NVIDIA Apex, {_UNUSED}"
    return Finding(*_at(line, match), REFERENCE, "reference", "note", "look", message)
