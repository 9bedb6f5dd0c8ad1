"""Gradients that are read before the last backward of a step are divided by the loss scale, where that is the same."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import check_refused, found
from tests.rules.trained import PRELUDE, check_trained

TWO_LOSSES = """
class Importance:
    def __init__(self, model):
        self.model = model
        self.fisher = {{n: torch.zeros_like(p) for n, p in model.named_parameters()}}

    def update(self):
        {body}

    def penalty(self):
        return sum((self.fisher[n] * p ** 2).sum() for n, p in self.model.named_parameters())


model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
importance = Importance(model)
for x, y in loader:
    optimizer.zero_grad()
    with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:
        scaled_loss.backward()
    {between}
    with amp.scale_loss(importance.penalty(), optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    clip_grad_norm_([p.data.requires_grad_() for p in model.parameters()], 1.0)
for value in importance.fisher.values():
    seen.append(value.abs().sum())
"""


def two_losses(body: str, between: str = "importance.update()") -> str:
    return TWO_LOSSES.format(body=indent(body, " " * 8).strip(), between=indent(between, "    ").strip())


SQUARES = """for n, p in self.model.named_parameters():
    if p.grad is not None:
        self.fisher[n] = 0.9 * p.grad ** 2 + 0.1 * self.fisher[n]"""


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (SQUARES, "0.9 * (p.grad / loss_scale) ** 2"),
        (SQUARES.replace("p.grad **", "p.grad.detach() **"), "(p.grad.detach() / loss_scale) ** 2"),
        (SQUARES.replace("p.grad ** 2", "torch.square(p.grad.data)"), "torch.square(p.grad.data / loss_scale)"),
        (
            "for n, p in self.model.named_parameters():\n    g = p.grad\n    self.fisher[n] += g.abs() * g",
            "g = p.grad / loss_scale",
        ),
        (
            "self.fisher['0.bias'] += self.model[0].bias.grad.abs()",
            "(self.model[0].bias.grad / scaler.get_scale()).abs()",
        ),
    ],
)
def test_what_is_read_between_two_backwards_is_divided(body: str, read: str) -> None:
    after = check_trained(two_losses(body))
    assert read in after
    assert "unscale_" not in after
    assert after.count("get_scale()") == 1


def test_the_finding_names_the_line() -> None:
    result = rewrite(PRELUDE + two_losses(SQUARES))
    (told,) = found(result, "AMP309")
    assert (told.status, told.review) == ("note", "look")
    assert "p.grad ** 2" in result.before.splitlines()[told.line - 1]


MICRO_BATCHES = """
class Trainer:
    def __init__(self, model, optimizer):
        self.count = 0
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def train(self, pieces):
        for x, y in loader:
            with amp.scale_loss(criterion(self.model(x), y) / pieces, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.advance()
            if self.count % pieces == 0:
                clip_grad_norm_(amp.master_params(self.optimizer), 0.05)
                self.optimizer.step()
                self.optimizer.zero_grad()

    def advance(self):
        self.count += 1
        if self.count % 3 == 0:
            self.write()

    def write(self):
        for name, p in self.model.named_parameters():
            if p.grad is None:
                continue
            seen.append(p.grad.data.norm())
            seen.append(p.grad.data.std() if p.grad.dim() > 1 else 0.0)


trainer = Trainer(model, optimizer)
trainer.train(2)
"""


def test_a_log_of_every_micro_batch_that_counts_them_stays_where_it_is() -> None:
    after = check_trained(MICRO_BATCHES)
    assert "        loss_scale = self.scaler.get_scale()\n        for name, p in self.model" in after
    assert "seen.append((p.grad.data / loss_scale).norm())" in after
    assert "self.scaler.unscale_(self.optimizer)\n                clip_grad_norm_(" in after


def test_a_log_that_the_step_is_followed_by_too_is_refused() -> None:
    """There the gradients were unscaled by the step: dividing them again would be wrong."""
    twice = MICRO_BATCHES.replace("trainer.train(2)\n", "trainer.train(2)\ntrainer.write()\n")
    check_refused(PRELUDE + twice, "AMP307")


def test_a_log_that_another_program_shares_is_refused() -> None:
    files = {
        "log.py": "seen = []\n\n\ndef write(model):\n    for p in model.parameters():\n        seen.append(p.grad.std())\n",
        "train.py": PRELUDE + "from log import write\n" + MICRO_BATCHES.replace("self.write()", "write(self.model)"),
        "plain.py": """
            from log import write
            from project import build, loader

            model, optimizer = build()
            for x in loader:
                model(x).mean().backward()
                write(model)
                optimizer.step()
            """,
    }
    results = rewrite_files(files)
    assert results["log.py"].after is None
    assert [f.status for r in results.values() for f in found(r, "AMP307")] == ["manual"]
    del files["plain.py"]
    results = rewrite_files(files)
    assert "seen.append((p.grad / loss_scale).std())" in (results["log.py"].after or "")


@pytest.mark.parametrize(
    "body",
    [
        "for p in self.model.parameters():\n    p.grad.add_(0.01 * p.grad.norm())",
        "for p in self.model.parameters():\n    p.grad = 0.5 * p.grad.clamp(-1, 1)",
        "for n, p in self.model.named_parameters():\n    self.fisher[n] = p.grad",
        "for n, p in self.model.named_parameters():\n    self.change(p.grad)",
        "self.grads = [p.grad for p in self.model.parameters()]",
        "for n, p in self.model.named_parameters():\n    if p.grad.norm() > 1:\n        return",
        "return sum(p.grad.norm() for p in self.model.parameters())",
        "for p in self.model.parameters():\n    torch.nn.init.zeros_(p.grad)\n    self.fisher['x'] = p.grad ** 2",
    ],
)
def test_what_is_changed_kept_or_decided_by_is_refused(body: str) -> None:
    between = "if importance.update():\n    continue" if "return" in body else "importance.update()"
    check_refused(PRELUDE + two_losses(body, between), "AMP307")
