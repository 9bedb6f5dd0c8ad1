"""A static method is given no object: its first parameter is whatever callers pass, and a switch that only a method sets is
off on an object that was just made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, run_files

LEARNER = """
    import json
    import warnings

    import torch
    import torch.nn as nn
    from apex import amp

    warnings.simplefilter("ignore")  # no GPU


    class Learner:
        def __init__(self, data):
            self.data = data
            self.model = self.make_model()

        @staticmethod
        def make_model():
            torch.manual_seed(0)
            return nn.Linear(3, 2)

        def fit(self, lr, mixed=False):
            optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
            if mixed:
                self.model, optimizer = amp.initialize(self.model, optimizer, opt_level="O1")
            model = nn.DataParallel(self.model) if torch.cuda.device_count() > 1 else self.model
            return CALLED.train_epoch(model, self.data, nn.CrossEntropyLoss(), optimizer, mixed=mixed)

        @staticmethod
        def train_epoch(model, data, criterion, optimizer, mixed=False):
            model.train()
            for inputs, target in data:
                loss = criterion(model(inputs), target)
                if mixed:
                    with amp.scale_loss(loss, optimizer) as scaled:
                        scaled.backward()
                else:
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            return loss.item()

        def _predict(self, frames):
            return self.model(frames).softmax(dim=1).tolist()

        def predict(self, frames):
            self.model.eval()
            with torch.no_grad():
                return self._predict(frames)


    def main():
        data = [(torch.ones(2, 3), torch.tensor([0, 1])) for _ in range(4)]
        learner = Learner(data)
        told = {"before": learner.predict(data[0][0]), "loss": learner.fit(0.1)}
        told["after"] = learner.predict(data[0][0])
        told["mixed"] = learner.fit(0.1, mixed=True)
        print(json.dumps(told))


    if __name__ == "__main__":
        main()
    """


@pytest.mark.parametrize("called", ["self", "Learner"])
def test_a_static_method_is_handed_the_scaler(called: str, tmp_path: Path) -> None:
    texts = check_files({"learner.py": LEARNER.replace("CALLED", called)})
    after = texts["learner.py"]
    assert "model.scaler" not in after
    assert "def train_epoch(model, data, criterion, optimizer, scaler, mixed=False):" in after
    assert f"{called}.train_epoch(model, self.data, nn.CrossEntropyLoss(), optimizer, scaler, mixed=mixed)" in after
    told = run_files(tmp_path, texts, "learner.py")
    assert told["loss"] > told["mixed"] > 0
    assert told["before"] != told["after"]


def test_a_switch_is_off_until_the_method_that_sets_it_ran() -> None:
    after = check_files({"learner.py": LEARNER.replace("CALLED", "self")})["learner.py"]
    made, fit = after.index("self.use_amp = False"), after.index("self.use_amp = mixed")
    assert after.index("self.model = self.make_model()") < made < after.index("def make_model") < fit
    assert 'with torch.autocast("cuda", dtype=torch.float16, enabled=self.use_amp):' in after


@pytest.mark.parametrize("early", [False, True])
def test_no_switch_stands_where_the_constructor_says_itself(early: bool) -> None:
    """Unless a run predicts before Apex is set up: that was in float32, whatever the constructor says."""
    source = LEARNER.replace("CALLED", "self").replace(
        "self.data = data", "self.data = data\n            self.mixed = mixed"
    )
    source = source.replace("def __init__(self, data)", "def __init__(self, data, mixed=False)")
    source = source.replace("lr, mixed=False", "lr").replace(
        "if mixed:\n                self.model", "if self.mixed:\n                self.model"
    )
    source = source.replace("mixed=mixed)", "mixed=self.mixed)").replace(
        "learner.fit(0.1, mixed=True)", "learner.fit(0.1)"
    )
    source = source.replace("= Learner(data)", "= Learner(data, mixed=True)")
    if not early:
        source = source.replace('{"before": learner.predict(data[0][0]), ', "{")
    after = check_files({"learner.py": source})["learner.py"]
    assert ("self.use_amp = self.mixed" in after) == early
    assert f"enabled={'self.use_amp' if early else 'self.mixed'})" in after


def test_callers_hand_a_static_method_their_own_scaler() -> None:
    source = """
        import torch
        from apex import amp


        class Trainer:
            def __init__(self, model, optimizer):
                self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

            def fit(self, loader):
                for x in loader:
                    Trainer.backward(self.model(x).sum(), self.optimizer)
                    self.optimizer.step()

            @staticmethod
            def backward(loss, optimizer):
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
        """
    after = check_files({"train.py": source})["train.py"]
    assert "def backward(loss, optimizer, scaler):" in after
    assert "self.scaler)" in after
    assert "loss.scaler" not in after
