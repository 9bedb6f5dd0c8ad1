"""Clips after every backward of a step, where no place for `unscale_` serves all of them: their bound carries the scale."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import check_refused, found
from tests.rules.trained import PRELUDE, check_trained

HELPER = """
def backpropagate(loss, model, optimizer, fp16, pieces, max_norm):
    loss = loss / pieces
    if fp16:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        CLIP
    else:
        loss.backward()
        clip_grad_norm_(model.parameters(), max_norm)
    return loss


def train_step(model, optimizer, batches, fp16):
    for x, y in batches:
        loss = criterion(model(x), y)
        loss = backpropagate(loss, model, optimizer, fp16, len(batches), 0.02)
        seen.append(loss.item())
    optimizer.step()
    optimizer.zero_grad()


fp16 = True
if fp16:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for i in (0, 2, 4):
    train_step(model, optimizer, loader[i : i + 2], fp16)
seen.append(model[0].weight.norm().item())
"""
CLIP = "clip_grad_norm_(amp.master_params(optimizer), max_norm)"


@pytest.mark.parametrize(
    ("clip", "now"),
    [
        (CLIP, "clip_grad_norm_(model.parameters(), max_norm * scaler.get_scale())"),
        (
            CLIP.replace("max_norm", "max_norm=max_norm + 0.0, norm_type=1"),
            "max_norm=(max_norm + 0.0) * scaler.get_scale(), norm_type=1)",
        ),
        (
            f"norm = {CLIP}\n        seen.append(norm.item())",
            "norm = clip_grad_norm_(model.parameters(), max_norm * scaler.get_scale()) / scaler.get_scale()",
        ),
        (
            f"seen.append({CLIP}.item())",
            "seen.append((clip_grad_norm_(model.parameters(), max_norm * scaler.get_scale()) / scaler.get_scale()).item())",
        ),
        (f"{CLIP}\n        seen.append(model[0].bias.grad.norm())", "max_norm * scaler.get_scale())"),
    ],
)
def test_a_helper_that_clips_after_its_backward(clip: str, now: str) -> None:
    after = check_trained(HELPER.replace("CLIP", clip), norms_scaled=True)
    assert now in after
    assert "unscale_" not in after


def test_what_is_told_of_it() -> None:
    result = rewrite(PRELUDE + HELPER.replace("CLIP", CLIP))
    (told,) = found(result, "AMP311")
    assert (told.status, told.review, told.construct) == ("note", "look", "clip_grad_norm_")
    assert "amp.master_params" in result.before.splitlines()[told.line - 1]


TRAINER = """
class Trainer:
    def __init__(self, model, optimizer, bound):
        self.bound = bound
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def backward(self, loss):
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
        CLIP

    def clip(self):
        for group in self.optimizer.param_groups:
            clip_grad_norm_(group["params"], self.bound)

    def train(self, pieces):
        for i, (x, y) in enumerate(loader):
            loss = criterion(self.model(x), y) / pieces
            self.backward(loss)
            if (i + 1) % pieces == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
            seen.append(self.model[0].weight.norm().item())


Trainer(model, optimizer, 0.02).train(2)
"""


@pytest.mark.parametrize(
    ("clip", "now"),
    [
        ("clip_grad_norm_(self.model.parameters(), self.bound)", "self.bound * self.scaler.get_scale())"),
        (
            "self.clip()",
            'for group in self.optimizer.param_groups:\n            clip_grad_norm_(group["params"], self.bound * ',
        ),
        ("if self.bound > 0:\n            self.clip()", "self.bound * loss_scale)"),
    ],
)
def test_methods_that_clip_after_each_backward(clip: str, now: str) -> None:
    after = check_trained(TRAINER.replace("CLIP", clip), norms_scaled=True)
    assert now in after
    assert "unscale_" not in after


RETURNED = TRAINER.replace("self.backward(loss)", "norm = self.backward(loss)\n            USE").replace(
    "CLIP", "return loss.item(), self.clip()"
)


@pytest.mark.parametrize(
    ("use", "decides"),
    [
        ("seen.append(norm[1].item())", False),
        ("_, shown = norm\n            print(f'{shown:.3f}')", False),
        ("if norm[1] > 100:\n                continue", True),
        ("worse = norm[1] > 100\n            if worse:\n                break", True),
    ],
)
def test_a_norm_that_is_handed_back_may_be_told_and_may_not_decide(use: str, decides: bool) -> None:
    clip = (
        '        for group in self.optimizer.param_groups:\n            clip_grad_norm_(group["params"], self.bound)\n'
    )
    assert clip in RETURNED
    source = RETURNED.replace("USE", use).replace(
        clip, "        return clip_grad_norm_(amp.master_params(self.optimizer), self.bound)\n"
    )
    if decides:
        check_refused(PRELUDE + source, "AMP307")
    else:
        after = check_trained(source, norms_scaled=True)
        assert "self.bound * self.scaler.get_scale()) / self.scaler.get_scale()" in after


@pytest.mark.parametrize(
    "clip",
    [
        "torch.nn.utils.clip_grad_value_(amp.master_params(optimizer), max_norm)",  # it would hide an overflow
        f"norm = {CLIP}\n        if norm > 100:\n            loss = loss * 0",
        "clip_grad_norm_(amp.master_params(optimizer), *[max_norm])",
    ],
)
def test_what_is_not_linear_or_decides_is_refused(clip: str) -> None:
    check_refused(PRELUDE + HELPER.replace("CLIP", clip), "AMP307")


def test_a_helper_that_clips_in_one_branch_alone() -> None:
    other = "    clip_grad_norm_(model.parameters(), max_norm)\n    return loss\n"
    assert other in HELPER
    source = HELPER.replace("    " + other, "    return loss\n").replace("CLIP", CLIP)
    assert "max_norm * scaler.get_scale())" in check_trained(source, norms_scaled=True)


@pytest.mark.parametrize(
    ("kept", "asked", "refused"),
    [
        ('norms["all"] = NORM', 'norms["all"] < 100', True),
        ('norms["all"] = NORM', "all(n < 100 for n in norms.values())", True),
        ("self.norms.append(NORM)", "self.norms[-1] < 100", True),
        ("self.last = NORM", "self.last < 100", True),
        ("self.keep(1, norm=NORM)", "self.last < 100", True),
        ("self.keep(1, norm=NORM)", "self.count < 100", False),
        ('norms["all"] = NORM', "len(loader) > 1", False),
        ("self.norms.append(NORM)", "len(loader) > 1", False),
    ],
)
def test_a_norm_that_is_kept_and_decides_on_the_step_later(kept: str, asked: str, refused: bool) -> None:
    """It is inf or nan after an overflow: the scale would never be updated."""
    norm = "clip_grad_norm_(self.model.parameters(), self.bound)"
    text = TRAINER.replace("CLIP", f"norms = {{}}\n        {kept.replace('NORM', norm)}\n        return norms")
    text = text.replace("            self.backward(loss)", "            norms = self.backward(loss)")
    text = text.replace("pieces == 0:", f"pieces == 0 and {asked}:")
    text = text.replace(
        "    def clip(self):",
        "    def keep(self, count, norm):\n        self.count = count\n        self.last = norm\n\n    def clip(self):",
    )
    text = text.replace("self.bound = bound", "self.bound, self.norms = bound, []")
    result = rewrite(PRELUDE + text)
    assert bool(found(result, "AMP307")) is refused
    assert bool(found(result, "AMP311")) is not refused
