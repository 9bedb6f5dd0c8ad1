"""Why something of Apex stays that no rule takes: its wrapper waits for its callers, a scaler of the program's own is one."""

from __future__ import annotations

import textwrap

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import apex, found

FILES = {
    "scaling.py": """
        import contextlib

        try:
            from apex import amp
        except ImportError:
            amp = None


        @contextlib.contextmanager
        def scaled(loss, optimizer):
            if amp is None:
                yield loss
            else:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    yield scaled_loss
    """,
    "network.py": """
        import torch
        from scaling import scaled


        class Network(torch.nn.Module):
            @staticmethod
            def closure(model, data, optimizers):
                loss = model(data).mean()
                optimizers["default"].zero_grad()
                with scaled(loss, optimizers["default"]) as scaled_loss:
                    scaled_loss.backward()
                optimizers["default"].step(lambda: loss)
                return loss
    """,
    "trainer.py": """
        class Trainer:
            def __init__(self, network, optimizers):
                from apex import amp

                self.network, (optimizers["default"],) = amp.initialize(network, [optimizers["default"]], opt_level="O1")
    """,
}


def test_an_import_that_a_wrapper_reads_waits_for_what_its_callers_wait_for() -> None:
    results = rewrite_files({path: textwrap.dedent(text) for path, text in FILES.items()})
    (cause,) = {f.code for f in results["network.py"].findings if f.cause is None and f.status == "manual"}
    (told,) = found(results["scaling.py"], "AMP102")
    assert told.message.startswith("waits for network.py:")
    assert told.message.endswith(f"({cause})")


def test_a_loss_scaler_of_the_programs_own_is_named_as_one() -> None:
    source = apex(tail="own = amp.scaler.LossScaler(2**14)\npenalty = criterion(model(x), y) * own.loss_scale()\n")
    messages = [f.message for f in found(rewrite(source), "AMP102")]
    assert any("holds a loss scale of the program's own" in m for m in messages)
