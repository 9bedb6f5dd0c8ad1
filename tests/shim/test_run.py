"""`amp-migrate run`: the program as python would run it, with Apex and without a GPU."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launching import clean_environment, run_cli

from amp_migrate.shim import child_environment, install

REPORT = """
import json, os, sys
print(json.dumps({"argv": sys.argv, "name": __name__, "path": sys.path[0], "file": os.path.basename(__file__),
                  "startup": [p for p in sys.path if p.endswith("startup")], "stdin": sys.stdin.read()}))
"""
TRAINING = """
import sys
import torch
from apex import amp
torch.manual_seed(0)
model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level=sys.argv[1], verbosity=0)
x, y = torch.randn(8, 4, device="cuda"), torch.randn(8, 1).cuda()
for _ in range(5):
    loss = torch.nn.functional.mse_loss(model(x).float(), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    print(loss.item())
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_program_sees_what_python_would_show_it(tmp_path: Path) -> None:
    script = write(tmp_path / "inner" / "train.py", REPORT)
    plain = subprocess.run(
        [sys.executable, script, "--epochs", "1", "--apex", "x"], capture_output=True, text=True, check=True, input=""
    )
    result = run_cli("--apex", "shim", script, "--epochs", "1", "--apex", "x")
    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout)
    assert seen == json.loads(plain.stdout)
    assert seen["argv"] == [str(script), "--epochs", "1", "--apex", "x"]
    assert seen["startup"] == []


def test_module(tmp_path: Path) -> None:
    write(tmp_path / "package" / "__init__.py", "")
    write(tmp_path / "package" / "train.py", REPORT)
    seen = json.loads(run_cli("-m", "package.train", "-m", "x", cwd=tmp_path).stdout)
    assert seen["argv"][1:] == ["-m", "x"]
    assert seen["name"] == "__main__"
    assert seen["path"] == str(tmp_path)


@pytest.mark.parametrize(("ending", "code"), [("raise SystemExit(7)", 7), ("1 / 0", 1), ("print('done')", 0)])
def test_exit_code_and_output_pass_through(tmp_path: Path, ending: str, code: int) -> None:
    result = run_cli(write(tmp_path / "s.py", f"import sys\nprint('out')\nprint('err', file=sys.stderr)\n{ending}\n"))
    assert result.returncode == code
    assert result.stdout.startswith("out\n")
    assert result.stderr.startswith("err\n")
    assert ("ZeroDivisionError" in result.stderr) == (ending == "1 / 0")


def test_nothing_to_run_and_nothing_there(tmp_path: Path) -> None:
    assert run_cli().returncode == 2
    missing = run_cli(tmp_path / "no.py")
    assert missing.returncode == 2
    assert "no.py" in missing.stderr
    assert run_cli("--nproc", "0", "x.py").returncode == 2
    assert run_cli("-m").returncode == 2
    unknown = run_cli("--aspex", "shim", "x.py")
    assert unknown.returncode == 2
    assert "--aspex" in unknown.stderr


@pytest.mark.slow
def test_levels_train_without_a_gpu_and_agree(tmp_path: Path) -> None:
    script = write(tmp_path / "train.py", TRAINING)
    losses = {}
    for level in ("O0", "O1", "O2"):
        result = run_cli("--apex", "shim", "--device", "cpu", script, level)
        assert result.returncode == 0, result.stderr
        losses[level] = [float(line) for line in result.stdout.splitlines()]
        assert len(losses[level]) == 5
        assert losses[level][-1] < losses[level][0]
    for level in ("O1", "O2"):
        assert losses[level][0] == pytest.approx(losses["O0"][0], rel=2e-3)


INSTALLED = {
    "apex/__init__.py": "marker = 'installed'\n",
    "apex/amp/__init__.py": "from .frontend import initialize\n",
    "apex/amp/frontend.py": "def initialize(models):\n    return models\n",
}
WHICH = "import apex; from apex import amp; print(getattr(apex, 'marker', 'shim'), hasattr(amp, 'initialize'))"


@pytest.mark.parametrize(
    ("choice", "files", "expected"),
    [
        ("auto", INSTALLED, "installed True"),
        ("installed", INSTALLED, "installed True"),
        ("shim", INSTALLED, "shim True"),
        ("auto", {}, "shim True"),
        # The unrelated package of that name, today's Apex without amp, and a bare checkout: none is complete.
        ("auto", {"apex/__init__.py": "marker = 'other'\n"}, "shim True"),
        ("auto", {"apex/__init__.py": "", "apex/amp/__init__.py": "def something(): ...\n"}, "shim True"),
        ("auto", {"apex/setup.py": "", "apex/README.md": ""}, "shim True"),
    ],
)
def test_which_apex(tmp_path: Path, choice: str, files: dict[str, str], expected: str) -> None:
    for name, text in files.items():
        write(tmp_path / name, text)
    result = run_cli("--apex", choice, write(tmp_path / "which.py", WHICH))
    assert result.stdout.strip() == expected, result.stderr


def test_an_installed_apex_can_be_insisted_on(tmp_path: Path) -> None:
    result = run_cli("--apex", "installed", write(tmp_path / "which.py", WHICH))
    assert result.returncode == 1
    assert "ModuleNotFoundError: no installed Apex has amp.initialize" in result.stderr


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    source = """
import importlib, apex
for name in ("contrib.groupbn", "RNN", "transformer.parallel_state", "mlp", "fused_dense"):
    try:
        importlib.import_module("apex." + name)
    except ImportError as error:
        print(name, error.name, error)
for parent, name in (("apex.contrib", "xentropy"), ("apex", "RNN"), ("apex", "mlp"), ("apex", "transformer")):
    try:
        exec(f"from {parent} import {name}")
    except ImportError as error:
        print(f"{parent}.{name}".removeprefix("apex."), error.name, error)
"""
    lines = run_cli("--apex", "shim", write(tmp_path / "s.py", source)).stdout.splitlines()
    assert len(lines) == 9
    for line in lines:
        asked, missing, message = line.split(" ", 2)
        assert missing != "apex"
        assert f"apex.{asked}".startswith(missing)
        assert missing in message


def test_compiled_modules_are_answered(tmp_path: Path) -> None:
    source = """
import torch, amp_C, apex_C
from apex.multi_tensor_apply import multi_tensor_applier
flag = torch.zeros(1, dtype=torch.int, device="cuda")
tensors = [torch.full((3, 3), 2.0), torch.full((7,), 2.0)]
norm, each = multi_tensor_applier(amp_C.multi_tensor_l2norm, flag, [tensors], True)
back = apex_C.unflatten(apex_C.flatten(tensors), tensors)
print(multi_tensor_applier.available, norm.item(), [list(t.shape) for t in back])
"""
    result = run_cli("--apex", "shim", "--device", "cpu", write(tmp_path / "s.py", source))
    assert result.stdout.strip() == "True 8.0 [[3, 3], [7]]", result.stderr


RANKS = """
import os, sys
import torch
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.distributed.init_process_group(backend="nccl", init_method="env://")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
total = torch.ones(1, device="cuda") * (rank + 1)
torch.distributed.all_reduce(total)
torch.distributed.barrier()
if rank == 0:
    print(world, torch.cuda.device_count(), total.item(), torch.distributed.get_backend(), flush=True)
torch.distributed.destroy_process_group()
if len(sys.argv) > 1 and rank == 1:
    sys.exit(5)
"""


def test_ranks_find_each_other(tmp_path: Path) -> None:
    result = run_cli("--device", "cpu", "--nproc", "2", write(tmp_path / "s.py", RANKS))
    assert (result.returncode, result.stdout.strip()) == (0, "2 2 3.0 nccl"), result.stderr


def test_works_when_started_by_torchrun(tmp_path: Path) -> None:
    script = write(tmp_path / "s.py", RANKS)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "amp_migrate"]
    result = subprocess.run(
        [sys.executable, *launcher, "run", "--device", "cpu", str(script)],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=300,
        check=False,
    )
    assert (result.returncode, result.stdout.strip()) == (0, "2 2 3.0 nccl"), result.stderr


def test_ranks_that_want_their_number_as_an_argument(tmp_path: Path) -> None:
    source = "import os, sys\nopen(__file__ + os.environ['RANK'], 'w').write(' '.join(sys.argv[1:]))\n"
    script = write(tmp_path / "s.py", source)
    assert run_cli("--nproc", "2", script, "--local_rank={local_rank}", "--x", "{0}").returncode == 0
    assert [(tmp_path / f"s.py{rank}").read_text() for rank in (0, 1)] == [
        "--local_rank=0 --x {0}",
        "--local_rank=1 --x {0}",
    ]


def test_a_failing_rank_ends_the_run_with_its_code(tmp_path: Path) -> None:
    source = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(5)\ntime.sleep(600)\n"
    assert run_cli("--nproc", "2", write(tmp_path / "s.py", source)).returncode == 5


def test_ranks_end_with_the_launcher(tmp_path: Path) -> None:
    source = "import os, time\nopen(f\"{os.environ['RANK']}.pid\", 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    script = write(tmp_path / "s.py", source)
    command = [sys.executable, "-m", "amp_migrate", "run", "--nproc", "2", str(script)]
    with subprocess.Popen(command, cwd=tmp_path, env=clean_environment()) as launcher:
        while not all(
            (tmp_path / f"{rank}.pid").exists() and (tmp_path / f"{rank}.pid").read_text() for rank in (0, 1)
        ):
            assert launcher.poll() is None
            time.sleep(0.05)
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(60) == 128 + signal.SIGTERM
    for rank in (0, 1):
        process = Path("/proc") / (tmp_path / f"{rank}.pid").read_text()
        assert not process.exists()


def test_a_site_customization_of_the_user_still_runs(tmp_path: Path) -> None:
    write(tmp_path / "own" / "sitecustomize.py", "import builtins\nbuiltins.greeting = 'hello'\n")
    script = write(tmp_path / "s.py", "import sys, apex\nprint(greeting, sys.modules['sitecustomize'].__file__)\n")
    result = run_cli("--apex", "shim", script, PYTHONPATH=str(tmp_path / "own"))
    greeting, path = result.stdout.split()
    assert greeting == "hello"
    assert Path(path).parent.name == "own"


def test_torch_is_not_imported_unasked(tmp_path: Path) -> None:
    script = write(tmp_path / "s.py", "import sys\nprint('torch' in sys.modules, 'click' in sys.modules)\n")
    assert run_cli("--device", "cpu", script).stdout.strip() == "False False"


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(ValueError, match="apex must be one of auto, installed, shim"):
        child_environment(apex="other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="device must be one of auto, cuda, cpu"):
        install(device="tpu")  # type: ignore[arg-type]


def test_child_environment_keeps_the_python_path_and_does_not_pile_up() -> None:
    once = child_environment("shim", "cpu", {"PYTHONPATH": "/a"})
    assert once["PYTHONPATH"].endswith(":/a")
    assert child_environment("shim", "cpu", once) == once


def test_apex_can_be_left_to_python(tmp_path: Path) -> None:
    """As a migrated program finds it: asking for it raises nothing, and a release without amp is importable."""
    asked = write(tmp_path / "asked.py", "import importlib.util\nprint(importlib.util.find_spec('apex') is not None)\n")
    install = "from amp_migrate import shim; shim.install(apex='untouched', device='cpu'); import runpy, sys; "
    command = [sys.executable, "-c", install + "runpy.run_path(sys.argv[1], run_name='__main__')", str(asked)]

    def answer() -> str:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    assert answer() == "False"
    write(tmp_path / "apex" / "__init__.py", "")
    assert answer() == "True"
