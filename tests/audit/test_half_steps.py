"""FusedAdam computed in float32 whatever it stepped; torch's Adam computes in the dtype of the weights: AMP543."""

from __future__ import annotations

import pytest
import torch

from tests.audit.helpers import doubts, told
from tests.rules.helpers import rewrite_files

PROGRAM = """
    import argparse
    import torch
    from apex.optimizers import FusedAdam as Adam

    class Half(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.add_module("module", module.half())

    class FP16_Optimizer:
        def __init__(self, optimizer, scale):
            self.optimizer = optimizer

    def get_model(args):
        model = torch.nn.Linear(3, 1)
        HALF
        model.cuda()
        WRAPPED
        return model

    def groups(module):
        found = {"params": []}
        for m in module.modules():
            found["params"] += [p for p in m._parameters.values() if p is not None]
        return [found]

    def get_optimizer(model, args):
        while isinstance(model, Half):
            model = model.module
        param_groups = GIVEN
        optimizer = Adam(param_groups, lr=0.1, weight_decay=0.1)
        MASTERS
        return optimizer

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        parser.add_argument("--engine", action="store_true")
        args = parser.parse_args()
        model = get_model(args)
        optimizer = get_optimizer(model, args)
        model(torch.ones(2, 3).cuda()).mean().backward()
        optimizer.step()

    if __name__ == "__main__":
        main()
    """
HALF = "if args.fp16:\n            model.half()"
ENGINE = "if args.engine and args.fp16:\n            model.half()"
WRAPPED = "if args.fp16:\n            model = Half(model)"
MASTERS = "if args.fp16:\n            optimizer = FP16_Optimizer(optimizer, 128.0)"
LEAVES = "if args.engine:\n            return optimizer\n        "
GROUPS = "groups(model)"
PARAMETERS = "model.parameters()"


@pytest.mark.parametrize(
    ("half", "wrapped", "given", "masters", "count"),
    [
        (HALF, "", PARAMETERS, "", 1),
        (HALF, "", GROUPS, "", 1),
        (HALF, "", PARAMETERS, MASTERS, 0),
        ("", WRAPPED, GROUPS, MASTERS, 0),
        (ENGINE, "", GROUPS, MASTERS, 0),
        (ENGINE, WRAPPED, GROUPS, LEAVES + MASTERS, 1),
        (ENGINE, "", GROUPS, "if not args.engine:\n            return optimizer\n        " + MASTERS, 0),
        ("", "", GROUPS, "", 0),
        ("torch.ones(3).half()", "", GROUPS, "", 0),
        (HALF + "\n        model.float()", "", PARAMETERS, "", 0),
        ("other = torch.nn.Linear(3, 1)\n        other.half()", "", PARAMETERS, "", 0),
    ],
)
def test_weights_that_are_half_without_float32_masters(
    half: str, wrapped: str, given: str, masters: str, count: int
) -> None:
    before = PROGRAM
    for name, text in (("HALF", half), ("WRAPPED", wrapped), ("GIVEN", given), ("MASTERS", masters)):
        before = before.replace(f"        {name}\n", f"        {text}\n").replace(f"= {name}\n", f"= {text}\n")
    after = before.replace("from apex.optimizers import FusedAdam as Adam", "from torch.optim import AdamW as Adam")
    assert [v for _, v in told(doubts(before, after), "AMP543")] == ["review"] * count
    assert not told(doubts(before, before.replace("lr=0.1", "lr=0.2")), "AMP543")


def test_that_torchs_adam_steps_half_weights_to_what_is_no_number_is_told_where_it_takes_the_place_of_apexs() -> None:
    weight = torch.nn.Parameter(torch.full((4,), 0.02, dtype=torch.float16))
    optimizer = torch.optim.AdamW([weight], lr=1e-3, weight_decay=0.0)
    for gradient in (1e-3, 1e-5):
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
    assert not weight.isfinite().any()
    source = """
        import torch
        from apex.optimizers import FusedAdam

        model = torch.nn.Linear(3, 1).cuda()
        model.half()
        optimizer = FusedAdam(model.parameters(), lr=1e-3)
        model(torch.ones(2, 3).cuda().half()).mean().backward()
        optimizer.step()
        """
    (result,) = rewrite_files({"train.py": source}).values()
    (told_of,) = [f for f in result.findings if f.code == "AMP543"]
    assert (told_of.line, told_of.review) == (6, "review")
