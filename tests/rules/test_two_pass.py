"""Optimizers with passes of their own are refused; the passes written out in the explanation train as they should."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import torch

from amp_migrate.rules.stepping import two_pass
from tests.rules.helpers import check_manual, check_rewrite, rewrite

OPTIMIZER = """
class Sharp(torch.optim.Optimizer):
    def __init__(self, params, base):
        super().__init__(params, {})
        self.base = base(self.param_groups, lr=0.1)

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["moved"] = 0.05 * p.grad
                p.add_(self.state[p]["moved"])
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def %s(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["moved"])
                p.sub_(0.1 * p.grad)
        if zero_grad:
            self.zero_grad()
"""
PROGRAM = """
import torch
from apex import amp

{optimizer}

def train(model, loader, criterion):
    optimizer = Sharp(model.parameters(), torch.optim.SGD)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
{body}
"""


def test_methods_that_read_gradients_are_refused() -> None:
    (example,) = two_pass.CODES[0].examples
    source = PROGRAM.format(optimizer=OPTIMIZER % "second_step", body=textwrap.indent(example.before, " " * 8))
    result = check_manual(source, "AMP226")
    assert result.after is None
    (finding,) = [f for f in result.findings if f.code == "AMP226"]
    assert finding.construct == "optimizer.first_step"


def test_an_optimizer_out_of_sight_without_a_step() -> None:
    source = PROGRAM.format(optimizer="from sharp import Sharp\n", body=textwrap.indent(BODY, " " * 8))
    check_manual(source, "AMP226")


BODY = """\
with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:
    scaled_loss.backward()
optimizer.first_step(zero_grad=True)
"""


def test_a_method_that_only_looks_on_the_way_to_the_step_is_a_reader_like_others() -> None:
    result = rewrite(
        """
        import torch
        from apex import amp

        class Watched(torch.optim.SGD):
            def norm(self):
                return sum(p.grad.norm() for group in self.param_groups for p in group["params"])

        def train(model, loader, criterion):
            optimizer = Watched(model.parameters(), lr=0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                optimizer.zero_grad()
                with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:
                    scaled_loss.backward()
                print(optimizer.norm())
                optimizer.step()
        """
    )
    assert "AMP226" not in {f.code for f in result.findings}


def test_methods_that_read_no_gradients_are_fine() -> None:
    optimizer = """
    class Plain(torch.optim.SGD):
        def set_rate(self, rate):
            for group in self.param_groups:
                group["lr"] = rate
    """
    check_rewrite(
        f"""
        import torch
        from apex import amp
        {textwrap.indent(optimizer, "    ")}
        def train(model, loader, criterion):
            optimizer = Plain(model.parameters(), lr=0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                optimizer.zero_grad()
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.set_rate(0.2)
                optimizer.step()
        """,
        f"""
        import torch
        {textwrap.indent(optimizer, "    ")}
        def train(model, loader, criterion):
            optimizer = Plain(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler("cuda")
            for x, y in loader:
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = criterion(model(x), y)
                scaler.scale(loss).backward()
                optimizer.set_rate(0.2)
                scaler.step(optimizer)
                scaler.update()
        """,
    )


@pytest.mark.parametrize("overflow", [None, 1], ids=["finite", "one batch overflows"])
def test_the_passes_written_out(overflow: int | None) -> None:
    """Against the same two passes in float32, without a scaler; an iteration that overflows changes nothing."""
    (example,) = two_pass.CODES[0].examples
    loop = compile(example.after.replace('"cuda"', '"cpu"'), "loop", "exec")
    names: dict[str, Any] = {"torch": torch}
    exec(OPTIMIZER % "step", names)
    torch.manual_seed(0)
    model, plain = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    plain.load_state_dict(model.state_dict())
    names |= {
        "model": model,
        "criterion": torch.nn.functional.mse_loss,
        "optimizer": names["Sharp"](model.parameters(), torch.optim.SGD),
        "scaler": torch.amp.GradScaler("cpu", init_scale=1024.0),
    }
    expected = names["Sharp"](plain.parameters(), torch.optim.SGD)
    for i in range(3):
        x, y = torch.randn(8, 4), torch.randn(8, 2)
        if i == overflow:
            x = x * 1e6
        exec(loop, names | {"x": x, "y": y})
        if i == overflow:
            continue
        for move in (expected.first_step, expected.step):
            torch.nn.functional.mse_loss(plain(x), y).backward()
            move(zero_grad=True)
    assert torch.isfinite(model.weight).all()
    torch.testing.assert_close(model.weight, plain.weight, rtol=0, atol=5e-3)
    assert names["scaler"].get_scale() == (1024.0 if overflow is None else 512.0)
