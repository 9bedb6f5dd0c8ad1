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


@pytest.mark.parametrize(
    ("kept", "called"),
    [
        ("score = partial(lambda k, x: net(x) * k, 2)", "score(xs[0])"),
        ("score = partial(lambda x, k: net(x) * k, k=2)", "score(xs[0])"),
        ("scores = []\n        scores.append(lambda x: net(-x))", "scores[0](xs[0])"),
        ("score = Score(lambda x: net(-x))", "score.of(xs[0])"),
        ("score = Score(run=lambda x: net(-x))", "score.of(xs[0])"),
    ],
)
def test_what_only_keeps_it_runs_nothing(kept: str, called: str) -> None:
    score = """
    from functools import partial


    class Score:
        def __init__(self, run):
            self.run = run

        def of(self, x):
            return self.run(x)
    """
    program = PROGRAM.replace("from apex import amp\n", f"from apex import amp\n{score}")
    result = rewrite(program.replace("KEPT", kept).replace("CALLED", called))
    assert f"\n    {kept.replace(' ' * 8, ' ' * 4)}\n" in (result.after or "")
    told = [f.review for f in result.findings if f.code == "AMP531"]
    inside = f'    with torch.autocast("cuda", dtype=torch.float16):\n        print({called})' in (result.after or "")
    assert inside or told == ["review"]


@pytest.mark.parametrize(
    ("kept", "called"),
    [
        ("score = partial(lambda k, x: net(x) * k, 2)", "score(x)"),
        ('scores = {"one": lambda x: net(x) * 2}', 'scores["one"](x)'),
        ('scores = {"one": partial(lambda k, x: net(x) * k, 2)}', 'scores["one"](x)'),
    ],
)
def test_what_is_kept_and_called_in_a_region_has_that(kept: str, called: str) -> None:
    program = PROGRAM.replace("from apex import amp\n", "from apex import amp\n    from functools import partial\n")
    program = program.replace("net(x).pow(2)", f"{called}.pow(2)").replace("KEPT", kept).replace("CALLED", "0")
    result = rewrite(program)
    assert f"            loss = {called}.pow(2)" in (result.after or "")
    assert f"\n    {kept}\n" in (result.after or "")
    assert not [f for f in result.findings if f.code == "AMP531"]


def test_what_a_call_is_handed_runs_there() -> None:
    result = rewrite(PROGRAM.replace("KEPT", "pass").replace("CALLED", "list(map(lambda x: net(-x), xs))"))
    assert result.after is not None
    assert '    with torch.autocast("cuda", dtype=torch.float16):\n        print(list(map(' in result.after
    assert not [f for f in result.findings if f.code == "AMP531"]
