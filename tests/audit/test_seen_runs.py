"""Networks of which it is seen that nothing runs them in a region: of what these compute nothing is said."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of

NETS = """
import torch

class Spectrum(torch.nn.Module):
    def __init__(self):
        super(Spectrum, self).__init__()
        self.register_buffer("basis", torch.rand(4, 4))

    def transform(self, x):
        return torch.einsum("bl,kl->bk", x, self.basis)

    def forward(self, x):
        return self.transform(x)

class Denoiser(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.spectrum = Spectrum().cuda()
        OWN

    def forward(self, audio):
        return self.spectrum.transform(audio)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Conv1d(1, 1, 3)

    def forward(self, x):
        return self.body(x)
"""
RUN = """
import torch
from nets import Denoiser, Net, Spectrum
IMPORT

def main(loader):
    net = Net().cuda().eval()
    SETUP
    denoiser = Denoiser(net).cuda()
    denoiser.eval()
    MORE
    for x in loader:
        with torch.no_grad():
            REGION
                audio = net(x)INSIDE
            audio = audio.float()
            OUTSIDE
        print(audio.float().cpu().numpy())

main(load())
"""


def told(outside: str = "audio = denoiser(audio)", inside: str = "", more: str = "pass", own: str = "pass") -> bool:
    run = RUN.replace("OUTSIDE", outside).replace("INSIDE", f"\n                {inside}" if inside else "")
    run = run.replace("MORE", more)
    before = run.replace("IMPORT", "from apex import amp").replace("REGION", "if True:")
    before = before.replace("SETUP", 'net, _ = amp.initialize(net, [], opt_level="O1")')
    after = run.replace("IMPORT\n", "").replace("    SETUP\n", "")
    after = after.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16):')
    found = doubts_of({"nets.py": NETS.replace("OWN", own), "run.py": before}, {"run.py": after})
    return any(d.code == "AMP535" and d.path == "nets.py" and "einsum" in d.message for d in found)


def test_what_runs_behind_the_region_alone() -> None:
    assert not told()
    assert not told("audio = denoiser.forward(audio)")
    assert not told("pass")


@pytest.mark.parametrize(
    "more",
    [
        {"inside": "audio = denoiser(audio)"},
        {"inside": "audio = denoiser.forward(audio)"},
        {"more": "runner.add(denoiser)"},
        {"more": "stages = [denoiser]"},
        {"more": "runner.add(Denoiser)"},
        {"more": "stages = [Spectrum()]"},
        {"own": "self.stages = torch.nn.ModuleList([self.spectrum])"},
    ],
)
def test_what_may_run_in_it(more: dict[str, str]) -> None:
    assert told(**more)
