"""What torch's DistributedDataParallel is given, and what is said of it, for the parts of a model that take part in its training."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.rules.helpers import rewrite

MODES = """
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.g = nn.Linear(2, 2)
            self.d = nn.Linear(2, 2)

        def forward(self, x, mode):
            if mode == "generator":
                return self.d(self.g(x)).sum()
            with torch.no_grad():
                fake = self.g(x)
            return self.d(fake).sum()

    def train(loader):
        model = Both()
        model = DDP(model, delay_allreduce=True)
        for x in loader:
            model(x, mode="generator").backward()
            model(x, mode="discriminator").backward()
        return model
    """
RUN = """
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
train([torch.ones(1, 2)] * 3)
print("trained")
torch.distributed.destroy_process_group()
"""


def test_a_model_of_several_modes_trains(tmp_path: Path) -> None:
    result = rewrite(MODES)
    assert "DDP(model, find_unused_parameters=True)" in (result.after or "")
    assert not [f for f in result.findings if f.code == "AMP651"]
    assert _output(tmp_path, (result.after or "") + RUN) == "trained"
    plain = textwrap.dedent(MODES).replace("apex.parallel", "torch.nn.parallel").replace("delay_allreduce=True", "")
    assert _output(tmp_path, plain + RUN) == ""  # which waits for the generator's gradients


def _output(folder: Path, text: str) -> str:
    script = folder / "train.py"
    script.write_text(text)
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    return run.stdout.strip()
