"""Networks that `initialize` was not given: O1 patches torch for the whole process, O2 and O3 cast their models only."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import MODEL, apex, found, initialize, native

SCALED = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()\n"
NATIVE = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()\n"
TARGET = "with torch.no_grad():\n    target = teacher(x)\n"
CAST = 'with torch.autocast("cuda", dtype=torch.float16):\n'
LOSS = "loss = criterion(model(x), target)\n"


@pytest.mark.parametrize(
    "teacher",
    [
        "teacher = build()",
        "teacher = load_teacher()\nteacher.eval()",
        "teacher = load_teacher()\nteacher.requires_grad_(False)",
    ],
)
def test_o1_patched_torch_for_networks_it_was_not_given_too(teacher: str) -> None:
    model = f"{MODEL}\n{teacher}"
    after = TARGET.replace("no_grad():", 'no_grad(), torch.autocast("cuda", dtype=torch.float16):')
    result = check_rewrite(
        apex(TARGET + LOSS + SCALED, model=model), native(f"{after}{CAST}    {LOSS}{NATIVE}", model=model)
    )
    (finding,) = found(result, "AMP507")
    assert "teacher" in finding.message


@pytest.mark.parametrize(
    ("level", "told"),
    [
        ('"O1"', ""),
        ("args.level", " (O2 and O3 left it in float32)"),
        ('"O2" if args.half else "O1"', " (O2 left it in float32)"),
    ],
)
def test_what_other_levels_left_in_float32_is_said_where_they_may_be_asked_for(level: str, told: str) -> None:
    model = f"{MODEL}\nteacher = build()"
    source = apex(TARGET + LOSS + SCALED, initialize(f"opt_level={level}"), model=model)
    (finding,) = found(rewrite(source), "AMP507")
    assert finding.message.endswith(f"so its forward is under autocast{told}")


@pytest.mark.parametrize("half", ["teacher.half()", "teacher = teacher.half()"])
def test_what_the_program_makes_half_itself_no_level_left_in_float32(half: str) -> None:
    model = f"{MODEL}\nteacher = build()\n{half}"
    (finding,) = found(rewrite(apex(TARGET + LOSS + SCALED, initialize("opt_level=args.level"), model=model)), "AMP507")
    assert finding.message.endswith("so its forward is under autocast")


@pytest.mark.parametrize("level", ["O2", "O3"])
def test_o2_and_o3_left_other_networks_in_float32(level: str) -> None:
    result = rewrite(
        apex(TARGET + LOSS + SCALED, initialize(f'opt_level="{level}"'), model=f"{MODEL}\nteacher = build()")
    )
    assert result.after is not None
    assert TARGET.replace("    ", "        ").replace("with", "    with") in result.after
    assert not found(result, "AMP507")


def test_a_teacher_of_a_trainer() -> None:
    source = """
        import torch
        from apex import amp


        class Trainer:
            def __init__(self, model, teacher, optimizer):
                self.teacher = teacher.eval()
                self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

            def step(self, x):
                with torch.no_grad():
                    target = self.teacher(x)
                loss = (self.model(x) - target).pow(2).mean()
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    assert "with torch.no_grad(), torch.autocast(" in after


def test_what_ran_before_initialize_and_what_is_no_network_stays() -> None:
    prepare = "teacher = build()\nprint(teacher(first))\n" + initialize('opt_level="O1"')
    loop = "x = augment(x)\nloss = criterion(model(x), y)\n" + SCALED
    result = rewrite(apex(loop, prepare, imports="from apex import amp\nfrom project import augment, first"))
    assert result.after is not None
    assert "\nprint(teacher(first))\n" in result.after
    assert "    x = augment(x)\n    with torch.autocast" in result.after


KEEPER = """
class Keeper:
    def __init__(self):
        self.best = 0

    def load_state_dict(self, state):
        self.best = state["best"]

    def __call__(self, score, model=None):
        if score > self.best:
            self.best = score
            torch.save(model.state_dict(), "best.pt")
        return self.best


"""


@pytest.mark.parametrize("made", ["Keeper()", "made_elsewhere()"])
@pytest.mark.parametrize(
    "call", ["keeper(loss.item(), model)", "keeper(loss.item(), model=model)", "keeper(loss.item())"]
)
def test_what_has_a_state_and_is_told_of_the_model_is_no_network(made: str, call: str) -> None:
    model = f"{MODEL}\nkeeper = {made}\nkeeper.load_state_dict(saved)"
    before, after = LOSS + SCALED + call, f"{CAST}    {LOSS}{NATIVE}{call}"
    result = check_rewrite(KEEPER + apex(before, model=model), KEEPER + native(after, model=model))
    assert not found(result, "AMP507")


def test_an_object_that_gives_something_and_is_no_network_stays_out_too() -> None:
    model = f"{MODEL}\nkeeper = Keeper()\nkeeper.load_state_dict(saved)"
    body = LOSS + SCALED + "best = keeper(loss.item(), model)"
    result = rewrite(KEEPER + apex(body, model=model))
    assert result.after is not None
    assert not found(result, "AMP507")


@pytest.mark.parametrize("calls", [False, True])
def test_an_object_with_methods_as_networks_have_them_is_none_where_it_runs_only_its_own(calls: bool) -> None:
    """A scheduler of the program's own, and what wraps a network without being one."""
    ends = "self.net(x)" if calls else "self.rate() * x"
    made = "class Kept:\n    def __init__(self, net):\n        self.net = net\n\n    def rate(self):\n        return 0.1\n\n"
    made += f"    def eval(self):\n        pass\n\n    def __call__(self, x):\n        return {ends}\n\n"
    model = f"{MODEL}\nkept = Kept(load_other())\nkept.eval()"
    result = rewrite(made + apex(LOSS + SCALED + "rate = kept(x)\nprint(rate)", model=model))
    assert result.after is not None
    assert bool(found(result, "AMP507")) is calls


@pytest.mark.parametrize("more", ["", "teacher.eval()"])
def test_a_network_of_which_only_the_state_is_loaded(more: str) -> None:
    model = f"{MODEL}\nteacher = load_teacher()\nteacher.load_state_dict(saved)\n{more}"
    result = rewrite(apex(TARGET + LOSS + SCALED, model=model))
    assert "target = teacher(x)" in str(result.after)
    assert len(found(result, "AMP507")) == 1


def test_a_network_that_hooks_read_runs_as_a_statement() -> None:
    model = f"{MODEL}\nteacher = load_teacher()\nteacher.eval()"
    result = rewrite(apex("with torch.no_grad():\n    teacher(x)\n" + LOSS + SCALED, model=model))
    assert len(found(result, "AMP507")) == 1


def test_an_fp16_optimizer_patched_nothing_for_other_networks() -> None:
    source = """
        import torch
        from apex.fp16_utils import FP16_Optimizer
        from project import Net, loader

        model = Net.from_pretrained("a")
        model.half()
        optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        for x, y in loader:
            loss = model(x, y)
            optimizer.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        fresh = Net.from_pretrained("b")
        fresh.eval()
        for x in loader:
            with torch.no_grad():
                print(fresh(x))
    """
    result = rewrite(source)
    assert str(result.after).count("torch.autocast") == 1
    assert not found(result, "AMP507")


NETWORK = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)
        self.names = ["a", "b", "c"]

    def embed(self, x):
        return self.body(x)

    def label(self, index):
        return self.names[index]

    def forward(self, x):
        return self.head(self.embed(x))


"""


@pytest.mark.parametrize("made", ["Net()", "Net().cuda()", "Net().cuda().eval()"])
@pytest.mark.parametrize("run", ["teacher.embed(x)", "teacher.forward(x)", "teacher(x)"])
def test_another_method_that_runs_parts_of_it_of_what_is_made_in_one_expression(made: str, run: str) -> None:
    body = f"target = {run}\n{LOSS}"
    model = f"{MODEL}\nteacher = {made}"
    result = rewrite(NETWORK + apex(body + SCALED, model=model))
    assert result.after is not None
    assert f"    {CAST}        target = {run}\n" in result.after
    (finding,) = found(result, "AMP507")
    assert run.partition("(")[0] in finding.message


def test_a_method_that_runs_nothing_of_it_is_none() -> None:
    body = f"print(teacher.label(0))\nname = teacher.label(1)\n{LOSS}"
    result = rewrite(NETWORK + apex(body + SCALED, model=f"{MODEL}\nteacher = Net().cuda()"))
    assert not found(result, "AMP507")


DISTILLED = """
import torch
from apex import amp


def distilled(model, teacher, x):
    soft = teacher(x)
    return (model(x) - soft).pow(2).mean(), soft


def train(model, teacher, loader, optimizer, criterion):
    for x, y in loader:
        loss = criterion(model(x), y)
        extra, soft = distilled(model, teacher, x)
        {log}
        {add}
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


def main(model, teacher, loader, optimizer, criterion):
    teacher.eval()
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    train(model, teacher, loader, optimizer, criterion)
"""


@pytest.mark.parametrize(
    "add", ["loss = loss + extra", "loss += 0.5 * extra", "more = weight * extra\n        loss = loss + more"]
)
def test_a_helper_that_gives_a_part_of_the_loss_runs_its_teacher_in_mixed_precision(add: str) -> None:
    result = rewrite(DISTILLED.format(add=add, log="print(soft.shape)"))
    assert result.after is not None
    assert f"def distilled(model, teacher, x):\n    {CAST}        soft = teacher(x)\n        return" in result.after
    assert len(found(result, "AMP507")) == 1


def test_a_helper_within_the_region_of_all_that_call_it_has_none_of_its_own() -> None:
    result = rewrite(DISTILLED.format(add="loss = loss + extra + (model(x) - soft).abs().sum()", log="size = len(x)"))
    assert result.after is not None
    assert "def distilled(model, teacher, x):\n    soft = teacher(x)\n    return" in result.after
    assert result.after.count("torch.autocast") == 1
    region = result.after[result.after.index("with torch.autocast") : result.after.index("optimizer.zero_grad")]
    assert "\n            extra, soft = distilled(model, teacher, x)\n" in region
    assert len(found(result, "AMP507")) == 1


def test_a_helper_that_something_else_calls_too_keeps_its_region() -> None:
    source = DISTILLED.format(add="loss = loss + extra + (model(x) - soft).abs().sum()", log="size = len(x)")
    alone = "\n\ndef evaluate(model, teacher, loader):\n    for x, _ in loader:\n        print(distilled(model, teacher, x)[0])\n"
    called = source + "    evaluate(model, teacher, loader)\n" + alone
    result = rewrite(called)
    assert result.after is not None
    assert f"def distilled(model, teacher, x):\n    {CAST}        soft = teacher(x)\n" in result.after


def test_a_loop_over_batches_of_another_network_is_no_region_as_a_whole() -> None:
    """As of the unit's own models: what it prepares and keeps stays outside."""
    evaluated = """
    for batch in evaluated:
        x = prepare(batch)
        {outer}scores = teacher(x)
        kept.append(scores.argmax().item())
        for part in batch:
            {inner}found = helper(part)
            kept.append(found.argmax().item())
    """
    model = f"{MODEL}\nteacher = load_teacher()\nteacher.eval()\nhelper = load_helper()\nhelper.eval()\nkept = []"
    loss = "loss = criterion(model(x), y)\n"
    region = CAST.strip()
    before, after = (
        evaluated.format(outer="", inner=""),
        evaluated.format(outer=f"{region}\n            ", inner=f"{region}\n                "),
    )
    check_rewrite(
        apex(loss + SCALED, model=model, tail=before), native(f"{CAST}    {loss}{NATIVE}", model=model, tail=after)
    )


@pytest.mark.parametrize("base", ["torch.optim.lr_scheduler.LRScheduler", "torch.utils.data.Dataset"])
def test_what_derives_from_another_part_of_torch_is_no_network(base: str) -> None:
    """A schedule of the program's own, which loads a state as networks do."""
    source = f"""
        import torch
        from apex import amp

        class Schedule({base}):
            def rates(self):
                return [self.curve(rate) for rate in self.base_lrs]

        def main(model, loader, state):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            schedule = Schedule(optimizer)
            schedule.load_state_dict(state)
            for x in loader:
                loss = model(x).pow(2).mean()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
                rates = schedule.rates()
                print(rates)
        """
    result = rewrite(source)
    assert result.after is not None
    assert "        rates = schedule.rates()\n" in result.after
    assert result.after.count("torch.autocast(") == 1
    assert not found(result, "AMP507")


def test_a_method_of_the_model_that_makes_loaders_runs_nothing() -> None:
    """A sampler that shuffles what it keeps computes nothing that autocast casts."""
    source = """
        import random

        import torch
        from apex import amp

        class Buckets(torch.utils.data.Sampler):
            def __init__(self, rows):
                self.rows = rows

            def shuffle(self):
                random.shuffle(self.rows)

        class Net(torch.nn.Linear):
            def get_loader(self, rows):
                sampler = Buckets(rows)
                sampler.shuffle()
                return torch.utils.data.DataLoader(rows, sampler=sampler)

        def main(rows):
            model = Net(3, 3)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            loader = model.get_loader(rows)
            for x in loader:
                loss = model(x).pow(2).mean()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    result = rewrite(source)
    assert result.after is not None
    assert "    loader = model.get_loader(rows)\n    for x in loader:\n" in result.after
    assert result.after.count("torch.autocast(") == 1


BRANCHES = """
import torch
from apex import amp


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(2, 1)

    def forward(self, x):
        return self.line(x)


def main(args, batches):
    model = Net().cuda()
    other = Net().cuda()
    if args.train:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
        for x in batches:
            optimizer.zero_grad()
            loss = model(x).sum()
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
    BRANCH
        for x in batches:
            print(other(x))
"""


@pytest.mark.parametrize(
    ("branch", "cast"), [("elif args.evaluate:", False), ("if not args.train:", False), ("if args.evaluate:", True)]
)
def test_a_network_of_a_branch_that_no_set_up_comes_to_stays_in_float32(branch: str, cast: bool) -> None:
    result = rewrite(BRANCHES.replace("BRANCH", branch))
    assert result.after is not None
    assert result.after.count("with torch.autocast(") == 1 + cast
    assert ("enabled=False" in result.after) is cast  # a scaler that only an evaluation asks
    assert bool(found(result, "AMP507")) is cast


ASKED = """
import argparse
import torch
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
parser.add_argument("--level", default="O2")


class Memory(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("memory", torch.rand(8, 2))

    def forward(self, q):
        return torch.mm(q, self.memory.t())


def train(model, memory, optimizer, loader, args):
    for x in loader:
        q = model(x)
        loss = memory(q).float().mean()
        optimizer.zero_grad()
        if args.amp:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()


def main():
    args = parser.parse_args()
    model = torch.nn.Linear(2, 2).cuda()
    memory = Memory().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.amp:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    train(model, memory, optimizer, torch.randn(4, 2, 2).cuda(), args)


main()
"""


def test_what_another_level_left_in_float32_is_told_once() -> None:
    result = rewrite(ASKED)
    (finding,) = [f for f in result.findings if f.code in ("AMP507", "AMP531")]
    assert (finding.code, "(O2 and O3 left it in float32)" in finding.message) == ("AMP507", True)
