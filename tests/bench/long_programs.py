"""Programs that are long in one way: functions that train, lines, numbers in a list, programs beside each other."""

from __future__ import annotations

HEAD = "import torch\nfrom apex import amp\n"
TRAINING = """

def train_{0}(model, optimizer, loader):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()
"""
HELPER = """

def helper_{0}(x, y=None):
    if y is None:
        y = x + {0}
    return [v * 2 for v in y]
"""


def functions(number: int) -> dict[str, str]:
    """One file with so many functions that train."""
    return {"train.py": HEAD + "".join(TRAINING.format(i) for i in range(number))}


def lines(number: int) -> dict[str, str]:
    """One file of so many lines, one function of which trains."""
    each = HELPER.count("\n")
    return {"train.py": HEAD + TRAINING.format(0) + "".join(HELPER.format(i) for i in range(number // each))}


def numbers(number: int) -> dict[str, str]:
    """One file with a list of so many numbers beside its training."""
    table = "".join(f"{i % 97}," + "\n" * (i % 20 == 19) for i in range(number))
    return {"train.py": f"{HEAD}\nTABLE = [\n{table}\n]\n{TRAINING.format(0)}"}


def programs(number: int) -> dict[str, str]:
    """So many programs of one file each."""
    return {f"train_{i}.py": HEAD + TRAINING.format(i) for i in range(number)}
