"""Messages that stand beside an import of Apex, and say something else."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts
from tests.rules.helpers import check_rewrite

BEFORE = """
    import logging

    import torch

    logger = logging.getLogger(__name__)


    def main(args, model, optimizer, loader):
        if args.fp16:
            try:
                from apex import amp
                MESSAGE
            except ImportError:
                raise ImportError("install apex")
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in loader:
            loss = model(x).sum()
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    """
AFTER = """
    import logging

    import torch

    logger = logging.getLogger(__name__)


    def main(args, model, optimizer, loader):
        scaler = torch.amp.GradScaler("cuda", enabled=bool(args.fp16))
        KEPTfor x in loader:
            with torch.autocast("cuda", dtype=torch.float16, enabled=bool(args.fp16)):
                loss = model(x).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    """


@pytest.mark.parametrize("message", ['logger.info("16-bit training")', 'print("half the memory", flush=True)'])
def test_what_is_said_of_something_else_stays(message: str) -> None:
    kept = f"if args.fp16:\n            {message}\n        "
    check_rewrite(BEFORE.replace("MESSAGE", message), AFTER.replace("KEPT", kept))


@pytest.mark.parametrize("message", ['logger.info("apex is here")', 'print("amp found")', "pass"])
def test_what_is_said_of_apex_goes_with_it(message: str) -> None:
    check_rewrite(BEFORE.replace("MESSAGE", message), AFTER.replace("KEPT", ""))


@pytest.mark.parametrize(
    ("message", "told"), [('logger.info("16-bit training")', ["look"]), ('logger.info("apex is here")', [])]
)
def test_the_audit_misses_it(message: str, told: list[str]) -> None:
    found = doubts(BEFORE.replace("MESSAGE", message), AFTER.replace("KEPT", ""))
    assert [d.verdict for d in found if d.code == "AMP134"] == told
