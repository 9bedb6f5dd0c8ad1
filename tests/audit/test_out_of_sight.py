"""Models and functions that a registry, a library or a value kept somewhere stands for: AMP535."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts, doubts_of

HEAD = """
import torch
import torch.nn.functional as F
from apex import amp
"""
TAIL = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
INIT
for x, y in loader:
    REGIONout = model(x)
    REST
"""
REGION = 'with torch.autocast("cuda", dtype=torch.float16):\n        '


def found(program: str, rest: str = "pass", level: str = "O1") -> list[Doubt]:
    """The doubts of a migration of a program that makes a model."""
    whole = HEAD + program + TAIL.replace("REST", rest)
    init = f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")'
    before = whole.replace("INIT", init).replace("REGION", "")
    after = whole.replace("from apex import amp\n", "").replace("INIT", "scaler = torch.amp.GradScaler()")
    return [d for d in doubts(before, after.replace("REGION", REGION)) if d.code == "AMP535"]


NET = """
class Net(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.head = MAKE

    def forward(self, x):
        out = self.head(x)
        self.seen = out.detach().cpu().numpy()
        return out

model = library.wrap(Net(args.name)).cuda()
"""
LINEAR = """
DECORATOR
class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.one(x)
"""


@pytest.mark.parametrize(
    ("registry", "decorator", "after", "make"),
    [
        ("HEADS = library.Registry()", "@HEADS.register", "", "HEADS[name]()"),
        ("HEADS = library.Registry()", '@HEADS.register("linear")', "", "HEADS.get(name)()"),
        ("HEADS = library.Registry()", "@HEADS.register_module()", "", "HEADS[name]()"),
        ("HEADS = library.Registry()", "", 'HEADS.register("linear", Linear)', "HEADS[name]()"),
        ("HEADS = {}", "", 'HEADS["linear"] = Linear', "HEADS[name]()"),
        ("", "", 'HEADS = {"linear": Linear}', "HEADS[name]()"),
        (
            "HEADS = {}\ndef head(name):\n    def put(cls):\n        HEADS[name] = cls\n        return cls\n    return put",
            '@head("linear")',
            "",
            "HEADS[name]()",
        ),
    ],
)
def test_a_part_that_is_looked_up(registry: str, decorator: str, after: str, make: str) -> None:
    program = f"{registry}\n{LINEAR.replace('DECORATOR', decorator)}\n{after}\n{NET.replace('MAKE', make)}"
    (doubt,) = found(program)
    assert "NumPy gets a float16 array" in doubt.message
    assert not found(
        program, level="O2"
    )  # the outputs were float32 and .cpu() was torch's own: half in the model as now


def test_a_lookup_in_a_container_that_holds_something_else() -> None:
    norm = LINEAR.replace("DECORATOR", "@HEADS.register").replace("Linear(4, 4)", "LayerNorm(4)")
    assert not found("HEADS = library.Registry()\n" + norm + NET.replace("MAKE", "HEADS[name]()"))


def test_a_layer_with_a_forward_of_its_own() -> None:
    layer = """
class Linear(torch.nn.Linear):
    def forward(self, x):
        if x.numel() > 0:
            return super().forward(x)
        return library.empty(x)
"""
    (doubt,) = found(layer + NET.replace("MAKE", "Linear(4, 4)"))
    assert "NumPy gets a float16 array" in doubt.message


MODEL = "model = library.make(args.name).cuda()\n"


@pytest.mark.parametrize(
    "rest",
    [
        "library.peaks(out, 0.1)",
        "transform(out)",
        "holder.transform([o for o in out])",
        "refine(out[:, :4], 0.5)",
    ],
)
def test_what_gets_halves_and_is_out_of_sight(rest: str) -> None:
    program = "transform = library.get_transform()\nfrom detection import refine\nimport library\n" + MODEL
    (doubt,) = found(program, rest)
    assert doubt.verdict == "review"
    assert "out of sight" in doubt.message
    assert "float16" in doubt.message
    assert rest.partition("(")[0] in doubt.message


@pytest.mark.parametrize(
    "rest",
    [
        "library.peaks(out.float(), 0.1)",
        "library.peaks(out.argmax(1), 0.1)",
        "library.peaks(x, 0.1)",
        "xm.mesh_reduce('outputs', out, torch.cat)",  # on a TPU, where Apex never ran
        "cv2.imwrite(args.path, out)",  # takes arrays alone: a tensor would have raised
        "imageio.mimsave(args.path, [out], fps=15)",
        'print("{}".format(out))',
        "Batch(out, y)",
        "writer.add_image('out', out)",
        "y.expand_as(out)",
    ],
)
def test_what_gets_no_halves_or_computes_nothing(rest: str) -> None:
    program = (
        "from collections import namedtuple\nimport cv2\nimport imageio\nimport torch_xla.core.xla_model as xm\nimport library\n"
        "Batch = namedtuple('Batch', 'out y')\n" + MODEL
    )
    assert not found(program, rest)


def test_a_value_that_is_half_on_one_way_only() -> None:
    net = LINEAR.replace("DECORATOR", "").replace(
        "return self.one(x)",
        "out = self.one(x)\n        if x.numel():\n            out = library.smooth(x)\n        return out",
    )
    (doubt,) = found(net + "model = Linear().cuda()\n", "probability = F.softmax(out, dim=1)")
    assert "may be float16" in doubt.message


def test_the_name_of_a_loop_is_bound_anew_each_time() -> None:
    net = LINEAR.replace("DECORATOR", "") + "model = Linear().cuda()\n"
    rest = "x = out"  # of no batch but this one
    program = HEAD + net + TAIL.replace("    REGION", "    x = F.interpolate(x)\n    REGION").replace("REST", rest)
    init = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    before = program.replace("INIT", init).replace("REGION", "")
    after = program.replace("from apex import amp\n", "").replace("INIT", "").replace("REGION", REGION)
    assert not [d for d in doubts(before, after) if d.code == "AMP535"]


def test_two_programs_that_make_their_models_by_one_function() -> None:
    shared = "import torch\n\ndef make():\n    return torch.nn.Linear(4, 4).cuda()\n"
    own = """
import torch
from shared import make
model = make()
scaler = SCALER
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(x)
    loss = torch.norm(out)
"""
    apex = "from shared import make\n" + HEAD + "model = make()\n" + TAIL.replace("REST", "pass")
    before = apex.replace("INIT", 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")')
    after = apex.replace("from apex import amp\n", "").replace("INIT", "")
    texts = (
        {
            "shared.py": shared,
            "own.py": own.replace("SCALER", "torch.cuda.amp.GradScaler()"),
            "apex_train.py": before.replace("REGION", ""),
        },
        {"own.py": own.replace("SCALER", "torch.amp.GradScaler()"), "apex_train.py": after.replace("REGION", REGION)},
    )
    assert not [d for d in doubts_of(*texts) if d.code == "AMP535" and d.path == "own.py"]


def test_what_an_extension_gets_in_the_region() -> None:
    program = "import library\n" + MODEL + "criterion = library.CTCLoss()\n"
    whole = (
        HEAD
        + program
        + TAIL.replace("REST", "pass").replace("model(x)\n", "model(x)\n        loss = criterion(out, y)\n")
    )
    init = 'model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")'
    after = whole.replace("from apex import amp\n", "").replace("INIT", "scaler = torch.amp.GradScaler()")
    after = after.replace("REGION", REGION)
    before = whole.replace("INIT", init).replace("REGION", "").replace("        loss =", "    loss =")
    told = [d for d in doubts(before.replace("LEVEL", "O2"), after) if d.code == "AMP535"]
    assert [(d.verdict, "criterion is out of sight" in d.message) for d in told] == [("look", True)]
    assert not [d for d in doubts(before.replace("LEVEL", "O1"), after) if d.code == "AMP535"]


HOOKED = """
import argparse
import torch
from apex import amp
from engines import Engine, Hook, create_supervised_evaluator

args = argparse.ArgumentParser().parse_args()

class Validate(Hook):
    def __init__(self, model):
        self.model = model

    def on_epoch(self):
        create_supervised_evaluator(self.model)

def run(loader):
    model = torch.nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    EARLY
    INIT
    trainer = Engine()

    DECORATOR
    def validate(engine):
        EVALUATE

    LATE
    for x in loader:
        REGIONloss = model(x).sum()
        loss.backward()
        optimizer.step()

run(loader)
"""
INIT = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'


def hooked(early: str = "", late: str = "", decorator: str = "", evaluate: str = "pass") -> list[Doubt]:
    text = HOOKED.replace("EARLY", early).replace("DECORATOR", decorator).replace("EVALUATE", evaluate)
    before = text.replace("LATE", late).replace("INIT", INIT).replace("REGION", "")
    after = text.replace("LATE", late).replace("from apex import amp\n", "").replace("INIT", "scaler = None")
    found = doubts(before, after.replace("REGION", 'with torch.autocast("cuda"):\n            '))
    return [d for d in found if d.code == "AMP531"]


@pytest.mark.parametrize("decorator", ['@trainer.on("epoch")', "@trainer.on_epoch", "@trainer.hooks[0]"])
def test_a_function_that_a_decorator_hands_on(decorator: str) -> None:
    (doubt,) = hooked(decorator=decorator, evaluate="create_supervised_evaluator(model)")
    assert (doubt.line, "out of sight" in doubt.message) == (24, True)
    (doubt,) = hooked(decorator=decorator, evaluate="print(model(x))")  # no code out of sight, but the model itself
    assert (doubt.line, "ran in half precision" in doubt.message) == (24, True)
    assert not hooked(evaluate="create_supervised_evaluator(model)")  # nobody has it


@pytest.mark.parametrize("assigned", ["trainer = Engine()", "import trainer"])
def test_a_function_of_a_file_that_an_object_takes(assigned: str) -> None:
    """Only an object of the file is seen to take it there and then: what is imported may be a wrapper of any kind."""
    text = (
        HEAD + f"from engines import Engine, create_supervised_evaluator\nmodel = torch.nn.Linear(4, 1).cuda()\n{TAIL}"
    )
    hook = f"{assigned}\n\n@trainer.on('epoch')\ndef validate(engine):\n    create_supervised_evaluator(model)\n"
    before = text.replace("INIT", INIT).replace("REGION", "").replace("REST", "pass") + hook
    after = text.replace("from apex import amp\n", "").replace("INIT", "scaler = None").replace("REST", "pass") + hook
    found = [d for d in doubts(before, after.replace("REGION", REGION)) if d.code == "AMP531"]
    assert len(found) == (assigned != "import trainer")


def test_an_object_whose_methods_a_library_runs() -> None:
    (doubt,) = hooked(late="trainer.add(Validate(model))")
    assert doubt.line == 13
    local = "class Local(Hook):\n        def on_epoch(self):\n            create_supervised_evaluator(model)\n    "
    assert [d.line for d in hooked(late=local + "trainer.add(Local())")] == [28]
    assert not hooked(late=local)  # none is made
    assert not hooked(early="Engine().add(Validate(model)).run()")  # before the set-up: it may have run by then


def test_objects_that_make_objects_of_their_own_class() -> None:
    twin = (
        "class Local(Hook):\n        def on_epoch(self):\n            create_supervised_evaluator(model)\n\n"
        "        def again(self):\n            return Local()\n    "
    )
    assert [d.line for d in hooked(late=twin + "trainer.add(Local())")] == [28]
    assert not hooked(late=twin)


@pytest.mark.parametrize("name", ["std_mean", "var_mean"])
def test_a_reduction_that_gives_two_values(name: str) -> None:
    model = "model = torch.nn.Linear(4, 4).cuda()\n"
    (doubt,) = found(model, rest=f"spread, middle = torch.{name}(out)", level="O2")
    assert f"torch.{name}(out)" in doubt.message
    assert not found(model, rest=f"spread, middle = torch.{name}(out.float())", level="O2")
