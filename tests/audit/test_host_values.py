"""Half values on the CPU: a region for the GPU casts nothing there, and Apex had made them float32."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

PROGRAM = """
    import torch
    {apex}

    class Loss(torch.nn.Module):
        def forward(self, outputs, targets):
            first, second = outputs
            return torch.nn.{kind}()(first, targets) + second.shape[0]


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(2, 2)

        def forward(self, x):
            return [self.body(x), self.body(x)]


    model = Net().cuda()
    judge = Loss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {set_up}
    for x, y in {data}:
        {region}
            outputs = model(x)
            host = {host}
            loss = {loss}
        {scaled}
        optimizer.zero_grad()
    """


def found(
    host: str, loss: str, level: str = "O1", kind: str = "BCEWithLogitsLoss", data: str = "[]"
) -> list[tuple[int, str]]:
    before = PROGRAM.format(
        apex="from apex import amp",
        set_up=f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")',
        region="if True:",
        host=host,
        kind=kind,
        data=data,
        loss=loss,
        scaled="with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()\n        optimizer.step()",
    )
    after = PROGRAM.format(
        apex="",
        set_up='scaler = torch.amp.GradScaler("cuda")',
        region='with torch.autocast("cuda", dtype=torch.float16):',
        host=host,
        kind=kind,
        data=data,
        loss=loss,
        scaled="scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()",
    )
    return [(line, verdict) for line, verdict in told(doubts(before, after), "AMP535")]


HOST = "[o.cpu() for o in outputs]"


@pytest.mark.parametrize(
    ("host", "loss", "line"),
    [
        (HOST, "judge(host, y)", 7),
        (HOST, "torch.softmax(host[0], dim=1).sum()", 27),
        (HOST, "torch.nn.functional.mse_loss(host[0], y)", 27),
        ("outputs[0].cpu()", "torch.nn.MSELoss()(host, y)", 27),
    ],
)
def test_what_is_computed_on_the_cpu_inside_of_a_region_is_half(host: str, loss: str, line: int) -> None:
    assert found(host, loss) == [(line, "review")]


@pytest.mark.parametrize(
    ("host", "loss"),
    [
        ("[o.float().cpu() for o in outputs]", "judge(host, y)"),
        ("[o.cpu().float() for o in outputs]", "judge(host, y)"),
        (HOST, "judge(outputs, y)"),
        (HOST, "torch.nn.MSELoss()(outputs[0], y) + len(host)"),
    ],
)
def test_float32_on_the_cpu_and_values_on_the_gpu_are_not_told(host: str, loss: str) -> None:
    assert found(host, loss) == []


@pytest.mark.parametrize(
    ("best", "half"),
    [
        ("outputs[0].max(1).values", True),
        ("outputs[0].max(1).indices", False),
        ("torch.topk(outputs[0], 2).indices", False),
    ],
)
def test_the_places_of_values_are_whole_numbers(best: str, half: bool) -> None:
    assert bool(found(f"{best}.cpu().numpy()", "torch.nn.MSELoss()(outputs[0], y)")) is half


BESIDE = """
    import numpy as np
    import torch
    {apex}

    def pick(boxes):
        {pick}

    model = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {set_up}
    for x, y in []:
        {region}
            out = model(x)
            picked = pick(out.data)
            loss = torch.nn.functional.mse_loss(out, y)
        {scaled}
        optimizer.zero_grad()
    """


@pytest.mark.parametrize(
    ("pick", "said"),
    [
        ("return boxes.cpu()[0, :].numpy()", "Write .float() first"),
        ("return np.stack([b.cpu() for b in boxes])", ".astype(numpy.float32) where it is an array"),
        ("return np.maximum(0, boxes.cpu())", ".astype(numpy.float32) where it is an array"),
        ("return boxes.float().cpu().numpy()", ""),
        ("return np.stack([b.float().cpu() for b in boxes])", ""),
        ("return boxes.argmax(1).cpu().numpy()", ""),
    ],
)
def test_what_a_function_that_a_region_calls_gives_numpy(pick: str, said: str) -> None:
    """Beside the models: O1 made it float32 where it went to the CPU."""
    before = BESIDE.format(
        apex="from apex import amp",
        set_up='model, optimizer = amp.initialize(model, optimizer, opt_level="O1")',
        region="if True:",
        pick=pick,
        scaled="with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()\n        optimizer.step()",
    )
    after = BESIDE.format(
        apex="",
        set_up='scaler = torch.amp.GradScaler("cuda")',
        region='with torch.autocast("cuda", dtype=torch.float16):',
        pick=pick,
        scaled="scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()",
    )
    found = [d.message for d in doubts(before, after) if d.code == "AMP535"]
    assert len(found) == bool(said)
    assert all(said in message for message in found)


@pytest.mark.parametrize(("kind", "lines"), [("MSELoss", []), ("L1Loss", []), ("BCEWithLogitsLoss", [7])])
def test_a_loss_beside_data_on_the_cpu_computes_in_its_dtype(kind: str, lines: list[int]) -> None:
    """But for one whose gradient is half."""
    host = "[output.cpu() for output in outputs]"
    assert [line for line, _ in found(host, "judge(host, y)", kind=kind, data="load()")] == lines
