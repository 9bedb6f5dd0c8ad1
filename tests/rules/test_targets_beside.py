"""Targets that a helper hands back beside what the model computes: class numbers, which no cast may make floating."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import rewrite
from tests.rules.trained import check_trained

PROGRAM = """
NAMES = ["first", "second", "third"]


def forward_batch(batch, net):
    BODY


def epoch(data, net, optimizer=None):
    outputs, targets = [], []
    for batch in data:
        out, y, _ = forward_batch(batch, net)
        y = y[:, :1]
        outputs.extend(out.cpu())
        targets.extend(y.cpu())
        y = y[:, :2].contiguous()
        loss = torch.nn.functional.cross_entropy(out, y.view(-1)) if objective is None else objective(out, y)
        if optimizer is None:
            continue
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        clip_grad_norm_(net.parameters(), 100)
        optimizer.step()
    return outputs, [NAMES[t.item()] for t in targets]


def make(half):
    net = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if half:
        net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
    return net, optimizer


def main(half):
    net, optimizer = make(half)
    for _ in range(2):
        seen.extend(len(name) for name in epoch(data, net, optimizer)[1])
    return net


objective = None
data = [(x, (y[:, :1] > 0).long(), "name") for x, y in loader]
model = main(loader is not None)
"""
HANDED = (
    "x, y, names = batch\n    return net(x), y, names",
    "x, y, names = [i if isinstance(i, torch.Tensor) else i for i in batch]\n    return net(x), y, names",
    "x, y = (t.to('cpu') for t in batch[:2])\n    return net(x), y.view(-1, 1), batch[2]",
    "x, y = batch[0], batch[1]\n    return net(x), y, 'name'",
    "y = batch[1] if objective is None else batch[1].clone()\n    return net(batch[0]), y, 'name'",
)


@pytest.mark.parametrize("body", HANDED)
def test_what_a_helper_takes_out_of_the_batch_stays_what_it_is(body: str) -> None:
    after = check_trained(PROGRAM.replace("BODY", body))
    assert "targets.extend(y.cpu())" in after
    assert "y = y[:, :1]\n" in after
    assert "outputs.extend(out.float().cpu())" in after


COMPUTED = (
    "x, y, names = batch\n    y = net(x)\n    return net(x), y, names",
    "batch = [net(batch[0]), net(batch[0]), batch[2]]\n    x, y, names = batch\n    return x, y, names",
    "batch = list(batch)\n    batch[1] = net(batch[0])\n    return net(batch[0]), batch[1], 'name'",
    "y = batch[1] if objective is None else net(batch[0])\n    return net(batch[0]), y, 'name'",
)


def told(body: str) -> list[str]:
    imports = "import torch\nfrom apex import amp\nfrom data import clip_grad_norm_, loader, seen\n"
    result = rewrite(imports + textwrap.dedent(PROGRAM).replace("BODY", body))
    return [f.message for f in result.findings if f.code == "AMP504"]


@pytest.mark.parametrize("body", COMPUTED)
def test_what_the_model_computed_on_some_way_may_be_half_and_is_told(body: str) -> None:
    assert any("y float32" in m or m.startswith("y ") for m in told(body)), told(body)


@pytest.mark.parametrize("body", HANDED)
def test_of_what_is_handed_back_nothing_is_told(body: str) -> None:
    assert not any("y float32" in m or m.startswith("y ") for m in told(body)), told(body)


def test_the_second_argument_of_a_loss_is_no_sign_of_floating_values() -> None:
    source = """
    import torch
    from apex import amp
    from models import Net
    from data import criterion, loader

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    kept = []
    for x, y in loader:
        out, marks = model(x, y)
        kept.append((out.cpu(), marks.cpu()))
        loss = criterion(out, marks)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """
    result = rewrite(source)
    assert result.after is not None
    assert "kept.append((out.float().cpu(), marks.cpu()))" in result.after
    assert any(f.code == "AMP504" and "marks" in f.message and f.review != "as-is" for f in result.findings)
