"""Models and optimizers that are read in other places than variables: properties, lists, mappings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, run_files

PROGRAM = """
    import json

    import torch
    from apex import amp


    class Trainer:
        def __init__(self, model, optimizer):
            self._model = model
            self._optimizer = optimizer

        @property
        def model(self):
            return self._model

        @property
        def tuner(self):
            return self._optimizer

        def train(self, batches):
            for x, y in batches:
                self.tuner.zero_grad()
                loss = (self._model(x).float() - y).pow(2).mean() / 1000
                with amp.scale_loss(loss, self._optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.tuner.step()


    def evaluate(trainer, batches):
        best = []
        for x, _ in batches:
            y = trainer.model(x)
            best.append(y.argmax(dim=1).cpu().numpy().tolist())
        return y, best


    def main():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        trainer = Trainer(model, optimizer)
        batches = [(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(3)]
        trainer.train(batches)
        y, best = evaluate(trainer, batches)
        told = {"dtype": str(y.dtype), "whole": isinstance(best[0][0], int)}
        told["grown"] = trainer.SCALER_STATE["_growth_tracker"]
        print(json.dumps(told))


    main()
    """


def test_the_model_and_the_optimizer_are_what_a_property_gives(tmp_path: Path) -> None:
    text = check_files({"train.py": PROGRAM}, device="cpu")["train.py"]
    assert "self.scaler.step(self.tuner)" in text
    assert "            y = trainer.model(x)\n" in text  # in a region of its own
    assert run_files(tmp_path, {"train.py": text}, "train.py") == {"dtype": "torch.float16", "whole": True, "grown": 3}


LISTS = """
    import json
    import sys

    import torch
    from apex import amp


    class Encoder(torch.nn.Sequential):
        def fit(self, objectives, half=False, level="O1"):
            losses = [loss for _, loss in objectives]
            optimizers = [torch.optim.SGD(loss.parameters(), lr=0.1) for loss in losses]
            if half:
                for i in range(len(losses)):
                    model, optimizer = amp.initialize(losses[i], optimizers[i], opt_level=level)
                    losses[i] = model
                    optimizers[i] = optimizer
            for i in range(len(objectives)):
                objective = losses[i]
                optimizer = optimizers[i]
                for x, y in objectives[i][0]:
                    value = objective(x, y)
                    if half:
                        with amp.scale_loss(value, optimizer) as scaled:
                            scaled.backward()
                        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
                    else:
                        value.backward()
                        torch.nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()


    class Loss(torch.nn.Module):
        def __init__(self, encoder):
            super().__init__()
            self.encoder, self.seen = encoder, []

        def forward(self, x, y):
            out = self.encoder(x)
            self.seen.append(str(out.dtype))
            return (out.float() - y).pow(2).mean() / 1000


    encoder = Encoder(torch.nn.Linear(3, 2))
    loss = Loss(encoder)
    encoder.fit([([(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(3)], loss)], half=len(sys.argv) > HALF)
    print(json.dumps(loss.seen))
    """


@pytest.mark.parametrize(("half", "dtype"), [("0", "torch.float16"), ("1", "torch.float32")])
def test_a_network_that_trains_lists_of_objectives_is_half_where_it_was_asked_to_be(
    tmp_path: Path, half: str, dtype: str
) -> None:
    text = check_files({"train.py": LISTS.replace("HALF", half)}, device="cpu")["train.py"]
    assert run_files(tmp_path, {"train.py": text}, "train.py") == [dtype] * 3


MAPPING = """
    import json

    import torch
    from apex import amp

    mixed = HALF


    class Flow(torch.nn.Linear):
        def infer(self, x):
            return self(x)


    class Runner:
        def __init__(self):
            self.models = {"flow": Flow(3, 2), "other": torch.nn.Linear(2, 2)}
            if mixed:
                self.models["flow"] = amp.initialize(models=self.models["flow"])

        def step(self, x):
            return self.models["flow"].infer(x)


    print(json.dumps(str(Runner().step(torch.randn(2, 3)).dtype)))
    """


@pytest.mark.parametrize(("half", "dtype"), [("True", "torch.float16"), ("False", "torch.float32")])
def test_a_model_in_a_mapping_is_run_under_its_key(tmp_path: Path, half: str, dtype: str) -> None:
    text = check_files({"infer.py": MAPPING.replace("HALF", half)}, device="cpu")["infer.py"]
    assert "GradScaler" not in text
    assert run_files(tmp_path, {"infer.py": text}, "infer.py") == dtype


LENGTHS = """
    import torch
    from apex import amp
    from project import Flow, draw

    models = {"flow": Flow().cuda()}
    models["flow"] = amp.initialize(models=models["flow"])


    def step(x):
        mels, mel_Lengths = models["flow"].infer(x)
        for mel, length in zip(mels.cpu().numpy(), mel_Lengths.cpu().numpy()):
            draw(mel[:length])


    step(torch.ones(1))
    """


def test_lengths_beside_what_is_half_stay_whole_numbers() -> None:
    text = check_files({"infer.py": LENGTHS})["infer.py"]
    assert "zip(mels.float().cpu().numpy(), mel_Lengths.cpu().numpy())" in text
