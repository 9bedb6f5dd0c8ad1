"""Binary cross entropy, which autocast refuses: its statement leaves the region, its forwards and inputs do not."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, check_manual, check_rewrite, rewrite
from tests.rules.programs import apex, initialize, native
from tests.rules.trained import check_trained

MODEL = "model = build()\nbce = torch.nn.BCELoss()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
AUTOCAST = 'with torch.autocast("cuda", dtype=torch.float16):'
BACKWARD = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()"
SCALED = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loss = bce(model(x), y)", f"{AUTOCAST}\n    output = model(x)\nloss = bce(output.float(), y)"),
        (
            "loss = bce(torch.sigmoid(model(x)), y)",
            f"{AUTOCAST}\n    output = model(x)\nloss = bce(torch.sigmoid(output.float()), y)",
        ),
        (
            "guess = torch.sigmoid(model(x))\nloss = bce(guess, y)",
            f"{AUTOCAST}\n    guess = torch.sigmoid(model(x))\nloss = bce(guess.float(), y)",
        ),
        (
            "parts = model(x)\nloss = bce(parts[0].view(-1), y)",
            f"{AUTOCAST}\n    parts = model(x)\nloss = bce(parts[0].float().view(-1), y)",
        ),
        (
            "guess = model(x)\none = bce(guess, y)\ntwo = criterion(guess, y)\nloss = one + two",
            f"{AUTOCAST}\n    guess = model(x).float()\none = bce(guess, y)\n{AUTOCAST}\n"
            "    two = criterion(guess, y)\n    loss = one + two",
        ),
    ],
)
def test_the_loss_stands_outside_of_the_region_on_float32(before: str, after: str) -> None:
    check_rewrite(apex(f"{before}\n{BACKWARD}", model=MODEL), native(f"{after}\n{SCALED}", model=MODEL))


def test_evaluation_is_taken_apart_too() -> None:
    tail = "with torch.no_grad():\n    for x, y in loader:\n        loss = bce(model(x), y)\n"
    after = tail.replace(
        "        loss = bce(model(x), y)\n",
        f"        {AUTOCAST}\n            output = model(x)\n        loss = bce(output.float(), y)\n",
    )
    check_rewrite(apex(model=MODEL, tail=tail), native(model=MODEL, tail=after))


def test_what_a_tensor_says_of_itself_is_no_tensor() -> None:
    program = """
        from torch.nn import functional as F
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            scores = model(x)
            labels = y.gt(0)
            loss = F.binary_cross_entropy(
                torch.sigmoid(scores), labels.to(dtype=scores.dtype).view(scores.shape), reduction="sum"
            ) / len(scores)
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            seen.append(clip_grad_norm_(model.parameters(), 100))
            optimizer.step()
    """
    after = check_trained(program)
    assert "scores = model(x).float()" in after
    assert "labels.to(dtype=scores.dtype).view(scores.shape), reduction" in after
    program = program.replace("scores = model(x)", "(scores,) = [model(x)]")
    after = check_trained(program)
    assert "torch.sigmoid(scores.float()), labels.to(dtype=scores.float().dtype).view(scores.shape)" in after
    assert "/ len(scores)\n" in after


def test_a_length_needs_no_float() -> None:
    tail = "with torch.no_grad():\n    for x, y in loader:\n        score, other = model(x)\n"
    tail += "        count = len(score)\n        print(score.softmax(-1).sum().item() / count)\n"
    result = rewrite(apex(model=MODEL, prepare=initialize('opt_level="O2"'), tail=tail))
    assert result.after is not None
    assert "count = len(score)" in result.after
    assert "score.float().softmax(-1)" in result.after


# -- deeper than the region itself -----------------------------------------------------------------------------------

NETWORK = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = build()
        self.bce = torch.nn.BCELoss()

    def forward(self, x, y):
        {compute}

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
for x, y in loader:
    y = y.gt(0).float()
    {call}
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(clip_grad_norm_(amp.master_params(optimizer), 1.0))
    optimizer.step()
"""
OFF = 'with torch.autocast("cpu", enabled=False):'


@pytest.mark.parametrize(
    ("compute", "island"),
    [
        (
            "guess = torch.sigmoid(self.body(x))\n        loss = self.bce(guess, y)\n        return loss",
            f"        {OFF}\n            loss = self.bce(guess.float(), y.float())\n        return loss\n",
        ),
        (
            "return torch.nn.BCELoss()(torch.nn.Sigmoid()(self.body(x)), y)",
            f"        output = torch.nn.Sigmoid()(self.body(x))\n        {OFF}\n"
            "            return torch.nn.BCELoss()(output.float(), y.float())\n",
        ),
        (
            "guess = self.body(x)\n        small = guess.float().abs().mean()\n"
            "        return 0.1 * small + self.bce(guess.sigmoid(), 1 - y.float())",
            f"        {OFF}\n            bce_loss = self.bce(guess.float().sigmoid(), (1 - y.float()).float())\n"
            "        return 0.1 * small + bce_loss\n",
        ),
        (
            "loss = 0\n        for guess in [self.body(x), self.body(-x)]:\n"
            "            loss += F.binary_cross_entropy(guess.sigmoid(), y, reduction='sum')\n        return loss / 100",
            f"            {OFF}\n"
            "                loss += F.binary_cross_entropy(guess.float().sigmoid(), y.float(), reduction='sum')\n",
        ),
        (
            "loss = self.body(x).float().abs().mean()\n        loss += 2 * self.bce(self.body(x).sigmoid(), y)\n"
            "        return loss",
            f"        output = self.body(x).sigmoid()\n        {OFF}\n"
            "            bce_loss = self.bce(output.float(), y.float())\n        loss += 2 * bce_loss\n",
        ),
        (
            "one, two = self.body(x), self.body(-x)\n"
            "        return torch.mean(F.binary_cross_entropy(torch.sigmoid(one), y) +\n"
            "                          F.binary_cross_entropy(two.view(-1, 1).sigmoid(), 1 - y))",
            f"        {OFF}\n"
            "            bce_loss = F.binary_cross_entropy(torch.sigmoid(one.float()), y.float())\n"
            "            bce_loss_2 = F.binary_cross_entropy(two.float().view(-1, 1).sigmoid(), (1 - y).float())\n"
            "        return torch.mean(bce_loss +\n                          bce_loss_2)\n",
        ),
        (
            "loss = 0\n        for guess in [self.body(x), self.body(-x)]:\n"
            "            loss += torch.mean(self.bce(guess.sigmoid(), y) + 2 * self.bce(guess.view(-1, 1).sigmoid(), 1 - y))\n"
            "        return loss",
            f"            {OFF}\n                bce_loss = self.bce(guess.float().sigmoid(), y.float())\n"
            "                bce_loss_2 = self.bce(guess.float().view(-1, 1).sigmoid(), (1 - y).float())\n"
            "            loss += torch.mean(bce_loss + 2 * bce_loss_2)\n",
        ),
        (
            "return self.bce(self.body(x).sigmoid(), y) + self.bce(self.body(-x).sigmoid(), 1 - y)",
            "        output = self.body(x).sigmoid()\n        prediction = self.body(-x).sigmoid()\n"
            f"        {OFF}\n            bce_loss = self.bce(output.float(), y.float())\n"
            "            bce_loss_2 = self.bce(prediction.float(), (1 - y).float())\n"
            "        return bce_loss + bce_loss_2\n",
        ),
    ],
)
def test_what_a_region_runs_computes_the_loss_without_autocast(compute: str, island: str) -> None:
    program = "import torch.nn.functional as F\n" + NETWORK.format(compute=compute, call="loss = model(x, y)")
    assert island in check_trained(program)


def test_what_a_part_computes_on_float32_already_does_too_whatever_catches_the_error() -> None:
    program = """
        import torch.nn.functional as F

        class Head(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = build()

            def forward(self, x, y):
                guess = self.body(x)
                try:
                    weight = self.assign(guess, y)
                except RuntimeError:
                    weight = self.assign(guess, y, mode="cpu")
                return guess.float().pow(2).mean() + 0.1 * weight.mean()

            @torch.no_grad()
            def assign(self, guess, y, mode="gpu"):
                return F.binary_cross_entropy(guess.float().sigmoid().sqrt_(), y, reduction="none").sum(-1)

        class Net(torch.nn.Module):
            def __init__(self, head):
                super().__init__()
                self.head = head

            def forward(self, x, y):
                return {"loss": self.head(x, y)}

        model = Net(Head())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            y = y.gt(0).float()
            loss = model(x, y)["loss"]
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            seen.append(clip_grad_norm_(amp.master_params(optimizer), 1.0))
            optimizer.step()
    """
    after = check_trained(program)
    assert (
        f"        {OFF}\n            bce_loss = F.binary_cross_entropy(output.float(), y.float(), reduction='none')\n"
    ) in after.replace('"none"', "'none'")


def test_a_loss_class_in_another_file_does_too() -> None:
    train = apex("loss = criterion(model(x).sigmoid(), y)\n" + BACKWARD).replace("criterion, loader", "loader")
    train = train.replace("\nfor x", "\ncriterion = Focal()\nfor x").replace(
        "import torch\n", "import torch\nfrom losses import Focal\n"
    )
    losses = """
        import torch
        from torch.nn import functional as F


        class Focal(torch.nn.Module):
            def forward(self, guess, target):
                entropy = F.binary_cross_entropy(guess, target, reduction="none")
                return (entropy * (1 - guess) ** 2).mean()
    """
    after = check_files({"train.py": train, "losses.py": losses})
    assert "    loss = criterion(model(x).sigmoid(), y)\n" in after["train.py"]
    assert (
        '        with torch.autocast("cuda", enabled=False):\n'
        '            entropy = F.binary_cross_entropy(guess.float(), target.float(), reduction="none")\n'
    ) in after["losses.py"]


def test_deep_in_a_region_it_stands_without_autocast() -> None:
    loop = "guess = model(x)\nloss = criterion(guess, y)\nif y.any():\n    loss = loss + bce(guess, y)\n"
    loop += f"loss = loss + criterion(guess, x)\n{BACKWARD}"
    result = rewrite(apex(loop, model=MODEL))
    assert not [f for f in result.findings if f.status == "manual"]
    assert result.after is not None
    island = '            with torch.autocast("cuda", enabled=False):\n'
    island += "                bce_loss = bce(guess.float(), y.float())\n            loss = loss + bce_loss\n"
    assert island in result.after


def test_a_loss_that_may_not_be_computed_is_left_to_a_person() -> None:
    loop = "guess = model(x)\nloss = criterion(guess, y)\nif y.any():\n    loss = loss + (bce(guess, y) if len(y) else 0)\n"
    loop += f"loss = loss + criterion(guess, x)\n{BACKWARD}"
    check_manual(apex(loop, model=MODEL), "AMP505")
    compute = "guess = self.body(x)\n        return self.bce(guess.sigmoid(), y) if y.any() else guess.mean()"
    source = "import torch\nfrom apex import amp\nfrom project import build, loader, seen, clip_grad_norm_\n"
    check_manual(source + NETWORK.format(compute=compute, call="loss = model(x, y)"), "AMP533")


@pytest.mark.parametrize("given", ["F.softmax(self.body(x), 1)", "torch.sigmoid(self.body(x).float())"])
def test_what_is_float32_needs_no_cast(given: str) -> None:
    source = f"""
        import torch
        import torch.nn.functional as F
        from apex import amp

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(4, 4)

            def forward(self, x):
                return {given}

        model = Net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
        for x, y in loader:
            output = model(x)
            loss = F.binary_cross_entropy(output, y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        """
    result = rewrite(source)
    assert result.after is not None, result.findings
    assert "binary_cross_entropy(output, y)" in result.after
    assert "model(x).float()" not in result.after
    assert not [f for f in result.findings if f.code == "AMP503"]


GIVEN_AS_A_VALUE = """
    import functools
    import torch
    from torch import nn
    from apex import amp

    def train(model, batches, criterion, optimizer):
        for x, y in batches:
            output = model(x)
            loss = criterion(output, y)
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()

    def main(model, batches):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        criterion = nn.{loss}()
        model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
        {call}(batches, criterion, optimizer)
"""


@pytest.mark.parametrize("loss", ["BCELoss", "BCEWithLogitsLoss"])
def test_a_loss_that_is_handed_to_a_function_with_its_first_arguments_stays_outside_of_the_region(loss: str) -> None:
    call = "functools.partial(train, model)"
    result = rewrite(GIVEN_AS_A_VALUE.replace("{loss}", loss).replace("{call}", call))
    assert result.after is not None
    assert (
        '    scaler = torch.amp.GradScaler("cuda")\n    functools.partial(train, scaler, model)(batches' in result.after
    )
    assert ("\n        loss = criterion(output, y)\n" in result.after) == (loss == "BCELoss")


@pytest.mark.parametrize("loss", ["BCELoss", "BCEWithLogitsLoss"])
@pytest.mark.parametrize("call", ["{'train': functools.partial(train, model)}['train']"])
def test_a_loss_that_is_handed_over_out_of_sight_is_known_by_its_name(call: str, loss: str) -> None:
    result = rewrite(GIVEN_AS_A_VALUE.replace("{loss}", loss).replace("{call}", call))
    island = (
        "            with torch.autocast('cuda', enabled=False):\n                loss = criterion(output.float(), y)\n"
    )
    assert (island in (result.after or "")) == (loss == "BCELoss")
    assert "AMP533" not in [f.code for f in result.findings]
