"""Where tensors are: on cuda:0 unless moved to the host explicitly."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

CUDA = torch.device("cuda:0")
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(2),
        lambda: torch.zeros(2, device="cuda"),
        lambda: torch.ones(2, device=torch.device("cuda", 0)),
        lambda: torch.randn(2, device=0),
        lambda: torch.tensor([1.0], device="cuda:0"),
        lambda: torch.as_tensor([1.0], device="cuda"),
        lambda: torch.arange(3).cuda(),
        lambda: torch.arange(3).to("cuda", torch.float16, non_blocking=True),
        lambda: torch.arange(3).to(device=CUDA, dtype=torch.float64),
        lambda: torch.arange(3).to(0),
        lambda: torch.zeros(2).cpu().cuda(0, non_blocking=True),
        lambda: torch.zeros(2).cpu().to(torch.zeros(1)),
        lambda: torch.zeros(2).cpu().type("torch.cuda.HalfTensor"),
        lambda: torch.zeros(2).cpu().type_as(torch.zeros(1)),
        lambda: torch.cuda.FloatTensor(2, 3),
        lambda: torch.cuda.LongTensor([1, 2]),
        lambda: torch.zeros(2).new_zeros(3),
        lambda: torch.zeros(2).cpu().new_zeros(3, device="cuda"),
        lambda: torch.empty_like(torch.zeros(2).cpu(), device="cuda"),
        lambda: torch.zeros(2).cpu() + torch.ones(2).cuda(),
        lambda: nn.Linear(2, 2, device="cuda").weight,
        lambda: nn.Linear(2, 2).cuda().weight,
        lambda: nn.Linear(2, 2, device="meta").to_empty(device="cuda").weight,
    ],
)
def test_on_cuda(make: Any) -> None:
    tensor = make()
    assert tensor.device == CUDA
    assert tensor.is_cuda
    assert not tensor.is_cpu
    assert tensor.get_device() == torch.get_device(tensor) == 0
    assert tensor.type().startswith("torch.cuda.")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(2).cpu(),
        lambda: torch.zeros(2, device="cuda").to("cpu"),
        lambda: torch.zeros(2).to(CPU, torch.float16),
        lambda: torch.zeros(2).to(device="cpu"),
        lambda: torch.zeros(2).to(torch.zeros(1).cpu()),
        lambda: torch.zeros(2).type(torch.FloatTensor),
        lambda: torch.zeros(2, device="cpu"),
        lambda: torch.as_tensor([1.0], device="cpu"),
        lambda: torch.zeros(2).pin_memory(),
        lambda: torch.zeros(2, pin_memory=True),
        lambda: torch.zeros(2, 3).cpu()[0, 1:].view(-1),
        lambda: torch.zeros(2).cpu().detach(),
        lambda: torch.zeros(2).cpu().half().clone().contiguous(),
        lambda: torch.zeros(2).cpu().new_ones(3),
        lambda: torch.zeros_like(torch.zeros(2).cpu()),
        lambda: nn.Linear(2, 2).cuda().cpu().weight,
        lambda: nn.Linear(2, 2).to("cpu").bias,
    ],
)
def test_on_the_host(make: Any) -> None:
    tensor = make()
    assert tensor.device == CPU
    assert tensor.is_cpu
    assert not tensor.is_cuda
    assert tensor.get_device() == -1
    assert not tensor.type().startswith("torch.cuda.")


def test_moving_copies_and_staying_does_not() -> None:
    x = torch.zeros(2, device="cuda")
    host = x.cpu()
    host[0] = 1
    assert x[0] == 0
    back = host.cuda()
    back[1] = 1
    assert host.tolist() == [1, 0]
    assert x.cuda() is x
    assert host.cpu() is host
    assert x.to("cuda", copy=True) is not x
    array = torch.zeros(3).numpy()
    torch.as_tensor(array, device="cuda")[0] = 1
    assert array[0] == 0


def test_gradients_flow_through_a_move_and_leaves_stay_leaves() -> None:
    weight = torch.randn(2, requires_grad=True, device="cuda")
    assert weight.is_leaf
    assert weight.cuda().is_leaf
    (weight.cpu() * 2).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2, 2]
    module = nn.Linear(2, 2)
    before = dict(module.named_parameters())
    module.cuda().to(0).to("cuda").half().cpu().cuda()
    assert dict(module.named_parameters()).keys() == before.keys()
    assert all(a is b for a, b in zip(module.parameters(), before.values(), strict=True))


def test_legacy_types_have_their_own_identity() -> None:
    half, single = torch.cuda.HalfTensor, torch.cuda.FloatTensor
    x = torch.zeros(2, device="cuda").half()
    assert isinstance(x, half)
    assert not isinstance(x, single)
    assert not isinstance(x.cpu(), half)
    assert len({half, single, torch.cuda.LongTensor}) == 3
    assert (x.type(), x.cpu().type()) == ("torch.cuda.HalfTensor", "torch.HalfTensor")
    assert x.type(single).dtype == torch.float32
    with pytest.raises(ValueError, match="invalid type"):
        x.type("torch.cuda.NoTensor")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_default_tensor_type() -> None:
    torch.set_default_tensor_type("torch.cuda.HalfTensor")
    try:
        assert torch.zeros(1).type() == "torch.cuda.HalfTensor"
    finally:
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
    assert torch.zeros(1).dtype == torch.float32


def test_devices() -> None:
    assert torch.device(1) == torch.device("cuda", 1)
    assert isinstance(CUDA, torch.device)
    assert not isinstance("cuda", torch.device)
    assert type(CUDA) == torch.device  # noqa: E721 - programs compare like this
    assert pickle.loads(pickle.dumps(CUDA)) == CUDA
    assert copy.deepcopy({"device": CUDA}) == {"device": CUDA}
    with torch.device("cuda"):
        assert nn.Linear(2, 2).weight.device == CUDA
    with torch.device("meta"):
        assert nn.Linear(2, 2).weight.device.type == "meta"
        assert torch.zeros(2, device="cuda").device == CUDA
    torch.set_default_device("cuda")
    assert torch.get_default_device() == CUDA
    torch.set_default_device(None)
    assert "device='cuda:0'" in repr(torch.zeros(1))
    assert "device" not in repr(torch.zeros(1).cpu())


def test_cuda_refuses_a_host_device() -> None:
    with pytest.raises(RuntimeError, match="must be cuda device"):
        torch.zeros(1).cuda("cpu")


def test_current_device_moves_everything() -> None:
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == 1
        assert torch.zeros(1).device == torch.device("cuda:1")
    assert torch.zeros(1).device == CUDA


def test_generators_and_seeds() -> None:
    torch.cuda.manual_seed_all(3)
    first = torch.randn(2, device="cuda")
    torch.cuda.manual_seed(3)
    assert torch.equal(torch.randn(2, device="cuda"), first)
    assert torch.cuda.initial_seed() == 3
    state = torch.cuda.get_rng_state()
    drawn = torch.rand(3)
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(3), drawn)
    generator = torch.Generator(device="cuda").manual_seed(5)
    assert generator.device.type == "cuda"
    assert torch.equal(
        torch.randn(2, device="cuda", generator=generator), torch.randn(2, generator=torch.Generator().manual_seed(5))
    )
    assert isinstance(torch.default_generator, torch.Generator)
    assert len(torch.cuda.get_rng_state_all()) == 1


def test_sparse_and_transformed_tensors() -> None:
    assert torch.eye(2).to_sparse().is_cuda
    embedding = nn.Embedding(4, 2, sparse=True).cuda()
    embedding(torch.tensor([1]).cuda()).sum().backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.is_cuda
    out = torch.func.vmap(lambda row: row.to(row.device) + torch.zeros(3, device=row.device))(torch.ones(2, 3).cuda())
    assert out.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_pickles_are_those_of_a_cpu() -> None:
    buffer = io.BytesIO()
    host = torch.ones(2).cpu()
    torch.save({"device": torch.ones(2, device="cuda"), "host": host}, buffer)
    assert b"cuda" not in buffer.getvalue()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_code_finds_the_replaced_functions() -> None:
    def padded(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, torch.zeros([1]), torch.zeros_like(x)])

    assert torch.jit.script(padded)(torch.ones(1)).tolist() == [1, 0, 0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_code_still_knows_that_it_is_scripted() -> None:
    def scripted(x: torch.Tensor) -> torch.Tensor:
        if not torch.jit.is_scripting():
            print(sorted(globals()))  # nothing that TorchScript could compile
        return x + 1

    assert torch.jit.script(scripted)(torch.ones(1)).tolist() == [2]
    importlib.import_module("torch.distributed.optim")  # compiles classes of torch's own that ask the same


def test_every_factory_that_takes_a_device_is_covered() -> None:
    from amp_migrate.shim.redirect.factories import FACTORIES, METHODS

    takes_device = {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::") and any(arg.name == "device" for arg in schema.arguments)
    }
    public = {name for name in takes_device if hasattr(torch, name) and not name.startswith("_")}
    methods = {name for name in takes_device if hasattr(torch.Tensor, name) and not name.startswith("_")}
    assert public - {"Generator"} <= {*FACTORIES}
    assert methods - {"to", "is_pinned", "pin_memory"} <= {*METHODS}
