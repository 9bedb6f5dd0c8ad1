"""A dictionary may hold what a model gave beside what the program had before: each entry is followed for itself."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts
from tests.audit.test_escapes import found

HOLDS = [
    "{'y': y, 'out': out}",
    "dict(y=y, out=out)",
    "{**y, 'out': out}",
    "{'y': y}; found['out'] = out",
    "{'y': y}; found.update({'out': out})",
    "y; found['out'] = out",
]


def shown(level: str, holds: str, what: str) -> list[Doubt]:
    function = "\ndef show(held):\n    print(held['y'].cpu().numpy())\n    WHAT\n".replace("WHAT", what)
    lines = f"found = {holds}".replace("; ", "\n    ") + "\n    show(found)" + function
    return found(level, lines)


@pytest.mark.parametrize("holds", HOLDS)
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_what_came_with_the_batch_is_not_the_models(level: str, holds: str) -> None:
    assert not shown(level, holds, "held['y'].cpu().numpy().mean()")


@pytest.mark.parametrize("holds", HOLDS)
@pytest.mark.parametrize(
    "what",
    ["held['out'].cpu().numpy().mean()", "held.get('out').cpu().numpy().mean()", "np.mean(held['out'].cpu().numpy())"],
)
def test_what_the_model_gave_still_is(holds: str, what: str) -> None:
    assert shown("O2", holds, what)


def test_an_entry_by_a_name_may_be_any() -> None:
    assert shown("O2", "{'y': y, 'out': out}", "[held[key].cpu().numpy() for key in held]")
    assert shown("O2", "{'y': y, 'out': out}", "[v.cpu().numpy() for v in held.values()]")
    assert shown("O2", "{'y': y, 'out': out}", "for k, v in held.items():\n        print(v.cpu().numpy())")


def test_an_entry_that_was_cast_is_float32() -> None:
    assert not shown("O2", "{'y': y, 'out': out.float()}", "print(held['out'].cpu().numpy())")
    assert shown("O2", "{'y': y, 'out': out} if x else {'out': out.float()}", "print(held['out'].cpu().numpy())")


def test_what_a_network_is_given_in_a_dictionary() -> None:
    """Float32 weights outside of a region take nothing half."""
    before = """
    import torch
    from apex import amp

    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for batch in loader:
        out = model(batch)
        kept = {'input': WHAT}
        model(**kept)
    """
    after = """
    import torch

    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(batch)
        kept = {'input': WHAT}
        model(**kept)
    """
    for what, told in (("out", True), ("batch", False)):
        said = [d for d in doubts(before.replace("WHAT", what), after.replace("WHAT", what)) if d.code == "AMP535"]
        assert bool(said) is told


def test_dictionaries_in_lists_and_pairs() -> None:
    for each in (
        "[{'y': y, 'out': out}, {'y': y}]",
        "({'y': y}, {'out': out, 'y': y})",
        "[{'y': y, 'out': out} for _ in x]",
    ):
        lines = f"kept = {each}\n    for held in kept:\n        print(held['y'].cpu().numpy())"
        assert not found("O2", lines)
        assert found("O2", lines.replace("held['y']", "held['out']"))
    assert found(
        "O2",
        "kept = {'out': out, 'y': y}\n    kept += 1\n    first, second = kept, kept\n    show(first)\n    np.sum(out)",
    )
    assert not found(
        "O2",
        "kept = {'out': out, 'y': y}\n    kept.pop()\n    kept.get(key='y')\n    kept.update()\n    print(kept[0:1])",
    )


def test_dictionaries_that_a_list_is_filled_with() -> None:
    for held in ("{'out': out}", "{'y': y, 'out': out}", "{'y': y, 'out': out}.copy()"):
        lines = f"kept = []\n    kept.append({held})\n    for held in kept:\n        print(held['out'].cpu().numpy())"
        assert found("O2", lines), held
        assert not found("O2", lines.replace("held['out']", "held['y']")), held


@pytest.mark.parametrize("given", ["self.head(x)", "self.parts(x)", "(x, self.parts(x))[1]"])
@pytest.mark.parametrize(
    "losses", ["{'loss': loss}", "{'loss': loss, 'second': loss}", "dict(loss=loss, second=2 * loss)"]
)
def test_a_network_that_gives_its_losses_in_training_gives_something_else_in_evaluation(
    losses: str, given: str
) -> None:
    before = f"""
    import numpy as np
    import torch
    from apex import amp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(4, 2)
            self.parts = build()

        def forward(self, x, y=None):
            if self.training:
                loss = torch.nn.functional.cross_entropy(self.head(x), y)
                return {losses}
            return {given}

    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    model.eval()
    for x in loader:
        out = model(x)
        np.save("out", out.cpu().numpy())
    """
    after = before.replace("    from apex import amp\n", "").replace(
        '    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n', ""
    )
    after = after.replace(
        "        out = model(x)",
        '        with torch.autocast("cuda", dtype=torch.float16):\n            out = model(x)',
    )
    assert [d for d in doubts(before, after) if d.code == "AMP535"]


def test_what_only_one_branch_puts_into_the_batch() -> None:
    lines = "kept = prepare(y)\n    if x.any():\n        kept['out'] = out\n    print(kept['y'].cpu().numpy())\n    "
    assert not found("O2", lines)
    always = lines.replace("if x.any():\n        kept", "kept")
    assert not found("O2", always)
    assert found("O2", f"{always}print(kept['out'].cpu().numpy())")
