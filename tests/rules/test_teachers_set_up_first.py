"""A teacher's set-up, which has no optimizer, before the student's: the later one's loss scale is what counted."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite
from tests.rules.programs import found

PROGRAM = """
import json

import torch
from apex import amp

from options import args

teacher = torch.nn.Linear(4, 1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
FIRST
SECOND
x = torch.ones(2, 4)
with torch.no_grad():
    y = teacher(x)
loss = torch.nn.functional.mse_loss(model(x), y)
with amp.scale_loss(loss, optimizer) as scaled:
    scaled.backward()
optimizer.step()
"""
TEACHERS = [
    'teacher, _ = amp.initialize(teacher, [], opt_level="O1")',
    'teacher = amp.initialize(teacher, opt_level="O1")',
    'teacher = amp.initialize(teacher, opt_level="O3")',
    'teacher = amp.initialize(teacher, opt_level="O2", loss_scale=8.0)',
]
STUDENT = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale={})'


def program(first: str, second: str) -> str:
    return PROGRAM.replace("FIRST", first).replace("SECOND", second)


@pytest.mark.parametrize("teacher", TEACHERS)
@pytest.mark.parametrize(("scale", "made"), [("128.0", "init_scale=128.0"), ("args.scale", "init_scale=args.scale")])
def test_the_scaler_has_the_scale_of_the_student(teacher: str, scale: str, made: str) -> None:
    files = {
        "train.py": program(teacher, STUDENT.format(scale)),
        "options.py": "from argparse import Namespace\nargs = Namespace(scale=4.0)\n",
    }
    text = check_files(files)["train.py"]
    (created,) = [line for line in text.splitlines() if line.startswith("scaler = ")]
    assert made in created
    assert "enabled=False" not in created
    assert f"scaler.update({scale})" in text


@pytest.mark.parametrize("level", ["O1", "O3"])
def test_a_dynamic_scale_of_the_student_stays_dynamic(level: str) -> None:
    teacher = f'teacher = amp.initialize(teacher, opt_level="{level}", loss_scale=8.0)'
    text = rewrite(program(teacher, STUDENT.format('"dynamic"')))
    assert text.after is not None
    assert 'scaler = torch.amp.GradScaler("cuda")' in text.after
    assert "scaler.update()" in text.after


def test_a_teacher_that_is_set_up_last_sets_the_scale_anew() -> None:
    result = rewrite(program(STUDENT.format("128.0"), TEACHERS[0]))
    assert result.after is None
    assert any(f.status == "manual" for f in found(result, "AMP114"))


TRAINER = """
import torch
from apex import amp


class Trainer:
    def __init__(self, params, teachers):
        self.fp16 = params["fp16"]
        self.teachers = []
        if params["teachers"]:
            for teacher in teachers:
                if self.fp16:
                    teacher = amp.initialize(teacher, opt_level="O1")
                self.teachers.append(teacher.eval())
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        BETWEEN
        if self.fp16:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def step(self, x):
        self.optimizer.zero_grad()
        with torch.no_grad():
            y = sum(t(x) for t in self.teachers)
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        if self.fp16:
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        self.optimizer.step()

    def show(self, x):
        return self.step(x)

    def plain(self, x):
        return x
"""


@pytest.mark.parametrize(
    ("between", "count"),
    [
        ("pass", 1),
        ("self.plain(1)", 1),
        ("if params['short']:\n            return", 2),
    ],
)
def test_a_scaler_that_another_takes_the_place_of_is_not_made(between: str, count: int) -> None:
    text = rewrite(TRAINER.replace("BETWEEN", between)).after
    assert text is not None
    assert text.count("self.scaler = ") == count


def test_one_that_is_read_before_is_made_or_the_program_left() -> None:
    text = rewrite(TRAINER.replace("BETWEEN", "self.show(torch.ones(2, 4))")).after
    assert text is None or text.count("self.scaler = ") == 2
