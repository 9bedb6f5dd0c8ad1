"""The switch is read where its names still hold what it was asked of: not of a name that holds another thing by then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, run_files

SCRIPT = """
    import argparse
    import json

    import torch
    from apex import amp


    def epoch(config, *, model, optimizer, loader, **_):
        {first}
        for x in loader:
            loss = model(x).pow(2).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        return loss.item()


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--level", default="O1", choices=["O0", "O1"])
        parser.add_argument("--steps", type=int, default=2)
        config = parser.parse_args()
        {level}
        {anew}
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level={given})
        {later}
        settings = {{"model": model, "optimizer": optimizer, "loader": [torch.ones(2, 4)] * 2}}
        print(json.dumps(epoch(config, **settings)))


    if __name__ == "__main__":
        main()
    """


def enabled(tmp_path: Path, *, run: bool = True, **parts: str) -> list[str]:
    """The switches of the regions, in a program that ran once it was migrated."""
    filled = {
        "first": "model.train()",
        "level": "level = config.level",
        "anew": "pass",
        "given": "level",
        "later": "pass",
    }
    texts = check_files({"train.py": SCRIPT.format(**{**filled, **parts})})
    if run:
        assert isinstance(run_files(tmp_path, texts, "train.py"), float)
    regions = [line for line in texts["train.py"].splitlines() if "autocast(" in line]
    return [line.rpartition("enabled=")[2].rstrip("):") for line in regions]


@pytest.mark.parametrize(
    "parts",
    [
        {"anew": 'config = {"steps": config.steps}'},
        {"anew": "config = vars(config)"},
        {"later": "config = dict(steps=config.steps)", "given": "config.level"},
        {"anew": "config = vars(config) if config.steps > 1 else config"},
        {"first": "config = vars(config)", "given": "config.level"},
    ],
)
def test_a_name_that_holds_another_thing_is_not_asked(tmp_path: Path, parts: dict[str, str]) -> None:
    assert enabled(tmp_path, **parts) == ["scaler.is_enabled("]


@pytest.mark.parametrize(
    "parts",
    [
        {"given": "config.level"},
        {"given": "config.level", "level": "config = checked(config)"},
        {"given": "config.level", "later": "settings = vars(config)"},
    ],
)
def test_a_name_that_holds_the_same_is(tmp_path: Path, parts: dict[str, str]) -> None:
    assert enabled(tmp_path, run="checked" not in str(parts), **parts) == ['config.level != "O0"']


def test_a_loop_in_the_same_function(tmp_path: Path) -> None:
    source = SCRIPT.format(
        first="model.train()", level="pass", anew="pass", given="config.level", later="config = vars(config)"
    )
    loop = "model(torch.ones(2, 4)).pow(2).mean()\n"
    source = source.replace(
        "        settings = ", f"        out = {loop}        print(out.item())\n        settings = "
    )
    texts = check_files({"train.py": source})
    run_files(tmp_path, texts, "train.py")
    assert "enabled=config.level" not in texts["train.py"].partition("config = vars(config)")[2]
