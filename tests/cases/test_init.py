"""`amp-migrate verify --init`: cases that reach what the migration changes, and nothing guessed silently."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from click.testing import Result

from amp_migrate.cases import commands, toml
from amp_migrate.cases.plan import Place, plan

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TRAIN = """
import argparse
import torch
from engine import train, validate

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--clip", type=float, default=0.0)
    parser.add_argument("--mode", default="train", choices=["train", "test"])
    parser.add_argument("--resume", default=None)
    args = parser.parse_args()
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        from apex import amp
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    if args.resume:
        checkpoint = torch.load(args.resume)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        if args.fp16:
            amp.load_state_dict(checkpoint["amp"])
    if args.mode == "test":
        validate(model)
        return
    for _ in range(8):
        train(model, optimizer, args)
        checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        if args.fp16:
            checkpoint["amp"] = amp.state_dict()
        torch.save(checkpoint, "last.pt")

if __name__ == "__main__":
    main()
"""
ENGINE = """
import torch
try:
    from apex import amp
except ImportError:
    amp = None

def train(model, optimizer, args):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 4).cuda()).pow(2).mean()
    if args.fp16:
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        if args.clip > 0:
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), args.clip)
    else:
        loss.backward()
        if args.clip > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    optimizer.step()

def validate(model):
    with torch.no_grad():
        print(model(torch.randn(4, 4).cuda()).mean().item())
"""


def project(folder: Path, files: dict[str, str]) -> Path:
    for name, text in {".git/HEAD": "", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text))
    return folder


Command = Callable[..., Result]


def cases(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["amp-migrate"][
        "verify"
    ]
    return found


@pytest.mark.slow
def test_the_cases_run_and_reach_what_they_promise(amp_migrate: Command, tmp_path: Path) -> None:
    readme = "# Train\n\n```\nCUDA_VISIBLE_DEVICES=0 python train.py --data samples \\\n    --fp16\n```\n"
    project(tmp_path, {"train.py": TRAIN, "engine.py": ENGINE, "README.md": readme, "pyproject.toml": "[tool.black]\n"})
    before = {name: (tmp_path / name).read_text() for name in ("train.py", "engine.py")}
    done = amp_migrate("verify", "--init")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert {name: (tmp_path / name).read_text() for name in before} == before
    text = (tmp_path / "pyproject.toml").read_text()
    assert text.startswith("[tool.black]\n\n# amp-migrate verify ")
    (case,) = cases(tmp_path)
    assert case["script"] == "train.py"
    assert case["args"] == ["--data", "samples", "--fp16", "--clip", "1"]
    assert case["resume-args"] == "--resume {checkpoint}"
    assert "off-args" not in case  # the drill finds `--fp16`
    assert case["eval-args"] == "--data samples --fp16 --clip 1 --mode test"
    for told in (
        "# Arguments from README.md:4.",
        "# `--clip 1` is a guess, for `args.clip > 0`.",
        "# `--fp16` is taken for the switch of mixed precision.",
        "# `--resume` is taken for the option that goes on from a checkpoint.",
    ):
        assert told in text
    assert "together they are to reach 34 of 35 changed places" in done.stdout
    assert "not engine.py:6: it runs only where an import fails" in done.stdout
    again = amp_migrate("verify", "--init")
    assert "no new case" in again.stdout
    assert (tmp_path / "pyproject.toml").read_text() == text
    run = amp_migrate("verify", "--device", "cpu", "--steps", "6", "--require-coverage", "97")
    assert run.exit_code == 0, run.stdout + run.stderr
    assert "34 of 35 changed places" in run.stdout


def test_what_nobody_knows_is_left_to_fill_in(amp_migrate: Command, tmp_path: Path) -> None:
    project(tmp_path, {"train.py": TRAIN, "engine.py": ENGINE})
    done = amp_migrate("verify", "--init", str(tmp_path))
    assert done.exit_code == 1
    assert "`--data` is required: nothing says what it may be" in done.stdout
    assert "1 to be filled in first" in done.stdout
    (case,) = cases(tmp_path)
    assert case["args"][:2] == ["--data", "FILL_IN:data"]
    run = amp_migrate("verify")
    assert run.exit_code == 2
    assert "the arguments are not complete: put a value in place of FILL_IN:data" in run.stdout
    file = tmp_path / "pyproject.toml"
    file.write_text(file.read_text().replace('"FILL_IN:data"', '"samples"'))
    run = amp_migrate("verify")
    assert "put a value in place of FILL_IN:data" in run.stdout  # it stands in the arguments of a drill too


def test_nothing_to_find(amp_migrate: Command, tmp_path: Path) -> None:
    project(tmp_path, {"train.py": "print('no apex')\n"})
    done = amp_migrate("verify", "--init")
    assert done.exit_code == 2
    assert "nothing to migrate" in done.stderr
    assert not (tmp_path / "pyproject.toml").exists()
    (tmp_path / "pyproject.toml").write_text("[")
    assert amp_migrate("verify", "--init").exit_code == 2
    assert amp_migrate("verify", "--init", "nowhere").exit_code == 2


def planned(folder: Path, *lines: str) -> Any:
    """The plan for an original alone, whose places are the statements that hold these words."""
    places: list[Place] = []
    for file in sorted(folder.rglob("*.py")):
        for number, text in enumerate(file.read_text().splitlines(), 1):
            if any(f"amp.{word}" in text for word in lines):
                places.append((file.relative_to(folder).as_posix(), number, "original"))
    return plan({"original": folder}, places, set(places))


OPTIONS = """
import argparse
from apex import amp
parser = argparse.ArgumentParser()
parser.add_argument("--level", default="O1", choices=["O0", "O1", "O2"])
parser.add_argument("--kind", default="a")
parser.add_argument("--steps", type=int, default=1)
parser.add_argument("--secret")
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("if args.kind == 'b':\n    amp.one()\nelse:\n    amp.one()", [["--kind", "b"], []]),
        ("if args.kind in ('b', 'c') and not args.level == 'O1':\n    amp.one()", [["--kind", "b", "--level", "O0"]]),
        ("if args.steps > 3:\n    amp.one()\nelif args.steps < 0:\n    amp.one()", [["--steps", "4"], ["--steps", "-1"]]),
        ("deep = args.steps >= 2\ndef f():\n    amp.one()\nif deep:\n    f()", [["--steps", "2"]]),
        ("if args.level == 'O2':\n    raise SystemExit\ndef f(args):\n    if args.kind == 'x':\n        return\n    amp.one()\n"
         "f(args)", [[]]),
    ],
)  # fmt: skip
def test_options_are_set_so_that_places_are_reached(tmp_path: Path, code: str, expected: list[list[str]]) -> None:
    project(tmp_path, {"train.py": OPTIONS + code + "\n"})
    found = planned(tmp_path, "one")
    assert sorted(list(case.argv) for case in found.cases) == sorted(expected)
    assert not found.unreached


def test_a_place_that_needs_an_unknown_value_is_named(tmp_path: Path) -> None:
    project(tmp_path, {"train.py": OPTIONS + "if args.secret:\n    amp.one()\namp.one()\n"})
    found = planned(tmp_path, "one")
    assert [case.argv for case in found.cases] == [()]
    assert list(found.unreached.values()) == ["it needs --secret, so that `args.secret` comes out right"]


def test_scripts_and_the_files_behind_them(tmp_path: Path) -> None:
    files = {
        "tools/train.py": "from lib.core import run\nif __name__ == '__main__':\n    run()\n",
        "tools/other.py": "import lib\nif __name__ == '__main__':\n    pass\n",
        "lib/__init__.py": "",
        "lib/core.py": "from .deep import go\ndef run():\n    go()\n",
        "lib/deep.py": "from apex import amp\ndef go():\n    amp.one()\n",
        "plain.py": "from apex import amp\nfor _ in range(3):\n    amp.one()\n",
        "tests/test_it.py": "from apex import amp\nif __name__ == '__main__':\n    amp.one()\n",
    }
    found = planned(project(tmp_path, files), "one")
    assert sorted(case.script for case in found.cases) == ["plain.py", "tools/train.py"]
    assert [place[0] for place in found.unreached] == ["tests/test_it.py"]


def test_a_switch_that_no_drill_would_find_is_named(tmp_path: Path) -> None:
    code = OPTIONS.replace("--secret", "--speed-amp") + "if args.speed_amp == 'yes':\n    amp.one()\n"
    code = code.replace('"--speed-amp"', '"--speed-amp", action="store_true"').replace(" == 'yes'", "")
    (case,) = planned(project(tmp_path, {"train.py": code}), "one").cases
    assert (case.argv, case.off) == (("--speed-amp",), ())


def test_a_sub_command_brings_its_own_options(tmp_path: Path) -> None:
    code = """
    import argparse
    from apex import amp
    def evaluation(parsers):
        parser = parsers.add_parser("evaluate")
        parser.add_argument("--model", required=True)
    def training(parsers):
        parser = parsers.add_parser("train")
        parser.add_argument("--corpus", required=True)
        parser.add_argument("--use-amp", action="store_true")
    parser = argparse.ArgumentParser()
    parsers = parser.add_subparsers()
    evaluation(parsers)
    training(parsers)
    args = parser.parse_args()
    if args.use_amp:
        amp.one()
    """
    (case,) = planned(project(tmp_path, {"train.py": code}), "one").cases
    assert case.argv == ("train", "--corpus", "FILL_IN:corpus", "--use-amp")
    assert "`train` is a guess, of the commands evaluate, train" in case.notes


def test_commands_of_readmes_and_shell_scripts(tmp_path: Path) -> None:
    files = {
        "train.py": "",
        "sub/eval.py": "",
        "run.sh": 'DATA=/data/set\nSEED=${1:-3}\nOUT="$OUTPUT_ROOT/run"\npython -u -m torch.distributed.launch '
        '--nproc_per_node 8 train.py --data $DATA \\\n  --seed ${SEED} --out $OUT "$@" > log.txt 2>&1 &\n',
        "README.md": "Use python 3.\n```bash\n$ python train.py --data <path/to/data> --name 'my run' && echo done\n```\n",
        "sub/README.md": "    torchrun --nproc-per-node=2 eval.py --config configs/a.yaml\n",
    }
    found = commands.find(project(tmp_path, files), {"train.py", "sub/eval.py"})
    assert {(c.script, shlex.join(c.argv), c.source, c.distributed, c.cwd) for c in found} == {
        ("train.py", "--data FILL_IN:path_to_data --name 'my run'", "README.md:3", False, "."),
        ("train.py", "--data /data/set --seed 3 --out FILL_IN:output_root/run", "run.sh:4", True, "."),
        ("sub/eval.py", "--config configs/a.yaml", "sub/README.md:1", True, "sub"),
    }


def test_what_is_not_there_is_said(amp_migrate: Command, tmp_path: Path) -> None:
    head = "import numpy, torch, missing_one.part\nfrom missing_two import x\nimport helper\nimport deeper\nimport engine\n"
    guarded = "try:\n    import missing_three\nexcept ImportError:\n    pass\n"
    files = {
        "train.py": head + guarded + TRAIN,
        "engine.py": ENGINE,
        "lib/deeper.py": "",
        "helper.py": "import missing_four\n",
        "run.sh": "python train.py --data sets/a.txt --fp16 --resume engine.py --clip 0.5\n",
        "unused.py": "import missing_five\n",
    }
    project(tmp_path, files)
    done = amp_migrate("verify", "--init")
    assert "`sets/a.txt` does not exist here" in done.stdout
    assert (
        "`missing_four`, `missing_one`, `missing_two` are imported, and neither in the project nor installed here"
        in done.stdout
    )
    assert done.stdout.count("exist") == 1
    assert "# `sets/a.txt` does not exist here." in (tmp_path / "pyproject.toml").read_text()


@pytest.mark.parametrize("linked", [False, True])
def test_what_is_written_leaves_the_rest_of_the_file_and_its_link(tmp_path: Path, linked: bool) -> None:
    file = real = tmp_path / "pyproject.toml"
    if linked:
        real = tmp_path / "kept.toml"
        file.symlink_to(real.name)
    real.write_bytes(b"[project]\r\nname = 'x'\r\n")
    toml.append(file, "[a]\nb = 1\n")
    assert file.is_symlink() == linked
    assert real.read_bytes() == b"[project]\r\nname = 'x'\r\n\r\n[a]\r\nb = 1\r\n"
    assert len(list(tmp_path.iterdir())) == 1 + linked


@pytest.mark.parametrize("before", ["[project]\n", None])
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, before: str | None) -> None:
    """In a process that may write no file longer than a hundred bytes."""
    pytest.importorskip("resource")  # not on Windows
    file = tmp_path / "pyproject.toml"
    if before is not None:
        file.write_text(before)
    program = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom amp_migrate.cases import toml\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        f"toml.append(Path({str(file)!r}), '# more\\n' * 100)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert "File too large" in done.stderr
    assert [path.read_text() for path in tmp_path.iterdir()] == ([] if before is None else [before])


def test_a_script_without_a_step_cannot_be_judged_and_that_is_said(tmp_path: Path) -> None:
    infer = """
        import torch
        from apex import amp
        model = amp.initialize(torch.nn.Linear(4, 2).cuda(), opt_level="O3")
        print(model(torch.randn(4, 4).cuda().half()).mean())
    """
    files = {"infer.py": dedent(infer), "train.py": TRAIN, "engine.py": ENGINE}
    made = {case.script: case.notes for case in planned(project(tmp_path / "both", files), "initialize").cases}
    told = "nothing in it steps an optimizer: verify compares steps, and cannot judge it"
    assert told in made["infer.py"]
    assert told not in made["train.py"]


def test_a_native_switch_does_not_shut_apex_out(tmp_path: Path) -> None:
    code = """
        import argparse
        import torch
        from apex import amp
        parser = argparse.ArgumentParser()
        group = parser.add_mutually_exclusive_group()
        group.add_argument("--native", action="store_true")
        group.add_argument("--apex", action="store_true")
        args = parser.parse_args()
        scaler = torch.amp.GradScaler("cuda") if args.native else None
        if args.native:
            print("amp.native")
        if args.apex:
            model, optimizer = amp.initialize(model, optimizer)
        if args.native:
            scaler.step(optimizer)
        else:
            if args.apex:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            optimizer.step()
    """
    folder = project(tmp_path, {"train.py": dedent(code)})
    lines = (folder / "train.py").read_text().splitlines()
    found = {
        word: at
        for at, text in enumerate(lines, 1)
        for word in ("native", "initialize", "scale_loss")
        if f"amp.{word}" in text
    }
    places: list[Place] = [("train.py", line, "original") for line in found.values()]
    made = plan({"original": folder}, places, {("train.py", found["scale_loss"], "original")})
    assert [case.argv for case in made.cases] == [("--apex",)]
    assert list(made.unreached) == [("train.py", found["native"], "original")]
