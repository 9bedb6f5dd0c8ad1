"""In which runs a model is half that an FP16_Optimizer trains: what only predicts asks that, not where the optimizer is wrapped."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

TRAIN = """
    import argparse

    import torch
    from apex.optimizers import FP16_Optimizer, FusedAdam
    {imports}

    def evaluate(args, model, batches):
        with torch.no_grad():
            return sum(model(x).float().sum() for x in batches)


    def main(batches):
        parser = argparse.ArgumentParser()
        for name in ["do_train", "do_eval", "fp16"]:
            parser.add_argument("--" + name, action="store_true")
        args = parser.parse_args()
        model = {model}
        {halving}
        if args.do_train:
            if args.fp16:
                optimizer = FP16_Optimizer(FusedAdam(model.parameters(), lr=0.1), dynamic_loss_scale=True)
            else:
                optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        model.train()
        if args.do_train:
            for x in batches:
                loss = model(x).sum()
                if args.fp16:
                    optimizer.backward(loss)
                else:
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        if args.do_eval:
            print(evaluate(args, model, batches))


    main([torch.ones(2, 4).cuda()])
"""
ALONE = "if args.fp16:\n            model.half()"


@pytest.mark.parametrize(
    ("halving", "enabled"),
    [
        (ALONE, "bool(args.fp16)"),
        ("if args.do_train and args.fp16:\n            model.half()", "bool(args.do_train and args.fp16)"),
    ],
)
def test_an_evaluation_is_in_half_where_the_model_was(halving: str, enabled: str) -> None:
    text = TRAIN.format(imports="", model="torch.nn.Linear(4, 1).cuda()", halving=halving)
    result = rewrite_files({"train.py": text})["train.py"]
    evaluation = (result.after or "").partition("def main")[0]
    assert f"enabled={enabled}" in evaluation
    assert "GradScaler" in (result.after or "")
    assert not [f for f in result.findings if f.code == "AMP531"]


NETWORK = """
    import torch

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 1)

        def forward(self, x):
            return self.inner(x)

    class Holder:
        def __init__(self):
            self.network = Network().cuda()

        def __call__(self, x):
            return self.network(x)

        def train(self):
            self.network.train()

        def half(self):
            self.network.half()
"""
LABELS = """
    import argparse
    from network import Network

    def targets(batches):
        print(Network())
        parser = argparse.ArgumentParser()
        parser.add_argument("--sums", action="store_true")
        parser.add_argument("--narrow", action="store_true")
        args = parser.parse_args()
        for labels in batches:
            if args.sums and args.narrow:
                labels = labels.half()
            yield labels
"""


def test_what_every_tensor_has_is_no_method_of_a_class_by_its_name_alone() -> None:
    train = TRAIN.format(imports="from network import Holder", model="Holder()", halving=ALONE)
    train = train.replace("model.parameters()", "model.network.parameters()")
    results = rewrite_files({"train.py": train, "network.py": NETWORK, "labels.py": LABELS})
    assert not [f.message for r in results.values() for f in r.findings if f.status == "manual"]
    assert "apex" not in (results["train.py"].after or "apex")
    assert ".half()" not in (results["network.py"].after or ".half()")
