"""Gradients read in other functions than the one that steps: the emitted code is run, and its clips see what the
original's saw in float32."""

from __future__ import annotations

import pytest
import torch

from tests.rules.trained import check_trained

INITIALIZE = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
LOSS = "loss = criterion(model(x), y)\n    optimizer.zero_grad()"

PROGRAMS = {
    "a context manager around scale_loss": f"""
from contextlib import contextmanager


@contextmanager
def scaling(loss, optimizer):
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        yield scaled_loss


{INITIALIZE}
for x, y in loader:
    {LOSS}
    with scaling(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()
""",
    "a context manager that clips when it is left": f"""
from contextlib import contextmanager


@contextmanager
def scaling(loss, optimizer):
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        yield scaled_loss
    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 0.05)


{INITIALIZE}
for x, y in loader:
    {LOSS}
    with scaling(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
""",
    "two optimizers, one clip, steps in a helper": """
other = build()
second = torch.optim.SGD(other.parameters(), lr=0.1)


def update(*optimizers):
    for o in optimizers:
        print(type(o))


def step(one, two):
    one.step()
    two.step()


[model, other], [optimizer, second] = amp.initialize([model, other], [optimizer, second], opt_level="O1")
for x, y in loader:
    loss = criterion(model(x) + other(x), y)
    optimizer.zero_grad()
    second.zero_grad()
    with amp.scale_loss(loss, [optimizer, second]) as scaled_loss:
        scaled_loss.backward()
    torch.nn.utils.clip_grad_norm_([*model.parameters(), *other.parameters()], 0.05)
    step(optimizer, second)
""",
    "a method steps all optimizers of a list": """
class Trainer:
    def __init__(self, model, optimizers):
        self.model, self.optimizers = amp.initialize(model, optimizers, opt_level="O1")

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def train(self):
        for x, y in loader:
            loss = criterion(self.model(x), y)
            with amp.scale_loss(loss, self.optimizers) as scaled_loss:
                scaled_loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.05)
            self.step()


first = torch.optim.SGD(model[0].parameters(), lr=0.1)
Trainer(model, [first, torch.optim.SGD(model[2].parameters(), lr=0.2)]).train()
""",
    "a hook clips before the step": """
class Hook:
    def on_before_step(self, trainer):
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 0.05)


class Trainer:
    def __init__(self, model, optimizer, hooks):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")
        self.hooks = hooks

    def train(self):
        for x, y in loader:
            loss = criterion(self.model(x), y)
            self.optimizer.zero_grad()
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            for hook in self.hooks:
                hook.on_before_step(self)
            self.optimizer.step()


Trainer(model, optimizer, [Hook()]).train()
""",
    "the clip in the loop, the step in a helper": f"""
{INITIALIZE}


def update(optimizer):
    optimizer.step()


for x, y in loader:
    {LOSS}
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    clip_grad_norm_(amp.master_params(optimizer), 0.05)
    update(optimizer)
""",
    "helpers for the clip and the step": """
def clip(optimizer, limit):
    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), limit)


def update(optimizer, scheduler):
    optimizer.step()
    scheduler.step()


def main(model, optimizer):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        clip(optimizer, 0.05)
        update(optimizer, scheduler)


main(model, optimizer)
""",
    "methods for the clip and the step": """
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.05)

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def train(self):
        for x, y in loader:
            loss = criterion(self.model(x), y)
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.clip()
            self.step()


Trainer(model, optimizer).train()
""",
    "methods for the backward, the clip and the step": """
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def backward(self, loss):
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()

    def clip_gradients(self):
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.05)

    def apply_gradients(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def train_step(self, x, y):
        self.backward(criterion(self.model(x), y))
        norm = self.clip_gradients()
        self.apply_gradients()
        return norm


trainer = Trainer(model, optimizer)
for x, y in loader:
    seen.append(trainer.train_step(x, y))
""",
    "a helper that does the backward and the clip": f"""
def backward(loss, optimizer, limit=0.05):
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    if limit:
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), limit)


{INITIALIZE}
for x, y in loader:
    {LOSS}
    backward(loss, optimizer)
    optimizer.step()
""",
    "a helper that clips between a backward and a step in helpers": f"""
def backward(loss, optimizer):
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()


def backward_and_clip(loss, optimizer, limit):
    backward(loss, optimizer)
    clip_grad_norm_(model.parameters(), limit)


def update(optimizer):
    optimizer.step()
    optimizer.zero_grad()


{INITIALIZE}
for x, y in loader:
    loss = criterion(model(x), y)
    backward_and_clip(loss, optimizer, 0.05)
    update(optimizer)
""",
    "two calls between the clip and the step": f"""
def apply_gradients(optimizer):
    optimizer.step()


def update(optimizer, number):
    if number == 0:
        print("first step")
    apply_gradients(optimizer)


{INITIALIZE}
for i, (x, y) in enumerate(loader):
    {LOSS}
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    clip_grad_norm_(model.parameters(), 0.05)
    update(optimizer, i)
""",
    "one caller clips, the other does not": f"""
def update(optimizer):
    optimizer.step()


{INITIALIZE}
for x, y in loader[:3]:
    {LOSS}
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    clip_grad_norm_(model.parameters(), 0.05)
    update(optimizer)
for x, y in loader[3:]:
    {LOSS}
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    update(optimizer)
""",
    "the caller logs, the helper clips": f"""
def update(optimizer):
    clip_grad_norm_(amp.master_params(optimizer), 0.05)
    optimizer.step()


{INITIALIZE}
for x, y in loader:
    {LOSS}
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(grad_norm(model))
    update(optimizer)
""",
    "the helper may return before the step": f"""
def update(optimizer, norm):
    if not norm < 1e9:
        return False
    optimizer.step()
    return True


{INITIALIZE}
for i, (x, y) in enumerate(loader):
    {LOSS}
    with amp.scale_loss(loss * (float("nan") if i == 2 else 1.0), optimizer) as scaled_loss:
        scaled_loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    seen.append(update(optimizer, norm))
""",
    "accumulation: the clip of every micro-batch moves to the call that steps": f"""
def update(optimizer):
    optimizer.step()
    optimizer.zero_grad()


{INITIALIZE}
for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y) / 2
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    if (i + 1) % 2 == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        update(optimizer)
""",
    "a base class steps, the subclass clips": """
class Base:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def optimize(self, loss):
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
        self.before_step()
        self.step()

    def before_step(self):
        pass


class Clipping(Base):
    def before_step(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.05)


trainer = Clipping(model, optimizer)
for x, y in loader:
    trainer.optimize(criterion(trainer.model(x), y))
""",
    "a subclass clips and calls the step of its base": """
class Base:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def optimize(self, loss):
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
        self.step()


class Clipping(Base):
    def step(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.05)
        super().step()


trainer = Clipping(model, optimizer)
for x, y in loader:
    trainer.optimize(criterion(trainer.model(x), y))
""",
    "an object steps, the loop clips": """
class Engine:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def backward(self, loss):
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


engine = Engine(model, optimizer)
for x, y in loader:
    engine.backward(criterion(engine.model(x), y))
    torch.nn.utils.clip_grad_norm_(engine.model.parameters(), 0.05)
    engine.step()
""",
    "a generator yields between the backward and the step": """
def training(model, optimizer):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        yield norm


seen += training(model, optimizer)
""",
    "functions of torch read the gradients": f"""
def total_norm(optimizer):
    return torch.stack([p.grad.detach().norm() for p in model.parameters()]).norm()


def update(optimizer):
    optimizer.step()


{INITIALIZE}
for x, y in loader:
    {LOSS}
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(total_norm(optimizer))
    update(optimizer)
""",
    "the total norm and the clip by it": f"""
def update(optimizer):
    optimizer.step()


{INITIALIZE}
for x, y in loader:
    {LOSS}
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.05, norm)
    seen.append(norm)
    update(optimizer)
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_readers_see_unscaled_gradients(program: str) -> None:
    if "get_total_norm" in program and not hasattr(torch.nn.utils, "get_total_norm"):
        pytest.skip("torch has it from 2.6 on")
    after = check_trained(program)
    assert "unscale_(" in after
