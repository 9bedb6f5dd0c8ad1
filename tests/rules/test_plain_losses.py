"""Programs that cast at O1 and scale no loss: autocast takes the place of initialize, backward and step stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, check_rewrite, rewrite, rewrite_files, run_files
from tests.rules.trained import check_trained

LOOP = """
    import torch
    from apex import amp

    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {above}
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        {backward}
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()
"""


@pytest.mark.parametrize("backward", ["loss.backward()", "loss.backward(retain_graph=True)", "(loss / 2).backward()"])
def test_backward_and_step_stay_as_they_are(backward: str) -> None:
    source = LOOP.format(above='model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', backward=backward)
    expected = f"""
        import torch

        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = criterion(model(x), y)
            {backward}
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        """
    result = check_rewrite(source, expected)
    told = {f.code: f for f in result.findings}
    assert "no loss is scaled" in told["AMP115"].message
    assert "amp.scale_loss drops" in told["AMP538"].message  # its forwards ran on the weights of the first step


def test_what_it_trains() -> None:
    after = check_trained(
        """
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            seen.append(grad_norm(model))
            optimizer.step()
        """
    )
    assert "GradScaler" not in after


@pytest.mark.parametrize(
    ("above", "enabled"),
    [
        ('if args.fp16:\n        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', "args.fp16"),
        ('model, optimizer = amp.initialize(model, optimizer, opt_level="O1" if args.fp16 else "O0")', "args.fp16"),
        ('model, optimizer = amp.initialize(model, optimizer, opt_level="O1", enabled=args.fp16)', "args.fp16"),
    ],
)
def test_its_switch_is_that_of_the_region(above: str, enabled: str) -> None:
    after = rewrite(LOOP.format(above=above, backward="loss.backward()")).after or ""
    assert "\n    loss.backward()" in after
    (header,) = [line for line in after.splitlines() if "autocast" in line]
    assert enabled in header.partition("enabled=")[2]
    assert "GradScaler" not in after


@pytest.mark.parametrize(
    ("above", "reason"),
    [
        ('model, optimizer = amp.initialize(model, optimizer, opt_level="O2")', "at O2 the float32 masters"),
        ("model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)", "at O3 the half weights"),
        (
            'model, optimizer = amp.initialize(model, optimizer, opt_level="O1", master_weights=True)',
            "not all its steps",
        ),
    ],
)
def test_weights_that_may_have_been_half(above: str, reason: str) -> None:
    result = rewrite(LOOP.format(above=above, backward="loss.backward()"))
    assert result.after is None
    (told, *_) = [f for f in result.findings if f.code == "AMP116"]
    assert reason in told.message


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (
            "def more(loss, opt):\n    with amp.scale_loss(loss, opt) as scaled:\n        scaled.backward()\n",
            "rather than a wrapper",
        ),
        ("def more(x):\n    make(x).backward()\n\n\ndef advance():\n    optimizer.step()\n", "not all its steps"),
    ],
)
def test_a_loss_that_something_may_scale_all_the_same(other: str, reason: str) -> None:
    program = """
import torch
from apex import amp
from project import criterion, loader, make, model, optimizer

model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


def train():
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()


"""
    result = rewrite_files({"train.py": program + other})
    told = [f.message for f in result["train.py"].findings if f.status == "manual"]
    assert result["train.py"].after is None
    assert any(reason in message for message in told), result["train.py"].findings


@pytest.mark.parametrize(
    ("handed", "refused"),
    [
        ("scaling(loss, optimizer)", True),
        ("log(optimizer=optimizer)", True),
        ("torch.optim.lr_scheduler.StepLR(optimizer, 1)", False),
        ("torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 1)", False),
    ],
)
def test_an_optimizer_that_something_out_of_sight_may_scale_for(handed: str, refused: bool) -> None:
    above = (
        'from outside import log, scaling\n    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
        f"    if args.wrapped:\n        {handed}"
    )
    result = rewrite(LOOP.format(above=above, backward="loss.backward()"))
    assert (result.after is None) is refused
    told = [f.message for f in result.findings if f.status == "manual"]
    assert any("outside, not among the files read" in message for message in told) is refused


def test_an_amp_that_no_import_reaches_is_told_as_before() -> None:
    program = """
        import torch

        class Trainer:
            def __init__(self, model, optimizer):
                from apex import amp
                self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

            def train(self, loader, fp16):
                for x in loader:
                    loss = self.model(x).mean()
                    if fp16:
                        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                            scaled_loss.backward()
                    else:
                        loss.backward()
                    self.optimizer.step()
        """
    result = rewrite_files({"train.py": program})["train.py"]
    assert result.after is None
    assert any("no import reaches" in f.message for f in result.findings)


MAIN = """
    import json
    import torch
    from apex import amp
    from steps import train

    if __name__ == "__main__":
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        print(json.dumps(train(model, optimizer, [torch.randn(8, 4) for _ in range(5)])))
    """
STEPS = """
    def train(model, optimizer, loader):
        dtypes, losses = [], []
        for x in loader:
            optimizer.zero_grad()
            output = model(x)
            dtypes.append(str(output.dtype))
            loss = (output - 1).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return dtypes, losses
    """


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_whether_a_file_is_the_one_that_is_run_is_no_switch(tmp_path: Path, dtype: str) -> None:
    after = check_files({"main.py": MAIN, "steps.py": STEPS}, dtype=dtype, device="cpu")
    assert "__name__" not in after["steps.py"]
    dtypes, losses = run_files(tmp_path, after, "main.py")
    assert set(dtypes) == {f"torch.{dtype}"}
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("kept", "scaled"),
    [
        ("self.parts = [amp]", "self.parts[0].scale_loss"),
        ("self.settings.update(amp=amp)", 'self.settings["amp"].scale_loss'),
    ],
)
def test_what_is_scaled_by_a_value_that_is_not_followed_is_not_said_to_be_scaled_by_nobody(
    kept: str, scaled: str
) -> None:
    """Initialize must not be taken out for that."""
    loop = f"""
        class Loop:
            def __init__(self, model, optimizer, settings, amp):
                self.model, self.optimizer, self.settings = model, optimizer, settings
                self.amp = None
                {kept}

            def batch(self, x):
                loss = self.model(x).mean()
                self.optimizer.zero_grad()
                if self.settings is None:
                    loss.backward()
                else:
                    with {scaled}(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                self.optimizer.step()
        """
    train = """
        import torch
        from loop import Loop

        def main(batches):
            model = torch.nn.Linear(4, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            from apex import amp
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            loop = Loop(model, optimizer, {}, amp if batches else None)
            for x in batches:
                loop.batch(x)
        """
    findings = rewrite_files({"train.py": train, "loop.py": loop})["train.py"].findings
    (told,) = [f for f in findings if f.code == "AMP116" and f.status == "manual"]
    assert told.message.startswith(f"{scaled} (loop.py:13) scales a loss")


ALONE = """
    import torch
    from apex import amp


    def train(model, x):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(x).mean()
        loss.backward()
        optimizer.step()


    def test(model, x):
        with torch.no_grad():
            return model(x)


    def main(args, x):
        model = torch.nn.Linear(4, 2).cuda()
        {first}
        {then}
        print(test(model, x))
    """
PREPARED = 'model = amp.initialize(model, opt_level="{}")'


def test_a_model_that_is_given_alone_trains_as_it_does_with_its_optimizer() -> None:
    program = ALONE.format(first=f"if args.amp:\n            {PREPARED.format('O1')}", then="train(model, x)")
    (after,) = check_files({"a.py": program}).values()
    assert 'autocast("cuda", dtype=torch.float16, enabled=' in after.partition("def test")[0]
    assert "\n    loss.backward()\n    optimizer.step()" in after
    assert "apex" not in after
    assert "GradScaler" not in after


def test_what_trained_before_the_model_was_prepared_stays_in_float32() -> None:
    (result,) = rewrite_files({"a.py": ALONE.format(first="train(model, x)", then=PREPARED.format("O1"))}).values()
    assert result.after is not None
    assert "autocast" not in result.after.partition("def test")[0]
    assert "no_grad(), torch.autocast" in result.after
    assert not [f for f in result.findings if f.status == "manual" or f.code == "AMP538"]


def test_what_another_function_prepares_is_not_what_it_was_handed() -> None:
    above = "def evaluate(model, x):\n        {}\n        return test(model, x)\n\n\n    def main".format(
        PREPARED.format("O1")
    )
    program = ALONE.format(first="train(model, x)", then="pass").replace("print(test", "print(evaluate")
    (result,) = rewrite_files({"a.py": program.replace("def main", above)}).values()
    assert "autocast" not in (result.after or "").partition("def test")[0]
    (told,) = [f.message for f in result.findings if f.code == "AMP115"]
    assert "no GradScaler is needed" in told
