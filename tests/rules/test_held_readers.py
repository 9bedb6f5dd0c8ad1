"""Readers of gradients that are kept as values or hidden behind other names: run, and compared with float32."""

from __future__ import annotations

import pytest

from tests.rules.trained import check_trained

INITIALIZE = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
LOOP = """
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
"""
STEP = "    optimizer.step()\n"
CLIP = "    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)\n"
DEFINED = f"\n\ndef shrink():\n{CLIP}\n\n"

PROGRAMS = {
    "a callback": f"""{INITIALIZE}{DEFINED}
def run(loss, callback):
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    callback()
    optimizer.step()


for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    run(loss, shrink)
""",
    "a list of callbacks": INITIALIZE
    + DEFINED
    + "callbacks = [shrink]\n"
    + LOOP
    + "    for callback in callbacks:\n        callback()\n"
    + STEP,
    "callbacks that are appended": INITIALIZE
    + DEFINED
    + "callbacks = []\ncallbacks.append(shrink)\n"
    + LOOP
    + "    for callback in callbacks:\n        callback()\n"
    + STEP,
    "callbacks by event, put under a default": INITIALIZE
    + DEFINED
    + "callbacks = {}\n\n\ndef on(event, callback):\n    callbacks.setdefault(event, []).append(callback)\n\n\n"
    + 'on("backward", shrink)\n'
    + LOOP
    + '    for callback in callbacks.get("backward", []):\n        callback()\n'
    + STEP,
    "callbacks by event, registered by a decorator": INITIALIZE
    + "callbacks = {}\n\n\ndef on(event):\n    def register(callback):\n        callbacks[event] = callback\n"
    + '        return callback\n\n    return register\n\n\n@on("backward")'
    + DEFINED.removeprefix("\n")
    + LOOP
    + '    callbacks["backward"]()\n'
    + STEP,
    "a lambda": INITIALIZE
    + "shrink = lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)\n"
    + LOOP
    + "    shrink()\n"
    + STEP,
    "a partial": INITIALIZE
    + "from functools import partial\n\nshrink = partial(torch.nn.utils.clip_grad_norm_, max_norm=0.05)\n"
    + LOOP
    + "    shrink(model.parameters())\n"
    + STEP,
    "another name": INITIALIZE
    + "shrink = torch.nn.utils.clip_grad_norm_\n"
    + LOOP
    + "    shrink(model.parameters(), 0.05)\n"
    + STEP,
    "a callable object": f"""
class Shrink:
    def __init__(self, limit):
        self.limit = limit

    def __call__(self, model):
        return torch.nn.utils.clip_grad_norm_(model.parameters(), self.limit)


shrink = Shrink(0.05)
{INITIALIZE}{LOOP}    shrink(model)
{STEP}""",
    "a function kept on an object": f"""
class Trainer:
    def __init__(self, model, optimizer, clip):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")
        self.shrink = clip

    def run(self, x, y):
        loss = criterion(self.model(x), y)
        self.optimizer.zero_grad()
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
        self.shrink()
        self.optimizer.step()


{DEFINED}
trainer = Trainer(model, optimizer, shrink)
for x, y in loader:
    trainer.run(x, y)
""",
    "loops over parameters under any name": INITIALIZE
    + LOOP
    + '    for group in optimizer.param_groups:\n        for q in group["params"]:\n            q.grad.mul_(0.5)\n'
    + "            seen.append(float(q.grad.norm()))\n"
    + STEP,
    "a comprehension, read later": INITIALIZE
    + LOOP
    + "    grads = [q.grad for q in model.parameters() if q.grad is not None]\n"
    + "    seen.append(float(torch.stack([g.norm() for g in grads]).norm()))\n"
    + STEP,
    "a lambda over parameters": INITIALIZE
    + LOOP
    + "    seen.append(float(sum(map(lambda q: q.grad.norm(), model.parameters()))))\n"
    + STEP,
    "parameters kept in a variable": INITIALIZE
    + LOOP
    + "    trainable = list(filter(lambda q: q.requires_grad, model.parameters()))\n"
    + "    for q in trainable:\n        q.grad.clamp_(-0.01, 0.01)\n        seen.append(float(q.grad.norm()))\n"
    + STEP,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_held_reader_sees_unscaled_gradients(program: str) -> None:
    after = check_trained(program)
    assert after.count("unscale_(") == 1
