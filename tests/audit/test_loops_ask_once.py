"""What a loop goes through is asked for once: a name that it holds may be given something else by then. AMP504."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

SOURCE = """
    import torch
    from apex import amp
    from project import loader, show


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(8, 8)

        def forward(self, x):
            found = []
            for {turn}:
                show(part.cpu().numpy())
                x = self.body(part)
                found.append(x)
            return torch.cat(found)


    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
    for x in loader:
        optimizer.zero_grad()
        with amp.scale_loss(net(x).pow(2).sum(), optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        ("part in x", False),
        ("part, name in zip(x, loader)", False),
        ("part in self.body(x)", True),
        ("part in [x for _ in range(2)]", False),
    ],
)
def test_what_a_loop_goes_through_is_what_it_was_at_first(turn: str, told: bool) -> None:
    result = rewrite(SOURCE.format(turn=turn))
    assert result.after is not None
    assert ("part.float().cpu().numpy()" in result.after) is told
    assert not [f for f in result.findings if f.code == "AMP535"]
