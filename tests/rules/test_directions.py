"""Adversarial training reads the direction of gradients between two backwards, where they are still scaled."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import check_refused, found
from tests.rules.trained import PRELUDE, check_trained

ADVERSARY = """
class Adversary:
    def __init__(self, model, epsilon=0.5):
        self.model = model
        self.epsilon = epsilon
        self.backup = {{}}
        self.grad_backup = {{}}

    def attack(self):
        for name, q in self.model.named_parameters():
            if q.requires_grad and "0.weight" in name:
                self.backup[name] = q.data.clone()
                {attack}

    def restore(self):
        for name, q in self.model.named_parameters():
            if name in self.backup:
                q.data = self.backup[name]
        self.backup = {{}}

    def backup_grad(self):
        for name, q in self.model.named_parameters():
            if q.requires_grad and q.grad is not None:
                self.grad_backup[name] = {kept}

    def restore_grad(self):
        for name, q in self.model.named_parameters():
            if q.requires_grad:
                q.grad = self.grad_backup[name]


adversary = Adversary(model)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    {steps}
    adversary.restore()
    clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()
"""
NORM = """norm = torch.norm(q.grad)
                if norm != 0 and not torch.isnan(norm):
                    r_at = self.epsilon * q.grad / norm
                    q.data.add_(r_at)"""
ONCE = """adversary.attack()
    loss_adv = criterion(model(x), y)
    loss_adv.backward()"""
SEVERAL = """adversary.backup_grad()
    for t in range(3):
        adversary.attack()
        if t != 2:
            optimizer.zero_grad()
        else:
            adversary.restore_grad()
        loss_adv = criterion(model(x), y)
        loss_adv.backward()"""


def program(attack: str = NORM, kept: str = "q.grad.clone()", steps: str = ONCE) -> str:
    return ADVERSARY.format(attack=attack, kept=kept, steps=steps)


@pytest.mark.parametrize(
    "attack",
    [
        NORM,
        "q.data.add_(self.epsilon * q.grad.sign())",
        "q.data = q.data + self.epsilon * torch.sign(q.grad)",
        "norm = q.grad.norm()\n                if norm > 0:\n                    q.data.add_(q.grad.div(norm).mul(0.5))",
    ],
)
def test_the_direction_of_scaled_gradients_is_the_same(attack: str) -> None:
    after = check_trained(program(attack))
    assert "scaler.scale(loss_adv).backward()" in after
    assert after.index("unscale_(") > after.index("adversary.restore()")


def test_gradients_that_are_kept_and_put_back_may_be_scaled() -> None:
    after = check_trained(program(steps=SEVERAL))
    assert after.count(".backward()") == after.count("scaler.scale(") == 2


def test_the_reader_of_a_direction_is_named() -> None:
    (finding,) = found(rewrite(PRELUDE + program()), "AMP308")
    assert finding.review == "look"


@pytest.mark.parametrize(
    "attack",
    [
        "q.data.add_(self.epsilon * q.grad)",
        "norm = torch.norm(q.grad)\n                q.data.add_(q.grad / (norm + 1e-3))",
        "norm = torch.norm(q.grad)\n                if norm > 1e-3:\n                    q.data.add_(q.grad / norm)",
        "norm = torch.norm(q.grad)\n                seen.append(norm)\n                q.data.add_(q.grad / norm)",
        "q.data.add_(q.grad / q.grad.norm() ** 2)",
        "q.data.add_(q.grad.clamp(-1, 1))",
        "q.grad = q.grad.sign()",
        "q.grad += q.grad.sign()",
        "q.grad.data = q.grad.sign()",
        "step = q.grad\n                step *= q.grad.norm()\n                q.data.add_(step / q.grad.norm())",
        "step = q.grad\n                step[0] = 1.0\n                q.data.add_(step / q.grad.norm())",
        "step = q.grad\n                (lambda: seen.append(step))()",
        "norm = torch.norm(q.grad)\n                norm = norm + 1\n                q.data.add_(q.grad / norm)",
        "q.data.add_(q.grad / max(torch.norm(q.grad), 1e-6))",
        "step = q.grad.detach_()\n                q.data.add_(step)",
        "last = 0.0\n                for _ in range(2):\n                    q.data.add_(last)\n                    last = q.grad",
        "for norm in (1.0, 2.0):\n                    q.data.add_(q.grad / norm)\n                norm = q.grad.norm()",
    ],
)
def test_what_depends_on_the_size_of_gradients_is_refused(attack: str) -> None:
    check_refused(PRELUDE + program(attack), "AMP307")


FINITE = """
def finite(model):
    for q in model.parameters():
        if not torch.isfinite(q.grad).all():
            return False
    return True


class Check:
    ok = True

    def look(self):
        self.ok = all(torch.isfinite(q.grad).all() for q in model.parameters())

    def mark(self):
        self.ok = True
        for q in model.parameters():
            if torch.isnan(q.grad.norm()):
                self.ok = False


check = Check()
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    {look}
    if {ok}:
        optimizer.step()
    seen.append(loss.item())
"""


@pytest.mark.parametrize(
    ("look", "ok"), [("", "finite(model)"), ("check.look()", "check.ok"), ("check.mark()", "check.ok")]
)
def test_a_check_that_decides_on_the_step_sees_unscaled_gradients(look: str, ok: str) -> None:
    after = check_trained(FINITE.format(look=look, ok=ok))
    assert after.index("scaler.unscale_(optimizer)") < after.index(f"{look or 'if'}", after.index("backward()"))


def test_gradients_that_are_kept_and_used_otherwise_are_refused() -> None:
    used = SEVERAL.replace("adversary.restore_grad()", "print(adversary.grad_backup)")
    check_refused(PRELUDE + program(steps=used), "AMP307")


OTHER_NAMES = """
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
table = model[0].weight
layers = [layer for layer in model if hasattr(layer, "weight")]
for x, y in loader:
    optimizer.zero_grad()
    x = x.clone().requires_grad_()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append({read})
    clip_grad_norm_(model.parameters(), 100.0)
    optimizer.step()
"""


@pytest.mark.parametrize(
    "read",
    ["table.grad.norm()", "sum(q.grad.norm() for q in [layer.weight for layer in layers])", "layers[0].bias.grad[0]"],
)
def test_gradients_are_a_parameters_whatever_it_is_called(read: str) -> None:
    check_trained(OTHER_NAMES.format(read=read))


def test_the_gradient_of_an_input_stays_as_apex_left_it() -> None:
    after = check_trained(OTHER_NAMES.format(read="x.grad.sign().sum()"))
    assert after.index("seen.append(x.grad") < after.index("unscale_(")


@pytest.mark.parametrize(
    ("made", "input_"), [("x = torch.tensor(x.tolist(), requires_grad=True)", True), ("x = make(x)", False)]
)
def test_what_was_made_an_input_is_one_under_another_name(made: str, input_: bool) -> None:
    program = f"""
def make(x):
    return x.clone().requires_grad_()


model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    {made}
    first = x
    for _ in range(2):
        x = x * 0.5
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(first.grad.sign().sum())
    clip_grad_norm_(model.parameters(), 100.0)
    optimizer.step()
"""
    after = check_trained(program)
    assert (after.index("seen.append(first.grad") < after.index("unscale_(")) is input_


def test_a_function_within_reads_for_itself() -> None:
    program = """
def run():
    def attack(net):
        for q in net.parameters():
            print(q.grad.norm())

    attack(model)


model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
run()
"""
    assert not found(rewrite(PRELUDE + program), "AMP308")
