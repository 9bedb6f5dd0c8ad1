"""Parts of a network that a program makes half in place."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.rules.helpers import rewrite_files, texts_of

NETWORK = """
    import torch

    def halve(part):
        if isinstance(part, torch.nn.BatchNorm1d):
            part.half()

    class Net(torch.nn.Module):
        def __init__(self, fp16):
            super().__init__()
            self.fp16 = fp16
            self.body = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))

        def forward(self, x):
            return self.body(x)

        def train(self, mode=True):
            super().train(mode)
            {body}
            return self

        def unused(self):
            self.body.half()
    """
TRAIN = """
    import torch
    from apex import amp
    from network import Net{more}

    def main(loader, fp16):
        model = Net(fp16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        model.train()
        for x in loader:
            loss = model(x).sum()
            if fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    if __name__ == "__main__":
        main([torch.randn(4, 2)], True)
    """


def told(body: str) -> list[tuple[str, str | None]]:
    files = {"network.py": NETWORK.replace("{body}", body), "train.py": TRAIN.replace("{more}", "")}
    results = rewrite_files(files)
    found = [f for r in results.values() for f in r.findings if f.code == "AMP118"]
    assert all(f in results["network.py"].findings for f in found)
    assert all("unscale FP16 gradients" in f.message for f in found)
    assert (results["train.py"].after is None) == any(f.status == "manual" for f in found)
    return [(f.status, f.review) for f in found]


HALVES = {
    "each of the parts": "[0]\n            for part in self.body.modules():\n                part.eval().half()",
    "with their names": "[0]\n            for name, part in self.body.named_modules():\n                part.half()",
    "applied": "self.body.apply(halve)",
    "by a function in the method": "[0]\n            def own(part):\n                if part is not self:\n"
    "                    part.eval().half()\n            self.body.apply(own)",
    "named": "self.body[1].half(); self.body.half()",
    "to": "self.body.to(torch.float16)",
}


@pytest.mark.parametrize("body", HALVES.values(), ids=HALVES)
def test_parts_made_half_in_every_run_are_refused(body: str) -> None:
    assert told(body)[0][0] == "manual"


def under(test: str, body: str) -> str:
    lines = body.replace("; ", "\n").replace("[0]\n", "").split("\n")
    return f"[0]\n            if {test}:\n" + "\n".join(
        f"                {line.removeprefix(' ' * 12)}" for line in lines
    )


@pytest.mark.parametrize("body", HALVES.values(), ids=HALVES)
def test_parts_made_half_with_mixed_precision_alone_stay_float32(body: str) -> None:
    """And the network trains: each step is taken."""
    files = {"network.py": NETWORK.replace("{body}", under("self.fp16", body)), "train.py": TRAIN.replace("{more}", "")}
    results = rewrite_files(files, device="cpu")
    assert {f.status for f in results["network.py"].findings if f.code == "AMP118"} == {"done"}
    texts = texts_of(results)
    assert ".eval()" in texts["network.py"] or "eval" not in body
    network = ModuleType("network")
    exec(compile(texts["network.py"], "network.py", "exec"), network.__dict__)
    names: dict[str, Any] = {}
    sys.modules["network"] = network
    try:
        exec(compile(texts["train.py"], "train.py", "exec"), names)
    finally:
        del sys.modules["network"]
    names["main"]([torch.randn(4, 2)], True)


@pytest.mark.parametrize("body", HALVES.values(), ids=HALVES)
def test_parts_made_half_where_something_else_asks_for_it_are_told(body: str) -> None:
    assert set(told(under("mode == 'low'", body))) == {("note", "review")}


def test_parts_that_may_be_frozen_are_told() -> None:
    assert set(told("self.body[1].half(); self.body[1].requires_grad_(False)")) == {("note", "review")}


@pytest.mark.parametrize(
    "body",
    [
        "[0]\n            for part in self.modules():\n                part.eval()",
        "self.scale = self.body[0].weight.half()",
        "[0]\n            if not self.fp16:\n                self.body.float()",
        "self.settings.apply(print)",
        "[0]\n            for part in self.others.modules():\n                self.other = part.half()",
        "[0]\n            for weight in self.buffers():\n                weight.half()",  # a copy that nobody has
        "[0]\n            for weight in list(self.buffers()):\n                weight.half()",
        "[0]\n            for weight in self.weights:\n                weight.half()",
        "[0]\n            x = torch.ones(1)\n            for part in self.modules():\n                x.half()",
        "[0]\n            x = torch.ones(1)\n            self.body.apply(lambda part: print(part))\n            x.half()",
        "[0]\n            def own(part):\n                x = torch.ones(1)\n                x.half()\n"
        "            self.body.apply(own)",
        "[0]\n            def own():\n                x = torch.ones(1)\n                x.half()\n            own()",
        "mode.copies.half()",  # of something else
    ],
)
def test_what_makes_no_part_half_is_not(body: str) -> None:
    assert not told(body)


def test_a_function_that_the_model_applies_in_the_script_is_told() -> None:
    script = TRAIN.replace("{more}", ", halve").replace("model.train()", "model.train()\n        model.apply(halve)")
    results = rewrite_files({"network.py": NETWORK.replace("{body}", "pass"), "train.py": script})
    assert [f.status for f in results["network.py"].findings if f.code == "AMP118"] == ["manual"]


@pytest.mark.parametrize(
    "half",
    [
        "for part in model.modules():\n                if isinstance(part, torch.nn.BatchNorm1d):\n                    part.half()",
        "model.body[1].half()",
        "def low(part):\n                name = part.__class__.__name__\n                if name.find('BatchNorm') != -1:\n"
        "                    part.half()\n            model.apply(low)",
    ],
)
def test_parts_of_the_model_that_the_script_makes_half_stay_float32(half: str) -> None:
    script = TRAIN.replace("{more}", "").replace(
        "model.train()", f"if fp16:\n            {half}\n        model.train()"
    )
    result = rewrite_files({"network.py": NETWORK.replace("{body}", "pass"), "train.py": script})["train.py"]
    assert [f.status for f in result.findings if f.code == "AMP118"] == ["done"]
    assert result.after is not None
    assert not any(word in result.after for word in ("half", "isinstance", "low", "if fp16"))


@pytest.mark.parametrize(("base", "said"), [("torch.nn.Module", True), ("object", False)])
def test_only_a_network_has_parts(base: str, said: bool) -> None:
    holder = f"""

    class Holder({base}):
        def forward(self):
            self.held.half()
    """
    results = rewrite_files(
        {"network.py": NETWORK.replace("{body}", "pass") + holder, "train.py": TRAIN.replace("{more}", ", Holder")}
    )
    assert bool([f for f in results["network.py"].findings if f.code == "AMP118"]) is said


def test_a_tensor_outside_of_functions_is_no_part() -> None:
    script = TRAIN.replace("{more}", "").replace("    def main", "    x = torch.ones(1)\n    x.half()\n\n    def main")
    results = rewrite_files({"network.py": NETWORK.replace("{body}", "pass"), "train.py": script})
    assert results["train.py"].after is not None
    assert not [f for f in results["train.py"].findings if f.code == "AMP118"]


def test_it_is_true_that_the_scaler_refuses_their_gradients() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2).half())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model[1](model[0](torch.randn(4, 2))).float().sum()
    scaler.scale(loss).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.step(optimizer)


IMAGES = """
    import torch
    from apex import amp
    from network import Net

    net = Net().cuda()
    image = torch.randn(2, 3, 8, 8, device="cuda", requires_grad=True)
    optimizer = torch.optim.Adam({given}, lr=0.1)
    net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval().half()
    for _ in range(9):
        optimizer.zero_grad()
        loss = net(image).sum()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    image = image.detach().clamp(0, 1)
    """


@pytest.mark.parametrize(
    ("given", "trained"),
    [("[image]", False), ("net.parameters()", True), ("[image, net.scale]", True), ("[*net.parameters()]", True)],
)
def test_what_no_optimizer_has_is_not_said_to_be_trained(given: str, trained: bool) -> None:
    result = rewrite_files({"train.py": IMAGES.replace("{given}", given)})["train.py"]
    (told,) = [f for f in result.findings if f.code == "AMP118"]
    assert ("unscale FP16 gradients" in told.message) is trained
    assert ("may refuse float32 input" in told.message) is not trained
    assert told.status == ("done" if trained else "note")
