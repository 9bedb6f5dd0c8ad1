"""The operations of Apex's compiled module `amp_C` that programs call, in torch; also importable as `amp_C`.

Every operation takes the chunk size (unused), the overflow buffer (set to 1 by those that look for inf and nan) and
lists of tensors. Arithmetic is float32 whatever the tensors hold, and results are rounded to their dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Tensors = list[Tensor]
Lists = Sequence[list[Tensor]]


def _wide(tensors: Tensors) -> list[Tensor]:
    """The tensors in at least float32: the same objects where they are already."""
    return [t if t.dtype in (torch.float32, torch.float64) else t.float() for t in tensors]


def _store(targets: Tensors, values: Sequence[Tensor]) -> None:
    changed = [(target, value) for target, value in zip(targets, values, strict=True) if target is not value]
    if changed:
        torch._foreach_copy_([target for target, _ in changed], [value for _, value in changed])


def _flag_unless_finite(noop_flag: Tensor, tensors: Tensors) -> None:
    if tensors:
        finite = torch.stack([torch.isfinite(t).all() for t in tensors]).all()
        noop_flag.masked_fill_(~finite, 1)


def _norms(tensors: Tensors) -> Tensor:
    """Euclidean norm of each tensor, float32."""
    # The storage tells the real device. On the CPU float32 sums of squares drift (1e-3 over 33 million elements), which
    # the tree of a device's sums does not.
    if tensors and tensors[0].untyped_storage().device.type == "cpu":
        return torch.stack([torch.linalg.vector_norm(t, dtype=torch.float64) for t in tensors]).float()
    return torch.stack(torch._foreach_norm([t.reshape(-1) for t in _wide(tensors)])).float()


# --- scaling and norms


@torch.no_grad()
def multi_tensor_scale(chunk_size: int, noop_flag: Tensor, tensor_lists: Lists, scale: Any) -> None:
    """out = in * scale, for lists [in, out]."""
    source, out = tensor_lists
    _flag_unless_finite(noop_flag, source)
    _store(out, torch._foreach_mul(_wide(source), scale))


@torch.no_grad()
def multi_tensor_axpby(
    chunk_size: int, noop_flag: Tensor, tensor_lists: Lists, a: float, b: float, arg_to_check: int
) -> None:
    """out = a * x + b * y, for lists [x, y, out]; `arg_to_check` 0 looks for inf in x, 1 in y, -1 in both."""
    x, y, out = tensor_lists
    checked = {0: list(x), 1: list(y), -1: [*x, *y]}[arg_to_check]
    _flag_unless_finite(noop_flag, checked)
    _store(out, torch._foreach_add(torch._foreach_mul(_wide(x), a), _wide(y), alpha=b))


@torch.no_grad()
def multi_tensor_l2norm(
    chunk_size: int, noop_flag: Tensor, tensor_lists: Lists, per_tensor: bool | None = False
) -> tuple[Tensor, Tensor]:
    """Euclidean norm of all tensors together, shape [1], and of each one (empty unless `per_tensor`)."""
    norms = _norms(tensor_lists[0])
    total = torch.linalg.vector_norm(norms).view(1)
    noop_flag.masked_fill_(~torch.isfinite(total).all(), 1)
    return total, norms if per_tensor else norms.new_empty(0)


multi_tensor_l2norm_mp = multi_tensor_l2norm


@torch.no_grad()
def multi_tensor_l2norm_scale(
    chunk_size: int, noop_flag: Tensor, tensor_lists: Lists, scale: Any, per_tensor: bool | None = False
) -> tuple[Tensor, Tensor]:
    """Norms of in * scale, which is also written to out, for lists [in, out]."""
    source, out = tensor_lists
    scaled = torch._foreach_mul(_wide(source), scale)
    _store(out, scaled)
    return multi_tensor_l2norm(chunk_size, noop_flag, [list(scaled)], per_tensor)


@torch.no_grad()
def multi_tensor_unscale_l2norm(
    chunk_size: int, noop_flag: Tensor, tensor_lists: Lists, inv_scale: Tensor, per_tensor: bool | None = False
) -> tuple[Tensor, Tensor]:
    """Norms of the tensors times `inv_scale`; the tensors stay as they are."""
    scaled = [t * inv_scale for t in _wide(tensor_lists[0])]
    return multi_tensor_l2norm(chunk_size, noop_flag, [scaled], per_tensor)


@torch.no_grad()
def update_scale_hysteresis(
    current_scale: Tensor,
    growth_tracker: Tensor,
    hysteresis_tracker: Tensor,
    found_inf: Tensor,
    growth_factor: float,
    backoff_factor: float,
    growth_interval: int,
    hysteresis: int,
) -> Tensor:
    """Grow or back off the loss scale; backing off waits for `hysteresis` overflows in a row."""
    if found_inf.item() > 0:
        hysteresis_tracker -= 1
        growth_tracker.zero_()
        if hysteresis_tracker.item() <= 0:
            current_scale *= backoff_factor
            # Apex's kernels are compiled without subnormal numbers.
            current_scale.masked_fill_(current_scale < torch.finfo(current_scale.dtype).smallest_normal, 0.0)
        return current_scale
    growth_tracker += 1
    if growth_tracker.item() == growth_interval:
        grown = current_scale * growth_factor
        current_scale.copy_(torch.where(torch.isfinite(grown), grown, current_scale))
        growth_tracker.zero_()
    hysteresis_tracker.fill_(hysteresis)
    return current_scale


# --- optimizers


def _corrections(beta1: float, beta2: float, step: float, enabled: Any) -> tuple[float, float]:
    return (1 - beta1**step, 1 - beta2**step) if enabled else (1.0, 1.0)


def _moments(grads: Tensors, m: Tensors, v: Tensors, beta1: float, beta2: float, beta3: float) -> None:
    torch._foreach_mul_(m, beta1)
    torch._foreach_add_(m, grads, alpha=beta3)
    torch._foreach_mul_(v, beta2)
    torch._foreach_addcmul_(v, grads, grads, value=1 - beta2)


def _adam_update(
    grads: Tensors,
    params: Tensors,
    m: Tensors,
    v: Tensors,
    betas: tuple[float, float, float],
    corrections: tuple[float, float],
    eps: float,
    decoupled: Any,
    decay: float,
) -> list[Tensor]:
    """Advance the moments and return the direction of the step. `decoupled`: weight decay joins after the moments."""
    if decay and not decoupled:
        grads = list(torch._foreach_add(grads, params, alpha=decay))
    _moments(grads, m, v, *betas)
    denominator = torch._foreach_div(v, corrections[1])
    torch._foreach_sqrt_(denominator)
    torch._foreach_add_(denominator, eps)
    update = torch._foreach_div(m, corrections[0])
    torch._foreach_div_(update, denominator)
    if decay and decoupled:
        torch._foreach_add_(update, params, alpha=decay)
    return list(update)


@torch.no_grad()
def multi_tensor_adam(
    chunk_size: int,
    noop_flag: Tensor,
    tensor_lists: Lists,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    mode: int,
    bias_correction: int,
    weight_decay: float,
) -> None:
    """Adam on lists [grads, params, exp_avg, exp_avg_sq]; mode 0 is L2 regularization, 1 decoupled weight decay."""
    grads, params, m, v = tensor_lists
    wide_p, wide_m, wide_v = _wide(params), _wide(m), _wide(v)
    betas = (beta1, beta2, 1 - beta1)
    corrections = _corrections(beta1, beta2, step, bias_correction)
    update = _adam_update(_wide(grads), wide_p, wide_m, wide_v, betas, corrections, epsilon, mode, weight_decay)
    torch._foreach_add_(wide_p, update, alpha=-lr)
    for targets, values in ((params, wide_p), (m, wide_m), (v, wide_v)):
        _store(targets, values)


@torch.no_grad()
def multi_tensor_adam_capturable(
    chunk_size: int,
    noop_flag: Tensor,
    tensor_lists: Lists,
    lr: Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: Tensor,
    mode: int,
    bias_correction: int,
    weight_decay: float,
    inv_scale: Tensor,
) -> None:
    """`multi_tensor_adam` with the gradients unscaled in place first; does nothing when the overflow buffer is 1."""
    if noop_flag.item() == 1:
        return
    grads = tensor_lists[0]
    unscaled = [g * inv_scale.to(torch.float32) for g in _wide(grads)]
    _store(grads, unscaled)
    multi_tensor_adam(
        chunk_size,
        noop_flag,
        [unscaled, *tensor_lists[1:]],
        float(lr),
        beta1,
        beta2,
        epsilon,
        int(step),
        mode,
        bias_correction,
        weight_decay,
    )


@torch.no_grad()
def multi_tensor_adam_capturable_master(
    chunk_size: int, noop_flag: Tensor, tensor_lists: Lists, *arguments: Any
) -> None:
    """The same on lists [grads, params, exp_avg, exp_avg_sq, masters]: the masters step, the params are copies."""
    if noop_flag.item() == 1:
        return
    grads, params, m, v, masters = tensor_lists
    multi_tensor_adam_capturable(chunk_size, noop_flag, [grads, masters, m, v], *arguments)
    torch._foreach_copy_(params, masters)


@torch.no_grad()
def multi_tensor_sgd(
    chunk_size: int,
    noop_flag: Tensor | None,
    tensor_lists: Lists,
    wd: float,
    momentum: float,
    dampening: float,
    lr: float,
    nesterov: bool,
    first_run: bool,
    wd_after_momentum: bool,
    scale: float,
) -> None:
    """SGD on lists [grads, params, momenta] or [grads, params, momenta, float16 copies of the params].

    The gradients are multiplied by `scale` first. Does nothing when the overflow buffer is set; None, which Apex does
    not know, spares the device the question.
    """
    if noop_flag is not None and noop_flag.item():
        return
    grads, params, momenta = tensor_lists[:3]
    wide_p, wide_m = _wide(params), _wide(momenta)
    update = list(torch._foreach_mul(_wide(grads), scale))
    if wd and not wd_after_momentum:
        torch._foreach_add_(update, wide_p, alpha=wd)
    if momentum:
        if first_run:
            torch._foreach_copy_(wide_m, update)
        else:
            torch._foreach_mul_(wide_m, momentum)
            torch._foreach_add_(wide_m, update, alpha=1 - dampening)
        update = list(torch._foreach_add(update, wide_m, alpha=momentum)) if nesterov else list(wide_m)
    if wd and wd_after_momentum:
        update = list(torch._foreach_add(update, wide_p, alpha=wd))
    if params[0].dtype == torch.float16:
        # Apex's kernel adds in the type of the parameters: theirs is a change that was rounded to float16 first.
        torch._foreach_add_(params, [change.half() for change in torch._foreach_mul(update, -lr)])
    else:
        torch._foreach_add_(params, update, alpha=-lr)
    if momentum:
        _store(momenta, wide_m)
    if len(tensor_lists) == 4:
        torch._foreach_copy_(tensor_lists[3], params)


@torch.no_grad()
def multi_tensor_adagrad(
    chunk_size: int,
    noop_flag: Tensor,
    tensor_lists: Lists,
    lr: float,
    epsilon: float,
    mode: int,
    weight_decay: float,
) -> None:
    """Adagrad on lists [grads, params, sums]; mode 0 is L2 regularization, 1 decoupled weight decay."""
    grads, params, sums = tensor_lists
    wide_g, wide_p, wide_h = _wide(grads), _wide(params), _wide(sums)
    if weight_decay and mode == 0:
        wide_g = list(torch._foreach_add(wide_g, wide_p, alpha=weight_decay))
    torch._foreach_addcmul_(wide_h, wide_g, wide_g)
    denominator = torch._foreach_sqrt(wide_h)
    torch._foreach_add_(denominator, epsilon)
    update = torch._foreach_div(wide_g, denominator)
    if weight_decay and mode == 1:
        torch._foreach_add_(update, wide_p, alpha=weight_decay)
    torch._foreach_add_(wide_p, update, alpha=-lr)
    _store(params, wide_p)
    _store(sums, wide_h)


@torch.no_grad()
def multi_tensor_novograd(
    chunk_size: int,
    noop_flag: Tensor,
    tensor_lists: Lists,
    grad_norms: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    bias_correction: int,
    weight_decay: float,
    grad_averaging: int,
    moment_mode: int,
    norm_type: int,
) -> None:
    """NovoGrad on lists [grads, params, exp_avg] with one running norm per tensor in `grad_norms`.

    `moment_mode` 0 puts normalization and weight decay inside the moment, 1 outside; `norm_type` 2 is Euclidean, 0 is
    the largest magnitude.
    """
    grads, params, m = tensor_lists
    wide_g, wide_p, wide_m = _wide(grads), _wide(params), _wide(m)
    if norm_type == 0:
        norms = torch.stack(torch._foreach_norm(wide_g, float("inf")))
        grad_norms.mul_(beta2).add_(norms, alpha=1 - beta2)
    else:
        grad_norms.square_().mul_(beta2).add_(_norms(wide_g).square(), alpha=1 - beta2).sqrt_()
    first, second = _corrections(beta1, beta2, step, bias_correction)
    denominators = list((grad_norms / second**0.5 + epsilon).unbind())
    beta3 = 1 - beta1 if grad_averaging else 1.0
    if moment_mode == 0:
        wide_g = list(torch._foreach_div(wide_g, denominators))
        torch._foreach_add_(wide_g, wide_p, alpha=weight_decay)
    torch._foreach_mul_(wide_m, beta1)
    torch._foreach_add_(wide_m, wide_g, alpha=beta3)
    update = torch._foreach_div(wide_m, first)
    if moment_mode != 0:
        torch._foreach_div_(update, denominators)
        torch._foreach_add_(update, wide_p, alpha=weight_decay)
    torch._foreach_add_(wide_p, update, alpha=-lr)
    _store(params, wide_p)
    _store(m, wide_m)


@torch.no_grad()
def multi_tensor_lamb(
    chunk_size: int,
    noop_flag: Tensor,
    tensor_lists: Lists,
    lr: Any,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    bias_correction: int,
    weight_decay: float,
    grad_averaging: int,
    mode: int,
    global_grad_norm: Tensor,
    max_grad_norm: Any,
    use_nvlamb: bool | None = False,
) -> None:
    """LAMB on lists [grads, params, exp_avg, exp_avg_sq]. As in Apex, the gradients end up holding the update.

    Gradients are divided by `global_grad_norm / max_grad_norm` where that exceeds 1. Parameters without weight decay
    take the plain learning rate unless `use_nvlamb`.
    """
    grads, params, m, v = tensor_lists
    wide_p, wide_m, wide_v = _wide(params), _wide(m), _wide(v)
    ratio = global_grad_norm / max_grad_norm
    clip = torch.where(ratio > 1, ratio, torch.ones_like(ratio)).squeeze()
    clipped = list(torch._foreach_div(_wide(grads), clip))
    betas = (beta1, beta2, 1 - beta1 if grad_averaging else 1.0)
    corrections = _corrections(beta1, beta2, step, bias_correction)
    param_norms = _norms(params)
    update = _adam_update(clipped, wide_p, wide_m, wide_v, betas, corrections, epsilon, mode, weight_decay)
    torch._foreach_copy_(grads, update)
    update = _wide(grads)
    if use_nvlamb or weight_decay:
        update_norms = _norms(update)
        trust = torch.where((param_norms != 0) & (update_norms != 0), param_norms / update_norms, 1.0)
        update = list(torch._foreach_mul(update, list(trust.unbind())))
    torch._foreach_add_(wide_p, torch._foreach_mul(update, lr), alpha=-1)
    for targets, values in ((params, wide_p), (m, wide_m), (v, wide_v)):
        _store(targets, values)


@torch.no_grad()
def multi_tensor_lamb_mp(
    chunk_size: int,
    noop_flag: Tensor,
    tensor_lists: Lists,
    lr: Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: Tensor,
    bias_correction: int,
    weight_decay: float,
    grad_averaging: int,
    mode: int,
    global_grad_norm: Tensor,
    max_grad_norm: Tensor,
    use_nvlamb: bool | None,
    found_inf: Tensor,
    inv_scale: Tensor,
) -> None:
    """LAMB on scaled gradients; a fifth list holds the low precision copies of the params.

    Norm and limit are those of the scaled gradients. Does nothing when the overflow buffer is set.
    """
    if noop_flag.item():
        return
    grads, params, m, v = tensor_lists[:4]
    unscaled = [g * inv_scale for g in _wide(grads)]
    multi_tensor_lamb(
        chunk_size,
        noop_flag,
        [unscaled, params, m, v],
        float(lr),
        beta1,
        beta2,
        epsilon,
        int(step),
        bias_correction,
        weight_decay,
        grad_averaging,
        mode,
        global_grad_norm,
        max_grad_norm,
        use_nvlamb,
    )
    torch._foreach_copy_(grads, unscaled)
    if len(tensor_lists) == 5:
        torch._foreach_copy_(tensor_lists[4], params)
