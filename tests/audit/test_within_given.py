"""Networks that a model which Apex was given holds, wherever they are handed to and run."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

MODEL = """
    import torch
    from collect import Collector


    def define(width):
        net = torch.nn.Sequential(torch.nn.Linear(8, width), Critic(width))
        return net


    class Critic(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.head = torch.nn.Linear(width, 1)

        def forward(self, x):
            return self.head(x)


    class Model(torch.nn.Module):
        def __init__(self, teacher=None):
            super().__init__()
            self.net = torch.nn.Linear(8, 8)
            self.critic = Critic(8)
            self.pair = torch.nn.ModuleList([Critic(8), Critic(8)])
            self.collector = Collector()

        def forward(self, x):
            nets = self.critic, self.pair[0]
            return self.collector.losses(nets, self.net(x))
    """
COLLECT = """
    import torch


    class Collector:
        def losses(self, nets, x):
            critic, second = nets
            return self.judge(critic, x)

        def judge(self, critic, x):
            score = critic(x)
            return score.mean()
    """
MAIN = """
    import torch
    from apex import amp
    from collect import Collector
    from model import Critic, Model
    from project import args, loader

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {critic}
    model, optimizer = amp.initialize(model, optimizer, opt_level={level})
    collector = Collector()
    for x in loader:
        optimizer.zero_grad()
        loss = model(x)
        {more}
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    torch.save(critic.state_dict(), "critic.pt")
    """


def told(critic: str, more: str, code: str, level: str = "args.level") -> list[str]:
    main = MAIN.format(critic=critic, more=more, level=level)
    results = rewrite_files({"model.py": MODEL, "collect.py": COLLECT, "main.py": main})
    assert "torch.autocast" in (results["main.py"].after or "")
    return [f.message for r in results.values() for f in r.findings if f.code == code]


@pytest.mark.parametrize("level", ["args.level", '"O2"'])
def test_what_a_model_holds_was_half_with_it(level: str) -> None:
    assert not [m for m in told("critic = model.critic", "", "AMP535", level) if "critic gives" in m]
    assert not told("critic = model.critic", "loss = loss + collector.judge(critic, x)", "AMP531", level)


@pytest.mark.parametrize("level", ["args.level", '"O2"'])
def test_what_stands_beside_it_was_not(level: str) -> None:
    more = "loss = loss + collector.judge(critic, x)"
    (found,) = told("critic = Critic(8).cuda()", more, "AMP531", level)
    assert found.startswith("critic was not given to amp.initialize: O2 and O3 left it in float32")


CREATE = """
    import torch
    from apex import amp
    from nets import Flow, Net


    class Parallel(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, *given):
            return self.inner(*given)


    def wrap(model):
        model = Parallel(model)
        return model


    def create(train):
        model = Net().cuda()
        if train:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            {before}
            model, optimizer = amp.initialize({given}, optimizer, opt_level="O2")
            model = wrap(model)
            {after}
            return model, flow, optimizer
        return model
    """
NETS = """
    import torch


    class Flow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Conv2d(3, 3, 3)

        def forward(self, x):
            return self.body(x)


    class Net(Flow):
        def forward(self, x, flow):
            return self.body(x) + flow
    """
TRAIN = """
    from apex import amp
    from create import create
    from project import loader

    model, flow, optimizer = create(True)
    flow.eval()
    for x in loader:
        optimizer.zero_grad()
        moved = flow(x)
        loss = model(x, moved).float().pow(2).sum()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """


@pytest.mark.parametrize(
    ("before", "given", "after", "told"),
    [
        ("", "model", "flow = wrap(Flow().cuda())", 1),
        ("flow = Flow().cuda()", "model", "flow = wrap(flow)", 1),
        ("flow = Flow().cuda()", "[model, flow]", "model, flow = model", 0),
        ("", "model", "flow = model.inner", 0),
    ],
)
def test_what_is_made_or_wrapped_below_the_set_up_was_not_given_to_it(
    before: str, given: str, after: str, told: int
) -> None:
    create = CREATE.format(before=before, given=given, after=after)
    results = rewrite_files({"create.py": create, "nets.py": NETS, "train.py": TRAIN})
    assert "torch.autocast" in (results["train.py"].after or "")
    found = [f.message for f in results["train.py"].findings if f.code == "AMP531"]
    assert [m.startswith("flow was not given to amp.initialize") for m in found] == [True] * told
