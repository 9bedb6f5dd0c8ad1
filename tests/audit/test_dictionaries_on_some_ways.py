"""A network that gives a dictionary on one way and a tensor on another: what has keys is the dictionary."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

SOURCE = """
    import torch
    from apex import amp
    from project import args, loader, seen


    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Conv2d(3, 3, 3)

        def forward(self, x):
            image = self.body(x)
            return {"image": image, "mask": image > 0, "loss": image.sum()}


    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Conv2d(3, 3, 3)

        def forward(self, x):
            return self.body(x)


    class Net(torch.nn.Module):
        def __init__(self, named):
            super().__init__()
            if named:
                self.decoder = Named()
            else:
                self.decoder = Plain()

        def forward(self, x):
            given = self.decoder(x)
            MORE
            return given


    net = Net(args.named).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
    for x in loader:
        optimizer.zero_grad()
        with amp.scale_loss(net(x)["loss"], optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    with torch.no_grad():
        for x in loader:
            out = net(x)
            seen.append(USED)
    """


PERHAPS, SURELY = "may be float16 outside", "leaves the autocast region as float16"


@pytest.mark.parametrize("more", ["pass", 'given["size"] = x.shape[0]'])
@pytest.mark.parametrize(
    ("used", "wanted"),
    [
        ('out["mask"].sum(0)', []),
        ('out["image"].cumsum(0)', [SURELY]),
        ("out.cumsum(0)", [PERHAPS]),
    ],
)
def test_what_has_a_key_is_what_the_dictionary_holds(more: str, used: str, wanted: list[str]) -> None:
    result = rewrite(SOURCE.replace("MORE", more).replace("USED", used))
    assert f"seen.append({used})" in (result.after or "")
    found = [f.message for f in result.findings if f.code == "AMP535"]
    assert [any(text in m for text in wanted) for m in found] == [True] * len(wanted)
