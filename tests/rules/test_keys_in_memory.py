"""A key under which a state is put into a mapping that other code asks for it, in memory: all of them have the new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.rules.helpers import rewrite_files
from tests.rules.programs import APEX_LOOP, apex

HELPER = """\
import torch


def save(state, path):
    torch.save(state["model"], path + "/model.pt")
    if "amp" in state:
        torch.save(state["amp"], path + "/amp.pt")
"""
STATE = 'state = {"model": model.state_dict()}\nstate["amp"] = amp.state_dict()\n'


def program(tail: str) -> str:
    return apex(APEX_LOOP, tail=tail).replace("import torch\n", "import torch\nfrom helper import save\n", 1)


@pytest.mark.parametrize(
    "tail",
    [
        f'{STATE}save(state, "out")\n',
        'save({"model": model.state_dict(), "amp": amp.state_dict()}, "out")\n',
        'save(dict(model=model.state_dict(), amp=amp.state_dict()), path="out")\n',
        'state = {"model": 1}\nstate.update(amp=amp.state_dict())\nsave(state, "out")\n',
        'state = {"model": 1, "amp": None}\nstate["amp"] = amp.state_dict()\nsave({**state}, "out")\n',
        'def gather():\n    return {"model": 1, "amp": amp.state_dict()}\n\n\nsave(gather(), "out")\n',
        'def fill(state):\n    state["amp"] = amp.state_dict()\n\n\nstate = {"model": 1}\nfill(state)\nsave(state, "out")\n',
        'state = {"all": {"model": 1, "amp": amp.state_dict()}}\nsave(state["all"], "out")\n',
        f'{STATE}save(state.copy(), "out")\n',
        f'{STATE}save(state, "out")\nstate["amp"] = "not shown"\nprint(state)\n',
        f'{STATE}more = dict(state)\nsave(more | {{"epoch": 1}}, "out")\n',
        f'import copy\n{STATE}save(copy.deepcopy(state), "out")\n',
        "class Kept:\n    def __init__(self):\n        self.state = {}\n\n\nkept = Kept()\n"
        'kept.state["amp"] = amp.state_dict()\nsave(kept.state, "out")\n',
    ],
)
def test_a_helper_in_another_file_asks_for_the_new_key(tail: str) -> None:
    results = rewrite_files({"train.py": program(tail), "helper.py": HELPER})
    assert '"scaler"' in (after := results["train.py"].after or "") or "scaler=" in after
    assert '"amp"' not in after
    assert results["helper.py"].after == HELPER.replace('"amp"', '"scaler"')
    assert [(f.code, f.status) for f in results["helper.py"].findings] == [("AMP401", "done")] * len(
        results["helper.py"].findings
    )


@pytest.mark.parametrize(
    "asks",
    [
        'print(state.get("amp"))',
        'del state["amp"]',
        'state.pop("amp", None)',
        'for key in ("model", "amp"):\n        torch.save(state[key], key)',
        'print([state[k] for k in ["amp"]])',
        'has = "amp" in state.keys()',
    ],
)
def test_whatever_asks_has_it(asks: str) -> None:
    helper = f"import torch\n\n\ndef save(state, path):\n    {asks}\n"
    results = rewrite_files({"train.py": program(f'{STATE}save(state, "out")\n'), "helper.py": helper})
    assert results["helper.py"].after == helper.replace('"amp"', '"scaler"')


@pytest.mark.parametrize(
    "helper",
    [
        HELPER.replace('state["amp"]', 'path["amp"]').replace('"amp" in state', '"amp" in path'),
        HELPER.replace('"amp"', '"other"'),
        HELPER.replace("state", "unseen").replace("def save(unseen", "def save(state, unseen=options()"),
    ],
)
def test_another_mapping_keeps_its_own(helper: str) -> None:
    results = rewrite_files({"train.py": program(f'{STATE}save(state, "out")\n'), "helper.py": helper})
    assert '"scaler"' in (results["train.py"].after or "")
    assert results["helper.py"].after is None


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("for each in callbacks():\n    each.save(state, 1)\n", True),
        ('made().save({"model": 1, "amp": amp.state_dict()}, 1)\n', True),
        ('getattr(made(), "save")(state)\n', True),
        ("Thread(target=made().save, args=(state, 1)).start()\n", True),
        ("made().keep(state, 1)\n", False),
        ('torch.save(state, "x.pt")\nmade().save(1)\n', False),
        ("print(len(state), state.keys())\nmade().save(1)\n", False),
    ],
)
def test_a_mapping_that_goes_out_of_sight_is_told_where_something_asks_for_the_old_key(run: str, said: bool) -> None:
    helper = HELPER.replace("def save(state", "class Saver:\n  def save(self, state")
    train = apex(APEX_LOOP, tail=STATE + run)
    results = rewrite_files({"train.py": train, "helper.py": helper})
    assert '"scaler"' in (results["train.py"].after or "")
    assert results["helper.py"].after is None
    told = [f for f in results["helper.py"].findings if f.code == "AMP401"]
    assert {(f.status, f.review) for f in told} == ({("note", "review")} if said else set())
    assert all("hands out of sight" in f.message for f in told)


def test_a_helper_that_others_fill_with_something_else_keeps_the_key() -> None:
    other = 'from helper import save\n\nsave({"model": 1, "amp": settings()}, "out")\n'
    files = {"train.py": program(f'{STATE}save(state, "out")\n'), "helper.py": HELPER, "other.py": other}
    results = rewrite_files(files)
    assert 'state["amp"] = scaler.state_dict()' in (results["train.py"].after or "")
    assert results["helper.py"].after is None


def test_a_helper_of_two_migrated_programs_asks_for_the_one_new_key() -> None:
    saved = program(f'{STATE}save(state, "out")\n')
    results = rewrite_files({"one.py": saved, "two.py": saved, "helper.py": HELPER})
    assert all('state["scaler"]' in (results[name].after or "") for name in ("one.py", "two.py"))
    assert results["helper.py"].after == HELPER.replace('"amp"', '"scaler"')


def test_the_migrated_helper_writes_the_state(tmp_path: Path) -> None:
    results = rewrite_files({"train.py": program(f'{STATE}save(state, "out")\n'), "helper.py": HELPER})
    scope: dict[str, Any] = {}
    exec(compile(results["helper.py"].after or "", "helper.py", "exec"), scope)
    state = {"model": {}, "scaler": torch.amp.GradScaler("cpu").state_dict()}
    scope["save"](state, str(tmp_path))
    assert torch.load(tmp_path / "amp.pt")["scale"] == 65536.0
