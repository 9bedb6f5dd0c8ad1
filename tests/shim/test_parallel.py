"""apex.parallel: two ranks on gloo must train as one process does on the whole batch."""

from __future__ import annotations

import json
from typing import Any

import amp_testing  # noqa: F401 - makes `apex` the shim
import pytest
import torch
from apex.parallel import SyncBatchNorm, convert_syncbn_model
from apex.parallel.distributed import extract_tensors, flatten, split_by_type, unflatten
from apex.parallel.LARC import LARC
from launching import run_cli
from torch import nn

PROGRAM = """
import json, os, sys
import torch
from torch import nn
import torch.distributed as dist
import apex
from apex import amp
from apex.parallel import DistributedDataParallel, Reducer, SyncBatchNorm, convert_syncbn_model
from apex.parallel import create_syncbn_process_group

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group(backend="nccl", init_method="env://")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
X, Y = torch.randn(8, 3, 4, 4), torch.randint(0, 2, (8,))
x, y = (t[rank * 8 // world : (rank + 1) * 8 // world].cuda() for t in (X, Y))
results = {}


def net(seed=1):
    torch.manual_seed(seed + rank)  # ranks start apart: construction has to bring them together
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)).cuda()


def train(model, steps=4, accumulate=1):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(accumulate):
            loss = nn.functional.cross_entropy(model(x), y) / accumulate
            loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / world)
    return losses


def wrapped(options, converted=True):
    model = net()
    if "allreduce_trigger_params" in options:
        options = {"allreduce_trigger_params": [next(model.parameters())]}
    return DistributedDataParallel(convert_syncbn_model(model) if converted else model, **options)


for name, options in json.loads(sys.argv[1]).items():
    results[name] = train(wrapped(options))
results["native"] = train(
    nn.parallel.DistributedDataParallel(
        nn.SyncBatchNorm.convert_sync_batchnorm(net()), device_ids=[torch.cuda.current_device()]
    )
)

model = wrapped({"delay_allreduce": True})
model.disable_allreduce()
nn.functional.cross_entropy(model(x), y).backward()
mine = [p.grad.clone() for p in model.parameters()]
Reducer([p.grad for p in model.parameters()]).reduce()
results["reducer changed"] = world > 1 and any(not torch.equal(a, p.grad) for a, p in zip(mine, model.parameters()))
reduced = [p.grad.clone() for p in model.parameters()]
model.enable_allreduce()
model.zero_grad()
nn.functional.cross_entropy(model(x), y).backward()
results["reducer"] = max((a - p.grad).abs().max().item() for a, p in zip(reduced, model.parameters()))

retaining = wrapped({"retain_allreduce_buffers": True})
for _ in range(2):
    retaining.zero_grad()
    nn.functional.cross_entropy(retaining(x), y).backward()
buffer = retaining.allreduce_buffers[0]
results["views"] = all(
    p.grad.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr() for p in retaining.parameters()
)

partial = DistributedDataParallel(nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]).cuda())
partial.forward = lambda used: (partial._prepare_buckets(), [partial.module[i] for i in used])[1]
ones = torch.ones(1, 2).cuda()
sum(layer(ones).sum() for layer in partial([0, 1])).backward()
try:
    sum(layer(ones).sum() for layer in partial([0])).backward()
    results["partial"] = "nothing"
except RuntimeError as error:
    results["partial"] = str(error)

model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale=128.0, verbosity=0)
model = DistributedDataParallel(model)
for _ in range(3):
    optimizer.zero_grad()
    with amp.scale_loss(nn.functional.cross_entropy(model(x), y), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
weights = torch.cat([p.detach().float().flatten() for p in amp.master_params(optimizer)])
other = weights.clone()
dist.broadcast(other, 0)
results["masters agree"] = torch.equal(weights, other)

group = create_syncbn_process_group(1)
alone = SyncBatchNorm(3, process_group=group).cuda()
results["group of one"] = torch.allclose(alone(x), nn.BatchNorm2d(3)(x), atol=1e-5)
results["whole group"] = create_syncbn_process_group(0) is None
if rank == 0:
    print(json.dumps(results))
dist.destroy_process_group()
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "delayed": {"delay_allreduce": True},
    "small buckets": {"message_size": 1},
    "two groups": {"message_size": 1, "num_allreduce_streams": 2},
    "buffers": {"retain_allreduce_buffers": True},
    "fp32": {"allreduce_always_fp32": True},
    "predivided": {"gradient_predivide_factor": 2.0},
    "triggered": {"allreduce_trigger_params": None},
    "summed": {"gradient_average": False},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    script = tmp_path_factory.mktemp("parallel") / "train.py"
    script.write_text(PROGRAM)
    found = {}
    for ranks in ("1", "2"):
        run = run_cli(
            "--apex", "shim", "--device", "cpu", "--nproc", ranks, script, json.dumps(OPTIONS), PYTHONWARNINGS="ignore"
        )
        assert run.returncode == 0, run.stderr
        found[ranks] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", [*(name for name in OPTIONS if name != "summed"), "native"])
def test_two_ranks_train_like_one(results: dict[str, dict[str, Any]], name: str) -> None:
    assert results["2"][name] == pytest.approx(results["1"][name], rel=1e-5)
    assert results["2"][name][-1] < results["2"][name][0]


def test_without_averaging_gradients_add_up(results: dict[str, dict[str, Any]]) -> None:
    assert results["2"]["summed"][0] == pytest.approx(results["2"]["default"][0], rel=1e-5)
    assert results["2"]["summed"][1] < results["2"]["default"][1] - 0.01


def test_reducer_averages_on_demand(results: dict[str, dict[str, Any]]) -> None:
    assert results["2"]["reducer changed"]
    assert results["2"]["reducer"] < 1e-6


def test_gradients_can_be_views_of_the_buffers(results: dict[str, dict[str, Any]]) -> None:
    assert results["2"]["views"]


def test_unused_parameters_need_delay(results: dict[str, dict[str, Any]]) -> None:
    assert "delay_allreduce=True" in results["2"]["partial"]


def test_masters_of_all_ranks_agree_under_o2(results: dict[str, dict[str, Any]]) -> None:
    assert results["2"]["masters agree"]


def test_sync_batch_norm_groups(results: dict[str, dict[str, Any]]) -> None:
    assert results["2"]["group of one"]
    assert results["2"]["whole group"]


@pytest.mark.filterwarnings("ignore")
def test_convert_keeps_statistics_weights_and_other_layers() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3, eps=1e-3, momentum=None), nn.InstanceNorm1d(3))
    model(torch.randn(4, 2, 5))
    converted = convert_syncbn_model(model)
    assert [type(m) for m in converted] == [nn.Conv1d, SyncBatchNorm, nn.InstanceNorm1d]
    assert (converted[1].eps, converted[1].momentum) == (1e-3, None)
    assert int(converted[1].num_batches_tracked) == 1
    assert converted[1].running_mean.abs().max() > 0
    assert isinstance(convert_syncbn_model(nn.BatchNorm2d(2)), SyncBatchNorm)


def test_convert_warns_that_it_is_deprecated() -> None:
    with pytest.warns(FutureWarning, match="convert_sync_batchnorm"):
        convert_syncbn_model(nn.Identity())


def test_sync_batch_norm_alone_is_batch_norm() -> None:
    torch.manual_seed(0)
    ours, reference = SyncBatchNorm(3), nn.BatchNorm2d(3)
    x = torch.randn(4, 3, 2, 2)
    for _ in range(2):
        torch.testing.assert_close(ours(x), reference(x))
    torch.testing.assert_close(ours.running_var, reference.running_var)
    torch.testing.assert_close(ours.eval()(x), reference.eval()(x))
    last = SyncBatchNorm(3, channel_last=True, fuse_relu=True)
    z = torch.randn(4, 2, 2, 3)
    expected = torch.relu(nn.BatchNorm2d(3)(x) + z.movedim(-1, 1))
    torch.testing.assert_close(last(x.movedim(1, -1), z), expected.movedim(1, -1))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        SyncBatchNorm(3)(torch.randn(1, 3))
    with pytest.raises(ValueError, match="2D"):
        SyncBatchNorm(3)(torch.randn(3))


@pytest.mark.parametrize("clip", [True, False])
def test_larc(clip: bool) -> None:
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(4)), nn.Parameter(torch.zeros(3)), nn.Parameter(torch.randn(2))]
    optimizer = LARC(torch.optim.SGD(params, lr=0.5, weight_decay=0.1), trust_coefficient=0.02, clip=clip)
    grads = [torch.randn(4), torch.randn(3), torch.zeros(2)]
    before = [p.detach().clone() for p in params]
    for p, g in zip(params, grads, strict=True):
        p.grad = g.clone()
    optimizer.step()
    norm, grad_norm = before[0].norm(), grads[0].norm()
    rate = 0.02 * norm / (grad_norm + norm * 0.1 + 1e-8)
    rate = min(rate / 0.5, 1.0) if clip else rate
    torch.testing.assert_close(params[0].detach(), before[0] - 0.5 * rate * (grads[0] + 0.1 * before[0]))
    # A parameter or a gradient of zeros: the plain step, without decay.
    torch.testing.assert_close(params[1].detach(), before[1] - 0.5 * grads[1])
    torch.testing.assert_close(params[2].detach(), before[2])
    assert optimizer.param_groups[0]["weight_decay"] == 0.1


def test_larc_stands_in_for_its_optimizer() -> None:
    inner = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.5, momentum=0.9)
    optimizer = LARC(inner)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    assert optimizer.param_groups is inner.param_groups
    assert optimizer.state is inner.state
    assert optimizer.state_dict().keys() == inner.state_dict().keys()
    assert repr(optimizer) == repr(inner)
    optimizer.load_state_dict(inner.state_dict())
    for group in inner.param_groups:
        for p in group["params"]:
            p.grad = torch.ones_like(p)
    optimizer.zero_grad()
    assert inner.param_groups[0]["params"][0].grad is None


def test_flat_lists() -> None:
    tensors = [torch.arange(6.0).view(2, 3), torch.ones(2), torch.zeros(())]
    flat = flatten(tensors)
    assert flat.shape == (9,)
    for part, original in zip(unflatten(flat, tensors), tensors, strict=True):
        assert torch.equal(part, original)
    assert [len(group) for group in split_by_type([*tensors, torch.ones(1).half()]).values()] == [3, 1]
    found: list[torch.Tensor] = []
    extract_tensors([tensors[0], {"x": 1}, ("y", [tensors[1]])], found)
    assert len(found) == 2
