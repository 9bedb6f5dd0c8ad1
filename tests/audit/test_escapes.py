"""Half values that leave a region into what Apex computed in float32: AMP535."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts

BEFORE = """
import numpy as np
import torch
import torch.nn.functional as F
from apex import amp

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
for x, y in loader:
    out = model(x)
    REST
"""
AFTER = """
import numpy as np
import torch
import torch.nn.functional as F

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(x)
    REST
"""


def found(level: str, rest: str, now: str | None = None) -> list[Doubt]:
    before = BEFORE.replace("LEVEL", level).replace("REST", rest)
    after = AFTER.replace("REST", rest if now is None else now)
    return [d for d in doubts(before, after) if d.code in ("AMP535", "AMP542")]


def test_what_o2_gave_in_float32() -> None:
    (doubt,) = found("O2", "p = torch.sigmoid(out)")
    assert doubt.verdict == "review"
    assert "torch.sigmoid(out)" in doubt.message


def test_what_was_cast_is_no_escape() -> None:
    assert not found("O2", "p = torch.sigmoid(out)", "p = torch.sigmoid(out.float())")


def test_o1_ran_sigmoid_in_half_too() -> None:
    assert not found("O1", "p = torch.sigmoid(out)")


def test_o1_ran_softmax_and_losses_in_float32() -> None:
    assert len(found("O1", "p = F.softmax(out, dim=1)")) == 1
    assert len(found("O1", "loss = F.cross_entropy(out, y)")) == 1
    assert len(found("O1", "p = torch.nn.Softmax(dim=1)(out)")) == 1


def test_a_method_softmax_was_half_under_o1() -> None:
    assert not found("O1", "p = out.softmax(1)")


def test_numpy_gets_float16() -> None:
    (doubt,) = found("O1", "p = out.detach().cpu().numpy()")
    assert "float16 array" in doubt.message


def test_indices_and_lists_are_the_same_either_way() -> None:
    assert not found("O2", "p = out.argmax(1).cpu().numpy()")
    assert not found("O2", "p = out.max(1)[1].cpu().numpy()")
    assert not found("O2", "p = out.cpu().numpy().tolist()")


def test_an_index_that_was_made_float() -> None:
    (doubt,) = found("O1", "p = out.argmax(1).cpu().numpy()", "p = out.argmax(1).float().cpu().numpy()")
    assert doubt.verdict == "refuse"
    assert "integers" in doubt.message


def test_a_float_that_the_program_wrote_itself_stays() -> None:
    assert not found("O1", "acc = out.argmax(1).float().mean()")


def test_a_half_scalar_that_is_scaled() -> None:
    rest = (
        "loss = out.sum()\n    with amp.scale_loss(loss, optimizer) as s:\n        s.backward()\n    optimizer.step()"
    )
    now = "loss = out.sum()\n    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()"
    (doubt,) = [d for d in found("O2", rest, now) if "32768" in d.message]
    assert doubt.verdict == "review"  # it trains, once the scale is so small


def test_a_loss_computed_in_the_region_is_float32() -> None:
    before = BEFORE.replace("LEVEL", "O1").replace("REST", "loss = F.cross_entropy(out, y)\n    total = loss.sum()")
    after = AFTER.replace("    REST", "        loss = F.cross_entropy(out, y)\n    total = loss.sum()")
    assert not [d for d in doubts(before, after) if d.code == "AMP535"]


def test_values_in_a_list_that_is_joined_later() -> None:
    rest = "outs.append(out)\nprobs = F.softmax(torch.cat(outs), dim=1)"
    (doubt,) = found("O1", rest)
    assert "softmax" in doubt.message


def test_a_helper_that_is_given_the_output() -> None:
    helper = "\n\ndef probabilities(logits):\n    return F.softmax(logits, dim=1)\n\n\nmodel = torch"
    before = BEFORE.replace("\nmodel = torch", helper, 1).replace("LEVEL", "O1").replace("REST", "probabilities(out)")
    after = AFTER.replace("\nmodel = torch", helper, 1).replace("REST", "probabilities(out)")
    (doubt,) = [d for d in doubts(before, after) if d.code == "AMP535"]
    assert "softmax(logits" in doubt.message


def test_an_in_place_operation_on_both_dtypes() -> None:
    (doubt,) = found("O1", "dist = torch.zeros(2, 2)\n    dist.addmm_(out, out.t())")
    assert doubt.verdict == "refuse"
    assert "addmm_" in doubt.message


def test_half_inputs_meet_float32_weights() -> None:
    before = (
        BEFORE.replace("LEVEL", "O2").replace("REST", "pass")
        + "\nfor x in test:\n    x = x.half()\n    print(model(x))\n"
    )
    after = AFTER.replace("REST", "pass") + "\nfor x in test:\n    x = x.half()\n    print(model(x))\n"
    (doubt,) = [d for d in doubts(before, after) if d.code == "AMP535"]
    assert doubt.verdict == "refuse"
    assert "raises" in doubt.message


def test_o1_resampled_in_float32() -> None:
    (doubt,) = found("O1", "p = F.interpolate(out, scale_factor=2, mode='bilinear')")
    assert "interpolate" in doubt.message
    (doubt,) = found("O1", "p = F.grid_sample(out, y)")
    assert "grid_sample" in doubt.message
    assert not found("O1", "p = F.interpolate(out, scale_factor=2)")  # copies of what is there
    assert not found("O1", "p = F.interpolate(out.float(), scale_factor=2, mode='bilinear')")


def test_resampled_in_the_wider_dtype_in_a_region() -> None:
    """Autocast promotes there: of float32 points, or of what is not known, nothing half comes."""
    now = "with torch.autocast('cuda', dtype=torch.float16):\n        p = F.grid_sample(GIVEN)"
    for given in (
        "out, torch.rand(1, 2, 2, 2)",
        "out.float(), out",
        "out, 2 * y - 1",
        "out, grid=torch.rand(1, 2, 2, 2)",
    ):
        assert not found("O2", f"p = F.grid_sample({given})", now.replace("GIVEN", given))
    (doubt,) = found("O2", "p = F.grid_sample(out, out)", now.replace("GIVEN", "out, out"))
    assert "grid_sample is computed in it" in doubt.message


@pytest.mark.parametrize("called", ["torch.sigmoid", "torch.nn.Sigmoid()", "torch.nn.Sequential(torch.nn.Sigmoid())"])
def test_a_sigmoid_in_a_region_is_told_of_as_a_function_and_as_a_layer(called: str) -> None:
    for written in ("p = CALLED(GIVEN)", "act = CALLED\n        p = act(GIVEN)", "p = GIVEN if y else CALLED(GIVEN)"):
        written = written.replace("CALLED", called)
        before = written.replace("GIVEN", "out").replace("\n        ", "\n    ")
        now = f"with torch.autocast('cuda', dtype=torch.float16):\n        {written}"
        (doubt,) = found("O2", before, now.replace("GIVEN", "out"))
        assert "sigmoid is computed in it" in doubt.message
        assert not found("O2", before, now.replace("GIVEN", "out.float()"))


def test_through_a_list_of_lambdas() -> None:
    flips = "for flip in (lambda v: v, lambda v: torch.rot90(v, 1, (2, 3))):\n        "
    (doubt,) = found("O1", flips + "p = F.interpolate(flip(out), scale_factor=2, mode='bilinear')")
    assert "interpolate" in doubt.message
    assert not found("O1", "count = lambda v: v.argmax(1)\n    p = F.softmax(count(out), dim=1)")


RANKING = """
    import torch
    from torch import nn
    {imports}

    class Ranker(nn.Module):
        def __init__(self, margin=0.2):
            super().__init__()
            self.out = nn.Linear(4, 2)
            self.margin = margin

        @classmethod
        def load(cls, path):
            model = cls()
            model.load_state_dict(torch.load(path))
            return model

        def forward(self, x):
            scores = torch.sigmoid(self.out(x))
            {loss}

    model = Ranker.load("x.pt").cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {set_up}
    for x in loader:
        {region}
            loss = model(x)
            loss = {mean}
        {step}
"""


def ranked(level: str, loss: str, mean: str) -> list[str]:
    before = RANKING.format(
        imports="from apex import amp",
        set_up=f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")',
        region="if True:",
        step="with amp.scale_loss(loss, optimizer) as s: s.backward()\n        optimizer.step()",
        loss=loss,
        mean=mean,
    )
    after = RANKING.format(
        imports="",
        set_up='scaler = torch.amp.GradScaler("cuda")',
        region='with torch.autocast("cuda", dtype=torch.float16):',
        step="scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()",
        loss=loss,
        mean=mean,
    )
    return [d.verdict for d in doubts(before, after) if d.code == "AMP535" and "32768" in d.message]


@pytest.mark.parametrize(
    ("level", "loss", "mean", "verdicts"),
    [
        ("O2", "return torch.clamp(self.margin + scores[:, 1:] - scores[:, :1], 0)", "loss.mean()", ["review"]),
        ("O2", "return scores[:, 0]", "loss.mean() / 2", ["review"]),
        ("O3", "return scores[:, 0]", "loss.max()", ["review"]),
        # O1 scaled half losses too; what sums, or is cast, is float32
        ("O1", "return scores[:, 0]", "loss.mean()", []),
        ("O2", "return scores[:, 0]", "loss.sum()", []),
        ("O2", "return scores[:, 0]", "loss.float().mean()", []),
        ("O2", "return nn.functional.mse_loss(scores, x)", "loss.mean()", []),
        ("O2", "return self.margin * x[:, 0]", "loss.mean()", []),
    ],
)
def test_a_half_loss_of_the_models_own(level: str, loss: str, mean: str, verdicts: list[str]) -> None:
    assert ranked(level, loss, mean) == verdicts


@pytest.mark.parametrize("made", ['Tagger.load("x.pt")', "Tagger()"])
def test_a_model_that_gives_its_outputs_or_its_loss_and_more(made: str) -> None:
    program = """
    import torch
    from torch import nn
    {imports}

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 2)

        @classmethod
        def load(cls, path):
            return cls()

        def forward(self, x, y=None, more=False):
            logits = self.out(x)
            if y is not None:
                loss = nn.CrossEntropyLoss()(logits, y)
                if more:
                    return loss, x
                return loss
            if more:
                return logits, x
            return logits

    model = {made}.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {set_up}
    for x in loader:
        {region}
            logits = model(x)
        print(torch.nn.functional.log_softmax(logits, dim=1).max())
    """
    set_up = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O2")'
    before = program.format(imports="from apex import amp", made=made, set_up=set_up, region="if True:")
    region = 'with torch.autocast("cuda", dtype=torch.float16):'
    after = program.format(imports="", made=made, set_up="pass", region=region)
    assert [d.verdict for d in doubts(before, after) if d.code == "AMP535"] == ["review"]


HANDED = """
import torch
import torch.nn.functional as F

def prepare(model, optimizer, HANDED=None):
    SETUP
    return model, optimizer

def train(model, optimizer, loader, fp16):
    IMPORT
    model, optimizer = prepare(model, optimizer, GIVEN)
    for x, y in loader:
        REGION
            out = model(x)
        chosen = F.log_softmax(out, dim=1)

train(torch.nn.Linear(4, 2).cuda(), optimizer, loader, True)
"""


@pytest.mark.parametrize(
    ("imported", "given"),
    [
        ("from apex import amp", "amp"),
        ("from apex import amp", "handed=amp"),
        ("import apex.amp as amp", "amp"),
        ("import apex", "apex.amp"),
        ("if fp16:\n        from apex import amp\n    else:\n        amp = None", "handed=amp"),
    ],
)
@pytest.mark.parametrize("asked", ["", "if handed is not None:\n        "])
def test_a_set_up_by_a_module_that_is_handed_on(imported: str, given: str, asked: str) -> None:
    set_up = f"{asked}model, optimizer = handed.initialize(model, optimizer, opt_level='O1')"
    before = HANDED.replace("HANDED", "handed").replace("SETUP", set_up).replace("IMPORT", imported)
    after = HANDED.replace("HANDED", "scaler").replace("SETUP", "pass").replace("IMPORT", "scaler = GradScaler('cuda')")
    before = before.replace("GIVEN", given).replace("REGION", "if True:")
    after = after.replace("GIVEN", "scaler").replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16):')
    assert [(d.line, d.code) for d in doubts(before, after) if d.code == "AMP535"] != []


def test_a_method_of_that_name_of_something_else_sets_nothing_up() -> None:
    set_up = "model, optimizer = handed.initialize(model, optimizer)"
    before = HANDED.replace("HANDED", "handed").replace("SETUP", set_up).replace("IMPORT", "import engine")
    before = before.replace("GIVEN", "engine").replace("REGION", "if True:")
    after = before.replace("if True:", 'with torch.autocast("cuda", dtype=torch.float16):')
    assert not [d for d in doubts(before, after) if d.code == "AMP535"]


HELD = """
import torch
from torch import nn
IMPORT

class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.line = nn.Linear(width, width)

    def forward(self, x):
        return self.line(torch.matmul(x.float(), x.float()))

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = LAYERS

    def forward(self, x):
        LOOP
        return x.sum()

model = Net(4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
SETUP
for x in loader:
    REGION
        loss = model(x)
"""


@pytest.mark.parametrize(
    ("layers", "loop"),
    [
        ("Layer(width)", "x = self.layers(x)"),
        ("nn.ModuleList([Layer(width) for _ in range(3)])", "for layer in self.layers:\n            x = layer(x)"),
        ("nn.ModuleList([Layer(width), Layer(width)])", "x = self.layers[1](x)"),
        (
            "nn.ModuleList((Layer(width), Layer(width)))",
            "for i, layer in enumerate(self.layers):\n            x = layer(x)",
        ),
        ('nn.ModuleDict({"one": Layer(width)})', 'x = self.layers["one"](x)'),
        ("nn.Sequential(nn.ReLU(), Layer(width))", "for layer in self.layers:\n            x = layer(x)"),
        ("nn.Sequential(nn.ReLU(), Layer(width))", "x = self.layers[1](x)"),
    ],
)
def test_layers_in_a_container_of_torchs_are_followed(layers: str, loop: str) -> None:
    program = HELD.replace("LAYERS", layers).replace("LOOP", loop)
    before = program.replace("IMPORT", "from apex import amp").replace("REGION", "if True:")
    before = before.replace("SETUP", 'model, optimizer = amp.initialize(model, optimizer, opt_level="O2")')
    after = program.replace("IMPORT", "").replace("SETUP", 'scaler = torch.amp.GradScaler("cuda")')
    after = after.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16):')
    assert [d.line for d in doubts(before, after) if d.code == "AMP535"] == [11]


def test_what_is_joined_with_float32_is_float32() -> None:
    assert found("O2", "both = torch.cat((out, out), 1)\n    p = torch.sigmoid(both)")
    assert not found("O2", "both = torch.cat((out, y.unsqueeze(1).float()), 1)\n    p = torch.sigmoid(both)")


KEEPS = """
import torch
from apex import amp

def train(model, optimizer, loader, buffer):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    for x, y in loader:
        out = model(x)
        means = MADE
        means[0] = torch.sigmoid(out)
        MORE
"""
KEEPS_NOW = """
import torch

def train(model, optimizer, loader, buffer):
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
        means = MADE
        means[0] = torch.sigmoid(out)
        MORE
"""


@pytest.mark.parametrize(
    ("made", "more", "told"),
    [
        ("torch.zeros(2)", "pass", False),
        ("torch.zeros(2)", "means[1] = y", False),
        ("torch.zeros(2)", "print(means)", True),
        ("torch.zeros(2)", "buffer[means] = y", True),
        ("torch.zeros(2)", "means[0] += 1\n        y = means[0]", True),
        ("buffer", "pass", True),  # somebody else's
        ("torch.zeros(2)", "later = lambda: means", True),
    ],
)
def test_what_nothing_reads_is_not_told(made: str, more: str, told: bool) -> None:
    before, after = (t.replace("MADE", made).replace("MORE", more) for t in (KEEPS, KEEPS_NOW))
    assert bool([d for d in doubts(before, after) if d.code == "AMP535"]) is told
