"""Parts that one of the calls which train a network gives no gradient: a generator and a discriminator in one module."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, program

BEFORE = """
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.g = nn.Linear(2, 2)
            self.d = nn.Linear(2, 2)

        def forward(self, x, mode="generator"):
            if mode == "generator":
                return self.generator_loss(x)
            elif mode == "discriminator":
                return self.discriminator_loss(x)
            return self.fake(x)

        def generator_loss(self, x):
            return self.d(self.fake(x)).sum()

        def discriminator_loss(self, x):
            with torch.no_grad():
                fake = self.fake(x)
            return self.d(fake).sum()

        def fake(self, x, scale=None):
            return self.g(x)

    class Trainer:
        def __init__(self):
            self.model = Both()
            self.model = DDP(self.model)

        def generator_step(self, x):
            loss = self.model(x, mode="generator")
            loss.backward()

        def discriminator_step(self, x):
            loss = self.model(x, mode="discriminator")
            loss.backward()
    """
STEPS = BEFORE[BEFORE.index("        def generator_step") :]
NO_GRAD = """            with torch.no_grad():
                fake = self.fake(x)
"""
LEFT_OUT = "with no gradient for its g"


def native(text: str) -> str:
    return text.replace("from apex.parallel", "from torch.nn.parallel")


def messages(*changes: tuple[str, str]) -> list[str]:
    text = BEFORE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    before = program(text)
    return [d.message for d in doubts(before, native(before)) if d.code == "AMP651"]


def step(body: str) -> tuple[str, str]:
    lines = "\n".join(f"            {line}" for line in body.splitlines())
    return STEPS, f"        def step(self, x):\n{lines}\n"


@pytest.mark.parametrize(
    "change",
    [
        ("generator_loss", "generator_loss"),
        (NO_GRAD, "            fake = self.fake(x).detach()\n"),
        ("self.d(fake)", "self.d(fake.detach())"),
        (NO_GRAD + "            return self.d(fake).sum()", "            return self.d(x).sum()"),
        ("        def fake(", "        @torch.no_grad()\n        def fake("),
        ("with torch.no_grad()", "with torch.inference_mode()"),
        ('elif mode == "discriminator"', 'if mode != "generator" and mode == "discriminator"'),
        ('self.model(x, mode="discriminator")', 'self.model(x, "discriminator")'),
        ('self.model(x, mode="generator")', "self.model(x)"),
        ("self.model = DDP(self.model)", "self.model = DDP(module=self.model)"),
        step('scale(self.model(x)).backward()\nscale(self.model(x, "discriminator")).backward()'),
        step('self.model(x).backward()\nself.model(x, mode="discriminator").backward()'),
        step('for part in x:\n    self.model(part).backward()\n    self.model(part, "discriminator").backward()'),
    ],
)
def test_a_part_that_one_mode_runs_without_gradients(change: tuple[str, str]) -> None:
    (message,) = messages(change)
    assert LEFT_OUT in message
    assert message.endswith("pass find_unused_parameters=True")


THREE = ("        def fake(", "        def other(self, x):\n            return self.h(x)\n\n        def fake(")
OTHER = 'if mode == "other":\n                return self.h(x)\n            if mode == "generator":'


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('loss = self.model(x, "discriminator") + self.model(x[0], "discriminator")\nloss.backward()', True),
        ('for part in x:\n    loss = loss + self.model(part, "discriminator")\nloss.backward()', True),
        ('loss = self.model(x, "other") + self.model(x, "discriminator")\nloss.backward()', False),
        ('loss = self.model(x, "discriminator") + self.model(x, "generator")\nloss.backward()', True),
        ('loss = self.model(x, "generator") + self.model(x, "discriminator")\nloss.backward()', False),
    ],
)
def test_a_backward_after_several_forwards(body: str, found: bool) -> None:
    """Asked to look, torch takes for unused what the last forward does not use; and raises if that gets a gradient."""
    three = ("self.d = nn.Linear(2, 2)", "self.d = nn.Linear(2, 2)\n            self.h = nn.Linear(2, 2)")
    (message,) = messages(step(body), three, ('if mode == "generator":', OTHER), THREE)
    assert "with no gradient for its " in message
    assert message.endswith("pass find_unused_parameters=True") is found
    assert ("static_graph=True if all steps are alike" in message) is not found


@pytest.mark.parametrize(
    "change",
    [
        (NO_GRAD, "            fake = self.fake(x)\n"),
        ("self.d(fake)", "self.d(fake) + self.fake(x)"),
        ("self.d(fake)", "run(self, fake)"),  # which may run whatever it has
        ("self.d(fake)", "sum(part(fake) for part in self.children())"),
        ("self.d(fake)", 'getattr(self, "g")(fake)'),
        ('mode="discriminator")', "mode=self.mode)"),  # open
        ('elif mode == "discriminator"', "else"),
        (
            "            loss.backward()\n\n        def d",
            "            loss.backward()\n\n        @torch.no_grad()\n        def d",
        ),
        ("nn.Module", "lib.Network"),
        ("self.g = nn.Linear(2, 2)", "self.g = nn.ReLU()"),
        ("self.d = nn.Linear(2, 2)", "self.d = nn.Linear(2, 2)\n            self.g.requires_grad_(False)"),
        step('loss = self.model(x) + self.model(x, "discriminator")\nloss.backward()'),
        step('return self.model(x, "discriminator")'),  # whose backward is elsewhere
    ],
)
def test_every_part_may_take_part(change: tuple[str, str]) -> None:
    changes = [change]
    if change[0] == 'elif mode == "discriminator"':
        changes.append(
            ("            return self.fake(x)\n\n        def generator_loss", "\n        def generator_loss")
        )
        changes.append((NO_GRAD, "            fake = self.fake(x)\n"))
    assert not messages(*changes)


BY_NAME = """
    import importlib
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.g, self.d = parts()

        def forward(self, x, mode):
            if mode == "generator":
                return self.d(self.g(x)).sum()
            return self.d(self.g(x).detach()).sum()

        def optimizers(self):
            return [torch.optim.SGD(self.g.parameters(), 0.1), torch.optim.SGD(self.d.parameters(), 0.1)]

    class Other(nn.Module):
        def forward(self, x, OTHER):
            return x

    def train(name, loader):
        model = importlib.import_module(name).Model()
        model = DDP(model)
        for x in loader:
            model(x, mode="generator").backward()
            model(x, mode="discriminator").backward()
    """


@pytest.mark.parametrize(("other", "found"), [("scale", True), ("mode", False)])
def test_a_class_out_of_sight_is_one_that_takes_what_the_model_is_called_with(other: str, found: bool) -> None:
    before = program(BY_NAME.replace("OTHER", other))
    told = [d.message for d in doubts(before, native(before)) if d.code == "AMP651"]
    assert [LEFT_OUT in message for message in told] == [True] * found


PAIR = """
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP

    def Dense(n):
        return nn.Linear(n, n)

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = Dense(2)

        def forward(self, x):
            return self.proj(x)

    class Net(nn.Module):
        def __init__(self, output):
            super().__init__()
            self.output = output
            self.body = nn.Linear(2, 2)
            if self.output:
                self.head = Head()

        def forward(self, mode, **given):
            if mode == "run":
                return self.run(**given)
            elif mode == "predict":
                return self.predict(**given)
            raise ValueError(mode)

        def run(self, x):
            return self.body(x)

        def predict(self, x):
            return self.head(x)

    class Trainer:
        NAMES = ["encoder", "decoder"]

        def __init__(self, encoder, decoder):
            self.encoder = encoder
            self.decoder = decoder
            for name in self.NAMES:
                setattr(self, name, [DDP(model) for model in getattr(self, name)])

        def step(self, x):
            encoded = self.encoder[0]("run", x=x)
            decoded = self.decoder[0]("run", x=encoded)
            loss = self.decoder[0]("predict", x=decoded)
            self.optimize(loss.sum())

        def optimize(self, loss):
            loss.backward()

    def build(args):
        encoder = Net(True)
        decoders = [Net(True)]
        return [encoder.cuda()], [d.cuda() for d in decoders]

    def main(args):
        encoder, decoder = build(args)
        trainer = Trainer(encoder, decoder)
        trainer.step(torch.ones(1, 2))
    """


@pytest.mark.parametrize(
    ("old", "new", "end"),
    [
        ("", "", "pass find_unused_parameters=True"),
        ("loss.backward()", "scale(loss).backward()", "pass find_unused_parameters=True"),
        ("x=decoded", "x=x", "static_graph=True if all steps are alike"),  # no way back to what the other forward uses
        ("encoder = Net(True)", "encoder = Net(False)", None),  # which has no head
        ("encoder = Net(True)", "encoder = Net(output=args.output)", None),
        ("self.head = Head()", "self.head = nn.ReLU()", None),
        (
            'encoded = self.encoder[0]("run", x=x)',
            'encoded = self.encoder[0]("predict", x=self.encoder[0]("run", x=x))',
            None,
        ),
        ("loss.backward()", "print(loss)", None),
        (
            "            if self.output:\n                self.head = Head()\n",
            "            self.head = nn.Linear(2, 2, bias=False)\n            self.head.weight = self.body.weight\n",
            None,
        ),
    ],
)
def test_networks_of_one_class_that_run_apart(old: str, new: str, end: str | None) -> None:
    """An encoder with a head that only the decoder's step asks for."""
    before = program(PAIR.replace(old, new) if old else PAIR)
    told = [d.message for d in doubts(before, native(before)) if d.code == "AMP651"]
    assert len(told) == (end is not None)
    if end is not None:
        assert "runs Net with no gradient for its head" in told[0]
        assert told[0].endswith(end)
