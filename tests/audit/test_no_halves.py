"""An integer is never half, nor is what the loader gave, whatever a model out of sight gives: AMP535 says nothing of them."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
import cv2
import pycolmap
import torch
from apex import amp
from backends import make

def converted(x, dtype=torch.uint8):
    return x.to(dtype)

class Data(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return {"image": self.images[index], "label": self.labels[index]}

class Extractor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.backend = make("sift")
        self.detector = cv2.SIFT_create()
        self.colmap = pycolmap.Sift()
        self.found = []

    def forward(self, data):
        found = self.backend(data["image"])
        EXTRACT
        return {"found": array}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.extractor = Extractor()
        self.head = make("head")

    def forward(self, data):
        found = self.extractor(data)
        return {**found, **self.head({**data, **found})}

def main(loader):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    SETUP
    for batch in loader:
        REGION
            output = model(batch)
            loss = torch.nn.functional.cross_entropy(output["logits"], batch["label"])
        BACKWARD
        optimizer.step()
        AFTERWARDS
"""
BEFORE = {
    "SETUP": 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")',
    "REGION": "if True:",
    "BACKWARD": "with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()",
}
AFTER = {
    "SETUP": 'scaler = torch.amp.GradScaler("cuda")',
    "REGION": 'with torch.autocast("cuda", dtype=torch.float16):',
    "BACKWARD": "scaler.scale(loss).backward()",
    "optimizer.step()": "scaler.step(optimizer); scaler.update()",
    "from apex import amp\n": "",
}


def told(extract: str, afterwards: str = "pass") -> int:
    """How often AMP535 is told."""
    text = PROGRAM.replace("EXTRACT", "\n        ".join(extract.split("; ")))
    text = text.replace("AFTERWARDS", "\n        ".join(afterwards.split("; ")))
    before, after = text, text
    for old, new in BEFORE.items():
        before = before.replace(old, new)
    for old, new in AFTER.items():
        after = after.replace(old, new)
    return len([d for d in doubts(before, after) if d.code == "AMP535"])


NUMPY = "array = found.cpu().numpy()"


def test_what_is_out_of_sight_is_told() -> None:
    assert told(NUMPY) == 1
    assert told('array = found["points"].cpu().numpy()') == 1


@pytest.mark.parametrize(
    "made",
    [
        "found = found.to(torch.uint8)",
        "found = (found * 255).byte()",
        "found = found.char()",
        "found = found.type(torch.ByteTensor)",
        "found = found.to('cuda', dtype=torch.short)",
        "found = converted(found)",
        "kept = torch.zeros(4, 2, dtype=torch.uint8); kept[:] = found; found = kept",
        "kept = torch.empty_like(found, dtype=torch.uint8); kept[0] = found; found = kept",
        "self.found.append(found.to(torch.uint8)); found = torch.cat(self.found)",
        "found = self.detector(data['image'])",
        "found = self.colmap(data['image'])",
    ],
)
def test_whole_numbers_are_never_half(made: str) -> None:
    assert not told(f"{made}; {NUMPY}")


@pytest.mark.parametrize(
    "made",
    [
        "found = converted(found, torch.float16)",
        "found = converted(found, data['kind'])",
        "kept = torch.empty_like(found); kept[0] = found; found = kept",
        "self.found.append(found); found = torch.cat(self.found)",
    ],
)
def test_what_may_be_half_is_told(made: str) -> None:
    assert told(f"{made}; {NUMPY}") == 1


@pytest.mark.parametrize(
    ("extract", "afterwards"),
    [
        ("data = {**data, **found}; array = data['image'].cpu().numpy()", "pass"),
        ("array = found.byte()", "both = {**batch, **output}; print(both['image'].cpu().numpy())"),
        ("array = found.byte()", "batch.update(output); print(batch['image'].cpu().numpy())"),
        ("array = data['image'].cpu().numpy()", "print(batch['image'].cpu().numpy())"),
    ],
)
def test_what_came_with_the_batch_is_the_loaders(extract: str, afterwards: str) -> None:
    assert not told(extract, afterwards)


def test_what_the_model_added_to_the_batch_is_told() -> None:
    assert told("data = {**data, **found}; array = data['points'].cpu().numpy()") == 1
    assert told("array = found.byte()", "batch.update(output); print(batch['scores'].cpu().numpy())") == 1
    assert told("array = found.byte()", "both = {**batch, **output}; print(both['scores'].cpu().numpy())") == 1
