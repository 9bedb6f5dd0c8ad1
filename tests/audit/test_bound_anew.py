"""Attributes that a migration reads of a name which holds a container of Python by then: nothing else says so in a run."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides, told

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

  - def epoch(config, *, model, optimizer, loader, **_):
  + def epoch(config, scaler, *, model, optimizer, loader, **_):
        for x in loader:
  -         loss = model(x).mean()
  -         with amp.scale_loss(loss, optimizer) as scaled:
  -             scaled.backward()
  -         optimizer.step()
  +         with torch.autocast("cuda", dtype=torch.float16, enabled={asked}):
  +             loss = model(x).mean()
  +         scaler.scale(loss).backward()
  +         scaler.step(optimizer)
  +         scaler.update()

    def main(parser, model, optimizer, loader):
        config = parser.parse_args()
        level = config.level
        {anew}
  -     model, optimizer = amp.initialize(model, optimizer, opt_level=level)
  +     scaler = torch.amp.GradScaler("cuda", enabled=level != "O0")
        epoch({given})

    main(parser, model, optimizer, loader)
""")
SPREAD = "config, **config"
PLAIN = "config, model=model, optimizer=optimizer, loader=loader"


def found(anew: str, given: str, asked: str = 'config.level != "O0"') -> list[tuple[int, str]]:
    now = given.replace("config, ", "config, scaler, ", 1)
    before, after = BEFORE.format(anew=anew, given=given), AFTER.format(anew=anew, given=now, asked=asked)
    return told(doubts(before, after), "AMP131")


@pytest.mark.parametrize(
    ("anew", "given"),
    [
        ('config = {"steps": config.steps, "model": model, "optimizer": optimizer, "loader": loader}', SPREAD),
        ("config = vars(config)", PLAIN),
        ("config = dict(steps=config.steps)", PLAIN),
        ("config = {k: v for k, v in vars(config).items()}", PLAIN),
    ],
)
def test_a_mapping_has_no_attributes(anew: str, given: str) -> None:
    assert found(anew, given) == [(5, "refuse")]
    assert not found(anew, given, "scaler.is_enabled()")


@pytest.mark.parametrize("anew", ["settings = vars(config)", "config = check(config)", "config.steps = 3"])
def test_what_may_have_them_is_left_alone(anew: str) -> None:
    assert not found(anew, PLAIN)


OF_ITS_TYPE = """
    def eased(given):
        if isinstance(given, {first}):
            return {gives}
        elif isinstance(given, list):
            return [eased(g) for g in given]
        return given

    def main("""


@pytest.mark.parametrize(("first", "gives"), [("dict", "Eased(given)"), ("tuple", "{}")])
def test_what_a_function_gives_for_one_type_is_not_what_it_gives_for_another(first: str, gives: str) -> None:
    helper = OF_ITS_TYPE.format(first=first, gives=gives)
    now = PLAIN.replace("config, ", "config, scaler, ", 1)
    before, after = (
        text.format(anew="config = eased(config)", given=given, asked='config.level != "O0"').replace(
            "    def main(", helper.lstrip("\n"), 1
        )
        for text, given in ((BEFORE, PLAIN), (AFTER, now))
    )
    assert not told(doubts(before, after), "AMP131")


def test_one_branch_is_enough() -> None:
    assert found("if isinstance(config, Config): config = vars(config)", PLAIN) == [(5, "refuse")]
    assert found("if config.plain: config = vars(config)", PLAIN) == [(5, "refuse")]


def test_a_parameter_that_is_bound_anew() -> None:
    head = "    def epoch(config, *, model, optimizer, loader, **_):\n"
    before = BEFORE.format(anew="pass", given=PLAIN).replace(head, head + "        config = vars(config)\n")
    now = PLAIN.replace("config, ", "config, scaler, ", 1)
    head = "    def epoch(config, scaler, *, model, optimizer, loader, **_):\n"
    after = AFTER.format(anew="pass", given=now, asked='config.level != "O0"')
    after = after.replace(head, head + "        config = vars(config)\n")
    assert told(doubts(before, after), "AMP131") == [(6, "refuse")]
