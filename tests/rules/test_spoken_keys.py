"""A key that is spoken of apart from the mapping that has it: in a list that a loader is handed, a default, a variable."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files
from tests.rules.programs import APEX_LOOP, apex

KEEPER = """\
import torch


class Keeper:
    def __init__(self, model, **kept):
        self.model = model
        self.kept = kept

    def save(self, path):
        torch.save({key: value.state_dict() for key, value in self.kept.items()}, path)

    def load(self, path, names=None):
        checkpoint = torch.load(path)
        for name in self.kept if not names else names:
            if name in checkpoint:
                self.kept[name].load_state_dict(checkpoint.pop(name))

    def one(self, path, name):
        self.kept[name].load_state_dict(torch.load(path)[name])
"""
EXTRA = 'extra = {"epoch": 1}\nextra["amp"] = amp\nkeeper = Keeper(model, **extra)\n'


def program(tail: str) -> str:
    return apex(APEX_LOOP, tail=tail).replace("import torch\n", "import torch\nfrom keeper import Keeper\n", 1)


def after_and_codes(tail: str, keeper: str = KEEPER) -> tuple[str, list[tuple[str, str]]]:
    results = rewrite_files({"train.py": program(tail), "keeper.py": keeper})
    return results["train.py"].after or "", [(f.code, f.status) for f in results["train.py"].findings]


@pytest.mark.parametrize(
    "load",
    [
        'keeper.load("last.pt", names=["amp"])',
        'keeper.load("last.pt", ["amp"] if torch.cuda.is_available() else [])',
        'keeper.load("last.pt", ["model"] + ["amp"])',
        'names = ("model", "amp")\nkeeper.load("last.pt", names)',
        'names = ["model"]\nnames.append("amp")\nkeeper.load("last.pt", names)',
        'names = ["model"]\nnames += ["amp"]\nkeeper.load("last.pt", names)',
        'keeper.one("last.pt", "amp")',
        'for name in ["amp"]:\n    keeper.one("last.pt", name)',
        'def load(names=("amp",)):\n    keeper.load("last.pt", names)\n\n\nload()',
        'checkpoint = torch.load("last.pt")\nfor name in ["amp"]:\n    extra[name].load_state_dict(checkpoint[name])',
    ],
)
def test_a_loader_is_told_the_key_that_is_saved(load: str) -> None:
    after, codes = after_and_codes(f"{EXTRA}{load}\n")
    assert 'extra["scaler"] = scaler' in after
    assert '"amp"' not in after
    assert ("AMP401", "done") in codes


def test_a_keyword_that_becomes_a_key_is_one() -> None:
    after, _ = after_and_codes('keeper = Keeper(model, amp=amp)\nkeeper.load("last.pt", ["amp"])\n')
    assert "Keeper(model, scaler=scaler)" in after
    assert 'keeper.load("last.pt", ["scaler"])' in after


@pytest.mark.parametrize(
    "other",
    [
        'print("amp")',
        'choices = ["amp", "none"]\nprint(choices)',
        'settings = {"amp": 1}\nfor name in ["amp"]:\n    print(settings[name])',
    ],
)
def test_what_is_no_key_of_a_checkpoint_stays(other: str) -> None:
    after, codes = after_and_codes(f"{EXTRA}{other}\n")
    assert other in after
    assert not [c for c in codes if c[0] == "AMP401"]


def test_a_loader_out_of_sight_is_told() -> None:
    after, codes = after_and_codes(f'from outside import restore\n{EXTRA}restore(keeper, ["amp"])\n')
    assert 'restore(keeper, ["amp"])' in after
    assert ("AMP401", "note") in codes


def test_the_state_itself_is_found_by_its_key() -> None:
    tail = (
        'NAMES = ["amp"]\ntorch.save({"amp": amp.state_dict()}, "last.pt")\ncheckpoint = torch.load("last.pt")\n'
        "for name in NAMES:\n    print(checkpoint[name])\n"
    )
    after, _ = after_and_codes(tail)
    assert 'NAMES = ["scaler"]' in after


@pytest.mark.parametrize(
    "asks", ["for key in ['amp']:\n    print(found[key])\n", "names = ['amp']\nfor key in names:\n    del found[key]\n"]
)
def test_a_script_beside_the_program_stays(asks: str) -> None:
    saves = 'torch.save({"amp": amp.state_dict()}, "last.pt")\n'
    beside = f"import torch\n\nfound = torch.load('last.pt')\n{asks}"
    results = rewrite_files({"train.py": apex(APEX_LOOP, tail=saves), "strip.py": beside})
    assert results["strip.py"].after in (None, beside)
