"""How much of the migration ran: counted over the runs of all cases, and what would reach the rest."""

from __future__ import annotations

import ast
import json
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.coverage import arguments, places, tally
from amp_migrate.verify.launch import Launcher
from amp_migrate.verify.programs import Pair
from amp_migrate.verify.recording import marks

PROGRAM = '''
"""Train a small model."""
import argparse
import torch, torch.nn as nn, torch.nn.functional as F
from apex import amp

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--mode", default="train")
    parser.add_argument("--resume")
    parser.add_argument("--clip", type=float, default=0.0)
    return parser.parse_args()

def validate(model, data):
    with torch.no_grad():
        return sum(F.cross_entropy(model(x), y).item() for x, y in data)

def save(path, model):
    torch.save({"model": model.state_dict(), "amp": amp.state_dict()}, path)

def main():
    args = parse()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
    if args.resume:
        amp.load_state_dict(torch.load(args.resume)["amp"])
    data = [(torch.randn(4, 8).cuda(), torch.randint(3, (4,)).cuda()) for _ in range(60)]
    if args.mode == "validate":
        print(validate(model, data))
        return
    for x, y in data:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        if args.clip > 0:
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), args.clip)
        optimizer.step()
    save("last.pt", model)

if __name__ == "__main__":
    main()
'''
SHORT = ("--steps", "4", "--device", "cpu", "--apex", "shim", "--drills", "none")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM.lstrip("\n"))
    return folder


def reasons(report: dict[str, Any]) -> dict[str, list[str]]:
    return {group["why"]: group["reach"] for group in report["missing"]}


def test_what_did_not_run_is_listed_with_what_would_reach_it(
    amp_migrate: Callable[..., Result], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    done = amp_migrate("verify", "train.py", "--require-coverage", "90", *SHORT, "--", "--fp16")
    assert done.exit_code == 1, done.stdout  # they agree, but less ran than was required
    assert done.stdout.splitlines()[0] == "train.py: agrees"
    assert "13 of 29 changed places ran, 45% (original 7 of 14, migrated 6 of 15)" in done.stdout
    assert "`args.resume` was never true\n                     reach it: --resume ..." in done.stdout
    assert done.stdout.splitlines()[-1] == "coverage is 44.8%, less than the 90% required"


@pytest.mark.slow
def test_cases_add_up_and_one_that_touches_nothing_says_so(
    amp_migrate: Callable[..., Result], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "plain.py").write_text(
        "import torch\nmodel = torch.nn.Linear(2, 1).cuda()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(5):\n    optimizer.zero_grad()\n    model(torch.ones(1, 2).cuda()).sum().backward()\n"
        "    optimizer.step()\n"
    )
    options = 'steps = 4\ndevice = "cpu"\napex = "shim"\ndrills = "none"\n'
    case = '[[tool.amp-migrate.verify]]\nname = "{}"\nscript = "{}"\nargs = {}\n' + options
    (project / "pyproject.toml").write_text(
        case.format("on", "train.py", '["--fp16"]')
        + case.format("clipped", "train.py", '["--fp16", "--clip", "1"]')
        + case.format("plain", "plain.py", "[]")
    )
    done = amp_migrate("verify", "--format", "json", "--require-coverage", "10")
    report = json.loads(done.stdout)
    on, clipped, plain = report["cases"]
    assert [on["result"], clipped["result"], plain["result"]] == ["agrees", "agrees", "unjudged"], done.stdout
    assert done.exit_code == 2
    assert plain["coverage"]["ran"] == 0
    assert on["coverage"]["ran"] < clipped["coverage"]["ran"] == report["coverage"]["ran"]
    assert on["coverage"]["places"] == report["coverage"]["places"]
    assert "`args.clip > 0` was never true" in reasons(on["coverage"])

    covered = report["coverage"]
    assert covered["ran"] + sum(len(group["places"]) for group in covered["missing"]) == covered["places"]
    told = reasons(covered)  # by the case that came closest: the third one ran no changed file at all
    assert "`args.clip > 0` was never true" not in told
    assert told["`args.resume` was never true"] == ["--resume ..."]
    assert told["`args.mode == 'validate'` was never true"] == ["--mode validate"]
    assert told["`args.fp16` was never false"] == ["without --fp16"]  # the branch that went with Apex
    assert told["validate() was not called"][-1] == "--mode validate"
    assert told["save() was not called"][-1].startswith("the runs end after 4 steps: raise --steps")
    texts = {place["text"]: place["side"] for group in covered["missing"] for place in group["places"]}
    assert texts["loss.backward()"] == "original"
    assert "scaler.scale(loss).backward()" not in texts


# --- places ------------------------------------------------------------------------------------------------------


def pair(folder: Path, before: dict[str, str], after: dict[str, str], script: str = "train.py") -> Pair:
    programs = []
    for side, files in (("original", before), ("migrated", after)):
        tree = folder / f"{side}-tree"
        for name, text in files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(textwrap.dedent(text))
        programs.append(Program(tree / script, tree, tree, tree))
    return Pair(*programs)


def texts(found: places.Map, side: str) -> list[str]:
    return [place.text for place in found.places() if place.side == side]


def test_places_are_statements_and_a_line_that_moves_counts_where_it_came_to(tmp_path: Path) -> None:
    before = """\
        '''Says something.'''
        from apex import amp
        import torch
        # a comment
        def step(model, x):
            loss = model(x)
            with amp.scale_loss(loss, None) as s:
                s.backward()
        amp.untouched(
            1,
        )
        """
    after = """\
        '''Says something else.'''
        import torch
        # another comment
        def step(model, x, scaler):
            with torch.autocast("cuda"):
                loss = model(x)
            scaler.scale(loss).backward()
        amp.untouched(
            1,
        )
        """
    found = places.find(
        pair(tmp_path, {"train.py": before, "same.py": "x = 1"}, {"train.py": after, "same.py": "x = 1"})
    )
    assert texts(found, "original") == [
        "from apex import amp",
        "def step(model, x):",
        "with amp.scale_loss(loss, None) as s:",
        "s.backward()",
        "amp.untouched(",  # Apex, though the line is the same
    ]
    assert texts(found, "migrated") == [
        "def step(model, x, scaler):",
        'with torch.autocast("cuda"):',
        "loss = model(x)",
        "scaler.scale(loss).backward()",
    ]


def test_a_signature_has_run_when_its_body_has(tmp_path: Path) -> None:
    before, after = "def f(a):\n    return a\n", "def f(a, b):\n    return a\n"
    found = places.find(pair(tmp_path, {"train.py": before}, {"train.py": after}))
    (place,) = [place for place in found.places() if place.side == "migrated"]
    assert place.statement.shows == (2, 4)


def test_files_that_do_not_parse_have_no_places(tmp_path: Path) -> None:
    found = places.find(pair(tmp_path, {"train.py": "print 'x'\n"}, {"train.py": "print 'y'\n"}))
    assert found.places() == []


LIBRARY = {
    "train.py": """
        import torch
        from tools.lib import save, Other
        import tools.lib as tl
        def load():
            return {word}
        def on(args):
            torch.load("x")
            if args.resume:
                load()
        def main(args):
            on(args)
            if args.best:
                tl.save(1)
        """,
    "tools/lib.py": "def save(x):\n    return {word}\nclass Other:\n    def run(self):\n        return {word}\n",
    "tools/__init__.py": "",
    "other.py": "import torch\ndef load():\n    pass\nload()\nif __name__ == '__main__':\n    print({word}, torch)\n",
    "tests/test_train.py": "assert {word}\n",
    "cli.py": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--resume')\n"
    "p.add_argument('--best', action='store_true')\nimport train\n",
}


def why(folder: Path, ran: dict[str, list[tuple[int, int]]]) -> dict[str, tuple[str, ...]]:
    files = [{name: text.replace("{word}", word) for name, text in LIBRARY.items()} for word in ("1", "2")]
    found = places.find(pair(folder, files[0], files[1]))
    marked = [(source.path, spot) for source in found.sources("migrated") for spot in source.spots()]
    (folder / "runs" / "one").mkdir(parents=True)
    marks = bytes(spot in [tuple(s) for s in ran.get(path, [])] for path, spot in marked)
    (folder / "runs" / "one" / "ran-migrated").write_bytes(marks)
    counted = tally.count(found, folder / "runs", steps=None)
    return {g.reason.why: g.reason.reach for g in counted.missing() if any(p.side == "migrated" for p in g.places)}


def test_who_calls_a_function_and_under_what(tmp_path: Path) -> None:
    told = why(tmp_path, {"train.py": [(2, 0), (5, 0)], "tools/lib.py": [(1, 0), (3, 0), (4, 4)]})
    assert told["load() was not called"] == ("called at train.py:10, if `args.resume` is true", "--resume ...")
    assert told["save() was not called"] == ("called at train.py:14, if `args.best` is true", "--best")
    assert told["run() was not called"] == ("nothing in the project calls it by name",)
    assert told["no case runs other.py"] == ('a case with script = "other.py"',)
    assert not any("test_train" in why for why in told)  # a test runner runs it
    told = why(tmp_path / "imported", {"other.py": [(1, 0), (5, 0)]})
    assert told["no case runs other.py"] == ('a case with script = "other.py"',)


def test_who_imports_a_file(tmp_path: Path) -> None:
    told = why(tmp_path, {})
    assert told["tools/lib.py was not imported"] == ("imported by train.py",)
    assert told["train.py was not imported"] == ("imported by cli.py",)


# --- marks -------------------------------------------------------------------------------------------------------

SHAPES = '''
"""The docstring."""
from __future__ import annotations

def f(x):
    """Its own."""
    global seen
    if x > 2:
        return "big"
    elif x == 2: return "two"
    else:
        try:
            seen = [y for y in range(x)]
            1 / x
        except ZeroDivisionError:
            return "zero"
        finally:
            seen = []
    match x:
        case 1:
            return "one"

class C:
    """And its."""
    x: int = 3

results = [f(x) for x in (3, 2, 1, 0)]
'''


def test_marked_code_does_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    spots = sorted({(n.lineno, n.col_offset) for n in ast.walk(ast.parse(SHAPES)) if isinstance(n, ast.stmt)})
    spots = [spot for spot in spots if spot not in {(2, 0), (3, 0), (6, 4), (24, 4)}]  # docstrings, the future import
    ran: set[int] = set()
    monkeypatch.setattr("builtins." + marks.NAME, ran.add, raising=False)
    names: dict[str, Any] = {}
    exec(marks.marked(SHAPES.encode(), "shapes.py", {spot: i for i, spot in enumerate(spots)}), names)
    assert names["results"] == ["big", "two", "one", "zero"]
    assert (names["__doc__"], names["f"].__doc__, names["C"].__doc__) == ("The docstring.", "Its own.", "And its.")
    assert ran == set(range(len(spots)))
    with pytest.raises(TypeError) as caught:
        names["f"](None)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == 8


LOADER = """
import torch
from parts import Numbers
loader = torch.utils.data.DataLoader(Numbers(), num_workers=1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
PARTS = """
import torch
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 3
    def __getitem__(self, i):
        if i == 7:
            return torch.zeros(1)
        return torch.ones(1){more}
"""


def test_what_runs_in_processes_of_a_data_loader_has_run(tmp_path: Path, launcher: Launcher) -> None:
    files = [{"train.py": LOADER, "parts.py": PARTS.format(more=more)} for more in ("", " * 1.0")]
    files[1]["parts.py"] = files[1]["parts.py"].replace("zeros(1)", "zeros(1,)")
    programs = pair(tmp_path, files[0], files[1])
    found = places.find(programs)
    case = Case("case", programs.original, programs.migrated, steps=3, device="cpu", watch=found.write(tmp_path))
    (run,) = launcher.run([case.spec("migrated", tmp_path / "runs" / "migrated")])
    assert run.trouble is None, run.trouble
    counted = tally.count(found, tmp_path / "runs", steps=None)
    ran = {counted.places[key].text for key in counted.ran}
    assert ran == {"return torch.ones(1) * 1.0"}
    told = {group.reason.why for group in counted.missing() if any(p.side == "migrated" for p in group.places)}
    assert told == {"`i == 7` was never true"}


# --- options -----------------------------------------------------------------------------------------------------

PARSER = """
p.add_argument("-f", "--fp16", action="store_true")
p.add_argument("--no-amp", dest="use_amp", action="store_false")
p.add_argument("--mode", choices=["train", "eval"])
p.add_argument("--resume", default=None)
p.add_argument("--ema", action=argparse.BooleanOptionalAction)
p.add_argument("--eval-every", type=int)
p.add_argument("twice"); p.add_argument("--twice")
"""


def test_what_is_given_already_is_not_asked_for() -> None:
    asks = ["--fp16", "without --no-amp", "--mode eval", "--resume ...", "--ema", "without --ema"]
    argv = ("--fp16", "--mode=eval", "--no-amp", "--resume", "x.pt")
    assert arguments.without_given(asks, argv) == ["without --no-amp", "--ema"]


@pytest.mark.parametrize(
    ("test", "wanted", "says"),
    [
        ("args.fp16", True, ["--fp16"]),
        ("not args.fp16", True, ["without --fp16"]),
        ("args.use_amp", True, ["without --no-amp"]),
        ("self.args.use_amp", False, ["--no-amp"]),
        ("opt['mode'] == 'eval'", True, ["--mode eval"]),
        ("args.mode != 'eval'", True, ["another --mode than eval"]),
        ("args.mode in ('a', 'b')", True, ["--mode one of a, b"]),
        ("args.resume is not None", True, ["--resume ..."]),
        ("args.resume", False, ["without --resume"]),
        ("os.path.isfile(args.resume)", True, ["--resume"]),
        ("args.ema", False, ["--no-ema"]),
        ("args.fp16 and step % args.eval_every == 0", True, ["--fp16", "--eval-every"]),
        ("args.unknown == 3", True, []),
        ("args.twice", True, []),
    ],
)
def test_what_a_test_asks_of_the_command_line(test: str, wanted: bool, says: list[str]) -> None:
    options = arguments.find([ast.parse(PARSER)])
    assert arguments.asked(ast.parse(test, mode="eval").body, options, wanted) == says
