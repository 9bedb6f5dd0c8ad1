"""How the scaler reaches code in other files; what is emitted is run on the CPU, where GradScaler scales as well."""

from __future__ import annotations

from pathlib import Path

from tests.rules.helpers import check_files, run_files

PARTS = """
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(3)]
"""


def test_an_object_that_keeps_the_state_of_amp_is_given_the_scaler(tmp_path: Path) -> None:
    """Its file never names Apex: `amp` comes in through a parameter, and through the one of a helper."""
    files = {
        "parts.py": PARTS,
        "state.py": """
            class TrainingState:
                def __init__(self, amp_state=None):
                    self.amp_state = amp_state

                def track(self, amp):
                    self._keep(amp)

                def _keep(self, amp):
                    self.amp_state = amp.state_dict()


            def loudness(amp):
                return amp.max()
        """,
        "train.py": """
            import json

            import torch
            from apex import amp

            from parts import batches, model, optimizer
            from state import TrainingState


            def main():
                global model, optimizer
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
                state = TrainingState()
                for x, y in batches:
                    loss = (model(x) - y).pow(2).mean() * 1e-4
                    optimizer.zero_grad()
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                    optimizer.step()
                    state.track(amp)
                print(json.dumps(state.amp_state))


            main()
        """,
    }
    texts = check_files(files, device="cpu")
    assert "def track(self, scaler):\n        self._keep(scaler)\n" in texts["state.py"]
    assert "def _keep(self, scaler):\n        self.amp_state = scaler.state_dict()\n" in texts["state.py"]
    assert "def loudness(amp):\n    return amp.max()\n" in texts["state.py"]
    state = run_files(tmp_path, texts, "train.py")
    assert (state["scale"], state["_growth_tracker"]) == (65536.0, 3)
