"""Regions that are run inside one of the program's own, which they must not switch off; parts of a model run from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

NETS = """
    import torch


    class Split(torch.nn.Module):
        def __init__(self, still, moving, decoder):
            super().__init__()
            self.FIELD = still
            self.moving = moving
            self.decoder = decoder

        def forecast(self, x, code):
            return self.decoder(self.moving(x) + code)
    """
TRAIN = """
    import torch
    from apex import amp

    seen = []


    def invariance(net, cond, target):
        first = net.FIELD(cond)
        second = net.FIELD(target)
        seen.append(str(second.dtype))
        out = net.decoder(net.moving(cond) + first)
        return torch.nn.functional.mse_loss(out, target), first, second


    def train(loader, net, optimizer, use_apex):
        if use_apex:
            net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
        for cond, target in loader:
            optimizer.zero_grad()
            loss, first, second = invariance(net, cond, target)
            loss = loss + (first - second).pow(2).mean()
            out = net.forecast(cond, first)
            seen.append(str(out.dtype))
            loss = loss + torch.nn.functional.mse_loss(out, target)
            if use_apex:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
    """
MAIN = """
    import argparse
    import contextlib
    import json

    import torch

    import train
    from nets import Split

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--apex", action="store_true")
        parser.add_argument("--native", action="store_true")
        args = parser.parse_args(ASKED)
        net = Split(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loader = [(torch.ones(2, 4), torch.zeros(2, 4))]
        with OWN:
            train.train(loader, net, optimizer, args.apex)
        print(json.dumps(train.seen))
    """
CHOSEN = 'torch.autocast("cpu", dtype=torch.bfloat16) if args.native else contextlib.nullcontext()'
SWITCHED = 'torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.native)'
OTHER = 'torch.autocast("cpu", dtype=torch.float16, enabled=args.native)'
CPU = {"device": "cpu", "dtype": "bfloat16"}


def program(own: str, asked: list[str] | None = None, field: str = "still") -> dict[str, str]:
    files = {"nets.py": NETS, "train.py": TRAIN, "main.py": MAIN}
    fill = {"OWN": own, "ASKED": str(asked or []), "FIELD": field}
    for old, new in fill.items():
        files = {name: text.replace(old, new) for name, text in files.items()}
    return files


@pytest.mark.parametrize("own", [CHOSEN, SWITCHED])
@pytest.mark.parametrize(("asked", "dtype"), [(["--native"], "bfloat16"), (["--apex"], "bfloat16"), ([], "float32")])
def test_a_region_leaves_on_what_the_program_switched_on_around_it(
    tmp_path: Path, own: str, asked: list[str], dtype: str
) -> None:
    after = check_files(program(own, asked), **CPU)
    assert after["train.py"].count('torch.is_autocast_enabled("cpu")') == 1
    assert run_files(tmp_path, after, "main.py") == [f"torch.{dtype}"] * 2


@pytest.mark.parametrize("own", [CHOSEN, SWITCHED])
def test_what_is_left_on_is_not_told_of(own: str) -> None:
    results = rewrite_files(program(own), **CPU)
    assert not {f.code for r in results.values() for f in r.findings} & {"AMP531", "AMP532"}


def test_a_region_of_another_type_is_told_of() -> None:
    (first, *_) = [f for f in rewrite_files(program(OTHER), **CPU)["train.py"].findings if f.code == "AMP532"]
    assert first.message.endswith("Enter none where that one is on")
    (told, *_) = [f for f in rewrite_files(program(OTHER), **CPU)["train.py"].findings if f.code == "AMP531"]
    assert "in the program's own region where not apex and native" in told.message


@pytest.mark.parametrize("own", ["contextlib.nullcontext()", 'torch.autocast("cpu", enabled=args.apex)'])
def test_a_region_that_switches_none_off_asks_its_own_switch_alone(own: str) -> None:
    assert "is_autocast_enabled" not in check_files(program(own), **CPU)["train.py"]


@pytest.mark.parametrize("field", ["still", "Still", "S"])
def test_a_part_of_a_model_is_run_in_the_region_whatever_its_name(tmp_path: Path, field: str) -> None:
    after = check_files(program("contextlib.nullcontext()", ["--apex"], field), **CPU)
    assert run_files(tmp_path, after, "main.py") == ["torch.bfloat16"] * 2


def test_a_region_that_joins_a_with_statement_leaves_on_as_well(tmp_path: Path) -> None:
    files = program(CHOSEN, ["--native"])
    files["train.py"] = files["train.py"].replace(
        "            optimizer.step()\n",
        """            optimizer.step()
            with torch.no_grad():
                seen.append(str(net.forecast(cond, 0).dtype))
""",
    )
    after = check_files(files, **CPU)
    assert after["train.py"].count('torch.is_autocast_enabled("cpu")') == 2
    assert run_files(tmp_path, after, "main.py") == ["torch.bfloat16"] * 3
