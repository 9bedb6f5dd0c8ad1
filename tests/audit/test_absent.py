"""A scaler that a call leaves None is not read as an object, unless the program stopped there before."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of, told

BEFORE = """
    import torch
    from apex import amp

    def save(path, model, amp=None):
        state = {"model": model.state_dict()}
        if amp is not None:
            state["amp"] = amp.state_dict()
        torch.save(state, path)

    def train(model, optimizer, loader):
        model, optimizer = amp.initialize(model, optimizer)
        for x in loader:
            with amp.scale_loss(model(x), optimizer) as loss:
                loss.backward()
            optimizer.step()
        save("last.pt", model, amp)
"""
AFTER = """
    import torch

    def save(path, model, scaler=None):
        state = {"model": model.state_dict()}
        if TEST:
            state["scaler"] = scaler.state_dict()
        torch.save(state, path)

    def train(model, optimizer, loader):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            with torch.autocast("cuda"):
                loss = model(x)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        save("last.pt", model, scaler)
"""
OTHERS = {
    "leaves it out": 'save("first.pt", model)',
    "gives None": 'save("first.pt", model, None)',
    "gives None by name": 'save("first.pt", model, **{}) if model else save("first.pt", model, AMP=None)',
}


def other(call: str, name: str) -> str:
    return f"from train import save\n\ndef export(model):\n    {call.replace('AMP', name)}\n"


@pytest.mark.parametrize("call", OTHERS.values(), ids=OTHERS.keys())
def test_a_call_without_a_scaler_where_it_is_asked_at_once(call: str) -> None:
    after = AFTER.replace("TEST", "scaler.is_enabled()")
    found = doubts_of(
        {"train.py": BEFORE, "export.py": other(call, "amp")}, {"train.py": after, "export.py": other(call, "scaler")}
    )
    assert told(found, "AMP136") == [(5, "refuse")]


@pytest.mark.parametrize("test", ["scaler is not None and scaler.is_enabled()", "scaler", "not (scaler is None)"])
def test_a_scaler_that_is_asked_for_first(test: str) -> None:
    found = doubts_of(
        {"train.py": BEFORE, "export.py": other(OTHERS["leaves it out"], "amp")},
        {"train.py": AFTER.replace("TEST", test)},
    )
    assert told(found, "AMP136") == []


def test_a_none_that_is_handed_on() -> None:
    def more(name: str) -> str:
        return f"""
    def checkpoint(model, best, {name}=None):
        save("last.pt", model, {name})

    def export(model):
        checkpoint(model, True)
"""

    found = doubts(BEFORE + more("amp"), AFTER.replace("TEST", "scaler.is_enabled()") + more("scaler"))
    assert told(found, "AMP136") == [(5, "refuse")]


STEP = """
    def step(loss, optimizer=None, SCALER):
        if optimizer is None:
            return
        BODY

    def probe(loss):
        step(loss)
"""


def test_a_none_that_never_comes_so_far() -> None:
    """The scaler goes where the optimizer goes, and both are left out together."""
    before = STEP.replace("SCALER", "verbose=False").replace("BODY", "optimizer.step()")
    after = STEP.replace("SCALER", "scaler=None").replace("BODY", "scaler.step(optimizer)")
    assert told(doubts(BEFORE + before, AFTER.replace("TEST", "scaler") + after), "AMP136") == []


def test_a_call_that_stopped_there_before() -> None:
    before = BEFORE.replace("        if amp is not None:\n            state", "        if True:\n            state")
    after = AFTER.replace("TEST", "scaler.is_enabled()")
    found = doubts_of({"train.py": before, "export.py": other(OTHERS["leaves it out"], "amp")}, {"train.py": after})
    assert told(found, "AMP136") == []


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("if scaler.is_enabled() and model:\n            pass", True),
        ("if model and scaler.is_enabled():\n            pass", True),
        ("if scaler and scaler.is_enabled():\n            pass", False),
        ("state = scaler.state_dict() if path else None", False),  # the path is None here
        ("state = scaler.state_dict() if model else None", True),
        ("state = None if path else scaler.state_dict()", True),
        ("state = scaler.state_dict() if scaler else None", False),
        ("state = None if scaler is None else scaler.state_dict()", False),
        ("state = model and (None if model else scaler.state_dict())", False),
        ("def later():\n            return scaler.state_dict()", False),
        ("states = [scaler.state_dict() for _ in path]", False),
        ("for state in scaler.states():\n            pass", True),
        ("while scaler.is_enabled():\n            pass", True),
        ("with scaler.lock():\n            pass", True),
    ],
)
def test_what_is_read_where_a_scaler_is_left_out(body: str, wanted: bool) -> None:
    before = "\n    def save(path, model):\n        pass\n\n    def export(model):\n        save(None, model)\n"
    after = before.replace("(path, model)", "(path, model, scaler=None)").replace("pass", body, 1)
    found = doubts(BEFORE.replace("save(", "keep(") + before, AFTER.replace("save(", "keep(") + after)
    assert [d.code for d in found if d.code in ("AMP136", "AMP191")] == (["AMP136"] if wanted else [])


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("save(path, model, scaler)", True),
        ("save(*path, scaler)", False),  # what arrives where is not known
        ("save(path, model)", True),
        ("save(None, model, scaler)", False),  # returns before it reads
        ("save(scaler, model, scaler)", False),
    ],
)
def test_what_is_handed_on_beside_a_scaler_that_is_left_out(call: str, wanted: bool) -> None:
    before = """
    def save(path, model):
        if path is None:
            return

    def checkpoint(model, path):
        save(path, model)

    def export(model, path):
        checkpoint(model, path)
"""
    after = before.replace("save(path, model)\n\n", f"{call}\n\n").replace(
        "(path, model):", "(path, model, scaler=None):"
    )
    after = after.replace("(model, path):", "(model, path, scaler=None):", 1)
    after = after.replace("return\n", "return\n        torch.save(scaler.state_dict(), path)\n")
    found = doubts(BEFORE.replace("save(", "keep(") + before, AFTER.replace("save(", "keep(") + after)
    assert [d.code for d in found if d.code in ("AMP136", "AMP191")] == (["AMP136"] if wanted else [])


def test_a_none_that_five_functions_hand_on() -> None:
    names = ["first", "second", "third", "fourth"]
    handed = "".join(
        f"\n    def {one}(AMP=None):\n        {other}(AMP)\n"
        for one, other in zip(names, [*names[1:], "last"], strict=True)
    )
    before = handed + "\n    def last(AMP):\n        if AMP is not None:\n            print(AMP.state_dict())\n"
    after = handed + "\n    def last(AMP):\n        print(AMP.state_dict())\n"
    call = "\n    def show():\n        first()\n"
    found = doubts(BEFORE + (before + call).replace("AMP", "amp"), AFTER + (after + call).replace("AMP", "scaler"))
    assert [d.message for d in found if d.code == "AMP136"] == [
        "scaler.state_dict is read here, and train.py:35 calls first() without scaler"
    ]


class TestMethods:
    BEFORE = """
    class Store:
        def write_state(self, model, amp=None):
            if amp is not None:
                print(amp.state_dict())

    def export(store, model):
        store.write_state(model)
"""

    def found(self, after: str) -> list[str]:
        told = doubts(BEFORE + self.BEFORE, AFTER.replace("TEST", "scaler") + after)
        return [d.verdict for d in told if d.code == "AMP136"]

    def test_a_method_of_that_name_may_be_of_another_object(self) -> None:
        after = self.BEFORE.replace(
            "if amp is not None:\n                print(amp", "if True:\n                print(scaler"
        )
        after = after.replace("amp=None", "scaler=None")
        assert self.found(after) == []
        assert self.found(after.replace("(store, model):", "(model):\n        store = Store()")) == ["refuse"]


def test_of_more_paths_than_are_told_apart_nothing_is_claimed() -> None:
    """The read needs a path, which the call leaves None: on no path is it reached."""
    tests = "".join(f"        if model.flag{i}:\n            model.run()\n" for i in range(12))
    body = f"{tests}        if scaler is None and path is not None:\n            print(scaler.state_dict())\n"
    before = f"\n    def keep(path, model, amp=None):\n{tests}\n    def export(model):\n        keep(None, model)\n"
    after = f"\n    def keep(path, model, scaler=None):\n{body}\n    def export(model):\n        keep(None, model)\n"
    assert told(doubts(BEFORE + before, AFTER.replace("TEST", "scaler") + after), "AMP136") == []
