"""Readers, in memory, of the mapping that a state is put into: under the key that it has now."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, told

BEFORE = """
    import torch
    from apex import amp
    from helper import save

    def main(model, optimizer, path):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        state = {"model": model.state_dict()}
        state["amp"] = amp.state_dict()
        save(state, path)
    """
AFTER = """
    import torch
    from helper import save

    def main(model, optimizer, path):
        scaler = torch.amp.GradScaler("cuda")
        state = {"model": model.state_dict()}
        state["scaler"] = scaler.state_dict()
        save(state, path)
    """
HELPER = """
    import torch

    def save(state, path):
        if "amp" in state:
            torch.save(state["amp"], path)
    """
NEW = HELPER.replace('"amp"', '"scaler"')
SAVED_WHOLE = (
    '{"model": model.state_dict()}\n        state["scaler"] = scaler.state_dict()',
    '{"model": model.state_dict(), "scaler": scaler.state_dict()}',
)
BY_VARIABLE = (
    'state["scaler"] = scaler.state_dict()',
    'kept = scaler.state_dict()\n        state["scaler"] = kept',
)


@pytest.mark.parametrize(
    ("helper", "refused"),
    [
        (HELPER, True),
        (NEW, False),
        (HELPER.replace('if "amp" in state', "if path"), True),
        (HELPER.replace('"amp" in state', 'state.get("amp")'), True),
        (
            HELPER.replace('"amp" in state', '"amp" in state or "scaler" in state').replace('["amp"]', '["scaler"]'),
            False,
        ),
        (HELPER.replace("in state", "in path").replace('state["amp"]', 'path["amp"]'), False),
    ],
)
@pytest.mark.parametrize("spelled", [("", ""), SAVED_WHOLE, BY_VARIABLE])
def test_a_reader_that_was_left_behind(helper: str, refused: bool, spelled: tuple[str, str]) -> None:
    after = AFTER.replace(*spelled) if spelled[0] else AFTER
    now = {"train.py": after, **({"helper.py": NEW} if helper == NEW else {})}
    found = doubts_of({"train.py": BEFORE, "helper.py": HELPER if helper == NEW else helper}, now)
    assert [verdict for _, verdict in told(found, "AMP431")] == ["refuse"] * refused


def test_a_program_that_stays_with_apex_needs_the_old_key() -> None:
    files = {"train.py": BEFORE, "other.py": BEFORE, "helper.py": HELPER}
    found = doubts_of(files, {"train.py": AFTER, "helper.py": NEW})
    assert {d.path for d in found if d.code == "AMP431" and d.verdict == "refuse"} == {"helper.py"}
    assert any("which stays with Apex" in d.message for d in found)
