"""`self.scale_loss = amp.scale_loss`, `scaled = amp.scale_loss`: functions of amp that an object or a name keeps, to call."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import rewrite
from tests.rules.trained import check_trained

TRAINER = """
    class Trainer:
        def __init__(self, fp16):
            self.fp16 = fp16
            self.scale_loss = None
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def set_up(self):
            self.model = model
            if self.fp16:
                from apex import amp
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
                self.clipped = amp.master_params
                self.scale_loss = amp.scale_loss

        def train(self):
            self.set_up()
            for inputs, targets in loader:
                self.optimizer.zero_grad()
                loss = criterion(self.model(inputs), targets)
                if self.fp16:
                    with self.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                    torch.nn.utils.clip_grad_norm_(self.clipped(self.optimizer), 0.01)
                else:
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.01)
                seen.append(grad_norm(self.model))
                self.optimizer.step()

    Trainer(True).train()
    """


def test_fields_that_hold_functions() -> None:
    check_trained(TRAINER)


def test_the_fields_go_with_what_they_held() -> None:
    after = rewrite("    import torch\n" + TRAINER).after or ""
    assert "self.scaler.scale(loss).backward()" in after
    assert "scale_loss" not in after
    assert "clipped" not in after


@pytest.mark.parametrize(
    "more",
    [
        "self.scale_loss = print",  # something else, too
        "print(self.scale_loss)",  # not only called
        "",
    ],
)
def test_fields_that_do_more_stay(more: str) -> None:
    text = "    import torch\n" + TRAINER.replace("self.set_up()", f"self.set_up()\n            {more or 'pass'}")
    result = rewrite(text)
    assert (result.after is None) == bool(more)
    assert any(f.status == "manual" for f in result.findings) == bool(more)


def test_a_method_of_that_name_is_none_of_them() -> None:
    text = (
        "    import torch\n"
        + TRAINER
        + textwrap.indent("class Other:\n    def scale_loss(self, x):\n        return x\n", "    ")
    )
    assert rewrite(text).after is None


def test_names_that_hold_functions() -> None:
    program = """
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    scaled = amp.scale_loss
    for inputs, targets in loader:
        optimizer.zero_grad()
        with scaled(criterion(model(inputs), targets), optimizer) as loss:
            loss.backward()
        seen.append(grad_norm(model))
        optimizer.step()
    """
    check_trained(program)


@pytest.mark.parametrize("asked", ["self.scale_loss is not None", "self.scale_loss", "not self.scale_loss is None"])
def test_a_field_that_is_asked_whether_it_is_there(asked: str) -> None:
    program = TRAINER.replace("if self.fp16:\n                    with", f"if {asked}:\n                    with")
    assert asked in program
    after = check_trained(program)
    assert "scale_loss" not in after
    assert after.count(".backward()") == 1  # one path serves both


@pytest.mark.parametrize("asked", ["self.scale_loss == print", "callable(self.scale_loss)", "str(self.scale_loss)"])
def test_a_field_that_is_asked_something_else_stays(asked: str) -> None:
    text = "    import torch\n" + TRAINER.replace(
        "if self.fp16:\n                    with", f"if {asked}:\n                    with"
    )
    result = rewrite(text)
    assert result.after is None
    assert any(f.status == "manual" for f in result.findings)


def test_what_the_migration_reads_is_no_read_of_a_field_that_went() -> None:
    text = "    import torch\n" + TRAINER.replace("self.scale_loss", "self.scale")
    result = rewrite(text)
    assert "self.scaler.scale(loss).backward()" in (result.after or "")
    assert not [f.message for f in result.findings if f.code == "AMP131"]
