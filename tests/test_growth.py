"""Work grows with the program, not with its square: counted in calls of functions, which no busy machine changes."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import cast

import pytest

from amp_migrate.audit.program.near import Near
from amp_migrate.audit.sites.networks import TENSORFLOW, TORCH
from amp_migrate.audit.stepping.bodies import Bodies
from amp_migrate.audit.ways import latest
from amp_migrate.audit.ways.predicates import Predicates
from amp_migrate.engine import Program, migrate
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile
from tests.bench.long_programs import HEAD, TRAINING, functions, lines, numbers, programs


def calls(files: dict[str, str]) -> int:
    """How many functions are called to migrate a program."""
    sources = [SourceFile(Path(path), path, text) for path, text in files.items()]
    count = 0

    def counted(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")  # a walk over all nodes is one call of Python's and many of C's

    gc.disable()
    sys.setprofile(counted)
    try:
        results = migrate(Program(sources, root=Path()), Options())
    finally:
        sys.setprofile(None)
        gc.enable()
    assert all(result.status == "migrated" for result in results)
    return count


def many_lines(number: int) -> dict[str, str]:
    return lines(120 * number)  # twenty helpers for one


def filtered(number: int) -> dict[str, str]:
    """Weights chosen in many steps, each from those chosen before."""
    chosen = "".join(f"    weights = [w for w in weights if w.dim() != {n}]\n" for n in range(number))
    program = """import torch
from apex import amp


def train(model, batches):
    weights = list(model.parameters())
CHOSEN
    optimizer = torch.optim.SGD(weights, lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
"""
    return {"train.py": program.replace("CHOSEN", chosen)}


def held(number: int) -> dict[str, str]:
    """Functions that run the network which an object has that as many functions give one."""
    each = "".join(
        f"""

def fill_{n}(options):
    options.net = torch.nn.Linear({n + 1}, 1)


def use_{n}(options, x):
    return options.net(x)
"""
        for n in range(number)
    )
    return {
        "train.py": HEAD
        + each
        + TRAINING.format(0).replace("model", "options.net").replace("(options.net, ", "(options, ", 1)
    }


def layered(number: int) -> dict[str, str]:
    """Functions that each call both of the next layer: as many ways to the last as the power of two."""
    each = "".join(
        f"""

def {name}_{n}(model, optimizer, x):
    return first_{n + 1}(model, optimizer, x) + second_{n + 1}(model, optimizer, x)
"""
        for n in range(number)
        for name in ("first", "second")
    )
    last = "".join(
        f"""

def {name}_{number}(model, optimizer, x):
    loss = model(x).sum()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    return loss
"""
        for name in ("first", "second")
    )
    probe = """

def probe(model, optimizer, x):
    first_0(model, optimizer, x)
"""
    return {"train.py": HEAD + each + last + probe + TRAINING.format(0)}


def picked(number: int) -> dict[str, str]:
    """Functions that give each other what they find under keys, and are given what it is found in: items of items of items."""
    keys = "".join(f"    found = pick_{n}(found['key_{n}'])\n" for n in range(number))
    each = "".join(
        f"""

def pick_{n}(found):
{keys}    return found
"""
        for n in range(number)
    )
    network = """

class Around(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(pick_0(x))
"""
    training = TRAINING.format(0).replace(
        "model, optimizer = amp", "model = Around(model)\n    model, optimizer = amp", 1
    )
    return {"train.py": HEAD + each + network + training}


def shared(number: int) -> dict[str, str]:
    """Functions that all run the network through the same two, under the same tests."""
    each = "".join(
        f"""

def run_{n}(model, args, batches):
    net = Around(model)
    if args.evaluate and not args.train:
        for x in batches:
            report(net, args, x)
"""
        for n in range(number)
    )
    common = """
OPTIONS = parse()
FLIPPED = OPTIONS.flip and OPTIONS.evaluate


class Around:
    def __init__(self, model):
        self.model = model

    def predict(self, args, x):
        if FLIPPED or args.fp16:
            return self.model(x.flip(0))
        return self.model(x)


def report(net, args, x):
    if args.rank == 0:
        print(net.predict(args, x).float().mean())
"""
    training = (
        TRAINING.format(0).replace(", loader", ", args, loader").replace('"O1")', "args.level, enabled=args.fp16)")
    )
    called = "".join(f"    run_{n}(model, args, loader)\n" for n in range(number))
    main = "\n\ndef main(model, optimizer, args, loader):\n    train_0(model, optimizer, args, loader)\n"
    return {"train.py": HEAD + common + each + training + called + main}


ONCE = {
    "how a test reads where it stands": (Predicates._of, ("self", "expr", "place", "depth")),
    "what is assigned before a place": (latest._found_before, ("module", "stmt", "name")),
    "what a call before a place makes anew": (latest._renewed, ("program", "node", "holder", "field")),
    "whom a call of the step runs": (Bodies._found_callees, ("self", "call")),
    "which file imports which": (Near.__init__, ("program",)),
}


@pytest.mark.parametrize("what", ONCE)
def test_what_many_ways_ask_is_found_out_once(what: str) -> None:
    function, names = ONCE[what]
    code = inspect.unwrap(cast("Callable[..., object]", function)).__code__
    asked: list[tuple[object, ...]] = []  # kept, so that no other object takes the place of one

    def noted(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code is code:
            asked.append(tuple(frame.f_locals[name] for name in names))

    sources = [SourceFile(Path(path), path, text) for path, text in shared(4).items()]
    sys.setprofile(noted)
    try:
        migrate(Program(sources, root=Path()), Options())
    finally:
        sys.setprofile(None)
    questions = [tuple(part if isinstance(part, (str, int)) else id(part) for part in parts) for parts in asked]
    assert len(questions) == len(set(questions)) > 0


@pytest.mark.parametrize(("make", "number"), [(functions, 12), (many_lines, 4), (programs, 4), (held, 16)])
def test_twice_the_program_is_little_more_than_twice_the_work(
    make: Callable[[int], dict[str, str]], number: int
) -> None:
    calls(make(1))  # what is found out once for the process
    few, some, many = (calls(make(times * number)) for times in (1, 2, 4))
    assert many - some < 2.25 * (some - few)


def test_numbers_in_a_table_are_no_work() -> None:
    calls(numbers(20_000))
    assert calls(numbers(80_000)) < 1.2 * calls(numbers(20_000))


def test_what_is_chosen_in_many_steps_is_followed_once_from_each() -> None:
    """Each step may stand for each other one, so the square remains; once it was the fourth power."""
    calls(filtered(1))
    few, some, many = (calls(filtered(number)) for number in (4, 8, 16))
    assert many - some < 6 * (some - few)


def test_ways_through_layers_of_calls_are_not_gone_one_by_one() -> None:
    calls(layered(1))
    few, some, many = (calls(layered(number)) for number in (5, 10, 15))
    assert many - some < 2 * (some - few)


def test_items_of_items_are_not_followed_through_calls_without_an_end() -> None:
    """Three times the functions, each with three times the keys, at two depths of each; once it was four depths: a hundred
    times the work."""
    calls(picked(1))
    assert calls(picked(6)) < 30 * calls(picked(2))


def test_patterns_look_at_each_blank_line_once() -> None:
    """A match that begins on the blank lines above an import looks from each of them over all the others: 40,000 of them took
    as long as ten programs."""
    for pattern, module in ((TORCH, "torch"), (TENSORFLOW, "tensorflow")):
        found = pattern.search("\n" * 3 + f"import {module}")
        assert found is not None and found.start() == 3  # noqa: PT018
