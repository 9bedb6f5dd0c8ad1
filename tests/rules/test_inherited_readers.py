"""Classes that inherit what reads the scaler, and create none: trained and run by name, with mixed precision and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.helpers import doubts_of, told
from tests.rules.helpers import check_files, rewrite_files, run_files
from tests.rules.programs import found

BASE = """
    import torch
    from apex import amp


    class Model:
        def __init__(self, half=False):
            self.half = half
            self.model = None
            self.optimizer = None

        def train_one(self, x):
            self.optimizer.zero_grad()
            loss = self.model(x).pow(2).mean()
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()
            return loss.item()

        def predict(self, x):
            with torch.no_grad():
                return self.model(x).mean().item()
    """
KINDS = """
    import torch
    from apex import amp
    from base import Model


    class Full(Model):
        def __init__(self, half=False):
            super().__init__(half=half)
            self.model = torch.nn.Linear(3, 1)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, enabled=half)


    class Half(Full):
        pass


    class Middle(Model):
        def __init__(self, half=False):
            super().__init__(half=half)


    class Down(Middle):
        def __init__(self, inner):
            super().__init__(half=inner.half)
            self.inner = inner
            self.model = torch.nn.Sequential(inner.model, torch.nn.Linear(1, 1))
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
    """
MAIN = """
    import json
    import sys

    import torch
    import kinds
    {imports}


    def get_model(model, half):
        if isinstance(model, (list, tuple)):
            return {named}(get_model(model[1], half))
        return {full}(half=half)


    torch.manual_seed(0)
    found = []
    for name in ("Full", ("Down", "Half")):
        model = get_model(name, False)
        losses = [model.train_one(torch.ones(2, 3)) for _ in range(3)]
        found.append([losses[0] > losses[-1], model.predict(torch.ones(2, 3)) != 0])
    print(json.dumps(found))
    """
IMPORTED = "from kinds import Down, Full, Half"
WAYS = [
    (IMPORTED, "globals()[model[0]]", "globals()[model]"),
    (IMPORTED, "globals().get(model[0])", "globals().get(model)"),
    ("", "getattr(kinds, model[0])", "getattr(kinds, model)"),
    (IMPORTED, "Down", "{'Full': Full, 'Half': Half}[model]"),
]


def project(imports: str, named: str, full: str) -> dict[str, str]:
    return {"base.py": BASE, "kinds.py": KINDS, "main.py": MAIN.format(imports=imports, named=named, full=full)}


@pytest.mark.parametrize(("imports", "named", "full"), WAYS)
def test_they_find_a_disabled_one(imports: str, named: str, full: str, tmp_path: Path) -> None:
    files = project(imports, named, full)
    texts = check_files(files, device="cpu")
    assert texts["base.py"].count("self.scaler = torch.amp.GradScaler(") == 1
    assert texts["kinds.py"].count("self.scaler = torch.amp.GradScaler(") == 1
    assert run_files(tmp_path, texts, "main.py") == [[True, True], [True, True]]
    told = [f for f in found(rewrite_files(files, device="cpu")["base.py"], "AMP110") if "disabled" in f.message]
    assert [f.message.partition(":")[0] for f in told] == ["a disabled scaler for Down"]


def test_where_all_create_one_the_base_does_not() -> None:
    files = project("from kinds import Full, Half", "globals()[model[0]]", "globals()[model]")
    files["kinds.py"] = files["kinds.py"].partition("    class Middle")[0]
    assert "GradScaler" not in check_files(files, device="cpu")["base.py"]


@pytest.mark.parametrize(("imports", "named", "full"), WAYS)
def test_the_audit_refuses_what_finds_none(imports: str, named: str, full: str) -> None:
    files = project(imports, named, full)
    texts = check_files(files, device="cpu")
    line = next(s for s in texts["base.py"].splitlines() if "self.scaler = " in s)
    assert not [d for d in doubts_of(files, changed(files, texts)) if d.code == "AMP131"]
    texts["base.py"] = texts["base.py"].replace(line + "\n", "")
    assert "refuse" in {v for _, v in told(doubts_of(files, changed(files, texts)), "AMP131")}


def changed(files: dict[str, str], texts: dict[str, str]) -> dict[str, str]:
    return {name: texts[name] for name in ("base.py", "kinds.py")}
