"""LARC becomes a class of the program: what is written, and that it steps as Apex's did."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import amp_migrate
from tests.rules.helpers import check_manual, check_rewrite, rewrite
from tests.rules.programs import found

SOURCE = """
    import torch
    from apex.parallel.LARC import LARC


    def build(params, **options):
        optimizer = torch.optim.SGD(params, lr=0.5, momentum=0.9, weight_decay=0.1)
        return LARC(optimizer, **options)
"""


def emitted(source: str = SOURCE) -> dict[str, Any]:
    """The names of the migrated program."""
    result = rewrite(source)
    assert result.status == "migrated", result.findings
    assert result.after is not None
    assert "apex" not in result.after
    names: dict[str, Any] = {"__name__": "train"}
    exec(compile(result.after, "train.py", "exec"), names)
    return names


def shim() -> ModuleType:
    """Apex's wrapper as the shim has it."""
    path = Path(amp_migrate.__file__).parent / "shim" / "apex" / "parallel" / "LARC.py"
    spec = importlib.util.spec_from_file_location("shim_larc", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    torch.nn.init.zeros_(net[2].bias)  # a parameter of zeros is left to the optimizer
    return net


def gradients(net: torch.nn.Module, step: int) -> None:
    for index, p in enumerate(net.parameters()):
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(10 * step + index))
        if index == 0 and step == 1:
            p.grad.zero_()  # so is a gradient of zeros
    if step == 2:
        next(net.parameters()).grad = None


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("decay", [None, 0.0, 0.1])
@pytest.mark.parametrize("trust", [0.02, 0.9])
def test_it_steps_as_apex_did_to_the_last_bit(clip: bool, decay: float | None, trust: float) -> None:
    mine, theirs = model(), model()
    options: dict[str, Any] = {"trust_coefficient": trust, "clip": clip, "eps": 1e-6}

    def inner(net: torch.nn.Module) -> torch.optim.Optimizer:
        groups = [{"params": list(net.parameters())[:2]}, {"params": list(net.parameters())[2:], "lr": 0.01}]
        settings = {} if decay is None else {"weight_decay": decay}
        return torch.optim.SGD(groups, lr=0.5, momentum=0.9, **settings)  # type: ignore[arg-type]

    optimizer = emitted()["LARC"](inner(mine), **options)
    reference = shim().LARC(inner(theirs), **options)
    start = copy.deepcopy(mine.state_dict())
    for step in range(5):
        for net, each in ((mine, optimizer), (theirs, reference)):
            gradients(net, step)
            each.step()
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(a, b)
            assert (a.grad is None and b.grad is None) or torch.equal(a.grad, b.grad)  # type: ignore[arg-type]
    assert [g["weight_decay"] for g in optimizer.param_groups] == [decay or 0] * 2
    assert not torch.equal(start["0.weight"], mine.state_dict()["0.weight"])


def test_the_scaler_unscales_before_it_adapts_and_skips_an_overflow() -> None:
    mine, theirs = model(), model()
    optimizer = emitted()["build"](mine.parameters(), clip=False)
    reference = shim().LARC(torch.optim.SGD(theirs.parameters(), lr=0.5, momentum=0.9, weight_decay=0.1), clip=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(4):
        overflows = step == 1
        gradients(theirs, step=0)
        gradients(mine, step=0)
        scaler.scale(torch.zeros(()))
        for p in mine.parameters():
            assert p.grad is not None
            p.grad.mul_(scaler.get_scale())
        if overflows:
            next(mine.parameters()).grad.fill_(float("inf"))  # type: ignore[union-attr]
        before = [p.detach().clone() for p in mine.parameters()]
        scaler.step(optimizer)
        scaler.update()
        if overflows:
            assert all(torch.equal(a, b) for a, b in zip(before, mine.parameters(), strict=True))
            assert scaler.get_scale() == 512.0
            continue
        reference.step()
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(a, b)
    assert optimizer.param_groups[0]["weight_decay"] == 0.1


def test_it_is_an_optimizer_to_its_users() -> None:
    net = model()
    optimizer = emitted()["build"](net.parameters())
    calls = []

    def closure() -> torch.Tensor:
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        loss: torch.Tensor = net(torch.ones(2, 4)).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) is not None
    assert calls == [True]
    assert optimizer.state is optimizer.optim.state
    assert repr(optimizer) == repr(optimizer.optim)
    saved = copy.deepcopy(optimizer.state_dict())
    extra = torch.nn.Parameter(torch.ones(2))
    optimizer.add_param_group({"params": [extra]})
    assert len(optimizer.param_groups) == 2
    optimizer.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    other = emitted()["build"](net.parameters())
    other.load_state_dict(saved)
    assert other.state_dict()["state"].keys() == saved["state"].keys()
    assert not getattr(optimizer, "_step_supports_amp_scaling", False)
    optimizer.param_groups = other.param_groups
    assert len(optimizer.optim.param_groups) == 1


@pytest.mark.parametrize(
    ("imported", "name"),
    [
        ("from apex.parallel.LARC import LARC", "LARC"),
        ("from apex.parallel import LARC", "LARC"),
        ("from apex.parallel.LARC import LARC as Wrapper", "Wrapper"),
        ("import apex", "apex.parallel.LARC"),
        ("from apex import parallel", "parallel.LARC"),
        ("import apex.parallel", "apex.parallel.LARC"),
    ],
)
def test_however_it_is_imported(imported: str, name: str) -> None:
    source = SOURCE.replace("from apex.parallel.LARC import LARC", imported).replace("LARC(opt", f"{name}(opt")
    after = rewrite(source).after
    assert after is not None
    assert after.count("class LARC:") == 1
    assert "return LARC(optimizer, **options)" in after
    assert rewrite(after).after is None
    optimizer = emitted(source)["build"]([torch.nn.Parameter(torch.ones(2))])
    assert type(optimizer).__name__ == "LARC"


def test_a_guarded_import_inside_a_method_goes() -> None:
    source = """
        import torch


        class SGD:
            def prepare(self, params):
                self.optimizer = torch.optim.SGD(params, lr=0.1)
                if self.use_larc:
                    try:
                        from apex.parallel.LARC import LARC
                    except ImportError:
                        raise RuntimeError("Apex needed for LARC")
                    self.optimizer = LARC(optimizer=self.optimizer, **self.larc_config)
    """
    result = rewrite(source)
    assert result.after is not None
    assert "Apex" not in result.after
    assert "        if self.use_larc:\n            self.optimizer = LARC(optimizer=" in result.after
    assert "\n\n\nclass LARC:\n" in result.after
    assert "\n\n\nclass SGD:\n" in result.after
    (finding,) = found(result, "AMP645")
    assert (finding.status, finding.review) == ("done", "review")


def test_the_class_follows_the_file_and_is_written_once() -> None:
    source = """
        # A script.
        import torch as th
        from apex.parallel.LARC import LARC

        LR = 'lr'


        # What it wraps.
        def build(params):
          '''Two of them.'''
          a = LARC(th.optim.SGD(params, lr=0.1))
          return a, LARC(th.optim.Adam(params)), isinstance(a, LARC)
    """
    after = rewrite(source).after
    assert after is not None
    assert after.count("class LARC:") == 1
    assert 'LR = \'lr\'\n\n\nclass LARC:\n  """Layer-wise' in after
    assert "group['weight_decay'] = 0" in after
    assert "  @th.no_grad()\n" in after
    assert ".mul_(th.where(adapts, rate, th.ones_like(rate)))\n\n\n# What it wraps.\ndef build" in after
    compile(after, "train.py", "exec")


def test_with_amp_it_is_stepped_through_the_scaler() -> None:
    check_rewrite(
        """
        import torch
        from apex import amp

        class LARC:
            pass
        """,
        """
        import torch

        class LARC:
            pass
        """,
    )
    after = rewrite(
        """
        import torch
        from apex import amp
        from apex.parallel.LARC import LARC


        def train(model, data):
            optimizer = LARC(torch.optim.SGD(model.parameters(), lr=0.1), trust_coefficient=0.001)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x in data:
                optimizer.zero_grad()
                loss = model(x).sum()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    ).after
    assert after is not None
    assert "apex" not in after
    assert "scaler.step(optimizer)\n        scaler.update()" in after
    names: dict[str, Any] = {}
    exec(after.replace('"cuda"', '"cpu"').replace("float16", "bfloat16"), names)
    net = model()
    before = net[0].weight.detach().clone()
    names["train"](net, [torch.ones(2, 4)] * 3)
    assert not torch.equal(before, net[0].weight)


def test_a_name_that_is_taken_is_left_to_a_person() -> None:
    source = """
        import apex


        class LARC(apex.parallel.LARC):
            pass
    """
    check_manual(source, "AMP645")
