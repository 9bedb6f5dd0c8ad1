"""The step as an automaton: what is refused, what is told, and what is right though it looks odd."""

from __future__ import annotations

from textwrap import indent

import pytest

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.stepping import runs
from tests.audit.helpers import doubts, doubts_of, program

HEAD = """
import torch
{imports}
from data import loader, model, criterion, args, head
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
APEX = "model, optimizer = amp.initialize(model, optimizer, opt_level='O1')\n"
SCALER = "scaler = torch.amp.GradScaler('cuda')\n"
SCALED = """
with amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
"""


def whole(body: str, *, apex: bool, setup: str = "", switch: str = "") -> str:
    """A script: what `setup` and `body` (of the loop over batches) add to the usual beginning."""
    text = program(HEAD).format(imports="from apex import amp" if apex else "")
    text += APEX if apex else SCALER.replace("'cuda'", f"'cuda'{switch}")
    text += program(setup).rstrip() + "\nfor x, y in loader:\n    loss = criterion(model(x), y)\n"
    return text + indent(program(body), "    ")


def said(before: str, after: str, setup: str = "", setup_after: str | None = None, switch: str = "") -> list[Doubt]:
    old = whole(before, apex=True, setup=setup)
    new = whole(after, apex=False, setup=setup if setup_after is None else setup_after, switch=switch)
    return [d for d in doubts(old, new) if d.code in ("AMP231", "AMP232")]


def verdicts(*given: str, **options: str) -> set[str]:
    return {d.verdict for d in said(*given, **options)}


PLAIN = SCALED + "optimizer.step()\noptimizer.zero_grad()\n"
RIGHT = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()\n"


def test_a_right_step_is_no_doubt() -> None:
    assert not said(PLAIN, RIGHT)


@pytest.mark.parametrize(
    ("setup", "step"),
    [
        ("go = optimizer.step", "go()"),
        ("", "getattr(optimizer, 'step')()"),
        ("def finish(opt):\n    opt.step()\n", "finish(optimizer)"),
        ("class Wrapper:\n    def __init__(self, inner):\n        self.inner = inner\n    def step(self):\n"
         "        self.inner.step()\nwrapper = Wrapper(optimizer)\n", "wrapper.step()"),
        ("from functools import partial\ndef finish(opt, n):\n    opt.step()\nlast = partial(finish, optimizer)\n",
         "last(1)"),
    ],
)  # fmt: skip
def test_a_hidden_step_beside_a_visible_one(setup: str, step: str) -> None:
    before = f"if args.warm:\n    {step}\nelse:\n    optimizer.step()\n"
    after = f"if args.warm:\n    {step}\nelse:\n    scaler.step(optimizer)\n    scaler.update()\n"
    found = said(SCALED + before, "scaler.scale(loss).backward()\n" + after, setup)
    assert "this optimizer would step by itself" in " ".join(d.message for d in found if d.verdict == "refuse")


def test_a_hidden_step_in_another_module() -> None:
    files = {
        "steps.py": "def finish(opt):\n    opt.step()\n",
        "train.py": whole(SCALED + "finish(optimizer)\n", apex=True, setup="from steps import finish"),
    }
    after = whole("scaler.scale(loss).backward()\nfinish(optimizer)\nscaler.update()\n", apex=False,
                  setup="from steps import finish")  # fmt: skip
    assert [d.path for d in doubts_of(files, {"train.py": after}) if d.code == "AMP231" and d.verdict == "refuse"]


def test_an_optimizer_that_was_never_scaled_steps_by_itself() -> None:
    setup = "other = torch.optim.SGD(head.parameters(), lr=0.1)"
    beside = "other.zero_grad()\nhead_loss = criterion(head(x), y)\nhead_loss.backward()\nother.step()\n"
    assert not said(PLAIN + beside, RIGHT + beside, setup)


def test_what_one_scaler_scaled_another_steps() -> None:
    setup = "optD = torch.optim.SGD(head.parameters(), lr=0.1)\nsecond = optD\n"
    after = setup + "scalerD = torch.amp.GradScaler('cuda')\n"
    before = SCALED + "optimizer.step()\nlossD = criterion(head(x), y)\n"
    before += (
        SCALED.replace("loss, optimizer", "lossD, optD") + "second.step()\noptD.zero_grad()\noptimizer.zero_grad()\n"
    )
    step = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()\nlossD = criterion(head(x), y)\n"
    step += "scalerD.scale(lossD).backward()\n{0}.step(second)\n{0}.update()\noptD.zero_grad()\noptimizer.zero_grad()\n"
    assert not said(before, step.format("scalerD"), setup, after)
    assert verdicts(before, step.format("scaler"), setup=setup, setup_after=after) == {"refuse"}


@pytest.mark.parametrize("end", ["", "for opt in [optimizer, other]:\n    opt.zero_grad()\n"])
def test_of_two_optimizers_the_one_whose_loss_is_scaled_steps_by_itself(end: str) -> None:
    setup = "other = torch.optim.SGD(head.parameters(), lr=0.1)\nthird = torch.optim.SGD(args.parameters(), lr=0.1)"
    more = "head_loss = criterion(head(x), y)\n{}other.step()\nother.zero_grad()\nthird.step()\n" + end
    scaled = SCALED.replace("loss, optimizer", "head_loss, other").lstrip()
    found = said(PLAIN + more.format(scaled), RIGHT + more.format("scaler.scale(head_loss).backward()\n"), setup)
    assert [(d.line, d.verdict, d.message) for d in found] == [
        (17, "refuse", "this optimizer would step by itself on gradients that are still scaled")
    ]


def test_a_plain_backward_before_a_scaled_one() -> None:
    """Apex kept what was there apart from what it unscaled."""
    extra = "head(x).sum().backward()\n"
    (found,) = said(extra + PLAIN, extra + RIGHT)
    assert found.verdict == "refuse"
    assert found.message == "step would divide by the scale what a backward without scale gave"


def test_a_plain_backward_after_a_scaled_one_may_be_the_other_optimizers() -> None:
    setup = "other = torch.optim.SGD(head.parameters(), lr=0.1)"
    beside = "criterion(head(x), y).backward()\n{}other.step()\nother.zero_grad()\noptimizer.zero_grad()\n"
    after = "scaler.scale(loss).backward()\n" + beside.format("scaler.step(optimizer)\nscaler.update()\n")
    assert not said(SCALED + beside.format("optimizer.step()\n"), after, setup)


def test_gradients_that_another_scaler_unscaled() -> None:
    second = "second = torch.amp.GradScaler('cuda')\n"
    after = "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\n{}scaler.step(optimizer)\nscaler.update()\n"
    after += "optimizer.zero_grad()\n"
    assert not said(PLAIN, after.format(""), "", second)
    found = said(PLAIN, after.format("second.unscale_(optimizer)\n"), "", second)
    message = "another scaler unscaled these gradients already: they would be divided twice"
    assert message in [d.message for d in found if d.verdict == "refuse"]


def test_an_update_of_either_of_two_scalers() -> None:
    """Which of them it is a test tells that goes by unread: nothing is claimed of the one that checked nothing."""
    setup = "other = torch.optim.SGD(head.parameters(), lr=0.1)\n"
    now = setup + "second = torch.amp.GradScaler('cuda')\nchosen = scaler if args.first else second\n"
    beside = SCALED.replace("loss, optimizer", "criterion(head(x), y), other").lstrip() + "other.step()\n"
    after = "second.scale(criterion(head(x), y)).backward()\nsecond.step(other)\nsecond.update()\n"
    after += "scaler.scale(loss).backward()\nscaler.step(optimizer)\n"
    after += "if args.first:\n    chosen.update()\nelse:\n    scaler.update()\n"
    end = "optimizer.zero_grad()\nother.zero_grad()\n"
    assert not [
        d
        for d in said(beside + SCALED + "optimizer.step()\n" + end, after + end, setup, now)
        if "update()" in d.message
    ]


def test_a_plain_step_of_the_runs_without_the_scaler() -> None:
    before = "if args.fp16:\n" + indent(program(SCALED), "    ") + "else:\n    loss.backward()\noptimizer.step()\n"
    after = "scaler.scale(loss).backward()\nif scaler.is_enabled():\n    scaler.step(optimizer)\n    scaler.update()\n"
    after += "else:\n    optimizer.step()\noptimizer.zero_grad()\n"
    assert not said(before + "optimizer.zero_grad()\n", after, switch=", enabled=args.fp16")


def test_a_backward_that_is_lost() -> None:
    before = SCALED + "more = criterion(model(y), x)\n" + SCALED.replace("loss,", "more,") + "optimizer.step()\n"
    after = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()\n"
    found = said(before + "optimizer.zero_grad()\n", after)
    assert found[0].message == "a backward of this function would be lost"


def test_a_step_on_other_paths() -> None:
    after = "scaler.scale(loss).backward()\nif args.late:\n    scaler.step(optimizer)\n    scaler.update()\n"
    found = said(PLAIN, after + "optimizer.zero_grad()\n")
    message = "backward and step would come in another order or on other paths than before: backward"
    assert message in [d.message for d in found if d.verdict == "refuse"]


def test_two_optimizers_by_one_name_are_both_stepped() -> None:
    setup = "other = torch.optim.SGD(head.parameters(), lr=0.1)\n"
    chosen = "chosen = optimizer if args.first else other\n"
    before = SCALED.replace("loss, optimizer", "loss, [optimizer, other]") + chosen
    after = f"scaler.scale(loss).backward()\n{chosen}scaler.step(chosen)\n"
    end = "scaler.step(optimizer)\nscaler.update()\n"
    found = said(before + "chosen.step()\noptimizer.step()\n", after + end, setup)
    assert "the scaler would step this optimizer again without update() since its last step, which raises" in [
        d.message for d in found if d.verdict == "refuse"
    ]


def test_of_three_optimizers_by_one_name_the_one_stepped_already_is_meant() -> None:
    setup = "other = torch.optim.SGD(head.parameters(), lr=0.1)\nthird = torch.optim.SGD(args.parameters(), lr=0.1)\n"
    chosen = "chosen = optimizer if args.first else other\nlast = chosen if args.second else third\n"
    before = SCALED.replace("loss, optimizer", "loss, [optimizer, other, third]") + chosen
    after = f"scaler.scale(loss).backward()\n{chosen}scaler.step(optimizer)\nscaler.step(last)\nscaler.update()\n"
    end = "chosen.zero_grad()\n"
    found = said(before + "optimizer.step()\nlast.step()\n" + end, after + end, setup)
    assert [d.message for d in found if d.verdict == "refuse"] == [
        "the scaler would step this optimizer again without update() since its last step, which raises"
    ]


def test_a_loop_over_all_optimizers_leaves_out_the_one_that_was_stepped() -> None:
    setup = "other = torch.optim.SGD(head.parameters(), lr=0.1)\nopts = [optimizer, other]\n"
    loop = "for opt in opts:\n    if opt is not optimizer:\n        {}\n    opt.zero_grad()\n"
    before = SCALED.replace("loss, optimizer", "loss, opts") + "optimizer.step()\n" + loop.format("opt.step()")
    after = "scaler.scale(loss).backward()\nscaler.step(optimizer)\n" + loop.format("scaler.step(opt)")
    assert not said(before, after + "scaler.update()\n", setup)


def test_an_unscale_without_a_backward_is_named() -> None:
    after = "scaler.unscale_(optimizer)\nscaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()\n"
    messages = [d.message for d in said(PLAIN, after + "optimizer.zero_grad()\n")]
    assert "no backward of this scaler comes before this unscale_ on any path" in messages


def test_what_is_wrong_with_a_plain_step_is_said_once() -> None:
    after = "scaler.scale(loss).backward()\nscaler.update(512.0)\noptimizer.step()\noptimizer.zero_grad()\n"
    (found,) = said(PLAIN, after)
    assert found.message == "this optimizer would step by itself on gradients that are still scaled"


def test_an_entry_that_stays_as_it_is_is_followed_into_what_changed() -> None:
    steps = """
    import torch
    {}
    from data import model, criterion, args
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {}

    def backward(loss):
        {}

    def unscale():
        {}

    def finish():
        {}
        optimizer.zero_grad()
    """
    main = """
    import steps
    from data import loader, losses
    scalers = []
    for x in loader:
        steps.backward(losses(x))
        steps.unscale()
        {}
        steps.finish()
    """
    before = steps.format(
        "from apex import amp", "model, optimizer = amp.initialize(model, optimizer)",
        "with amp.scale_loss(loss, optimizer) as s: s.backward()",
        "pass", "optimizer.step()",
    )  # fmt: skip
    after = steps.format(
        "", "scaler = torch.amp.GradScaler('cuda')", "scaler.scale(loss).backward()",
        "scaler.unscale_(optimizer)", "scaler.step(optimizer); scaler.update()",
    )  # fmt: skip
    for again, wanted in (("pass", []), ("steps.unscale()", ["refuse"])):
        found = doubts_of({"steps.py": before, "main.py": main.format(again)}, {"steps.py": after})
        assert [d.verdict for d in found if d.code == "AMP231"] == wanted


LOOP = """
for model, opt in zip(models, opts):
    for x, y in loader:
        opt.zero_grad()
        loss = criterion(model(x), y)
        {backward}
        {step}
{inner}{outer}
"""


@pytest.mark.parametrize("right", [True, False])
def test_an_ensemble_updates_after_each_of_its_steps(right: bool) -> None:
    setup = "models = [model, head]\nopts = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]\n"
    before = LOOP.format(
        backward="with amp.scale_loss(loss, opt) as s: s.backward()", step="opt.step()", inner="", outer=""
    )
    after = LOOP.format(
        backward="scaler.scale(loss).backward()",
        step="scaler.step(opt)",
        inner="        scaler.update()\n" if right else "",
        outer="" if right else "    scaler.update()\n",
    )
    head = program(HEAD)
    found = doubts(
        head.format(imports="from apex import amp") + program(setup) + before.replace("\n\n", "\n"),
        head.format(imports="") + SCALER + program(setup) + after.replace("\n\n", "\n"),
    )
    refused = [d for d in found if d.code == "AMP231"]
    assert bool(refused) is not right, found


@pytest.mark.parametrize("turns", ["range(1)", "range(0, 1)", "[optimizer]", "enumerate((optimizer,))"])
def test_a_loop_of_one_turn_repeats_nothing(turns: str) -> None:
    for scaler_inside in (True, False):
        after = f"scaler.scale(loss).backward()\nfor _ in {turns}:\n    scaler.step(optimizer)\n"
        after += "    scaler.update()\n" if scaler_inside else "scaler.update()\n"
        assert not said(SCALED + f"for _ in {turns}:\n    optimizer.step()\n", after)


@pytest.mark.parametrize("switch", ["args.fp16", "bool(args.fp16)", "not bool(not args.fp16)"])
@pytest.mark.parametrize("test", ["args.fp16", "bool(args.fp16)"])
def test_a_plain_backward_where_the_scaler_is_off_is_right(switch: str, test: str) -> None:
    helper = "def run(loss, {given}):\n    {scaled}\n"
    before = f"if {test}:\n    run(loss, optimizer)\nelse:\n    loss.backward()\noptimizer.step()\n"
    after = f"if {test}:\n    run(loss, scaler)\nelse:\n    loss.backward()\nscaler.step(optimizer)\nscaler.update()\n"
    old = helper.format(given="o", scaled="with amp.scale_loss(loss, o) as scaled:\n        scaled.backward()")
    new = helper.format(given="scaler", scaled="scaler.scale(loss).backward()")
    assert not [d for d in said(before, after, old, new, f", enabled={switch}") if d.code == "AMP231"]
    assert [d for d in said(before, after, old, new, ", enabled=args.bf16") if d.code == "AMP231"]


def test_a_loop_of_one_turn_that_does_not_update_is_refused() -> None:
    before = "for _ in range(1):\n" + indent(SCALED + "optimizer.step()\n", "    ")
    after = "for _ in range(1):\n    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n"
    assert verdicts(before, after) == {"refuse"}


def test_three_steps_of_one_backward() -> None:
    before = SCALED + "for _ in range(3):\n    optimizer.step()\noptimizer.zero_grad()\n"
    after = "scaler.scale(loss).backward()\nfor _ in range(3):\n    scaler.step(optimizer)\n    scaler.update()\n"
    assert verdicts(before, after + "optimizer.zero_grad()\n") == {"refuse"}


@pytest.mark.parametrize(("path", "told"), [("tests/conftest.py", 0), ("tests/test_fit.py", 0), ("fit.py", 1)])
def test_paths_of_tests_that_call_by_name_are_no_question_about_steps(path: str, told: int) -> None:
    branches = "".join(
        f"    if args.flag{i}:\n        learner.fit(model, loader, optimizer, scaler)\n" for i in range(40)
    )
    caller = f"def run(learner, model, loader, optimizer, scaler, args):\n{branches}\n"
    learner = """
import torch
class Learner:
    def fit(self, model, loader, optimizer, scaler):
        for x, y in loader:
            optimizer.zero_grad()
            loss = model(x).sum()
            {}
"""
    old = learner.format("with amp.scale_loss(loss, optimizer) as s: s.backward()\n            optimizer.step()")
    new = learner.format(
        "scaler.scale(loss).backward()\n            scaler.step(optimizer)\n            scaler.update()"
    )
    scaler = "scaler = torch.amp.GradScaler()\n"
    before = {"learner.py": old + "from apex import amp\n", path: caller}
    found = doubts_of(before, {"learner.py": new + scaler})
    assert len([d for d in found if "more paths" in d.message]) == told


SKIPPED = """
if torch.isnan(loss).any():
    print("skipped")
else:
    {backward}
    count += 1
if count % 4 == 0:
    {step}
    optimizer.zero_grad()
"""


def test_a_batch_that_is_skipped_for_its_nan() -> None:
    before = SKIPPED.format(backward="with amp.scale_loss(loss, optimizer) as s: s.backward()", step="optimizer.step()")
    after = SKIPPED.format(backward="scaler.scale(loss).backward()", step="scaler.step(optimizer)\n    scaler.update()")
    (doubt,) = said(before, after, "count = 0")
    assert (doubt.code, doubt.verdict) == ("AMP232", "review")
    assert "No inf checks" in doubt.message


@pytest.mark.parametrize("jump", ["continue", "raise ValueError"])
def test_a_skipped_batch_that_is_left_altogether(jump: str) -> None:
    skip = f"if torch.isnan(loss).any():\n    {jump}\n"
    assert not said(skip + PLAIN, skip + RIGHT)


def test_a_flag_that_tells_of_the_skipped_batch() -> None:
    body = "valid = True\nif torch.isnan(loss).any():\n    valid = False\nelse:\n    {}\nif valid:\n    {}\n    {}\n"
    before = body.format("with amp.scale_loss(loss, optimizer) as s: s.backward()", "pass", "optimizer.step()", "pass")
    after = body.format("scaler.scale(loss).backward()", "scaler.step(optimizer)", "scaler.update()")
    assert not said(before + "optimizer.zero_grad()\n", after + "optimizer.zero_grad()\n")


@pytest.mark.parametrize("switch", [", enabled=args.fp16", ""])
def test_two_branches_of_a_switch(switch: str) -> None:
    """Where the switch turns the scaler off, the plain branch is right; where it is always on, one of both is wrong."""
    before = "if args.fp16:\n" + indent(program(SCALED), "    ") + "else:\n    loss.backward()\noptimizer.step()\n"
    after = "if args.fp16:\n    scaler.scale(loss).backward()\nelse:\n    loss.backward()\n"
    after += "scaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()\n"
    found = verdicts(before + "optimizer.zero_grad()\n", after, switch=switch)
    assert found == (set() if switch else {"refuse"})


READERS = [
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "print(sum(p.grad.norm() for p in model.parameters()))",
    "norm = max(p.grad.abs().max().item() for p in model.parameters())",
    "print(model.weight.grad.norm())",
    "for p in model.parameters():\n    model.moves = p.grad + 0.1 * p.data",
    "for p in model.parameters():\n    p.grad += 0.1 * p.data",
    "for p in model.parameters():\n    p.grad.data -= 0.1 * p.data",
    "watch(model)",
    "hook.after_backward(model)",
]
WATCH = """
def watch(net):
    for p in net.parameters():
        print(p.grad.norm())
class Hook:
    def after_backward(self, net):
        watch(net)
hook = Hook()
"""


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_sees_unscaled_gradients(reader: str) -> None:
    before = SCALED + f"{reader}\noptimizer.step()\noptimizer.zero_grad()\n"
    after = "scaler.scale(loss).backward()\n{}\nscaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()\n"
    assert verdicts(before, after.format(reader), setup=WATCH) == {"refuse"}
    assert not said(before, after.format(f"scaler.unscale_(optimizer)\n{reader}"), WATCH)


@pytest.mark.parametrize("scaled", ["", " * scaler.get_scale()"])
def test_what_is_added_to_scaled_gradients_is_scaled_too(scaled: str) -> None:
    adding = "for p in model.parameters():\n    p.grad.add_(0.1 * p.data{})\n"
    step = "if i % 4 == 0:\n    {}optimizer{}\n    optimizer.zero_grad()\n"
    before = "i = len(x)\n" + SCALED + adding.format("") + step.format("", ".step()")
    after = "i = len(x)\nscaler.scale(loss).backward()\n" + adding.format(scaled)
    after += step.format("scaler.step(", ")\n    scaler.update()")
    assert verdicts(before, after) == (set() if scaled else {"refuse"})


@pytest.mark.parametrize(
    "harmless",
    [
        "print(any(p.grad is not None for p in model.parameters()))",
        "for p in model.parameters():\n    p.grad.mul_(0.5)",
        "for p in model.parameters():\n    p.grad /= 8",
        "for p in model.parameters():\n    p.grad += 0.5 * p.grad",
        "for p in model.parameters():\n    norm = p.grad.norm()\n    if norm != 0:\n        p.data.add_(p.grad / norm)",
        "print([p.grad.shape for p in model.parameters()])",
        "for p in model.parameters():\n    model.twice = p.grad + p.grad",
    ],
)
def test_what_does_not_ask_for_the_size_of_gradients(harmless: str) -> None:
    before = SCALED + f"{harmless}\noptimizer.step()\noptimizer.zero_grad()\n"
    after = (
        f"scaler.scale(loss).backward()\n{harmless}\nscaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()\n"
    )
    assert not said(before, after)


@pytest.mark.parametrize(
    ("leaf", "told"),
    [
        ("noise = x.detach().requires_grad_()", False),
        ("noise = torch.autograd.Variable(x, requires_grad=True)", False),
        ("noise = torch.zeros_like(x)\nnoise.requires_grad = True", False),
        ("noise = x.clone()\nnoise.requires_grad_()", False),
        ("x = torch.zeros(4, requires_grad=True)\nnoise = x\nx = x * 2", False),
        ("x = make(x)\nnoise = x", True),
        ("x = torch.zeros(4, requires_grad=True)\nx = make(x)\nnoise = x", True),
        ("noise = model.weight", True),
        ("noise = torch.nn.Parameter(x.clone(), requires_grad=True)", True),
        ("noise = x.clone().requires_grad_()\noptimizer = torch.optim.SGD([noise], 0.1)", True),
        ("noise = make(x)", True),
        ("noise = make(x)\nx.requires_grad = True", True),
        ("noise = make(x)\nnoise.names = ('N', 'C')", True),
    ],
)
def test_the_gradient_of_an_input_was_scaled_with_apex_too(leaf: str, told: bool) -> None:
    """Apex unscales the parameters of its optimizers, and no other leaf."""
    reader = "print(noise.grad.norm())\n"
    rest = "optimizer.zero_grad()\n"
    before = f"{leaf}\nloss = model(noise).sum()\n" + SCALED + reader + "optimizer.step()\n" + rest
    after = f"{leaf}\nloss = model(noise).sum()\nscaler.scale(loss).backward()\n{reader}"
    after += f"scaler.step(optimizer)\nscaler.update()\n{rest}"
    found = verdicts(before, after, setup="def make(x):\n    return x\n")
    assert found == ({"refuse"} if told else set())


def test_a_gradient_of_a_parameter_that_is_written_anew_after_the_backward_is_read_as_such() -> None:
    reader = "for p in model.parameters():\n    print(p.grad.norm())\n"
    before = SCALED + f"{reader}optimizer.step()\noptimizer.zero_grad()\n"
    after = f"scaler.scale(loss).backward()\n{reader}scaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()\n"
    assert verdicts(before, after) == {"refuse"}


def test_a_reader_that_saw_scaled_gradients_before() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    before = SCALED + f"    {clip}optimizer.step()\noptimizer.zero_grad()\n"
    after = f"scaler.scale(loss).backward()\n{clip}scaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()\n"
    assert not said(before, after)


def test_an_update_on_the_way_out_of_a_bad_norm() -> None:
    body = "{0}norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\nif not torch.isfinite(norm):\n    {1}\n"
    skip = "optimizer.zero_grad()\n    continue"
    before = body.format(program(SCALED), skip) + "optimizer.step()\noptimizer.zero_grad()\n"
    head = "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\n"
    end = "scaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()\n"
    assert not said(before, body.format(head, "scaler.update()\n    " + skip) + end)
    assert verdicts(before, body.format(head, skip) + end) == {"refuse"}


def test_a_clip_that_moved_into_one_branch() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    before = SCALED + f"{clip}if args.slow:\n    optimizer.step()\nelse:\n    optimizer.step()\noptimizer.zero_grad()\n"
    after = "scaler.scale(loss).backward()\nif args.slow:\n    scaler.step(optimizer)\nelse:\n"
    after += f"    scaler.unscale_(optimizer)\n    {clip}    scaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()\n"
    assert [d.message for d in said(before, after)] == ["on a path that steps, clipping would be left out"]


def test_a_clip_of_two_modes_that_moved_into_the_branch_of_one() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    before = f"""
    if args.fp16:
        if args.amp == "native":
            other.scale(loss).backward()
            other.unscale_(optimizer)
            {clip}
        elif args.amp == "apex":
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            {clip}
    if args.fp16 and args.amp == "native":
        other.step(optimizer)
        other.update()
    else:
        optimizer.step()
    optimizer.zero_grad()
    """
    after = f"""
    if args.fp16:
        if args.amp == "native":
            other.scale(loss).backward()
        elif args.amp == "apex":
            scaler.scale(loss).backward()
    if args.fp16 and args.amp == "native":
        other.step(optimizer)
        other.update()
    else:
        scaler.unscale_(optimizer)
        {clip}
        scaler.step(optimizer)
        scaler.update()
    optimizer.zero_grad()
    """
    found = said(program(before), program(after), "other = torch.amp.GradScaler('cuda')")
    assert "on a path that steps, clipping would be left out" in [d.message for d in found if d.verdict == "refuse"]


def test_parts_of_the_step_that_a_framework_calls_are_followed_each_for_itself() -> None:
    cls = """
    import torch
    {imports}
    class Hook:
        def __init__(self, model, optimizer):
            self.optimizer = optimizer
            {setup}
        def backward(self, loss):
            {backward}
        def clip(self):
            {unscale}
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        def step(self):
            {step}
            self.optimizer.zero_grad()
    """
    before = cls.format(
        imports="from apex import amp",
        setup="self.model, self.optimizer = amp.initialize(model, optimizer)",
        backward="with amp.scale_loss(loss, self.optimizer) as s: s.backward()",
        unscale="pass",
        step="self.optimizer.step()",
    )
    parts = {
        "imports": "",
        "setup": "self.model, self.scaler = model, torch.amp.GradScaler('cuda')",
        "backward": "self.scaler.scale(loss).backward()",
        "unscale": "self.scaler.unscale_(self.optimizer)",
        "step": "self.scaler.step(self.optimizer); self.scaler.update()",
    }
    assert not [d for d in doubts(before, cls.format(**parts)) if d.code.startswith("AMP23")]
    twice = parts | {"unscale": "self.scaler.unscale_(self.optimizer); self.scaler.unscale_(self.optimizer)"}
    assert [d.verdict for d in doubts(before, cls.format(**twice)) if d.code == "AMP231"] == ["refuse"]


def test_bfloat16_has_no_scaler() -> None:
    after = "loss.backward()\noptimizer.step()\noptimizer.zero_grad()\n"
    old, new = whole(PLAIN, apex=True), whole(after, apex=False)
    assert not [d for d in doubts(old, new, dtype="bfloat16") if d.code.startswith("AMP23")]


OTHERS = """
others = {}
for name in head:
    others[name] = torch.optim.Adam(head[name].parameters())
every = [optimizer]
for name, other in others.items():
    every.append(other)
for i, name in enumerate(others):
    others[name] = every[i + 1]
"""


@pytest.mark.parametrize(
    ("update", "told"), [("scaler.update()", False), ("pass", True), ("scaler.step(optimizer)\nscaler.update()", True)]
)
def test_optimizers_that_are_stepped_one_after_another_are_not_the_one_before_them(update: str, told: bool) -> None:
    """One of them may be any item of a list in which that one is, too, as far as the text can tell."""
    after = f"""
scaler.scale(loss).backward()
scaler.step(optimizer)
for name, other in others.items():
    other.zero_grad()
    scaler.scale(criterion(head[name](x), y)).backward()
    scaler.step(other)
{update}
optimizer.zero_grad()
"""
    before = (
        PLAIN.replace("optimizer.zero_grad()\n", "")
        + """
for name, other in others.items():
    other.zero_grad()
    with amp.scale_loss(criterion(head[name](x), y), other) as scaled_loss:
        scaled_loss.backward()
    other.step()
optimizer.zero_grad()
"""
    )
    assert ("refuse" in verdicts(before, after, setup=OTHERS)) is told


MADE_TWICE = """
def make(module, lr):
    groups = [{"params": [p], "lr": lr} for p in module.parameters()]
    optimizer = torch.optim.SGD(groups, lr)
    return optimizer
other = make(head, 0.2)
optimizer = make(model, 0.1)
"""
BOTH = """
with amp.scale_loss(loss, [optimizer, other]) as scaled_loss:
    scaled_loss.backward()
torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
other.step()
"""


@pytest.mark.parametrize(
    ("unscaled", "stepped", "fault"),
    [
        (("optimizer", "other"), ("optimizer", "other"), ""),
        (("optimizer", "optimizer"), ("optimizer", "other"), "unscale_ would be called twice"),
        (("optimizer", "other"), ("other", "other"), "step this optimizer again without update()"),
    ],
)
def test_what_one_function_makes_for_two_calls_is_two_optimizers(
    unscaled: tuple[str, ...], stepped: tuple[str, ...], fault: str
) -> None:
    after = "scaler.scale(loss).backward()\n"
    after += "".join(f"scaler.unscale_({o})\n" for o in unscaled)
    after += "".join(f"torch.nn.utils.clip_grad_norm_({m}.parameters(), 1.0)\n" for m in ("head", "model"))
    after += "".join(f"scaler.step({o})\n" for o in stepped) + "scaler.update()\n"
    found = [d.message for d in said(BOTH, after, setup=MADE_TWICE) if d.verdict == "refuse"]
    assert bool(found) is bool(fault)
    assert any(fault in message for message in found) or not fault


def test_renamed_imports_alone_raise_no_question_about_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "VISITS", 2000)
    branches = "".join(f"if args.flag{i}:\n    scaler.update()\n" for i in range(40))
    text = f"""
import torch
from torch.cuda.amp import GradScaler
scaler = GradScaler()
for x, y in loader:
    optimizer.zero_grad()
    scaler.scale(model(x).sum()).backward()
    scaler.step(optimizer)
    {branches.replace(chr(10), chr(10) + "    ")}
"""
    renamed = text.replace("torch.cuda.amp", "torch.amp").replace("GradScaler()", 'GradScaler("cuda")')
    stepped = renamed.replace("scaler.step(optimizer)", "scaler.step(optimizer)\n    scaler.update()")
    assert [d.code for d in doubts(text, stepped) if "more paths" in d.message] == ["AMP232"]  # they are not followed
    assert not [d for d in doubts(text, renamed) if "more paths" in d.message]


@pytest.mark.parametrize("scripts", [1, 2, 7])
def test_steps_that_many_scripts_come_by_are_told_once(monkeypatch: pytest.MonkeyPatch, scripts: int) -> None:
    monkeypatch.setattr(runs, "VISITS", 2000)
    branches = "".join(f"        if args.flag{i}:\n            scaler.update()\n" for i in range(40))
    trainer = f"""
import torch
from torch.amp import GradScaler

def train(args, model, optimizer, loader):
    scaler = GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
{branches}
"""
    entries = {
        f"run{i}.py": "from trainer import train\n\ntrain(args, model, optimizer, loader)\n" for i in range(scripts)
    }
    after = trainer.replace("scaler.step(optimizer)", "scaler.step(optimizer)\n        scaler.update()")
    found = [
        d for d in doubts_of({"trainer.py": trainer, **entries}, {"trainer.py": after}) if "more paths" in d.message
    ]
    assert [(d.path, d.code) for d in found] == [("trainer.py", "AMP232")]  # which changes, and no script does
    said = found[0].message
    assert said.startswith("run0.py has more paths than were followed")
    assert said.endswith(": check that each backward has one step and one update, where it steps (trainer.py:9)")
    assert [d.line for d in found] == [9]
    assert ("(so has run1.py)" in said) == (scripts == 2)
    assert ("(so have run1.py, run2.py, run3.py, run4.py and 2 more)" in said) == (scripts == 7)


def test_a_program_with_more_paths_than_are_followed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the bodies count, but how often a path comes by their places: few bodies had a million of these."""
    assert not said(PLAIN, RIGHT)
    monkeypatch.setattr(runs, "VISITS", 4)
    assert [d.code for d in said(PLAIN, RIGHT) if "more paths" in d.message] == ["AMP232"]


INNER = """
with amp.scale_loss(loss, optimizer) as scaled:
    target = scaled.mean()
    grad = torch.autograd.grad(target, x, create_graph=True)[0]
    grad {divided}
loss = loss + grad.norm()
with amp.scale_loss(loss, optimizer) as scaled:
    scaled.backward()
optimizer.step()
optimizer.zero_grad()
"""
INNER_AFTER = """
scaled = scaler.scale(loss)
target = scaled.mean()
grad = torch.autograd.grad({outputs}, x, create_graph=True)[0]
grad {divided}
loss = loss + grad.norm()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
optimizer.zero_grad()
"""


@pytest.mark.parametrize("divided", ["/= scaled / loss", "= grad / (scaled / loss)"])
@pytest.mark.parametrize(
    ("outputs", "wrong"),
    [
        ("scaled", False),
        ("target", False),
        ("scaler.scale(scaled)", True),
        ("scaler.scale(target)", True),
        ("outputs=[scaler.scale(scaled.mean())]", True),
    ],
)
def test_what_an_inner_gradient_is_taken_of_is_scaled_once(outputs: str, wrong: bool, divided: str) -> None:
    after = INNER_AFTER.format(outputs=outputs, divided=divided)
    if outputs.startswith("outputs"):
        after = after.replace(f"{outputs}, x", f"inputs=x, {outputs}")
    found = said(INNER.format(divided=divided), after)
    assert [d.message for d in found if d.verdict == "refuse"] == (
        ["the loss would be scaled twice before torch.autograd.grad: it carries the scale already"] if wrong else []
    )


def test_an_inner_gradient_that_keeps_its_scale_is_not_scaled_with_the_loss_again() -> None:
    kept = INNER_AFTER.format(outputs="scaled", divided="= grad.clone()")
    found = said(INNER.format(divided="= grad.clone() / (scaled / loss)"), kept)
    assert "scaled twice before its backward" in found[0].message
