"""The fused optimizers against their update rules, written out one element list at a time in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from amp_testing import amp, fresh_amp, initialize
from apex import optimizers
from apex.multi_tensor_apply import kernels, multi_tensor_applier
from apex.optimizers import (
    FusedAdagrad,
    FusedAdam,
    FusedLAMB,
    FusedMixedPrecisionLamb,
    FusedNovoGrad,
    FusedSGD,
)

STEPS = 4
Arrays = list[torch.Tensor]


def gradients(step: int, shapes: list[tuple[int, ...]]) -> Arrays:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(shape, generator=generator) * 3 for shape in shapes]


SHAPES = [(3, 4), (5,), (2, 1, 3)]


def parameters(dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(7)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in SHAPES]


def run(make: Callable[[Any], Any], dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Arrays:
    params = parameters(dtype)
    optimizer = make(params)
    for step in range(STEPS):
        for p, g in zip(params, gradients(step, SHAPES), strict=True):
            p.grad = (g * scale).to(dtype)
        optimizer.step()
    return [p.detach() for p in params]


def check(make: Callable[[Any], Any], reference: Callable[[Arrays, Callable[[int], Arrays]], Arrays]) -> None:
    start = [p.detach().double() for p in parameters()]
    expected = reference(start, lambda step: [g.double() for g in gradients(step, SHAPES)])
    for p, e in zip(run(make), expected, strict=True):
        torch.testing.assert_close(p.double(), e, rtol=2e-5, atol=2e-6)
    # float16 parameters: the same rule, with parameters (and some state) rounded at every step
    for p, e in zip(run(make, torch.float16), expected, strict=True):
        assert p.dtype == torch.float16
        torch.testing.assert_close(p.double(), e, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("adam_w", [True, False])
@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam(adam_w: bool, bias_correction: bool, decay: float) -> None:
    lr, b1, b2, eps = 0.05, 0.8, 0.95, 1e-6

    def reference(params: Arrays, grads: Callable[[int], Arrays]) -> Arrays:
        m, v = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]
        for step in range(1, STEPS + 1):
            c1, c2 = (1 - b1**step, 1 - b2**step) if bias_correction else (1.0, 1.0)
            for i, g in enumerate(grads(step - 1)):
                if not adam_w:
                    g = g + decay * params[i]
                m[i] = b1 * m[i] + (1 - b1) * g
                v[i] = b2 * v[i] + (1 - b2) * g * g
                update = (m[i] / c1) / ((v[i] / c2).sqrt() + eps)
                if adam_w:
                    update = update + decay * params[i]
                params[i] = params[i] - lr * update
        return params

    options = {"lr": lr, "betas": (b1, b2), "eps": eps, "weight_decay": decay, "bias_correction": bias_correction}
    check(lambda p: FusedAdam(p, adam_w_mode=adam_w, **options), reference)


def test_what_is_compiled_takes_no_none() -> None:
    """Which Apex finds out at the first step, where torch does as the optimizer is made."""
    for kind in (FusedAdam, FusedLAMB, FusedNovoGrad, FusedAdagrad):
        with pytest.raises(TypeError, match="incompatible function arguments: weight_decay is None"):
            run(lambda params, kind=kind: kind(params, weight_decay=None))
    gradients = [torch.ones(2)]
    norm, each = multi_tensor_applier(kernels.multi_tensor_l2norm, torch.zeros(1), [gradients], None)
    assert (norm.item(), each.numel()) == (pytest.approx(2**0.5), 0)


def test_adam_agrees_with_torch() -> None:
    for adam_w, native in ((True, torch.optim.AdamW), (False, torch.optim.Adam)):
        ours = run(lambda p: FusedAdam(p, lr=0.01, weight_decay=0.1, adam_w_mode=adam_w))  # noqa: B023
        torchs = run(lambda p: native(p, lr=0.01, weight_decay=0.1))  # noqa: B023
        torch.testing.assert_close(ours, torchs, rtol=1e-5, atol=1e-6)


def test_adam_keeps_float32_moments_of_half_parameters() -> None:
    params = parameters(torch.float16)
    optimizer = FusedAdam(params)
    for p, g in zip(params, gradients(0, SHAPES), strict=True):
        p.grad = g.half()
    optimizer.step()
    assert {state.dtype for p in params for state in optimizer.state[p].values()} == {torch.float32}
    assert optimizer.param_groups[0]["step"] == 1


def test_capturable_adam_unscales_skips_and_keeps_masters() -> None:
    plain = run(lambda p: FusedAdam(p, lr=0.05))
    capturable = run(lambda p: FusedAdam(p, lr=0.05, capturable=True))
    torch.testing.assert_close(plain, capturable)
    masters = run(lambda p: FusedAdam(p, lr=0.05, capturable=True, master_weights=True), torch.float16)
    half = run(lambda p: FusedAdam(p, lr=0.05), torch.float16)

    def error(found: Arrays) -> float:
        return max((a.double() - b.double()).abs().max().item() for a, b in zip(found, plain, strict=True))

    assert error(masters) <= error(half) + 2e-3

    class Scaler:
        """What FusedAdam asks of a GradScaler."""

        scale, found_inf = 8.0, 0.0

        def _check_inf_per_device(self, optimizer: Any) -> dict[torch.device, torch.Tensor]:
            return {torch.device("cpu"): torch.tensor([self.found_inf])}

        def _get_scale_async(self) -> torch.Tensor:
            return torch.tensor(self.scale)

    scaler = Scaler()
    params = parameters()
    optimizer = FusedAdam(params, lr=0.05, capturable=True)
    for step in range(STEPS):
        for scaler.found_inf in (1.0, 0.0):
            for p, g in zip(params, gradients(step, SHAPES), strict=True):
                p.grad = g * scaler.scale
            optimizer.step(grad_scaler=scaler)
    torch.testing.assert_close([p.detach() for p in params], plain)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"momentum": 0.9, "weight_decay": 0.1, "wd_after_momentum": True},
    ],
)
def test_sgd(options: dict[str, Any]) -> None:
    momentum, dampening = options.get("momentum", 0.0), options.get("dampening", 0.0)
    decay, late = options.get("weight_decay", 0.0), options.get("wd_after_momentum", False)

    def reference(params: Arrays, grads: Callable[[int], Arrays]) -> Arrays:
        buffers: list[Any] = [None] * len(params)
        for step in range(STEPS):
            for i, g in enumerate(grads(step)):
                if not late:
                    g = g + decay * params[i]
                if momentum:
                    buffers[i] = g if step == 0 else momentum * buffers[i] + (1 - dampening) * g
                    g = g + momentum * buffers[i] if options.get("nesterov") else buffers[i]
                if late:
                    g = g + decay * params[i]
                params[i] = params[i] - 0.05 * g
        return params

    check(lambda p: FusedSGD(p, lr=0.05, **options), reference)
    if not late:
        native = run(lambda p: torch.optim.SGD(p, lr=0.05, **options))
        torch.testing.assert_close(run(lambda p: FusedSGD(p, lr=0.05, **options)), native)


def test_sgd_rounds_the_change_of_half_parameters_before_it_is_added() -> None:
    def start() -> Arrays:
        return [torch.rand(4096, generator=torch.Generator().manual_seed(1)).half()]

    fused, native = start(), start()
    optimizers = [FusedSGD(fused, lr=0.25, momentum=0.125), torch.optim.SGD(native, lr=0.25, momentum=0.125)]
    for step in range(STEPS):
        grad = torch.rand(4096, generator=torch.Generator().manual_seed(step)).half()
        for params, optimizer in zip((fused, native), optimizers, strict=True):
            params[0].grad = grad.clone()
            optimizer.step()
    # Powers of two: torch's roundings, one an operation, are then those of Apex's kernel.
    torch.testing.assert_close(fused, native, rtol=0, atol=0)


@pytest.mark.parametrize("w_mode", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adagrad(w_mode: bool, decay: float) -> None:
    def reference(params: Arrays, grads: Callable[[int], Arrays]) -> Arrays:
        sums = [torch.zeros_like(p) for p in params]
        for step in range(STEPS):
            for i, g in enumerate(grads(step)):
                if not w_mode:
                    g = g + decay * params[i]
                sums[i] = sums[i] + g * g
                update = g / (sums[i].sqrt() + 1e-5)
                params[i] = params[i] - 0.05 * (update + decay * params[i] if w_mode else update)
        return params

    check(lambda p: FusedAdagrad(p, lr=0.05, eps=1e-5, weight_decay=decay, adagrad_w_mode=w_mode), reference)


def lamb(
    params: Arrays,
    grads: Callable[[int], Arrays],
    decay: float,
    adam_w: bool,
    averaging: bool,
    limit: float,
    nvlamb: bool,
) -> Arrays:
    lr, b1, b2, eps = 0.05, 0.8, 0.95, 1e-6
    m, v = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]
    for step in range(1, STEPS + 1):
        found = grads(step - 1)
        norm = math.sqrt(sum(float((g * g).sum()) for g in found))
        for i, g in enumerate(found):
            g = g / max(1.0, norm / limit)
            if not adam_w:
                g = g + decay * params[i]
            m[i] = b1 * m[i] + ((1 - b1) if averaging else 1.0) * g
            v[i] = b2 * v[i] + (1 - b2) * g * g
            update = (m[i] / (1 - b1**step)) / ((v[i] / (1 - b2**step)).sqrt() + eps)
            if adam_w:
                update = update + decay * params[i]
            trust = float(params[i].norm() / update.norm()) if nvlamb or decay else 1.0
            params[i] = params[i] - lr * trust * update
    return params


LAMBS = [
    {"decay": 0.1, "adam_w": True, "averaging": True, "limit": 1.0, "nvlamb": False},
    {"decay": 0.1, "adam_w": False, "averaging": False, "limit": 1e6, "nvlamb": False},
    {"decay": 0.0, "adam_w": True, "averaging": True, "limit": 1.0, "nvlamb": False},
    {"decay": 0.0, "adam_w": True, "averaging": True, "limit": 1.0, "nvlamb": True},
]


@pytest.mark.parametrize("case", LAMBS)
def test_lamb(case: dict[str, Any]) -> None:
    options = {
        "lr": 0.05,
        "betas": (0.8, 0.95),
        "weight_decay": case["decay"],
        "adam_w_mode": case["adam_w"],
        "grad_averaging": case["averaging"],
        "max_grad_norm": case["limit"],
        "use_nvlamb": case["nvlamb"],
    }
    check(lambda p: FusedLAMB(p, **options), lambda params, grads: lamb(params, grads, **case))
    mixed = run(lambda p: FusedMixedPrecisionLamb(p, **options))
    torch.testing.assert_close(mixed, run(lambda p: FusedLAMB(p, **options)), rtol=1e-5, atol=1e-6)
    start = [p.detach().double() for p in parameters(torch.float16)]
    expected = lamb(start, lambda step: [g.half().double() for g in gradients(step, SHAPES)], **case)
    reduced = run(lambda p: FusedMixedPrecisionLamb(p, reduced_precision_dtype=torch.float16, **options), torch.float16)
    for p, e in zip(reduced, expected, strict=True):
        torch.testing.assert_close(p.double(), e, rtol=2e-3, atol=2e-3)


def test_lamb_leaves_the_update_in_the_gradients() -> None:
    params = parameters()
    optimizer = FusedLAMB(params, lr=0.1, weight_decay=0.0)
    for p, g in zip(params, gradients(0, SHAPES), strict=True):
        p.grad = g
    before = [p.detach().clone() for p in params]
    optimizer.step()
    for p, old in zip(params, before, strict=True):
        torch.testing.assert_close(p.detach(), old - 0.1 * p.grad)


@pytest.mark.parametrize("norm_type", [2, 0])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(("init_zero", "averaging", "bias_correction"), [(False, True, True), (True, False, False)])
def test_novograd(norm_type: int, inside: bool, init_zero: bool, averaging: bool, bias_correction: bool) -> None:
    lr, b1, b2, eps, decay = 0.05, 0.8, 0.95, 1e-6, 0.1

    def norm(g: torch.Tensor) -> float:
        return float(g.norm() if norm_type == 2 else g.abs().max())

    def blended(old: float, new: float) -> float:
        if norm_type == 2:
            return math.sqrt(b2 * old**2 + (1 - b2) * new**2)
        return b2 * old + (1 - b2) * new

    def reference(params: Arrays, grads: Callable[[int], Arrays]) -> Arrays:
        m = [torch.zeros_like(p) for p in params]
        norms = [0.0 if init_zero else norm(g) for g in grads(0)]
        for step in range(1, STEPS + 1):
            c1, c2 = (1 - b1**step, math.sqrt(1 - b2**step)) if bias_correction else (1.0, 1.0)
            beta3 = 1 - b1 if averaging else 1.0
            for i, g in enumerate(grads(step - 1)):
                norms[i] = blended(norms[i], norm(g))
                denominator = norms[i] / c2 + eps
                if inside:
                    m[i] = b1 * m[i] + beta3 * (g / denominator + decay * params[i])
                    update = m[i] / c1
                else:
                    m[i] = b1 * m[i] + beta3 * g
                    update = m[i] / c1 / denominator + decay * params[i]
                params[i] = params[i] - lr * update
        return params

    check(
        lambda p: FusedNovoGrad(
            p,
            lr=lr,
            betas=(b1, b2),
            eps=eps,
            weight_decay=decay,
            norm_type=norm_type,
            reg_inside_moment=inside,
            init_zero=init_zero,
            grad_averaging=averaging,
            bias_correction=bias_correction,
        ),
        reference,
    )


ALL = [FusedAdam, FusedSGD, FusedLAMB, FusedNovoGrad, FusedAdagrad, FusedMixedPrecisionLamb]


@pytest.mark.parametrize("make", ALL)
def test_state_resumes_exactly(make: Any) -> None:
    options = {"lr": 0.05, **({"momentum": 0.9} if make is FusedSGD else {})}
    straight = run(lambda p: make(p, **options))
    params = parameters()
    optimizer = make(params, **options)
    for step in range(STEPS):
        if step == 2:
            state = optimizer.state_dict()
            params = [torch.nn.Parameter(p.detach().clone()) for p in params]
            optimizer = make(params, **options)
            optimizer.load_state_dict(state)
        for p, g in zip(params, gradients(step, SHAPES), strict=True):
            p.grad = g
        optimizer.step()
    for p, s in zip(params, straight, strict=True):
        assert torch.equal(p.detach(), s)


@pytest.mark.parametrize("make", [c for c in ALL if c is not FusedMixedPrecisionLamb])
def test_zero_grad(make: Any) -> None:
    for none in (True, False):
        params = parameters()
        optimizer = make(params, lr=0.1, set_grad_none=none)
        params[0].grad = torch.ones(SHAPES[0])
        optimizer.zero_grad()
        assert (params[0].grad is None) == none
        with pytest.raises(TypeError):
            optimizer.zero_grad(set_to_none=True)


@pytest.mark.parametrize("make", ALL)
def test_parameters_without_gradient_are_left_alone(make: Any) -> None:
    params = parameters()
    optimizer = make(params, lr=0.1)
    params[1].grad = torch.ones(SHAPES[1])
    before = params[0].detach().clone()
    optimizer.step()
    assert torch.equal(params[0], before)
    assert not torch.equal(params[1], parameters()[1])


def test_refusals() -> None:
    for name in ("FusedAdam", "FusedLAMB", "FusedNovoGrad", "FusedMixedPrecisionLamb"):
        with pytest.raises(RuntimeError, match="AMSGrad"):
            getattr(optimizers, name)(parameters(), amsgrad=True)
    with pytest.raises(RuntimeError, match="capturable"):
        FusedAdam(parameters(), master_weights=True)
    with pytest.raises(RuntimeError, match="has been updated"):
        FusedAdam(parameters()).step(scale=2.0)
    with pytest.raises(ValueError, match="Nesterov"):
        FusedSGD(parameters(), lr=0.1, nesterov=True)
    with pytest.raises(ValueError, match="learning rate"):
        FusedSGD(parameters(), lr=-1)
    with pytest.raises(ValueError, match="lr"):
        FusedSGD(parameters())
    with pytest.raises(RuntimeError, match="eps_inside_sqrt"):
        FusedAdam(parameters(), eps_inside_sqrt=True)
    alone = FusedAdam(parameters(), max_grad_norm=1.0)
    with pytest.raises(TypeError, match=r"only under apex\.optimizers\.FP16_Optimizer"):
        alone.step()
    sparse = torch.nn.Embedding(4, 2, sparse=True)
    sparse(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse"):
        FusedAdam(sparse.parameters()).step()
    double = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    double.grad = torch.ones_like(double)
    with pytest.raises(RuntimeError, match="fp16 and fp32"):
        FusedLAMB([double]).step()
    wrong = FusedNovoGrad(parameters(), norm_type=1)
    for p in wrong.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    with pytest.raises(RuntimeError, match="l2/inf"):
        wrong.step()


@pytest.mark.parametrize("materialize", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_sgd_under_o2_steps_masters_and_writes_the_model(materialize: bool) -> None:
    def train(make: Callable[[Any], Any]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
        optimizer = make(model.parameters())
        with fresh_amp():
            model, optimizer = initialize(model, optimizer, opt_level="O2", loss_scale=128.0)
            x, y = torch.randn(16, 4), torch.randn(16, 1)
            for _ in range(5):
                optimizer.zero_grad()
                with amp.scale_loss(torch.nn.functional.mse_loss(model(x), y), optimizer) as scaled:
                    scaled.backward()
                optimizer.step()
            half = [p for p in model.parameters() if p.dtype == torch.float16]
            masters = list(amp.master_params(optimizer))
            for p in half:
                assert any(m.shape == p.shape and torch.equal(m.half(), p) for m in masters)
            return [m.detach().clone() for m in masters]

    fused = train(lambda p: FusedSGD(p, lr=0.05, momentum=0.9, materialize_master_grads=materialize))
    plain = train(lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9))
    torch.testing.assert_close(sorted(fused, key=lambda t: t.shape), sorted(plain, key=lambda t: t.shape))


def test_axpby_and_scale_report_overflow() -> None:
    from apex.multi_tensor_apply import kernels

    def flag() -> torch.Tensor:
        return torch.zeros(1, dtype=torch.int)

    x, y, out = [torch.full((3,), 2.0)], [torch.full((3,), 5.0).half()], [torch.empty(3)]
    seen = flag()
    multi_tensor_applier(kernels.multi_tensor_axpby, seen, [x, y, out], 3.0, 4.0, -1)
    assert (out[0].tolist(), seen.item()) == ([26.0] * 3, 0)
    y[0][1] = math.inf
    for checked, expected in ((0, 0), (1, 1), (-1, 1)):
        seen = flag()
        multi_tensor_applier(kernels.multi_tensor_axpby, seen, [x, y, out], 3.0, 4.0, checked)
        assert seen.item() == expected
    seen = flag()
    multi_tensor_applier(kernels.multi_tensor_scale, seen, [x, [torch.empty(3).half()]], 1e-1)
    assert seen.item() == 0
    multi_tensor_applier(kernels.multi_tensor_scale, seen, [y, out], 0.5)
    assert (seen.item(), out[0][0].item()) == (1, 2.5)


def test_norm_of_a_large_tensor_does_not_drift() -> None:
    from apex.multi_tensor_apply import kernels

    large = torch.rand(4_000_000, generator=torch.Generator().manual_seed(0))
    total, each = kernels.multi_tensor_l2norm(0, torch.zeros(1, dtype=torch.int), [[large, large.half()]], True)
    exact = large.double().norm().item()
    assert each[0].item() == pytest.approx(exact, rel=1e-6)
    assert each[1].item() == pytest.approx(large.half().double().norm().item(), rel=1e-6)
    assert total.item() == pytest.approx(exact * math.sqrt(2), rel=1e-4)


def test_scale_backs_off_after_enough_overflows_in_a_row() -> None:
    from apex.multi_tensor_apply import kernels

    scale, growth, patience = torch.tensor([8.0]), torch.tensor([0]), torch.tensor([2])
    history = []
    for found in (1, 1, 1, 0, 0, 0, 1, 0):
        kernels.update_scale_hysteresis(scale, growth, patience, torch.tensor([float(found)]), 2.0, 0.5, 2, 2)
        history.append((scale.item(), growth.item(), patience.item()))
    assert [s for s, _, _ in history] == [8, 4, 2, 2, 4, 4, 4, 4]
    assert [g for _, g, _ in history] == [0, 0, 0, 1, 0, 1, 0, 1]
    assert [h for _, _, h in history] == [1, 0, -1, 2, 2, 2, 1, 2]
    tiny = torch.tensor([torch.finfo(torch.float32).smallest_normal])
    kernels.update_scale_hysteresis(tiny, growth, torch.tensor([0]), torch.tensor([1.0]), 2.0, 0.5, 2, 2)
    assert tiny.item() == 0
