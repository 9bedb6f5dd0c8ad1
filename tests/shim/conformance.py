"""Run Apex's own tests, from a checkout, against the shim on the CPU.

    python tests/shim/conformance.py DIR

DIR is a checkout of NVIDIA/apex that still has `apex.amp`. Its tests are copied to a temporary folder and run from
there; nothing of its `apex` package is imported. Exit codes: 0 every applicable test passed, 1 some failed,
2 DIR is no such checkout.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from amp_migrate.shim import child_environment

SUITES = ("run_amp", "run_fp16util", "run_deprecated")
MASTER_PARAMS = Path("tests", "distributed", "amp_master_params")

# Every test starts from one seed: test_loss_scale_decrease needs its unseeded weights to overflow, which about one
# draw in ten does not, under the real Apex as well.
# apex.transformer is no part of the shim, but one suite takes the base class of its distributed tests from there.
# With the one device of the redirected CPU that base runs a group of one rank; so does this one.
CONFTEST = """
import sys
import types
import unittest

import torch


def pytest_runtest_setup(item):
    torch.manual_seed(0)


class NcclDistributedTestBase(unittest.TestCase):
    def setUp(self):
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)

    def tearDown(self):
        torch.distributed.destroy_process_group()


for name in ("apex.transformer", "apex.transformer.testing", "apex.transformer.testing.distributed_test_base"):
    sys.modules[name] = types.ModuleType(name)
sys.modules[name].NcclDistributedTestBase = NcclDistributedTestBase
"""

# Tests that Apex itself cannot pass: (file, what the failure says) and why.
IMPOSSIBLE = {
    ("run_amp/test_multi_tensor_unscale_l2norm.py", "torch.Size([1]) != torch.Size([])"): (
        "compares with a tensor of no dimensions, where Apex's kernel allocates its result with one"
    )
}


@dataclass
class Result:
    """What became of one file of tests."""

    name: str
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    not_applicable: Counter[str] = field(default_factory=Counter)

    def fail(self, failure: str) -> None:
        """Count a failure, unless it is one that Apex shares."""
        for (name, message), reason in IMPOSSIBLE.items():
            if name == self.name and message in failure:
                self.not_applicable[reason] += 1
                return
        self.failures.append(failure)


def run_file(test_file: Path, environment: dict[str, str]) -> Result:
    """Run one file in a process of its own: amp's patches and its state belong to the process."""
    result = Result(f"{test_file.parent.name}/{test_file.name}")
    report = test_file.with_suffix(".xml")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", test_file.name]
    # The suites import their own helper module from beside them.
    path = os.pathsep.join([environment["PYTHONPATH"], str(test_file.parent)])
    done = subprocess.run(
        command,
        cwd=test_file.parent,
        env={**environment, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if not report.exists():
        result.failures.append(f"could not be run:\n{done.stdout}")
        return result
    for case in ElementTree.parse(report).iter("testcase"):
        problem = next((child for child in case if child.tag in ("failure", "error")), None)
        skipped = case.find("skipped")
        if problem is not None:
            result.fail(f"{case.get('name')}: {problem.get('message')}")
        elif skipped is not None:
            result.not_applicable[skipped.get("message") or "no reason given"] += 1
        else:
            result.passed += 1
    return result


def run_master_params(folder: Path, environment: dict[str, str]) -> Result:
    """Train on two ranks, then compare model and master parameters across them."""
    result = Result(f"{folder.name}/run.sh")
    train = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
        "amp_master_params.py",
    ]
    for command in (train, [sys.executable, "compare.py"]):
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            result.failures.append(f"{command[-1]}:\n{done.stdout}")
            return result
    result.passed = 1
    return result


def run_suites(checkout: Path, workplace: Path) -> list[Result]:
    """Copy the suites into `workplace` and run them there."""
    environment = {**os.environ, **child_environment(apex="shim", device="cpu")}
    environment.setdefault("OMP_NUM_THREADS", "1")
    results = []
    for suite in SUITES:
        shutil.copytree(
            checkout / "tests" / "L0" / suite, workplace / suite, ignore=shutil.ignore_patterns("__init__.py")
        )
        (workplace / suite / "conftest.py").write_text(CONFTEST)
        for test_file in sorted((workplace / suite).glob("test_*.py")):
            results.append(run_file(test_file, environment))
            show(results[-1])
    shutil.copytree(checkout / MASTER_PARAMS, workplace / MASTER_PARAMS.name)
    results.append(run_master_params(workplace / MASTER_PARAMS.name, environment))
    show(results[-1])
    return results


def show(result: Result) -> None:
    skipped = sum(result.not_applicable.values())
    print(f"{result.name:55} {result.passed:6} {len(result.failures):6} {skipped:14}", flush=True)
    for failure in result.failures:
        print(f"    failed: {failure}")
    for reason, count in result.not_applicable.items():
        print(f"    not applicable ({count}): {reason}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run Apex's own tests against the shim.")
    parser.add_argument("apex", type=Path, metavar="DIR", help="a checkout of NVIDIA/apex that still has apex/amp")
    checkout = parser.parse_args().apex
    missing = [
        path
        for path in (Path("apex", "amp"), Path("tests", "L0", "run_amp"), MASTER_PARAMS)
        if not (checkout / path).is_dir()
    ]
    if missing:
        print(f"{checkout} is no checkout of Apex with apex.amp: {missing[0]} is missing", file=sys.stderr)
        return 2
    print(f"{'':55} {'passed':>6} {'failed':>6} {'not applicable':>14}")
    with tempfile.TemporaryDirectory() as workplace:
        results = run_suites(checkout, Path(workplace))
    failed = sum(len(result.failures) for result in results)
    skipped = sum(sum(result.not_applicable.values()) for result in results)
    print(f"{sum(result.passed for result in results)} passed, {failed} failed, {skipped} not applicable")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
