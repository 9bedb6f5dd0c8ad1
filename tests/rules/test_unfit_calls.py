"""Calls that cannot be made, and what only looks like a forward: nothing of them runs under autocast."""

from __future__ import annotations

from tests.rules.helpers import rewrite
from tests.rules.programs import APEX_LOOP, INITIALIZE, MODEL, apex
from tests.rules.trained import check_trained

SHIFTED = """
class Prefetcher:
    def __init__(self, loader):
        self.loader = iter(loader)
        self.mean = torch.tensor([0.5])

    def next(self):
        self.input, self.target = next(self.loader)
        self.input = self.input.sub_(self.mean).div_(2)
        return self.input, self.target


def validate(epoch, batches, net):
    fetcher = Prefetcher(batches)
    x, y = fetcher.next()
    hits = y.eq(y.view(-1, 1))
    return net(x), hits


model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
if grad_norm is None:
    validate(loader, model)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(clip_grad_norm_(amp.master_params(optimizer), 10.0))
    optimizer.step()
output, _ = validate(1, [(x.clone(), y) for x, y in loader], model)
seen.append(output.detach().float().mean())
"""


def test_a_call_with_an_argument_too_few_hands_nothing_over() -> None:
    after = check_trained(SHIFTED)
    assert "\n        self.input = self.input.sub_(self.mean).div_(2)\n" in after
    assert "\n    hits = y.eq(y.view(-1, 1))\n" in after
    assert "float16):\n        return net(x), hits\n" in after


def test_defaults_and_unpacked_arguments_are_no_lack() -> None:
    tail = """
    def validate(net, batches, half=False, *, steps=1):
        for x, y in batches:
            print(net(x))


    arguments = [model, loader]
    validate(model, loader)
    validate(*arguments)
    """
    result = rewrite(apex(APEX_LOOP, INITIALIZE, model=MODEL, tail=tail))
    assert result.after is not None
    assert "            print(net(x))\n" in result.after
    assert result.after.count("torch.autocast") == 2
