"""A function that evaluates without an optimizer and trains with one: the scaler may be left out just like the optimizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files

# One function for all modes, called as a script; nothing tells the optimizer from None but the mode.
PROGRAM = """
    import json
    import torch
    from apex import amp


    def run(mode, model, batches, criterion, opt=None, apex=False):
        losses = []
        for x, y in batches:
            loss = criterion(model(x), y)
            losses.append(loss.item())
            if {guard}:
                if apex:
                    with amp.scale_loss(loss, opt) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                opt.step()
                opt.zero_grad()
        return losses


    def train(model, batches, criterion):
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        model, opt = amp.initialize(model, opt, opt_level="O1")
        found = []
        for _ in range(3):
            found += run("train", model, batches, criterion, opt=opt, apex=True)
            with torch.no_grad():
                found += run("valid", model, batches, criterion)
        return found


    def main(mode="train"):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        batches = [(torch.randn(4, 3), torch.randn(4, 1))]
        criterion = torch.nn.MSELoss()
        if mode == "train":
            print(json.dumps({{"losses": train(model, batches, criterion)}}))
        else:
            print(run("valid", model, batches, criterion))


    if __name__ == "__main__":
        main()
    """


@pytest.mark.parametrize(
    "guard", ['mode == "train"', 'mode in ["train", "tune"]', 'not mode == "valid"', "opt is not None"]
)
def test_calls_whose_constants_leave_the_training_out_need_no_scaler(guard: str, tmp_path: Path) -> None:
    texts = check_files({"train.py": PROGRAM.format(guard=guard)}, device="cpu")
    text = texts["train.py"]
    assert "opt=None, scaler=None" in text
    assert "opt=opt, scaler=scaler" in text
    assert (
        'run("valid", model, batches, criterion)' in text or 'run("valid", model, batches, criterion, use_amp' in text
    )
    losses = run_files(tmp_path, texts, "train.py")["losses"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("guard", ["mode == chosen", "len(losses) > 0", 'mode != "train"'])
def test_where_a_call_without_an_optimizer_may_train_nothing_is_guessed(guard: str) -> None:
    result = rewrite(PROGRAM.format(guard=guard).replace("opt.step()", "step(opt)"))
    assert result.after is None
    assert any(f.status == "manual" for f in result.findings)


def test_what_is_asked_of_the_optimizer_in_the_same_block_shows_that_there_is_one() -> None:
    source = PROGRAM.format(guard="model.training").replace("opt.step()\n", "opt.step()\n", 1)
    text = rewrite(source).after
    assert text is not None
    assert "scaler=None" in text
