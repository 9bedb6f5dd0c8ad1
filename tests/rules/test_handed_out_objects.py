"""An object that holds the optimizer comes out of a function in a tuple, of a class by another name, or of one that a
parameter stands for: its own step is found."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite_files

WARMED = """
    import torch


    class Warmed:
        def __init__(self, params, lr=1e-3):
            self.rate = lr
            self._inner = torch.optim.Adam(params, lr=lr)

        def step(self):
            self._inner.step()
            self.rate *= 0.99

        def zero_grad(self):
            self._inner.zero_grad()


    Kind = Warmed
"""
PARTS = """
    from torch import nn
    from warmed import {known}


    def parts(model=None, optimizer=None{more}):
        if model is None:
            model = nn.Linear(4, 2)
        if optimizer is None:
            optimizer = {make}(model.parameters())
        return {back}
"""
TRAIN = """
    from apex import amp
    from torch import nn
    from parts import parts


    def train(batches, fp16):
        {taken} = parts(){item}
        if fp16:
            {model}, optimizer._inner = amp.initialize({model}, optimizer._inner, opt_level="O1")
        for x, y in batches:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss({model}(x.cuda()), y.cuda())
            if fp16:
                with amp.scale_loss(loss, optimizer._inner) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optimizer.step()


    if __name__ == "__main__":
        import sys
        import torch

        train(torch.load(sys.argv[1]), "fp16" in sys.argv)
"""
WHERE = {
    "in a tuple": ("Warmed", "", "Warmed", "model, optimizer"),
    "made in the tuple": ("Warmed", "", "Warmed", "model, Warmed(model.parameters())"),
    "by another name of the class": ("Kind", "", "Kind", "model, optimizer"),
    "by a default": ("Warmed", ", make=Warmed", "make", "model, optimizer"),
    "by another name as a default": ("Kind", ", make=Kind", "make", "model, optimizer"),
}


def program(known: str, more: str, make: str, back: str) -> dict[str, str]:
    train = TRAIN.format(taken="model, optimizer", item="", model="model")
    return {
        "warmed.py": WARMED,
        "parts.py": PARTS.format(known=known, more=more, make=make, back=back),
        "train.py": train,
    }


@pytest.mark.parametrize("where", WHERE.values(), ids=list(WHERE))
def test_its_own_step_goes_through_the_scaler(where: tuple[str, str, str, str]) -> None:
    texts = check_files(program(*where))
    assert "        self.scaler.step(self._inner)\n        self.scaler.update()\n" in texts["warmed.py"]
    assert 'optimizer.scaler = torch.amp.GradScaler("cuda", enabled=fp16)' in texts["train.py"]
    assert "optimizer.scaler.scale(loss).backward()\n        optimizer.step()\n" in texts["train.py"]


def test_a_class_that_a_call_gives_otherwise_is_not_the_default() -> None:
    files = program("Warmed", ", make=Warmed", "make", "model, optimizer")
    files["train.py"] = (
        files["train.py"]
        .replace("parts()", "parts(make=Other)")
        .replace("from parts import parts", "from elsewhere import Other\n    from parts import parts")
    )
    results = rewrite_files(files)
    assert [f.code for f in results["train.py"].findings if f.status == "manual"]
