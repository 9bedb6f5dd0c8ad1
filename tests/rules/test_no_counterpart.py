from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import pytest
import torch

from tests.rules.helpers import check_manual, rewrite


@pytest.mark.parametrize(
    ("imported", "name", "code"),
    [
        ("apex.RNN", "LSTM", "AMP643"),
        ("apex.reparameterization", "apply_weight_norm", "AMP643"),
        ("apex.contrib.multihead_attn", "SelfMultiheadAttn", "AMP644"),
        ("apex.transformer.functional", "FusedScaleMaskSoftmax", "AMP644"),
        ("apex.contrib.unheard_of", "Fused", "AMP644"),
    ],
)
def test_it_stays_and_is_reported(imported: str, name: str, code: str) -> None:
    result = check_manual(f"from {imported} import {name}\n\n\ndef build(x):\n    return {name}(x)\n", code)
    assert result.after is None
    assert result.status == "blocked"
    (finding,) = [f for f in result.findings if f.status == "manual"]
    assert finding.line == 5


@pytest.mark.parametrize(
    ("part", "name", "half"),
    [("multihead_attn", "SelfMultiheadAttn", True), ("fmha", "FMHAFun", True), ("other", "X", False)],
)
def test_kernels_that_take_half_tensors_alone_are_told_as_such(part: str, name: str, half: bool) -> None:
    result = check_manual(
        f"from apex.contrib.{part} import {name}\n\n\ndef build(x):\n    return {name}(x)\n", "AMP644"
    )
    (finding,) = [f for f in result.findings if f.status == "manual"]
    assert ("half tensors alone" in finding.message) == half


@pytest.mark.parametrize(
    ("imported", "name", "said"),
    [
        ("apex.contrib.xentropy", "SoftmaxCrossEntropyLoss", "built with --xentropy"),
        ("apex.contrib.groupbn.batch_norm", "BatchNorm2d_NHWC", "built with --bnp"),
        ("apex.contrib.sparsity", "ASP", "it needs no apex.amp"),
        ("apex.contrib.optimizers.distributed_fused_adam", "DistributedFusedAdam", "built with --distributed_adam"),
        ("apex.mlp", "MLP", "Linear and ReLU"),
        ("apex.fused_dense", "FusedDense", "torch.nn.Linear"),
        ("apex.multi_tensor_apply", "multi_tensor_applier", "built with --cuda_ext"),
    ],
)
def test_parts_that_apex_still_ships_stay_with_a_note(imported: str, name: str, said: str) -> None:
    result = rewrite(f"from {imported} import {name}\n\n\ndef build(x):\n    return {name}(x)\n")
    assert result.after is None
    (finding,) = result.findings
    code = "AMP642" if "multi_tensor" in imported else "AMP644"
    assert (finding.line, finding.code, finding.status, finding.review) == (5, code, "note", "review")
    assert said in finding.message


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


GUARDED = """
    import torch

    try:
        from apex.optimizers import FusedAdam, FusedLAMB

        has_apex = True
    except ImportError:
        has_apex = False


    def build(p, name):
        if "fused" in name:
            assert has_apex and p, "fused optimizers need Apex"
        if name == "fusedadam":
            return FusedAdam(p)
        if name == "fusedlamb":
            return FusedLAMB(p)
        return FusedLAMB(p) if has_apex and p else torch.optim.SGD(p, lr=0.1)
"""


def test_questions_beside_others_still_guard_what_stays() -> None:
    """Without Apex the assertion fails and the choice falls on torch's, as before: nothing asks for a missing name."""
    after = rewrite(GUARDED).after
    assert after is not None
    assert "FusedAdam" not in after
    names: dict[str, Any] = {}
    with mock.patch.dict(sys.modules, {"apex": None, "apex.optimizers": None}):
        exec(after, names)
    p = [torch.nn.Parameter(torch.ones(1))]
    with pytest.raises(AssertionError, match="need Apex"):
        names["build"](p, "fusedlamb")
    assert type(names["build"](p, "any")) is torch.optim.SGD
    assert rewrite(after).after is None
