"""What is said of code that stays by hand: the reason, not only that there is one."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import APEX_LOOP, apex

TRAIN = """
    import torch
    from apex import amp

    def train(model, loader, criterion):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            loss = criterion(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        {}
    """


def test_a_call_that_hands_amp_to_a_function_without_a_place_for_it() -> None:
    program = TRAIN.format("save(model, 'a.pt', optimizer, amp)") + (
        "\n    def save(model, name):\n        torch.save(model.state_dict(), name)\n"
    )
    result = rewrite(program)
    assert result.after is not None
    assert "save(model, 'a.pt', optimizer, scaler)" in result.after
    assert "scaler.scale(loss).backward()" in result.after
    (told,) = [f for f in result.findings if f.code == "AMP102"]
    assert (told.status, told.review) == ("note", "review")
    assert "save takes 2 arguments and is given 4: this call raises a TypeError, as it did" in told.message


KEEPER = """
    import torch
    from apex import amp

    class Restorer:
        def save(self, path):
            torch.save({"amp": amp.state_dict()}, path)
    """


@pytest.mark.parametrize("name", ["a Restorer", "an ApexRestorer"])
def test_a_class_that_keeps_the_state_but_is_never_made(name: str) -> None:
    keeper = KEEPER.replace("Restorer", name.split()[1])
    files = {"one.py": TRAIN.format("return model"), "two.py": TRAIN.format("return model"), "restore.py": keeper}
    results = rewrite_files(files)
    (told,) = [f for f in results["restore.py"].findings if f.status == "manual"]
    assert f"nothing here makes {name}," in told.message
    assert results["one.py"].after is not None
    assert results["two.py"].after is not None


@pytest.mark.parametrize(
    ("asked", "quoted"),
    [
        ('keeper = vars(restore)["Restorer"]()', True),
        ("keeper = registry.get(config.keeper or 'Restorer')", True),
        ('print("a Restorer")', False),
        ('__all__ = ["Restorer"]', False),
    ],
)
def test_a_class_whose_name_is_in_quotes_may_be_made_by_it(asked: str, quoted: bool) -> None:
    """It is not said to be made nowhere, and not to be deleted."""
    programs = {name: TRAIN.format("return model") for name in ("one.py", "two.py")}
    files = {**programs, "restore.py": KEEPER, "ask.py": f"import restore\n{asked}\n"}
    (told,) = [f for f in rewrite_files(files)["restore.py"].findings if f.status == "manual"]
    assert ("ask.py:2 may ask for Restorer by its name" in told.message) is quoted
    assert ("delete the class" in told.message) is not quoted


@pytest.mark.parametrize("asked", ['[("restorer", Restorer), ("other", dict)]', "{1: Restorer}", "register(Restorer)"])
def test_a_class_that_is_a_value_may_be_made_of_it(asked: str) -> None:
    programs = {name: TRAIN.format("return model") for name in ("one.py", "two.py")}
    files = {**programs, "restore.py": KEEPER, "ask.py": f"from restore import Restorer\nkept = {asked}\n"}
    (told,) = [f for f in rewrite_files(files)["restore.py"].findings if f.status == "manual"]
    assert "ask.py:2 keeps Restorer as a value, and what makes one of it is out of sight" in told.message
    assert "delete" not in told.message


@pytest.mark.parametrize("amp", ["(found and amp)", "(None or amp)", "(found and (None or amp))"])
def test_a_module_that_an_expression_chooses_leaves_its_unit_whole(amp: str) -> None:
    """It is no question whether Apex is there: something is done with what comes out."""
    loop = APEX_LOOP.replace("optimizer.step()", f"clip({amp}.master_params(optimizer), 1.0)\noptimizer.step()")
    result = rewrite(apex(loop))
    assert result.after is None
    assert "AMP102" in [f.code for f in result.findings if f.status == "manual"]


@pytest.mark.parametrize(
    "scale", ["scaled = amp.scale_loss\nkeep(scaled)\nwith scaled(", "with (0, amp.scale_loss)[1]("]
)
def test_scale_loss_under_another_name_leaves_its_unit_whole(scale: str) -> None:
    more = "\nloss = criterion(model(y), x)\n" + APEX_LOOP.partition("optimizer.zero_grad()\n")[2]
    result = rewrite(apex(APEX_LOOP + more.replace("with amp.scale_loss(", scale)))
    assert result.after is None
    assert any(f.status == "manual" for f in result.findings)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("amp.scaler.LossScaler(2.0**14)", "apex.amp.scaler.LossScaler holds a loss scale of the program's own"),
        ("amp.state_dict()", "waits for train.py:9 (AMP404)"),
    ],
)
def test_a_site_with_an_obstacle_of_its_own_waits_for_no_other(name: str, told: str) -> None:
    source = f"""
        from apex import amp
        from apex.amp._amp_state import _amp_state


        def train(model, optimizer, loader):
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            own = {name}
            for x in loader:
                if any(s._has_overflow for s in _amp_state.loss_scalers):
                    print(own)
                loss = model(x).mean()
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
                optimizer.step()
        """
    found = rewrite(source).findings
    assert [f.line for f in found if f.code == "AMP404"] == [9]
    assert next(f.message for f in found if f.line == 7).startswith(told)
