"""A lambda that is kept runs where it is called: a region around where it is written casts nothing."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
    import torch
    from apex import amp

    def main(xs):
        net = torch.nn.Linear(4, 2).cuda()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        net, opt = amp.initialize(net, opt, opt_level="O1")
        KEPT
        for x in xs:
            loss = net(x).pow(2).mean()
            opt.zero_grad()
            with amp.scale_loss(loss, opt) as scaled_loss:
                scaled_loss.backward()
            opt.step()
        print(CALLED)

    main([torch.randn(2, 4).cuda()])
    """


@pytest.mark.parametrize(
    ("kept", "called"),
    [
        ("score = lambda x: net(x).max()", "score(xs[0])"),
        ('views = {"flip": lambda x: net(-x)}', "[view(xs[0]) for view in views.values()]"),
        ("views = [lambda x: net(x), lambda x: net(-x)]", "[view(xs[0]) for view in views]"),
    ],
)
def test_what_a_kept_lambda_runs_is_told_of_where_it_is_called_outside(kept: str, called: str) -> None:
    result = rewrite(PROGRAM.replace("KEPT", kept).replace("CALLED", called))
    assert result.after is not None
    assert f"\n    {kept}\n" in result.after
    assert [f.review for f in result.findings if f.code == "AMP531"] == ["review"]


def test_what_a_call_is_handed_runs_there() -> None:
    result = rewrite(PROGRAM.replace("KEPT", "pass").replace("CALLED", "list(map(lambda x: net(-x), xs))"))
    assert result.after is not None
    assert '    with torch.autocast("cuda", dtype=torch.float16):\n        print(list(map(' in result.after
    assert not [f for f in result.findings if f.code == "AMP531"]
