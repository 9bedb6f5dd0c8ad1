"""Models of one dtype that are traced, exported or run on tensors of another, outside of any region."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.helpers import doubts, sides, told

BEFORE, AFTER = sides("""
    import copy

    import thop
    import torch
  - from apex import amp

    model = torch.nn.Conv2d(3, 3, 3).cuda()
    saved = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  - model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  + scaler = torch.amp.GradScaler("cuda")
    for x, y in []:
  -     loss = model(x).sum()
  -     with amp.scale_loss(loss, optimizer) as scaled_loss:
  -         scaled_loss.backward()
  -     optimizer.step()
  +     with torch.autocast("cuda", dtype=torch.float16):
  +         loss = model(x).sum()
  +     scaler.scale(loss).backward()
  +     scaler.step(optimizer)
  +     scaler.update()
    {lines}
    """)
FLOAT = "x = torch.randn(1, 3, 8, 8).cuda()\n"
HALF = "saved = saved.half()\n"


def found(lines: str) -> list[tuple[int, str]]:
    lines = lines.replace("\n", "\n    ")
    return told(doubts(BEFORE.format(lines=lines), AFTER.format(lines=lines)), "AMP540")


@pytest.mark.parametrize(
    "lines",
    [
        HALF + FLOAT + "torch.jit.trace(saved, (x))",
        HALF + FLOAT + "torch.onnx.export(saved, (x,), 'a.onnx')",
        HALF + "thop.profile(saved, inputs=(torch.zeros(1, 3, 8, 8, device='cuda'),))",
        "saved.half()\n" + FLOAT + "writer.add_graph(saved, x)",
        HALF + FLOAT + "saved(x)",
        FLOAT + "torch.jit.trace(copy.deepcopy(model).half(), x)",
        FLOAT + "x = x.half()\ntorch.onnx.export(model, x, 'a.onnx')",
        "x = torch.ones(1, 3, 8, 8, dtype=torch.float16)\ntorch.onnx.export(model, x, 'a.onnx')",
    ],
)
def test_a_model_and_tensors_of_two_dtypes_are_told(lines: str) -> None:
    assert [verdict for _, verdict in found(lines)] == ["review"]


def test_a_trace_is_told_to_keep_the_casts() -> None:
    def advice(lines: str) -> str:
        lines = (HALF + FLOAT + lines).replace("\n", "\n    ")
        (doubt,) = [d for d in doubts(BEFORE.format(lines=lines), AFTER.format(lines=lines)) if d.code == "AMP540"]
        assert "It raises now." in doubt.message
        return doubt.message.rpartition("It raises now. ")[2]

    assert "cache_enabled=False" in advice("torch.jit.trace(saved, (x))")
    assert "cache_enabled=False" in advice("torch.onnx.export(saved, x, 'a.onnx')")
    assert advice("saved(x)") == "Give it half tensors"


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_a_trace_with_the_casts_takes_float32(tmp_path: Path) -> None:
    """As the advice says; and without it a trace raises."""
    torch = pytest.importorskip("torch")
    model, x = torch.nn.Conv2d(3, 3, 3).half(), torch.randn(1, 3, 8, 8)
    with pytest.raises(RuntimeError, match="should be the same"):
        torch.jit.trace(model, x)
    with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
        traced = torch.jit.trace(model, x)
    torch.jit.save(traced, str(tmp_path / "kept.pt"))
    assert torch.jit.load(str(tmp_path / "kept.pt"))(x).dtype == torch.float16


@pytest.mark.parametrize(
    "lines",
    [
        HALF + FLOAT + "x = x.half()\ntorch.jit.trace(saved, (x))",
        HALF + FLOAT + "torch.jit.trace(saved, x.to(torch.float16))",
        HALF + "saved = saved.float()\n" + FLOAT + "torch.jit.trace(saved, x)",
        FLOAT + "torch.jit.trace(saved, x)\n" + HALF.strip(),  # before it is half
        FLOAT + "torch.onnx.export(model, x, 'a.onnx')",
        HALF + FLOAT + "torch.jit.trace(other, x)",
        HALF + FLOAT + "with torch.autocast('cuda'):\n    saved(x)",
        HALF + "x = load()\ntorch.jit.trace(saved, x)",  # of whichever dtype
        HALF + FLOAT + "torch.save(saved, 'a.pt')",
    ],
)
def test_what_fits_and_what_is_not_seen_is_not(lines: str) -> None:
    assert found(lines) == []


def test_what_runs_before_apex_is_set_up_raised_before() -> None:
    lines = "pass"
    early = "optimizer = torch.optim"
    run = "small = copy.deepcopy(model).half()\n    small(torch.rand(1, 3, 8, 8))\n    optimizer = torch.optim"
    before, after = (t.format(lines=lines).replace(early, run) for t in (BEFORE, AFTER))
    assert told(doubts(before, after), "AMP540") == []


@pytest.mark.parametrize("given", [False, True])
def test_what_only_a_run_without_apex_comes_to_raised_before(given: bool) -> None:
    lines = "def measure(model, traced=None):\n    if traced is not None:\n        model = model.half()\n"
    lines += "        x = torch.randn(1, 3, 8, 8).cuda()\n        model(x)\n" + f"measure(saved{', 3' * given})\n"
    assert bool(found(lines)) is given
