"""Networks that no set-up was given and that a method of theirs runs, also of a class out of sight, or with a base that is:
O1 ran them in half, O2 and O3 left them in float32."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides, told

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp
    from zoo import Backbone, build

    class Guide(Backbone):
        def __init__(self):
            super().__init__()
            self.top = torch.nn.Linear(4, 4)

        def predict(self, x):
            return self.top(self.backbone(x))

        def size(self, x):
            return self.width

    def main(level):
        net = build("net").cuda()
        guide = MADE
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
  -     net, opt = amp.initialize(net, opt, opt_level=LEVEL)
  +     scaler = torch.amp.GradScaler("cuda")
        for _ in range(3):
            x = torch.randn(2, 4).cuda()
  -         with torch.no_grad():
  +         with torch.no_grad()REGION:
                target = CALLED
  -         loss = (net(x) - target).pow(2).mean()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             loss = (net(x) - target).pow(2).mean()
            opt.zero_grad()
  -         with amp.scale_loss(loss, opt) as scaled:
  -             scaled.backward()
  -         opt.step()
  +         scaler.scale(loss).backward()
  +         scaler.step(opt)
  +         scaler.update()

    main("O1")
    """)
REGION = ', torch.autocast("cuda", dtype=torch.float16)'
AT = 24
NETWORKS = [
    ('build("guide").cuda()', "guide.generate(x)"),
    ('build("guide").to("cuda").eval()', "guide.encode(x)"),
    ('build("guide").cuda()', "guide(x)"),
    ("Guide().cuda()", "guide.predict(x)"),
    ("Guide.load('p').cuda()", "guide.predict(x)"),
    ("Guide().cuda()", "guide(x)"),
    ("Guide().cuda()", "guide.forward(x)"),
]


def _texts(made: str, called: str, level: str, region: str) -> list[str]:
    return [
        t.replace("MADE", made).replace("CALLED", called).replace("LEVEL", level).replace("REGION", region)
        for t in (BEFORE, AFTER)
    ]


def _told(made: str, called: str, level: str, region: str) -> list[tuple[int, str]]:
    return told(doubts(*_texts(made, called, level, region)), "AMP531")


@pytest.mark.parametrize(("made", "called"), NETWORKS)
def test_o1_ran_them_in_half(made: str, called: str) -> None:
    assert _told(made, called, '"O1"', "") == [(AT, "review")]
    assert _told(made, called, '"O1"', REGION) == []


@pytest.mark.parametrize(("made", "called"), NETWORKS)
def test_o2_left_them_in_float32(made: str, called: str) -> None:
    assert _told(made, called, '"O2"', "") == []
    assert _told(made, called, '"O2"', REGION) == [(AT, "review")]


@pytest.mark.parametrize(
    ("made", "called"),
    [
        ('build("guide")', "guide.predict(x)"),  # a classifier of scikit-learn's has that, too
        ('build("guide").cuda()', "guide.width(x)"),
        ("Guide().cuda()", "guide.size(x)"),
        ("torch.ones(4).cuda()", "guide.sum(x)"),
    ],
)
def test_what_is_not_seen_to_run_a_network_is_not_told_of(made: str, called: str) -> None:
    assert _told(made, called, '"O1"', "") == []
    assert _told(made, called, '"O2"', REGION) == []


def test_what_a_hook_hands_on_as_self_is_no_network_of_its_own() -> None:
    hook = """
    def size(self):
        return sum(p.numel() for p in self.parameters())

    def timed(self, x):
        return self.forward(x)

    def watch(net):
        net.register_forward_hook(lambda m, i, o: print(size(m), timed(m, *i)))

    def main("""
    texts = _texts("build('guide').cuda()", "x", '"O1"', "")
    watched = (t.replace("\n    def main(", hook, 1).replace("for _ in", "watch(net)\n        for _ in") for t in texts)
    assert told(doubts(*watched), "AMP531") == []
