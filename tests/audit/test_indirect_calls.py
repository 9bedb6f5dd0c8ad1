"""What a function sets that is called through something else: a name, a table, a `partial`, a lambda."""

from __future__ import annotations

import ast
from textwrap import indent

import pytest

from amp_migrate.audit.program.program import Program
from amp_migrate.audit.unset.passing import directly
from tests.audit.helpers import doubts, told

DIRECT = {
    "written out": ("self.prepare(1)", "self.prepare(1)"),
    "by a name": ("fn = self.prepare\nfn(1, b=2)", "self.prepare(1, b=2)"),
    "by a name for a name": ("fn = prepare\nrun = fn\nrun(1)", "prepare(1)"),
    "out of a table": ("phases = {'one': prepare, 'two': finish}\nphases['two'](1)", "finish(1)"),
    "in a lambda": ("go = lambda: self.prepare(1)\ngo()", "self.prepare(1)"),
    "bound by a partial": ("functools.partial(prepare, 1, b=2)(3, c=4)", "prepare(1, 3, b=2, c=4)"),
    "by a name for a partial": ("fn = functools.partial(prepare, 1)\nfn(2)", "prepare(1, 2)"),
    "a partial of a name": ("fn = self.prepare\nfunctools.partial(fn, 1)()", "self.prepare(1)"),
    "one of two": ("fn = self.prepare\nfn = print\nfn()", "fn()"),
    "an entry that is put there": (
        "phases = {'one': prepare}\nphases['one'] = finish\nphases['one']()",
        "phases['one']()",
    ),
    "a table that is handed on": ("phases = {'one': prepare}\nchange(phases)\nphases['one']()", "phases['one']()"),
    "a lambda with an argument": ("go = lambda x: self.prepare(x)\ngo(1)", "go(1)"),
    "what a call gives": ("fn = make()\nfn(1)", "fn(1)"),
}


@pytest.mark.parametrize(("body", "meant"), DIRECT.values(), ids=DIRECT)
def test_a_call_as_it_would_be_written_without_what_stands_between(body: str, meant: str) -> None:
    text = "import functools\n\ndef run(self):\n" + indent(body, "    ") + "\n"
    program = Program({"train.py": text})
    module = program.modules["train.py"]
    call = [n.value for n in ast.walk(module.tree) if isinstance(n, ast.Expr)][-1]
    assert isinstance(call, ast.Call)
    assert ast.unparse(directly(program, module.scope_of(call), call)) == meant


@pytest.mark.parametrize("inside", [True, False])
def test_a_table_gives_what_it_holds_also_where_a_function_has_it(inside: bool) -> None:
    table = "table = {'one': first}\ntable['two'] = second\ntable[key](1)\n"
    text = "def first(x): pass\ndef second(x): pass\n"
    text += "def run(key):\n" + indent(table, "    ") if inside else table
    program = Program({"train.py": text})
    module = program.modules["train.py"]
    (call,) = (n.value for n in ast.walk(module.tree) if isinstance(n, ast.Expr))
    assert isinstance(call, ast.Call)
    assert [f.name for f in program.callees(module, call)] == ["first", "second"]


OPTIONS = """
import argparse
import functools
import torch
{imports}
from data import loader, criterion, model, optimizer

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    return parser.parse_args()

def setup(args, model, optimizer):
    {prepare}
    return model, optimizer

def train(args, model, optimizer):
    for x, y in loader:
        loss = criterion(model(x), y)
        {scaled}
        print(args.fp16)

def main():
    args = parse()
    {given}, optimizer = {setup}
    {train}

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("setup", "train"),
    [
        ("setup(args, build(), None)", "train(args, net, optimizer)"),
        ("functools.partial(setup, args)(build(), None)", "functools.partial(train, args)(net, optimizer)"),
        ("{'go': setup}['go'](args, build(), None)", "run = functools.partial(train, args)\n    run(net, optimizer)"),
    ],
)
def test_arguments_that_are_bound_before_carry_what_another_call_put_there(setup: str, train: str) -> None:
    scaled = "with args.amp.scale_loss(loss, optimizer) as s:\n            s.backward()\n        optimizer.step()"
    old = OPTIONS.format(
        imports="from apex import amp",
        prepare="model, optimizer = amp.initialize(model, optimizer)\n    args.amp = amp",
        scaled=scaled,
        given="net",
        setup=setup,
        train=train,
    )
    new = OPTIONS.format(
        imports="",
        prepare="args.scaler = torch.amp.GradScaler('cuda')",
        scaled="args.scaler.scale(loss).backward()\n        args.scaler.step(optimizer)\n        args.scaler.update()",
        given="net",
        setup=setup,
        train=train,
    )
    assert not [d for d in doubts(old, new) if "args.scaler" in d.message]


BOUND = """
import torch
from functools import partial
{imports}
from data import loader, criterion, model, optimizer

def train({parameters}):
    loss = criterion(model(x))
    {scaled}

run = partial(train, model)
for x in loader:
    run({arguments})
"""


@pytest.mark.parametrize(
    ("arguments", "more", "fits"),
    [("optimizer, scaler, x", "", True), ("optimizer, x", "", False), ("optimizer, scaler, x", "print(run)", False)],
)
def test_what_a_partial_binds_is_called_with_all_that_is_needed(arguments: str, more: str, fits: bool) -> None:
    old = BOUND.format(
        imports="from apex import amp\nmodel, optimizer = amp.initialize(model, optimizer)",
        parameters="model, optimizer, x",
        scaled="with amp.scale_loss(loss, optimizer) as s:\n        s.backward()\n    optimizer.step()",
        arguments="optimizer, x",
    )
    new = BOUND.format(
        imports="scaler = torch.amp.GradScaler('cuda')",
        parameters="model, optimizer, scaler, x",
        scaled="scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()",
        arguments=arguments,
    )
    found = [d for d in doubts(old + more, new + more) if d.code == "AMP132"]
    assert (not found) is fits, found


LAMBDA = """
    import argparse
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            return self.layer(x)

    def query(x, fn):
        return fn(x)

    def build(args):
        net = Net().cuda()
        ask = lambda x, network: query(x, network)
        opt = torch.optim.Adam(net.parameters())
        {setup}
        return dict(net=net), {{"ask": ask, "network": net}}, opt

    def points(x, ask, network):
        return ask(x, network)

    def render(x, **settings):
        return points(x, **settings)

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--half", action="store_true")
        args = parser.parse_args()
        _, settings, opt = build(args)
        {scaler}
        for i in range(10):
            x = torch.randn(4, 8).cuda()
            {train}
            opt.step()
            {evaluate}

    main()
    """
APEX = LAMBDA.format(
    setup='if args.half:\n            from apex import amp\n            net, opt = amp.initialize(net, opt, opt_level="O1")',
    scaler="from apex import amp",
    train="loss = render(x, **settings).mean()\n"
    "            with amp.scale_loss(loss, opt) as scaled:\n                scaled.backward()",
    evaluate="EVALUATE",
)
NATIVE = LAMBDA.format(
    setup="pass",
    scaler='scaler = torch.amp.GradScaler("cuda", enabled=args.half)',
    train='with torch.autocast("cuda", dtype=torch.float16, enabled=args.half):\n'
    "                loss = render(x, **settings).mean()\n            scaler.scale(loss).backward()\n"
    "            scaler.step(opt)\n            scaler.update()",
    evaluate="EVALUATE",
).replace("            opt.step()\n", "")


def test_a_network_that_a_lambda_in_unpacked_settings_is_given() -> None:
    """What is called in a lambda runs where that is called: not where it stands, before the set-up."""
    evaluate = "print(render(x, **settings).sum())"
    outside = doubts(APEX.replace("EVALUATE", evaluate), NATIVE.replace("EVALUATE", evaluate))
    assert [verdict for _, verdict in told(outside, "AMP531")] == ["review"]
    assert not told(doubts(APEX.replace("EVALUATE", "pass"), NATIVE.replace("EVALUATE", "pass")), "AMP531")


def called_in_a_lambda(lambda_: str, call: str) -> tuple[str, str]:
    """A program that evaluates by a lambda, with Apex and without, where --loud is off."""
    text = f"""
        import argparse
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(8, 8)

            def forward(self, x):
                return self.layer(x)

        def query(x, network):
            return network(x)

        {lambda_}

        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("--quick", action="store_true")
            parser.add_argument("--loud", action="store_true")
            args = parser.parse_args()
            net = Net().cuda()
            opt = torch.optim.Adam(net.parameters())
            SETUP
            for i in range(10):
                x = torch.randn(4, 8).cuda()
                TRAIN
                {call}

        main()
        """
    setup = "from apex import amp\n            if not args.loud:\n                "
    setup += 'net, opt = amp.initialize(net, opt, opt_level="O1")'
    train = "loss = net(x).mean()\n                with amp.scale_loss(loss, opt) as scaled:\n"
    train += "                    scaled.backward()\n                opt.step()"
    scaler = 'scaler = torch.amp.GradScaler("cuda", enabled=not args.loud)'
    region = 'with torch.autocast("cuda", dtype=torch.float16, enabled=not args.loud):\n'
    region += "                    loss = net(x).mean()\n                scaler.scale(loss).backward()\n"
    region += "                scaler.step(opt)\n                scaler.update()"
    return text.replace("SETUP", setup).replace("TRAIN", train), text.replace("SETUP", scaler).replace("TRAIN", region)


def test_what_a_lambda_is_given_is_none_of_what_the_function_around_it_is() -> None:
    """`quick` is what build was given, not the second thing that ask is: this comes to the evaluation without --loud, too."""
    build = (
        "def build(net, quick):\n            ask = lambda x, loud: query(x, net) if {} else 0\n            return ask"
    )
    kept = "ask = build(net, args.quick)\n                print(ask(x, args.loud))"
    assert told(doubts(*called_in_a_lambda(build.format("quick"), kept)), "AMP531")
    assert not told(doubts(*called_in_a_lambda(build.format("loud"), kept)), "AMP531")


def test_a_lambda_of_a_file_runs_where_it_is_called() -> None:
    """Not as the file is loaded, before the set-up."""
    kept = "ask = lambda x, network: query(x, network)"
    assert told(doubts(*called_in_a_lambda(kept, "print(ask(x, net))")), "AMP531")
    assert not told(doubts(*called_in_a_lambda(kept, "pass")), "AMP531")
    again = kept.replace("query(x, network)", "ask(x, network) if x.sum() else query(x, network)")
    assert told(doubts(*called_in_a_lambda(again, "print(ask(x, net))")), "AMP531")


@pytest.mark.parametrize(
    "calls",
    [
        "ask = lambda: query(x, net)\n                print(ask())",
        "ask = lambda x, network: query(x, network)\n                print(ask(x, net))",
        "ask = lambda x: query(x, net)\n                twice = lambda x: ask(ask(x))\n                print(twice(x))",
    ],
)
def test_a_lambda_that_the_function_it_stands_in_calls(calls: str) -> None:
    assert told(doubts(*called_in_a_lambda("", calls)), "AMP531")
