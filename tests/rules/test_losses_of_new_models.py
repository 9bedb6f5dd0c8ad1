"""The loss of a model that is made anew, which was float32 beside an FP16_Optimizer, needs no region; nor does its loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, run_files

MAIN = """
    import argparse
    import json

    import torch
    from torch.nn import CrossEntropyLoss

    SEEN = []


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.last = torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.last(x)


    def main(flags):
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        args = parser.parse_args(flags)
        model = Net()
        if args.fp16:
            model.half()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.fp16:
            from apex.optimizers import FP16_Optimizer

            optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
        batches = [(torch.ones(2, 4), torch.tensor([0, 1]))]
        for x, y in batches:
            logits = model(x)
            SEEN.append(str(logits.dtype))
            loss = CrossEntropyLoss()(logits.view(-1, 3), y.view(-1))
            if args.fp16:
                optimizer.backward(loss)
            else:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        RENEWED
        total = 0.0
        for x, y in batches:
            with torch.no_grad():
                logits = model(x)
            SEEN.append(str(logits.dtype))
            loss_fct = CrossEntropyLoss()
            SEEN.append(torch.is_autocast_enabled("cpu"))
            tmp_loss = loss_fct(logits.view(-1, 3), y.view(-1))
            print(y.view(-1))
            total += tmp_loss.item()


    if __name__ == "__main__":
        main(["--fp16"])
        print(json.dumps(SEEN))
    """


@pytest.mark.parametrize(
    ("renewed", "regions", "kind"), [("model = Net()", 1, "torch.float32"), ("model.eval()", 3, "torch.float16")]
)
def test_a_loss_of_float32_outputs_has_no_region(renewed: str, regions: int, kind: str, tmp_path: Path) -> None:
    after = check_files({"main.py": MAIN.replace("RENEWED", renewed)}, device="cpu")
    assert after["main.py"].count("torch.autocast(") == regions
    assert run_files(tmp_path, after, "main.py") == ["torch.float16", kind, False]


LOOP = """
    import torch
    from apex import amp


    def update(model, criterion, optimizer, batch, names, log):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        logits = model(batch["x"])
        loss = criterion(logits, batch["y"])
        for name in names:
            BODY
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """


@pytest.mark.parametrize(
    ("body", "whole"),
    [
        (["loss = loss + criterion(logits, batch[name])"], True),
        (["more = batch[name].cuda()", "log(name)", "loss = loss + criterion(logits, more)", "log(more)"], False),
    ],
)
def test_a_loop_that_does_more_than_compute_the_loss_is_in_no_region(body: list[str], whole: bool) -> None:
    text = LOOP.replace("BODY", ("\n" + " " * 12).join(body))
    after = check_files({"main.py": text})["main.py"]
    assert ("        for name in names:\n" in after) == whole
    assert after.count("torch.autocast(") == 2 - whole
