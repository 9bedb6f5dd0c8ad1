"""Whoever is handed what `master_params` yields, by whatever way, may read the gradients: they are unscaled before that."""

from __future__ import annotations

import pytest

from tests.rules.trained import check_trained

# A function that nothing in sight defines, under a name that says nothing.
LOOP = """
limit = getattr(torch.nn.utils, "clip_grad" + "_norm_")


class Kept:
    def __init__(self):
        self.parameters = []


kept = Kept()


def chosen(optimizer):
    return [p for p in amp.master_params(optimizer) if p.requires_grad]


model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
{collect}
    seen.append(limit({given}, 0.01).item())
    optimizer.step()
    optimizer.zero_grad()
"""
WAYS = {
    "comprehension": ("    ps = [p for p in amp.master_params(optimizer) if p.grad is not None]", "ps"),
    "generator": ("    pass", "(p for p in amp.master_params(optimizer) if p.requires_grad)"),
    "set, sorted": ("    ps = sorted(set(amp.master_params(optimizer)), key=id)", "ps"),
    "sum": ("    ps = [] + list(amp.master_params(optimizer))", "ps"),
    "display": ("    ps = [*amp.master_params(optimizer)]", "ps"),
    "another name": ("    ps = list(amp.master_params(optimizer))\n    all_of_them = ps", "all_of_them"),
    "loop": ("    ps = []\n    for p in amp.master_params(optimizer):\n        ps.append(p)", "ps"),
    "extended": ("    ps = []\n    ps.extend(amp.master_params(optimizer))", "ps"),
    "attribute": ("    kept.parameters = list(amp.master_params(optimizer))", "kept.parameters"),
    "walrus": ("    pass", "(ps := list(amp.master_params(optimizer)))"),
    "given back": ("    pass", "chosen(optimizer)"),
}


@pytest.mark.parametrize("way", WAYS)
def test_they_are_unscaled_first(way: str) -> None:
    collect, given = WAYS[way]
    after = check_trained(LOOP.format(collect=collect, given=given))
    assert after.count("scaler.unscale_(optimizer)") == 1
    assert after.index("scaler.unscale_(optimizer)") < after.index("seen.append(limit(")


def test_collecting_them_before_training_waits_for_nothing() -> None:
    after = check_trained(
        """
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        names = getattr(torch.nn.utils, "parameters_to" + "_vector")
        seen.append(names([p for p in amp.master_params(optimizer)]).abs().sum().item())
        for x, y in loader:
            with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        """
    )
    assert "unscale_" not in after
