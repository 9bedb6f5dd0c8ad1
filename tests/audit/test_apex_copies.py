"""Forwards that O1 ran on half copies from before a step, since nothing had cleared them: AMP538."""

from __future__ import annotations

import textwrap

import pytest

from tests.audit.helpers import doubts, told

HEAD = """
import torch
from torch import nn
{imports}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(x)

{also}
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{setting}
for x, y in loader:
    optimizer.zero_grad()
"""
SCALED = """
    loss = nn.functional.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
"""
AFTER = """
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
"""


def said(between: str = "", then: str = "", *, level: str = "O1", also: str = "") -> list[tuple[int, str]]:
    """What is told of a loop with code between `scale_loss` and the step, and after that."""
    between, then = (
        textwrap.indent(textwrap.dedent(t).strip("\n") + "\n", "    ") if t else "" for t in (between, then)
    )
    setting = f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")'
    old = HEAD.format(imports="from apex import amp", setting=setting, also=also)
    new = HEAD.format(imports="", setting='scaler = torch.amp.GradScaler("cuda")', also=also)
    old += SCALED + between + "    optimizer.step()\n" + then
    new += AFTER + between + "    scaler.step(optimizer)\n    scaler.update()\n" + then
    return told(doubts(old, new), "AMP538")


HELPER = "def monitor(net, x):\n    return net(x).argmax(1)\n"


@pytest.mark.parametrize("between", ["scores = model(x)", "print(monitor(model, x))", "scores = model.head(x)"])
def test_a_forward_before_the_step_left_its_copies(between: str) -> None:
    assert [verdict for _, verdict in said(between, also=HELPER)] == ["look"]
    assert said(between, also=HELPER, level="O2") == []


def test_the_forward_that_is_meant_is_the_one_that_takes_them() -> None:
    ((line, _),) = said("scores = model(x)")
    old = HEAD.format(imports="from apex import amp", setting="SETTING", also="").strip("\n").splitlines()
    assert line == len(old) + 2


@pytest.mark.parametrize(
    ("between", "then"),
    [
        ("", ""),
        ("", "scores = model(x)"),  # made after the step: the next forward takes what is current
        ("print(loss.item())", "print(loss)"),
        ("with torch.no_grad():\n    scores = model(x)", ""),  # have no history: O1 made others for the training
        ("", "with torch.no_grad():\n    scores = model(x)"),
    ],
)
def test_where_none_are_left_nothing_is_told(between: str, then: str) -> None:
    assert said(between, then) == []


def test_an_evaluation_takes_what_another_left() -> None:
    both = "with torch.no_grad():\n    scores = model(x)"
    assert [verdict for _, verdict in said(both, both)] == ["look"]


def test_a_backward_of_its_own_clears_nothing() -> None:
    assert len(said("other = model(x).sum()\nother.backward()")) == 1


def test_functions_that_are_called_for_each_batch() -> None:
    step = """
def step(model, optimizer, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    {between}
    optimizer.step()
"""
    after = """
def step(model, optimizer, scaler, x, y):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    {between}
    scaler.step(optimizer)
    scaler.update()
"""
    for between, count in (("pass", 0), ("scores = model(x)", 1)):
        setting = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
        old = HEAD.format(imports="from apex import amp", setting=setting, also=step.format(between=between))
        new = HEAD.format(
            imports="", setting='scaler = torch.amp.GradScaler("cuda")', also=after.format(between=between)
        )
        found = doubts(old + "    step(model, optimizer, x, y)\n", new + "    step(model, optimizer, scaler, x, y)\n")
        assert len(told(found, "AMP538")) == count


def test_the_branch_without_apex_is_another_run() -> None:
    switched = """
    if fp16:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()
"""
    setting = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    old = HEAD.format(imports="from apex import amp", setting=setting, also="fp16 = True")
    new = HEAD.format(imports="", setting='scaler = torch.amp.GradScaler("cuda", enabled=fp16)', also="fp16 = True")
    forward = "    loss = nn.functional.cross_entropy(model(x), y)"
    region = '    with torch.autocast("cuda", dtype=torch.float16, enabled=fp16):\n    '
    old += forward + switched + "    optimizer.step()\n"
    new += f"{region}{forward}\n    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\n"
    assert told(doubts(old, new), "AMP538") == []


def test_a_network_that_is_made_for_each_evaluation_is_its_own() -> None:
    also = """
def evaluate(x):
    model = Net()
    model.load_state_dict(torch.load("best.pt"))
    with torch.no_grad():
        return model(x)
"""
    assert said("", "print(evaluate(x))", also=also) == []


@pytest.mark.parametrize(("between", "verdicts"), [("", []), ("        scores = model(x)\n", ["look", "look"])])
def test_a_way_without_any_backward_writes_nothing(between: str, verdicts: list[str]) -> None:
    """`if not args.other:` around the backward: nothing is left for the step where that is left out."""
    setting = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    old = HEAD.format(imports="from apex import amp", setting=setting, also="")
    new = HEAD.format(imports="", setting='scaler = torch.amp.GradScaler("cuda")', also="")
    first, scaled = SCALED.strip("\n").split("\n", 1)
    old += f"{first}\n    if not other:\n{textwrap.indent(scaled, '    ')}\n{between}    optimizer.step()\n    scores = model(x)\n"
    *region, scaled = AFTER.strip("\n").splitlines()
    new += "\n".join([*region, "    if not other:", f"    {scaled}"]) + f"\n{between}"
    new += "    scaler.step(optimizer)\n    scaler.update()\n    scores = model(x)\n"
    assert [verdict for _, verdict in told(doubts(old, new), "AMP538")] == verdicts


NORM = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(4))
        self.ready = False

    def reset(self, x):
        self.bias.data.copy_(-x.mean(0).log())

    def forward(self, x):
        if not self.ready:
            self.reset(x)
        return {use}


class Head({base}):
    def reset_parameters(self):
        nn.init.zeros_(self.bias)
"""


@pytest.mark.parametrize(
    ("use", "base", "copied"),
    [
        ("torch.exp(self.bias) * x", "nn.Linear", False),
        ("(x - self.bias) * (-self.bias).exp() + torch.sum(self.bias) + self.bias[0]", "nn.Linear", False),
        ("torch.exp(self.bias) * x", "Net", True),
        ("x @ self.bias", "nn.Linear", True),
        ("mix(self.bias, x)", "nn.Linear", True),
    ],
)
def test_what_another_class_does_with_its_parameter_of_that_name_makes_no_copies(
    use: str, base: str, copied: bool
) -> None:
    head = HEAD[: HEAD.index("class Net")] + NORM.format(use=use, base=base) + HEAD[HEAD.index("\n{also}") :]
    setting = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    old = head.format(imports="from apex import amp\nfrom mixing import mix", setting=setting, also="")
    new = head.format(imports="from mixing import mix", setting='scaler = torch.amp.GradScaler("cuda")', also="")
    between = "    other = model(x)\n    another = model(x)\n    optimizer.step()\n"
    found = doubts(old + SCALED + between, new + AFTER + between)
    assert ("self.bias.data.copy_" in "".join(d.message for d in found if d.code == "AMP538")) == copied


ATTACK = """
def attack(net, wanted="emb."):
    for name, p in net.named_parameters():
        if TEST:
            p.data.add_(p.grad)
"""


@pytest.mark.parametrize(
    ("test", "runs"),
    [
        ("p.requires_grad and wanted in name", 1),
        ('name.startswith("words_emb")', 1),
        ('"head" in name', 2),
        ("name in chosen", 2),
        ("p.requires_grad", 2),
    ],
)
def test_each_run_on_old_copies_is_told_and_embeddings_have_none(test: str, runs: int) -> None:
    """The run before the step takes what the attack made old, the next batch's what the step did."""
    between = "first = model(x)\nattack(model)\nnn.functional.cross_entropy(model(x), y).backward()"
    assert len(said(between, also=ATTACK.replace("TEST", test))) == runs


@pytest.mark.parametrize(
    ("wrapped", "spread"),
    [
        ("nn.DataParallel(model)", True),
        ("torch.nn.parallel.DataParallel(model, device_ids=[0, 1])", True),
        ("nn.DataParallel(model, device_ids=[1])", False),
        ("nn.parallel.DistributedDataParallel(model)", False),
        ("model.train()", False),
    ],
)
def test_replicas_have_no_copies(wrapped: str, spread: bool) -> None:
    """DataParallel gives replicas tensors for weights, and O1 kept copies of parameters only."""
    setting = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    old = HEAD.format(imports="from apex import amp", setting=f"{setting}\nnet = {wrapped}", also="")
    new = HEAD.format(imports="", setting=f'scaler = torch.amp.GradScaler("cuda")\nnet = {wrapped}', also="")
    old += SCALED.replace("model(x)", "net(x)") + "    scores = net(x)\n    optimizer.step()\n"
    new += (
        AFTER.replace("model(x)", "net(x)") + "    scores = net(x)\n    scaler.step(optimizer)\n    scaler.update()\n"
    )
    (message,) = [d.message for d in doubts(old, new) if d.code == "AMP538"]
    assert message.startswith("on one device") is spread


TRIED = """
try:
    loss = nn.functional.cross_entropy(model(x), y)
    TRAIN
except Exception as error:
    print(error)
"""


def in_try(between: str) -> list[tuple[int, str]]:
    """The same where an error of the forward, or of the backward pass, is caught, and the step comes all the same."""
    old = TRIED.replace("TRAIN", "with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()")
    new = TRIED.replace("TRAIN", "scaler.scale(loss).backward()")
    head = HEAD.format(imports="IMPORT", setting="SETTING", also="def score(net, x):\n    return net(x).argmax(1)\n")
    texts = [
        head + textwrap.indent(t + between, "    ") + f"    {step}\n    print(score(model, x))\n"
        for t, step in ((old, "optimizer.step()"), (new, "scaler.step(optimizer)\n    scaler.update()"))
    ]
    for i, (imported, setting) in enumerate(
        (
            ("from apex import amp", 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'),
            ("", 'scaler = torch.amp.GradScaler("cuda")'),
        )
    ):
        texts[i] = texts[i].replace("IMPORT", imported).replace("SETTING", setting)
    return told(doubts(*texts), "AMP538")


def test_a_step_without_its_backward_pass_after_an_error_is_not_what_a_run_does() -> None:
    assert not in_try("")
    assert in_try("scores = model(x)\n")


def test_a_method_of_the_network_that_runs_none_of_it_is_no_forward() -> None:
    method = "    def keep(self, path):\n        torch.save(self.state_dict(), path)\n"
    keeping = said("scores = model(x)", "model.keep('last.pt')", also=method)
    assert keeping == said("scores = model(x)", also=method)
