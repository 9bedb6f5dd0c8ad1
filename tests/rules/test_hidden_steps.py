"""A step that is not written `optimizer.step()`, or that stands where it cannot be seen, beside one that can: it would take
scaled gradients. It goes through the scaler, or nothing of the unit is written."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import apex, check_refused
from tests.rules.trained import check_trained

BACKWARD = (
    "loss = criterion(model(x), y)\noptimizer.zero_grad()\n"
    "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\n"
)
SEEN = "for x, y in loader:\n" + indent(BACKWARD + "optimizer.step()", "    ")

HIDDEN = {
    "kept in a name": ("go = optimizer.step", "go()"),
    "kept in a list": ("todo = [optimizer.step]", "for do in todo:\n    do()"),
    "kept in a partial": ("from functools import partial\ngo = partial(optimizer.step)", "go()"),
    "asked for by a variable": ('how = "step"', "getattr(optimizer, how)()"),
    "a method caller": ("import operator", 'operator.methodcaller("step")(optimizer)'),
    "through the class": ("", "torch.optim.SGD.step(optimizer)"),
    "the class's function, mapped": ("bag = [optimizer]", "list(map(torch.optim.SGD.step, bag))"),
    "a lambda, mapped": ("bag = [optimizer]", "list(map(lambda o: o.step(), bag))"),
    "a property of an object": (
        "class Box:\n    def __init__(self, thing):\n        self.thing = thing\n\n"
        "    @property\n    def go(self):\n        return self.thing.step\n\nbox = Box(optimizer)",
        "box.go()",
    ),
    "a function out of sight": ("from elsewhere import advance", "advance(optimizer)"),
    "an attribute set by name": ('setattr(model, "opt", optimizer)\n\ndef go(m):\n    m.opt.step()\n', "go(model)"),
    "a strategy out of sight": ("from elsewhere import strategy", "strategy.optimizer_step(optimizer)"),
}


@pytest.mark.parametrize(("prepare", "step"), HIDDEN.values(), ids=HIDDEN)
def test_a_hidden_step_beside_a_visible_one_is_refused(prepare: str, step: str) -> None:
    result = rewrite(apex(BACKWARD + step, tail=SEEN, model=MODEL.format(prepare)))
    assert result.after is None
    assert {f.code for f in result.findings if not f.message.startswith("waits for")} == {"AMP216"}


MODEL = "model = build()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n{}"


def test_a_step_that_is_kept_is_refused_in_the_iteration_of_a_visible_one() -> None:
    check_refused(
        apex(BACKWARD + "go = optimizer.step\nif x.sum() > 0:\n    go()\nelse:\n    optimizer.step()"), "AMP216"
    )


def test_a_backward_in_a_helper_is_refused_for_the_loop_whose_step_is_hidden() -> None:
    helper = (
        "def run(loss):\n    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n"
    )
    loop = "loss = criterion(model(x), y)\noptimizer.zero_grad()\nrun(loss)\n"
    tail = "for x, y in loader:\n" + indent(loop + "optimizer.step()", "    ")
    model = MODEL.format(f"from elsewhere import advance\n\n{helper}")
    check_refused(apex(loop + "advance(optimizer)", tail=tail, model=model), "AMP216")
    assert rewrite(apex(loop + "optimizer.step()", tail=tail, model=model)).status == "migrated"


SCALED = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\n"
ITERATION = f"""
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
{indent(SCALED, "    ")}
    seen.append(clip_grad_norm_(amp.master_params(optimizer), 0.05).item())
"""
START = '\nmodel, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'

REACHED = {
    "an alias": START + "other = optimizer\n" + ITERATION + "    other.step()\n",
    "an attribute": START + "class Box: pass\nbox = Box()\nbox.opt = optimizer\n" + ITERATION + "    box.opt.step()\n",
    "an attribute of a parameter": START
    + "def finish(net):\n    net.opt.step()\n\nmodel.opt = optimizer\n"
    + ITERATION
    + "    finish(model)\n",
    "a mapping": START + 'opts = {"a": optimizer}\n' + ITERATION + '    opts["a"].step()\n',
    "a mapping that is handed on": START
    + 'def finish(state):\n    state["opt"].step()\n\nstate = dict(opt=optimizer, net=model)\n'
    + ITERATION
    + "    finish(state)\n",
    "a list": START + "opts = [optimizer]\n" + ITERATION + "    for o in opts:\n        o.step()\n",
    "arguments in a tuple": START
    + "def finish(net, opt):\n    opt.step()\n\n"
    + ITERATION
    + "    finish(*(model, optimizer))\n",
    "arguments in a mapping": START
    + "def finish(net, opt):\n    opt.step()\n\n"
    + ITERATION
    + '    finish(**{"net": model, "opt": optimizer})\n',
}


KEEPER = """
class {name}:
    def __init__(self):
        self.net = model
        self.opt = torch.optim.SGD(model.parameters(), lr={rate})

    def finish(self):
        self.opt.step()
"""
EITHER = (
    KEEPER.format(name="Alpha", rate=0.1)
    + KEEPER.format(name="Beta", rate=0.2)
    + "\ntrainer = Beta() if len(loader) > 1 else Alpha()\n"
    + 'trainer.net, trainer.opt = amp.initialize(trainer.net, trainer.opt, opt_level="O1")\n'
    + ITERATION.replace("optimizer", "trainer.opt").replace("model(", "trainer.net(")
)


@pytest.mark.parametrize(("step", "count"), [("trainer.finish()", 2), ("trainer.opt.step()", 3)])
def test_a_receiver_of_either_of_two_classes_steps_through_the_scaler(step: str, count: int) -> None:
    assert check_trained(f"{EITHER}    {step}\n").count("scaler.step(") == count


@pytest.mark.parametrize("program", REACHED.values(), ids=REACHED)
def test_an_optimizer_that_is_reached_in_another_way_steps_through_the_scaler(program: str) -> None:
    assert check_trained(program).count("scaler.step(") == 1


def test_a_helper_of_another_module_steps_through_the_scaler() -> None:
    results = rewrite_files(
        {
            "helpers.py": "def finish(which):\n    which.step()\n",
            "train.py": apex(
                BACKWARD + "helpers.finish(optimizer)", imports="import helpers\nfrom apex import amp", tail=SEEN
            ),
        }
    )
    after = results["helpers.py"].after
    assert after is not None
    assert "scaler.step(which)" in after


PLAIN = {
    "a scheduler": "optimizer.step()\nscheduler.step()",
    "a schedule given the optimizer": "optimizer.step()\nproject.lr_schedule.step(3, optimizer)",
    "a look at the step": "optimizer.step()\nassert hasattr(optimizer, 'step')",
    "an attribute of another name": 'optimizer.step()\nprint(getattr(optimizer, "defaults"))',
}


@pytest.mark.parametrize("loop", PLAIN.values(), ids=PLAIN)
def test_what_hides_no_step_is_no_reason(loop: str) -> None:
    prepare = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
    prepare += "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)"
    assert rewrite(apex(BACKWARD + loop, prepare)).status == "migrated"


ASKED = {
    "callable": "assert callable(optimizer.step)",
    "a test": 'if not (hasattr(optimizer, "step") and callable(optimizer.step)):\n    raise TypeError("no optimizer")',
    "a comparison": "if optimizer.step is None:\n    raise TypeError",
    "its name": "print(optimizer.step.__name__)",
    "how often a test's stand-in was called": "print(optimizer.step.call_count)",
}


@pytest.mark.parametrize("question", ASKED.values(), ids=ASKED)
def test_what_only_asks_about_the_step_does_not_hide_one(question: str) -> None:
    text = rewrite(apex(BACKWARD + "optimizer.step()", tail=question)).after
    assert text is not None
    assert question in text
    assert "scaler.step(optimizer)" in text


@pytest.mark.parametrize(
    "kept",
    ["go = bool(optimizer.step) and optimizer.step", "go = None or optimizer.step", "go = optimizer.step.__call__"],
)
def test_what_keeps_the_step_beside_asking_does(kept: str) -> None:
    check_refused(apex(BACKWARD + f"{kept}\ngo()", tail=SEEN), "AMP216")


COUNTED = """
counted = []


def count(step):
    def stepped(*args, **kwargs):
        counted.append(1)
        return step(*args, **kwargs)

    return stepped


class Watch:
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.optimizer.step = count(self.optimizer.step)


model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
watch = Watch(optimizer)
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0).item())
    optimizer.step()
seen.append(len(counted))
"""


def test_a_step_that_is_wrapped_where_it_is_goes_through_the_scaler() -> None:
    """So torch's own schedulers count the steps: `scaler.step(optimizer)` calls what stands there."""
    assert "scaler.step(optimizer)" in check_trained(COUNTED)
    elsewhere = COUNTED.replace("self.optimizer.step = count(", "self.go = count(")
    assert rewrite("import torch\nfrom apex import amp\n" + elsewhere).after is None


def test_a_step_that_is_kept_to_be_compared_is_told_as_that() -> None:
    """By it some see whether Apex has just put a step of its own there: nothing calls what is kept."""
    loop = "usual = optimizer.step\n" + BACKWARD + "if optimizer.step is usual:\n    count()\noptimizer.step()"
    result = check_refused(apex(loop), "AMP216")
    (finding,) = [f for f in result.findings if f.code == "AMP216"]
    assert "compared with what it is at line" in finding.message
    assert "get_scale() fell" in finding.message
    assert "called later" not in finding.message
