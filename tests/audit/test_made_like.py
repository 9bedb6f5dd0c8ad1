"""What a loss makes like a half output, and float64 labels beside one: smoothed labels are rounded, the loss is float64."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, program

TRAIN = """
    import numpy as np
    import torch
    from torch import nn
    import torch.nn.functional as F
    from torch.utils.data import DataLoader, Dataset
    {imports}

    class Smooth(nn.Module):
        def forward(self, input, target):
            soft = {made}
            {filled}
            return F.kl_div(F.log_softmax(input, 1), soft)

    class Data(Dataset):
        def __getitem__(self, i):
            name, score = self.rows[i].split(",")
            score = {score}
            return self.read(name), [score, self.other(name)]

    def main(args):
        model = nn.Sequential(nn.Linear(4, 4)).cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        {set_up}
        smooth, fit = Smooth(), nn.MSELoss()
        loader = DataLoader(Data(args), batch_size=2)
        for x, (y, other) in loader:
            {region}
                out = model(x.cuda())
                loss = smooth(out, other) + fit({label}, out)
            print({below})
            {step}

    main(parse())
"""


def found(level: str = "O2", **given: str) -> list[str]:
    parts = {
        "made": "torch.zeros_like(input)",
        "filled": "pass",
        "score": "self.score(name)",
        "label": "y.cuda()",
        "below": "1",
    } | given
    before = {
        "imports": "from apex import amp",
        "set_up": f'model, opt = amp.initialize(model, opt, opt_level="{level}")',
        "region": "if True:",
        "step": "with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n            opt.step()",
    }
    after = {
        "imports": "",
        "set_up": 'scaler = torch.amp.GradScaler("cuda")',
        "region": 'with torch.autocast("cuda", dtype=torch.float16):',
        "step": "scaler.scale(loss).backward()\n            scaler.step(opt)\n            scaler.update()",
    }
    told = doubts(program(TRAIN.format(**before, **parts)), program(TRAIN.format(**after, **parts)))
    like = [d for d in told if "takes the dtype of" in d.message or "the loss is float64." in d.message]
    assert {d.verdict for d in like} <= {"look"}
    return [f"{d.code} {d.message.partition(':')[0]}" for d in like]


@pytest.mark.parametrize(
    ("made", "filled"),
    [
        ("torch.zeros_like(input)", "soft.fill_(self.rest)"),
        ("torch.zeros_like(input)", "soft.scatter_(1, target, self.confidence)"),
        ("torch.full_like(input, 0.1)", "pass"),
    ],
    ids=["filled", "by index", "full"],
)
def test_smoothed_labels_are_rounded(made: str, filled: str) -> None:
    assert found(made=made, filled=filled) == [f"AMP535 {made}"]


@pytest.mark.parametrize(
    ("level", "made", "filled"),
    [
        ("O2", "torch.zeros_like(input)", "soft.scatter_(1, target, 1.0)"),
        ("O2", "torch.zeros_like(input, dtype=torch.float32)", "soft.fill_(self.rest)"),
        ("O2", "torch.zeros_like(input.float())", "soft.fill_(self.rest)"),
        ("O1", "torch.zeros_like(input)", "soft.fill_(self.rest)"),
    ],
    ids=["whole numbers", "a dtype", "of float32", "half before, too"],
)
def test_what_is_as_it_was_is_not_told(level: str, made: str, filled: str) -> None:
    assert found(level, made=made, filled=filled) == []


@pytest.mark.parametrize(
    "score",
    ["np.asarray(float(score)).reshape([1])", "np.array([float(score)])", "np.asarray(float(score)) * np.ones([3])"],
    ids=["a number of Python's", "in a list", "computed"],
)
def test_a_loss_beside_float64_labels_is_float64(score: str) -> None:
    assert found("O1", score=score) == ["AMP544 fit(y.cuda(), out)"]


def test_so_is_one_below_the_region() -> None:
    below = {"score": "np.array([float(score)])", "label": "y.float()"}
    assert found("O1", below="fit(y.cuda(), out).item()", **below) == ["AMP544 fit(y.cuda(), out)"]
    assert found("O1", below="fit(y.float(), out).item()", **below) == []


def test_a_loss_that_is_float32_or_was_float64_is_not_told() -> None:
    assert found("O1", score="np.asarray(float(score))", label="y.cuda().float()") == []
    assert found("O1", score="np.asarray(int(score))") == []
    assert found("O2", score="np.asarray(float(score))") == []
