"""What hangs on too much is unknown, is told in each file that changes, and holds up nothing else."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt, audit
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.values.values import Values

STEPS = "\n".join(f"def f{i}(x):\n    return f{i + 1}(g{i}(x))\ndef g{i}(x):\n    return [x][0]\n" for i in range(100))
BEFORE = f"""import torch
from apex import amp
{STEPS}
def f100(x):
    return x

net = f0(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
for x in data:
    optimizer.zero_grad()
    loss = net(x).sum()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
AFTER = (
    BEFORE.replace("from apex import amp\n", "")
    .replace('net, optimizer = amp.initialize(net, optimizer, opt_level="O1")', 'scaler = torch.amp.GradScaler("cuda")')
    .replace("    loss = net(x)", '    with torch.autocast("cuda", dtype=torch.float16):\n        loss = net(x)')
    .replace(
        "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n    optimizer.step()",
        "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()",
    )
)


def doubts(after: str) -> list[Doubt]:
    return audit({"train.py": BEFORE, "other.py": "import train\n"}, {"train.py": after})


def given_up(found: list[Doubt]) -> list[tuple[str, int, str]]:
    return [(d.path, d.line, d.verdict) for d in found if d.code == "AMP191" and "too much hangs on some" in d.message]


def test_what_is_not_followed_to_the_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doubts(AFTER) == []
    monkeypatch.setattr("amp_migrate.audit.values.table.ASKED", 60)
    found = doubts(AFTER)
    assert given_up(found) == [("train.py", 1, "review")]
    assert found == doubts(AFTER)  # counted, not timed


def test_the_checks_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amp_migrate.audit.values.table.ASKED", 60)
    found = doubts(AFTER.replace("    scaler.step(optimizer)\n", "    optimizer.step()\n"))
    assert "refuse" in {d.verdict for d in found}
    assert given_up(found)


def test_what_hangs_on_too_much_is_unknown_and_the_rest_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amp_migrate.audit.values.table.ASKED", 200)
    steps = "".join(f"def f{i}(x): return f{i + 1}(*x)\n" for i in range(300))
    values = Values(Program({"a.py": f"{steps}def f300(x): return 1\nlong = f0(y)\nnear = f299(y)\nother = 'O1'\n"}))
    module = values.program.modules["a.py"]
    given = {s.targets[0].id: s.value for s in module.tree.body[-3:]}  # type: ignore[attr-defined]
    assert values.constants(module.top, given["near"]) == {1}
    assert not values.gave_up
    (lost,) = values.of(module, given["long"])
    assert (lost.kind, lost.node) == ("unknown", given["long"])
    assert values.gave_up
    assert values.constants(module.top, given["near"]) == {1}
    assert values.constants(module.top, given["other"]) == {"O1"}
    assert values.constants(module.top, given["long"]) is None
