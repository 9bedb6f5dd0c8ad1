"""Programs that each wrap their own optimizer in one class of the project: that class steps what it wraps, and a scaler steps
the wrapper. What is emitted is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

WRAPPER = """
class Lookahead:
    def __init__(self, inner):
        self.inner = inner
        self.param_groups = inner.param_groups
        self.stepped = 0

    def zero_grad(self):
        self.inner.zero_grad()

    def step(self, closure=None):
        self.stepped += 1
        return self.inner.step(closure)
"""
PROGRAM = """
import json
import torch
from apex import amp
from wrapper import Lookahead

torch.manual_seed({seed})
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1.6)
optimizer = Lookahead(optimizer)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


def train():
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).float().mean() / 16
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    return [optimizer.stepped, round(float(model.weight.sum().detach()), 2)]


{start}
"""
START = "if __name__ == '__main__':\n    print(json.dumps(train()))\n"
IMPORTED = "print(json.dumps([first.train(), second.train()]))\n"
NATIVE = """
import json
import torch
from wrapper import Lookahead

model = torch.nn.Linear(4, 1)
other = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))
model(torch.ones(2, 4)).mean().backward()
other.step()
print(json.dumps(other.stepped))
"""


def weights(seed: int) -> list[float]:
    """What a program gives in float32."""
    import torch

    torch.manual_seed(seed)
    weight = torch.nn.Linear(4, 1).weight.detach().sum()
    return [4, round(float(weight) - 4 * 4 * 0.1, 2)]


def check(texts: dict[str, str], *programs: str) -> None:
    assert "scaler" not in texts["wrapper.py"]
    for name in programs:
        assert "scaler.step(optimizer)" in texts[name]


@pytest.mark.parametrize("start", [START, "print(json.dumps(train()))\n"], ids=["a script", "at module level"])
def test_two_programs_that_wrap_their_optimizer_alike_are_migrated_each(tmp_path: Path, start: str) -> None:
    programs = {f"{name}.py": PROGRAM.format(seed=i, start=start) for i, name in enumerate(("first", "second"))}
    texts = check_files({**programs, "wrapper.py": WRAPPER}, device="cpu")
    check(texts, *programs)
    for i, name in enumerate(programs):
        assert run_files(tmp_path, texts, name) == weights(i)


def test_so_they_are_where_one_process_runs_both(tmp_path: Path) -> None:
    programs = {f"{name}.py": PROGRAM.format(seed=i, start="") for i, name in enumerate(("first", "second"))}
    both = {"main.py": f"import json\n\nimport first\nimport second\n\n{IMPORTED}"}
    texts = check_files({**programs, **both, "wrapper.py": WRAPPER}, device="cpu")
    check(texts, *programs)
    assert run_files(tmp_path, texts, "main.py") == [weights(0), weights(1)]


def test_a_program_that_wraps_and_does_without_apex_is_no_reason_to_leave_one(tmp_path: Path) -> None:
    files = {"first.py": PROGRAM.format(seed=0, start=START), "native.py": NATIVE, "wrapper.py": WRAPPER}
    texts = check_files(files, device="cpu")
    check(texts, "first.py")
    assert texts["native.py"] == NATIVE.lstrip("\n")
    assert run_files(tmp_path, texts, "first.py") == weights(0)
    assert run_files(tmp_path, texts, "native.py") == 1


@pytest.mark.parametrize(
    "call", ["again.step()", "held['it'].step()", "stepped(optimizer)"], ids=["a name", "a mapping", "a function"]
)
def test_a_step_of_the_wrapper_by_another_name_is_a_step_of_the_program(call: str) -> None:
    source = PROGRAM.format(seed=0, start=START).replace("        optimizer.step()\n", f"        {call}\n")
    source = source.replace(
        "\n\n\ndef train",
        "\nagain = optimizer\nheld = {'it': optimizer}\n\n\ndef stepped(x):\n    x.step()\n\n\ndef train",
        1,
    )
    results = rewrite_files({"first.py": source, "native.py": NATIVE, "wrapper.py": WRAPPER}, device="cpu")
    after = results["first.py"].after
    assert after is None or (".step(again)" in after or ".step(held['it'])" in after or ".step(x)" in after)
