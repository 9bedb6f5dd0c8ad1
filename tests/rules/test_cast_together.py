"""What is handed on together is cast together: operations that take one dtype alone raise on float32 beside float16."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

PROGRAM = """
    import json

    import torch
    from apex import amp

    torch.manual_seed(0)


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x)


    def embed(model, x, y):
        with torch.no_grad():
            one = model(x)
            two = model(y)
        return {given}


    def match(one, two):
        near = -torch.cdist(one[:3], two[:3], p=1).cpu()
        return (near.softmax(1) + near.softmax(0)).argmax(1)


    def train(model, optimizer, x, y):
        loss = (model(x) - y).float().pow(2).mean()
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


    if __name__ == "__main__":
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer)
        x, y = torch.randn(8, 4), torch.randn(8, 4)
        train(model, optimizer, x, y)
        one, two = embed(model, x, y)
        print(json.dumps([match(one, two).tolist() != [], str(one.dtype), str(two.dtype), SCALER_STATE != {}]))
"""


@pytest.mark.parametrize("given", ["one, two", "[one, two]"])
def test_outputs_that_are_given_back_together(given: str, tmp_path: Path) -> None:
    texts = check_files({"train.py": PROGRAM.replace("{given}", given)}, device="cpu")
    assert run_files(tmp_path, texts, "train.py") == [True, "torch.float32", "torch.float32", True]


BANK = """
    import torch
    from apex import amp
    from banks import bank


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)
            self.weight = torch.nn.Parameter(torch.ones(4, 4))

        def forward(self, x):
            return self.layer(x), x


    def train(model, optimizer, x, y):
        out, _ = model(x)
        loss = (out - y).float().pow(2).mean()
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


    def match(model, x):
        with torch.no_grad():
            out, _ = model(x)
        return {product}


    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    train(model, optimizer, torch.ones(2, 4), torch.ones(2, 4))
    print(match(model, torch.ones(2, 4)))
"""


@pytest.mark.parametrize(
    ("product", "written"),
    [
        ("torch.mm(out, bank(x))", "torch.mm(out.float(), bank(x).float())"),
        ("torch.addmm(bank(x), out, out)", "torch.addmm(bank(x).float(), out.float(), out.float())"),
        ("torch.mm(out, model.weight)", "torch.mm(out.float(), model.weight)"),
        ("torch.mm(out, torch.ones(4, 4))", "torch.mm(out.float(), torch.ones(4, 4))"),
    ],
)
def test_a_product_of_what_is_half_and_what_may_be(product: str, written: str) -> None:
    after = rewrite_files({"train.py": BANK.replace("{product}", product)})["train.py"].after
    assert after is not None
    assert written in after


DETECT = """
    import torch
    import torchvision
    from apex import amp


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.box = torch.nn.Linear(4, 4)
            self.score = torch.nn.Linear(4, 1)

        def forward(self, x):
            return self.box(x), self.score(x)


    def train(model, optimizer, x):
        boxes, scores = model(x)
        loss = boxes.float().pow(2).mean() + scores.float().mean()
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


    def detect(model, x):
        with torch.no_grad():
            boxes, scores = model(x)
        boxes = boxes * 800
        return torchvision.ops.nms(boxes, scores[:, 0], 0.5)


    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")
    train(model, optimizer, torch.ones(2, 4).cuda())
    print(detect(model, torch.ones(2, 4).cuda()))
"""


@pytest.mark.parametrize(
    ("level", "written"),
    [("O2", "nms(boxes.float(), scores[:, 0].float(), 0.5)"), ("O1", "nms(boxes, scores[:, 0], 0.5)")],
)
def test_boxes_and_scores(level: str, written: str) -> None:
    """nms takes both in one dtype: O2 gave float32, O1 gave half as it is now."""
    after = rewrite_files({"train.py": DETECT.replace("{level}", level)})["train.py"].after
    assert after is not None
    assert written in after
