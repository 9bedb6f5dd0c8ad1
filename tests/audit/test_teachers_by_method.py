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


def _told(made: str, called: str, level: str, region: str) -> list[tuple[int, str]]:
    return _told_of((BEFORE, AFTER), made, called, level, region)


def _told_of(texts: tuple[str, str], made: str, called: str, level: str, region: str) -> list[tuple[int, str]]:
    given = (
        t.replace("MADE", made).replace("CALLED", called).replace("LEVEL", level).replace("REGION", region)
        for t in texts
    )
    return told(doubts(*given), "AMP531")


@pytest.mark.parametrize(("made", "called"), NETWORKS)
def test_o1_ran_them_in_half(made: str, called: str) -> None:
    assert _told(made, called, '"O1"', "") == [(AT, "review")]
    assert _told(made, called, '"O1"', REGION) == []


@pytest.mark.parametrize(("made", "called"), NETWORKS)
def test_o2_left_them_in_float32(made: str, called: str) -> None:
    assert _told(made, called, '"O2"', "") == []
    assert _told(made, called, '"O2"', REGION) == [(AT, "review")]


WITH = "with torch.no_grad(){}:\n" + " " * 16 + "target = CALLED"


@pytest.mark.parametrize(
    ("off", "is_off"),
    [
        ("torch.no_grad()", True),
        ("torch.inference_mode()", True),
        ("torch.set_grad_enabled(False)", True),
        ("torch.set_grad_enabled(True)", False),
        ("no_grad_to_disk(x)", False),
    ],
)
def test_where_gradients_are_off_a_call_is_a_run_of_it(off: str, is_off: bool) -> None:
    told_here = [(AT, "review")] if is_off else []
    for level, region, expected in (("O1", "", told_here), ("O2", REGION, told_here), ("O2", "", [])):
        texts = (BEFORE.replace("torch.no_grad()", off), AFTER.replace("torch.no_grad()", off))
        assert _told_of(texts, 'build("guide").cuda()', "guide(x)", f'"{level}"', region) == expected


@pytest.mark.parametrize(("off", "is_off"), [("torch.no_grad()", True), ("torch.enable_grad()", False)])
def test_a_decorator_switches_gradients_off_as_well(off: str, is_off: bool) -> None:
    asked = "\n            ".join([f"@{off}", "def ask(x):", "    return CALLED", "target = ask(x)"])
    texts = (BEFORE.replace(WITH.format(""), asked), AFTER.replace(WITH.format("REGION"), asked))
    assert [v for _, v in _told_of(texts, 'build("guide").cuda()', "guide(x)", '"O1"', "")] == ["review"] * is_off


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
    before, after = (
        t.replace("\n    def main(", hook, 1).replace("for _ in", "watch(net)\n        for _ in")
        for t in (BEFORE, AFTER)
    )
    assert _told_of((before, after), "build('guide').cuda()", "x", '"O1"', "") == []
