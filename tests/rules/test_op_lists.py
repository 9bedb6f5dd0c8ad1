"""Operations that O1 kept in float32 and autocast does not (gelu, std, var) are named."""

from __future__ import annotations

import pytest
import torch

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import apex, found, initialize

LOOP = """
loss = {}(model(x)).mean()
with amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
optimizer.step()
"""


@pytest.mark.parametrize("name", ["torch.nn.functional.gelu", "torch.std", "torch.var", "torch.nn.GELU()"])
def test_an_operation_that_o1_upcast_is_named_once(name: str) -> None:
    (finding,) = found(rewrite(apex(LOOP.format(name), tail=f"{name}(model(x))")), "AMP508")
    assert finding.review == "as-is"
    assert "float32" in finding.message


def test_a_difference_is_promised_only_of_what_is_seen_to_be_half() -> None:
    (unsure,) = found(rewrite(apex(LOOP.format("torch.nn.functional.mse_loss"), tail="torch.std(spread(x))")), "AMP508")
    assert unsure.message.endswith("a small difference where that is half")


@pytest.mark.parametrize("level", ["O2", "O3"])
def test_o2_and_o3_upcast_nothing(level: str) -> None:
    source = apex(LOOP.format("torch.nn.functional.gelu"), initialize(f'opt_level="{level}"'))
    assert not found(rewrite(source), "AMP508")


@pytest.mark.parametrize("name", ["layer_norm", "local_response_norm"])
def test_operations_that_both_keep_in_float32_are_not_named(name: str) -> None:
    assert not found(rewrite(apex(LOOP.format(f"torch.nn.functional.{name}"))), "AMP508")


TRAIN = """
import torch
from apex import amp
from net import Net

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    with torch.no_grad():
        output = model(x)
    print(torch.nn.functional.gelu(output))
"""
NET = """
import numpy as np
import torch.nn as nn
import torch.nn.functional as F

ACTIVATIONS = {"relu": F.relu, HELD}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        x = self.body(x)
        return self.body(USED)
"""


def of_network(used: str, held: str = "") -> list[tuple[int, str]]:
    """What is said of a network in a file of its own, which nothing of Apex's stands in."""
    results = rewrite_files({"train.py": TRAIN, "net.py": NET.replace("USED", used).replace("HELD", held)})
    assert not found(results["train.py"], "AMP508")  # what is made float32 first
    return [(f.line, f.review) for f in found(results["net.py"], "AMP508")] if "net.py" in results else []


@pytest.mark.parametrize("used", ["F.gelu(F.gelu(x))", "x / x.std(1, keepdim=True)", "nn.GELU()(x)", "F.gelu(load(x))"])
def test_it_is_named_in_the_files_of_networks_too(used: str) -> None:
    assert of_network(used) == [(15, "as-is")]


def test_a_function_that_was_kept_before_apex_patched_torch_is_the_same_as_before() -> None:
    assert of_network("ACTIVATIONS['gelu'](x)", "'gelu': F.gelu") == []
    assert of_network("gelu(x)", "'x': x}\nfrom torch.nn.functional import gelu\nMORE = {") == []


def test_coordinates_of_half_precision_deserve_a_look() -> None:
    assert of_network("F.grid_sample(x, F.affine_grid(x, [1]))") == [(15, "look")]


@pytest.mark.parametrize("grid", ["load(x)", "self.warp(x, load(x))"])
def test_so_do_those_of_features_that_are_not_seen_to_be_float32(grid: str) -> None:
    """The features of a network come after a product, and a grid that is made with them is of their dtype."""
    assert of_network(f"F.grid_sample(load(x), {grid})") == [(15, "look")]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("return (x - x.mean(-1)) / x.std(-1)", [20]),
        ("y = x.var(-1)\n        return x + 1e-8 / x.mean() + torch.sqrt(y)", [20]),
        ("x = self.norm(x)\n        return x / x.std(-1)", []),
        ("y = load(x)\n        return x / y.std(-1)", []),
    ],
)
def test_so_does_what_a_network_computes_of_its_input(body: str, lines: list[int]) -> None:
    """A normalization of the program's own runs in half where the layer before it does."""
    more = f"\n\nclass Own(Net):\n    def forward(self, x):\n        {body}\n"
    results = rewrite_files({"train.py": TRAIN, "net.py": NET.replace("USED", "x").replace("HELD", "") + more})
    told = [(f.line, f.review) for f in found(results["net.py"], "AMP508")] if "net.py" in results else []
    assert told == [(line, "as-is") for line in lines]


@pytest.mark.parametrize(
    "used",
    [
        "F.gelu(self.norm(x))",
        "F.grid_sample(x, self.norm(x))",
        "x * np.float32(3).std()",
        "F.gelu(x.float())",
        "load(x).std()",
    ],
)
def test_of_float32_nothing_is_said(used: str) -> None:
    assert not of_network(used)


@pytest.mark.parametrize("leaving", ["return y", "raise ValueError(y)"])
def test_an_operation_that_nothing_comes_to_is_not_named(leaving: str) -> None:
    source = apex(LOOP.format("torch.nn.functional.relu"))
    function = f"\n\ndef shuffle(x, weight):\n    y = x.matmul(weight)\n    {leaving}\n    print(torch.nn.functional.gelu(y))\n"
    assert not found(rewrite(source + function), "AMP508")
    assert found(rewrite(source + function.replace(f"    {leaving}\n", "")), "AMP508")


WARP = """
class Warp(torch.nn.Module):
    def __init__(self, grid):
        super().__init__()
        self.register_buffer("grid", BUFFER)
        self.net = torch.nn.Conv2d(3, 2, 3, padding=1)

    def forward(self, x):
        flow = self.net(x)
        wide = self.grid + flow
        return torch.nn.functional.grid_sample(x, torch.stack((wide[:, 0], wide[:, 1]), dim=-1)).mean()

model = Warp(load()).cuda()
"""


@pytest.mark.parametrize(
    ("buffer", "told"),
    [
        ("torch.tensor(grid, dtype=torch.float32)", False),
        ("torch.zeros(1, 2, 4, 4)", False),
        ("torch.tensor(0.5, dtype=torch.float32)", True),  # without dimensions it makes nothing float32
        ("grid.half()", True),
    ],
)
def test_a_grid_that_a_buffer_makes_float32_is_not_named(buffer: str, told: bool) -> None:
    program = apex(LOOP.replace("{}(model(x)).mean()", "model(x)"))
    program = program.replace("optimizer =", f"{WARP.replace('BUFFER', buffer)}\noptimizer =", 1)
    assert "Warp" in program
    assert bool([f for f in found(rewrite(program), "AMP508") if "grid_sample" in f.message]) == told


@pytest.mark.parametrize(
    "body",
    [
        "return (x - x.mean(-1)) / torch.sqrt(x.var(-1) + 1e-8)",
        "y = x.var(-1, unbiased=False)\n        return (x - x.mean(-1)) * torch.rsqrt(y + self.eps)",
        "y = x.var(-1)\n        return x / y.sqrt()",
        "y = x.std(-1, keepdim=True)\n        return self.weight * (x - x.mean(-1)) / (y + 1e-8) + self.bias",
    ],
)
def test_what_a_normalization_divides_by_may_be_inf_or_nothing(body: str) -> None:
    """As it is in half: the difference is none of rounding."""
    more = f"\n\nclass Own(Net):\n    def forward(self, x):\n        {body}\n"
    results = rewrite_files({"train.py": TRAIN, "net.py": NET.replace("USED", "x").replace("HELD", "") + more})
    (told,) = found(results["net.py"], "AMP508")
    assert told.review == "look"
    assert ("a variance above 65504 is inf" in told.message) == ("var" in body)
    assert "an eps below 3e-8 is 0" in told.message
    assert "small" not in told.message


def test_half_has_no_such_numbers() -> None:
    assert torch.tensor([300.0, -300.0]).half().var().isinf()
    assert (torch.zeros(1).half() + 2.9e-8).item() == 0


KEPT = """
import torch
from torch.nn.functional import grid_sample


class Warp(torch.nn.Module):
    def __init__(self, opt):
        super().__init__()
        self.opt = opt

    def forward(self, x, grid):
        if ASKED:
            return torch.nn.functional.grid_sample(x.float(), grid.float()).half()
        else:
            return torch.nn.functional.grid_sample(x, grid)
"""
RUN = """
import torch
from apex import amp
from warp import Warp


def train(opt, loader):
    model = Warp(opt).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if opt.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, grid in loader:
        loss = model(x, grid).mean()
        if opt.fp16:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("asked", "told"),
    [("self.opt.fp16", False), ("self.opt.fp16 and x.is_cuda", True), ("self.opt.warps", True), ("self.fp16", True)],
)
def test_what_runs_where_no_set_up_is_is_not_named(asked: str, told: bool) -> None:
    results = rewrite_files({"warp.py": KEPT.replace("ASKED", asked), "train.py": RUN})
    assert bool(found(results["warp.py"], "AMP508")) == told if "warp.py" in results else not told


HOOKED = """
import torch
from apex import amp
from net import Net


class Statistics:
    def __init__(self, layer):
        {register}

    def keep(self, layer, given, output):
        features = given[0].shape[1]
        self.variance = given[0].permute(1, 0, 2, 3).contiguous().view([features, -1]).var(1)


model = Net().cuda()
kept = Statistics(model.norm)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y) + kept.variance.mean()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("register", "told"),
    [("layer.register_forward_hook(self.keep)", True), ("self.layer = layer", False)],
)
def test_what_a_forward_hook_is_given_are_features(register: str, told: bool) -> None:
    assert bool(found(rewrite(HOOKED.replace("{register}", register)), "AMP508")) is told
