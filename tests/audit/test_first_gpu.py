"""torch's DistributedDataParallel that brings the inputs of every process to the first GPU, where Apex's left them."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BESIDE = """
    import torch
    from torch.nn.parallel import DistributedDataParallel as Native
    from apex import amp
    from apex.parallel import DistributedDataParallel as ApexDDP

    def single(args):
        args.gpu = 0

    def prepare(args, model):
        begun = 0
        first = begun
        gpus = [first]
        count = args.gpus
        model = model.cuda(args.rank)
        if args.amp != "native":
            model = ApexDDP(model, delay_allreduce=True)
        else:
            model = Native(model{given})
        return model
    """
ALONE = """
    import torch
    from torch.nn.parallel import DistributedDataParallel as Native

    def single(args):
        args.gpu = 0

    def prepare(args, model):
        begun = 0
        first = begun
        gpus = [first]
        count = args.gpus
        model = model.cuda(args.rank)
        model = Native(model{given})
        return model
    """


def said(given: str, before: str = BESIDE) -> list[str]:
    return [d.message for d in doubts(before.format(given=given), ALONE.format(given=given)) if d.code == "AMP656"]


@pytest.mark.parametrize(
    "given",
    [
        ", device_ids=list(range(args.gpus))",
        ", device_ids=[0]",
        ", [0]",
        ", device_ids=[first]",
        ", device_ids=range(0, args.gpus)",
        ", device_ids=[*range(args.gpus)]",
        ", device_ids=[i for i in range(count)]",
        ", device_ids=['cuda:0']",
        ", device_ids=[torch.device('cuda', 0)]",
        ", device_ids=gpus",
    ],
)
def test_a_branch_that_stays_and_names_the_first_gpu_is_told(given: str) -> None:
    (message,) = said(given)
    assert "is GPU 0 in every process" in message


@pytest.mark.parametrize(
    "given",
    [
        "",
        ", device_ids=None",
        ", device_ids=[args.rank]",
        ", device_ids=[i + 1 for i in range(count)]",
        ", device_ids=[torch.device('cuda', args.rank)]",
        ", device_ids=args.devices",
        ", device_ids=everywhere",
        ", device_ids=[args.gpu]",
        ", device_ids=range(args.rank, args.gpus)",
    ],
)
def test_another_gpu_or_none_is_not(given: str) -> None:
    assert not said(given)


def test_neither_is_a_call_that_was_torchs_before() -> None:
    native = ALONE.replace("return model", "return model  # from apex import amp")
    before = native.replace("import torch\n", "import torch\n    from apex import amp\n", 1)
    assert not said(", device_ids=[0]", before)


@pytest.mark.parametrize(
    "start", ["prepare(0, args, model)", "mp.spawn(prepare, (args, model), 4) if many else prepare(0, args, model)"]
)
def test_a_parameter_is_what_a_launcher_gives_each_process(start: str) -> None:
    """One call that names GPU 0 is a process alone, or has others beside it that nothing shows."""
    texts = (t.format(given=", device_ids=[gpu]").replace("prepare(args", "prepare(gpu, args") for t in (BESIDE, ALONE))
    before, after = (
        f"{t}\n    import torch.multiprocessing as mp\n    from project import args, many, model\n    {start}\n"
        for t in texts
    )
    assert not [d for d in doubts(before, after) if d.code == "AMP656"]
