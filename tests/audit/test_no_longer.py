"""Attributes that nothing sets any more, and that are read, or asked for by name, as they were."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

CLASS = """
    import torch
    {import_}

    class Base:
        name = "base"

    class Learner(Base):
        def __init__(self, cfg):
            {set_}

        def loss(self, loss, optimizer):
            if {asked}:
                {scaled}
            else:
                loss.backward()
    """
BEFORE = {"import_": "from apex import amp", "set_": "self.amp = amp if cfg.amp else None"}
AFTER = {"import_": "scaler = None", "set_": "self.cfg = cfg"}
ASKED = {
    'hasattr(self, "amp")': "false in every run: nothing sets self.amp any more",
    'getattr(self, "amp", None)': "its default in every run: nothing sets self.amp any more",
    'getattr(self, "amp")': "an AttributeError in every run: nothing sets self.amp any more",
    "self.amp": "read here: nothing sets self.amp any more",
}
SCALED = "self.scaled(loss)"


def check(asked: str, *, after: str = "", outside: str = "", asked_after: str | None = None) -> list[str]:
    before = CLASS.format(asked=asked, scaled=SCALED, **BEFORE) + outside
    changed = CLASS.format(asked=asked_after or asked, scaled=SCALED, **AFTER).replace(
        "self.cfg = cfg", f"self.cfg = cfg{after}"
    )
    return [doubt.message for doubt in doubts(before, changed + outside)]


@pytest.mark.parametrize(("asked", "message"), ASKED.items(), ids=ASKED.keys())
def test_what_is_asked_is_gone(asked: str, message: str) -> None:
    assert any(message in line for line in check(asked))


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(
    ("after", "outside"),
    [
        ("; self.amp = cfg.amp", ""),
        ("", "\n    class Below(Learner):\n        def set(self):\n            self.amp = True\n"),
        ("", "\n    learner = Learner(None)\n    learner.amp = True\n"),
        ('; setattr(self, "amp", cfg.amp)', ""),
    ],
    ids=["the class", "a subclass", "from outside", "by name"],
)
def test_something_still_sets_it(asked: str, after: str, outside: str) -> None:
    assert not any("nothing sets" in line for line in check(asked, after=after, outside=outside))


def test_another_object_of_the_same_attribute() -> None:
    outside = "\n    class Options:\n        def __init__(self):\n            self.amp = True\n"
    assert any("nothing sets" in line for line in check('hasattr(self, "amp")', outside=outside))
    outside = '\n    def main(args):\n        return args.amp, hasattr(args, "amp")\n'
    assert not any("nothing sets" in line for line in check("cfg.other", outside=outside))

    outside = "\n    def save(trainer):\n        return trainer.amp.state_dict()\n"
    (message,) = check("cfg.other", outside=outside)
    assert message == "nothing in sight sets an attribute amp any more: see what trainer is here"


@pytest.mark.parametrize("receiver", ["args", "torch.cuda"])
def test_of_options_and_of_what_is_imported_nothing_is_said(receiver: str) -> None:
    assert (
        check("cfg.other", outside=f"\n    def ask({receiver.partition('.')[0]}s):\n        return {receiver}.amp\n")
        == []
    )


def test_layers_of_torch_have_what_a_class_of_the_same_kind_had() -> None:
    own = """
    class LayerNorm(torch.nn.Module):
        def __init__(self, size, eps=1e-12):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(size))
            self.bias = torch.nn.Parameter(torch.zeros(size))
            self.variance_epsilon = eps
"""
    fallen = "\n".join(f"    {line}" if line.strip() else line for line in own.splitlines())
    fused = "from apex.normalization import FusedLayerNorm as LayerNorm"
    before = f"    import torch\n    try:\n        {fused}\n    except ImportError:{fallen}"
    rest = """

    def init(module):
        if isinstance(module, torch.nn.Linear) and module.bias is not None:
            module.bias.data.zero_()
        print(module.weight, LayerNorm(2), module.variance_epsilon)
"""
    eps, missing = (
        d.message for d in doubts(before + rest, "    import torch\n    from torch.nn import LayerNorm" + rest)
    )
    assert eps.endswith("whose eps is 1e-05 where none is given, not 1e-12")  # what such a machine made by LayerNorm(2)
    assert missing == "nothing in sight sets an attribute variance_epsilon any more: see what module is here"


TOLD = """
    import torch
    {import_}

    class First:
        def __init__(self):
            {none}

        def step(self, loss):
            {first}

    class Second:
        def __init__(self):
            self.amp = {second}

        def step(self, loss):
            if self.amp is not None:
                with self.amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()

    def prepare(learner):
        {put}
    """


@pytest.mark.parametrize(("second", "said"), [("None", True), ("made()", False)])
def test_what_is_set_to_none_alone_is_told_where_it_is_used(second: str, said: bool) -> None:
    amp = "if self.amp is not None: self.amp.scale_loss(loss, self.optimizer)"
    before = TOLD.format(
        import_="from apex import amp", none="self.amp = None", first=amp, second=second, put="learner.amp = amp"
    )
    after = TOLD.format(
        import_="",
        none="self.scaler = None",
        first="self.scaler.scale(loss).backward()",
        second=second,
        put='learner.scaler = torch.amp.GradScaler("cuda")',
    )
    found = [d for d in doubts(before, after) if "to anything but None any more" in d.message]
    assert [d.verdict for d in found] == ["review"] * said


SET_OFF = """
    import torch
    from settings import parse

    hp = parse("settings.yaml")
    if hp.mixed:
        {guard}

    def train(model, x):
        {region}
            loss = model(x).sum()
        return loss
    """


@pytest.mark.parametrize(
    ("otherwise", "told"),
    [("except ImportError:\n            hp.mixed = False", False), ("finally:\n            hp.mixed = 1", True)],
)
def test_what_a_run_without_apex_switched_off_is_set_elsewhere(otherwise: str, told: bool) -> None:
    guard = f"try:\n            from apex import amp\n        {otherwise}"
    before = SET_OFF.format(guard=guard, region="if True:")
    region = 'with torch.autocast("cuda", dtype=torch.float16, enabled=hp.mixed):'
    after = SET_OFF.format(guard="pass", region=region)
    found = [d.message for d in doubts(before, after) if "nothing in sight sets" in d.message]
    assert bool(found) is told


def test_who_only_looks_at_what_is_none_now_is_not_told() -> None:
    texts = {"none": "self.amp = None", "first": "pass", "second": "made()"}
    before = TOLD.format(import_="from apex import amp", put="learner.amp = amp; print(learner.amp)", **texts)
    after = TOLD.format(import_="", put="learner.amp = None; print(learner.amp)", **(texts | {"second": "None"}))
    used = "self.amp.scale_loss(loss, self.optimizer)"
    before, after = (text.replace(used, "self.optimizer") for text in (before, after))
    assert not [d for d in doubts(before, after) if "to anything but None any more" in d.message]


@pytest.mark.parametrize("outside", ["def ask(amp):\n        return amp", "value = registry.getattr('amp')"])
def test_what_only_bears_the_name_is_no_attribute(outside: str) -> None:
    assert not any("nothing sets" in line for line in check("cfg.other", outside=f"\n    {outside}\n"))
