"""Masks, labels and counts that a network gives beside its outputs, each under a key: whole numbers, which nothing casts."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import torch
from apex import amp


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        images, masks = [], []
        for _ in range(3):
            y = self.layer(x)
            images.append(y)
            masks.append({mask})
        images = torch.stack(images, 0)
        masks = {whole}
        return {{"images": images, "mask": masks}}


def main(batches):
    model = Decoder().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in batches:
        out = model(x)
        loss = torch.nn.functional.mse_loss(out["images"], y)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        mask = out["mask"]
        print({use}, out["images"].detach().cpu().numpy().dtype)


main([(torch.ones(4, 4).cuda(), torch.ones(3, 4, 4).cuda())])
"""
STACKED = "torch.stack(masks, 0)"


@pytest.mark.parametrize("use", ["mask.cpu().numpy()", 'out["mask"].cpu().numpy()', "mask.sum(dim=(-1, -2))"])
@pytest.mark.parametrize(
    ("mask", "whole"),
    [
        ("y > 0", STACKED),
        ("(y.sum(-1) > 0).detach().squeeze(0)", STACKED),
        ("(y > 0) & (y < 3)", "torch.cat(masks)"),
        ("~(y > 0)", STACKED),
        ("torch.isnan(y)", STACKED),
        ("y.argmax(-1)", STACKED),
        ("y", "images > 0"),
        ("y", "torch.logical_and(images > 0, x > 0)"),
        ("y", "torch.stack([y > 0, y.isfinite()])"),
    ],
)
def test_what_holds_whole_numbers_is_not_cast(mask: str, whole: str, use: str) -> None:
    result = rewrite(PROGRAM.format(mask=mask, whole=whole, use=use))
    assert not [f for f in result.findings if f.status == "manual" or f.code == "AMP535"]
    assert use in (result.after or "")


def test_an_output_under_a_key_is_float32_for_numpy() -> None:
    result = rewrite(PROGRAM.format(mask="y", whole=STACKED, use="mask.cpu().numpy()"))
    assert "mask.float().cpu().numpy()" in (result.after or "")
    assert not [f for f in result.findings if f.status == "manual"]
