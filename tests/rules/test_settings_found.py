"""Settings of `initialize` that stand elsewhere: in an entry, a field, a return, a default, in branches that agree."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import apex

STEP = """
with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:
    scaled_loss.backward()
optimizer.step()
"""
FIELDS = "from dataclasses import dataclass\n\n\n@dataclass\nclass Config:\n    level: str = 'O1'\n    scale: float = 128.0\n\n\n"


def program(before: str, arguments: str) -> str:
    text = apex(STEP).replace("from apex import amp\n", f"from apex import amp\n{before}\n")
    return text.replace('opt_level="O1"', arguments).replace("'", '"')


@pytest.mark.parametrize(
    ("before", "level"),
    [
        ("def level(fast):\n    return 'O2' if fast else 'O1'", "level(True)"),
        ("class Run:\n    def __init__(self):\n        self.level = 'O1'\nrun = Run()", "run.level"),
        ("if fast:\n    level = 'O2'\nelse:\n    level = 'O1'", "level"),
        ("n = 1", "f'O{n}'"),
    ],
)
def test_a_level_that_is_known_needs_no_switch(before: str, level: str) -> None:
    result = rewrite(program(before, f"opt_level={level}"))
    assert result.after is not None
    assert 'scaler = torch.amp.GradScaler("cuda")\n' in result.after
    assert "enabled" not in result.after


@pytest.mark.parametrize(
    ("before", "level"),
    [
        ("settings = {'level': 'O1', 'seed': 3}", "settings['level']"),
        ("class Config:\n    level = 'O1'", "Config.level"),
        (f"{FIELDS}config = Config()", "config.level"),
        ("settings = {'level': 'O1'}\nif slow:\n    settings['level'] = 'O0'", "settings['level']"),
        ("settings = {'level': 'O1'}\nsettings.update(read())", "settings['level']"),
        (f"{FIELDS}config = Config(**read())", "config.level"),
        ("def level(fast):\n    return 'O1' if fast else read()", "level(True)"),
    ],
)
def test_a_level_that_may_be_O0_or_people_set_is_asked_for(before: str, level: str) -> None:
    result = rewrite(program(before, f"opt_level={level}"))
    assert result.after is not None
    assert f"enabled={level} != 'O0'".replace("'", '"') in result.after


@pytest.mark.parametrize(
    ("before", "scale", "made"),
    [
        ("class Run:\n    def __init__(self):\n        self.scale = 128\nrun = Run()", "run.scale", "init_scale=128.0"),
        ("def scale(n):\n    return 2.0 ** n", "scale(7)", "init_scale=128.0"),
        ("scale = None", "scale or 'dynamic'", ""),
        ("if fast:\n    scale = 'dynamic'\nelse:\n    scale = None", "scale", ""),
    ],
)
def test_a_scale_that_is_known(before: str, scale: str, made: str) -> None:
    result = rewrite(program(before, f'opt_level="O1", loss_scale={scale}'))
    assert result.after is not None
    assert f'scaler = torch.amp.GradScaler("cuda"{", " if made else ""}{made})\n' in result.after
    assert f"scaler.update({'128.0' if made else ''})" in result.after


HELPER = """
    from apex import amp
    from project import criterion, net, opt, x, y


    def prepare(model, optimizer, scale=None, level="O1"):
        return amp.initialize(model, optimizer, opt_level=level, loss_scale=scale)


    def main():
        model, optimizer = prepare(net, opt, {})
        with amp.scale_loss(criterion(model(x), y), optimizer) as loss:
            loss.backward()
        optimizer.step()
"""


def test_a_scale_that_every_call_leaves_dynamic_is_told() -> None:
    result = rewrite(HELPER.replace("{}", '"dynamic"'))
    assert result.after is not None
    assert "scaler.update()" in result.after
    assert 'enabled="O1" != "O0"' not in result.after
    said = [f.message for f in result.findings if f.code == "AMP114"]
    assert said == ["the scale is dynamic, as all that is in sight says of scale, which has no effect any more"]


def test_a_scale_that_a_call_passes_goes_where_the_scaler_goes() -> None:
    result = rewrite(HELPER.replace("{}", "256.0"))
    assert result.after is not None
    assert '    loss_scale = 256.0\n    scaler = torch.amp.GradScaler("cuda", init_scale=loss_scale)\n' in result.after
    assert "scaler.update(loss_scale)" in result.after


def test_a_level_that_is_O2_somewhere_else_asks_for_what_O2_does() -> None:
    result = rewrite(program("LEVELS = {'heavy': 'O2'}", "opt_level=LEVELS['heavy']"))
    assert result.after is not None
    assert "    scaler.update()\n    optimizer.zero_grad()\n" in result.after
    assert any(f.code == "AMP112" and "O2 kept float16 weights" in f.message for f in result.findings)
