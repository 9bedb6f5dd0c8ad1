"""Nothing is said of products with the buffers of an object that no line moves to the GPU: O1 cast nothing on the CPU (AMP537)."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files
from tests.rules.programs import found

SPECTRUM = """
import torch


class Windows(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("basis", torch.ones(size, 1, size))

    def cut(self, sound):
        return torch.nn.functional.conv1d(sound.unsqueeze(1), self.basis)


class Spectrum(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.windows = Windows(size)
        self.register_buffer("bands", torch.rand(3, size))

    def measure(self, sound):
        return torch.matmul(self.bands, self.windows.cut(sound))
"""
RUN = """
import argparse

import torch
from apex import amp
from sounds import load, take
from spectrum import Spectrum


def show(tool, sound):
    SHOWN
    return tool.windows.cut(sound)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", action="store_true")
    args = parser.parse_args()
    net = torch.nn.Linear(3, 2).cuda()
    if args.half:
        net = amp.initialize(net, opt_level="O1")
    spectrum = Spectrum(16)
    MOVED
    for sound in load():
        bands = spectrum.measure(sound)
        print(show(spectrum, sound))
        with torch.no_grad():
            print(net(bands.transpose(1, 2).cuda()).shape)


if __name__ == "__main__":
    main()
"""


def told(moved: str = "pass", shown: str = "pass", spectrum: str = SPECTRUM) -> bool:
    files = {"run.py": RUN.replace("MOVED", moved).replace("SHOWN", shown), "spectrum.py": spectrum}
    return bool(found(rewrite_files(files)["spectrum.py"], "AMP537"))


@pytest.mark.parametrize("moved", ["pass", "other = spectrum\n    print(other)", "load().cuda()"])
def test_an_object_that_stays_where_it_is_made_is_on_the_cpu(moved: str) -> None:
    assert not told(moved)


@pytest.mark.parametrize(
    "moved",
    [
        "spectrum.cuda()",
        "spectrum = spectrum.to(net.weight.device)",
        "other = spectrum\n    other.cuda()",
        "take(spectrum)",
        "held = [spectrum]",
        "spectrum.windows.cuda()",
    ],
)
def test_one_that_may_be_moved_is_told_of(moved: str) -> None:
    assert told(moved)


def test_so_is_one_that_a_function_moves_which_it_is_handed_to() -> None:
    assert told(shown="tool.cuda()")


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ('"bands", torch.rand(3, size))', '"bands", torch.rand(3, size, device="cuda"))'),
        (
            'self.register_buffer("bands", torch.rand(3, size))',
            'self.register_buffer("bands", torch.rand(3, size))\n        self.cuda()',
        ),
    ],
)
def test_so_is_one_that_is_made_on_the_gpu(line: str, instead: str) -> None:
    assert told(spectrum=SPECTRUM.replace(line, instead))
