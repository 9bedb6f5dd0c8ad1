"""What the block of scale_loss did at O0 besides scaling is done there still (AMP532)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp


    def train(args, model, optimizer, loader):
  -     native = args.fp16 and args.level is None
  -     apex = args.fp16 and args.level is not None
  -     if apex:
  -         model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
  +     native = args.fp16 and args.level != "O0"
        scaler = torch.amp.GradScaler("cuda", enabled=native)
        for x, y in loader:
            with torch.autocast("cuda", enabled=native):
                loss = (model(x) - y).mean()
  -         if apex:
  -             with amp.scale_loss(loss, optimizer) as scaled:
  -                 scaled.backward()
  -                 CALL
  -         elif native:
  +         if native:
                scaler.scale(loss).backward()
                CALL
            else:
                loss.backward()
            if PLAIN:
                CALL
            scaler.step(optimizer)
            scaler.update()
    """)


def _texts(call: str, plain: str = "not args.fp16") -> tuple[str, str]:
    before, after = (text.replace("CALL", call) for text in (BEFORE, AFTER))
    return before.replace("PLAIN", "not args.fp16"), after.replace("PLAIN", plain)


@pytest.mark.parametrize("call", ["optimizer.synchronize()", "exchange(model)"])
@pytest.mark.parametrize(
    ("plain", "told"), [("not args.fp16", True), ("not native", False), ("True", False), ("args.level != 'O0'", True)]
)
def test_a_call_beside_the_backward(call: str, plain: str, told: bool) -> None:
    found = [d for d in doubts(*_texts(call, plain)) if d.code == "AMP532"]
    assert bool([d for d in found if f"{call} ran at O0" in d.message]) is told


@pytest.mark.parametrize("clip", ["clip_grad_norm_", "clip_grad_value_"])
def test_what_reads_gradients_is_left_to_others(clip: str) -> None:
    call = f"torch.nn.utils.{clip}(model.parameters(), 1.0)"
    assert not [d for d in doubts(*_texts(call)) if "ran at O0" in d.message]


def test_a_level_that_is_never_o0() -> None:
    before, after = _texts("exchange(model)")
    before = before.replace("opt_level=args.level", 'opt_level="O1"')
    after = after.replace('args.level != "O0"', "True")
    assert not [d for d in doubts(before, after) if "ran at O0" in d.message]
