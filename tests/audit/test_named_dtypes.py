"""A tensor that is made of the dtype of another, of a parameter's above all: what is written there by index is of that dtype
alone, and weights are float32 now (AMP542)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    IMPORT

    class Embed(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.layer = nn.Embedding(10, size)
            self.second = nn.Linear(size, size)
            self.norm = nn.LayerNorm(size)
            self.proj = nn.Parameter(torch.Tensor(size, size))

        def forward(self, x):
            half = self.second(self.layer(x))
            places = (x > 2).nonzero().squeeze(1)
            seen = x > 2
            BODY
            return flat

    model = Embed(8)
    SETUP
    for x, y in loader:
        loss = F.cross_entropy(model(x).float(), y)
        BACKWARD
        optimizer.step()
    """
SETUPS = {
    "O1": ("from apex import amp", 'model, optimizer = amp.initialize(model, make(model), opt_level="O1")'),
    "O2": ("from apex import amp", 'model, optimizer = amp.initialize(model, make(model), opt_level="O2")'),
    "half": ("from apex.fp16_utils import FP16_Optimizer", "optimizer = FP16_Optimizer(make(model.half()))"),
    "network": (
        "from apex.fp16_utils import FP16_Optimizer, network_to_half",
        "model = network_to_half(model)\n    optimizer = FP16_Optimizer(make(model))",
    ),
}
AFTER = PROGRAM.replace(
    "    loss = F", "    with torch.autocast('cuda', dtype=torch.float16):\n            loss = F"
).replace("optimizer.step()", "scaler.step(optimizer)\n        scaler.update()")
FLAT = "flat = torch.zeros(4, 8, dtype=next(self.parameters()).dtype)\n            "


def told(setup: str, body: str) -> list[tuple[str, str]]:
    imports, made = SETUPS[setup]
    scaled = "with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()"
    backward = scaled if "amp.initialize" in made else "optimizer.backward(loss)"
    before = PROGRAM.replace("IMPORT", imports).replace("SETUP", made).replace("BODY", body)
    new = "optimizer = make(model)\n    scaler = torch.amp.GradScaler('cuda')"
    after = AFTER.replace("    IMPORT\n", "").replace("SETUP", new).replace("BODY", body)
    found = doubts(before.replace("BACKWARD", backward), after.replace("BACKWARD", "scaler.scale(loss).backward()"))
    return [(d.code, d.verdict) for d in found if d.code in ("AMP542", "AMP535") and "no part in autocast" in d.message]


@pytest.mark.parametrize("setup", ["O2", "half", "network"])
@pytest.mark.parametrize(
    "flat",
    [
        FLAT,
        "dtype = self.proj.dtype\n            flat = torch.empty(4, 8, dtype=dtype)\n            ",
        "flat = torch.zeros(4, 8).to(self.second.weight.dtype)\n            ",
        "flat = torch.zeros(4, 8).to(dtype=self.norm.weight.dtype)\n            ",
        "flat = torch.zeros_like(x, dtype=[p.dtype for p in self.parameters()][0])\n            ",
        "flat = self.second.bias.new_zeros(4, 8)\n            ",
        "flat = torch.zeros(4, 8).type_as(self.proj)\n            ",
        "flat = self.norm(half).new_full((4, 8), 0)\n            ",
        "flat = torch.arange(32, dtype=self.proj.dtype).view(4, 8)\n            ",
    ],
)
def test_what_is_made_like_a_weight_is_float32_now(setup: str, flat: str) -> None:
    assert told(setup, f"{flat}flat.index_copy_(0, places, half)") == [("AMP542", "refuse")]


@pytest.mark.parametrize(
    "write",
    [
        "flat.index_add_(0, places, half)",
        "flat.scatter_add_(0, places[:, None].expand(-1, 8), half)",
        "flat.lerp_(half, 0.5)",
        "flat.lerp_(end=half, weight=0.5)",
        "flat[places] = half",
        "flat[places.to(x.device)] = half",
        "flat[[0, 1]] = half",
        "flat[:, half.topk(2).indices] = half",
        "flat[torch.arange(4), x] = half[:, 0]",
        "flat[seen] = half",
        "flat[seen.view(-1)] = half",
        "flat[places] = half.mean()",
        "half[places] += self.proj * flat",
        "half[seen] = flat",
    ],
)
def test_writes_of_another_dtype_are_told(write: str) -> None:
    assert told("half", FLAT + write) == [("AMP542", "refuse")]


@pytest.mark.parametrize(
    "write",
    [
        "flat.index_copy_(0, places, half.to(flat.dtype))",
        "flat.index_copy_(0, places, half.type_as(flat))",
        "flat.index_copy_(0, places, half.to(self.proj))",
        "flat.copy_(half)",
        "flat[0] = half[0]",
        "flat[places[0]] = half[0]",
        "flat[:2] = half",
        "flat[seen] = half.mean()",
        "flat[places] += half",
        "flat[int(y[0])] = half[0]",
        "for row in range(4):\n                flat[row] = half[row]",
        "row = 0\n            while row < 4:\n                flat[row] = half[row]\n                row += 1",
        "for row, item in enumerate(half):\n                flat[row] = item",
        "flat[x] = half.mean()",
        "flat = {}\n            flat[x] = half",
        "flat[self.turn] = half\n            half = flat['first']",
        "half[places] += flat.mean()",
        "half[places] += 1",
        "flat[places] = 0.5",
        "for place in places:\n                flat[place] = half[0]",
        "flat = [row for row in flat]\n            for place in range(4):\n                flat[place] = half[place]",
        "flat = half.new_zeros(4, 8)\n            flat.index_copy_(0, places, half)",
        "flat = torch.zeros(4, 8, dtype=half.dtype)\n            flat[places] = half",
        "flat = torch.zeros_like(x, dtype=half.dtype)\n            flat[places] = half[:, 0]",
    ],
)
def test_what_is_cast_or_fits_is_not(write: str) -> None:
    assert not told("half", FLAT + write)


def test_what_raised_under_apex_too_is_its_own_matter() -> None:
    """O1 left the weights float32, and cast nothing that is written."""
    assert not told("O1", f"{FLAT}flat.index_copy_(0, places, half)")


@pytest.mark.parametrize(
    ("half", "verdict"),
    [
        ("half if self.training else self.other(x)", ["review"]),
        ("half if self.training else self.norm(half)", ["refuse"]),
        ("self.other(x)", []),
    ],
)
def test_what_is_half_on_one_way_may_raise(half: str, verdict: list[str]) -> None:
    body = f"flat = torch.zeros(4, 8, dtype=({half}).dtype)\n            flat.index_copy_(0, places, self.norm(half))"
    assert [v for _, v in told("half", body)] == verdict


@pytest.mark.parametrize(
    ("call", "count"), [("torch.add(half, half, out=flat)", 0), ("torch.index_select(half, 0, places, out=flat)", 1)]
)
def test_what_computes_into_a_tensor_of_another_dtype(call: str, count: int) -> None:
    imports, made = SETUPS["half"]
    before = PROGRAM.replace("IMPORT", imports).replace("SETUP", made).replace("BODY", FLAT + call)
    after = AFTER.replace("    IMPORT\n", "").replace(
        "SETUP", "optimizer = make(model)\n    scaler = torch.amp.GradScaler('cuda')"
    )
    after = after.replace("BODY", FLAT + call).replace("BACKWARD", "scaler.scale(loss).backward()")
    found = [d for d in doubts(before.replace("BACKWARD", "optimizer.backward(loss)"), after) if "out=" in d.message]
    assert [d.verdict for d in found] == ["refuse"] * count


@pytest.mark.parametrize(
    ("loss", "count"),
    [
        ("F.cross_entropy(output.float(), y).type_as(output)", 1),
        ("F.cross_entropy(output.float(), y).to(output.dtype)", 1),
        ("F.cross_entropy(output.float(), y).to(dtype=output.dtype)", 1),
        ("F.cross_entropy(output.float(), y).type_as(y.float())", 0),
        ("F.cross_entropy(output.float(), y).half()", 0),
    ],
)
def test_a_loss_that_takes_the_dtype_of_what_was_float32_is_scaled_as_half(loss: str, count: int) -> None:
    """O2 gave `output` in float32, and so the loss; now its gradient is the scale, in half."""
    imports, made = SETUPS["O2"]
    before = PROGRAM.replace("loss = F.cross_entropy(model(x).float(), y)", f"output = model(x)\n        loss = {loss}")
    before = before.replace("BODY", "flat = half").replace("IMPORT", imports).replace("SETUP", made)
    after = before.replace(f"    {imports}\n", "").replace(
        made, "optimizer = make(model)\n    scaler = torch.amp.GradScaler('cuda')"
    )
    after = after.replace(
        "    output = model(x)", "    with torch.autocast('cuda', dtype=torch.float16):\n            output = model(x)"
    ).replace("optimizer.step()", "scaler.step(optimizer)\n        scaler.update()")
    scaled = "with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()"
    found = doubts(before.replace("BACKWARD", scaled), after.replace("BACKWARD", "scaler.scale(loss).backward()"))
    assert len([d for d in found if "32768" in d.message]) == count


@pytest.mark.parametrize("index", ["x", "self.rows"])
def test_what_may_be_a_tensor_of_indices_may_raise(index: str) -> None:
    assert told("half", f"{FLAT}flat[{index}] = half") == [("AMP542", "review")]


def test_networks_that_no_way_from_a_region_is_seen_to_are_asked_for_what_they_assign() -> None:
    imports, made = SETUPS["half"]
    before = PROGRAM.replace("IMPORT", imports).replace("SETUP", made).replace("BODY", FLAT + "flat[places] = half")
    before = before.replace("model = Embed(8)", "model = build({'embed': Embed}, 'embed')")
    after = AFTER.replace("    IMPORT\n", "").replace(
        "SETUP", "optimizer = make(model)\n    scaler = torch.amp.GradScaler('cuda')"
    )
    after = after.replace("BODY", FLAT + "flat[places] = half").replace("BACKWARD", "scaler.scale(loss).backward()")
    after = after.replace("model = Embed(8)", "model = build({'embed': Embed}, 'embed')")
    found = doubts(before.replace("BACKWARD", "optimizer.backward(loss)"), after)
    assert [d.verdict for d in found if d.code == "AMP542"] == ["refuse"]


def test_a_level_that_is_asked_for_is_asked_about() -> None:
    imports, made = SETUPS["O2"]
    write = f"{FLAT}flat[places] = half"
    before = PROGRAM.replace("IMPORT", imports).replace("SETUP", made.replace('"O2"', "level")).replace("BODY", write)
    scaled = "with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()"
    after = AFTER.replace("    IMPORT\n", "").replace("BODY", write)
    after = after.replace(
        "SETUP", "optimizer = make(model)\n    scaler = torch.amp.GradScaler('cuda', enabled=level != 'O0')"
    )
    after = after.replace("torch.float16)", "torch.float16, enabled=level != 'O0')")
    found = doubts(before.replace("BACKWARD", scaled), after.replace("BACKWARD", "scaler.scale(loss).backward()"))
    told = [d for d in found if d.code == "AMP542"]
    assert [d.verdict for d in told] == ["review"]
    assert "where the opt level asked for is O2 or O3" in told[0].message
