"""A switch that several methods give an object: the last of them that a way comes by decides, of those the object has."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides, told

BOTH = """
    import torch
  - from apex import amp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(x)

    class Base:
        def __init__(self, model, opt):
            self.model, self.opt = model, opt
  +         self.mixed = False

        def train(self, loader, on):
            if on:
  -             self.model, self.opt = amp.initialize(self.model, self.opt, opt_level="O1")
  +             self.mixed = True
            self.epoch(loader, on)

        def epoch(self, loader, on):
            for x in loader:
                loss = self.embed(x).sum()
  -             if on:
  -                 with amp.scale_loss(loss, self.opt) as scaled:
  -                     scaled.backward()
  -             else:
  -                 loss.backward()
  +             scaler.scale(loss).backward()

        def embed(self, x):
  +         with torch.autocast("cuda", dtype=torch.float16, enabled=self.mixed):
                return self.model(x)

    class Other(Base):
        def train(self, loader, on):
            self.embed(loader[0])
            if on:
  -             self.model, self.opt = amp.initialize(self.model, self.opt, opt_level="O1")
  +             THEN
            self.epoch(loader, on)

    model = Net().cuda()
  + scaler = torch.amp.GradScaler("cuda", enabled=args.on)
    trainer = KIND(model, torch.optim.SGD(model.parameters(), lr=0.1))
    trainer.train(loader, args.on)
    """


def said(kind: str, then: str = "self.mixed = True") -> list[tuple[int, str]]:
    before, after = sides(BOTH)
    texts = [t.replace("KIND", kind).replace("THEN", then) for t in (before, after)]
    return told(doubts(*texts), "AMP531")


@pytest.mark.parametrize("kind", ["Base", "Other", "(Other if args.other else Base)"])
def test_what_either_set_up_gives_is_known(kind: str) -> None:
    assert not said(kind)


def test_an_object_whose_own_method_gives_it_nothing_is_left_off() -> None:
    assert said("Other", then="pass")


def test_one_that_has_the_method_of_its_base_run_as_well_is_given_what_that_gives() -> None:
    assert not said("Other", then="super().train(loader, on)")
    assert not said("Other", then="Base.train(self, loader, on)")


def test_the_last_one_decides() -> None:
    assert said("Other", then="self.mixed = True\n            self.mixed = False")
