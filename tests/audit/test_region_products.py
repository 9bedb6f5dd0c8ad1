"""What is computed in half in a region beside the models: products, reductions, what O1 did not patch: AMP535."""

from __future__ import annotations

import pytest
import torch

from amp_migrate.audit import Doubt, dtypes
from tests.audit.helpers import doubts

PROGRAM = """
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F
from apex import amp

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 2)
        self.norm = nn.LayerNorm(2)

    def forward(self, x):
        FORWARD

HELPERS

def main(args, loader):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    INITIALIZE
    for x, y in loader:
        REGION:
            output = model(x)
            INSIDE
        AFTER
        STEP

parser = argparse.ArgumentParser()
parser.add_argument("--opt_level", OPTION)
main(parser.parse_args(), loader)
"""
STEP = "with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()\n        optimizer.step()"
STEP_NOW = "scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()"


def found(
    level: str,
    inside: str,
    after: str = "pass",
    helpers: str = "",
    forward: str = "return self.body(x)",
    option: str = 'default="O1"',
    code: str = "AMP535",
) -> list[Doubt]:
    """The doubts of a program whose loop does `inside` in the region and `after` behind it."""
    inside = inside.replace("\n", "\n            ")
    whole = PROGRAM.replace("HELPERS", helpers).replace("INSIDE", inside).replace("AFTER", after)
    whole = whole.replace("OPTION", option)
    whole = whole.replace("FORWARD", forward.replace("\n", "\n        "))
    asked = level if "." in level else f'"{level}"'
    initialize = f"model, optimizer = amp.initialize(model, optimizer, opt_level={asked})"
    before = whole.replace("INITIALIZE", initialize).replace("REGION", "if True").replace("STEP", STEP)
    now = whole.replace("INITIALIZE", "scaler = torch.amp.GradScaler()").replace("STEP", STEP_NOW)
    now = now.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16)').replace(
        "from apex import amp\n", ""
    )
    now = "\n".join(line for line in now.split("\n") if not line.startswith("amp."))
    return [d for d in doubts(before, now) if d.code == code]


CONTRAST = """
class Contrast(nn.Module):
    def forward(self, a, b, y):
        return F.cross_entropy(PRODUCT, y)
"""


@pytest.mark.parametrize(
    ("inside", "helpers"),
    [
        ("loss = F.cross_entropy(output @ output.t(), y)", ""),
        ("loss = F.cross_entropy(output.mm(output.t()), y)", ""),
        ("loss = F.cross_entropy(torch.einsum('nc,mc->nm', output, output), y)", ""),
        ("loss = Contrast()(output, output, y)", CONTRAST.replace("PRODUCT", "torch.mm(a, b.t())")),
        ("loss = Contrast()(output, output, y)", CONTRAST.replace("PRODUCT", "F.linear(F.normalize(a), b)")),
        (
            "unit = output / output.norm(dim=1)\nloss = dot(unit)",
            "def dot(v):\n    return torch.matmul(v, v.t()).mean()",
        ),
    ],
)
def test_products_outside_of_the_model_were_float32_under_o2(inside: str, helpers: str) -> None:
    (doubt,) = [d for d in found("O2", inside, helpers=helpers) if "outside of the model" in d.message]
    assert doubt.verdict == "review"
    assert not found("O1", inside, helpers=helpers)  # which ran them in half, too, or takes einsum's half as it is
    (doubt,) = [d for d in found("args.opt_level", inside, helpers=helpers) if "outside of the model" in d.message]
    assert doubt.verdict == "look"
    assert doubt.message.startswith("where the opt level asked for is O2 or O3")


@pytest.mark.parametrize("option", ['default="O2"', 'default="O2", choices=["O1", "O2"]'])
def test_products_where_o2_is_what_is_usual_are_told_as_such(option: str) -> None:
    loss = "loss = F.cross_entropy(output @ output.t(), y)"
    (doubt,) = found("args.opt_level", loss, option=option)
    assert doubt.verdict == "review"
    assert "where the opt level asked for is O2 or O3: output @ output.t()" in doubt.message
    assert not found("args.opt_level", loss, option='default="O1", choices=["O0", "O1"]')


def test_a_layer_of_a_criterion() -> None:
    head = (
        "class Head(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.out = nn.Linear(2, 9)\n\n"
        "    def forward(self, v, y):\n        return F.cross_entropy(self.out(v), y)\n"
    )
    (doubt,) = found("O2", "loss = Head()(output, y)", helpers=head)
    assert "Linear outside of the model" in doubt.message
    assert not found("O2", "loss = Head()(y, y)", helpers=head)  # nothing that the model gave


DOT = "def dot(v, other, scale=1.0):\n    return F.cross_entropy(scale * v @ other.t(), other[:, 0].long())\n\n"


@pytest.mark.parametrize(
    ("bound", "call"),
    [
        ("partial(dot, scale=0.1)", "score(output, output)"),
        ("functools.partial(dot, torch.ones(3, 2))", "score(output)"),
        ("dot", "score(output, output)"),
    ],
)
def test_products_of_a_function_that_is_bound_to_a_part_of_its_arguments(bound: str, call: str) -> None:
    helpers = f"import functools\nfrom functools import partial\n\n{DOT}score = {bound}\n"
    (doubt,) = found("O2", f"loss = {call}", helpers=helpers)
    assert "v @ other.t(): what model gives was float32" in doubt.message
    assert not found("O1", f"loss = {call}", helpers=helpers)


def test_what_a_network_under_a_head_gives() -> None:
    """It ends in a normalization: float32, in a region as well. O2 patched the forward of the whole: a part gave half there."""
    assert not found("O1", "hidden = model.bert(x)[0]\nloss = F.mse_loss(hidden, y)", "save(hidden.cpu().numpy())")
    product = "\nloss = F.cross_entropy(hidden @ hidden.t(), y)"
    for run in ("model.bert(x)[0]", "model.encoder(x)", "model.bert.forward(x)[0]", "model.encode(x)"):
        assert not found("O2", f"hidden = {run}{product}", option="default='O2'")
    (doubt,) = found("O2", f"hidden = model.module(x){product}")
    assert "what model.module gives was float32, and matmul outside of the model" in doubt.message


def test_losses_that_autocast_runs_in_float32() -> None:
    for level in ("O1", "O2", "args.opt_level"):
        assert not found(level, "loss = F.cross_entropy(output, y)")
        assert not found(level, "loss = torch.logsumexp(output, dim=1).sum()")
        assert not found(level, "loss = nn.MSELoss()(F.interpolate(output, scale_factor=2, mode='linear'), y)")


@pytest.mark.parametrize(
    "operation", ["torch.sigmoid(output)", "output.sigmoid()", "output.std(0)", "map(F.logsigmoid, [output])"]
)
def test_what_autocast_leaves_in_half(operation: str) -> None:
    loss = "\nloss = F.cross_entropy(output, y)"
    (doubt,) = found("O2", f"p = {operation}{loss}")
    assert "float16 in the autocast region" in doubt.message
    (doubt,) = [d for d in found("args.opt_level", f"p = {operation}{loss}") if not d.message.startswith(operation)]
    assert doubt.verdict == "look"  # beside what O1 ran in float32
    assert not found("O2", f"p = {operation.replace('output', 'output.float()')}{loss}")


@pytest.mark.parametrize("after", ["p = torch.sigmoid(output)", "output.sigmoid_()", "s = output @ output.t()"])
def test_an_opt_level_of_the_command_line_may_be_o2(after: str) -> None:
    loss = "loss = F.cross_entropy(output, y)"
    (doubt,) = found("args.opt_level", loss, after)
    assert doubt.verdict == "look"
    assert doubt.message.startswith("where the opt level asked for is O2 or O3")
    (doubt,) = found("O2", loss, after)
    assert doubt.verdict == "review"
    assert not found("O1", loss, after)
    for level in ("args.opt_level", "O2"):
        assert not found(level, loss, after.replace("output", "output.float()"))


UNPATCHED = [
    "return torch.einsum('nc,mc->nm', unit, unit)",
    "return torch.einsum('nc,mc->nm', [unit, self.norm(x)])",
    "return F.scaled_dot_product_attention(unit, unit, unit)",
    "return torch.tensordot(unit, unit.t(), dims=1)",
    "import opt_einsum\nreturn opt_einsum.contract('nc,mc->nm', unit, unit)",
]


@pytest.mark.parametrize("product", UNPATCHED)
def test_what_o1_did_not_patch(product: str) -> None:
    loss = "loss = F.cross_entropy(output, y)"
    (doubt,) = found("O1", loss, forward=f"unit = F.normalize(self.body(x))\n{product}")
    assert "O1 did not patch" in doubt.message
    assert not found("O2", loss, forward=f"unit = F.normalize(self.body(x))\n{product}")  # it ran the model in half
    assert not found("O1", loss, forward=f"unit = self.body(x)\n{product.replace('self.norm(x)', 'unit')}")
    assert not found("O1", loss, forward="unit = F.normalize(self.body(x))\nreturn unit @ unit.t()")  # patched


SOMETIMES = "unit = self.body(x)\nif self.normed:\n    unit = F.normalize(unit)\n"


@pytest.mark.parametrize("product", UNPATCHED)
def test_what_o1_did_not_patch_of_what_was_float32_on_one_way_and_half_on_another(product: str) -> None:
    loss = "loss = F.cross_entropy(output, y)"
    product = product.replace("self.norm(x)", "unit")
    (doubt,) = found("O1", loss, forward=f"{SOMETIMES}{product}")
    assert "O1 did not patch" in doubt.message
    assert "may have been float32" in doubt.message
    assert doubt.verdict == "review"
    assert not found("O2", loss, forward=f"{SOMETIMES}{product}")
    assert not found("O1", loss, forward=f"{SOMETIMES.replace('F.normalize(unit)', 'self.body(unit)')}{product}")


def test_beside_what_is_float32_on_every_way_it_ran_in_that() -> None:
    """Half and float32 together raise there: only the way with float32 was run."""
    loss = "loss = F.cross_entropy(output, y)"
    (doubt,) = found("O1", loss, forward=f"{SOMETIMES}return torch.einsum('nc,mc->nm', [unit, self.norm(x)])")
    assert "its arguments were float32" in doubt.message
    assert not found("O1", loss, forward=f"{SOMETIMES}return torch.einsum('nc,mc->nm', [unit, self.body(x)])")


def test_a_product_beside_the_model_of_what_it_gave_in_float32_on_some_way() -> None:
    """O1 is spoken of by itself, not only the levels that give all in float32; an entry of a tuple that holds one is one."""
    product = "loss = F.cross_entropy(torch.einsum('nc,mc->nm', output, output), y)"
    one, other = sorted(d.message for d in found("args.opt_level", product, forward=f"{SOMETIMES}return unit"))
    assert "its arguments may have been float32" in one
    assert other.startswith("where the opt level asked for is O2 or O3")
    both = "outputs = (self.body(x), self.norm(x))"
    for place, told in (("i", "may have been"), ("1", "were")):
        forward = f"{both}\ni = pick(x)\nreturn torch.einsum('nc,mc->nm', outputs[{place}], outputs[{place}])"
        (doubt,) = found("O1", "loss = F.cross_entropy(output, y)", forward=forward)
        assert f"its arguments {told} float32" in doubt.message


@pytest.mark.parametrize(
    ("inside", "after"),
    [
        ("p = torch.sigmoid(torch.einsum('nc,mc->nm', output, output))", "pass"),
        ("p = torch.einsum('nc,mc->nm', output, output)", "seen = torch.sigmoid(p)"),
        ("p = torch.einsum('nc,mc->nm', output, output)", "seen = p.detach().numpy()"),
        ("p = torch.einsum('nc,mc->nm', output, output)", "torch.save(p, 'seen.pt')"),
    ],
)
def test_what_comes_of_such_a_product_may_have_been_float32(inside: str, after: str) -> None:
    loss = "\nloss = F.cross_entropy(output, y)"
    told = [d.message for d in found("O1", inside + loss, after, forward=f"{SOMETIMES}return unit")]
    assert any("Apex may have " in m and " it in float32" in m for m in told)
    assert not [m for m in told if "Apex had" in m or "Apex gave" in m]


def test_what_the_program_had_apex_patch_itself() -> None:
    forward = "unit = F.normalize(self.body(x))\nreturn torch.einsum('nc,mc->nm', unit, unit)"
    loss = "loss = F.cross_entropy(output, y)"
    assert not found("O1", loss, helpers='amp.register_half_function(torch, "einsum")', forward=forward)
    assert len(found("O1", loss, helpers='amp.register_half_function(torch, "bmm")', forward=forward)) == 1


def test_the_tables_are_those_of_the_torch_installed() -> None:
    names = {"multi_dot": "linalg_multi_dot", "vecdot": "linalg_vecdot"}
    for name in dtypes.HALF_NATIVE | dtypes.FLOAT_NATIVE | dtypes.HALF_BOTH:
        overloads = [
            n for n in torch._C._dispatch_get_all_op_names() if n.split(".")[0] == f"aten::{names.get(name, name)}"
        ]
        assert any(torch._C._dispatch_has_kernel_for_dispatch_key(n, "AutocastCUDA") for n in overloads), name


@pytest.mark.parametrize("default", ["O2", "O1"])
def test_what_is_float32_now_was_so_under_o2_whatever_the_model_computed(default: str) -> None:
    """A product of a function that is handed it: O2 cast what the model gave, whichever dtype that had."""
    helper = "def shaping(maps, kernel):\n    return F.conv2d(maps, kernel.cuda()).sum()\n"
    forward = "return F.softmax(x, 1)"
    options = {"option": f'default="{default}"', "helpers": helper, "forward": forward}
    told = [d.message for d in found("args.opt_level", "loss = shaping(output, y)", **options)]
    expected = "where the opt level asked for is O2 or O3: F.conv2d(maps, kernel.cuda()): what model gives was float32"
    assert any(m.startswith(expected) for m in told)


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize(
    ("inside", "forward"),
    [
        ("loss = model(x.double()).sum()", "return self.body(x)"),
        ("z = x.to(torch.float64).cuda()\nloss = model(z).sum()", "return self.body(x.view(-1, 4))"),
        ("loss = model(x).sum()", "return self.body(x.double())"),
        ("loss = (x.double() @ output.t()).sum()", "return self.body(x)"),
    ],
)
def test_float64_that_meets_half_is_told(level: str, inside: str, forward: str) -> None:
    (doubt,) = found(level, inside, forward=forward, code="AMP544")
    assert "autocast leaves alone" in doubt.message
    assert doubt.verdict == "review"


DATA = """
import numpy as np
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __getitem__(self, index):
        MADE
"""


@pytest.mark.parametrize(
    ("made", "inside"),
    [
        ("return np.zeros((3, 4)), 0", "loss = model(x).sum()"),
        ("return np.zeros((3, 4)), 0", "loss = model(x.cuda().view(-1, 4) / 2).sum()"),
        ("x = np.random.randn(3, 4) * 2\nreturn torch.from_numpy(x).unsqueeze(0), 0", "loss = model(x).sum()"),
        ("return np.array(self.rows[index], dtype=float), 0", "loss = model(x).sum()"),
        ("x = self.rows[index].astype(np.float64)\nreturn x, 0", "loss = model(x).sum()"),
        ("return torch.tensor(np.zeros(4, 'float64')), 0", "loss = model(torch.autograd.Variable(x)).sum()"),
    ],
)
@pytest.mark.parametrize("loop", ["DataLoader(Images())", "loader"])
def test_float64_of_a_data_set_that_meets_half_is_told(made: str, inside: str, loop: str) -> None:
    helpers = DATA.replace("MADE", made.replace("\n", "\n        "))
    helpers += "\nimages = DataLoader(dataset=Images(), batch_size=2)\n"
    inside = f"for x, y in {loop.replace('loader', 'images')}:\n    {inside}"
    (doubt,) = found("O1", inside, helpers=helpers, code="AMP544")
    assert "autocast leaves alone" in doubt.message
    for given in ("model(x)", "x.cuda().view(-1, 4) / 2"):
        cast = inside.replace(given, "model(x.float())" if "model" in given else "x.cuda().float()")
        assert cast == inside or not found("O1", cast, helpers=helpers, code="AMP544")
    narrowed = (
        helpers.replace(", 0", ".astype(np.float32), 0")
        if "torch" not in made
        else helpers.replace(", 0", ".float(), 0")
    )
    assert not found("O1", inside, helpers=narrowed, code="AMP544")


@pytest.mark.parametrize(
    "made",
    [
        "return np.zeros((3, 4), dtype=np.float32), 0",
        "return np.zeros((3, 4), np.float32), 0",
        "return torch.FloatTensor(np.zeros((3, 4))), 0",
        "return np.random.randn(3, 4).astype('float32'), 0",
        "x = np.zeros((3, 4))\nif index:\n    x = self.transform(x)\nreturn x, 0",
        "return np.full((3, 4), 1), np.zeros(3)",
    ],
)
def test_what_a_data_set_makes_float32_or_is_not_seen_is_not_told(made: str) -> None:
    helpers = DATA.replace("MADE", made.replace("\n", "\n        "))
    inside = "for x, y in enumerate(DataLoader(Images())):\n    loss = model(y[0]).sum()"
    assert not found("O1", inside, helpers=helpers, code="AMP544")
    assert found("O1", inside, helpers=DATA.replace("MADE", "return np.zeros(3), 0"), code="AMP544")
    joined = inside.replace("Images()", "Images(), collate_fn=joined")
    assert not found("O1", joined, helpers=DATA.replace("MADE", "return np.zeros(3), 0"), code="AMP544")


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize(
    ("inside", "forward"),
    [
        ("loss = model(x.double()).sum()", "return self.body(x.float())"),
        ("loss = (x.double() @ y.double().t()).sum()", "return self.body(x)"),
        ("loss = (output - y.double()).pow(2).sum()", "return self.body(x)"),
    ],
)
def test_float64_alone_stays_so_and_is_no_half(level: str, inside: str, forward: str) -> None:
    assert not found(level, inside, forward=forward, code="AMP544")
    assert not [d for d in found(level, inside, forward=forward) if "float16 again" in d.message]
