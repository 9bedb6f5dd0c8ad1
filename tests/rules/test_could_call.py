"""Functions that nothing calls: whether the runs in which they may be called set Apex up is asked of the files that import them."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files, texts_of

STEPS = """
import torch
from apex import amp

def train_epoch(model, loader, optimizer):
    for x in loader:
        loss = model(x).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()

def predict(model, loader):
    with torch.no_grad():
        return [model(x) for x in loader]

def apart(model, loader):
    found = []
    with torch.no_grad():
        for x in loader:
            found.append(model(x) + 1)
    return found
"""
TRAIN = """
import torch
from apex import amp
from steps import IMPORTED

def main(loader):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    train_epoch(model, loader, optimizer)

if __name__ == "__main__":
    main([])
"""
PREDICT = """
import torch
from steps import IMPORTED

def main(loader):
    print(predict(torch.nn.Linear(4, 4), loader))

if __name__ == "__main__":
    main([])
"""
ALWAYS = 'with torch.autocast("cuda", dtype=torch.float16):\n                found.append(model(x) + 1)'
HANDED = ALWAYS.replace("):\n", ", enabled=use_amp):\n")
NEVER = "for x in loader:\n            found.append(model(x) + 1)"


@pytest.mark.parametrize(
    ("trains", "predicts", "written"),
    [
        ("train_epoch", "predict, apart", NEVER),  # which no program imports that sets Apex up
        ("train_epoch, apart", "predict", ALWAYS),
        ("train_epoch, apart", "predict, apart", HANDED),
        ("train_epoch", "predict", HANDED),  # any of them might
        ("train_epoch", "predict, apart as more", NEVER),
        ("train_epoch", "", ALWAYS),
    ],
)
def test_a_function_that_nothing_calls_is_what_its_importers_could_run(
    trains: str, predicts: str, written: str
) -> None:
    files = {"steps.py": STEPS, "train.py": TRAIN.replace("IMPORTED", trains)}
    if predicts:
        files["predict.py"] = PREDICT.replace("IMPORTED", predicts)
    results = rewrite_files(files)
    texts = texts_of(results)
    assert written in texts["steps.py"]
    assert "return [model(x) for x in loader]" in texts["steps.py"] or not predicts
    told = [f.message for r in results.values() for f in r.findings if "nothing in sight calls it" in f.message]
    assert bool(told) == (written == HANDED)


def test_what_a_file_that_is_no_script_imports_may_run_anywhere() -> None:
    library = "from steps import apart\n\ndef again(model):\n    return model\n"
    files = {"steps.py": STEPS, "train.py": TRAIN.replace("IMPORTED", "train_epoch"), "library.py": library}
    assert ALWAYS in texts_of(rewrite_files(files))["steps.py"]
