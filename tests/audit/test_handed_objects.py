"""An attribute that came with the migration is read of objects that keep it, and not before a method gave it to them."""

from __future__ import annotations

from tests.audit.helpers import doubts, doubts_of, sides, told

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    class Learner:
        def __init__(self, data):
            self.data = data
            self.model = torch.nn.Linear(3, 2)
  +         self.scaler = torch.amp.GradScaler("cuda", enabled=False)

        def fit(self, mixed=False):
            optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
  -         if mixed:
  -             self.model, optimizer = amp.initialize(self.model, optimizer)
  +         self.scaler = torch.amp.GradScaler("cuda", enabled=mixed)
            self.epoch(self.model, self.data, optimizer, mixed)

        @staticmethod
        def epoch(model, data, optimizer, mixed):
            for x in data:
  -             loss = model(x).sum()
  -             if mixed:
  -                 with amp.scale_loss(loss, optimizer) as scaled:
  -                     scaled.backward()
  -             else:
  -                 loss.backward()
  -             optimizer.step()
  +             with torch.autocast("cuda", enabled=mixed):
  +                 loss = model(x).sum()
  +             model.scaler.scale(loss).backward()
  +             model.scaler.step(optimizer)
  +             model.scaler.update()

        def predict(self, x):
  -         return self.model(x)
  +         with torch.autocast("cuda", enabled=self.scaler.is_enabled()):
  +             return self.model(x)
""")
HANDED = AFTER.replace("self.model, self.data, optimizer, mixed)", "self, self.data, optimizer, mixed)")
HANDED = HANDED.replace("model(x).sum()", "model.model(x).sum()")


def test_a_network_keeps_no_scaler_of_the_object_that_trains_it() -> None:
    found = doubts(BEFORE, AFTER)
    assert told(found, "AMP131") == [(21, "refuse")]
    assert [d.message for d in found if d.code == "AMP131"] == [
        "model may come from torch.nn.Linear here, and it is Learner that keeps scaler"
    ]


def test_a_class_of_the_program_that_is_another() -> None:
    network = "\n    class Net(torch.nn.Module):\n        pass\n"
    before, after = (
        text.replace("torch.nn.Linear(3, 2)", "Net()").replace("\n    class L", f"{network}\n    class L")
        for text in (BEFORE, AFTER)
    )
    assert [v for _, v in told(doubts(before, after), "AMP131")] == ["refuse"]
    gives = "class Net(torch.nn.Module):\n        def __getattr__(self, name):\n            return 1"
    before, after = (t.replace("class Net(torch.nn.Module):\n        pass", gives) for t in (before, after))
    assert not told(doubts(before, after), "AMP131")


def test_the_object_itself_may_be_handed() -> None:
    assert not told(doubts(BEFORE, HANDED), "AMP131")
    assert not told(doubts(BEFORE, AFTER.replace("model.scaler", "data.scaler")), "AMP131")


LATE = AFTER.replace('            self.scaler = torch.amp.GradScaler("cuda", enabled=False)\n', "")
LATE = LATE.replace("self.scaler", "scaler").replace("optimizer, mixed)", "optimizer, mixed, scaler)")
LATE = LATE.replace("model.scaler", "scaler").replace("scaler.is_enabled()", "self.use_amp")
LATE = LATE.replace("            self.epoch(", "            self.use_amp = mixed\n            self.epoch(")
NOTEBOOK = """
    from train import Learner

    learner = Learner([1])
    {first}

    def on_frame(change):
        return learner.predict(change)

    camera.observe(on_frame)
"""


def test_a_field_that_another_method_assigns_where_a_callback_uses_the_object() -> None:
    for first, verdicts in (("print(learner)", ["review"]), ("learner.fit()", [])):
        demo = NOTEBOOK.format(first=first)
        found = doubts_of({"train.py": BEFORE, "demo.py": demo}, {"train.py": LATE})
        assert [v for _, v in told(found, "AMP131")] == verdicts, first


UPDATER = """
    import torch

    class Updater(Base):
        def __init__(self, optimizer, scaler=None):
            self.optimizer = optimizer
            {early}
            try:
                import apex
                self.has_apex = True
            except ImportError:
                self.has_apex = False
            {late}
"""
MADE = 'self.scaler = scaler or torch.amp.GradScaler("cuda", enabled=self.has_apex)'


def test_a_constructor_that_reads_a_field_before_it_assigns_it() -> None:
    before = UPDATER.format(early="pass", late="pass").replace("(Base)", "")
    early = UPDATER.format(early=MADE, late="pass").replace("(Base)", "")
    late = UPDATER.format(early="pass", late=MADE).replace("(Base)", "")
    assert [v for _, v in told(doubts(before, early), "AMP131")] == ["refuse"]
    assert not told(doubts(before, late), "AMP131")
    of_the_class = "class Updater:\n        has_apex = False\n"
    before, early = (t.replace("class Updater:\n", of_the_class) for t in (before, early))
    assert not told(doubts(before, early), "AMP131")


def test_a_field_that_a_class_below_gives_before_it_runs_the_constructor() -> None:
    below = """
    class Half(Updater):
        def __init__(self, optimizer):
            self.has_apex = False
            super().__init__(optimizer)
"""
    before, after = (UPDATER.format(early=e, late="pass").replace("(Base)", "") + below for e in ("pass", MADE))
    assert not told(doubts(before, after), "AMP131")
