"""A function that asks whether the scaler is enabled is handed one also where it is called without an optimizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files
from tests.rules.programs import found

EPOCHS = """
    from apex import amp


    def epoch(data, model, optimizer):
        losses = []
        for x in data:
            loss = model(x).pow(2).mean()
            losses.append(loss.item())
            if {guard}:
                optimizer.zero_grad()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        return losses
    """
MAIN = """
    import json
    import sys

    import torch
    from apex import amp
    from epochs import epoch


    def make(use_apex):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if use_apex:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        return model, optimizer


    def evaluate(model, data):
        with torch.no_grad():
            return epoch(data, model, optimizer=None)


    def main(use_apex):
        data = [torch.ones(2, 3) for _ in range(3)]
        model, optimizer = make(use_apex)
        losses = epoch(data, model, optimizer) + evaluate(model, data)
        print(json.dumps(losses))


    if __name__ == "__main__":
        main("--apex" in sys.argv)
    """
OTHER = """
    import json

    import torch
    from epochs import epoch

    torch.manual_seed(0)
    with torch.no_grad():
        print(json.dumps(epoch([torch.ones(2, 3)], torch.nn.Linear(3, 1), None)))
    """


@pytest.mark.parametrize(
    "guard", ["optimizer is not None", "optimizer", "not optimizer is None", "model.weight.requires_grad and optimizer"]
)
def test_it_is_the_one_there_is(guard: str, tmp_path: Path) -> None:
    texts = check_files({"epochs.py": EPOCHS.format(guard=guard), "train.py": MAIN}, device="cpu")
    assert "scaler=None" not in texts["train.py"]
    assert "None, None" not in texts["train.py"]
    assert "def evaluate(model, data, scaler):" in texts["train.py"]
    losses = run_files(tmp_path, texts, "train.py")
    assert losses[0] > losses[-1]


def test_where_some_call_has_none_it_is_a_variable_that_is_asked(tmp_path: Path) -> None:
    files = {"epochs.py": EPOCHS.format(guard="optimizer is not None"), "train.py": MAIN, "other.py": OTHER}
    texts = check_files(files, device="cpu")
    assert "enabled=use_amp)" in texts["epochs.py"]
    assert "evaluate(model, data, use_amp=use_apex)" in texts["train.py"]
    assert len(run_files(tmp_path, texts, "other.py")) == 1
    told = found(rewrite_files(files, device="cpu")["epochs.py"], "AMP220")
    assert any("or None where they pass None as the optimizer" in f.message for f in told)


def test_where_nothing_is_asked_of_it_without_an_optimizer_none_will_do(tmp_path: Path) -> None:
    main = MAIN.replace("if use_apex:", "if True:")
    epochs = EPOCHS.format(guard="optimizer is not None")
    texts = check_files({"epochs.py": epochs, "train.py": main}, device="cpu")
    assert "is_enabled" not in texts["epochs.py"]
    assert "optimizer=None, scaler=None)" in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py")
