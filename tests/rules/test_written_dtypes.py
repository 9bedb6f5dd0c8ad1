"""What is written by index into a tensor of a weight's dtype: the weights are float32 now, what linear layers give is half."""

from __future__ import annotations

import pytest
import torch

from tests.rules.helpers import names_of, rewrite
from tests.rules.trained import check_trained

EMBED = """
class Embed(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = torch.nn.Linear(4, size)
        self.norm = torch.nn.LayerNorm(size)
        self.proj = torch.nn.Parameter(torch.Tensor(size, size).fill_(0.1))

    def forward(self, x):
        found = self.layer(x)
        places = (x[:, 0] > 0).nonzero().squeeze(1)
        part = torch.nn.functional.linear(found, self.proj)[places]
        WRITE
        return flat

"""
TRAINED = (
    EMBED
    + """
model = Embed(2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale=128.0)
for x, y in loader:
    optimizer.zero_grad()
    loss = (model(x) - y.mean()).pow(2).mean() / 10
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    clip_grad_norm_(amp.master_params(optimizer), 10.0)
    seen.append(loss.item())
    optimizer.step()
"""
)
FLAT = "flat = torch.zeros(len(x), 2, dtype=next(self.parameters()).dtype)\n        "
WRITES = {
    "index_copy_": (FLAT + "flat.index_copy_(0, places, part)", "flat.index_copy_(0, places, part.to(flat.dtype))"),
    "indices": (FLAT + "flat[places] = part", "flat[places] = part.to(flat.dtype)"),
    "a mask": (FLAT + "flat[x[:, 0] > 0] = part", "flat[x[:, 0] > 0] = part.to(flat.dtype)"),
    "what may be indices": (
        FLAT + "rows = torch.tensor([0, 1])\n        flat[rows] = found[rows]",
        "flat[rows] = found[rows].to(flat.dtype)",
    ),
    "added": (
        "flat = found * 1\n        flat[places] += self.norm(part) * self.layer.bias",
        "flat[places] += (self.norm(part) * self.layer.bias).to(flat.dtype)",
    ),
    "lerp_": (
        "flat = self.layer.weight.new_zeros(len(x), 2)\n        flat = flat.lerp_(found.detach(), 0.5) + found",
        "flat.lerp_(found.detach().to(flat.dtype), 0.5)",
    ),
}


@pytest.mark.parametrize(("write", "written"), WRITES.values(), ids=list(WRITES))
def test_what_is_written_is_of_the_dtype_of_the_weights(write: str, written: str) -> None:
    assert written in check_trained(TRAINED.replace("WRITE", write))


HALF = """
import torch
from apex.fp16_utils import FP16_Optimizer, network_to_half

torch.manual_seed(0)
EMBED
model = MODEL
optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), static_loss_scale=128.0)
seen = []
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 4)).float().pow(2).mean()
    optimizer.backward(loss)
    optimizer.step()
    seen.append(loss.item())
"""


@pytest.mark.parametrize("model", ["Embed(2).half()", "network_to_half(Embed(2))"])
@pytest.mark.parametrize(("write", "written"), list(WRITES.values())[:3], ids=list(WRITES)[:3])
def test_whatever_made_the_weights_half(model: str, write: str, written: str) -> None:
    source = HALF.replace("EMBED", EMBED).replace("MODEL", model).replace("WRITE", write)
    result = rewrite(source, device="cpu")
    assert written in (result.after or "")
    seen = names_of(result.after)["seen"]
    assert len(seen) == 3
    assert torch.isfinite(torch.tensor(seen)).all()
    with pytest.raises(RuntimeError, match="dtype"):  # without the cast
        names_of((result.after or "").replace(".to(flat.dtype)", ""))


def test_what_fits_is_left_alone() -> None:
    write = "flat = torch.zeros(len(x), 2, dtype=part.dtype)\n        flat.index_copy_(0, places, part)"
    text = check_trained(TRAINED.replace("WRITE", write))
    assert "flat.index_copy_(0, places, part)\n" in text


def test_what_has_no_name_to_take_the_dtype_of_is_refused() -> None:
    write = "flat = torch.zeros(len(x), 2, dtype=self.proj.dtype).index_copy_(0, places, part)"
    result = rewrite(HALF.replace("EMBED", EMBED).replace("MODEL", "Embed(2).half()").replace("WRITE", write))
    assert result.after is None
    assert [f.code for f in result.findings if f.status == "manual" and "index_copy_" in f.message] == ["AMP542"]
