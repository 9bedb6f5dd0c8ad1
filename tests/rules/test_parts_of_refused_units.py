"""What wraps a model or makes an optimizer of a set-up that stays with Apex stays with it; what another set-up needs does not."""

from __future__ import annotations

import pytest

from amp_migrate.findings import FileResult
from tests.rules.helpers import rewrite_files

MAKE = """
    import torch
    from torch import nn

    def distributed(model, optimizer, use_apex=False, level="O0", sync=False):
        if use_apex:
            import apex.parallel
            from apex import amp
            wrapped, optimizer = amp.initialize(model, optimizer, opt_level=level)
            kind = own(apex.parallel.DistributedDataParallel)
            wrapped = kind(wrapped)
            if sync:
                wrapped = apex.parallel.convert_syncbn_model(wrapped)
        else:
            wrapped = nn.parallel.DistributedDataParallel(model)
        return wrapped, optimizer
    """
FIT = """
    import torch
    from make import distributed

    def fit(model, batches):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = distributed(model, optimizer, True, "O2", True)
        for batch in batches:
            optimizer.zero_grad()
            loss = model(batch).sum()
            BACKWARD
            optimizer.step()
    """
PLAIN = "loss.backward()"
SCALED = "with amp.scale_loss(loss, optimizer) as scaled:\n                scaled.backward()"


def waiting(result: FileResult) -> list[str]:
    return [f.code for f in result.findings if f.status == "manual" and f.message.startswith("waits for")]


def test_wrappers_wait_for_their_set_up() -> None:
    """No loss is scaled, so that `initialize` stays: a program half in torch would still need Apex."""
    results = rewrite_files({"make.py": MAKE, "fit.py": FIT.replace("BACKWARD", PLAIN)})
    assert results["make.py"].after is None
    assert waiting(results["make.py"]) == ["AMP601", "AMP611"]
    fit = FIT.replace("BACKWARD", SCALED).replace("import torch\n", "import torch\n    from apex import amp\n")
    results = rewrite_files({"make.py": MAKE, "fit.py": fit})
    assert "apex" not in (results["make.py"].after or "apex").replace("use_apex", "")


MODEL = """
    import torch
    from apex import amp
    from apex.optimizers import FusedAdam
    from apex.parallel import DistributedDataParallel as DDP

    def make(model):
        return FusedAdam(model.parameters(), lr=0.1)

    def wrap(model):
        return DDP(model)
    """
TRAIN = """
    import torch
    from apex import amp
    from model import make, wrap

    def main(batches):
        net = torch.nn.Linear(2, 1).cuda()
        optimizer = make(net)
        net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
        net = wrap(net)
        for batch in batches:
            optimizer.zero_grad()
            with amp.scale_loss(net(batch).sum(), optimizer) as loss:
                loss.backward()
            optimizer.step()
        MORE

    main([])
    """


@pytest.mark.parametrize(("more", "left"), [("pass", False), ("amp._amp_state.loss_scalers.clear()", True)])
def test_what_is_made_elsewhere_waits_too(more: str, left: bool) -> None:
    results = rewrite_files({"model.py": MODEL, "train.py": TRAIN.replace("MORE", more)})
    assert (results["model.py"].after is None) is left
    assert (results["train.py"].after is None) is left
    assert waiting(results["model.py"]) == (["AMP621", "AMP601"] if left else [])
    assert ("torch.optim.Adam(" in (results["model.py"].after or "")) is not left


def test_what_a_program_that_is_migrated_needs_as_well_does_not_wait() -> None:
    """An example that stays does not hold the library back that it shares with the program."""
    refused = TRAIN.replace("MORE", "amp._amp_state.loss_scalers.clear()")
    model = """
        import torch
        from apex.parallel import convert_syncbn_model

        def make(model):
            return torch.optim.SGD(model.parameters(), lr=0.1)

        def wrap(model):
            return convert_syncbn_model(model)
        """
    results = rewrite_files({"model.py": model, "train.py": TRAIN.replace("MORE", "pass"), "examples/odd.py": refused})
    assert results["examples/odd.py"].after is None
    assert "GradScaler" in (results["train.py"].after or "")
    assert "convert_sync_batchnorm" in (results["model.py"].after or "")
    alone = rewrite_files({"model.py": model, "train.py": refused})
    assert alone["model.py"].after is None
    assert waiting(alone["model.py"]) == ["AMP611"]


def test_what_is_for_no_set_up_does_not_wait() -> None:
    other = """
        from apex.parallel import DistributedDataParallel as DDP
        from other import Net

        def plain(batches):
            replica = DDP(Net())
            return [replica(b) for b in batches]
        """
    texts = {"make.py": MAKE, "fit.py": FIT.replace("BACKWARD", PLAIN), "plain.py": other}
    results = rewrite_files(texts)
    assert results["make.py"].after is None
    assert "torch.nn.parallel" in (results["plain.py"].after or "")
