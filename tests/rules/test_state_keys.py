"""The key of the scaler's state where it is put by way of a variable, or by a function that is handed it: saved is loaded."""

from __future__ import annotations

from pathlib import Path

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
