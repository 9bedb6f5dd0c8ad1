"""A loss scale that is an item of settings which a checkpoint holds: they stay as they were given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.helpers import doubts_of
from tests.rules.helpers import rewrite_files, run_files, texts_of

MAIN = """
import json
import sys

import torch
from apex import amp
from keep import save


def main(settings, loader):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=settings["amp"]["scale"])
    for x in loader:
        loss = model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        optimizer.zero_grad()
    return save(model, settings)


print(json.dumps(main({"amp": {"scale": sys.argv[1] if sys.argv[1:] else "dynamic"}}, [torch.ones(1, 2)])))
"""
KEEP = """
import torch


def save(model, config):
    torch.save(STATE, "last.pt")
    return torch.load("last.pt")SHOWN
"""
WHOLE = ('{"config": config, "model": model.state_dict()}', '["config"]')
NONE = ('{"model": model.state_dict()}', '["model"]["bias"].shape')


def test_settings_that_are_saved_stay_what_they_were(tmp_path: Path) -> None:
    keep = KEEP.replace("STATE", WHOLE[0]).replace("SHOWN", WHOLE[1])
    results = rewrite_files({"main.py": MAIN, "keep.py": keep}, device="cpu")
    texts = texts_of(results)
    assert "GradScaler" in texts["main.py"]
    assert run_files(tmp_path, texts, "main.py") == {"amp": {"scale": "dynamic"}}


def test_settings_that_are_not_saved_may_hold_the_number() -> None:
    keep = KEEP.replace("STATE", NONE[0]).replace("SHOWN", NONE[1])
    assert 'settings["amp"]["scale"] = ' in (rewrite_files({"main.py": MAIN, "keep.py": keep})["main.py"].after or "")


@pytest.mark.parametrize(("state", "told"), [(WHOLE[0], True), (NONE[0], False)])
def test_the_audit_sees_it(state: str, told: bool) -> None:
    keep = KEEP.replace("STATE", state).replace("SHOWN", "")
    setup = (
        '    model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=settings["amp"]["scale"])\n'
    )
    made = '    settings["amp"]["scale"] = None\n    scaler = torch.amp.GradScaler("cuda")\n'
    after = MAIN.replace("from apex import amp\n", "").replace(setup, made)
    after = after.replace(
        "        with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()\n", "        pass\n"
    )
    found = doubts_of({"main.py": MAIN, "keep.py": keep}, {"main.py": after})
    assert any(d.code == "AMP134" and "saves what holds it" in d.message for d in found) is told


READ = """
import json
import sys


def read():
    with open(sys.argv[1]) as file:
        return json.load(file)
"""


def test_settings_of_another_program_that_one_function_reads_are_others(tmp_path: Path) -> None:
    """Each program reads a file of its own: what one saves says nothing of the other's."""
    keep = KEEP.replace("STATE", WHOLE[0]).replace("SHOWN", WHOLE[1])
    main = MAIN.replace("from keep import save\n", "from keep import save\nfrom settings import read\n")
    main = main[: main.index("print(")] + "print(json.dumps(main(read(), [torch.ones(1, 2)])))\n"
    other = main.replace("from keep import save\n", "").replace(
        "return save(model, settings)", "return model.bias.dtype.is_complex"
    )
    results = rewrite_files({"main.py": main, "other.py": other, "keep.py": keep, "settings.py": READ}, device="cpu")
    texts = texts_of(results)
    assert "GradScaler" in texts["main.py"]
    assert "GradScaler" in texts["other.py"]
    (tmp_path / "s.json").write_text('{"amp": {"scale": "dynamic"}}')
    run = 'import runpy, sys\nsys.argv[1:] = ["s.json"]\nrunpy.run_path("main.py", run_name="__main__")\n'
    assert run_files(tmp_path, {**texts, "run.py": run}, "run.py") == {"amp": {"scale": "dynamic"}}
