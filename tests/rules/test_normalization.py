from __future__ import annotations

from typing import Any

import pytest

from amp_migrate.rules.parts import normalization
from tests.rules.helpers import check_manual, check_rewrite, check_untouched, names_of, rewrite, rewrite_files


@pytest.mark.parametrize("example", [e for c in normalization.CODES for e in c.examples])
def test_the_documented_examples_hold(example: Any) -> None:
    check_rewrite(example.before, example.after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FusedLayerNorm(8)", "nn.LayerNorm(8)"),
        ("FusedLayerNorm(8, 1e-6, True, True)", "nn.LayerNorm(8, 1e-6, True)"),
        (
            "FusedLayerNorm(8, elementwise_affine=False, memory_efficient=True)",
            "nn.LayerNorm(8, elementwise_affine=False)",
        ),
        ("MixedFusedLayerNorm((2, 8), eps=1e-6)", "nn.LayerNorm((2, 8), eps=1e-6)"),
        ("MixedFusedLayerNorm(8, 1e-5, sequence_parallel_enabled=False)", "nn.LayerNorm(8, 1e-5)"),
        ("MixedFusedLayerNorm(8, eps=1e-5, elementwise_affine=True)", "nn.LayerNorm(8, eps=1e-5)"),
        ("FusedRMSNorm(8)", "nn.RMSNorm(8, eps=1e-5)"),
        ("FusedRMSNorm(8, 1e-6)", "nn.RMSNorm(8, 1e-6)"),
        ("MixedFusedRMSNorm(8, eps=1e-6, memory_efficient=False)", "nn.RMSNorm(8, eps=1e-6)"),
    ],
)
def test_layers(before: str, after: str) -> None:
    name = before.partition("(")[0]
    result = check_rewrite(
        f"from torch import nn\nfrom apex.normalization import {name}\n\nhead = nn.Linear(8, 8)\nnorm = {before}\n",
        f"from torch import nn\n\nhead = nn.Linear(8, 8)\nnorm = {after}\n",
    )
    assert result.after is not None
    space: dict[str, Any] = {}
    exec(compile(result.after, "model.py", "exec"), space)
    assert space["norm"].eps in (1e-5, 1e-6)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("fused_layer_norm(x, shape)", "layer_norm(x, shape, eps=1e-6)"),
        ("fused_layer_norm(x, shape, eps)", "layer_norm(x, shape, eps=eps)"),
        ("fused_layer_norm_affine(x, w, b, shape, eps)", "layer_norm(x, shape, w, b, eps)"),
        ("mixed_dtype_fused_layer_norm_affine(x, w, b, shape, eps, True)", "layer_norm(x, shape, w, b, eps)"),
        (
            "fused_layer_norm_affine(input=x, bias=b, weight=w, normalized_shape=shape)",
            "layer_norm(input=x, normalized_shape=shape, weight=w, bias=b, eps=1e-6)",
        ),
        ("fused_rms_norm(x, shape, eps)", "rms_norm(x, shape, eps=eps)"),
        ("fused_rms_norm_affine(x, w, shape)", "rms_norm(x, shape, w, eps=1e-6)"),
        ("FusedLayerNormAffineFunction.apply(x, w, b, shape, eps)", "layer_norm(x, shape, w, b, eps)"),
        ("FusedLayerNormFunction.apply(x, shape, eps)", "layer_norm(x, shape, eps=eps)"),
        ("FusedRMSNormAffineFunction.apply(x, w, shape, eps, True)", "rms_norm(x, shape, w, eps)"),
    ],
)
def test_functions_take_their_arguments_in_torchs_order(before: str, after: str) -> None:
    import torch

    name = before.partition("(")[0].partition(".")[0]
    result = check_rewrite(
        f"""
        import torch.nn.functional as F
        from apex.normalization.fused_layer_norm import {name}

        def norm(x, w, b, shape, eps):
            return {before} + F.relu(x)
        """,
        f"""
        import torch.nn.functional as F

        def norm(x, w, b, shape, eps):
            return F.{after} + F.relu(x)
        """,
    )
    assert result.after is not None
    space: dict[str, Any] = {}
    exec(compile(result.after, "model.py", "exec"), space)
    x, w = torch.randn(2, 4), torch.full((4,), 2.0)
    got = space["norm"](x, w, torch.ones(4), (4,), 1e-6) - x.relu()
    centred = x - x.mean(1, keepdim=True) if "layer" in name.lower() else x
    wanted = centred / (centred.square().mean(1, keepdim=True) + 1e-6).sqrt()
    if "affine" in name.lower():
        wanted = wanted * w + (1.0 if "layer" in name.lower() else 0.0)
    torch.testing.assert_close(got, wanted)


def test_a_function_passed_on_is_left_alone() -> None:
    result = check_manual(
        """
        from apex.normalization.fused_layer_norm import fused_layer_norm_affine

        def pick(table):
            table["norm"] = fused_layer_norm_affine
        """,
        "AMP633",
    )
    assert result.after is None


def test_a_layer_passed_on_without_its_eps_is_pointed_at() -> None:
    result = rewrite(
        """
        import torch.nn as nn
        from apex.normalization import FusedRMSNorm

        def build(block, norm=FusedRMSNorm):
            return nn.Sequential(block(norm))
        """
    )
    assert result.after is not None
    assert "norm=nn.RMSNorm" in result.after
    (finding,) = [f for f in result.findings if f.code == "AMP632"]
    assert finding.review == "review"


def test_a_neutral_name_stays_and_only_its_import_changes() -> None:
    check_rewrite(
        """
        import torch
        from apex.normalization.fused_layer_norm import FusedLayerNorm as BertLayerNorm

        class Layer(torch.nn.Module):
            def __init__(self, size):
                super().__init__()
                self.norm = BertLayerNorm(size, eps=1e-12)
        """,
        """
        import torch
        from torch.nn import LayerNorm as BertLayerNorm

        class Layer(torch.nn.Module):
            def __init__(self, size):
                super().__init__()
                self.norm = BertLayerNorm(size, eps=1e-12)
        """,
    )


def test_a_base_class_becomes_torchs() -> None:
    check_rewrite(
        """
        from torch import nn
        from apex.normalization import FusedLayerNorm

        class LayerNorm32(FusedLayerNorm):
            def forward(self, x):
                return super().forward(nn.Identity()(x.float())).to(x.dtype)
        """,
        """
        from torch import nn

        class LayerNorm32(nn.LayerNorm):
            def forward(self, x):
                return super().forward(nn.Identity()(x.float())).to(x.dtype)
        """,
    )


# -- fallbacks -------------------------------------------------------------------------------------------------------


def test_a_class_that_stood_in_for_apexs_goes() -> None:
    check_rewrite(
        """
        import logging

        import torch
        from torch import nn

        logger = logging.getLogger(__name__)

        try:
            from apex.normalization.fused_layer_norm import FusedLayerNorm as BertLayerNorm
        except ImportError:
            logger.info("Better speed can be achieved with apex.")

            class BertLayerNorm(nn.Module):
                def __init__(self, size, eps=1e-12):
                    super(BertLayerNorm, self).__init__()
                    self.weight = nn.Parameter(torch.ones(size))

        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                logger.info("a head")
                self.norm = BertLayerNorm(8, eps=1e-12)
                self.scale = torch.ones(1)
        """,
        """
        import logging

        import torch
        from torch import nn

        logger = logging.getLogger(__name__)

        from torch.nn import LayerNorm as BertLayerNorm

        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                logger.info("a head")
                self.norm = BertLayerNorm(8, eps=1e-12)
                self.scale = torch.ones(1)
        """,
    )


@pytest.mark.parametrize(
    "fallback",
    [
        "from torch.nn import LayerNorm",
        "LayerNorm = nn.LayerNorm",
        "from .layers import LayerNorm",
    ],
)
def test_an_imported_fallback_stays(fallback: str) -> None:
    check_rewrite(
        f"""
        from torch import nn
        try:
            from apex.normalization import FusedLayerNorm as LayerNorm
        except ImportError:
            {fallback}

        block = nn.Sequential(LayerNorm(8))
        """,
        f"""
        from torch import nn
        {fallback}

        block = nn.Sequential(LayerNorm(8))
        """,
    )


def test_a_fallback_in_a_try_around_an_assignment_goes() -> None:
    check_rewrite(
        """
        import torch.nn as nn

        try:
            import apex.normalization
            Norm = apex.normalization.FusedLayerNorm
        except ImportError:
            print("Better speed can be achieved with apex.")

            class Norm(nn.Module):
                pass

        block = nn.Sequential(Norm(8))
        """,
        """
        import torch.nn as nn

        Norm = nn.LayerNorm

        block = nn.Sequential(Norm(8))
        """,
    )


def test_a_shortcut_before_native_code_goes() -> None:
    check_rewrite(
        """
        import torch.nn.functional as F
        try:
            from apex.normalization.fused_layer_norm import fused_layer_norm_affine
            has_apex = True
        except ImportError:
            has_apex = False

        def norm(x, shape, weight, bias, eps):
            if has_apex:
                return fused_layer_norm_affine(x, weight, bias, shape, eps)
            x = x.contiguous()
            return F.layer_norm(x, shape, weight, bias, eps)
        """,
        """
        import torch.nn.functional as F

        def norm(x, shape, weight, bias, eps):
            x = x.contiguous()
            return F.layer_norm(x, shape, weight, bias, eps)
        """,
    )


def test_torchs_own_is_untouched() -> None:
    check_untouched(
        """
        from torch.nn import LayerNorm as FusedLayerNorm

        apex = FusedLayerNorm(8)
        """
    )


def test_an_argument_that_neither_takes() -> None:
    source = "from apex.normalization import FusedLayerNorm\n\nnorm = FusedLayerNorm(8, momentum=0.1)\n"
    assert check_manual(source, "AMP631").after is None


FUSED = """
import torch


def norm(size, eps=1e-5, affine=True, export=False):
{around}
    return torch.nn.LayerNorm(size, {eps}, affine)
"""
TRIED = """\
    {test}:
        try:
            from apex.normalization import FusedLayerNorm
            return FusedLayerNorm(size, eps, affine)
        except ImportError:
            pass"""


@pytest.mark.parametrize(
    "test", ["if not export and torch.cuda.is_available()", "if not export", "if 'cuda' in affine"]
)
def test_a_test_before_a_return_that_is_the_same_now_goes(test: str) -> None:
    check_rewrite(
        FUSED.format(around=TRIED.format(test=test), eps="eps"),
        FUSED.format(around="", eps="eps").replace("\n\n    return", "\n    return"),
    )


def test_without_a_test_one_return_is_left() -> None:
    lines = TRIED.split("\n")[1:]
    around = "\n".join(line.removeprefix("    ") for line in lines)
    check_rewrite(
        FUSED.format(around=around, eps="eps"),
        FUSED.format(around="", eps="eps").replace("\n\n    return", "\n    return"),
    )


@pytest.mark.parametrize(("test", "eps"), [("if not export", "1e-6"), ("if asked.pop()", "eps")])
def test_a_test_that_does_something_or_before_another_return_stays(test: str, eps: str) -> None:
    after = rewrite(FUSED.format(around=TRIED.format(test=test), eps=eps)).after
    assert after is None or f"    {test}:\n        return torch.nn.LayerNorm(size, eps, affine)\n" in after


@pytest.mark.parametrize(("imported", "said"), [("layers", True), ("", False)])
def test_that_autocast_runs_it_in_float32_is_said_where_a_program_has_autocast(imported: str, said: bool) -> None:
    files = {
        "layers.py": "from apex.normalization import FusedLayerNorm\n\nnorm = FusedLayerNorm(8)\n",
        "plain.py": "import layers\n\nprint(layers.norm)\n",
        "train.py": "import torch\n"
        + (f"import {imported}\n" if imported else "")
        + '\nwith torch.autocast("cuda"):\n    print(1)\n',
    }
    (found,) = [f for r in rewrite_files(files).values() for f in r.findings if f.code == "AMP631"]
    assert ("autocast" in found.message) is said


AMID = """
import copy
{imports}

ABOVE
try:
    from apex.normalization.fused_layer_norm import FusedLayerNorm as BertLayerNorm
except ImportError:
    print("Better speed can be achieved with apex.")

    class BertLayerNorm(torch.nn.Module):
        def __init__(self, size, eps=1e-12):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(size))

        def forward(self, x):
            return self.weight * x


class Embeddings(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = BertLayerNorm(4, eps=1e-12)

    def forward(self, x):
        return self.norm(copy.copy(x))
"""


@pytest.mark.parametrize(
    ("imports", "above", "line"),
    [
        ("import torch\nfrom torch import nn", "def gelu(x):\n    return x\n", "BertLayerNorm = nn.LayerNorm"),
        ("import torch", "class Config:\n    size = 4\n", "BertLayerNorm = torch.nn.LayerNorm"),
        ("import torch\nfrom torch import nn", "", "from torch.nn import LayerNorm as BertLayerNorm"),
    ],
)
def test_below_definitions_a_name_is_assigned_what_the_file_knows(imports: str, above: str, line: str) -> None:
    after = rewrite(AMID.replace("{imports}", imports).replace("ABOVE", above)).after
    assert after is not None
    assert f"\n{line}\n" in after
    norm = names_of(after)["Embeddings"]().norm
    assert type(norm).__module__ == "torch.nn.modules.normalization"
    assert norm.eps == 1e-12
    assert rewrite(after).after is None
