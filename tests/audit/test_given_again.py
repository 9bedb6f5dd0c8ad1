"""A flag that is given another value between the set-up and a region that asks it (AMP532)."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts, sides

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp


    def finish(args):
        args.fp16 = False


    def train(cfg, model, optimizer, loader):
        ABOVE
  -     if ASKED:
  -         model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda", enabled=bool(ASKED))
        BELOW
        for x, y in loader:
  -         loss = (model(x) - y).mean()
  -         if ASKED:
  -             with amp.scale_loss(loss, optimizer) as scaled:
  -                 scaled.backward()
  -         else:
  -             loss.backward()
  -         optimizer.step()
  +         with torch.autocast("cuda", dtype=torch.float16, enabled=SWITCH):
  +             loss = (model(x) - y).mean()
  +         scaler.scale(loss).backward()
  +         scaler.step(optimizer)
  +         scaler.update()
            LAST


    def main(cfg, model, optimizer, loader):
        for _ in range(2):
            train(cfg, model, optimizer, loader)
    """)


def given(
    asked: str, below: str = "pass", above: str = "pass", last: str = "pass", switch: str = "", after: str = AFTER
) -> list[Doubt]:
    texts = [t.replace("SWITCH", switch or f"bool({asked})").replace("ASKED", asked) for t in (BEFORE, after)]
    texts = [t.replace("ABOVE", above).replace("BELOW", below).replace("LAST", last) for t in texts]
    return [d for d in doubts(*texts) if d.code == "AMP532" and "is given a value" in d.message]


@pytest.mark.parametrize(
    ("asked", "below"),
    [
        ('cfg["fp16"]', 'cfg["fp16"] = False'),
        ('cfg["fp16"]', "cfg.update(fp16=False)"),
        ('cfg["fp16"]', 'cfg.update({"fp16": False})'),
        ('cfg.get("fp16")', 'cfg.pop("fp16")'),
        ('cfg["fp16"]', 'del cfg["fp16"]'),
        ("cfg.fp16", "cfg.fp16 = False"),
        ("cfg.fp16", 'cfg["fp16"] = False'),
        ("cfg.fp16", 'setattr(cfg, "fp16", False)'),
        ("cfg.fp16", 'vars(cfg)["fp16"] = False'),
        ("cfg.fp16", 'cfg.__dict__["fp16"] = False'),
        ("not cfg.fp32", "cfg.fp32 = True"),
        ("cfg", "cfg = False"),
        ("cfg.fp16", "if not torch.cuda.is_available():\n            cfg.fp16 = False"),
    ],
)
def test_a_flag_that_is_given_again_below_the_set_up(asked: str, below: str) -> None:
    region, backward = given(asked, below)
    assert (region.verdict, backward.verdict) == ("review", "review")
    assert (region.construct, backward.construct) == ("enabled=", "backward")
    line = BEFORE.lstrip().splitlines().index("        BELOW") + below.count("\n") + 1
    assert f"is given a value at train.py:{line} once" in region.message
    assert f"is given a value at train.py:{line} once" in backward.message
    assert "this region asks anew" in region.message
    assert backward.message.endswith("the loss was not scaled, and is now")
    (backward,) = given(asked, below, switch="scaler.is_enabled()")
    assert "the test here asked anew" in backward.message


def test_regions_that_ask_for_one_flag_are_told_once_with_their_lines() -> None:
    region, _ = given("cfg.fp16", "cfg.fp16 = False", switch="cfg.fp16 and bool(cfg.fp16)")
    assert region.message.endswith("where Apex was")
    second = 'with torch.autocast("cuda", dtype=torch.float16, enabled=SWITCH):\n                print(model(x))'
    region, _ = given("cfg.fp16", "cfg.fp16 = False", last="print(model(x))", after=AFTER.replace("LAST", second))
    assert region.message.endswith(f"(see line {region.line + 8}, too)")


METHODS = sides("""
    import torch
  - from apex import amp


    class Trainer:
        def __init__(self, model, optimizer, cfg):
            self.model, self.optimizer, self.cfg, self.fp16 = model, optimizer, cfg, cfg.fp16
  -         if FLAG:
  -             self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
  +         self.scaler = torch.amp.GradScaler("cuda", enabled=bool(FLAG))

        def stop(self):
            self.fp16 = False

        def fit(self, loader):
            CALLED
            for x, y in loader:
  -             loss = (self.model(x) - y).mean()
  -             if FLAG:
  -                 with amp.scale_loss(loss, self.optimizer) as scaled:
  -                     scaled.backward()
  -             else:
  -                 loss.backward()
  -             self.optimizer.step()
  +             with torch.autocast("cuda", dtype=torch.float16, enabled=bool(FLAG)):
  +                 loss = (self.model(x) - y).mean()
  +             self.scaler.scale(loss).backward()
  +             self.scaler.step(self.optimizer)
  +             self.scaler.update()


    class Other:
        def stop(self):
            self.fp16 = False


    def run(trainer, loader):
        trainer.fit(loader)


    def main(model, optimizer, loader, cfg):
        MAIN
    """)
FIT = "Trainer(model, optimizer, cfg).fit(loader)"


@pytest.mark.parametrize(
    ("flag", "called", "main", "count"),
    [
        ("self.fp16", "self.stop()", FIT, 2),
        ("self.fp16", "self.stop()", FIT.replace(").", ")\n        trainer.").replace("T", "trainer = T"), 2),
        ("self.fp16", "self.stop()", "run(\n            Trainer(model, optimizer, cfg), loader\n        )", 2),
        ("self.fp16", "Other().stop()", FIT, 0),
        ("self.cfg.fp16", "pass", f"{FIT}\n        cfg.fp16 = False\n        {FIT}", 0),  # the second sets up by it
    ],
)
def test_objects_that_set_up_where_they_are_made(flag: str, called: str, main: str, count: int) -> None:
    texts = (t.replace("FLAG", flag).replace("CALLED", called).replace("MAIN", main) for t in METHODS)
    found = doubts(*texts)
    assert len([d for d in found if "is given a value" in d.message]) == count


@pytest.mark.parametrize(
    ("asked", "below", "above", "last", "count"),
    [
        ('cfg["fp16"]', "pass", 'cfg["fp16"] = cfg["fp16"] and torch.cuda.is_available()', "pass", 0),
        ("cfg.fp16", "pass", "finish(cfg)", "pass", 0),
        ('cfg["fp16"]', 'cfg["fp32"] = True', "pass", "pass", 0),
        ('cfg["fp16"]', 'other = {}\n        other["fp16"] = False', "pass", "pass", 0),
        ("cfg.fp16", "finish(cfg)", "pass", "pass", 2),
        ("cfg.fp16", "pass", "pass", "cfg.fp16 = False", 2),  # for the next turn
    ],
)
def test_where_it_is_given_counts(asked: str, below: str, above: str, last: str, count: int) -> None:
    assert len(given(asked, below, above, last)) == count


SPLIT = sides("""
    import torch
  - from apex import amp

    def train(cfg, model, optimizer, loader, first=True):
  -     if ASKED:
  -         model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda", enabled=bool(ASKED))
        FIT


  - def go_on(cfg, model, optimizer, loader):
  + def go_on(cfg, model, optimizer, loader, scaler):
        for x, y in loader:
  -         loss = (model(x) - y).mean()
  -         if cfg.fp16:
  -             with amp.scale_loss(loss, optimizer) as scaled:
  -                 scaled.backward()
  -         else:
  -             loss.backward()
  -         optimizer.step()
  +         with torch.autocast("cuda", dtype=torch.float16, enabled=bool(cfg.fp16)):
  +             loss = (model(x) - y).mean()
  +         scaler.scale(loss).backward()
  +         scaler.step(optimizer)
  +         scaler.update()


    def main(cfg, model, optimizer, loader):
        MAIN
    """)
TRAIN, GO_ON = "train(cfg, model, optimizer, loader)", "go_on(cfg, model, optimizer, loader)"


def split(asked: str, fit: str, main: str) -> list[Doubt]:
    before, after = (t.replace("MAIN", main).replace("FIT", fit).replace("ASKED", asked) for t in SPLIT)
    after = after.replace(GO_ON, GO_ON.replace("loader", "loader, scaler"))
    return [d for d in doubts(before, after) if "is given a value" in d.message]


@pytest.mark.parametrize(
    ("asked", "fit", "main", "count"),
    [
        # Who comes by the set-up again asks it for the value that it has then.
        ("cfg.fp16", GO_ON, f"{TRAIN}\n        cfg.fp16 = False\n        {TRAIN}", 0),
        ("cfg.fp16", GO_ON, f"for fp16 in (True, False):\n            {TRAIN}\n            cfg.fp16 = fp16", 0),
        (
            "cfg.fp16",
            GO_ON,
            f"try:\n            {TRAIN}\n        except RuntimeError:\n            cfg.fp16 = False\n            {TRAIN}",
            0,
        ),
        ("cfg.fp16", f"{GO_ON}\n        cfg.fp16 = False", f"{TRAIN}\n        {TRAIN}", 0),
        ("cfg.fp16", f"{GO_ON}\n        cfg.fp16 = False", f"for _ in range(2):\n            {TRAIN}", 0),
        ("cfg.fp16", f"for _ in range(2):\n            {GO_ON}\n            cfg.fp16 = False", TRAIN, 2),
        ("cfg.fp16", f"{GO_ON}\n        cfg.fp16 = False\n        {GO_ON}", TRAIN, 2),
        (
            "first and cfg.fp16",
            GO_ON,
            f"{TRAIN}\n        cfg.fp16 = False\n        {TRAIN.replace(')', ', False)')}",
            2,
        ),
    ],
)
def test_a_set_up_that_comes_in_between_asks_anew(asked: str, fit: str, main: str, count: int) -> None:
    assert len(split(asked, fit, main)) == count


@pytest.mark.parametrize(
    ("kept", "count"),
    [
        ('state = {"opt": cfg, "step": 1}\n        state["fp16"] = 0', 0),  # an entry of what holds it, and not its own
        ('state = dict(opt=cfg)\n        state["fp16"] = 0', 0),
        ("state = [cfg]\n        state[0].fp16 = False", 2),
        ("state = cfg\n        state.fp16 = False", 2),
        ('vars(cfg)["fp16"] = False', 2),
    ],
)
def test_what_a_mapping_that_holds_the_settings_is_given_is_not_given_to_them(kept: str, count: int) -> None:
    assert len(split("cfg.fp16", f"{GO_ON}\n        {kept}\n        {GO_ON}", TRAIN)) == count


@pytest.mark.parametrize(
    ("kept", "count"),
    [
        ("self.fp16 = fp16", 0),
        ("self.fp16: bool = fp16", 0),
        ("self.fp16 = fp16 and torch.cuda.is_available()", 1),
        ("fp16 = False\n            self.fp16 = fp16", 1),
        ("self.fp16 = other", 1),
    ],
)
def test_what_keeps_the_parameter_that_the_set_up_asked_gives_it_no_other_value(kept: str, count: int) -> None:
    texts = sides("""
    import torch
  - from apex import amp


    class Trainer:
        def __init__(self, model, optimizer, fp16=False, other=False):
            self.model, self.optimizer = model, optimizer
  -         if fp16:
  -             self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")
  +         self.scaler = torch.amp.GradScaler("cuda", enabled=fp16)
            KEPT

        def fit(self, loader):
            for x in loader:
  -             loss = self.model(x).mean()
  -             if self.fp16:
  -                 with amp.scale_loss(loss, self.optimizer) as scaled:
  -                     scaled.backward()
  -             else:
  -                 loss.backward()
  -             self.optimizer.step()
  +             with torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()):
  +                 loss = self.model(x).mean()
  +             self.scaler.scale(loss).backward()
  +             self.scaler.step(self.optimizer)
  +             self.scaler.update()


    def main(model, optimizer, args, loader):
        Trainer(model, optimizer, args.fp16, args.other).fit(loader)
    """)
    before, after = (t.replace("KEPT", kept) for t in texts)
    found = [d for d in doubts(before, after) if d.code == "AMP532" and "is given a value" in d.message]
    assert len(found) == count
