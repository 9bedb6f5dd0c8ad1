"""A file that asks another for a name which that does not have raises when it is loaded: nothing that it runs happens."""

from __future__ import annotations

import pytest

from amp_migrate.audit import audit
from tests.audit.helpers import doubts_of, program

TRAIN = """
    import torch
    {imports}

    def fit(model, loader):
        opt = torch.optim.SGD(model.parameters(), 0.1)
        {set_up}
        for x in loader:
            opt.zero_grad()
            {region}
                loss = model(x).sum()
            {step}
        return model
"""
BEFORE = {
    "imports": "from apex import amp",
    "set_up": 'model, opt = amp.initialize(model, opt, opt_level="O1")',
    "region": "with torch.enable_grad():",
    "step": "with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n            opt.step()",
}
AFTER = {
    "imports": "",
    "set_up": 'scaler = torch.amp.GradScaler("cuda")',
    "region": 'with torch.enable_grad(), torch.autocast("cuda", dtype=torch.float16):',
    "step": "scaler.scale(loss).backward()\n            scaler.step(opt)\n            scaler.update()",
}
EVALUATES = """
    {imported}
    from networks import Net
    from train import fit

    def evaluate(loader):
        model = fit(Net(), loader)
        return [model(x) for x in loader]

    evaluate(data())
"""
NET = """
    import torch
    {more}

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(x)
"""
GUARDED = """try:
        from networks import Gone
    except ImportError:
        Gone = None"""


@pytest.mark.parametrize(
    ("imported", "more", "told"),
    [
        ("from networks import Gone", "", False),
        ("from . import networks\n    from .networks import Gone", "", False),
        ("import further\n    from further import Gone", "", False),  # which stops itself
        ("from networks import Gone", "Gone = 1", True),
        ("from networks import Gone", "def make():\n        global Gone\n        Gone = 1", True),
        ("from networks import Gone", "from elsewhere import *", True),
        ("from networks import Gone", "def __getattr__(name):\n        return 1", True),
        ("from elsewhere import Gone", "", True),
        ("from package import Gone", "", True),  # which may be compiled
        (GUARDED, "", True),
    ],
)
def test_only_what_is_loaded_counts(imported: str, more: str, told: bool) -> None:
    files = {
        "train.py": TRAIN.format(**BEFORE),
        "networks.py": NET.format(more=more),
        "further.py": "from networks import Gone\n",
        "package/__init__.py": "",
        "evaluate.py": EVALUATES.format(imported=imported),
    }
    found = doubts_of(files, {"train.py": TRAIN.format(**AFTER)})
    assert [d.path for d in found if d.code == "AMP531"] == (["evaluate.py"] if told else [])


def test_a_changed_file_that_nothing_loads_is_told() -> None:
    stopping = "from networks import Gone\n    "
    before = TRAIN.format(**BEFORE).replace("import torch", stopping + "import torch", 1)
    after = TRAIN.format(**AFTER).replace("import torch", stopping + "import torch", 1)
    files = {"train.py": program(before), "networks.py": program(NET.format(more=""))}
    doubts = audit(files, {"train.py": program(after)})
    assert [(d.code, d.line, d.verdict) for d in doubts] == [("AMP191", 1, "review")]
