"""Whether models give half where O2 gave float32 is only said where one may: AMP112."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

SOURCE = """
    import torch
    from apex import amp
    from project import loader


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(8, 8)

        def forward(self, x, y):
            out = self.body(x)
            return {given}


    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer = amp.initialize(net, optimizer, opt_level="O2")
    for x, y in loader:
        optimizer.zero_grad()
        loss = net(x, y)
        with amp.scale_loss(loss{item}, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """


@pytest.mark.parametrize(
    ("given", "item", "half"),
    [
        ("torch.nn.functional.cross_entropy(out, y)", "", False),
        ("torch.softmax(out, 1).log().sum()", "", False),
        ("(torch.nn.functional.cross_entropy(out, y), torch.softmax(out, 1))", "[0]", False),
        ("out.relu().max()", "", True),
        ("(torch.nn.functional.cross_entropy(out, y), out)", "[0]", True),
    ],
)
def test_a_model_that_gives_a_loss_gives_no_half(given: str, item: str, half: bool) -> None:
    result = rewrite(SOURCE.format(given=given, item=item))
    (finding,) = [f for f in result.findings if f.code == "AMP112"]
    assert ("models give half where they gave float32" in finding.message) is half
