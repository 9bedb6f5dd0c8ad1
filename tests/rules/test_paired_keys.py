"""A checkpoint that is made of pairs keeps the scaler's state under the key that is loaded."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told
from tests.rules.helpers import rewrite

PROGRAM = """
    from collections import OrderedDict
    import torch
    from apex import amp

    def main(model, optimizer, loader, path, fp16):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        checkpoint = torch.load(path)
        if "amp" in checkpoint:
            amp.load_state_dict(checkpoint["amp"])
        for x, y in loader:
            loss = ((model(x) - y) ** 2).mean()
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        {save}
"""
PAIR = '("amp", amp.state_dict())'
SAVED = {
    "a list": f'torch.save(OrderedDict([("model", model.state_dict()), {PAIR}]), path)',
    "lists put together": f'torch.save(dict([("model", model.state_dict())] + ([{PAIR}] if fp16 else [])), path)',
    "a variable": f'pairs = [("model", model.state_dict())]\n        pairs += [{PAIR}]\n        torch.save(dict(pairs), path)',
    "appended": f"pairs = []\n        pairs.append({PAIR})\n        torch.save(OrderedDict(pairs), path)",
    "an update": f"state = {{}}\n        state.update([{PAIR}])\n        torch.save(state, path)",
    "zip": 'torch.save(dict(zip(["model", "amp"], [model.state_dict(), amp.state_dict()])), path)',
    "a default": 'state = {}\n        state.setdefault("amp", amp.state_dict())\n        torch.save(state, path)',
}


@pytest.mark.parametrize("save", SAVED.values(), ids=SAVED)
def test_a_pair_gets_the_key_that_is_loaded(save: str) -> None:
    result = rewrite(PROGRAM.format(save=save))
    assert result.after is not None, result.findings
    assert '"amp"' not in result.after
    assert result.after.count('"scaler"') == 3


@pytest.mark.parametrize("save", SAVED.values(), ids=SAVED)
def test_the_audit_sees_that_it_is_another(save: str) -> None:
    before = PROGRAM.format(save=save)
    load = 'if "{0}" in checkpoint:\n            scaler.load_state_dict(checkpoint["{0}"])'
    after = before.replace("from apex import amp\n", "").replace("amp.state_dict()", "scaler.state_dict()")
    after = after.replace(
        'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', 'scaler = torch.amp.GradScaler("cuda")'
    )
    after = after.replace(load.format("amp").replace("scaler.", "amp."), load.format("state"))
    after = after.replace(
        "with amp.scale_loss(loss, optimizer) as scaled_loss:\n                scaled_loss",
        "if True:\n                scaler.scale(loss)",
    )
    after = after.replace("optimizer.step()", "scaler.step(optimizer)\n            scaler.update()")
    assert [verdict for _, verdict in told(doubts(before, after), "AMP431")] == ["refuse"]


def test_pairs_of_which_no_mapping_is_made_keep_their_names() -> None:
    save = f"for name, state in [{PAIR}]:\n            torch.save(state, path + name)"
    result = rewrite(PROGRAM.format(save=save))
    assert '[("amp", ' in (result.after or PROGRAM.format(save=save))
