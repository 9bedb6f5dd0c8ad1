"""The small training script that most tests of the rules vary: what it is under Apex, and what becomes of it."""

from __future__ import annotations

import textwrap
from typing import Any

from amp_migrate.findings import FileResult, Finding
from tests.rules.helpers import check_manual

INITIALIZE = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
SCALER = 'scaler = torch.amp.GradScaler("cuda")'
MODEL = "model = build()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"

APEX_LOOP = """
loss = criterion(model(x), y)
optimizer.zero_grad()
with amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
optimizer.step()
"""
NATIVE_LOOP = """
with torch.autocast("cuda", dtype=torch.float16):
    loss = criterion(model(x), y)
optimizer.zero_grad()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
"""
UNSCALED_LOOP = """
with torch.autocast("cuda", dtype=torch.float16):
    loss = criterion(model(x), y)
optimizer.zero_grad()
loss.backward()
optimizer.step()
"""

# A model that is made half, and set up further down `WHERE` something holds; the audit may name who calls `train`.
HALVED = """
import torch
from apex import amp

def train(args, model, optimizer, loader):
    for x, y in loader:
        loss = (model(x) - y).pow(2).mean()
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

def main(args, loader):
    model = torch.nn.Linear(2, 2)
    if args.fp16:
        model.half()
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if WHERE:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    train(args, model, optimizer, loader)

if __name__ == "__main__":
    main(parse(), batches())
"""


def _script(imports: str, model: str, prepare: str, loop: str, tail: str) -> str:
    def block(text: str) -> str:
        text = textwrap.dedent(text).strip("\n")
        return f"{text}\n" if text else ""

    return (
        f"import torch\n{block(imports)}\nfrom project import build, criterion, loader\n\n"
        f"{block(model)}{block(prepare)}\nfor x, y in loader:\n{textwrap.indent(block(loop), '    ')}{block(tail)}"
    )


def apex(
    loop: str = APEX_LOOP,
    prepare: str = INITIALIZE,
    *,
    imports: str = "from apex import amp",
    model: str = MODEL,
    tail: str = "",
) -> str:
    """A script that trains with Apex; each part can be replaced."""
    return _script(imports, model, prepare, loop, tail)


def native(
    loop: str = NATIVE_LOOP, prepare: str = SCALER, *, imports: str = "", model: str = MODEL, tail: str = ""
) -> str:
    """The same script, migrated."""
    return _script(imports, model, prepare, loop, tail)


def initialize(arguments: str) -> str:
    """`amp.initialize` with arguments after model and optimizer."""
    return f"model, optimizer = amp.initialize(model, optimizer, {arguments})"


def found(result: FileResult, code: str) -> list[Finding]:
    """The findings under a code."""
    return [finding for finding in result.findings if finding.code == code]


def check_refused(source: str, code: str, **options: Any) -> FileResult:
    """Assert that a program is left as it is, every Apex site reported and one under this code."""
    result = check_manual(source, code, **options)
    assert result.after is None
    assert result.status == "blocked"
    return result
