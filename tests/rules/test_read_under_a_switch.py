"""What a configuration says of mixed precision is read where mixed precision is on: a run without it may have no such entry."""

from __future__ import annotations

import textwrap
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rules.helpers import check_files, names_of, rewrite

LOOP = """
    scales = []
    for _ in range(2):
        loss = model(torch.ones(2, 4)).float().mul(1e-3).sum()
        optimizer.zero_grad()
        if {switch}:
            {scaled}
        else:
            loss.backward()
        optimizer.step()
        scales.append(optimizer.param_groups[0]["lr"])
    return scales
"""
LOSS = "with amp.scale_loss(loss, optimizer) as scaled:\n                scaled.backward()"
MADE = """    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def loaded(prepare: str, switch: str, scaled: str = LOSS, above: str = "") -> str:
    """A program that is told by a configuration, which is loaded: `run(config)`."""
    head = f"import torch\nfrom settings import load\nfrom apex import amp\nfrom apex.fp16_utils import FP16_Optimizer\n{above}\n"
    run = f"def run(path):\n    config = load(path)\n{MADE}{textwrap.indent(textwrap.dedent(prepare), '    ')}"
    return head + run + LOOP.format(switch=switch, scaled=scaled)


INITIALIZE = 'amp.initialize(model, optimizer, opt_level="O1", {setting})'
HELPER = """
def prepare(config, model, optimizer):
    if config.get("fp16"):
        model, optimizer = {call}
    return model, optimizer

"""
ITEM = 'loss_scale=config["loss_scale"]'
FIELD = "loss_scale=config.loss_scale"
UNDER = "if {switch}:\n    model, optimizer = {call}\n"
ITEMS, FIELDS = 'config.get("fp16")', "config.fp16"
WRAPPED = """
if config.fp16:
    if config.loss_scale == 0:
        optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
    else:
        optimizer = FP16_Optimizer(optimizer, static_loss_scale=config.loss_scale)
"""
CHOSEN = """
if config.fp16:
    optimizer = FP16_Optimizer(
        optimizer,
        static_loss_scale=config.loss_scale,
        dynamic_loss_scale=config.dynamic,
        dynamic_loss_args={"scale_window": config.window},
    )
"""
CARRIED = """
config.amp = None
if config.fp16:
    from apex import amp

    model, optimizer = CALL
    config.amp = amp
"""
BACKWARD = "optimizer.backward(loss)"
PROGRAMS = {
    "an item": loaded(UNDER.format(switch=ITEMS, call=INITIALIZE.format(setting=ITEM)), ITEMS),
    "a field": loaded(UNDER.format(switch=FIELDS, call=INITIALIZE.format(setting=FIELD)), FIELDS),
    "in a helper": loaded(
        "model, optimizer = prepare(config, model, optimizer)\n",
        ITEMS,
        above=HELPER.format(call=INITIALIZE.format(setting=ITEM)),
    ),
    "a bound": loaded(
        UNDER.format(switch=FIELDS, call=INITIALIZE.format(setting="max_loss_scale=config.loss_scale")), FIELDS
    ),
    "a bound in a helper": loaded(
        "model, optimizer = prepare(config, model, optimizer)\n",
        ITEMS,
        above=HELPER.format(call=INITIALIZE.format(setting='max_loss_scale=config["loss_scale"]')),
    ),
    "carried": loaded(
        CARRIED.replace("CALL", INITIALIZE.format(setting=FIELD)), FIELDS, LOSS.replace("amp.", "config.amp.")
    ).replace("from apex import amp\nfrom apex.fp16", "from apex.fp16"),
    "wrapped": loaded(WRAPPED, FIELDS, BACKWARD),
    "wrapped by choice": loaded(CHOSEN, FIELDS, BACKWARD),
}


def scales_of(text: str, config: dict[str, Any]) -> list[float]:
    """The scale after each step of a run with a configuration, which says nothing of what it does not need."""
    names = names_of(text.replace("from settings import load", "load = lambda given: given"))
    given = config if 'get("fp16")' in text else SimpleNamespace(**config)
    names["run"](given)
    return [s.get_scale() for s in SCALERS]


SCALERS: list[Any] = []


@pytest.fixture(autouse=True)
def _scalers(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    class Kept(torch.amp.GradScaler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            SCALERS.append(self)

    SCALERS.clear()
    monkeypatch.setattr(torch.amp, "GradScaler", Kept)


@pytest.mark.parametrize("shape", PROGRAMS)
def test_a_run_without_mixed_precision_needs_no_loss_scale(shape: str) -> None:
    result = rewrite(PROGRAMS[shape], device="cpu")
    assert not [f for f in result.findings if f.status == "manual"]
    assert result.after is not None
    assert set(scales_of(result.after, {"fp16": False})) == {1.0}


@pytest.mark.parametrize("scale", [256, 256.0])
@pytest.mark.parametrize("shape", PROGRAMS)
def test_a_static_scale_may_be_an_int(shape: str, scale: float) -> None:
    """JSON says 256 where `update` insists on 256.0."""
    after = rewrite(PROGRAMS[shape], device="cpu").after
    assert after is not None
    config = {"fp16": True, "loss_scale": scale, "dynamic": False, "window": 1000}
    assert scales_of(after, config)[-1] == 256.0


def test_none_and_0_are_dynamic_where_the_program_says_so() -> None:
    program = PROGRAMS["wrapped"].replace("config.loss_scale == 0", "not config.loss_scale")
    after = rewrite(program, device="cpu").after
    assert after is not None
    for none in (None, 0):
        assert scales_of(after, {"fp16": True, "loss_scale": none})[-1] == 2.0**16


WRAPPER = {
    "wrapper.py": """
        import torch
        from apex.optimizers import FP16_Optimizer, FusedAdam


        class Wrapper:
            def __init__(self, args, model):
                self.args = args
                self.model = model
                self.prepare(args)

            def prepare(self, args):
                if args.get("fp16", False):
                    optimizer = FusedAdam(self.model.parameters(), lr=args.lr, max_grad_norm=1.0)
                    if args.loss_scale == 0:
                        self.optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
                    else:
                        self.optimizer = FP16_Optimizer(optimizer, static_loss_scale=args.loss_scale)
                else:
                    self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)

            def step(self, x):
                self.optimizer.zero_grad()
                loss = self.model(x).float().mul(1e-3).sum()
                if self.args.get("fp16", False):
                    self.optimizer.backward(loss)
                else:
                    loss.backward()
                self.optimizer.step()
        """,
    "main.py": """
        import argparse
        import json

        import torch
        from attrdict import AttrDict
        from wrapper import Wrapper

        parser = argparse.ArgumentParser()
        parser.add_argument("--config")
        args = parser.parse_args()
        with open(args.config) as f:
            args = AttrDict(json.load(f))
        wrapper = Wrapper(args, torch.nn.Linear(4, 1))
        wrapper.step(torch.ones(2, 4))
        """,
    "other.py": """
        import argparse

        parser = argparse.ArgumentParser()
        parser.add_argument("--loss_scale", type=float, default=0)
        print(parser.parse_args().loss_scale)
        """,
}


class Settings(dict[str, Any]):
    __getattr__ = dict.__getitem__


@pytest.mark.parametrize("config", [{}, {"fp16": True, "loss_scale": 128}, {"fp16": True, "loss_scale": 0}])
def test_an_option_of_another_program_says_nothing_of_a_configuration(config: dict[str, Any]) -> None:
    text = check_files(WRAPPER, device="cpu")["wrapper.py"]
    names = names_of(text)
    import torch

    wrapper = names["Wrapper"](Settings(config, lr=0.1), torch.nn.Linear(4, 1))
    wrapper.step(torch.ones(2, 4))
    scale = config.get("loss_scale", 1) or 2**16
    assert wrapper.scaler.get_scale() == scale


DECLARED = """
import argparse
import torch
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--loss-scale", type=float, default=128.0)
args = parser.parse_args()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if args.fp16:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=args.loss_scale)
for _ in range(2):
    loss = model(torch.ones(2, 4)).sum()
    if args.fp16:
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
    else:
        loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("said", ["", "CONFIG"])
def test_what_every_run_has_is_read_where_the_scaler_is_created(said: str) -> None:
    """An option has its default, and what is read anyway has been there."""
    program = DECLARED
    if said:
        program = program.replace("args = parser.parse_args()", "args = load()\nprint(args.loss_scale)")
    after = rewrite(program).after
    assert after is not None
    assert "enabled=args.fp16" in after.replace("bool(args.fp16)", "args.fp16")
    assert "enabled=False" not in after
