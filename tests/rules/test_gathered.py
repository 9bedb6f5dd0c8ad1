"""A helper that runs the model stands in the region of the training step that calls it, where it would take a switch else."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files
from tests.rules.programs import found

HELPER = """
    import torch


    def compare(model, x):
        scores = model(x)
        {more}
        return torch.nn.functional.cross_entropy(scores, torch.zeros(len(x)).long())
"""
TRAIN = """
    import json
    import sys

    import torch
    from apex import amp

    from helper import compare


    def setup():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4)
        return model, torch.optim.SGD(model.parameters(), 0.1)


    def train(fp16):
        model, optimizer = setup()
        if fp16:
            model, optimizer = amp.initialize(model, optimizer{level})
        losses = []
        for x in torch.ones(3, 2, 4):
            optimizer.zero_grad()
            loss = compare(model, x)
            if fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses


    if __name__ == "__main__":
        print(json.dumps(train("--fp16" in sys.argv)))
"""
SCORE = """
    import json

    import torch

    from helper import compare

    print(json.dumps(compare(torch.nn.Linear(4, 4), torch.ones(2, 4)).item()))
"""


def files(more: str = "scores = scores * 2", level: str = "", **others: str) -> dict[str, str]:
    texts = {
        "helper.py": HELPER.replace("{more}", more),
        "train.py": TRAIN.replace("{level}", level),
        "score.py": SCORE,
    }
    texts |= {f"{name}.py": text for name, text in others.items()}
    return {name: dedent(text).lstrip() for name, text in texts.items()}


def test_the_step_has_one_region_and_the_helper_stays_as_it_was(tmp_path: Path) -> None:
    texts = check_files(files(), device="cpu")
    assert texts["helper.py"] == files()["helper.py"]
    assert texts["score.py"] == files()["score.py"]
    region = 'with torch.autocast("cpu", dtype=torch.float16, enabled=fp16):\n            loss = compare(model, x)\n'
    assert region in texts["train.py"]
    assert "use_amp" not in texts["train.py"]
    losses = run_files(tmp_path, texts, "train.py")
    assert losses == sorted(losses, reverse=True)
    assert run_files(tmp_path, texts, "score.py") > 0


def test_who_else_calls_it_under_apex_has_a_region_of_its_own(tmp_path: Path) -> None:
    texts = files()
    texts["train.py"] = texts["train.py"].replace(
        "    return losses\n", "    return losses + [evaluate(model, torch.ones(2, 2, 4))]\n"
    )
    texts["train.py"] = texts["train.py"].replace(
        "def train(",
        "def evaluate(model, batches):\n    with torch.no_grad():\n"
        "        return max(compare(model, x).item() for x in batches)\n\n\ndef train(",
    )
    texts = check_files(texts, device="cpu")
    assert texts["helper.py"] == files()["helper.py"]
    assert "def evaluate(model, batches, use_amp=False):" in texts["train.py"]
    assert 'with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16, enabled=use_amp):' in texts["train.py"]
    assert "evaluate(model, torch.ones(2, 2, 4), use_amp=fp16)" in texts["train.py"]
    assert len(run_files(tmp_path, texts, "train.py")) == 4


@pytest.mark.parametrize(
    ("more", "level"),
    [
        ("torch.nn.functional.binary_cross_entropy(scores.sigmoid(), scores.sigmoid())", ""),
        ("torch.autograd.grad(scores.sum(), list(model.parameters()), create_graph=True)", ""),
        ('with torch.autocast("cuda", enabled=False):\n            scores = scores.float()', ""),
        ("for again in (x, x):\n            scores = scores + model(again)", ""),
        ("scores = scores * 2", ', opt_level="O2"'),
    ],
    ids=["what autocast refuses", "a second backward", "a region of its own", "several forwards", "O2 patched nothing"],
)
def test_it_keeps_its_own_region_where_not_all_of_it_can_stand_in_one(more: str, level: str) -> None:
    results = rewrite_files(files(more, level))
    assert found(results["helper.py"], "AMP501")
    assert "compare(model, x, " in str(results["train.py"].after)


OTHER = """
    import torch
    from apex import amp

    from helper import compare


    def run(level):
        model = torch.nn.Linear(4, 4)
        model = amp.initialize(model, opt_level=level)
        with torch.no_grad():
            return compare(model, torch.ones(2, 4))
"""


@pytest.mark.parametrize("name", ["other", "a_other"])
def test_another_program_that_sets_apex_up_finds_the_helper_as_it_was(name: str) -> None:
    texts = check_files(files(**{name: OTHER}))
    assert texts["helper.py"] == files()["helper.py"]
    assert "torch.autocast" in texts[f"{name}.py"]
    assert "torch.autocast" in texts["train.py"]


def test_what_o2_computed_in_float32_beside_the_model_is_still_told_of_the_helper() -> None:
    results = rewrite_files(files("scores = torch.mm(scores, scores.t())[:, :4]", ", opt_level=sys.argv[1]"))
    (finding,) = found(results["helper.py"], "AMP535")
    assert "O2 or O3" in finding.message
    assert "mm outside of the model" in finding.message
    assert results["helper.py"].after is None
