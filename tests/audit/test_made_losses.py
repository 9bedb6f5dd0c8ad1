"""A loss that is made of numbers gives no gradient, and `scaler.step` raises. AMP232."""

from __future__ import annotations

import pytest
import torch

from tests.audit.helpers import doubts, program, sides, told

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    def fill(into, out):
        into += out.sum()

    def fill_part(out, *, into):
        into[0] = out.sum()

    def collect(out, into):
        fill(into=into, out=out)

    def show(value):
        print(value.item(), value.data[0])

    def main(args, loader, device):
        model = torch.nn.Linear(4, 3).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  -     model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            optimizer.zero_grad()
  -         if True:
  +         with torch.autocast("cuda", dtype=torch.float16):
                out = model(x)
                loss = {loss}
  -         with amp.scale_loss(loss, optimizer) as scaled:
  -             scaled.backward()
  -         optimizer.step()
  +         scaler.scale(loss).backward()
  +         scaler.step(optimizer)
  +         scaler.update()
    """)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("torch.zeros(1, requires_grad=True).float().to(device)", True),
        ("torch.tensor(0.0, requires_grad=True, device=device)", True),
        ("out.sum()", False),
        ("torch.zeros(1).to(device) + out.sum()", False),
        ("torch.tensor(out.sum(), requires_grad=True)", False),
    ],
)
def test_a_placeholder_of_a_loss_is_told(loss: str, expected: bool) -> None:
    assert is_told(loss) == expected


FILLING = [
    "loss.add_(out.sum())",
    "loss[0] = out.sum()",
    "loss[0].add_(out.sum())",
    "torch.add(out.sum(), 1.0, out=loss)",
    "part = loss[0]\npart += out.sum()",
    "same = loss.to(device)\nsame.add_(out.sum())",
    "fill(loss, out)",
    "fill_part(out, into=loss)",
    "collect(out, loss)",
    "fill(*[loss, out])",
]
READING = ["show(loss)", "print(loss.data[0], loss.mean())", "total = loss.mean()", "print(out[loss.long()])"]


@pytest.mark.parametrize(("then", "expected"), [*((f, False) for f in FILLING), *((r, True) for r in READING)])
def test_a_tensor_that_a_loss_is_put_into_is_none(then: str, expected: bool) -> None:
    assert is_told("\n".join(["torch.zeros(1).to(device)", *then.split("\n")])) == expected


@pytest.mark.parametrize("then", [f for f in FILLING if "out=" not in f])
def test_torch_gives_gradients_of_what_is_put_into_one(then: str) -> None:
    known: dict[str, object] = {}
    exec(program(AFTER[: AFTER.index("    def main")]), known)
    model = torch.nn.Linear(4, 3)
    known |= {"loss": torch.zeros(1), "out": model(torch.ones(1, 4)), "device": "cpu"}
    exec(then, known)
    loss = known["loss"]
    assert isinstance(loss, torch.Tensor)
    loss.sum().backward()
    assert model.weight.grad is not None


def is_told(loss: str) -> bool:
    loss = loss.replace("\n", "\n" + " " * 16)
    found = [d for d in doubts(BEFORE.format(loss=loss), AFTER.format(loss=loss)) if "No inf checks" in d.message]
    verdicts = [verdict for _, verdict in told(found, "AMP232")]
    assert verdicts in ([], ["review"])
    return bool(verdicts)


def test_torch_raises_so() -> None:
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
    scaler.scale(torch.zeros(1, requires_grad=True)).backward()
    with pytest.raises(AssertionError, match="No inf checks were recorded"):
        scaler.step(optimizer)
