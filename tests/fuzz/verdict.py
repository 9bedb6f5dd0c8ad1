"""Is what became of a case right?

*Always*: no crash, no internal error, output that compiles, nothing written but the file that was named, a second rewrite
changes nothing, exit code and findings agree. *Spelled otherwise*: the same syntax tree and the same findings come out as of
the plain spelling; line ends, encoding and mark of the file stay. *Where it runs* on Apex's stand-in: what came out runs and
trains alike, within rounding, unless a finding announces what differs.
"""

from __future__ import annotations

import ast
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from amp_migrate.sources.notebooks import Notebook
from tests.fuzz.case import Case
from tests.metamorphic.judging import (
    GRADIENT,
    LOSS,
    Reference,
    alike,
    difference,
    lay_out,
    mentions_apex,
    rewrite,
    runs,
    said,
)
from tests.metamorphic.program import ENTRY, Fixture, Project
from tests.metamorphic.running import Run, Runner

OURS = ("AMP007", "AMP190", "AMP191")  # defects that the tool confines
OTHER_SIDE = "AMP120"  # what takes over is the program's own native branch, whatever it does: to be read
OTHER_WEIGHTS = "AMP112"  # the weights of O2 and O3 were half, whatever autocast keeps in float32
# A level asked for at run time: where it is O3, Apex scaled no loss, which the fixture, at another level, tells as well.
UNSCALED, SCALED_NOW = re.compile(r"^  opt_level +\W*O3\b", re.MULTILINE), "O3, unscaled under Apex"
# A step without gradients, which Apex passed over and a scaler does not.
IDLE_STEPS = {"AMP219", "AMP233"}
IDLE_IMPORT = "AMP101"
NO_GRADIENTS = re.compile(r"No inf checks were recorded|Attempted step but _scale is None")
SECONDS = 30
# Beside the file that is asked for, a program that could be migrated as well and must not be.
BESIDE = "beside.py"
# Statements that share a line stay together, so that another of them may come into a region.
WHOLE_LINES = {"semicolons", "one line"}


@dataclass(frozen=True)
class Verdict:
    """`kind`: right, refused, unchanged, fails (with Apex), announced; or *wrong*. `ran`: both programs were run."""

    kind: str
    why: str = ""
    codes: tuple[str, ...] = ()
    ran: bool = False


@dataclass
class Result:
    """What `rewrite` made of one file."""

    data: bytes
    code: int
    findings: list[dict[str, Any]]
    trouble: str = ""

    @property
    def manual(self) -> list[dict[str, Any]]:
        return [f for f in self.findings if f["status"] == "manual"]

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(sorted({f["code"] for f in self.manual}))

    @property
    def told(self) -> Counter[tuple[str, str]]:
        return Counter((f["code"], f["status"]) for f in self.findings)

    @property
    def announced(self) -> Counter[str]:
        """What is to be read, by code."""
        return Counter(f["code"] for f in self.findings if f["review"] != "as-is")


@dataclass
class Judge:
    """Judges cases; one process runs their programs."""

    runner: Runner = field(default_factory=lambda: Runner(seconds=SECONDS))
    known: dict[str, Known] = field(default_factory=dict)

    def fixture(self, name: str) -> Known:
        if name not in self.known:
            self.known[name] = Known(Reference(Fixture(name), self.runner))
        return self.known[name]

    def judge(self, case: Case, *, run: bool = True) -> Verdict:
        fixture = self.fixture(case.fixture)
        plain = result_of(ENTRY, case.text.encode())
        if plain.trouble:
            return Verdict("wrong", plain.trouble, plain.codes)
        if case.spelled != case.text.encode():
            other = result_of(case.file, case.spelled)
            alone = case.file != ENTRY or bool(WHOLE_LINES & set(case.spellings))
            trouble = other.trouble or ("" if alone else differs(case, plain, other))
            if trouble:
                return Verdict("wrong", f"{', '.join(case.spellings)}: {trouble}", other.codes)
            if alone and run:
                verdict = self._trained(fixture, case.file, case.spelled, other)
                if verdict.kind == "wrong":
                    return replace(verdict, why=f"{', '.join(case.spellings)}: {verdict.why}")
        if not run or not case.steps:
            return Verdict("refused" if plain.code else "right", codes=plain.codes)
        return self._trained(fixture, ENTRY, case.text.encode(), plain)

    def _trained(self, fixture: Known, name: str, data: bytes, result: Result) -> Verdict:
        if result.data == data:
            return Verdict("refused" if result.code else "unchanged", codes=result.codes)
        old = fixture.run(name, data)
        if old.status or not old.seen.get("losses"):
            return Verdict("fails", old.raised.split(":")[0])
        if not any(old.numbers("gradients")):
            return Verdict("fails", "it steps without gradients")
        new = fixture.run(name, result.data)
        if new.status:
            if OTHER_SIDE in result.announced:
                return Verdict("announced", new.raised, result.codes, ran=True)
            if IDLE_STEPS & result.announced.keys() and NO_GRADIENTS.search(new.raised):
                return Verdict("announced", new.raised, result.codes, ran=True)
            return Verdict("wrong", f"raises {new.raised}", result.codes, ran=True)
        verdict = "refused" if result.code else "right"
        if alike(new, old):
            return Verdict(verdict, codes=result.codes, ran=True)
        pair = on_host(name, data), on_host(name, result.data)
        if pair != (data, result.data) and alike(fixture.run(name, pair[1]), fixture.run(name, pair[0])):
            return Verdict(verdict, "alike where what is made on the CPU is there", result.codes, ran=True)
        if within(new, old, (fixture.run(name, moved) for moved in rounded(name, data))):
            return Verdict(verdict, "alike within what rounding moves", result.codes, ran=True)
        more, why = sorted(result.announced - fixture.announced), said(new, old)
        half = OTHER_WEIGHTS in result.announced and "in half precision" in why
        told = {f["message"] for f in result.findings if f["code"] == OTHER_WEIGHTS}
        scaled = bool(UNSCALED.search(old.printed)) and any(SCALED_NOW in message for message in told)
        if more or fixture.moves or half or scaled or OTHER_SIDE in result.announced:
            return Verdict("announced", f"{why}: {' '.join(more)}", result.codes, ran=True)
        return Verdict("wrong", why, result.codes, ran=True)

    def close(self) -> None:
        self.runner.close()


@dataclass
class Known:
    """What is known of a fixture before anything is done to it."""

    reference: Reference

    @cached_property
    def announced(self) -> Counter[str]:
        return result_of(ENTRY, self.reference.fixture.before.encode()).announced

    @cached_property
    def moves(self) -> bool:
        """Whether its own migration trains otherwise, for a reason that its notes tell."""
        return not alike(self.reference.after, self.reference.before)

    def run(self, name: str, data: bytes) -> Run:
        with tempfile.TemporaryDirectory() as place:
            self.reference.before  # noqa: B018 (says whether the first batches are enough)
            folder = lay_out(Project({}), Path(place))
            (folder / name).write_bytes(data)
            return runs(folder, (name,), self.reference)[name]


def result_of(name: str, data: bytes) -> Result:
    """What `rewrite` makes of a file, run twice; `trouble` is what is wrong whatever the program."""
    with tempfile.TemporaryDirectory() as place:
        folder = lay_out(Project({BESIDE: Fixture("plain_script").before}), Path(place))
        path = folder / name
        path.write_bytes(data)
        before = contents(folder)
        code, findings, trouble = rewrite(path)
        after = contents(folder)
        result = Result(after.get(path.name, b""), code, findings, trouble)
        result.trouble = trouble or _inconsistent(result, data) or _broken(name, result)
        if not result.trouble and {**before, name: b""} != {**after, name: b""}:
            result.trouble = f"it wrote {sorted(k for k in {*before, *after} if before.get(k) != after.get(k))}"
        if not result.trouble:
            again, _, trouble = rewrite(path)
            if trouble or again != (1 if result.manual else 0) or contents(folder) != after:
                result.trouble = f"a second rewrite exits {again} after {code} {trouble}" + (
                    "" if contents(folder) == after else " and changes the result"
                )
        return result


# Weights as an optimizer first sees them, and every gradient, off by what rounding to float16 may move them.
ROUNDED = """
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
_noise, _made = torch.Generator().manual_seed({seed}), torch.optim.Optimizer.__init__
def _move(value):
    if value is not None:
        value.data.mul_(1 + 2**-11 * (2 * torch.rand(value.shape, generator=_noise) - 1))
def _make(self, *given, **named):
    _made(self, *given, **named)
    [_move(p) for g in self.param_groups for p in g["params"]]
torch.optim.Optimizer.__init__ = _make
def _step(self, *given):
    [_move(p.grad) for g in self.param_groups for p in g["params"]]
register_optimizer_step_pre_hook(_step)
""".strip()
NEAR = 3  # steps before and after, of which the one that rounding moves most counts
RERUNS, BANDS = 3, 3  # as in amp_migrate/verify/thresholds.py


def rounded(name: str, data: bytes) -> Iterator[bytes]:
    """The program with weights and gradients that rounding moved, some times; none without an import to stand in front of."""
    for seed in range(RERUNS):
        first = [f"exec({ROUNDED.format(seed=seed)!r}, {{}})\n"]
        moved = in_code(
            name, data, partial(IMPORT.sub, lambda found, first=first: (first.pop() if first else "") + found[0])
        )
        if not first:
            yield moved


IMPORT = re.compile(r"^(?:import|from (?!__future__))\b.*[\w)]\r?$", re.MULTILINE)


def within(new: Run, old: Run, reruns: Iterable[Run]) -> bool:
    """Whether two runs differ by no more than rounding moves the first, step by step: training that has nearly converged has
    small gradients, of which rounding is a larger part."""
    others = list(reruns)
    limits = {"losses": LOSS, "gradients": GRADIENT, "parameters": GRADIENT}
    if not others or any(run.status for run in (new, old, *others)):
        return False
    for what, limit in limits.items():
        mine, theirs = new.numbers(what), old.numbers(what)
        moved = [run.numbers(what) for run in others]
        if any(len(numbers) != len(theirs) for numbers in (mine, *moved)):
            return False
        noise = [max(abs(a - b) for b in at) for a, *at in zip(theirs, *moved, strict=True)]
        for step, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            band = max(noise[max(0, step - NEAR) : step + NEAR + 1])
            if not abs(one - other) <= max(limit * max(abs(one), abs(other)), BANDS * band):
                return False
    return not difference(replace(new, seen={**new.seen, **{w: old.seen.get(w, []) for w in limits}}), old)


def in_code(name: str, data: bytes, change: Callable[[str], str]) -> bytes:
    """A program, or each cell of a notebook, with something done to its text."""
    if not name.endswith(".ipynb"):
        return change(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    found = json.loads(data)
    for cell in found["cells"]:
        if cell["cell_type"] == "code":
            cell["source"] = change("".join(cell["source"]))
    return json.dumps(found).encode()


def on_host(name: str, data: bytes) -> bytes:
    """The program with `device="cpu"` where it makes a tensor for a product on the spot, without a device: the stand-in takes
    all for CUDA's that nobody put on the CPU, and Apex cast nothing there."""
    return in_code(name, data, partial(MADE.sub, _put))


MADE = re.compile(r"torch\.randn?\([^()=]*\)(?= *@)|(?<=@ )torch\.randn?\([^()=]*\)")


def _put(found: re.Match[str]) -> str:
    return f"{found[0][:-1]}, device='cpu')"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _inconsistent(result: Result, data: bytes) -> str:
    ours = [f for f in result.findings if f["code"] in OURS]
    if ours:
        return f"{ours[0]['code']}: {ours[0]['message']}"
    if result.code not in (0, 1) or (result.code == 1) != bool(result.manual):
        return f"exit code {result.code} with {len(result.manual)} manual findings"
    done, wrote = any(f["status"] == "done" for f in result.findings), result.data != data
    if done and not wrote:
        return "it says that something was done, and nothing was written"
    # An import that nothing used is no site: that it goes is a note.
    if wrote and not done and not any(f["code"] == IDLE_IMPORT for f in result.findings):
        return "it wrote, and says nothing of it"
    return ""


def _broken(name: str, result: Result) -> str:
    """Why what came out is no program, or still Apex's without a word."""
    try:
        if name.endswith(".ipynb"):
            json.loads(result.data)
            text = result.data.decode()
            compile(Notebook.parse(text).program, name, "exec", dont_inherit=True)
        else:
            compile(result.data, name, "exec", dont_inherit=True)
            text = ast.unparse(ast.parse(result.data))
    except (SyntaxError, ValueError) as error:
        return f"the result is no program: {error}"
    if not result.code and (line := mentions_apex(name, text)):
        return f"line {line} still names Apex and no finding says so"
    return ""


def differs(case: Case, plain: Result, other: Result) -> str:
    """Why two spellings of one program were not treated alike."""
    wanted, found = ast.dump(ast.parse(plain.data)), ast.dump(ast.parse(other.data))
    less, more = (plain.told - other.told), (other.told - plain.told)
    if set(case.spellings) & {"comments", "broken", "ends"}:
        more.pop(("AMP134", "note"), None)  # a comment went with what it stood beside
    if less or more:
        return f"other findings: less {sorted(less)}, more {sorted(more)}"
    if wanted != found:
        return "another program comes out"
    if other.data == case.spelled:
        return ""
    for what, of in (("line ends", _ends), ("mark", lambda data: data[:3] == b"\xef\xbb\xbf")):
        if "mixed ends" not in case.spellings and of(case.spelled) != of(other.data):
            return f"other {what}"
    return ""


def _ends(data: bytes) -> tuple[bool, bool, bool]:
    bare = data.replace(b"\r\n", b"")
    return b"\r\n" in data, b"\n" in bare, b"\r" in bare
