from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, rewrite


@pytest.mark.parametrize(
    ("imported", "name", "code"),
    [
        ("apex.multi_tensor_apply", "multi_tensor_applier", "AMP642"),
        ("apex.RNN", "LSTM", "AMP643"),
        ("apex.reparameterization", "apply_weight_norm", "AMP643"),
        ("apex.contrib.xentropy", "SoftmaxCrossEntropyLoss", "AMP644"),
        ("apex.contrib.multihead_attn", "SelfMultiheadAttn", "AMP644"),
        ("apex.transformer.functional", "FusedScaleMaskSoftmax", "AMP644"),
        ("apex.mlp", "MLP", "AMP644"),
        ("apex.fused_dense", "FusedDense", "AMP644"),
    ],
)
def test_it_stays_and_is_reported(imported: str, name: str, code: str) -> None:
    result = check_manual(f"from {imported} import {name}\n\n\ndef build(x):\n    return {name}(x)\n", code)
    assert result.after is None
    assert result.status == "blocked"
    (finding,) = [f for f in result.findings if f.status == "manual"]
    assert finding.line == 5


@pytest.mark.parametrize("name", ["FusedLAMB", "FusedMixedPrecisionLamb", "FusedNovoGrad"])
def test_optimizers_that_apex_still_ships_stay(name: str) -> None:
    source = f"from apex.optimizers import {name}\n\n\ndef build(p):\n    return {name}(p)\n"
    result = rewrite(source)
    assert result.after is None
    assert result.status == "unchanged"
    assert [(f.line, f.code, f.status, f.review) for f in result.findings] == [(5, "AMP641", "note", "review")]


def test_a_kept_optimizer_is_stepped_through_the_scaler() -> None:
    result = rewrite(
        """
        import torch
        from apex import amp
        from apex.optimizers import FusedLAMB

        model = torch.nn.Linear(2, 2)
        optimizer = FusedLAMB(model.parameters())
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in data:
            loss = model(x).sum()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        """
    )
    assert result.status == "migrated"
    assert result.after is not None
    assert "from apex import amp" not in result.after
    assert "from apex.optimizers import FusedLAMB\n" in result.after
    assert "    scaler.step(optimizer)\n    scaler.update()\n" in result.after
    assert rewrite(result.after).after is None


def test_an_import_beside_a_kept_one_is_still_reported() -> None:
    source = """
        from apex.optimizers import FusedLAMB
        from apex.contrib import nothing_known

        optimizer = FusedLAMB(parameters)
        """
    findings = rewrite(source).findings
    assert [(f.line, f.status) for f in findings] == [(2, "note"), (4, "note")]


def test_what_has_a_counterpart_beside_it_is_rewritten() -> None:
    result = rewrite(
        """
        import torch
        from apex.optimizers import FusedAdam, FusedLAMB, FusedSGD

        def build(p, name):
            print(torch.__version__)
            if name == "lamb":
                return FusedLAMB(p)
            return FusedAdam(p, weight_decay=0.1) if name == "adam" else FusedSGD(p, lr=0.1)
        """
    )
    assert result.status == "migrated"
    assert result.after is not None
    assert "from apex.optimizers import FusedLAMB\n" in result.after
    assert "return FusedLAMB(p)\n" in result.after
    assert 'torch.optim.AdamW(p, weight_decay=0.1) if name == "adam" else torch.optim.SGD(p, lr=0.1)' in result.after
    assert rewrite(result.after).after is None
