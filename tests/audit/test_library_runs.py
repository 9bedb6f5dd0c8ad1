"""Who runs under autocast in which run: functions that a library gives, models made anew, objects that hold others."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of, program, told

LIBRARY = """
    import torch
    {imports}

    def create(args):
        model = torch.nn.Linear(4, 4)
        opt = torch.optim.SGD(model.parameters(), 0.1)
        if args.fp16:
            {set_up}
        return model, opt

    def train(model, opt, data{taken}):
        model.train()
        for x in data:
            {region}
                loss = model(x).sum()
            {step}
"""


def library(enabled: str, *, set_up: str = "", always: bool = False) -> list[tuple[int, str]]:
    """What is said of a library whose function `train` nothing in sight calls."""
    step = "with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n            opt.step()"
    before = LIBRARY.format(
        imports="from apex import amp",
        set_up='model, opt = amp.initialize(model, opt, opt_level="O2")',
        taken="",
        region="if True:",
        step=step,
    )
    after = LIBRARY.format(
        imports="",
        set_up="pass",
        taken=", scaler, args",
        region=f'with torch.autocast("cuda", dtype=torch.float16{enabled}):',
        step="scaler.scale(loss).backward()\n            scaler.step(opt)\n            scaler.update()",
    )
    if always:
        before, after = (t.replace("if args.fp16:", "if True:") for t in (before, after))
    found = [d for d in doubts(before, after) if d.code == "AMP531" and "in every run" in d.message]
    assert all("where not fp16" in d.message for d in found)
    return told(found, "AMP531")


@pytest.mark.parametrize("enabled", ["", ", enabled=True"])
def test_a_region_without_the_flag_that_set_apex_up_is_told(enabled: str) -> None:
    assert library(enabled) == [(15, "review")]


@pytest.mark.parametrize("enabled", [", enabled=args.fp16", ", enabled=scaler.is_enabled()"])
def test_not_one_that_asks(enabled: str) -> None:
    assert library(enabled) == []


def test_nor_where_apex_was_set_up_in_every_run() -> None:
    assert library("", always=True) == []


SCRIPT = """
    import argparse
    import torch
    {imports}

    parser = argparse.ArgumentParser()
    parser.add_argument("--opt-level", default="{usual}", choices=["O0", "O1", "O2"])
    args = parser.parse_args()

    class Net(torch.nn.Linear):
        pass

    def evaluate(model, data):
        model.eval()
        for x in data:
            {eval_region}
                print(model(x))

    def main():
        {made}
        opt = torch.optim.SGD(model.parameters(), 0.1)
        {set_up}
        for x in data:
            {region}
                loss = model(x).sum()
            {step}
        {then}

    main()
"""
ON = 'with torch.autocast("cuda", dtype=torch.float16, enabled=args.opt_level != "O0"):'
RELOADED = "model = Net(4, 4)\n        model.load_state_dict(state)\n        evaluate(model, data)"
ANOTHER = "test_model = Net(4, 4)\n        test_model.load_state_dict(state)\n        evaluate(test_model, data)"
SAME = "evaluate(model, data)"


def script(then: str, usual: str, *, made: str = "model = Net(4, 4)") -> list[tuple[str, str]]:
    """Verdict and condition of what is said of the evaluation of a script, under autocast now."""
    found = evaluated(then, usual, made=made)
    return [(verdict, "O1" if "opt_level is not 'O1'" in message else "anew") for verdict, message in found]


def script_told(then: str, usual: str) -> list[str]:
    """What is said of the evaluation of a script, for which no region is opened now."""
    return [message for _, message in evaluated(then, usual, eval_region="if True:")]


def evaluated(
    then: str, usual: str, *, eval_region: str = ON, made: str = "model = Net(4, 4)"
) -> list[tuple[str, str]]:
    """Verdict and message of what is said of the evaluation of a script, under autocast now."""
    before = SCRIPT.format(
        imports="from apex import amp",
        usual=usual,
        eval_region="if True:",
        set_up="model, opt = amp.initialize(model, opt, opt_level=args.opt_level)",
        region="if True:",
        step="with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n            opt.step()",
        then=then,
        made=made,
    )
    after = SCRIPT.format(
        imports="",
        usual=usual,
        eval_region=eval_region,
        set_up='scaler = torch.amp.GradScaler("cuda", enabled=args.opt_level != "O0")',
        region=ON,
        step="scaler.scale(loss).backward()\n            scaler.step(opt)\n            scaler.update()",
        then=then,
        made=made,
    )
    found = [d for d in doubts(before, after) if d.code == "AMP531" and d.line == 16]
    return [(d.verdict, d.message) for d in found]


@pytest.mark.parametrize("then", [RELOADED, ANOTHER])
def test_a_model_that_o2_did_not_reach_is_told_where_o2_is_usual(then: str) -> None:
    assert script(then, "O2") == [("review", "O1")]


def test_one_loaded_anew_is_mentioned_where_o1_is_usual() -> None:
    assert script(RELOADED, "O1") == [("look", "anew")]
    assert script(ANOTHER, "O1") == []


@pytest.mark.parametrize("then", [RELOADED, SAME])
def test_one_made_after_the_set_up_is_another_whatever_that_was_given(then: str) -> None:
    """The first is unpacked from what a function out of sight gives: which object it is cannot be told."""
    told = [("look", "anew")] if then is RELOADED else []
    assert script(then, "O1", made="model, tokenizer = build(args, Net)") == told


@pytest.mark.parametrize("usual", ["O0", "O1", "O2"])
def test_one_loaded_anew_that_no_region_runs_was_half_at_o1_alone(usual: str) -> None:
    (message,) = script_told(RELOADED, usual)
    assert ("where opt_level is 'O1'" in message, "where opt_level is not 'O0'" in message) == (True, False), message
    (message,) = script_told(SAME, usual)
    assert ("where opt_level is 'O1'" in message, "where opt_level is not 'O0'" in message) == (False, True), message


PICKED = """def get(args):
        return getattr(importlib.import_module(args.name), "Net")

    def run(args):
        kind = get(args)
        model = kind(args)
        evaluate(model, data)

    def main():"""


@pytest.mark.parametrize(("then", "where"), [("run(args)", "is 'O1'"), (SAME, "is not 'O0'")])
def test_one_made_anew_of_a_class_that_is_not_seen_was_half_at_o1_alone(
    monkeypatch: pytest.MonkeyPatch, then: str, where: str
) -> None:
    monkeypatch.setattr(f"{__name__}.SCRIPT", SCRIPT.replace("def main():", PICKED))
    found = evaluated(then, "O0", made="kind = get(args)\n        model = kind(args)", eval_region="if True:")
    assert [f"where opt_level {where}" in message for _, message in found] == [True]


@pytest.mark.parametrize("usual", ["O1", "O2"])
def test_not_the_model_that_apex_was_given(usual: str) -> None:
    assert script(SAME, usual) == []


def test_one_loaded_anew_beside_other_runs_without_apex() -> None:
    """What is said of runs that never came by amp.initialize says so too."""
    optional = "if args.train:\n            {set_up}"
    before, after = (
        SCRIPT.replace("{set_up}", optional).format(
            imports=imports,
            usual="O1",
            eval_region=region,
            set_up=set_up,
            region=region,
            step=step,
            then=RELOADED,
            made="model = Net(4, 4)",
        )
        for imports, region, set_up, step in (
            (
                "from apex import amp",
                "with nothing():",
                "model, opt = amp.initialize(model, opt, opt_level=args.opt_level)",
                "with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n            opt.step()",
            ),
            (
                "",
                ON.replace("with ", "with nothing(), "),
                "pass",
                "loss.backward()\n            opt.step()",
            ),
        )
    )
    (doubt,) = [d for d in doubts(before, after) if d.code == "AMP531" and d.line == 16]
    assert (doubt.verdict, "not train" in doubt.message) == ("review", True)
    assert doubt.message.endswith("; what is made anew after amp.initialize was float32 under O2 and O3, too")


def test_a_model_that_is_wrapped_or_moved_is_not_made_anew() -> None:
    wrapped = "model = torch.nn.DataParallel(model)\n        model = model.cuda()\n        evaluate(model, data)"
    assert script(wrapped, "O1") == []
    assert script(f"if torch.cuda.device_count() > 1:\n            {wrapped}", "O2") == []


def test_a_program_beside_it_that_stays_with_apex_is_no_run_without() -> None:
    shared = """
        import torch

        def evaluate(model, x, on):
            {region}
                return model(x)
    """
    stays = """
        import torch
        from apex import amp
        from shared import evaluate

        def main(args):
            model = torch.nn.Linear(4, 4)
            opt = torch.optim.SGD(model.parameters(), 0.1)
            model, opt = amp.initialize(model, opt, opt_level="O1")
            with amp.scale_loss(model(x).sum(), opt) as scaled: scaled.backward()
            opt.step()
            evaluate(model, x, True)

        main(parse())
    """
    goes = stays.replace("from apex import amp", "import os").replace(
        "with amp.scale_loss(model(x).sum(), opt) as scaled: ", ""
    )
    goes = goes.replace('model, opt = amp.initialize(model, opt, opt_level="O1")', "scaler = torch.amp.GradScaler()")
    goes = goes.replace("scaled.backward()", "scaler.scale(model(x).sum()).backward()").replace(
        "opt.step()", "scaler.step(opt)"
    )
    before = {"shared.py": shared.format(region="with nothing():"), "stays.py": stays, "goes.py": stays}
    region = "with nothing(), torch.autocast('cuda', dtype=torch.float16):"
    found = doubts_of(before, {"shared.py": shared.format(region=region), "goes.py": goes})
    assert not [d for d in found if d.code == "AMP531" and d.path == "shared.py"]


def test_not_one_that_is_not_seen_to_be_made() -> None:
    """Who calls `evaluate` here hands over the model that Apex was given, for all that is known."""
    shared = {"made": "model = Net(4, 4)", "usual": "O2", "then": "args.task.run(evaluate, model)"}
    before = SCRIPT.format(
        imports="from apex import amp",
        eval_region="with nothing():",
        set_up="model, opt = amp.initialize(model, opt, opt_level=args.opt_level)",
        region="with nothing():",
        step="with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n            opt.step()",
        **shared,
    )
    after = SCRIPT.format(
        imports="",
        eval_region=ON.replace("with ", "with nothing(), "),
        set_up='scaler = torch.amp.GradScaler("cuda", enabled=args.opt_level != "O0")',
        region=ON.replace("with ", "with nothing(), "),
        step="scaler.scale(loss).backward()\n            scaler.step(opt)\n            scaler.update()",
        **shared,
    )
    assert not [d for d in doubts(before, after) if d.code == "AMP531" and "under autocast now" in d.message]


PROBE = """
    import torch
    {imports}

    class Probe(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(4, 4)

        def forward(self, x):
            {own}
                return self.head(x)

    def test(model, data):
        model.eval()
        for x in data:
            print(model(x))

    def main(config):
        net = torch.nn.Linear(4, 4)
        opt = torch.optim.SGD(net.parameters(), 0.1)
        {set_up}
        for x in data:
            with nothing(){region}:
                loss = net(x).sum()
            {step}
        test(Probe(), data)

    main(load())
"""


@pytest.mark.parametrize(
    ("own", "said"),
    [("if True:", ["look"]), ("with torch.autocast('cuda', enabled=self.training):", [])],
    ids=["plain", "with a region of its own"],
)
def test_another_network_where_the_level_is_only_known_at_run_time(own: str, said: list[str]) -> None:
    before = PROBE.format(
        imports="from apex import amp",
        own=own,
        set_up="net, opt = amp.initialize(net, opt, opt_level=config.level)",
        region="",
        step="with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n            opt.step()",
    )
    after = PROBE.format(
        imports="",
        own=own,
        set_up='scaler = torch.amp.GradScaler("cuda", enabled=config.level != "O0")',
        region=', torch.autocast("cuda", dtype=torch.float16, enabled=config.level != "O0")',
        step="scaler.scale(loss).backward()\n            scaler.step(opt)\n            scaler.update()",
    )
    found = [d for d in doubts(before, after) if d.code == "AMP531"]
    assert [d.verdict for d in found] == said
    assert all(d.message.startswith("where the opt level asked for is O1: model ran in half") for d in found)


HOLDING = """
    import torch
    {imports}

    class Net(torch.nn.Linear):
        pass

    class Trainer:
        def __init__(self, model):
            self.model = model

        def train(self, data):
            opt = torch.optim.SGD(self.model.parameters(), 0.1)
            {set_up}
            for x in data:
                {region}
                    loss = self.model(x).sum()
                {step}

    class Task:
        def __init__(self):
            self.trainer = Trainer(Net(4, 4))

        def train(self):
            self.trainer.train(data)

        def run(self):
            for x in data:
                {eval_region}
                    print(self.trainer.model(x))

    def main(args):
        task = Task()
        {body}

    main(parse())
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("if args.train:\n    task.train()\ntask.run()", ["refuse"]),
        ("task.run()\ntask.train()", ["refuse"]),
        ("task.train()\ntask.run()", []),
        ("if args.train:\n    task.train()\n    task.run()", []),
    ],
    ids=["not in each run", "too late", "always before", "in those only"],
)
def test_an_attribute_that_the_method_of_a_held_object_assigns(body: str, said: list[str]) -> None:
    """`task.train()` runs `self.trainer.train()`, whatever else has a method of that name."""
    inner = program(body).rstrip("\n").replace("\n", "\n        ")
    before = HOLDING.format(
        imports="from apex import amp",
        set_up='self.model, opt = amp.initialize(self.model, opt, opt_level="O1")',
        region="with nothing():",
        eval_region="with nothing():",
        step="with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n                opt.step()",
        body=inner,
    )
    after = HOLDING.format(
        imports="",
        set_up='self.scaler = torch.amp.GradScaler("cuda")',
        region='with nothing(), torch.autocast("cuda", dtype=torch.float16):',
        eval_region='with nothing(), torch.autocast("cuda", dtype=torch.float16, enabled=self.trainer.scaler.is_enabled()):',
        step="self.scaler.scale(loss).backward()\n                self.scaler.step(opt)\n                self.scaler.update()",
        body=inner,
    )
    found = doubts(before, after)
    assert [v for _, v in told(found, "AMP131")] == said


@pytest.mark.parametrize("usual", ["O1", "O2"])
def test_one_that_an_option_loads_anew_may_be_another(usual: str) -> None:
    assert script("if best:\n            model = Net(4, 4)\n        evaluate(model, data)", usual) == [("look", "anew")]
    assert script("if best:\n            model = model.cuda()\n        evaluate(model, data)", usual) == []
    wrapped = "model = torch.nn.DataParallel(model).cuda()"
    assert script(f"if best:\n            {wrapped}\n        evaluate(model, data)", usual) == []
    assert script("tested = model.cuda()\n        evaluate(tested.to(device), data)", usual) == []
    assert script("model = getattr(kept, args.name)\n        evaluate(model, data)", usual) == []


def test_a_part_of_one_that_is_made_anew() -> None:
    part = ON.replace("with ", "with nothing(), ")
    whole = SCRIPT.replace("print(model(x))", "print(model.roberta(x))")
    values = {"usual": "O1", "made": "model = Net(4, 4)", "then": RELOADED}
    before = whole.format(
        imports="from apex import amp",
        eval_region="if True:",
        set_up="model, opt = amp.initialize(model, opt, opt_level=args.opt_level)",
        region="if True:",
        step="with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n            opt.step()",
        **values,
    )
    after = whole.format(
        imports="",
        eval_region=part,
        set_up='scaler = torch.amp.GradScaler("cuda", enabled=args.opt_level != "O0")',
        region=ON,
        step="scaler.scale(loss).backward()\n            scaler.step(opt)\n            scaler.update()",
        **values,
    )
    (doubt,) = [d for d in doubts(before, after) if d.code == "AMP531"]
    assert (doubt.line, doubt.verdict) == (16, "look")
    assert doubt.message.startswith("model.roberta runs what is made anew")


TESTED = """
    import argparse
    import torch
    {imports}

    parser = argparse.ArgumentParser()
    parser.add_argument("--opt-level", default="O1")
    args = parser.parse_args()

    def test(data):
        model = {made}
        model.eval()
        for x in data:
            {eval_region}
                print(model(x))

    def train(model, data):
        opt = torch.optim.SGD(model.parameters(), 0.1)
        {set_up}
        for x in data:
            {region}
                loss = model(x).sum()
            {step}

    net = build()
    train(net, data)
    test(data)
"""


@pytest.mark.parametrize(("made", "told"), [("load(args)", True), ("net", False)])
def test_one_that_is_made_where_it_runs_is_not_what_another_function_calls_so(made: str, told: bool) -> None:
    before = TESTED.format(
        imports="from apex import amp",
        made=made,
        eval_region="if True:",
        set_up="model, opt = amp.initialize(model, opt, opt_level=args.opt_level)",
        region="if True:",
        step="with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n            opt.step()",
    )
    after = TESTED.format(
        imports="",
        made=made,
        eval_region=ON,
        set_up='scaler = torch.amp.GradScaler("cuda", enabled=args.opt_level != "O0")',
        region=ON,
        step="scaler.scale(loss).backward()\n            scaler.step(opt)\n            scaler.update()",
    )
    found = [d for d in doubts(before, after) if d.code == "AMP531"]
    assert [(d.line, d.verdict) for d in found] == ([(14, "look")] if told else [])
