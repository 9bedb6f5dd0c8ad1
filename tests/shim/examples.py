"""Run Apex's own examples, from a checkout, through `amp-migrate run` on the CPU, and compare the opt levels.

    python tests/shim/examples.py DIR [NAME...]

DIR is a checkout of NVIDIA/apex that still has `apex.amp`; torchvision has to be importable (it is no dependency of
this project; beside a torch without CUDA its operations are declared first, see SITE). Each example runs at O0, O1 and
O2: once as it is, where O1 and O2 skip the steps that find their scale, and once with a static loss scale, where every
level takes the same steps. Exit codes: 0 all losses finite and, with the static scale, close to those of O0;
1 otherwise; 2 DIR or torchvision is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

LEVELS = ("O0", "O1", "O2")
STATIC_SCALE = 128.0
# The first steps, whose losses show the levels' rounding before training amplifies it.
COMPARED_STEPS = 6
CLOSE = 0.02

# torchvision's compiled operations are absent beside another torch: their schemas are all that its import needs.
# One seed for every rank and level.
SITE = """
import torch

operations = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    operations.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
torch.manual_seed(0)
"""


@dataclass
class Example:
    """A script below examples/, how to start it at `{level}`, and where its losses are printed."""

    script: str
    arguments: str
    losses: str
    # What today's torch refuses, and what the script has no option for: (pattern, replacement).
    edits: list[tuple[str, str]] = field(default_factory=list)
    static: list[tuple[str, str]] = field(default_factory=list)
    static_arguments: str = ""
    ranks: int = 1


EXAMPLES = {
    "dcgan": Example(
        "dcgan/main_amp.py",
        "--dataset fake --opt_level {level} --batchSize 64 --ngf 16 --ndf 16 --niter 1 --workers 0",
        r"Loss_D: (\S+) Loss_G: (\S+)",
        edits=[(r"^(real|fake)_label = ([01])$", r"\1_label = \2.0")],  # torch.full no longer makes floats of integers
        static=[(r"num_losses=3", f"num_losses=3, loss_scale={STATIC_SCALE}")],
    ),
    "imagenet": Example(
        "imagenet/main_amp.py",
        "--arch resnet18 --opt-level {level} -b 4 -j 0 -p 1 --epochs 1 --lr 0.5 --deterministic {images}",
        r"^Epoch.*Loss (\S+)",
        static_arguments=f"--loss-scale {STATIC_SCALE}",
    ),
    "simple/distributed": Example(
        "simple/distributed/distributed_data_parallel.py",
        "--local_rank={{local_rank}}",
        r"final loss = *tensor\(([\d.einfa]+)",
        edits=[(r'opt_level="O1"', 'opt_level="{level}"')],
        static=[(r'opt_level="{level}"', f'opt_level="{{level}}", loss_scale={STATIC_SCALE}')],
        ranks=2,
    ),
}


@dataclass
class Run:
    losses: list[float]
    skipped: int


def make_images(folder: Path) -> None:
    """Two classes of small noise pictures, one darker than the other."""
    import numpy
    from PIL import Image

    noise = numpy.random.default_rng(0)
    for split, count in (("train", 16), ("val", 4)):
        for label in (0, 1):
            (folder / split / str(label)).mkdir(parents=True)
            for number in range(count):
                pixels = noise.integers(0, 128, (64, 64, 3)) + 100 * label
                Image.fromarray(pixels.astype(numpy.uint8)).save(folder / split / str(label) / f"{number}.png")


def run(example: Example, level: str, static: bool, checkout: Path, workplace: Path) -> Run:
    """Start one example and read what it prints. Raises RuntimeError with its output when it fails."""
    source = (checkout / "examples" / example.script).read_text()
    for pattern, replacement in [*example.edits, *(example.static if static else [])]:
        source, count = re.subn(pattern, replacement, source, flags=re.MULTILINE)
        if not count:
            raise RuntimeError(f"{example.script} has no {pattern}: another version of Apex?")
    script = workplace / "script.py"
    script.write_text(source.replace("{level}", level))
    arguments = f"{example.arguments} {example.static_arguments if static else ''}"
    ranks = ["--nproc", str(example.ranks)] if example.ranks > 1 else []
    path = os.pathsep.join([str(workplace / "site"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "amp_migrate", "run", "--apex", "shim", "--device", "cpu", *ranks, str(script)]
    done = subprocess.run(
        [*command, *arguments.format(level=level, images=workplace / "images").split()],
        cwd=workplace,
        env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    losses = [
        float(loss) for found in re.finditer(example.losses, done.stdout, re.MULTILINE) for loss in found.groups()
    ]
    if done.returncode != 0 or not losses:
        raise RuntimeError(f"{example.script} at {level} ended with {done.returncode}:\n{done.stdout}")
    return Run(losses, done.stdout.count("Gradient overflow"))


def compare(name: str, static: bool, runs: dict[str, Run]) -> bool:
    """Print the first losses of each level and the largest difference from O0 among them; False: something is off."""
    good = True
    print(f"{name}, {f'static scale {STATIC_SCALE:g}' if static else 'default scale'}")
    for level, result in runs.items():
        losses = result.losses[:COMPARED_STEPS]
        far = max(abs(a - b) / abs(b) for a, b in zip(losses, runs["O0"].losses, strict=False))
        finite = all(map(math.isfinite, result.losses))
        good = good and finite and (far <= CLOSE or not static)
        shown = "  ".join(f"{loss:.4f}" for loss in losses)
        print(
            f"  {level}  {shown}  | from O0 {far:.1%}, skipped {result.skipped}, of {len(result.losses)} losses", end=""
        )
        print("" if finite else " some are not finite", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description="Run Apex's own examples against the shim at O0, O1 and O2.")
    parser.add_argument("apex", type=Path, metavar="DIR", help="a checkout of NVIDIA/apex that still has apex/amp")
    parser.add_argument("names", nargs="*", choices=[*EXAMPLES, []], metavar="NAME", help=f"of {', '.join(EXAMPLES)}")
    arguments = parser.parse_args()
    checkout, names = arguments.apex, arguments.names or list(EXAMPLES)
    if not (checkout / "examples" / "imagenet").is_dir():
        print(f"{checkout} is no checkout of Apex: examples/imagenet is missing", file=sys.stderr)
        return 2
    if importlib.util.find_spec("torchvision") is None or importlib.util.find_spec("PIL") is None:
        print("the examples need torchvision and pillow", file=sys.stderr)
        return 2
    good = True
    with tempfile.TemporaryDirectory() as folder:
        workplace = Path(folder)
        (workplace / "site").mkdir()
        (workplace / "site" / "sitecustomize.py").write_text(SITE)
        make_images(workplace / "images")
        for name in names:
            example = EXAMPLES[name]
            for static in (False, True):
                runs = {level: run(example, level, static, checkout, workplace) for level in LEVELS}
                good = compare(name, static, runs) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
