"""Scripts that take Apex's state out of checkpoints: its key is another one now."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files
from tests.rules.programs import APEX_LOOP, apex

SAVES = apex(APEX_LOOP) + '\ntorch.save({"model": model.state_dict(), "amp": amp.state_dict()}, "x.pt")\n'
LOADS = 'import torch\n\nfound = torch.load("x.pt")\n'


@pytest.mark.parametrize(
    ("stripping", "said"),
    [
        ('for key in ["optimizer", "amp"]:\n    if key in found:\n        del found[key]\n', True),
        ('for key in ("optimizer", "amp"):\n    found.pop(key, None)\n', True),
        ('found.pop("amp")\n', True),
        ('del found["amp"]\n', True),
        ('del found["amp"]\ndel found["scaler"]\n', False),
        ('print(found["amp"])\n', False),
        ('for key in ["optimizer", "amp"]:\n    print(found[key])\n', False),
        ('found.pop(found, "amp")\n', False),
    ],
)
def test_a_script_that_strips_the_old_key_is_named(stripping: str, said: bool) -> None:
    results = rewrite_files({"train.py": SAVES, "publish.py": LOADS + stripping, "other/publish.py": stripping})
    assert results["train.py"].after is not None
    assert results["publish.py"].after is None
    told = [f for f in results["publish.py"].findings if f.code == "AMP401"]
    assert [f.status for f in told] == ["note"] * said
    assert not results["other/publish.py"].findings


def test_scripts_of_another_program_are_not() -> None:
    results = rewrite_files({"one/train.py": SAVES, "two/publish.py": f'{LOADS}found.pop("amp")\n'})
    assert results["one/train.py"].after is not None
    assert not results["two/publish.py"].findings
