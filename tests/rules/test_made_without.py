"""A runner of the program's own that keeps model and optimizer and calls hooks, made with mixed precision and without: where
no run sets that up, the scaler is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files, run_files
from tests.rules.programs import found

RUNNER = """
    import torch
    from apex import amp
    from checkpoint import save_checkpoint

    class Runner:
        def __init__(self, model, optimizer=None, fp16=False, meta=None):
            self.model = model
            self.optimizer = optimizer
            self.fp16 = fp16
            self.meta = meta
            self.hooks = []

        def register(self, hook):
            self.hooks.append(hook)

        def call_hook(self, name):
            for hook in self.hooks:
                getattr(hook, name)(self)

        def run(self, loader):
            losses = []
            for x in loader:
                self.outputs = self.model.train_step(x)
                losses.append(self.outputs["loss"].item())
                self.call_hook("after_train_iter")
            return losses

        def save(self, path):
            state = None
            if self.fp16:
                state = amp.state_dict()
            save_checkpoint(self.model, path, optimizer=self.optimizer, amp=state)

        def resume(self, path):
            checkpoint = torch.load(path)
            self.model.load_state_dict(checkpoint["model"])
            if self.fp16:
                amp.load_state_dict(checkpoint["amp"])
    """
CHECKPOINT = """
    import torch

    def save_checkpoint(model, path, optimizer=None, amp=None):
        checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        if amp is not None:
            checkpoint["amp"] = amp
        torch.save(checkpoint, path)
    """
HOOKS = """
    from apex import amp

    class OptimizerHook:
        def after_train_iter(self, runner):
            if runner.fp16:
                with amp.scale_loss(runner.outputs["loss"], runner.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                runner.outputs["loss"].backward()
            runner.optimizer.step()
            runner.optimizer.zero_grad()
    """
API = """
    import torch
    from apex import amp
    from hooks import OptimizerHook
    from runner import Runner

    def train_model(model, loader, cfg, distributed):
        if distributed:
            return _dist_train(model, loader, cfg)
        else:
            return _plain_train(model, loader, cfg)

    def _dist_train(model, loader, cfg):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if cfg.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=cfg.loss_scale)
        runner = Runner(model, optimizer=optimizer, fp16=cfg.fp16)
        runner.register(OptimizerHook())
        return runner.run(loader), runner

    def _plain_train(model, loader, cfg):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        runner = Runner(model, optimizer=optimizer)
        runner.register(OptimizerHook())
        return runner.run(loader), runner
    """
MAIN = """
    import argparse
    import json
    import torch
    from api import train_model

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(4, 1)

        def forward(self, x):
            output = self.body(x)
            dtypes.append(str(output.dtype))
            return output

        def train_step(self, x):
            return {"loss": ((self(x).float() - 1) ** 2).mean()}

    dtypes = []
    DISTRIBUTED = True

    def main():
        torch.manual_seed(0)
        loader = [torch.randn(16, 4) for _ in range(6)]
        cfg = argparse.Namespace(fp16=True, loss_scale=128.0)
        losses, runner = train_model(Net(), loader, cfg, DISTRIBUTED)
        runner.save("last.pt")
        runner.resume("last.pt")
        print(json.dumps([sorted(set(dtypes)), losses[-1] < losses[0]]))

    main()
    """
FILES = {"runner.py": RUNNER, "checkpoint.py": CHECKPOINT, "hooks.py": HOOKS, "api.py": API, "main.py": MAIN}


@pytest.mark.parametrize(("distributed", "dtype"), [(True, "torch.float16"), (False, "torch.float32")])
def test_the_runner_keeps_the_scaler_and_does_without_where_nothing_is_set_up(
    tmp_path: Path, distributed: bool, dtype: str
) -> None:
    after = check_files(FILES, device="cpu")
    assert "scaler=None" in after["runner.py"]
    assert after["runner.py"].count("*,") == 1  # before the first of several parameters alone
    assert "enabled=self.scaler.is_enabled()" in after["runner.py"]
    assert "runner.scaler.scale(runner.outputs" in after["hooks.py"]
    assert "Runner(model, optimizer=optimizer)\n" in after["api.py"]  # without mixed precision
    after["main.py"] = after["main.py"].replace("DISTRIBUTED = True", f"DISTRIBUTED = {distributed}")
    assert run_files(tmp_path, after, "main.py") == [[dtype], True]


@pytest.mark.parametrize(
    "other",
    [
        "        _dist_train(model, loader, cfg)\n            return _plain_train(model, loader, cfg)",  # set up before
        "        model.plain = _plain_train\n            return model.plain(model, loader, cfg)",  # called by something
    ],
)
def test_a_run_that_may_have_set_it_up_is_no_reason_to_leave_it_out(other: str) -> None:
    files = FILES | {"api.py": API.replace("        return _plain_train(model, loader, cfg)", other)}
    results = rewrite_files(files)
    assert "scaler=None" not in (results["runner.py"].after or "")


def test_the_state_that_a_function_saves_is_loaded_from_where_that_puts_it() -> None:
    after = check_files(FILES)
    assert 'checkpoint["amp"] = amp' in after["checkpoint.py"]
    assert 'checkpoint.get("amp")' in after["runner.py"]


CONSTANT = """
    import torch
    try:
        from apex import amp
        USE_AMP = {there}
    except ImportError:
        USE_AMP = {absent}


    class Engine:
        def __init__(self, model, optimizer):
            self.model, self.optimizer = model, optimizer
            if USE_AMP:
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

        def step(self, x, y):
            loss = (self.model(x) - y).pow(2).mean()
            self.optimizer.zero_grad()
            if USE_AMP:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()

        def check(self, x):
            return self.model(x)


    model = torch.nn.Linear(2, 2).cuda()
    engine = Engine(model, torch.optim.SGD(model.parameters(), lr=0.1))
    engine.step(torch.ones(2, 2), torch.ones(2, 2))
    print(engine.check(torch.ones(2, 2)))
    """


@pytest.mark.parametrize(
    ("there", "absent", "told"),
    [("False", "False", False), ("True", "False", True), ("False\n        USE_AMP = True", "False", True)],
)
def test_what_is_the_same_with_apex_and_without_says_nothing_of_it(there: str, absent: str, told: bool) -> None:
    result = rewrite(CONSTANT.format(there=there, absent=absent))
    assert "GradScaler" in (result.after or "")
    assert bool(found(result, "AMP133")) is told
    assert not found(result, "AMP531")
