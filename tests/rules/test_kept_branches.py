"""A branch of the program's own that stays where Apex's goes is read as if it were written: no run with Apex came to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.audit.helpers import doubts
from tests.rules.helpers import names_of, rewrite
from tests.rules.programs import found

WRAPPED = """
    import torch
    from torch.nn.parallel import DistributedDataParallel as NativeDDP
    try:
        from apex.parallel import DistributedDataParallel as ApexDDP
        has_apex = True
    except ImportError:
        has_apex = False

    {set_device}
    def prepare(args, model):
        gpus = [0]
        if {test}:
            model = ApexDDP(model, delay_allreduce=True)
        else:
            model = NativeDDP(model{given})
        return model
    """
ALL_RUNS = "runs without mixed precision, which took Apex's"


def wrapped(given: str, set_device: str = "", test: str = "has_apex and args.amp != 'native'") -> tuple[str, str]:
    result = rewrite(WRAPPED.format(given=given, set_device=set_device, test=test))
    (finding,) = found(result, "AMP601")
    return result.after or "", finding.message


def given_to_torchs(after: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the program gives torch's class when it runs."""
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel", lambda module, **given: seen.append(given))
    names_of(after)["prepare"](SimpleNamespace(amp="", gpus=2, rank=1), torch.nn.Linear(2, 2))
    return seen[0]


@pytest.mark.parametrize(
    "given",
    [
        ", device_ids=list(range(args.gpus))",
        ", device_ids=[0]",
        ", device_ids=range(args.gpus), output_device=0",
        ", device_ids=[i for i in range(args.gpus)]",
        ", device_ids=[*range(args.gpus)]",
        ", device_ids=['cuda:0']",
        ", device_ids=[torch.device('cuda', 0)]",
        ", device_ids=gpus",
    ],
)
def test_the_first_gpu_of_all_is_none_that_each_process_has(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    after, message = wrapped(given)
    assert given_to_torchs(after, monkeypatch) == {}
    assert "GPU 0 in every process" in message


def test_it_gives_way_to_the_gpu_that_the_process_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    after, message = wrapped(", device_ids=[0]", "def setup(args):\n        torch.cuda.set_device(args.rank)\n")
    assert given_to_torchs(after, monkeypatch) == {"device_ids": [1]}
    assert "with device_ids=[args.rank] in place of device_ids=[0]" in message


@pytest.mark.parametrize(
    ("given", "devices"),
    [(", device_ids=[args.rank]", {"device_ids": [1]}), ("", {}), (", device_ids=[args.gpus]", {"device_ids": [2]})],
)
def test_another_stays_as_it_is(given: str, devices: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    after, message = wrapped(given)
    assert given_to_torchs(after, monkeypatch) == devices
    assert "GPU 0" not in message


def test_the_arguments_of_a_call_beside_are_taken_without_it() -> None:
    source = """
        import torch
        from torch import nn
        from apex.parallel import DistributedDataParallel as DDP

        def prepare(args, model):
            if args.native:
                model = nn.parallel.DistributedDataParallel(model, device_ids=[0], broadcast_buffers=False)
            if args.apex:
                model = DDP(model)
            return model
        """
    after = rewrite(source).after or ""
    assert "DDP(model, broadcast_buffers=False)" in after


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("has_apex and args.amp != 'native'", True),
        ("has_apex", True),
        ("has_apex and not args.native", True),
        ("args.amp == 'apex'", False),
        ("has_apex and args.amp == 'apex'", False),
    ],
)
def test_runs_without_mixed_precision_that_took_apexs_class_are_told(test: str, told: bool) -> None:
    _, message = wrapped("", test=test)
    assert (ALL_RUNS in message) is told
    assert ("raises where a parameter gets no gradient" in message) is ("has_apex" in test)


# -- what turned mixed precision off ---------------------------------------------------------------------------------------

OFF = """
    import torch
    from apex import amp

    from project import args, build, loader

    model, optimizer = build()
    use_amp = None
    if args.apex_amp:
        use_amp = "apex"
    elif args.native_amp:
        use_amp = "native"
    if args.gpus > 1:
        if use_amp == "apex":
            print("not with DataParallel")
            {off}
        model = torch.nn.DataParallel(model)
    if use_amp == "apex":
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    scaler = torch.amp.GradScaler("cuda", enabled=use_amp == "native")
    for x in loader:
        with torch.autocast("cuda", enabled=use_amp == "native"):
            loss = model(x).mean()
        if use_amp == "apex":
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        elif use_amp == "native":
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
    """


@pytest.mark.parametrize(
    ("off", "told"),
    [("use_amp = None", True), ("use_amp = ''", True), ("args.level = None", False), ("use_amp = 'apex'", False)],
)
def test_what_turned_mixed_precision_off_in_the_branch_that_goes_is_told(off: str, told: bool) -> None:
    result = rewrite(OFF.format(off=off))
    assert result.after is not None
    assert "amp.initialize" not in result.after
    assert bool([f for f in found(result, "AMP120") if "went on in float32" in f.message]) is told


@pytest.mark.parametrize(
    ("off", "kept", "told"),
    [
        ("use_amp = None", "pass", True),
        ("use_amp = None", "use_amp = None", False),
        ("args.level = None", "pass", False),
    ],
)
def test_the_audit_sees_it_by_itself(off: str, kept: str, told: bool) -> None:
    before = OFF.format(off=off)
    after = OFF.format(off=kept).replace('"apex"', '"native"').replace("from apex import amp\n", "", 1)
    head, _, rest = after.partition('        if use_amp == "native":\n            with amp.scale_loss')
    rest = rest.partition("        elif")[2]
    after = head.replace(
        '    if use_amp == "native":\n        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n', ""
    )
    after += "        if" + rest
    assert bool([d for d in doubts(before, after) if "had use_amp = None from here on" in d.message]) is told
