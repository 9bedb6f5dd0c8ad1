"""Which forwards run in half in which process: several scripts, many flags, methods, networks of which Apex was not told."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts, doubts_of

TRAINER = """
import argparse
import torch
from apex import amp
from net import Net

parser = argparse.ArgumentParser()
parser.add_argument("--level", default="USUAL", choices=["O1", "O2"])
args = parser.parse_args()

def evaluate(model, loader):
    with torch.no_grad():
        return [model(x).argmax(1) for x in loader]

def train(args, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level=LEVEL)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()

def main(args):
    model = Net()
    GUARD
    if args.do_train:
        train(args, model, loader)
    if args.do_eval:
        print(evaluate(model, loader))

if __name__ == "__main__":
    main(args)
"""
NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x)

    def train_step(self, batch):
        return self.forward(batch)

    def eval_step(self, batch):
        return self.train_step(batch)
"""
REGION = 'torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16)'


def migrated(text: str) -> str:
    """A trainer as it would be migrated, evaluation with it."""
    lines = text.replace("from apex import amp\n", "").splitlines()
    found = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        if "amp.initialize" in line or "optimizer.step()" in line or "amp.scale_loss" in line:
            continue
        if line.strip() == "if args.fp16:":
            found.append(f"{indent}scaler = torch.amp.GradScaler(enabled=args.fp16)")
        elif "scaled.backward()" in line:
            outer = indent[:-4]
            found += [
                f"{outer}scaler.scale(loss).backward()",
                f"{outer}scaler.step(optimizer)",
                f"{outer}scaler.update()",
            ]
        elif "cross_entropy(" in line:
            found += [f"{indent}with {REGION}:", f"    {line}"]
        elif line.strip() == "with torch.no_grad():":
            found.append(f"{indent}with torch.no_grad(), {REGION}:")
        else:
            found.append(line)
    return "\n".join(found) + "\n"


def trainer(level: str = '"O1"', guard: str = "pass", usual: str = "O1") -> str:
    return TRAINER.replace("LEVEL", level).replace("GUARD", guard).replace("USUAL", usual)


def found(before: dict[str, str], after: dict[str, str] | None = None) -> list[Doubt]:
    after = {p: migrated(t) for p, t in before.items() if "amp.init" in t} if after is None else after
    return [d for d in doubts_of({"net.py": NET, **before}, after) if d.code == "AMP531"]


def test_evaluation_alone_never_came_by_the_set_up() -> None:
    (doubt,) = found({"run.py": trainer()})
    assert "not do_train" in doubt.message
    assert "runs under autocast now" in doubt.message


def test_many_flags_do_not_hide_it() -> None:
    flags = " and ".join(f"args.flag{i}" for i in range(6))
    guard = f"if {flags}:\n        raise ValueError\n    if args.a and args.b and not args.c:\n        return"
    (doubt,) = found({"run.py": trainer(guard=guard)})
    assert "not do_train" in doubt.message


def test_another_script_that_a_comment_names_sets_up_nothing_here() -> None:
    other = "# a copy of run.py\n" + trainer()
    assert [d.path for d in found({"run.py": trainer() + "\n# see other.py\n", "other.py": other})] == [
        "other.py",
        "run.py",
    ]


def test_what_a_file_does_as_a_script_only_is_not_done_by_who_imports_it() -> None:
    other = "from run import evaluate as run_evaluate\n" + trainer()
    assert "other.py" in [d.path for d in found({"run.py": trainer(), "other.py": other})]


def test_a_step_of_the_model_that_goes_by_other_steps() -> None:
    text = trainer().replace("model(x).argmax(1)", "model.eval_step(x)")
    after = migrated(text).replace(f"with torch.no_grad(), {REGION}:", "with torch.no_grad():")
    (doubt,) = found({"run.py": text}, {"run.py": after})
    assert "model.eval_step ran in half precision" in doubt.message


def test_a_parameter_that_is_none_needs_no_condition() -> None:
    text = trainer().replace("def evaluate(model, loader):", "def evaluate(model, loader, limit=None):")
    text = text.replace(
        "    with torch.no_grad():", "    if limit is None:\n        limit = 5\n    with torch.no_grad():"
    )
    (doubt,) = found({"run.py": text})
    assert "None is None" not in doubt.message


TEACHER = """
    teacher = Net()
    teacher.load_state_dict(torch.load("teacher.pt"))
"""


def with_teacher(level: str, usual: str = "O1") -> str:
    text = trainer(level, usual=usual).replace(
        "def train(args, model, loader):\n", "def train(args, model, loader):" + TEACHER
    )
    return text.replace("cross_entropy(model(x), y)", "cross_entropy(model(x) + teacher(x), y)")


def test_o1_ran_networks_that_it_was_not_given_too() -> None:
    text = with_teacher('"O1"').replace("[model(x).argmax", "[args.flow(model(x)).argmax")
    text = text.replace(
        "    model = Net()\n", "    model = Net()\n    args.flow = Net()\n    args.flow.eval()\n"
    ).replace("if args.do_train:", "if True:")
    after = migrated(text).replace(f"with torch.no_grad(), {REGION}:", "with torch.no_grad():")
    names = sorted(d.message.split()[0] for d in found({"run.py": text}, {"run.py": after}))
    assert names == ["args.flow", "model"]
    assert not found({"run.py": text})


@pytest.mark.parametrize(("level", "usual"), [('"O2"', "O1"), ('"O3"', "O1"), ("args.level", "O2")])
def test_o2_left_them_in_float32(level: str, usual: str) -> None:
    messages = [d.message for d in found({"run.py": with_teacher(level, usual)})]
    assert [m.split()[0] for m in messages if "was not given" in m] == ["teacher"]


def test_o1_did_not() -> None:
    assert not [d for d in found({"run.py": with_teacher('"O1"')}) if "was not given" in d.message]


def test_a_level_that_is_asked_for_at_run_time_may_be_o2() -> None:
    (doubt,) = [d for d in found({"run.py": with_teacher("args.level")}) if "was not given" in d.message]
    assert doubt.verdict == "look"
    assert "where they are asked for" in doubt.message


def test_each_script_has_its_own_level() -> None:
    messages = [
        d.path for d in found({"run.py": with_teacher('"O2"'), "other.py": trainer()}) if "was not given" in d.message
    ]
    assert messages == ["run.py"]


def test_a_network_that_a_method_of_the_model_is_handed() -> None:
    text = with_teacher('"O2"').replace(
        "cross_entropy(model(x) + teacher(x), y)", "cross_entropy(model.generate(x, guide=teacher), y)"
    )
    assert [d.message.split()[0] for d in found({"run.py": text}) if "was not given" in d.message] == ["teacher"]


def test_a_validation_that_is_handed_on_runs_the_trained_model() -> None:
    text = trainer('"O2"').replace("def evaluate(model, loader):\n", "def evaluate(model, loader):\n    model.eval()\n")
    text = text.replace("print(evaluate(model, loader))", "pass").replace(
        "    if args.do_train:", "    hook = Monitor(evaluate)\n    if args.do_train:"
    )
    after = migrated(text).replace(f"with torch.no_grad(), {REGION}:", "with torch.no_grad():")
    (doubt,) = found({"run.py": text}, {"run.py": after})
    assert "ran in half precision" in doubt.message


def test_a_level_that_is_no_o1_says_nothing_of_other_networks() -> None:
    for level, count in (("'O' + str(args.n)", 0), ("args.level", 1)):
        text = with_teacher(level).replace("cross_entropy(model(x) + teacher(x), y)", "cross_entropy(model(x), y)")
        text = text.replace("        loss =", "        flow = teacher(x)\n        loss =")
        messages = [d.message for d in found({"run.py": text}) if d.message.startswith("teacher")]
        assert len(messages) == count


VIEW = """
import torch
from config import args
from net import Net

class Viewer:
    def __init__(self):
        self.model = Net()

    def show(self, image):
        with torch.no_grad()REGION:
            return self.model(image).argmax(1)
"""
CONFIG = "class args:\n    fp16 = True\n"


@pytest.mark.parametrize(
    "starter", ["", "from view import Viewer\n\ndef page(request):\n    return Viewer().show(request)\n"]
)
def test_a_program_that_no_set_up_is_part_of_gains_half(starter: str) -> None:
    before = {"run.py": trainer(), "view.py": VIEW.replace("REGION", ""), "config.py": CONFIG}
    if starter:
        before["web.py"] = starter
    after = {"run.py": migrated(trainer()), "view.py": VIEW.replace("REGION", f", {REGION}")}
    told = [d for d in found(before, after) if d.path == "view.py"]
    assert [d.verdict for d in told] == ["review"]
    assert "no amp.initialize is in sight" in told[0].message
    assert not told[0].told_by  # the note that a region was written does not say that none ought to be there
    assert "fp16" in told[0].message


@pytest.mark.parametrize(("first", "told"), [("False", False), ("True", True)])
def test_a_region_that_asks_a_scaler_which_is_off_until_a_set_up_gains_nothing(first: str, told: bool) -> None:
    scaler = "torch.amp.GradScaler(enabled=args.fp16)"
    run = (
        migrated(trainer())
        .replace("def evaluate", f"scaler = torch.amp.GradScaler(enabled={first})\n\ndef evaluate")
        .replace(f"    scaler = {scaler}", f"    global scaler\n    scaler = {scaler}")
    )
    view = VIEW.replace("from config import args", "import run")
    before = {"run.py": trainer(), "view.py": view.replace("import run\n", "").replace("REGION", "")}
    region = ', torch.autocast("cuda", dtype=torch.float16, enabled=run.scaler.is_enabled() and VIEWED)'
    after = {"run.py": run, "view.py": view.replace("REGION", region)}
    found_here = [d for d in found(before, after) if d.path == "view.py" and "in sight" in d.message]
    assert bool(found_here) == told


def test_a_class_of_a_program_with_a_set_up_is_part_of_it() -> None:
    view = VIEW.replace("from config import args\n", "")
    run = (
        trainer()
        .replace("from net import Net", "from net import Net\nfrom view import Viewer")
        .replace("    if args.do_eval:", "    Viewer().show(loader)\n    if args.do_eval:")
    )
    before = {"run.py": run, "view.py": view.replace("REGION", "")}
    region = ', torch.autocast("cuda", dtype=torch.float16)'
    after = {"run.py": migrated(run), "view.py": view.replace("REGION", region)}
    assert not [d for d in found(before, after) if d.path == "view.py" and "in sight" in d.message]


RECORD = """
import attr
import torch
from apex import amp
from net import Net

@attr.s(auto_attribs=True)
class State:
    epoch: int
    model: torch.nn.Module
    optimizer: object = None

class Trainer:
    def __init__(self, args):
        self.args = args
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
        self.state = STATE

    def __call__(self, loader):
        for x, y in loader:
            self.evaluate(x)

    def evaluate(self, x):
        self.state.model.eval()
        return self.state.model(x)

if __name__ == "__main__":
    Trainer(parse())(load())
"""


@pytest.mark.parametrize("state", ["State(0, model=model, optimizer=optimizer)", "State(0, model)"])
def test_a_model_in_a_field_that_the_constructor_is_made_from(state: str) -> None:
    before = RECORD.replace("STATE", state)
    after = before.replace("from apex import amp\n", "").replace(
        "        if args.fp16:\n            model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)\n",
        "        self.scaler = torch.amp.GradScaler(enabled=args.fp16 and args.level != 'O0')\n",
    )
    (doubt,) = found({"run.py": before}, {"run.py": after})
    assert "self.state.model ran in half precision under Apex where fp16" in doubt.message
    region = "with torch.autocast('cuda', dtype=torch.float16, enabled=self.scaler.is_enabled()):\n            "
    assert not found({"run.py": before}, {"run.py": after.replace("return self.", f"{region}return self.")})


TESTER = """
import torch
from apex import amp
from net import Net

class Trainer:
    def train(self, args, loader):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level=LEVEL)
        for x, y in loader:
            REGIONloss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()

    def test(self, args, loader):
        model = Net()
        model.load_state_dict(torch.load(args.path))
        model.eval()
        return [model(x) for x in loader]
"""
STARTER = """
import library
import trainers

def main(args):
    trainer = getattr(trainers, args.task)()
    trainer.train(args, load())
    trainer.test(args, load())

if __name__ == "__main__":
    main(library.parse())
"""


@pytest.mark.parametrize("starter", ["", STARTER])
def test_that_it_comes_after_the_set_up_is_not_seen(starter: str) -> None:
    before = {"trainers.py": TESTER.replace("LEVEL", '"O1"').replace("REGION", "")}
    after = TESTER.replace("from apex import amp\n", "").replace(
        "model, optimizer = amp.initialize(model, optimizer, opt_level=LEVEL)", "scaler = torch.amp.GradScaler()"
    )
    after = after.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16):\n                ')
    if starter:
        before["run.py"] = starter
    (doubt,) = found(before, {"trainers.py": after})
    assert doubt.verdict == "look"
    assert "is not seen" in doubt.message
    before["trainers.py"] = TESTER.replace("LEVEL", '"O2"').replace("REGION", "")
    assert not found(before, {"trainers.py": after})  # that model was not given to initialize: float32 in both


def test_a_level_that_the_option_rules_out_is_no_case() -> None:
    text = trainer(level="args.level", usual="O1")
    after = migrated(text).replace("enabled=args.fp16", "enabled=args.fp16 and args.level != 'O0'")
    (doubt,) = found({"run.py": text}, {"run.py": after})
    assert "is 'O0'" not in doubt.message.replace("not level is 'O0'", "")


PARTS = """
import torch
from apex import amp

class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.text = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.text(x)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)

    def get_scores(self, x):
        return self.inner.text(x)

    def get_width(self):
        return 2

def main(args):
    model = Net()
    model = amp.initialize(model, opt_level="O2", enabled=args.fp16)
    width = model.get_width()
    for x in load():
        CALL

if __name__ == "__main__":
    main(parse())
"""


@pytest.mark.parametrize("call", ["print(model.get_scores(x))", "print(model.inner(x))"])
def test_a_getter_that_computes_and_a_part_of_the_model(call: str) -> None:
    before = PARTS.replace("CALL", call)
    after = before.replace("from apex import amp\n", "").replace(
        '    model = amp.initialize(model, opt_level="O2", enabled=args.fp16)\n', ""
    )
    (doubt,) = found({"run.py": before}, {"run.py": after})
    assert "ran in half precision under Apex where fp16" in doubt.message
    region = f"with {REGION}:\n            {call}"
    assert not found({"run.py": before}, {"run.py": after.replace(call, region)})


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("model.inner.table(x)", False),
        ("model.inner.text(x)", True),
        ("table = model.inner.table\n        print(table(x))", False),
        ("embeddings = model.inner.bert.word_embeddings\n        print(embeddings(input_ids))", False),
        ("projection = model.inner.bert.word_projection\n        print(projection(input_ids))", True),
        ("embeddings = model.inner.bert.word_embeddings\n        print(embeddings(images))", True),
    ],
)
def test_an_embedding_never_ran_in_half_for_its_own_sake(call: str, told: bool) -> None:
    before = PARTS.replace("CALL", call).replace('"O2"', '"O1"')
    fields = "        self.table = torch.nn.Embedding(2, 2)\n        self.bert = libs.Bert()\n        self.text ="
    before = before.replace("        self.text =", fields, 1)
    before = before.replace("import torch\n", "import torch\nimport libs\n", 1)
    after = before.replace("from apex import amp\n", "").replace(
        '    model = amp.initialize(model, opt_level="O1", enabled=args.fp16)\n', ""
    )
    assert bool(found({"run.py": before}, {"run.py": after})) is told


ANEW = """
import torch
from apex import amp
from net import Net

def evaluate(model):
    model.eval()
    return [model(x) for x in load()]

def main(args):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL", enabled=args.fp16)
    for x, y in load():
        loss = torch.nn.functional.cross_entropy(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
    AGAIN
    evaluate(model)

if __name__ == "__main__":
    main(parse())
"""
NATIVE = """
import torch
from net import Net

def evaluate(model):
    model.eval()
    with torch.autocast("cuda", dtype=torch.float16, enabled=ARGS):
        return [model(x) for x in load()]

def main(args):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(enabled=args.fp16)
    for x, y in load():
        with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    AGAIN
    evaluate(model)

if __name__ == "__main__":
    main(parse())
"""


@pytest.mark.parametrize(
    ("again", "told"),
    [
        ("model = Net()\n    model.load_state_dict(torch.load(args.best))", True),
        ("if args.best:\n        model = Net()\n    else:\n        model = Net().cuda()", True),
        ("model.load_state_dict(torch.load(args.best))", False),
        ("best = Net()", False),
    ],
)
def test_a_model_that_is_loaded_anew_was_not_given_to_the_set_up(again: str, told: bool) -> None:
    before = {"run.py": ANEW.replace("AGAIN", again).replace("evaluate(model)", "evaluate(model, args)")}
    after = (
        NATIVE.replace("AGAIN", again).replace("evaluate(model)", "evaluate(model, args)").replace("ARGS", "args.fp16")
    )
    doubted = found({"run.py": before["run.py"].replace("LEVEL", "O2")}, {"run.py": after})
    assert [d for d in doubted if "runs under autocast now" in d.message] == (doubted if told else [])
    assert bool(doubted) is told
    assert not found({"run.py": before["run.py"].replace("LEVEL", "O1")}, {"run.py": after})  # the process was patched


def test_a_model_that_an_option_loads_anew_may_be_another() -> None:
    again = "if args.best:\n        model = Net()"
    after = {"run.py": NATIVE.replace("AGAIN", again).replace("ARGS", "args.fp16")}
    (doubt,) = found({"run.py": ANEW.replace("AGAIN", again).replace("LEVEL", "O2")}, after)
    assert doubt.verdict == "look"
    assert doubt.message.startswith("model may run what is made anew after amp.initialize")
    assert "asked for" not in doubt.message
    assert not found({"run.py": ANEW.replace("AGAIN", again).replace("LEVEL", "O1")}, after)


@pytest.mark.parametrize("level", ["O2", "O3"])
def test_a_model_that_the_branch_without_a_set_up_makes_is_not_made_anew(level: str) -> None:
    made = """    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
    own = "\n".join(f"    {line}" for line in made.splitlines())
    set_up = f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}", enabled=args.fp16)'
    old = "    " + set_up.replace(level, "LEVEL")
    before = ANEW.replace(
        made + old, f"    if args.cpu:\n{own}\n    else:\n{own.replace('Net()', 'Net().cuda()')}\n        {set_up}"
    )
    after = NATIVE.replace(made, f"    if args.cpu:\n{own}\n    else:\n{own.replace('Net()', 'Net().cuda()')}\n")
    assert set_up in before
    after = after.replace("args.fp16", "ARGS").replace("ARGS", "args.fp16 and not args.cpu")
    before, after = (
        t.replace("AGAIN", "pass").replace("evaluate(model)", "evaluate(model, args)") for t in (before, after)
    )
    assert not found({"run.py": before}, {"run.py": after})


KEPT = """
import torch
{imports}
from net import Net

class Trainer:
    def __init__(self, model, old, args):
        self.model = model
        self.old = old
        self.args = args

    def validate(self):
        model = self.model
        with {region}:
            return [(model(x), self.old(x)) for x in load()]

def main(args):
    model = Net()
    if args.first:
        old = None
    else:
        old = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {set_up}
    trainer = Trainer(model, old, args)
    trainer.validate()
    if args.best:
        model = Net()
        trainer = Trainer({again}, args)
    trainer.validate()

if __name__ == "__main__":
    main(parse())
"""
BOTH = """if old is not None:
        [model, old], optimizer = amp.initialize([model.cuda(), old.cuda()], optimizer, opt_level="O2")
    else:
        model, optimizer = amp.initialize(model.cuda(), optimizer, opt_level="O2")"""


@pytest.mark.parametrize(
    ("again", "told"), [("model, None", ["model"]), ("model, old", ["model"]), ("trainer.model, None", [])]
)
def test_of_what_objects_keep_it_is_told_what_may_be_made_anew(again: str, told: list[str]) -> None:
    before = KEPT.format(imports="from apex import amp", region="torch.no_grad()", set_up=BOTH, again=again)
    region = 'torch.no_grad(), torch.autocast("cuda", dtype=torch.float16)'
    after = KEPT.format(imports="", region=region, set_up="model.cuda()", again=again)
    doubts = found({"run.py": before}, {"run.py": after})
    assert [d.message.partition(" ")[0] for d in doubts if "made anew" in d.message] == told


COMMANDS = """
    import click
    import torch
    {imports}

    @click.group()
    def cli():
        pass

    @cli.command()
    @click.option("--level", default="O1")
    def train(level):
        cfg = config(level)
        model = torch.nn.Linear(2, 2).cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        {set_up}
        for x in load():
            {region}
                loss = model(x).sum()
            {step}
        evaluate(model, cfg)

    {decorator}
    def test(path):
        cfg = config()
        model = torch.nn.Linear(2, 2).cuda()
        {first}
        evaluate(model, cfg)

    def evaluate(model, cfg):
        {region}
            return [model(x).argmax() for x in load()]

    if __name__ == "__main__":
        {main}
"""
OLD = {
    "imports": "from apex import amp",
    "set_up": 'model, opt = amp.initialize(model, opt, opt_level=cfg.LEVEL) if cfg.LEVEL != "O0" else (model, opt)',
    "region": "if True:",
    "step": "with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n            opt.step()",
}
NEW = {
    "imports": "",
    "set_up": 'scaler = torch.amp.GradScaler("cuda", enabled=cfg.LEVEL != "O0")',
    "region": 'with torch.autocast("cuda", dtype=torch.float16, enabled=cfg.LEVEL != "O0"):',
    "step": "scaler.scale(loss).backward()\n            scaler.step(opt)\n            scaler.update()",
}


@pytest.mark.parametrize(
    ("decorator", "first", "main", "told_of"),
    [
        ('@cli.command("test")', "pass", "cli()", True),
        ("@click.command()", "pass", "cli()", True),
        ("@cli.command", "pass", "cli()", True),
        # one that trains first, and one that is not seen to be a command
        ("@cli.command()", "train.callback(path)\n        train(path)", "cli()", False),
        ("@torch.no_grad()", "pass", "cli()", False),
        # commands that run one after another
        ("@cli.command()", "pass", "click.group(chain=True)", False),
    ],
)
def test_another_command_of_the_file_never_came_by_the_set_up(
    decorator: str, first: str, main: str, told_of: bool
) -> None:
    rest = {"decorator": decorator, "first": first, "main": main}
    found = doubts(COMMANDS.format(**OLD, **rest), COMMANDS.format(**NEW, **rest))
    said = [d.message for d in found if d.code == "AMP531"]
    assert bool([m for m in said if "runs under autocast now where LEVEL is not 'O0'" in m]) is told_of


def test_a_model_that_is_wrapped_once_it_is_set_up_is_the_same() -> None:
    program = """
        import torch
        {imports}

        def main(cfg):
            model = torch.nn.Linear(2, 2).cuda()
            opt = torch.optim.SGD(model.parameters(), 0.1)
            {set_up}
            if cfg.many:
                model = torch.nn.parallel.DistributedDataParallel(model)
            {made}
            evaluate(model, cfg)

        def evaluate(model, cfg):
            {region}
                return [model(x).argmax() for x in load()]

        main(config())
    """
    set_up = {
        **OLD,
        "set_up": 'model = amp.initialize(model, enabled=cfg.fp16, opt_level="O2")',
    }
    now = {
        **NEW,
        "set_up": "pass",
        "region": 'with torch.autocast("cuda", dtype=torch.float16, enabled=cfg.fp16):',
    }
    for made, gained in (("pass", False), ("model = torch.nn.Linear(2, 2).cuda()", True)):
        found = doubts(program.format(**set_up, made=made), program.format(**now, made=made))
        assert bool([d for d in found if "runs under autocast now" in d.message]) is gained


@pytest.mark.parametrize(
    ("called", "told"),
    [('model.encode("utf-8")', False), ("model.encode()", False), ("model.encode(loader)", True)],
)
def test_a_text_that_is_encoded_is_no_network(called: str, told: bool) -> None:
    text = trainer().replace("        print(evaluate(model, loader))", "        print(digest(model))")
    text = text.replace("def main(args):", f"def digest(model):\n    return {called}\n\ndef main(args):")
    doubts = [d for d in found({"run.py": text}) if "encode" in d.message]
    assert bool(doubts) == told


def test_a_parameter_that_is_assigned_anew_is_not_told_as_the_constant_it_was_given() -> None:
    """`None is not None` would say that it never ran in half."""
    text = trainer().replace(
        "    if args.fp16:\n", "    if level is None:\n        level = args.level\n    if level is not None:\n"
    )
    text = text.replace("def train(args, model, loader):", "def train(args, model, loader, level=None):")
    after = migrated(trainer()).replace("with torch.no_grad(), " + REGION + ":", "with torch.no_grad():")
    messages = [
        d.message for d in found({"run.py": text}, {"run.py": after.replace("args.fp16", "args.level is not None")})
    ]
    assert messages
    assert not [m for m in messages if "None is" in m]


def test_a_parameter_that_is_said_to_be_a_network_is_one_whatever_is_done_to_it() -> None:
    """Three calls that are alike, of which the names of two are evaluated, moved and saved nowhere."""
    head = "def train(args, model, loader"
    for noted, told in (("torch.nn.Module", ["first", "second"]), ("Callable", [])):
        text = trainer('"O2"').replace(head, f"{head}, first: {noted}, second: {noted}")
        text = text.replace("train(args, model, loader)", "train(args, model, loader, load(1), load(2))")
        text = text.replace("cross_entropy(model(x), y)", "cross_entropy(model(x) + first(x) + second(x), y)")
        messages = [d.message for d in found({"run.py": text}) if "was not given" in d.message]
        assert [m.split()[0] for m in messages] == told
