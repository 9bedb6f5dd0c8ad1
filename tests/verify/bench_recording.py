"""`python -m tests.verify.bench_recording`: what recording adds to a step of a ResNet-50, in CPU time.

Alternates a bare run and a recorded run of one program in processes of their own; the program measures itself.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from amp_migrate.shim import child_environment
from amp_migrate.verify.recording.spec import RunSpec

ROUNDS, STEPS = 3, 5
PROGRAM = """
import sys, time, torch, torch.nn as nn, torch.nn.functional as F

class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        self.short = nn.Sequential()
        if stride != 1 or inside != 4 * width:
            self.short = nn.Sequential(nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))

def resnet50():
    layers, inside = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(blocks):
            layers.append(Bottleneck(inside, width, stride if i == 0 else 1))
            inside = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10))

torch.manual_seed(0)
model = resnet50()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
x, y = torch.randn(8, 3, 32, 32), torch.randint(10, (8,))
times = []
for step in range(int(sys.argv[1])):
    began = time.process_time()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    times.append(time.process_time() - began)
print(sorted(times[2:])[len(times[2:]) // 2])
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(PROGRAM)
        environment = {**os.environ, **child_environment("installed", "cpu"), "OMP_NUM_THREADS": "1"}
        seconds: dict[str, list[float]] = {"bare": [], "recorded": []}
        for turn in range(ROUNDS):
            out = Path(folder) / str(turn)
            out.mkdir()
            spec = RunSpec(str(script), (str(STEPS),), folder, "migrated", str(out), STEPS + 1, device="cpu")
            spec.write(out / "spec.json")
            for name, command in (
                ("bare", [str(script), str(STEPS)]),
                ("recorded", ["-m", "amp_migrate.verify.recording.child", str(out / "spec.json")]),
            ):
                done = subprocess.run(
                    [sys.executable, *command], env=environment, capture_output=True, text=True, check=True
                )
                seconds[name].append(float(done.stdout.split()[-1]))
    bare, recorded = (statistics.median(seconds[name]) for name in ("bare", "recorded"))
    print(f"ResNet-50, batch 8 of 32x32, CPU seconds a step: bare {bare:.3f}, recorded {recorded:.3f}")
    rounds = [f"{r / b - 1:+.1%}" for b, r in zip(seconds["bare"], seconds["recorded"], strict=True)]
    print(f"recording adds {recorded / bare - 1:+.1%}; by round {', '.join(rounds)}")


if __name__ == "__main__":
    main()
