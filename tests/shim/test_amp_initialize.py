"""`amp.initialize`: what it accepts, refuses, returns, and does to the model."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from amp_testing import Net, _amp_state, amp, apex, fresh_amp, initialize, on_host, sgd


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    with fresh_amp(), warnings.catch_warnings():
        warnings.simplefilter("ignore", apex.DeprecatedFeatureWarning)
        yield


LEVELS = ["O0", "O1", "O2", "O3"]


@pytest.mark.parametrize(
    ("opt_level", "output", "saved", "linear", "norm"),
    [
        ("O0", torch.float32, torch.float32, torch.float32, torch.float32),
        ("O1", torch.float16, torch.float32, torch.float32, torch.float32),
        ("O2", torch.float32, torch.float32, torch.float16, torch.float32),
        ("O3", torch.float32, torch.float32, torch.float16, torch.float16),
    ],
)
def test_dtypes_of_outputs_checkpoints_and_weights(
    opt_level: str, output: torch.dtype, saved: torch.dtype, linear: torch.dtype, norm: torch.dtype
) -> None:
    model = Net()
    model, _ = initialize(model, sgd(model), opt_level)
    assert model(torch.randn(3, 4)).dtype == output
    assert model.state_dict()["fc.weight"].dtype == saved
    assert model.fc.state_dict()["weight"].dtype == saved
    assert model.fc.weight.dtype == linear
    assert model.bn.weight.dtype == norm


@pytest.mark.parametrize(
    ("opt_level", "seen"),
    [("O0", torch.float32), ("O1", torch.float64), ("O2", torch.float16), ("O3", torch.float16)],
)
def test_floating_inputs_are_cast_where_the_model_is(opt_level: str, seen: torch.dtype) -> None:
    class Echo(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            self.seen = x.dtype
            return {"out": x, "index": torch.tensor([1])}

    model = initialize(Echo(2, 2), opt_level=opt_level)
    out = model(torch.zeros(1, 2, dtype=torch.float64))
    assert model.seen == seen
    assert out["out"].dtype == (torch.float64 if opt_level == "O1" else torch.float32)
    assert out["index"].dtype == torch.int64


def test_containers_and_custom_batches_are_cast() -> None:
    class Batch:
        def __init__(self) -> None:
            self.asked: list[Any] = []

        def to(self, target: Any) -> Batch:
            self.asked.append(target)
            return self

    class Take(torch.nn.Linear):
        def forward(self, *args: Any, **kwargs: Any) -> None:
            self.args, self.kwargs = args, kwargs

    model = initialize(Take(2, 2), opt_level="O2")
    batch = Batch()
    model([torch.ones(1), "text", 3], {"a": (torch.ones(1),)}, batch, mask=torch.ones(1, dtype=torch.bool))
    (tensor, text, number), mapping, same = model.args
    assert (tensor.dtype, text, number) == (torch.float16, "text", 3)
    assert mapping["a"][0].dtype == torch.float16
    assert same is batch
    assert batch.asked == [torch.float16]
    assert model.kwargs["mask"].dtype == torch.bool


def test_mappings_come_back_as_plain_dicts() -> None:
    class Output(dict):  # type: ignore[type-arg]
        pass

    class Model(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> Output:
            return Output(logits=x)

    assert type(initialize(Model(2, 2), opt_level="O2")(torch.ones(2))) is dict


def test_host_input_warns_under_o2() -> None:
    model = initialize(torch.nn.Linear(2, 2), opt_level="O2")
    with pytest.warns(UserWarning, match="not cuda"):
        model(on_host(torch.ones(1, 2)))


@pytest.mark.parametrize("opt_level", LEVELS)
def test_cast_model_outputs_overrides_the_level(opt_level: str) -> None:
    model = initialize(Net(), opt_level=opt_level, cast_model_outputs=torch.float64)
    assert model(torch.randn(3, 4)).dtype == torch.float64


def test_shape_of_what_comes_in_is_kept() -> None:
    def optimizer() -> torch.optim.Optimizer:
        return sgd(Net())

    model, first = Net(), optimizer()
    returned = initialize(model, first)
    assert returned[0] is model
    assert returned[1] is first
    assert initialize(model) is model
    models = [Net(), Net()]
    assert initialize(models) is models
    optimizers = [optimizer(), optimizer()]
    assert initialize(model, optimizers) == (model, optimizers)
    one_optimizer = initialize(models, optimizer())
    assert one_optimizer[0] is models
    assert isinstance(one_optimizer[1], torch.optim.SGD)
    assert initialize(models, [optimizer()])[1][0].param_groups
    assert initialize(model, []) == (model, [])


def test_positional_optimizer_and_enabled() -> None:
    model = Net()
    assert amp.initialize(model, None, False) is model


def test_disabled_returns_the_same_objects_and_has_no_state() -> None:
    model, optimizer = Net(), sgd(Net())
    assert initialize(model, optimizer, "O2", enabled=False) == (model, optimizer)
    assert initialize(model, enabled=False) is model
    assert not hasattr(optimizer, "_amp_stash")
    with pytest.raises(AttributeError):
        amp.state_dict()
    loss = torch.ones((), dtype=torch.float16)
    with amp.scale_loss(loss, optimizer) as scaled:
        assert scaled is loss


def test_same_optimizer_twice_raises() -> None:
    model = Net()
    optimizer = sgd(model)
    initialize(model, optimizer)
    with pytest.raises(RuntimeError, match="once"):
        initialize(model, optimizer)


def test_an_optimizer_with_an_attribute_of_that_name_raises() -> None:
    model = Net()
    optimizer = sgd(model)
    optimizer._prepare_amp_backward = None  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="_prepare_amp_backward"):
        initialize(model, optimizer)


def test_deprecation_warning() -> None:
    with pytest.warns(apex.DeprecatedFeatureWarning, match=r"apex\.amp is deprecated"):
        initialize(Net())
    assert issubclass(apex.DeprecatedFeatureWarning, FutureWarning)


@pytest.mark.parametrize("level", ["01", "O4", 1, None])
def test_unknown_level_raises(level: Any) -> None:
    with pytest.raises(RuntimeError, match="Unexpected optimization level"):
        initialize(Net(), opt_level=level)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"opt_level": "O1", "keep_batchnorm_fp32": True}, RuntimeError),
        ({"opt_level": "O1", "keep_batchnorm_fp32": "False"}, RuntimeError),
        ({"opt_level": "O1", "master_weights": False}, RuntimeError),
        ({"opt_level": "O1", "cast_model_type": torch.float16}, RuntimeError),
        ({"opt_level": "O2", "patch_torch_functions": True}, RuntimeError),
        ({"opt_level": "O2", "keep_batchnorm_fp32": "yes"}, AssertionError),
        ({"opt_level": "O2", "loss_scale": "dynamik"}, ValueError),
    ],
)
def test_contradicting_options_raise(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        initialize(Net(), **options)


def test_hard_override_prints_instead_of_raising(capsys: pytest.CaptureFixture[str]) -> None:
    _amp_state.hard_override = True
    initialize(Net(), opt_level="O1", keep_batchnorm_fp32=True)
    assert "Warning" in capsys.readouterr().out
    assert _amp_state.opt_properties.keep_batchnorm_fp32 is True


@pytest.mark.parametrize(
    ("opt_level", "expected"),
    [
        ("O0", (torch.float32, False, None, False, 1.0)),
        ("O1", (None, True, None, None, "dynamic")),
        ("O2", (torch.float16, False, True, True, "dynamic")),
        ("O3", (torch.float16, False, False, False, 1.0)),
    ],
)
def test_properties_of_the_levels(opt_level: str, expected: tuple[Any, ...]) -> None:
    initialize(Net(), opt_level=opt_level)
    p = _amp_state.opt_properties
    found = (p.cast_model_type, p.patch_torch_functions, p.keep_batchnorm_fp32, p.master_weights, p.loss_scale)
    assert found == expected
    assert p.enabled is True
    assert p.opt_level == opt_level
    assert p.options["opt_level"] == opt_level
    with pytest.raises(AttributeError):
        _ = p.nonsense


@pytest.mark.parametrize(("given", "norm"), [("True", torch.float32), ("False", torch.float16), (False, torch.float16)])
def test_keep_batchnorm_fp32_also_as_a_string(given: Any, norm: torch.dtype) -> None:
    model = initialize(Net(), opt_level="O2", keep_batchnorm_fp32=given)
    assert model.bn.weight.dtype == norm
    assert model.bn.running_mean.dtype == norm
    assert model.fc.weight.dtype == torch.float16


def test_non_affine_batchnorm_is_cast() -> None:
    model = initialize(torch.nn.BatchNorm1d(3, affine=False), opt_level="O2")
    assert model.running_mean.dtype == torch.float16


@pytest.mark.parametrize(("given", "scale"), [(128, 128.0), ("128.0", 128.0), ("dynamic", 65536.0)])
def test_loss_scale_as_number_string_or_dynamic(given: Any, scale: float) -> None:
    initialize(Net(), opt_level="O3", loss_scale=given)
    assert _amp_state.loss_scalers[0].loss_scale() == scale
    assert _amp_state.loss_scalers[0].dynamic == (given == "dynamic")


def test_master_weights_and_cast_model_type_override() -> None:
    model = Net()
    model, optimizer = initialize(model, sgd(model), "O3", master_weights=True)
    optimizer.zero_grad()
    assert {p.dtype for p in amp.master_params(optimizer)} == {torch.float32}
    model = initialize(Net(), opt_level="O2", cast_model_type=False)
    assert model.fc.weight.dtype == torch.float32


@pytest.mark.parametrize("container", [tuple, set])
def test_other_containers_raise(container: Any) -> None:
    model = Net()
    with pytest.raises(TypeError, match="models must be"):
        initialize(container([model]))
    with pytest.raises(TypeError, match="optimizers must be"):
        initialize(model, container([sgd(model)]))


@pytest.mark.parametrize("make", [lambda m: m.half(), lambda m: m.register_buffer("extra", torch.ones(1).half())])
def test_half_model_is_refused(make: Any) -> None:
    model = Net()
    make(model)
    with pytest.raises(RuntimeError, match=r"\.half\(\)"):
        initialize(model)
    _amp_state.allow_incoming_model_not_fp32 = True
    assert initialize(model) is model


def test_host_model_is_refused() -> None:
    model = Net()
    on_host(model.fc.weight)
    with pytest.raises(RuntimeError, match=r"fc\.weight.*torch\.FloatTensor.*cuda"):
        initialize(model)


def test_parallel_wrappers_are_refused() -> None:
    with pytest.raises(RuntimeError, match="AFTER"):
        initialize(torch.nn.DataParallel(Net()))


def test_fp16_optimizer_is_refused() -> None:
    model = Net()
    wrapped = apex.fp16_utils.FP16_Optimizer(sgd(model), verbose=False)
    for given in (wrapped, [wrapped]):
        with pytest.raises(RuntimeError, match="FP16_Optimizer"):
            initialize(model, given)


def test_banner_follows_verbosity(capsys: pytest.CaptureFixture[str]) -> None:
    initialize(Net(), opt_level="O0", verbosity=0)
    assert capsys.readouterr().out == ""
    initialize(Net(), opt_level="O0", verbosity=1)
    assert "O0" in capsys.readouterr().out


def test_o2_model_cannot_be_pickled() -> None:
    model = initialize(Net(), opt_level="O2")
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(model)


def test_deep_copy_of_an_o2_model_runs_the_original() -> None:
    model = initialize(Net(), opt_level="O2")
    model.eval()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.fc.weight.zero_()
        twin.fc.bias.zero_()
    x = torch.randn(2, 4)
    assert torch.equal(twin(x), model(x))
    assert model(x).abs().sum() > 0


def test_existing_optimizer_state_is_cast_with_the_model() -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    model, optimizer = initialize(model, optimizer, "O3")
    assert optimizer.state[model.fc.weight]["exp_avg"].dtype == torch.float16
