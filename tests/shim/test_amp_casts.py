"""O1: what is cast, what a program adds or switches off, and the cache of fp16 weights."""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from amp_testing import Net, _amp_state, amp, apex, fresh_amp, initialize, on_host, sgd
from torch import nn


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    with fresh_amp(), warnings.catch_warnings():
        warnings.simplefilter("ignore", apex.DeprecatedFeatureWarning)
        yield


HALF = torch.ones(4, dtype=torch.float16)
FLOAT = torch.ones(4)


def test_casts_are_process_wide_and_reach_evaluation() -> None:
    initialize(Net())
    other = nn.Linear(4, 4).eval()
    with torch.no_grad():
        assert other(FLOAT).dtype == torch.float16


def test_host_tensors_are_left_alone() -> None:
    amp.init()
    weight = on_host(torch.ones(4, 4))
    assert F.linear(on_host(torch.ones(2, 4)), weight).dtype == torch.float32
    assert torch.exp(on_host(torch.zeros(2, dtype=torch.float16))).dtype == torch.float16


def test_methods_and_operators_follow_the_functions() -> None:
    amp.init()
    square = torch.ones(4, 4)
    assert (square @ square).dtype == square.matmul(square).dtype == square.mm(square).dtype == torch.float16
    assert (HALF**2).dtype == HALF.pow(2).dtype == (2**HALF).dtype == HALF.sum().dtype == torch.float32
    assert (HALF - FLOAT).dtype == (FLOAT / HALF).dtype == HALF.mul(FLOAT).dtype == torch.float32
    assert (HALF + HALF).dtype == torch.float16


def test_cpu_returns_fp32() -> None:
    amp.init()
    assert HALF.cpu().dtype == torch.float32
    assert HALF.to("cpu").dtype == torch.float16


def test_gelu_std_var_and_local_response_norm_stay_in_fp32() -> None:
    amp.init()
    image = torch.ones(1, 2, 4, dtype=torch.float16)
    assert F.gelu(HALF).dtype == HALF.std().dtype == torch.var(HALF).dtype == torch.float32
    assert F.local_response_norm(image, 2).dtype == torch.float32


def test_in_place_methods_match_their_tensor() -> None:
    amp.init()
    half, single = HALF.clone(), FLOAT.clone()
    assert half.add_(FLOAT) is half
    assert half.dtype == torch.float16
    assert single.mul_(HALF) is single
    square = torch.ones(2, 2)
    assert square.half().addmm_(square, square.half()).tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert square.addmm_(square.half(), square).dtype == torch.float32
    # The operator is another matter: it rebinds the name to an fp32 result.
    half += FLOAT
    assert half.dtype == torch.float32


def test_in_place_fp32_methods_refuse_half() -> None:
    amp.init()
    for call in (lambda: HALF.exp_(), lambda: HALF.pow_(2), lambda: torch.exp_(HALF)):
        with pytest.raises(NotImplementedError, match="in-place"):
            call()
    assert FLOAT.clone().exp_().dtype == torch.float32


def test_other_mixtures_raise() -> None:
    amp.init()
    with pytest.raises(NotImplementedError, match="types"):
        FLOAT * FLOAT.double()
    with pytest.raises(NotImplementedError, match="types"):
        HALF + torch.ones(4, dtype=torch.bfloat16)
    assert torch.cat([FLOAT, FLOAT.double()]).dtype == torch.float64


def test_nested_arguments() -> None:
    amp.init()
    assert torch.cat((HALF, FLOAT)).dtype == torch.float32
    assert torch.stack([HALF, HALF]).dtype == torch.float16
    calls: list[Any] = []
    taking = amp.half_function(lambda *args, **kwargs: calls.append((args, kwargs)))
    taking([FLOAT, (FLOAT,)], [FLOAT, 1], key=FLOAT)
    (((first, (second,)), (third, _)), kwargs) = calls[0]
    assert first.dtype == second.dtype == kwargs["key"].dtype == torch.float16
    assert third.dtype == torch.float32, "a container with anything else in it is left alone"


def test_bce_raises_under_o1_and_works_under_o2() -> None:
    probability, target = torch.full((4,), 0.5, dtype=torch.float16), torch.ones(4)
    initialize(Net(), opt_level="O2")
    assert F.binary_cross_entropy(probability.float(), target).item() > 0
    amp.init()
    for loss in (nn.BCELoss(), F.binary_cross_entropy):
        with pytest.raises(NotImplementedError, match="binary_cross_entropy_with_logits"):
            loss(probability, target)
    assert nn.BCELoss()(probability.float(), target).dtype == torch.float32
    with amp.disable_casts(), pytest.raises(NotImplementedError):
        F.binary_cross_entropy(probability, target)


def test_allow_banned_casts_bce() -> None:
    amp.init(allow_banned=True)
    assert F.binary_cross_entropy(torch.full((4,), 0.5).half(), FLOAT).dtype == torch.float32


def test_decorators() -> None:
    @amp.half_function
    def half(x: Any) -> Any:
        return x.dtype

    @amp.float_function
    def single(x: Any, *, y: Any) -> Any:
        return x.dtype, y.dtype

    @amp.promote_function
    def widest(x: Any, y: Any) -> Any:
        return x.dtype, y.dtype

    assert half(FLOAT) == torch.float32, "nothing happens before amp starts"
    amp.init()
    assert half(FLOAT) == torch.float16
    assert half.__name__ == "half"
    assert single(HALF, y=HALF) == (torch.float32, torch.float32)
    assert widest(HALF, FLOAT) == (torch.float32, torch.float32)
    assert widest(HALF, HALF) == (torch.float16, torch.float16)
    with amp.disable_casts():
        assert half(FLOAT) == torch.float32
    amp.init(enabled=False)
    assert half(FLOAT) == torch.float32
    assert widest(HALF, FLOAT) == (torch.float16, torch.float32)


def test_decorators_warn_that_they_are_deprecated() -> None:
    for decorator in (amp.half_function, amp.float_function, amp.promote_function):
        with pytest.warns(apex.DeprecatedFeatureWarning):
            decorator(lambda x: x)


def test_registered_functions() -> None:
    mine: Any = types.ModuleType("mine")
    mine.half, mine.single, mine.widest = (lambda x: x.dtype), (lambda x: x.dtype), (lambda x, y: (x.dtype, y.dtype))
    amp.register_half_function(mine, "half")
    amp.register_float_function(mine, "single")
    amp.register_promote_function(mine, "widest")
    assert mine.half(FLOAT) == torch.float32, "they wait for initialize"
    initialize(Net())
    assert mine.half(FLOAT) == torch.float16
    assert mine.single(HALF) == torch.float32
    assert mine.widest(HALF, FLOAT) == (torch.float32, torch.float32)


def test_registering_overrides_the_lists() -> None:
    amp.register_float_function(torch, "sigmoid")
    amp.register_half_function(torch, "softmax")
    initialize(Net())
    assert torch.sigmoid(HALF).dtype == torch.float32
    assert torch.softmax(FLOAT, 0).dtype == torch.float16


@pytest.mark.parametrize(
    "register", [amp.register_half_function, amp.register_float_function, amp.register_promote_function]
)
def test_registering_an_unknown_name_raises(register: Any) -> None:
    with pytest.raises(ValueError, match="no_such_function"):
        register(torch, "no_such_function")


def test_the_lists_may_be_edited_before_init(monkeypatch: pytest.MonkeyPatch) -> None:
    from apex.amp.lists import functional_overrides, torch_overrides

    assert "mm" in torch_overrides.FP16_FUNCS
    monkeypatch.setattr(
        functional_overrides, "FP32_FUNCS", [name for name in functional_overrides.FP32_FUNCS if name != "softmax"]
    )
    amp.init()
    assert F.softmax(HALF, 0).dtype == torch.float16


def test_disable_casts() -> None:
    initialize(Net())
    layer = nn.Linear(4, 4)
    with amp.disable_casts():
        assert layer(FLOAT).dtype == torch.float32
        with amp.disable_casts():
            pass
        assert layer(FLOAT).dtype == torch.float16, "leaving the inner block switches the casts on"
    assert layer(FLOAT).dtype == torch.float16


def test_disable_casts_stays_off_after_an_exception() -> None:
    initialize(Net())
    with pytest.raises(KeyError), amp.disable_casts():
        raise KeyError
    assert not _amp_state.handle.is_active()


def test_the_step_runs_without_casts() -> None:
    class Recording(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype

    model = Net()
    model, optimizer = initialize(model, Recording(model.parameters(), lr=0.1))
    assert optimizer.step() == torch.float32
    assert _amp_state.handle.is_active()


def test_weights_are_cast_once_and_gradients_of_both_uses_arrive() -> None:
    layer = nn.Linear(4, 4, bias=False)
    layer, optimizer = initialize(layer, sgd(layer), loss_scale=64.0)
    with amp.scale_loss(layer(layer(FLOAT)).float().sum(), optimizer) as scaled:
        assert list(_amp_state.handle.cache) == [layer.weight]
        scaled.backward()
    assert len(_amp_state.handle.cache) == 0
    expected = layer.weight.detach().clone().requires_grad_()
    with amp.disable_casts():
        F.linear(F.linear(FLOAT, expected), expected).sum().backward()
    torch.testing.assert_close(layer.weight.grad, expected.grad, rtol=2e-3, atol=2e-3)


def test_stale_weights_after_a_backward_outside_scale_loss() -> None:
    layer = nn.Linear(4, 4, bias=False)
    layer, optimizer = initialize(layer, sgd(layer))
    before = layer(FLOAT)
    before.sum().backward()
    with torch.no_grad():
        layer.weight.mul_(2)
    assert torch.equal(layer(FLOAT), before), "the cached half weights are served although the weight moved"
    with amp.scale_loss(layer(FLOAT).float().sum(), optimizer) as scaled:
        scaled.backward()
    assert torch.equal(layer(FLOAT), 2 * before)


def test_stale_weights_in_evaluation_without_training() -> None:
    layer = initialize(nn.Linear(4, 4, bias=False))
    with torch.no_grad():
        before = layer(FLOAT)
        layer.weight.zero_()
        assert torch.equal(layer(FLOAT), before)


def test_a_copy_made_without_gradient_is_replaced_for_training() -> None:
    layer = initialize(nn.Linear(4, 4))
    with torch.no_grad():
        layer(FLOAT)
    assert layer(FLOAT).requires_grad
    assert _amp_state.handle.cache[layer.weight].requires_grad


def test_caching_can_be_switched_off() -> None:
    handle = amp.init(enable_caching=False)
    layer = nn.Linear(4, 4)
    layer(FLOAT)
    assert not handle.has_cache
    assert len(handle.cache) == 0


@pytest.mark.parametrize("make", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_recurrent_layers_run_in_half_and_train(make: Any, bidirectional: bool, dtype: torch.dtype) -> None:
    initialize(Net())
    layer = make(4, 3, num_layers=2, bidirectional=bidirectional)
    x = torch.randn(5, 2, 4, dtype=dtype).requires_grad_()
    output, _ = layer(x)
    assert output.dtype == torch.float16
    output.float().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == dtype
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())


def test_flattened_recurrent_weights_stay_in_one_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(4, 3, num_layers=2)
    flat = torch.cat([p.detach().reshape(-1) for p in layer.parameters()])
    for param, piece in zip(layer.parameters(), flat.split([p.numel() for p in layer.parameters()]), strict=True):
        param.data = piece.view(param.shape)
    x = torch.randn(5, 2, 4)
    layer(x)[0].sum().backward()
    expected = [p.grad for p in layer.parameters()]
    layer.zero_grad()

    passed: list[Any] = []
    kernel = torch._VF.lstm

    def recording(*args: Any) -> Any:
        passed.append(args[2])
        return kernel(*args)

    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.modules.rnn, "_VF", types.SimpleNamespace(lstm=recording))
        initialize(Net())
        layer(x)[0].float().sum().backward()
        _amp_state.handle._deactivate()
    (weights,) = passed
    assert {w.dtype for w in weights} == {torch.float16}
    assert len({w.untyped_storage().data_ptr() for w in weights}) == 1
    assert [w.storage_offset() for w in weights] == [p.storage_offset() for p in layer.parameters()]
    for param, grad in zip(layer.parameters(), expected, strict=True):
        torch.testing.assert_close(param.grad, grad, rtol=2e-2, atol=2e-2)


def test_packed_sequences() -> None:
    initialize(Net())
    layer = nn.LSTM(4, 3)
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, 4), torch.randn(2, 4)])
    output, (hidden, cell) = layer(packed)
    assert output.data.dtype == hidden.dtype == cell.dtype == torch.float16


@pytest.mark.parametrize("make", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_cells_use_the_weight_cache(make: Any) -> None:
    initialize(Net())
    cell = make(4, 3)
    state = cell(torch.randn(2, 4))
    hidden = state[0] if isinstance(state, tuple) else state
    assert hidden.dtype == torch.float16
    assert cell.weight_ih in _amp_state.handle.cache


def test_recurrent_layers_without_casts() -> None:
    initialize(Net())
    layer = nn.GRU(4, 3)
    with amp.disable_casts():
        assert layer(torch.randn(5, 2, 4))[0].dtype == torch.float32
        with pytest.raises(ValueError, match="type"):
            layer(torch.randn(5, 2, 4).half())


def test_deactivating_puts_torch_back() -> None:
    names = [
        (torch, "mm"),
        (F, "linear"),
        (torch.Tensor, "__add__"),
        (torch.Tensor, "cpu"),
        (nn.RNNBase, "check_input"),
    ]
    before = [getattr(owner, name) for owner, name in names]
    own = "__add__" in vars(torch.Tensor)
    handle = amp.init()
    assert all(getattr(owner, name) is not was for (owner, name), was in zip(names, before, strict=True))
    handle._deactivate()
    assert [getattr(owner, name) for owner, name in names] == before
    assert ("__add__" in vars(torch.Tensor)) == own


def test_verbose_prints_each_cast(capsys: pytest.CaptureFixture[str]) -> None:
    amp.init(verbose=True)
    torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    torch.exp(HALF)
    assert capsys.readouterr().out.splitlines() == ["Float->Half (mm)", "Float->Half (mm)", "Half->Float (exp)"]
