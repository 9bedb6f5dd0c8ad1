"""An object is of one class: what one class sets up is none of the runs of another, whose methods have the same names."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides

BEFORE, AFTER = sides("""
    import torch
    from data import args, batches
  - from apex import amp

    class Base:
        def set_up(self):
  -         self.model = amp.initialize(self.model, opt_level="O1")
  +         pass

    class Train(Base):
        def make(self):
            self.model = torch.nn.Linear(2, 1).cuda()
            self.set_up()

        def run(self):
  -         self.model(batches[0]).sum().backward()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             self.model(batches[0]).sum().backward()

    class Other(Base):
        def make(self):
            self.model = torch.nn.Linear(2, 1).cuda()
            {other}

        def run(self):
            return [self.model(x) for x in batches]

    {main}
    """)
ONE = "kind = Other if args.test else Train\nsolver = kind()\nsolver.make()\nsolver.run()\n"
BOTH = "solver = Train()\nsolver.make()\nsolver = Other()\nsolver.make()\nsolver.run()\n"
TURNS = "for kind in (Train, Other):\n    solver = kind()\n    solver.make()\n    solver.run()\n"


def _told(main: str, other: str = "pass") -> list[str]:
    texts = (t.format(main=main.replace("\n", "\n    "), other=other) for t in (BEFORE, AFTER))
    return [d.message for d in doubts(*texts) if d.code == "AMP531" and "ran in half precision" in d.message]


@pytest.mark.parametrize(("main", "told"), [(ONE, False), (BOTH, True), (TURNS, True)])
def test_an_object_of_another_class_comes_by_no_set_up_of_this_one(main: str, told: bool) -> None:
    assert bool(_told(main)) is told


@pytest.mark.parametrize(("main", "told"), [(ONE, False), (TURNS, True)])
def test_nor_does_what_that_class_runs_in_a_method_of_the_same_name(main: str, told: bool) -> None:
    assert any("self.model" in message for message in _told(main, "print(self.model(batches[0]))")) is told
