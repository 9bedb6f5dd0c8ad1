"""Hooks behind layers: what they are given may be half where some run registers them and sets Apex up."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

TRAIN = """
    import torch
    from apex import amp
    from scores import score

    def build():
        return torch.nn.Linear(4, 4).cuda()

    def main():
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in [torch.zeros(2, 4)]:
            optimizer.zero_grad()
            loss = model(x.cuda()).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        MORE

    if __name__ == "__main__":
        main()
    """
SCORES = """
    import torch

    def score(model, x):
        kept = []

        def hook(module, given, output):
            kept.append((output @ output.t()).cpu().numpy())

        model.register_forward_hook(hook)
        model(x)
        return kept
    """
SEARCH = """
    import torch
    from scores import score
    from train import build

    if __name__ == "__main__":
        print(score(build(), torch.zeros(2, 4).cuda()))
    """


@pytest.mark.parametrize(("more", "half"), [("score(model, x.cuda())", True), ("print(loss)", False)])
def test_a_program_that_never_sets_apex_up_is_left_alone(more: str, half: bool) -> None:
    results = rewrite_files({"train.py": TRAIN.replace("MORE", more), "scores.py": SCORES, "search.py": SEARCH})
    assert (results["scores.py"].after is not None or bool(results["scores.py"].findings)) is half
