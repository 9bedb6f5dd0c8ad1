"""Which dtype each kind of operation computed in: counted below autocast, where casts have already happened."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

# aten operation -> the name it is counted under. Both programs run the same torch, so the same aten operations.
KINDS = {
    "linear": "linear",
    "addmm": "linear",
    "mm": "linear",
    "bmm": "matmul",
    "baddbmm": "matmul",
    "addbmm": "matmul",
    "convolution": "conv",
    "_convolution": "conv",
    "mkldnn_convolution": "conv",
    "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_batch_norm_with_update": "batch_norm",
    "_batch_norm_no_update": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "_fused_rms_norm": "rms_norm",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "nll_loss_forward": "nll_loss",
    "nll_loss2d_forward": "nll_loss",
    "mse_loss": "mse_loss",
    "smooth_l1_loss": "smooth_l1_loss",
    "huber_loss": "huber_loss",
    "binary_cross_entropy": "bce",
    "binary_cross_entropy_with_logits": "bce_with_logits",
    "soft_margin_loss": "soft_margin_loss",
    "gelu": "gelu",
    "std": "std/var",
    "var": "std/var",
    "var_mean": "std/var",
    "std_mean": "std/var",
    "_scaled_dot_product_flash_attention_for_cpu": "attention",
    "_scaled_dot_product_flash_attention": "attention",
    "_scaled_dot_product_efficient_attention": "attention",
    "_scaled_dot_product_attention_math": "attention",
    "lstm": "rnn",
    "_thnn_fused_lstm_cell": "rnn",
    "_cudnn_rnn": "rnn",
    "mkldnn_rnn_layer": "rnn",
    "exp": "exp",
    "log": "log",
    "pow": "pow",
    "prod": "prod",
    "cumsum": "cumsum",
}
PRODUCTS = ("linear", "matmul")
# Functions that Apex did not patch, though the products inside them are on autocast's list.
COMPOSED = ("einsum", "tensordot", "inner", "chain_matmul")


class Census(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts (phase, kind, output dtype) of the listed operations while `counting`.

    The phase is `train` where gradients are recorded, and throughout the forward of a module that was called so (activation
    checkpointing records none within it); `eval` elsewhere. Backward is not counted, nor what belongs
    neither to a module's forward nor to a gradient: labels and metrics computed on plain tensors, which Apex, patching
    torch process-wide, cast as well.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counting = True
        self.inside_module = False
        self.training = False  # inside a module that was called with gradients recorded
        self.within = ""  # a function of torch that computes matrix products of its own accord
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self._widened = WeakIdKeyDictionary()  # float32 copies of half tensors

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name == "_to_copy" and args[0].dtype is torch.float16 and result.dtype is torch.float32:
            self._widened[result] = True
        if self.counting and (kind := KINDS.get(name)) is not None:
            first = result[0] if isinstance(result, (tuple, list)) else result
            if isinstance(first, torch.Tensor) and first.is_floating_point() and self._belongs(args):
                phase = "train" if self.training or torch.is_grad_enabled() else "eval"
                kind = self.within if self.within and kind in PRODUCTS else kind
                self.counts[phase, kind, self._dtype(kind, first, args)] += 1
        return result

    def _belongs(self, args: Any) -> bool:
        return self.inside_module or any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)

    def _dtype(self, kind: str, result: torch.Tensor, args: Any) -> str:
        """The dtype computed in. On the CPU a half convolution is a float32 one of widened operands, then rounded."""
        if kind == "conv" and all(operand in self._widened for operand in args[:2]):
            return "float16"
        return str(result.dtype).removeprefix("torch.")

    def table(self) -> dict[str, dict[str, dict[str, int]]]:
        """{phase: {kind: {dtype: count}}}."""
        table: dict[str, dict[str, dict[str, int]]] = {}
        for (phase, kind, dtype), count in sorted(self.counts.items()):
            table.setdefault(phase, {}).setdefault(kind, {})[dtype] = count
        return table
