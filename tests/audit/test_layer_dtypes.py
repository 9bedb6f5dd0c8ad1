"""What the last layers of a network give in a region: float32 is told of nowhere, and what O1 ran in it is told once (AMP535)."""

from __future__ import annotations

import textwrap

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts

PROGRAM = """
from functools import partial
import torch
import torch.nn as nn
import torch.nn.functional as F
from apex import amp

ACTIVATIONS = {"gelu": F.gelu, "quick": F.gelu}

class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.scale = nn.Parameter(torch.ones([]))

    def forward(self, x):
        return self.weight * (x - x.mean(-1, keepdim=True))

class Scale(Norm):
    def forward(self, x):
        return self.scale * x

class Net(nn.Module):
    def __init__(self, norm_layer=nn.LayerNorm, act="gelu"):
        super().__init__()
        norm = norm_layer or partial(nn.LayerNorm, eps=1e-6)
        self.body = nn.Linear(4, 8)
        self.norm = norm_layer(8)
        self.chosen = norm(8)
        self.plain = nn.LayerNorm(8)
        self.own = Norm(8)
        self.scaled = Scale(8)
        self.stack = nn.ModuleList([nn.LayerNorm(8) for _ in range(3)])
        self.heads = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.gelu = nn.GELU()
        self.act = ACTIVATIONS[act]

    def forward(self, x):
        x = self.body(x)
FORWARD

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
for x, y in loader:
    output = model(x)
    total = output.norm(dim=1)
"""


def found(forward: str, level: str = "O1") -> list[Doubt]:
    before = PROGRAM.replace("LEVEL", level).replace("FORWARD", textwrap.indent(forward, " " * 8))
    after = before.replace("from apex import amp\n", "")
    after = after.replace(f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")\n', "")
    after = after.replace(
        "    output = model(x)", '    with torch.autocast("cuda", dtype=torch.float16):\n        output = model(x)'
    )
    return [d for d in doubts(before, after) if d.code == "AMP535"]


def last(forward: str, level: str = "O1") -> list[str]:
    """What is said of the value that leaves the region."""
    return [d.message for d in found(forward, level) if "output.norm" in d.message]


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize(
    "forward",
    [
        "return self.norm(x)",
        "return self.chosen(x)[:, 0]",
        "return self.own(x)",
        "for layer in self.stack:\n    x = layer(x)\nreturn x",
        "x = self.act(self.plain(x))\nreturn x",
    ],
)
def test_what_ends_in_a_norm_is_float32(forward: str, level: str) -> None:
    assert not last(forward, level)


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize(
    "forward",
    [
        "return x",
        "return self.scaled(x)",  # a number promotes nothing
        "for layer in self.heads:\n    x = layer(x)\nreturn x",
        "return self.act(x)",
        "return self.gelu(x)",
    ],
)
def test_what_is_half_is_told(forward: str, level: str) -> None:
    (message,) = last(forward, level)
    assert "float16" in message


def narrow(forward: str, level: str = "O1") -> list[str]:
    return [d.message.partition(":")[0] for d in found(forward, level) if "O1 computed" in d.message]


@pytest.mark.parametrize(
    ("forward", "told"),
    [
        ("x = F.gelu(x)\nreturn self.plain(F.gelu(x))", "F.gelu(x)"),  # once a file
        ("return self.plain(self.gelu(x))", "self.gelu(x)"),
        ("act = F.gelu\nreturn self.plain(act(x))", "act(x)"),  # which is patched by then
        ("return self.plain(x / x.std(1, keepdim=True))", "x.std(1, keepdim=True)"),
        ("return self.plain(F.grid_sample(x, F.affine_grid(x, [1])))", "F.grid_sample(x, F.affine_grid(x, [1]))"),
    ],
)
def test_what_o1_ran_in_float32_is_told_where_it_is_half(forward: str, told: str) -> None:
    assert narrow(forward) == [told]
    assert not narrow(forward, "O2")
    (doubt,) = [d for d in found(forward) if "O1 computed" in d.message]
    assert (doubt.verdict, doubt.told_by) == ("look", ("AMP508",))


def test_a_function_that_was_kept_before_apex_patched_torch_ran_in_half() -> None:
    """At import, in a dictionary, or where the model is made."""
    assert not narrow("return self.plain(self.act(x))")
    assert not narrow("return self.plain(ACTIVATIONS['gelu'](x))")


@pytest.mark.parametrize(
    "forward",
    [
        "return F.gelu(self.plain(x))",
        "return F.grid_sample(x, self.plain(x))",  # runs in the wider of the two
        "return F.local_response_norm(x, 2)",
        "return F.gelu(x.float())",
    ],
)
def test_of_float32_it_says_nothing(forward: str) -> None:
    assert not narrow(forward)


def test_a_product_of_what_another_product_gives_is_told_too() -> None:
    forward = (
        "x = self.plain(x)\ny = torch.einsum('ij,ij->i', x, x)\nz = torch.einsum('i,ij->j', y, x)\nreturn self.plain(z)"
    )
    told = [d.line for d in found(forward) if "did not patch" in d.message]
    assert len(told) == 2
    assert not [d for d in found(forward, "O2") if "did not patch" in d.message]
    half = "y = torch.einsum('ij,ij->i', x, x)\nreturn self.plain(torch.einsum('i,ij->j', y, x))"
    assert not [d for d in found(half) if "did not patch" in d.message]  # O1 ran it in half as well


def test_what_einsum_gave_in_float32_leaves_as_half() -> None:
    (message,) = last("x = self.plain(x)\nreturn torch.einsum('ij,ij->i', x, x)")
    assert "Apex had it in float32" in message


def test_each_line_of_a_function_is_told() -> None:
    before = PROGRAM.replace("LEVEL", "O1").replace("FORWARD", "        return x")
    more = "    total = output.norm(dim=1)\n    again = output.norm(dim=1)\n"
    before = before.replace("    total = output.norm(dim=1)\n", more)
    after = before.replace('model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n', "")
    after = after.replace(
        "    output = model(x)", '    with torch.autocast("cuda", dtype=torch.float16):\n        output = model(x)'
    )
    assert len([d for d in doubts(before, after) if "output.norm" in d.message]) == 2


@pytest.mark.parametrize(
    ("method", "told"), [("return self.body(x)", 0), ("return self(x) * 2", 1), ("return self.forward(x)", 1)]
)
def test_o2_patched_the_forward_alone(method: str, told: int) -> None:
    before = PROGRAM.replace("LEVEL", "O2").replace(
        "FORWARD", f"        return x\n\n    def infer(self, x):\n        {method}"
    )
    before = before.replace("output = model(x)", "output = model.infer(x)").replace(
        "output.norm(dim=1)", "torch.sigmoid(output)"
    )
    after = before.replace('model, optimizer = amp.initialize(model, optimizer, opt_level="O2")\n', "")
    region = '    with torch.autocast("cuda", dtype=torch.float16):\n        output = model.infer(x)'
    after = after.replace("    output = model.infer(x)", region)
    assert len([d for d in doubts(before, after) if d.code == "AMP535"]) == told


MARGIN = """
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    {imports}

    class Margin(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(8, 4)
            self.register_buffer("t", {buffer})

        def forward(self, x, y):
            cosine = self.out(x)
            hard = cosine > 0.5
            cosine[hard] = cosine[hard] * (self.t + cosine[hard])
            return F.cross_entropy(cosine, y)

    model = Margin().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {set_up}
    for x, y in loader:
        {region}
            loss = model(x, y)
        {step}
"""


@pytest.mark.parametrize(("buffer", "told"), [("torch.zeros(1)", 1), ("torch.tensor(0.0)", 0)])
def test_a_buffer_was_half_under_o2_and_makes_what_it_meets_float32_now(buffer: str, told: int) -> None:
    """A masked assignment takes its own dtype alone; a buffer without dimensions makes nothing float32."""
    before = MARGIN.format(
        imports="from apex import amp",
        buffer=buffer,
        set_up='model, optimizer = amp.initialize(model, optimizer, opt_level="O2")',
        region="if True:",
        step="with amp.scale_loss(loss, optimizer) as s: s.backward()\n        optimizer.step()",
    )
    after = MARGIN.format(
        imports="",
        buffer=buffer,
        set_up="scaler = torch.amp.GradScaler()",
        region='with torch.autocast("cuda", dtype=torch.float16):',
        step="scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()",
    )
    found = [d for d in doubts(textwrap.dedent(before), textwrap.dedent(after)) if d.code == "AMP542"]
    assert [d.verdict for d in found] == ["refuse"] * told
    assert all("a masked assignment takes no part in autocast" in d.message for d in found)


@pytest.mark.parametrize(
    ("layer", "given"), [("LayerNorm(8)", "x"), ("Softmax(1)", "self.body(x)"), ("Embedding(4, 8)", "x")]
)
def test_what_o2_computed_in_half_within_the_model_was_no_float32(layer: str, given: str) -> None:
    """Its weights were half, and what a method gives that is not its forward came as it was."""
    text = """
    import torch
    import torch.nn as nn
    from apex import amp

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 8)
            self.layer = nn.LAYER

        def encode(self, x):
            return self.layer(GIVEN)

        def forward(self, x):
            return self.layer(GIVEN)

    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    for x, y in loader:
        out = RUN
        near = out @ out.t()
    """
    text = text.replace("LAYER", layer).replace("GIVEN", given)
    after = text.replace("    from apex import amp\n", "").replace(
        '    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")\n', ""
    )
    after = after.replace(
        "        out = RUN\n        near",
        '        with torch.autocast("cuda", dtype=torch.float16):\n            out = RUN\n            near',
    )

    def said(run: str) -> bool:
        return any("matmul" in d.message for d in doubts(text.replace("RUN", run), after.replace("RUN", run)))

    assert said("model(x)")
    assert not said("model.encode(x)")
