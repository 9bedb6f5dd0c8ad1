"""`amp.master_params` of an optimizer that has another model's parameters, too, where one model is clipped in float32."""

from __future__ import annotations

import pytest

from tests.rules.test_master_params import CLIP, GROUPS, chosen
from tests.rules.test_master_params import clipped as groups_of
from tests.rules.trained import check_trained

BESIDE = """
def train(fp16, model, front):
{made}
    if fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
    for x, y in loader:
        loss = criterion(model(front(x)), y)
        optimizer.zero_grad()
        if fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        if fp16:
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 0.01)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()


train({fp16}, torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)), torch.nn.Linear(4, 4))
"""
MADE = "optimizer = torch.optim.SGD(params, lr=0.1)"


def trained(made: str, fp16: bool = True) -> str:
    """The program whose optimizer is made by some lines."""
    lines = "\n".join(f"    {line}" for line in [*made.splitlines(), MADE])
    return check_trained(BESIDE.format(made=lines, fp16=fp16))


def clipped(made: str) -> str:
    """What is clipped there."""
    after = trained(made)
    return after.partition("clip_grad_norm_(")[2].partition(", 0.01)")[0]


@pytest.mark.parametrize("fp16", [False, True])
@pytest.mark.parametrize(
    "made",
    [
        "params = list(model.parameters()) + list(front.parameters())",
        "from itertools import chain\nparams = chain(model.parameters(), front.parameters())",
        'params = [{"params": model.parameters()}, {"params": front.parameters(), "lr": 0.01}]',
        "params = [*model.parameters(), *front.parameters()]",
        "params = list(model.parameters())\nparams.extend(front.parameters())",
        "params = list(model.parameters())\nparams += list(front.parameters())",
        'params = [{"params": [p for n, p in model.named_parameters()]}]\nparams.append({"params": front.parameters()})',
        "mine = list(model.parameters())\nother = list(front.parameters())\nparams = mine + other",
    ],
)
def test_another_models_parameters_are_clipped_with_mixed_precision_alone(made: str, fp16: bool) -> None:
    assert chosen(trained(made, fp16)) == ["if fp16:", f"({GROUPS})", "0.01"]


@pytest.mark.parametrize(
    "more", ["params.extend(front.parameters())", "params.append(scale)", "params.insert(0, scale)"]
)
def test_a_list_that_is_added_to_is_more_than_the_model(more: str) -> None:
    model = f"model = build()\nparams = list(model.parameters())\n{more}\noptimizer = torch.optim.SGD(params, lr=0.1)"
    assert groups_of("amp.master_params(optimizer)", model) == CLIP.format(f"({GROUPS})")


@pytest.mark.parametrize(
    "made",
    [
        'params = [{"params": model[0].parameters()}, {"params": model[1].parameters()}]',
        'head = model[1]\nparams = [{"params": model[0].parameters()}, {"params": head.parameters()}]',
        'net = model\nparams = [{"params": net[0].parameters()}, {"params": net[1].parameters()}]',
    ],
)
def test_parts_of_the_model_that_is_clipped_are_no_other_model(made: str) -> None:
    assert clipped(made) == "model.parameters()"
