"""A switch that asks a checkpoint for Apex's entry: it asks for what is saved now, wherever it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

LEARNER = """
    import json
    import torch
    from apex import amp

    class Learner:
        def __init__(self, model, optimizer):
            self.model = model
            self.optimizer = optimizer
            self.use_fp16 = False

        def fp16(self):
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1", loss_scale="dynamic")
            self.use_fp16 = True

        def step(self):
            self.optimizer.zero_grad()
            loss = self.model(torch.ones(2, 3)).mean() / 1000
            if self.use_fp16:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()

        def save(self, path):
            state = {"model": self.model.state_dict()}
            if self.use_fp16:
                state["amp"] = amp.state_dict()
            torch.save(state, path)

        def load(self, path):
            checkpoint = torch.load(path, weights_only=False)
            if TEST:
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
                amp.load_state_dict(checkpoint["amp"])
            self.model.load_state_dict(checkpoint["model"])

    def made():
        model = torch.nn.Linear(3, 1)
        return Learner(model, torch.optim.SGD(model.parameters(), lr=0.1))

    if __name__ == "__main__":
        found, plain, half = [], made(), made()
        plain.save("plain.pt")
        half.fp16()
        half.step()
        half.step()
        half.save("half.pt")
        for path in ("plain.pt", "half.pt"):
            for on in (False, True):
                learner = made()
                if on:
                    learner.fp16()
                learner.load(path)
                found.append(SCALE)
        print(json.dumps(found))
    """
STATE = "[learner.scaler.is_enabled(), learner.scaler.state_dict().get('_growth_tracker')]"


@pytest.mark.parametrize(
    "test", ['"amp" in checkpoint.keys()', 'not "amp" not in checkpoint', 'checkpoint.get("amp") is not None']
)
@pytest.mark.parametrize("compat", [False, True])
def test_a_file_switches_on_what_another_method_may_have_switched_on_and_switches_nothing_off(
    test: str, compat: bool, tmp_path: Path
) -> None:
    texts = check_files({"train.py": LEARNER.replace("TEST", test)}, device="cpu", checkpoint_compat=compat)
    texts = {"train.py": texts["train.py"].replace("SCALE)", f"{STATE})")}
    assert run_files(tmp_path, texts, "train.py") == [[False, None], [True, 0], [True, 2], [True, 2]]


SCRIPT = """
    import json
    import torch
    from apex import amp

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checkpoint = torch.load("last.pt", weights_only=False)
    HAS
    if TEST:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        amp.load_state_dict(checkpoint["amp"])
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).mean() / 1000
        if TEST:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
    if TEST:
        torch.save({"amp": amp.state_dict()}, "last.pt")
    print(json.dumps([STATE]))
    """

FIRST = """
import torch
state = torch.amp.GradScaler("cpu").state_dict()
torch.save({"scaler": {**state, "_growth_tracker": 5}}, "last.pt")
print([])
"""


@pytest.mark.parametrize(
    ("has", "test"),
    [
        ("", '"amp" in checkpoint'),
        ("", 'checkpoint.get("amp") is not None'),
        ("", 'not checkpoint.get("amp") is None'),
        ('has = "amp" in checkpoint', "has"),
        ('has = not ("amp" not in checkpoint.keys())', "has"),
    ],
)
@pytest.mark.parametrize("compat", [False, True])
def test_a_switch_that_is_written_out_asks_for_what_is_saved_now(
    has: str, test: str, compat: bool, tmp_path: Path
) -> None:
    texts = check_files(
        {"train.py": SCRIPT.replace("HAS", has).replace("TEST", test)}, device="cpu", checkpoint_compat=compat
    )
    shown = "scaler.is_enabled(), scaler.state_dict().get('_growth_tracker')"
    texts = {"train.py": texts["train.py"].replace("STATE", shown), "first.py": FIRST}
    assert run_files(tmp_path, texts, "first.py") == []
    assert run_files(tmp_path, texts, "train.py") == [True, 7]
    assert run_files(tmp_path, texts, "train.py") == [True, 9]


def test_a_condition_in_the_function_that_calls_the_load_asks_for_it_too() -> None:
    source = """
        import torch
        from apex import amp

        def resume(checkpoint, model, has_amp):
            model.load_state_dict(checkpoint["model"])
            if has_amp:
                amp.load_state_dict(checkpoint["amp"])

        def main(model, optimizer, x, other):
            loaded = torch.load("last.pt")
            has_amp = "amp" in loaded
            print("amp" in other)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            resume(loaded, model, has_amp)
            loss = model(x).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            torch.save({"model": model.state_dict(), "amp": amp.state_dict()}, "last.pt")
        """
    after = check_files({"train.py": source})["train.py"]
    assert 'has_amp = "scaler" in loaded' in after
    assert 'print("amp" in other)' in after


@pytest.mark.parametrize(("compat", "review"), [(False, "review"), (True, "look")])
def test_that_an_old_file_leaves_mixed_precision_off_is_said(compat: bool, review: str) -> None:
    files = {"train.py": LEARNER.replace("TEST", '"amp" in checkpoint').replace("SCALE)", "0)")}
    results = rewrite_files(files, checkpoint_compat=compat)
    (told,) = [f for r in results.values() for f in r.findings if f.code == "AMP402"]
    assert told.review == review
    assert ("leaves it off" in told.message) is not compat
