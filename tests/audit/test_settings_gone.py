"""What is on by default, now that the want of Apex does not switch it off: AMP133."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts
from tests.audit.test_without_apex import MADE


@pytest.mark.parametrize(
    ("made", "refuses"),
    [("Arguments(fp16=fp16)", True), ("Arguments(fp16=True)", False), ("Learner(model, fp16=fp16)", False)],
)
def test_code_out_of_sight_that_is_asked_for_float16_refuses_it_without_cuda(made: str, refuses: bool) -> None:
    before = MADE.replace("=GIVEN", "=True").replace(
        "import torch\n", "import torch\nfrom outside import Arguments\n", 1
    )
    before = before.replace("    return Learner(model, fp16)", f"    return {made}")
    after = before[: before.index("try:")] + before[before.index("def make") :].replace(
        "    if fp16 and THERE is False:\n        fp16 = False\n", ""
    )
    kept = "        self.model, self.optimizer = amp.initialize(model, self.optimizer, enabled=fp16)\n"
    after = after.replace(kept, '        self.model, self.scaler = model, torch.amp.GradScaler("cuda", enabled=fp16)\n')
    (doubt,) = [d for d in doubts(before, after) if d.construct == "fp16"]
    assert doubt.verdict == "review"
    assert doubt.message.endswith("Arguments refuses float16 there" if refuses else "and leaves it off")
