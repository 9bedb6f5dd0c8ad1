"""A library's function that evaluates the model it is given: the region that its forwards lost stands around the call."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files, run_files

LIBRARY = """def inference_on_dataset(model, loader):
    return [str(model(x).dtype) for x in loader]
"""
PROGRAM = """
    import json
    import sys
    import torch
    from apex import amp
    from library import inference_on_dataset


    class Trainer:
        def __init__(self, args, model):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if args.amp:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            self.args = args
            self.model = model
            self.optimizer = optimizer

        def train(self, loader):
            for x in loader:
                loss = self.model(x).sum()
                if self.args.amp:
                    with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                self.optimizer.step()
            return self.test(self.model, loader)

        @classmethod
        def test(cls, model, loader):
            CALL


    def main(args, loader):
        model = torch.nn.Linear(2, 2)
        if args.eval_only:
            return Trainer.test(model, loader)
        return Trainer(args, model).train(loader)


    if __name__ == "__main__":
        class Args:
            amp = AMP
            eval_only = ONLY

        print(json.dumps(main(Args(), [torch.ones(1, 2)])))
    """
KEPT = "result = inference_on_dataset(model, loader)\n            return result"


def program(call: str = KEPT, **values: bool) -> dict[str, str]:
    text = PROGRAM.replace("CALL", call)
    for name in ("amp", "only"):
        text = text.replace(name.upper(), str(values.get(name, False)))
    return {"main.py": text}


@pytest.mark.parametrize("call", [KEPT, "return inference_on_dataset(model, loader)"])
@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ({"amp": True}, "torch.float16"),
        ({"amp": False}, "torch.float32"),
        ({"amp": True, "only": True}, "torch.float32"),  # nothing was set up for it
    ],
)
def test_what_was_half_is_and_what_was_not_is_not(
    tmp_path: Path, call: str, values: dict[str, bool], dtype: str
) -> None:
    texts = check_files(program(call, **values), device="cpu")
    assert texts["main.py"].count("torch.autocast(") == 2
    (tmp_path / "library.py").write_text(LIBRARY)
    assert run_files(tmp_path, texts, "main.py") == [dtype]


def test_nothing_is_left_to_be_told() -> None:
    told = {f.code for f in rewrite_files(program())["main.py"].findings}
    assert told.isdisjoint({"AMP531", "AMP232"})


@pytest.mark.parametrize(
    "call",
    [
        "return list(map(str, inference_on_dataset(model, loader)))",  # no statement of its own
        "return inference_on_dataset.Evaluator(model, loader)",  # which may run the model later
        "return inference_on_dataset.export_validation(lambda: model)",
    ],
)
def test_what_is_more_than_a_call_that_evaluates_is_told_alone(call: str) -> None:
    (result,) = rewrite_files(program(call)).values()
    assert (result.after or "").count("torch.autocast(") == 1


def test_in_which_runs_it_was_half_is_said() -> None:
    (result,) = rewrite_files(program("return list(map(str, inference_on_dataset(model, loader)))")).values()
    (told,) = [f.message for f in result.findings if f.code == "AMP531"]
    assert "ran in half precision under Apex where amp and not eval_only, and runs in float32 now" in told


def test_evaluation_that_is_wanted_in_float32_gets_no_region() -> None:
    (result,) = rewrite_files(program(), eval="fp32").values()
    assert (result.after or "").count("torch.autocast(") == 1


def test_a_region_that_is_on_where_nothing_was_set_up_is_told() -> None:
    from tests.audit.helpers import doubts

    before = program()["main.py"]
    after = rewrite(before).after or ""
    assert "inference_on_dataset" in after
    always = after.replace("enabled=use_amp", "enabled=True")
    assert always != after
    (told,) = [d for d in doubts(before, always) if d.code == "AMP531"]
    assert "inference_on_dataset runs under autocast now where " in told.message
    assert "eval_only" in told.message
