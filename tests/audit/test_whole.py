"""What belongs to a unit that stays with Apex stays too."""

from __future__ import annotations

from tests.audit.helpers import doubts, doubts_of, told

LARC = """
    import torch
    from apex import amp
    from apex.parallel.LARC import LARC

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = LARC(optimizer, trust_coefficient=0.001)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    """


def test_a_wrapper_written_out_while_initialize_stays() -> None:
    after = """
        import torch
        from apex import amp

        class LARC:
            def __init__(self, optimizer, trust_coefficient):
                self.optimizer = optimizer

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = LARC(optimizer, trust_coefficient=0.001)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        """
    assert told(doubts(LARC, after), "AMP135") == [(7, "refuse")]


def test_a_wrapper_that_goes_with_initialize() -> None:
    after = """
        import torch

        class LARC:
            def __init__(self, optimizer, trust_coefficient):
                self.optimizer = optimizer

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = LARC(optimizer, trust_coefficient=0.001)
        scaler = torch.amp.GradScaler("cuda")
        """
    assert not told(doubts(LARC, after), "AMP135")


def test_an_optimizer_that_fp16_optimizer_still_wraps() -> None:
    before = """
        import apex
        import torch

        def build(params, name):
            if name == "fused":
                optimizer = apex.optimizers.FusedAdam(params, lr=0.1)
            else:
                optimizer = torch.optim.Adam(params, lr=0.1)
            return apex.optimizers.FP16_Optimizer(optimizer, dynamic_loss_scale=True)
        """
    after = before.replace(
        "apex.optimizers.FusedAdam(params, lr=0.1)", "torch.optim.AdamW(params, lr=0.1, weight_decay=0.0)"
    )
    assert told(doubts(before, after), "AMP135") == [(6, "refuse")]


def test_a_distributed_model_that_apex_still_initializes() -> None:
    before = """
        import torch
        from apex import amp
        from apex.parallel import DistributedDataParallel as DDP

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        model = DDP(model)
        """
    after = before.replace("from apex.parallel import", "from torch.nn.parallel import")
    assert told(doubts(before, after), "AMP135") == [(8, "refuse")]


def test_a_registration_that_goes_while_apex_stays() -> None:
    before = """
        import torch
        from apex import amp

        amp.register_half_function(torch, "einsum")

        def build(model, optimizer):
            return amp.initialize(model, optimizer, opt_level="O1")
        """
    after = before.replace('        amp.register_half_function(torch, "einsum")\n', "")
    assert told(doubts(before, after), "AMP135") == [(4, "refuse")]


TYPES = """
import torch
from torch.nn.parallel import DistributedDataParallel
try:
    from apex.parallel import DistributedDataParallel as ApexDDP
    WRAPPED = (ApexDDP, DistributedDataParallel)
except ImportError:
    WRAPPED = (DistributedDataParallel,)

def unwrap(model):
    return model.module if isinstance(model, WRAPPED) else model
"""
TYPES_NOW = """
import torch
from torch.nn.parallel import DistributedDataParallel
WRAPPED = (DistributedDataParallel, DistributedDataParallel)

def unwrap(model):
    return model.module if isinstance(model, WRAPPED) else model
"""
MAKES = """
from apex.parallel import DistributedDataParallel
from wrapped import unwrap

def build(model):
    return DistributedDataParallel(model)
"""


def test_a_type_that_apexs_objects_are_told_by_stays_while_they_are_made() -> None:
    before = {"wrapped.py": TYPES, "build.py": MAKES}
    found = [d for d in doubts_of(before, {"wrapped.py": TYPES_NOW}) if d.code == "AMP135"]
    assert [(d.path, d.line, d.verdict) for d in found] == [("wrapped.py", 5, "refuse")]
    both = {"wrapped.py": TYPES_NOW, "build.py": MAKES.replace("apex.parallel", "torch.nn.parallel")}
    assert not [d for d in doubts_of(before, both) if d.code == "AMP135"]


INIT = """
    import torch
    from apex import amp

    def main(model, optimizer, loader):
        handle = amp.init(enabled=True)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in loader:
            with amp.scale_loss(model(x), optimizer) as loss:
                loss.backward()
            optimizer.step()
    """


def test_a_handle_that_stays_where_no_loss_is_scaled_any_more() -> None:
    after = """
        import torch
        from apex import amp

        def main(model, optimizer, loader):
            handle = amp.init(enabled=True)
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                with torch.autocast("cuda"):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """
    assert told(doubts(INIT, after), "AMP135") == [(5, "refuse")]


ALIAS = """
    from apex import amp

    model, optimizer = build()
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = criterion(model(x), y)
        scaled = amp.scale_loss
        with {called}(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """


def test_scale_loss_under_another_name_without_initialize() -> None:
    before = ALIAS.format(called="scaled")
    initialize = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    assert initialize in before
    found = doubts(before, before.replace(initialize, "scaler = torch.amp.GradScaler()"))
    assert told(found, "AMP135") == [(4, "refuse")]
    assert "scale_loss is still used, at train.py:7" in next(d.message for d in found if d.code == "AMP135")


def test_scale_loss_where_another_initialize_stays() -> None:
    before = ALIAS.format(called="scaled") + ALIAS.format(called="amp.scale_loss")
    after = before.replace('amp.initialize(model, optimizer, opt_level="O1")', "model, optimizer", 1)
    assert "raises where nothing" not in str(doubts(before, after))


TWO_WRAPPERS = """
    import torch
    from apex import amp

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    if args.fp16:
        from apex.parallel import DistributedDataParallel
        model = DistributedDataParallel(model)
    else:
        from torch.nn.parallel import DistributedDataParallel
        model = DistributedDataParallel(model, device_ids=[0])
    """


def test_only_apexs_wrapper_is_said_to_be_left_with_it() -> None:
    after = TWO_WRAPPERS.replace(
        "        from apex.parallel import DistributedDataParallel\n",
        "        from torch.nn.parallel import DistributedDataParallel\n",
    )
    assert told(doubts(TWO_WRAPPERS, after), "AMP135") == [(9, "refuse")]
