"""Where `.float()` is written for what leaves a region: once, where it is taken; and only on floating tensors."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found
from tests.rules.test_float_operations import lines
from tests.rules.trained import check_trained

SEVERAL = """
from apex import amp
import torch
import torch.nn.functional as F
from zoo import Net

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    loss = model(x, y)[0]
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
with torch.no_grad():
    for x, y in loader:
        outputs = model(x)
        LINES
"""


def several(*given: str) -> str:
    return SEVERAL.replace("LINES", "\n        ".join(given))


@pytest.mark.parametrize(
    ("given", "written"),
    [
        # a softmax takes a tensor, and a floating one
        (["probs = F.softmax(outputs[0], dim=-1)"], ["probs = F.softmax(outputs[0].float(), dim=-1)"]),
        # cast where it is taken, for all uses
        (
            ["rows = outputs[0]", "if soft:", "    rows = F.softmax(rows, dim=-1)", "rows = rows.cpu().numpy()"],
            ["rows = outputs[0].float()", "    rows = F.softmax(rows, dim=-1)", "rows = rows.cpu().numpy()"],
        ),
        (
            ["rows = torch.squeeze(outputs[1])", "probs, best = F.softmax(rows, 1), rows.argmax(1)"],
            ["rows = torch.squeeze(outputs[1]).float()", "F.softmax(rows, 1), rows.argmax(1)"],
        ),
        # a cast is a copy: what is written into it would be lost
        (
            ["rows = outputs[0]", "rows[:, 0] = 0", "probs = F.softmax(rows, dim=-1)", "print(outputs[0], rows)"],
            ["rows = outputs[0]\n", "probs = F.softmax(rows.float(), dim=-1)"],
        ),
        # named for what it is, here or elsewhere in the function
        (
            ["logits = outputs[1].detach().cpu().numpy()", "many = np.append(many, outputs[1].detach().cpu().numpy())"],
            [
                "logits = outputs[1].detach().float().cpu().numpy()",
                "many = np.append(many, outputs[1].detach().float().cpu().numpy())",
            ],
        ),
        (["output = outputs[-1][0].cpu().numpy()"], ["output = outputs[-1][0].float().cpu().numpy()"]),
        # a sigmoid gives floating values, whatever its argument is called
        (["a, b, c = outputs", "seen(torch.sigmoid(c[0, 0]).cpu().numpy())"], ["torch.sigmoid(c[0, 0].float()).cpu()"]),
        # what rounds is cast first, in whichever statement it stands
        (
            ["logits = outputs[0]", "logits = logits.sigmoid()", "seen(logits.detach().cpu().numpy())", "print(logits)"],
            ["logits = logits.float().sigmoid()", "seen(logits.detach().cpu().numpy())"],
        ),
        (
            ["logits = outputs[0]", "scores = torch.sigmoid(logits[:, 1]).view(-1)", "seen(scores.cpu().numpy())"],
            ["scores = torch.sigmoid(logits[:, 1].float()).view(-1)", "seen(scores.cpu().numpy())"],
        ),
        (
            ["logits = outputs[0]", "if soft:", "    logits = torch.tanh(logits)", "seen(logits.cpu().numpy())"],
            ["    logits = torch.tanh(logits.float())", "seen(logits.float().cpu().numpy())"],
        ),
        (
            ["logits = outputs[0]", "logits = logits.tanh()", "seen(logits.cpu())"],
            ["logits = logits.float().tanh()", "seen(logits.cpu())"],
        ),
        (["a, b = outputs", "a = a.flip(3)", "seen(torch.sigmoid(a).view(-1).cpu().numpy())"], ["torch.sigmoid(a.float())"]),
    ],
)  # fmt: skip
def test_what_is_surely_floating_is_cast(given: list[str], written: list[str]) -> None:
    result = rewrite(several(*given))
    assert result.after is not None
    for line in written:
        assert line in result.after
    assert not [f for f in result.findings if f.code in ("AMP504", "AMP535") and f.review != "as-is"]


@pytest.mark.parametrize(
    "line",
    [
        "preds = outputs[1].cpu().numpy()",
        "output_labels = outputs[1].cpu().numpy()",
        "score_ids = outputs[1].cpu().numpy()",
        "seen(outputs[1].cpu().numpy())",
    ],
)
def test_what_may_be_whole_numbers_is_told(line: str) -> None:
    result = rewrite(several(line))
    assert result.after is not None
    assert line in result.after
    assert [f.review for f in found(result, "AMP504")] == ["look"]


HELPER = """

def rank(logits, k):
    best, where = torch.topk(logits, k)
    return F.softmax(best, dim=-1), where


def cut(logits, k):
    logits[F.softmax(logits, dim=-1) < k] = 0


def pick(logits, k):
    logits = table[logits]
    return F.softmax(logits, dim=-1)


"""


@pytest.mark.parametrize(
    ("call", "written"),
    [
        ("cut(outputs[0], 3)", "cut(outputs[0], 3)"),  # what is written into a copy is lost
        ("rank(outputs[0], 3)", "rank(outputs[0].float(), 3)"),
        ("pick(outputs[0], 3)", "pick(outputs[0], 3)"),
    ],
)
def test_what_a_function_computes_from_in_float32_is_handed_so(call: str, written: str) -> None:
    source = several(f"value = {call}").replace("\nmodel = ", HELPER + "model = ", 1)
    result = rewrite(source)
    assert result.after is not None
    assert f"value = {written}\n" in result.after


def test_a_cast_where_a_value_is_taken_trains() -> None:
    check = "assert probs.dtype is rows.dtype is torch.float32"
    given = (
        "rows = output[:, :1]",
        "probs = F.softmax(rows, dim=1)",
        "rows.sum()",
        check,
        "seen.append(probs.sum() / 100)",
    )
    assert "rows = output[:, :1].float()" in check_trained(lines(*given))


def test_what_a_block_gives_a_name_last_is_what_leaves_it() -> None:
    """The class numbers of the branch are floats where NumPy gets them: what else comes there is cast."""
    given = ["rows = outputs[0]", "if soft:", "    rows = rows.argmax(1)", "    rows = rows.float()"]
    result = rewrite(several(*given, "seen(rows.cpu().numpy())"))
    assert result.after is not None
    assert "seen(rows.float().cpu().numpy())" in result.after or "rows = outputs[0].float()" in result.after
    assert not [f for f in result.findings if f.code in ("AMP504", "AMP535") and f.review != "as-is"]
