"""`model.roi.forward = amp.half_function(model.roi.forward)`: a function that casts, put where the one it calls was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, check_manual, run_files

PROGRAM = """
    import json

    import torch
    from apex import amp
    import ops

    seen = []


    class Roi(torch.nn.Module):
        def forward(self, x, scale=None):
            y = x @ x.t()
            seen.append([str(x.dtype), str(y.dtype), str(scale.dtype) if scale is not None else ""])
            return y.float()


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)
            self.rois = torch.nn.ModuleList(Roi() for _ in range(2))

        def forward(self, x):
            y = self.layer(x)
            return ops.mix(self.rois[0](y, scale=x), self.rois[1](x))


    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {cast}
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1"{enabled})
    loss = model(torch.randn(4, 4)).float().pow(2).mean()
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    print(json.dumps([seen, [str(d) for d in ops.seen], SCALER_STATE != {}]))
"""
OPS = "seen = []\n\n\ndef mix(a, b):\n    seen.append(a.dtype)\n    return a + b\n"
EACH = "for i in range(2):\n        model.rois[i].forward = amp.KIND_function(model.rois[i].forward)"
HALF, FULL = "torch.float16", "torch.float32"


def run(cast: str, folder: Path, enabled: str = "") -> object:
    text = PROGRAM.replace("{cast}", cast).replace("{enabled}", enabled)
    texts = check_files({"train.py": text, "ops.py": OPS}, device="cpu")
    assert "apex" not in texts["train.py"]
    return run_files(folder, texts, "train.py")


@pytest.mark.parametrize(("kind", "inside"), [("half", HALF), ("float", FULL)])
def test_each_of_a_loop_calls_the_one_it_took_the_place_of(kind: str, inside: str, tmp_path: Path) -> None:
    seen = run(EACH.replace("KIND", kind), tmp_path)
    assert seen == [[[inside, inside, inside], [inside, inside, ""]], [FULL], True]


def test_a_half_function_casts_nothing_where_mixed_precision_is_off(tmp_path: Path) -> None:
    seen = run(EACH.replace("KIND", "half"), tmp_path, ", enabled=len(seen) > 0")
    assert seen == [[[FULL, FULL, FULL], [FULL, FULL, ""]], [FULL], False]


def test_a_function_of_a_module_and_one_of_a_class(tmp_path: Path) -> None:
    cast = "ops.mix = amp.half_function(ops.mix)\n    Roi.forward = amp.float_function(Roi.forward)"
    assert run(cast, tmp_path) == [[[FULL, FULL, FULL], [FULL, FULL, ""]], [HALF], True]


@pytest.mark.parametrize(
    ("cast", "says"),
    [
        ("ops.mix = amp.promote_function(ops.mix)", "promote them by hand"),
        ("ops.use(amp.half_function(ops.mix))", "wrapped in an expression"),
        ("ops.mix = ops.mixed = amp.half_function(ops.mix)", "wrapped in an expression"),
    ],
)
def test_what_cannot_be_told_is_left_with_the_reason(cast: str, says: str) -> None:
    text = PROGRAM.replace("{cast}", cast).replace("{enabled}", "").replace("SCALER_STATE", "{1: 1}")
    result = check_manual(text, "AMP516")
    assert any(says in f.message for f in result.findings)
