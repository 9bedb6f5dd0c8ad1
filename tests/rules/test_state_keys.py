"""The key of the scaler's state where it is put by way of a variable, or by a function that is handed it: saved is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, run_files

TRAIN = """
    import json
    import sys
    import torch
    from apex import amp
    {imports}

    def main(mode):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=None)
        if mode == "resume":
            checkpoint = torch.load("last.pt", weights_only=False)
            amp.load_state_dict(checkpoint["amp"])
        for _ in range(3):
            x, y = torch.randn(4, 3), torch.randn(4, 1)
            loss = (model(x) - y).pow(2).mean() / 1000
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        {save}
        print(json.dumps(SCALER_STATE))

    if __name__ == "__main__":
        main(sys.argv[1] if len(sys.argv) > 1 else "train")
        if len(sys.argv) == 1:
            main("resume")
    """
VARIABLE = """if mode != "none":
            saved = amp.state_dict()
        else:
            saved = None
        torch.save({"model": model.state_dict(), "amp": saved}, "last.pt")"""
SAVING = """
    import torch

    def save(path, model, state=None, **more):
        checkpoint = {"model": model.state_dict(), **more}
        if state:
            checkpoint["amp"] = state
        torch.save(checkpoint, path)

    def save_best(model, **more):
        save("last.pt", model, **more)
    """


def test_a_variable_that_only_holds_the_state_is_put_under_the_scalers_key(tmp_path: Path) -> None:
    texts = check_files({"train.py": TRAIN.format(imports="", save=VARIABLE)}, device="cpu")
    assert '"scaler": saved' in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py")["_growth_tracker"] == 6  # three more after three that were loaded


def test_a_key_that_the_state_of_another_scaler_shares_stays(tmp_path: Path) -> None:
    save = VARIABLE.replace("saved = None", 'saved = {"scale": 2.0}')
    texts = check_files({"train.py": TRAIN.format(imports="", save=save)}, device="cpu")
    text = texts["train.py"]
    assert '"amp": saved' in text
    assert 'scaler_state = checkpoint.get("amp")' in text
    assert 'if scaler_state and "scale" in scaler_state:' in text
    assert run_files(tmp_path, texts, "train.py")["_growth_tracker"] == 6


def test_a_key_that_a_helper_puts_it_under_for_all_its_callers_stays(tmp_path: Path) -> None:
    files = {"saving.py": SAVING, "train.py": ""}
    for call in ('save("last.pt", model, amp.state_dict())', "save_best(model, state=amp.state_dict())"):
        files["train.py"] = TRAIN.format(imports="from saving import save, save_best", save=call)
        texts = check_files(files, device="cpu")
        assert texts["saving.py"].count('"amp"') == 1
        assert run_files(tmp_path, texts, "train.py")["_growth_tracker"] == 6


READ = """
    import torch

    def restore(path):
        state, epoch = None, 0
        checkpoint = torch.load(path, weights_only=False)
        if checkpoint is not None:
            epoch = len(checkpoint)
            state = READ
        return epoch, state
    """


@pytest.mark.parametrize("read", ['checkpoint["amp"]', 'checkpoint.get("amp")', 'checkpoint.pop("amp", None)'])
@pytest.mark.parametrize("taken", ["_, state = restore", "state = restore", "self.state = restore"])
def test_a_key_that_another_function_reads_the_state_from_stays(read: str, taken: str, tmp_path: Path) -> None:
    train = TRAIN.format(imports="from saving import restore", save='torch.save({"amp": amp.state_dict()}, "last.pt")')
    loading = (
        'checkpoint = torch.load("last.pt", weights_only=False)\n            amp.load_state_dict(checkpoint["amp"])'
    )
    assert loading in train
    state = taken.partition(" =")[0].rpartition(" ")[2]
    own = "            class Run: pass\n            self = Run()\n" if "self" in taken else ""
    loaded = f'{own}            {taken}("last.pt")\n            if {state} is not None:\n                amp.load_state_dict({state})'
    saving = READ.replace("READ", read)
    if "_," not in taken:
        saving = saving.replace("return epoch, state", "return state")
    files = {"saving.py": saving, "train.py": train.replace(loading, loaded.lstrip())}
    texts = check_files(files, device="cpu")
    assert '"amp": scaler.state_dict()' in texts["train.py"]
    assert read in texts["saving.py"]
    assert run_files(tmp_path, texts, "train.py")["_growth_tracker"] == 6


def test_an_option_of_that_name_is_no_such_reader(tmp_path: Path) -> None:
    files = {
        "saving.py": 'def wants(options):\n    return options["amp"]\n',
        "train.py": TRAIN.format(imports="from saving import wants", save=VARIABLE + '\n        wants({"amp": 1})'),
    }
    texts = check_files(files, device="cpu")
    assert '"scaler": saved' in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py")["_growth_tracker"] == 6
