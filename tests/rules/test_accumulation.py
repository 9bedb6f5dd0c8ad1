"""Several backwards before one step: the scale is counted differently now, which is said."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import APEX_LOOP, apex, found

BACKWARD = (
    "loss = criterion(model(x), y)\nwith amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\n"
)
STEP = "optimizer.step()\noptimizer.zero_grad()"


@pytest.mark.parametrize(
    "loop",
    [
        f"{BACKWARD}if i % 4 == 3:\n    optimizer.step()\n    optimizer.zero_grad()",
        f"{BACKWARD}if is_boundary(i):\n    optimizer.step()\n    optimizer.zero_grad()",
        f"{BACKWARD}if GRAD_STEP:\n    optimizer.step()\n    optimizer.zero_grad()",
        f"{BACKWARD}if accumulated == steps:\n    optimizer.step()\n    optimizer.zero_grad()",
        f"for part in x:\n    {BACKWARD.strip().replace(chr(10), chr(10) + '    ')}\n{STEP}",
    ],
)
def test_growth_is_counted_per_step_now_which_is_announced(loop: str) -> None:
    (finding,) = found(rewrite(apex(loop)), "AMP207")
    assert finding.review == "look"
    assert "growth_interval" in finding.message


@pytest.mark.parametrize("loop", [APEX_LOOP, f"{BACKWARD}if torch.isfinite(loss):\n    optimizer.step()"])
def test_one_backward_per_step_changes_nothing(loop: str) -> None:
    assert not found(rewrite(apex(loop)), "AMP207")


COUNTED = f"""{BACKWARD}if (i + 1) % steps == 0:
    optimizer.step()
    optimizer.zero_grad()"""


@pytest.mark.parametrize(
    ("bound", "where"),
    [
        ("steps = 4", ""),
        ("steps = 1", None),
        ("every = 1\nsteps = every", None),
        ("from settings import steps", " where steps is above 1"),
        ("steps = 1 if small else 8", " where steps is above 1"),
        (
            "parser.add_argument('--steps', type=int, default=1)\nsteps = parser.parse_args().steps",
            " where steps is above 1",
        ),
    ],
)
def test_a_count_that_may_be_one_is_said_and_one_that_is_says_nothing(bound: str, where: str | None) -> None:
    told = found(rewrite(apex(COUNTED, model=f"model = build()\n{bound}")), "AMP207")
    assert [f.message.partition(":")[0] for f in told] == (
        [] if where is None else [f"several backwards per step{where}"]
    )


WHOLE = """
import torch
from apex import amp
from project import build, loader

model, optimizer = build()
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


def train(batches):
    for x, y in batches:
        loss = model(x, y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        INSIDE
    AFTER


for epoch in range(3):
    train(loader)
"""
STEP_IN = "optimizer.step()\n        optimizer.zero_grad()"
STEP_OUT = "optimizer.step()\n    optimizer.zero_grad()"


@pytest.mark.parametrize(
    ("inside", "after", "level"),
    [
        ("print(loss)", STEP_OUT, "review"),
        (STEP_IN, "print(model)", None),
        (f"if x.full:\n            {STEP_IN.replace(chr(10), chr(10) + '    ')}", STEP_OUT, None),  # takes what is left
        (f"if x.number % 4 == 0:\n            {STEP_IN.replace(chr(10), chr(10) + '    ')}", STEP_OUT, "look"),
    ],
)
def test_one_step_for_a_whole_loop_is_told_with_what_an_overflow_costs(
    inside: str, after: str, level: str | None
) -> None:
    result = rewrite(WHOLE.replace("INSIDE", inside).replace("AFTER", after))
    assert result.after is not None, result.findings
    told = found(result, "AMP207")
    assert [f.review for f in told] == ([] if level is None else [level])
    assert all(("all that the loop at line 10 runs" in f.message) == (level == "review") for f in told)


def test_one_step_for_a_loop_over_data_in_a_loop_of_epochs_is_told_too() -> None:
    loop = f"for a, b in part_loader:\n    {BACKWARD.strip().replace(chr(10), chr(10) + '    ')}\n{STEP}"
    (finding,) = found(rewrite(apex(loop)), "AMP207")
    assert finding.review == "review"
    assert "begin with a lower init_scale" in finding.message


PARTS = """
import torch
from apex import amp
from project import build, loader, data

model, optimizer = build()
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


def step(GIVEN):
    optimizer.zero_grad()
    CUT
    for x in PARTS:
        loss = model(x)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    optimizer.step()


for batch in loader:
    step(HANDED)
"""


@pytest.mark.parametrize(
    ("given", "handed", "cut", "parts", "level"),
    [
        ("", "", "whole = torch.tensor(data.next())", "torch.split(whole, 4)", "look"),
        ("", "", "parts = enumerate(data.next().chunk(4))", "parts", "look"),
        ("micro", "batch", "pass", "micro", "look"),  # of the loop around the call
        ("micro", "list(zip(batch.x, batch.y))", "pass", "micro", "look"),
        ("all_of_it", "data", "pass", "all_of_it", "review"),
        ("", "", "pass", "data", "review"),
    ],
)
def test_one_step_for_the_parts_of_a_batch_is_accumulation(
    given: str, handed: str, cut: str, parts: str, level: str
) -> None:
    source = PARTS.replace("GIVEN", given).replace("HANDED", handed).replace("CUT", cut).replace("PARTS", parts)
    (told,) = found(rewrite(source), "AMP207")
    assert told.review == level
    assert ("step inside the loop" in told.message) == (level == "review")


def test_delay_unscale_says_it_already() -> None:
    loop = (
        BACKWARD.replace("optimizer)", "optimizer, delay_unscale=i % 4 != 3)") + "if i % 4 == 3:\n    optimizer.step()"
    )
    result = rewrite(apex(loop))
    assert found(result, "AMP204")
    assert not found(result, "AMP207")


def test_a_branch_that_does_not_accumulate_is_not_meant() -> None:
    once, often = (
        BACKWARD.replace("\n", "\n    ").strip() + text
        for text in ("\n    optimizer.step()", "\n    if i % 4 == 3:\n        optimizer.step()")
    )
    result = rewrite(apex(f"if steps > 1:\n    {often}\nelse:\n    {once}"))
    assert len(found(result, "AMP207")) == 1


@pytest.mark.parametrize("suite", ["continue", "print(i)\n    continue"])
def test_growth_is_announced_where_continue_leaves_the_step_out(suite: str) -> None:
    scaled = "loss = criterion(model(x), y)\nwith amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\n"
    loop = f"{scaled}if (i + 1) % 4 != 0:\n    {suite}\noptimizer.step()\noptimizer.zero_grad()"
    assert found(rewrite(apex(loop)), "AMP207")


def test_a_continue_on_a_bad_loss_is_no_accumulation() -> None:
    scaled = "loss = criterion(model(x), y)\nwith amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\n"
    assert not found(rewrite(apex(f"{scaled}if torch.isnan(loss):\n    continue\noptimizer.step()")), "AMP207")


def test_a_continue_before_a_scaled_backward_leaves_both_out() -> None:
    loop = "if i % 4 == 1:\n    continue\nloss = criterion(model(x), y)\nif torch.isfinite(loss):\n"
    loop += "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\noptimizer.step()"
    assert not found(rewrite(apex(loop)), "AMP207")


COUNTING = """
    import torch
    from apex import amp
    from project import build, loader, log


    class Distiller:
        def __init__(self):
            self.count = 0
            self.model, self.optimizer = build()
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

        def train(self, pieces):
            for x, y in loader:
                loss = self.model(x, y) / pieces
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.advance()
                if self.count % pieces == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()

        def advance(self):
            self.count += 1
            if self.count % 500 == 0:
                for p in self.model.parameters():
                    log(p.grad.std())


    Distiller().train(4)
    """


def test_a_reader_that_counts_the_micro_batches_is_not_moved_to_the_step() -> None:
    result = rewrite(COUNTING)
    assert result.after is not None
    assert "log((p.grad / loss_scale).std())" in result.after
    assert "self.advance()\n            if self.count" in result.after
    clipped = rewrite(COUNTING.replace("log(p.grad.std())", "torch.nn.utils.clip_grad_value_(p, 1.0)"))
    assert clipped.after is None
    (finding,) = found(clipped, "AMP307")
    assert finding.status == "manual"
    assert "counts count, which decides on the step" in finding.message


HELPER = """
import torch
from functools import partial
from apex import amp


def run_backward(mixed, loss, optimizer):
    if mixed:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()


class Trainer:
    def __init__(self, model, data, every, mixed=False):
        self.model, self.data, self.every, self.mixed = model, data, every, mixed
        self.optimizer = torch.optim.Adam(model.parameters())
        if mixed:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def compute(self, x):
        loss = self.model(x).float().mean()
        run_backward(self.mixed, loss, self.optimizer)

    def train(self):
        LOOP
"""
LITERAL = """
import torch
from apex import amp

model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.Adam(model.parameters())
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


def forward(x, learn=True):
    loss = model(x).float().mean()
    if learn:
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
    return loss


for x in loader:
    optimizer.zero_grad()
    forward(x)
    OTHER
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("forward(x, learn=False)", 0),
        ("forward(x, False)", 0),
        ("forward(x, learn=True)", 1),
        ("forward(x)", 1),
        ("forward(x, learn=x.any())", 1),
        ("forward(*x)", 1),
    ],
)
def test_a_call_that_leaves_the_backward_out_is_none(other: str, said: int) -> None:
    result = rewrite(LITERAL.replace("OTHER", other))
    assert result.after is not None
    assert len(found(result, "AMP207")) == said


ONE_FUNCTION_OFF = """for i, x in enumerate(self.data):
            self.compute(x)
            STEP
            self.optimizer.zero_grad()"""
BOUND = """backward = partial(run_backward, self.mixed)
        for _ in range(100):
            for _ in range(self.every):
                loss = self.model(next(self.data)).float().mean()
                backward(loss, self.optimizer)
            self.optimizer.step()
            self.optimizer.zero_grad()"""


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        (BOUND, 1),
        (ONE_FUNCTION_OFF.replace("STEP", "if i % self.every == 0:\n                self.optimizer.step()"), 1),
        (ONE_FUNCTION_OFF.replace("STEP", "self.optimizer.step()"), 0),
    ],
)
def test_a_backward_in_a_function_of_its_own_is_counted_where_that_is_called(loop: str, said: int) -> None:
    result = rewrite(HELPER.replace("LOOP", loop))
    assert result.after is not None
    told = found(result, "AMP207")
    assert [f.message[:26] for f in told] == ["several backwards per step"] * said


TWO = """
import torch
from apex import amp

g, d = torch.nn.Linear(4, 4).cuda(), torch.nn.Linear(4, 1).cuda()
opt_g, opt_d = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
(g, d), (opt_g, opt_d) = amp.initialize([g, d], [opt_g, opt_d], opt_level="O1")


def scale(loss, optimizer):
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()


def turn(x, y, first=True):
    LOSSES


for x in loader:
    turn(x, x)
"""
G = "loss_g = d(g(x)).float().mean()\n    opt_g.zero_grad()\n    with amp.scale_loss(loss_g, opt_g) as a:\n        a.backward()\n"
D = "    loss_d = d(x).float().mean()\n    opt_d.zero_grad()\n    with amp.scale_loss(loss_d, opt_d) as b:\n        b.backward()\n"


def branch(text: str) -> str:
    return text.strip().replace("\n", "\n    ")


@pytest.mark.parametrize(
    ("losses", "lines"),
    [
        (G + "    opt_g.step()\n" + D + "    opt_d.step()", [22]),
        (G + D + "    opt_g.step()\n    opt_d.step()", [21]),
        (G + D.replace("opt_d", "opt_g") + "    opt_g.step()", [21]),
        (G + "    opt_g.step()\n" + D.replace("opt_d", "opt_g") + "    opt_g.step()", []),  # an update each
        (
            f"if first:\n        {branch(G)}\n        opt_g.step()\n    else:\n        {branch(D)}\n        opt_d.step()",
            [],
        ),
        (G + "    opt_g.step()", []),
        # two before the first update, one before each of the others
        (G + "    opt_g.step()\n" + D + "    opt_d.step()\n" + D + "    opt_d.step()", [22]),
        (G + "    opt_g.step()\n    if first:\n        " + branch(D) + "\n        opt_d.step()", [23]),
    ],
)
def test_the_losses_of_one_update_are_counted(losses: str, lines: list[int]) -> None:
    result = rewrite(TWO.replace("LOSSES", losses))
    assert result.after is not None, result.findings
    told = found(result, "AMP207")
    assert [f.line for f in told] == lines
    assert all(f.message.startswith("several backwards per update:") for f in told)


def test_a_step_without_apex_is_none_of_an_update() -> None:
    """The branch of a machine without Apex goes, and with it a step: the two losses are of one update all the same."""
    guarded = "try:\n    from apex import amp\nexcept ImportError:\n    amp = None"
    steps = "    if amp is not None:\n        opt_g.step()\n    else:\n        opt_g.step()"
    losses = G + D.replace("opt_d", "opt_g") + steps
    result = rewrite(TWO.replace("from apex import amp", guarded).replace("LOSSES", losses))
    assert result.after is not None, result.findings
    assert len(found(result, "AMP207")) == 1


@pytest.mark.parametrize(("level", "said"), [('"O1"', 1), ('"O1", loss_scale=128.0', 0), ('"O3"', 0)])
def test_a_static_scale_grows_at_no_pace(level: str, said: int) -> None:
    program = apex(f"{BACKWARD}if i % 4 == 3:\n    optimizer.step()\n    optimizer.zero_grad()").replace('"O1"', level)
    result = rewrite(program)
    assert result.after is not None
    assert len(found(result, "AMP207")) == said


def test_a_continue_of_a_loop_between_leaves_no_step_out() -> None:
    shown = "if i % logging == 0:\n    for p in model.parameters():\n        if p.grad is None:\n            continue\n"
    shown += "        show(p)\n"
    assert not found(rewrite(apex(f"{BACKWARD}{shown}optimizer.step()\noptimizer.zero_grad()")), "AMP207")
    (told,) = found(rewrite(apex(f"{BACKWARD}{shown}{COUNTED.removeprefix(BACKWARD)}")), "AMP207")
    assert "steps is above 1" in told.message


@pytest.mark.parametrize(
    ("bound", "where"),
    [("steps = 4", ""), ("steps = 1", None), ("from settings import steps", " where steps is above 1")],
)
def test_a_counted_loop_of_backwards_says_where_it_turns_more_than_once(bound: str, where: str | None) -> None:
    body = BACKWARD.strip().replace("\n", "\n    ")
    told = found(
        rewrite(apex(f"for _ in range(steps):\n    {body}\n{STEP}", model=f"model = build()\n{bound}")), "AMP207"
    )
    assert [f.message.partition(":")[0] for f in told] == (
        [] if where is None else [f"several backwards per step{where}"]
    )


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (BACKWARD, "(lines 13 and 16, and those of each micro-batch where steps is above 1)"),
        (
            f"if both:\n    {BACKWARD.strip().replace(chr(10), chr(10) + '    ')}\n",
            "(lines 13 and 17, those of them that run, and those of each micro-batch where steps is above 1)",
        ),
    ],
)
def test_several_losses_of_one_turn_are_several_for_any_count(more: str, told: str) -> None:
    """The scale is counted otherwise at a count of 1, too."""
    counted = f"{BACKWARD}{more}if (i + 1) % steps == 0:\n    optimizer.step()\n    optimizer.zero_grad()"
    first, second = found(rewrite(apex(counted, model="model = build()\nfrom settings import steps")), "AMP207")
    for finding in (first, second):
        assert finding.message.partition(":")[0] == f"several backwards per step {told}"


def test_a_helper_that_is_called_for_each_loss_runs_several() -> None:
    counted = (
        "def backward(loss):\n"
        "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n"
        "for i, (x, y) in enumerate(loader):\n"
        "    backward(criterion(model(x), y))\n"
        "    backward(criterion(model(y), x))\n"
        "    if (i + 1) % steps == 0:\n        optimizer.step()\n        optimizer.zero_grad()"
    )
    (finding,) = found(rewrite(apex(counted, model="model = build()\nfrom settings import steps")), "AMP207")
    assert "of each micro-batch where steps is above 1)" in finding.message


def test_losses_that_a_helper_of_another_file_scales_are_told_with_the_file_that_calls_it() -> None:
    loop = (
        "for i, (x, y) in enumerate(loader):\n"
        "    run_backward(criterion(model(x), y), optimizer)\n"
        "    run_backward(criterion(model(y), x), optimizer)\n"
        "    if (i + 1) % steps == 0:\n        optimizer.step()\n        optimizer.zero_grad()"
    )
    imports = "from apex import amp\nfrom scaling import run_backward\nfrom settings import steps"
    helper = (
        "from apex import amp\n\n\ndef run_backward(loss, optimizer):\n"
        "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n"
    )
    results = rewrite_files({"train.py": apex(loop, imports=imports), "scaling.py": helper})
    (told,) = found(results["scaling.py"], "AMP207")
    first = 1 + results["train.py"].before.splitlines().index("        run_backward(criterion(model(x), y), optimizer)")
    assert f"(lines {first} and {first + 1} of train.py, and those of each micro-batch" in told.message


LOOPS = """
import torch
from apex import amp


def train(args, model, optimizer, loader):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for step, x in enumerate(loader):
        loss = model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        for _ in range(args.parts):
            loss = model(x).sum()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        if (step + 1) % args.accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


def test_loops_of_several_lengths_before_one_step_are_told_together() -> None:
    """N is of all of them: told of each, it would be taken for each by itself."""
    (finding,) = found(rewrite(LOOPS), "AMP207")
    counted = "(lines 9 and 13, and those of each micro-batch where args.accumulation or args.parts is above 1)"
    assert finding.message.startswith(f"several backwards per step {counted}: the scale grows per step now")
