"""Classes that own an optimizer, the scaled backward and the step: their callers are out of sight, and the emitted code
is run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.rules.helpers import check_manual, rewrite
from tests.rules.trained import check_trained

# What runs the model, in a file where the rest is only defined.
RUN = "import torch\nfrom apex import amp\n\n\ndef loss_of(model, x):\n    return model(x).sum()\n\n"
WRAPPER = """
class MixedOptimizer:
    def __init__(self, inner, model):
        model, inner = amp.initialize(model, inner, opt_level="O1")
        self.inner = inner

    def zero_grad(self):
        self.inner.zero_grad()

    def backward(self, loss):
        with amp.scale_loss(loss, self.inner) as scaled_loss:
            scaled_loss.backward()

    def clip(self, max_norm):
        if max_norm is not None:
            return torch.nn.utils.clip_grad_norm_(amp.master_params(self.inner), max_norm)
        return None

    def step(self, closure=None):
        {step}
"""
# The class is looked up by its name, and so are the methods: what calls them cannot be told.
LOOP = """
wrapper = {"mixed": MixedOptimizer}["mixed"](optimizer, model)
for x, y in loader:
    loss = criterion(model(x), y)
    for name, given in (("zero_grad", ()), ("backward", (loss,)), ("clip", (0.05,)), ("step", ())):
        getattr(wrapper, name)(*given)
"""
STEPS = {
    "handed on": "self.inner.step(closure)",
    "handed on by name": "self.inner.step(closure=closure)",
    "with what the step gives": "return self.inner.step(closure)",
    "of no closure": "self.inner.step()\n        self.steps = getattr(self, 'steps', 0) + 1",
    "returned": "return self.inner.step()",
    "None by name": "self.inner.step(closure=None)",
}
GUARD = """\
        if closure is not None and self.scaler.is_enabled():
            raise RuntimeError("GradScaler does not support closures")
"""


@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
def test_a_wrapper_scales_unscales_and_updates_in_its_own_methods(step: str) -> None:
    after = check_trained(WRAPPER.replace("{step}", step) + LOOP)
    assert "            self.scaler.unscale_(self.inner)\n            return torch.nn.utils.clip_grad_norm_(" in after
    assert after.count("unscale_") == after.count("self.scaler.update()") == 1
    assert (GUARD in after) is ("(closure" in step and "None" not in step)


def test_a_closure_that_arrives_all_the_same_is_an_error_and_no_silent_step() -> None:
    program = WRAPPER.replace("{step}", STEPS["handed on"]) + LOOP
    failing = """
try:
    getattr(wrapper, "step")(lambda: 0.0)
except RuntimeError as error:
    assert "closures" in str(error), error
    seen.append(1.0)
else:
    seen.append(1.0 if not hasattr(wrapper, "scaler") else 0.0)
"""
    check_trained(program + failing)


def test_the_update_comes_before_what_the_step_gave_is_returned() -> None:
    after = rewrite(RUN + WRAPPER.replace("{step}", "return self.inner.step()")).after
    assert after is not None
    body = "        result = self.scaler.step(self.inner)\n        self.scaler.update()\n        return result\n"
    assert after.endswith(body)


@pytest.mark.parametrize(
    "refusal", ["if closure is not None:\n            raise RuntimeError('no closures')", "assert closure is None"]
)
def test_a_wrapper_that_refuses_closures_itself_gets_no_second_guard(refusal: str) -> None:
    after = check_trained(WRAPPER.replace("{step}", f"{refusal}\n        self.inner.step(closure)") + LOOP)
    assert "        self.scaler.step(self.inner)\n        self.scaler.update()\n" in after
    assert "is_enabled" not in after


def test_who_gives_a_closure_out_of_sight_is_told_of_it() -> None:
    result = rewrite(RUN + WRAPPER.replace("{step}", STEPS["handed on"]))
    (finding,) = (f for f in result.findings if f.code == "AMP212")
    assert (finding.status, finding.review) == ("note", "review")
    assert any(f.code == "AMP301" and f.review == "review" for f in result.findings)


CALLERS = {
    "a function": "wrapper.step(closure)",
    "a function by name": "wrapper.step(closure=closure)",
    "whatever it was given": "wrapper.step(*given)",
}


@pytest.mark.parametrize("call", CALLERS.values(), ids=list(CALLERS))
def test_a_caller_in_sight_that_gives_one_is_refused(call: str) -> None:
    program = WRAPPER.replace("{step}", STEPS["handed on"])
    caller = f"\n\ndef train(optimizer, model, closure, *given):\n    wrapper = MixedOptimizer(optimizer, model)\n    {call}\n"
    check_manual("import torch\nfrom apex import amp\n" + program + caller, "AMP212")


@pytest.mark.parametrize("call", ["wrapper.step()", "wrapper.step(None)", "wrapper.step(closure=None)"])
def test_callers_in_sight_that_leave_it_out_are_no_reason_to_refuse(call: str) -> None:
    program = WRAPPER.replace("{step}", STEPS["handed on"])
    loop = f"""
wrapper = MixedOptimizer(optimizer, model)
for x, y in loader:
    wrapper.zero_grad()
    loss = criterion(model(x), y)
    wrapper.backward(loss)
    wrapper.clip(0.05)
    {call}
"""
    check_trained(program + loop)


def test_a_wrapper_around_the_wrapper_hands_it_on_as_well() -> None:
    outer = """

class Averaged:
    def __init__(self, wrapper):
        self.wrapper = wrapper

    def step(self, closure=None):
        self.wrapper.step(closure)


averaged = Averaged(MixedOptimizer(optimizer, model))
for x, y in loader:
    averaged.wrapper.zero_grad()
    loss = criterion(model(x), y)
    averaged.wrapper.backward(loss)
    averaged.wrapper.clip(0.05)
    averaged.step()
"""
    check_trained(WRAPPER.replace("{step}", STEPS["handed on"]) + outer)


def test_two_methods_that_read_gradients_cannot_both_unscale_them() -> None:
    largest = """
    def largest(self):
        return max(p.grad.norm() for p in amp.master_params(self.inner))
"""
    program = WRAPPER.replace("{step}", "self.inner.step()") + largest
    check_manual("import torch\nfrom apex import amp\n" + program, "AMP307")


def test_what_a_base_class_does_for_objects_that_do_not_scale_is_no_reader() -> None:
    base = """
class Plain:
    def backward(self, loss):
        loss.backward()

    def clip(self, max_norm):
        return torch.nn.utils.clip_grad_norm_(self.inner.parameters(), max_norm)


"""
    wrapper = WRAPPER.replace("MixedOptimizer:", "MixedOptimizer(Plain):").replace("{step}", "self.inner.step()")
    after = check_trained(base + wrapper + LOOP)
    assert after.count("unscale_") == 1
    assert base.strip() in after


def test_a_method_that_multiplies_gradients_may_do_so_before_or_after_they_are_unscaled() -> None:
    divide = """
    def divide(self, parts):
        for group in self.inner.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.data.div_(parts)

"""
    loop = LOOP.replace('("clip", (0.05,))', '("divide", (2.0,)), ("clip", (0.05,))')
    after = check_trained(WRAPPER.replace("{step}", "self.inner.step()") + divide + loop)
    assert after.count("unscale_") == 1


def test_the_patches_of_torch_need_not_be_taken_back() -> None:
    finish = """
    def finish(self, model):
        if self.exported:
            model.float()
        else:
            amp._amp_state.handle._deactivate()
        self.done = True
"""
    result = rewrite(RUN + WRAPPER.replace("{step}", "self.inner.step()") + finish)
    assert result.after is not None
    assert not [f for f in result.findings if f.status == "manual"]
    assert result.after.endswith("        if self.exported:\n            model.float()\n        self.done = True\n")


def test_an_optimizer_with_a_loss_scaler_of_its_own_is_no_business_of_the_unit() -> None:
    other = """

class HandMade:
    def __init__(self, inner, scale):
        self.inner = inner
        self.scale = scale

    def scale_loss(self, loss):
        return loss * self.scale

    def step(self):
        for group in self.inner.param_groups:
            for p in group["params"]:
                p.grad.div_(self.scale)
        self.inner.step()


def prepare(model, optimizer):
    return model.half(), HandMade(optimizer, 128.0)
"""
    used = (
        "\nnet = make()\nmixed = MixedOptimizer(optimizer_of(net), net)\nmixed.backward(net(x).sum())\nmixed.step()\n"
    )
    result = rewrite(
        "import torch\nfrom apex import amp\n" + WRAPPER.replace("{step}", "self.inner.step()") + other + used
    )
    assert result.after is not None
    assert other in result.after


FUNCTIONS = """
def prepare(model, optimizer):
    return amp.initialize(model, optimizer, opt_level="O1")


def backward(loss, optimizer):
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()


def clip(optimizer, max_norm):
    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), max_norm)


def step(optimizer):
    {step}
"""


def test_a_function_given_the_optimizer_unscales_what_it_reads() -> None:
    after = rewrite(RUN + FUNCTIONS.replace("{step}", "optimizer.step()")).after
    assert after is not None
    assert "def clip(optimizer, scaler, max_norm):\n    scaler.unscale_(optimizer)\n" in after
    space: dict[str, Any] = {}
    exec(compile(after, "train.py", "exec"), space)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    space["backward"](model(torch.ones(1, 2)).sum(), optimizer, scaler)
    before = model.weight.detach().clone()
    space["clip"](optimizer, scaler, 100.0)
    torch.testing.assert_close(model.weight.grad, torch.ones(1, 2))
    space["step"](optimizer, scaler)
    torch.testing.assert_close(model.weight.detach(), before - 1.0)


def test_a_reader_that_is_handed_on_is_left_to_whoever_calls_it() -> None:
    source = FUNCTIONS.replace("{step}", "for hook in HOOKS:\n        hook(optimizer, 0.05)\n    optimizer.step()")
    result = rewrite("import torch\nfrom apex import amp\n" + source + "\n\nHOOKS = [clip]\n")
    after = result.after or result.before
    assert after.count("unscale_") <= 1


@pytest.mark.parametrize(
    "step", ["(lambda: optimizer.step())()", "return optimizer.step() if ready else None", "ready or optimizer.step()"]
)
def test_a_step_in_an_expression_that_may_leave_it_out_is_refused(step: str) -> None:
    source = FUNCTIONS.replace("def step(optimizer)", "def step(optimizer, ready)").replace("{step}", step)
    check_manual("import torch\nfrom apex import amp\n" + source, "AMP216")


REST = "self.scaler.step(self.inner{})\n        self.scaler.update()\n"


def test_a_wrapper_that_hands_everything_on_steps_through_the_scaler() -> None:
    program = WRAPPER.replace("closure=None", "*args, **kwargs").replace("{step}", "self.inner.step(*args, **kwargs)")
    after = check_trained(program + LOOP)
    assert GUARD.replace("closure is not None", "args") + "        " + REST.format(", *args, **kwargs") in after
    namespace: dict[str, Any] = {"torch": torch}
    exec(after.partition("wrapper = ")[0].partition("for x, y")[0].replace('"cuda"', '"cpu"'), namespace)
    model = torch.nn.Linear(1, 1)
    wrapper = namespace["MixedOptimizer"](torch.optim.SGD(model.parameters(), 0.1), model)
    for args, kwargs in (((lambda: 1.0,), {}), ((), {"closure": lambda: 1.0})):
        with pytest.raises(RuntimeError, match=r"[Cc]losure"):
            wrapper.step(*args, **kwargs)


@pytest.mark.parametrize("call", [*CALLERS.values(), "wrapper.step(None, closure)"])
def test_a_caller_in_sight_that_gives_what_is_handed_on_is_refused(call: str) -> None:
    program = WRAPPER.replace("closure=None", "*args, **kwargs").replace("{step}", "self.inner.step(*args, **kwargs)")
    caller = f"\n\ndef train(optimizer, model, closure, *given):\n    wrapper = MixedOptimizer(optimizer, model)\n    {call}\n"
    if "*given" in call:
        caller += "\n\ntrain(opt, net, None, lambda: 1.0)\n"
    check_manual("import torch\nfrom apex import amp\n" + program + caller, "AMP212")


# The program makes its optimizer of another one before Apex sees it, and its step reads gradients: LARS.
OWN_STEP = """
class Trusting{base}:
    def __init__(self, inner):
        self.inner = inner
{groups}
    def zero_grad(self):
        self.inner.zero_grad()

    def step(self, *args, **kwargs):
        seen.append(grad_norm(model))
        for p in model.parameters():
            p.grad = p.grad * (0.5 * p.norm() / (p.grad.norm() + 1e-8))
        return self.inner.step(*args, **kwargs)


optimizer = Trusting(optimizer)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
clip_grad_norm_(model.parameters(), 1.0)
"""
GROUPS = {
    "a property": "\n    @property\n    def param_groups(self):\n        return self.inner.param_groups\n",
    "an attribute": "        self.param_groups = inner.param_groups\n",
    "whatever is asked for": "\n    def __getattr__(self, name):\n        return getattr(self.inner, name)\n",
}


@pytest.mark.parametrize("groups", GROUPS.values(), ids=list(GROUPS))
def test_an_optimizer_that_steps_another_one_is_what_the_scaler_steps(groups: str) -> None:
    program = OWN_STEP.format(base="", groups=groups)
    after = check_trained(program)
    assert after.count("scaler.step(optimizer)") == after.count("scaler") - 3 == 1
    assert program.partition("optimizer = Trusting")[0].strip() in after


# One that steps several others; what Apex is given, and what is scaled for, are these.
JOINED = """
class Joined(torch.optim.Optimizer):
    def __init__(self, optimizers):
        self.optimizers = optimizers
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


class Task:
    def __init__(self, model, apart):
        self.model, self.apart = model, apart
        if self.apart:
            first = torch.optim.SGD(self.model[0].parameters(), lr=0.1)
            second = torch.optim.SGD(self.model[2].parameters(), lr=0.01)
            self.optim = Joined([first, second])
        else:
            self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)
        if self.apart:
            self.model, [first, second] = amp.initialize(self.model, self.optim.optimizers, opt_level="O1")
            self.optim = Joined([first, second])
        else:
            self.model, self.optim = amp.initialize(self.model, self.optim, opt_level="O1")

    def train(self):
        for x, y in loader:
            loss = criterion(self.model(x), y)
            if self.apart:
                with amp.scale_loss(loss, self.optim.optimizers) as scaled_loss:
                    scaled_loss.backward()
            else:
                with amp.scale_loss(loss, self.optim) as scaled_loss:
                    scaled_loss.backward()
            seen.append(torch.nn.utils.clip_grad_norm_(amp.master_params(self.optim), 0.05).item())
            self.optim.step()
            self.model.zero_grad()


Task(model, {apart}).train()
"""


@pytest.mark.parametrize("apart", [True, False])
def test_what_is_scaled_for_the_ones_it_steps_is_its_own(apart: bool) -> None:
    after = check_trained(JOINED.replace("{apart}", str(apart)))
    for line in ("self.scaler.unscale_(self.optim)", "self.scaler.step(self.optim)", "            optimizer.step()"):
        assert after.count(f"{line}\n") == 1
    assert "            [first, second] = self.optim.optimizers\n" in after
    assert "scaler" not in after.partition("class Task")[0]
