"""The switch (AMP532), operations that autocast refuses (AMP533), weights left in half (AMP534)."""

from __future__ import annotations

import re

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts, doubts_of, told

BEFORE = """
import argparse, sys
import torch
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", OPTION)
args = parser.parse_args()
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = LOSS
if args.fp16:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
for x, y in loader:
    loss = criterion(torch.sigmoid(model(x).float()), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
AFTER = """
import argparse, sys
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", OPTION)
args = parser.parse_args()
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = LOSS
scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
        loss = criterion(torch.sigmoid(model(x).float()), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def both(option: str = 'action="store_true"', loss: str = "torch.nn.MSELoss()") -> tuple[str, str]:
    fill = {"OPTION": option, "LOSS": loss}
    before, after = BEFORE, AFTER
    for name, text in fill.items():
        before, after = before.replace(name, text), after.replace(name, text)
    return before, after


def test_a_flag_that_is_a_bool() -> None:
    assert not doubts(*both())


@pytest.mark.parametrize("keys", ["args.state", "args.state.keys()"])
def test_a_key_that_nothing_writes(keys: str) -> None:
    before, after = both()
    before += '\ntorch.save({"amp": amp.state_dict()}, "x.pt")\n'
    after = after.replace('GradScaler("cuda", enabled=args.fp16)', f'GradScaler("cuda", enabled="amp" in {keys})')
    after += '\ntorch.save({"scaler": scaler.state_dict()}, "x.pt")\n'
    assert [v for _, v in told(doubts(before, after), "AMP532")] == ["refuse"]


def test_a_scaler_without_any_region() -> None:
    before, after = both()
    after = after.replace(
        '    with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):\n        loss', "    loss"
    )
    assert [v for _, v in told(doubts(before, after), "AMP532")] == ["review"]


def test_a_scaler_of_the_programs_own_that_was_without_any_region_before() -> None:
    _, after = both()
    after = after.replace(
        '    with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):\n        loss', "    loss"
    )
    before = after.replace("import torch\n", "import torch\nfrom apex.parallel import DistributedDataParallel\n")
    before += "\nmodel = DistributedDataParallel(model)\n"
    after += "\nmodel = torch.nn.parallel.DistributedDataParallel(model)\n"
    assert not told(doubts(before, after), "AMP532")


def test_bce_in_the_region() -> None:
    found = doubts(*both(loss="torch.nn.BCELoss()"))
    assert [v for _, v in told(found, "AMP533")] == ["refuse"]


def test_bce_out_of_the_region() -> None:
    before, after = both(loss="torch.nn.BCELoss()")
    after = after.replace(
        "        loss = criterion(torch.sigmoid(model(x).float()), y)\n",
        "        out = model(x)\n    loss = criterion(torch.sigmoid(out.float()), y)\n",
    )
    assert not told(doubts(before, after), "AMP533")


def test_bce_behind_a_class_and_a_dictionary() -> None:
    cls = """
class Loss(torch.nn.Module):
    def forward(self, p, y):
        return torch.nn.functional.binary_cross_entropy(p, y)

model ="""
    before, after = (t.replace("\nmodel =", cls, 1) for t in both(loss="Loss()"))
    assert [v for _, v in told(doubts(before, after), "AMP533")] == ["refuse"]
    found = doubts(*both(loss='{"bce": torch.nn.BCELoss, "mse": torch.nn.MSELoss}[args.loss]()'))
    assert [v for _, v in told(found, "AMP533")] == ["refuse"]


KEPT = """
class Net(torch.nn.Module):
    def __init__(self, plain):
        super().__init__()
        self.body = torch.nn.Linear(2, 2)
        self.measure = MADE

    def compare(self, p, y):
        return self.measure(p, y)


class Deeper(Net):
    def forward(self, x):
        return self.compare(torch.sigmoid(self.body(x)), x)


model = Deeper(args.plain)
"""


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        ("torch.nn.BCELoss()", ["refuse"]),
        ("torch.nn.MSELoss() if plain else torch.nn.BCELoss()", ["review"]),
        ("torch.nn.MSELoss()", []),
    ],
)
def test_bce_that_a_model_keeps(made: str, verdict: list[str]) -> None:
    kept = KEPT.replace("MADE", made)
    before, after = (re.sub(r"\nmodel = .*\n", kept, t, count=1) for t in both())
    assert [v for _, v in told(doubts(before, after), "AMP533")] == verdict


LEGACY = """
import torch
from apex.fp16_utils import FP16_Optimizer

model = torch.nn.Linear(4, 2).cuda()
model.half()
optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), dynamic_loss_scale=True)
for x, y in loader:
    optimizer.backward(torch.nn.functional.mse_loss(model(x), y))
    optimizer.step()
"""
NATIVE = """
import torch

model = torch.nn.Linear(4, 2).cuda()
model.half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def test_weights_still_made_half() -> None:
    assert [v for _, v in told(doubts(LEGACY, NATIVE), "AMP534")] == ["refuse"]
    assert not told(doubts(LEGACY, NATIVE.replace("model.half()\n", "")), "AMP534")


def test_weights_made_half_when_training_is_over() -> None:
    before, after = (t.replace("model.half()\n", "") + "model.half()\n" for t in (LEGACY, NATIVE))
    assert not told(doubts(before, after), "AMP534")


def test_a_builder_that_is_asked_for_half_weights() -> None:
    before, after = (
        t.replace("torch.nn.Linear(4, 2).cuda()\nmodel.half()", "models.get_model(to_fp16=True)").replace(
            "import torch\n", "import torch\nimport models\n", 1
        )
        for t in (LEGACY, NATIVE)
    )
    assert [v for _, v in told(doubts(before, after), "AMP534")] == ["refuse"]


def test_half_weights_that_initialize_refused_before() -> None:
    before, after = both()
    half = "model = torch.nn.Linear(4, 2).cuda()\nif args.fp16:\n    model.half()"
    before = before.replace("model = torch.nn.Linear(4, 2).cuda()", half)
    after = after.replace("model = torch.nn.Linear(4, 2).cuda()", half)
    assert [v for _, v in told(doubts(before, after), "AMP534")] == ["review"]


def test_half_weights_of_another_mode() -> None:
    before, after = both()
    half = "model = torch.nn.Linear(4, 2).cuda()\nif not args.fp16:\n    model.half()"
    before = before.replace("model = torch.nn.Linear(4, 2).cuda()", half)
    after = after.replace("model = torch.nn.Linear(4, 2).cuda()", half)
    assert not told(doubts(before, after), "AMP534")


PARAMETER = """
import torch
from apex import amp

def train(model, optimizer, loader, use_amp=False):
    for x in loader:
        loss = model(x)
        if use_amp:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
"""
PARAMETER_AFTER = """
import torch

def train(model, optimizer, loader, scaler, use_amp=False):
    for x in loader:
        with torch.autocast("cuda", enabled=ENABLED):
            loss = model(x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


def test_a_parameter_that_chose_and_is_read_no_more() -> None:
    found = doubts(PARAMETER, PARAMETER_AFTER.replace("ENABLED", "scaler.is_enabled()"))
    assert [d.verdict for d in found if "reads its parameter use_amp no more" in d.message] == ["look"]


def test_a_parameter_that_still_switches() -> None:
    found = doubts(PARAMETER, PARAMETER_AFTER.replace("ENABLED", "use_amp"))
    assert not [d for d in found if "reads its parameter" in d.message]


@pytest.mark.parametrize(
    ("writes", "wanted"),
    [
        ('state["amp"] = 1', []),
        ("state = dict(amp=1)", []),
        ('state = {"amp": 1}', []),
        ('state = {"scaler": 1}', ["refuse"]),
        ('print(state["amp"])', ["refuse"]),
        ('state["scaler"] = "amp"', ["refuse"]),
    ],
)
def test_what_writes_the_key_that_is_asked_for(writes: str, wanted: list[str]) -> None:
    before, after = both()
    before += '\nstate["amp"] = amp.state_dict()\n'
    after = after.replace('GradScaler("cuda", enabled=args.fp16)', 'GradScaler("cuda", enabled="amp" in args.state)')
    assert [v for _, v in told(doubts(before, f"{after}\n{writes}\n"), "AMP532")] == wanted


@pytest.mark.parametrize("enabled", ['"amp" in args.state', '"amp" not in args.state', '"amp" == args.state'])
def test_a_key_that_nothing_wrote_before_either(enabled: str) -> None:
    before, after = both()
    after = after.replace("enabled=args.fp16)\nfor", f"enabled={enabled})\nfor")
    assert not told(doubts(before, after), "AMP532")


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ('GradScaler("cuda", enabled=args.fp16)', 'GradScaler("cuda", enabled=False)', ["refuse"]),
        ('GradScaler("cuda", enabled=args.fp16)', 'GradScaler("cuda", enabled=True)', ["review"]),
        ('GradScaler("cuda", enabled=args.fp16)', 'GradScaler("cuda")', ["review"]),
        ("scaler.scale(loss)", "loss", []),
        ("import torch\n", "import torch\n# autocast is elsewhere\n", []),
    ],
)
def test_a_scaler_alone(old: str, new: str, wanted: list[str]) -> None:
    before, after = both()
    after = after.replace(
        '    with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):\n        loss', "    loss"
    )
    assert [v for _, v in told(doubts(before, after.replace(old, new)), "AMP532")] == wanted
    assert not told(doubts(before, after.replace(old, new), dtype="bfloat16"), "AMP532")


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"z9.py": "import train"}, []),
        ({"z9.py": "", "main.py": "import train\nfrom z9 import forward\n"}, []),
        ({"z9.py": "", "main.py": "from z9 import forward\n"}, ["review"]),
        ({"z9.py": ""}, ["review"]),
    ],
)
def test_a_region_in_another_file(files: dict[str, str], wanted: list[str]) -> None:
    """It counts where a process has both."""
    before, after = both()
    after = after.replace(
        '    with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):\n        loss', "    loss"
    )
    region = "\nimport torch\n\ndef forward(x):\n    with torch.autocast('cuda'):\n        return x @ x\n"
    found = doubts_of({"train.py": before, **files, "z9.py": files["z9.py"] + region}, {"train.py": after})
    assert [v for _, v in told(found, "AMP532")] == wanted


FLOAT32 = """
import torch
from apex import amp

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O0", loss_scale=SCALE)
for x, y in loader:
    loss = (model(x) - y).mean()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
"""
FLOAT32_AFTER = """
import torch

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", ENABLED)
for x, y in loader:
    with torch.autocast("cuda", enabled=False):
        loss = (model(x) - y).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.mark.parametrize(
    ("given", "enabled", "wanted"),
    [
        ('"dynamic"', "enabled=False", [(6, "review")]),
        ("128.0", "enabled=False", []),  # a static scale leaves out no step, and changes nothing in float32
        ("1", "enabled=False", []),
        ("1.0", "enabled=False", []),
        ("None", "enabled=False", []),
        ('"dynamic"', "enabled=True", []),
        ('"dynamic"', "init_scale=4.0", []),
    ],
)
def test_a_loss_scale_at_o0(given: str, enabled: str, wanted: list[tuple[int, str]]) -> None:
    found = doubts(FLOAT32.replace("SCALE", given), FLOAT32_AFTER.replace("ENABLED", enabled))
    assert told(found, "AMP532") == wanted
    other = doubts(FLOAT32.replace("SCALE", given).replace("O0", "O1"), FLOAT32_AFTER.replace("ENABLED", enabled))
    assert not [d for d in other if d.code == "AMP532" and "O0" in d.message]


STEP = """
import torch
from apex import amp


def step(model, optimizer, x, DEFAULT):
    loss = model(x)
    if use:
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
    else:
        loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("default", "after", "wanted"),
    [
        ("use=True", "scaler.scale(loss).backward()", ["look"]),
        ("use=False", "scaler.scale(loss).backward()", ["look"]),
        ("use=None", "scaler.scale(loss).backward()", []),
        ("use=1", "scaler.scale(loss).backward()", []),
        ("use", "scaler.scale(loss).backward()", []),
        ("use=True", "(scaler.scale(loss) if use else loss).backward()", []),
        ("use=True, log=True", "scaler.scale(loss).backward()", ["look"]),
    ],
)
def test_a_parameter_that_chose_whether_to_scale(default: str, after: str, wanted: list[str]) -> None:
    before = STEP.replace("DEFAULT", default)
    new = f"\nimport torch\n\n\ndef step(model, optimizer, scaler, x, {default}):\n    with torch.autocast('cuda'):\n"
    new += f"        loss = model(x)\n    {after}\n    scaler.step(optimizer)\n    scaler.update()\n"
    assert [v for _, v in told(doubts(before, new), "AMP532")] == wanted


def test_a_parameter_of_a_function_that_scaled_nothing() -> None:
    before = STEP.replace("DEFAULT", "use=True") + "\n\ndef report(model, half=False):\n    print(model, half)\n"
    after = (
        STEP.replace("DEFAULT", "use=True")
        .replace("from apex import amp", "")
        .replace(
            "with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()",
            "scaler.scale(loss).backward()",
        )
    )
    after += "\n\ndef report(model, half=False):\n    print(model)\n\n\ndef new(half=False):\n    return scaler\n"
    assert not [d for d in doubts(before, after) if d.code == "AMP532" and "no more" in d.message]


NESTED = """
import contextlib
import torch
IMPORT

def train(model, optimizer, scaler, x, y, args):
    optimizer.zero_grad()
    STEP

def main(args, model, optimizer, loader):
    if args.native and not torch.cuda.is_available():
        raise SystemExit("no device")
    scaler = torch.amp.GradScaler("cuda", enabled=args.native)
    SETUP
    for x, y in loader:
        with OUTER:
            train(model, optimizer, scaler, x, y, args)
"""
STEP_BEFORE = """loss = model(x).sum()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()"""
STEP_AFTER = """with torch.autocast("cuda", dtype=torch.float16, enabled=ENABLED):
        loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()"""


def nested(outer: str, enabled: str) -> tuple[str, str]:
    """A program with a region of its own around its training, and what becomes of it."""
    set_up = 'if args.fp16:\n        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    program = NESTED.replace("OUTER", outer)
    before = program.replace("IMPORT", "from apex import amp").replace("STEP", STEP_BEFORE).replace("SETUP", set_up)
    step = STEP_AFTER.replace("ENABLED", enabled)
    return before, program.replace("IMPORT", "").replace("STEP", step).replace("SETUP", "pass")


@pytest.mark.parametrize(
    ("outer", "enabled", "expected"),
    [
        ('torch.autocast("cuda") if args.native else contextlib.nullcontext()', "args.fp16", True),
        ('torch.autocast("cuda", enabled=args.native)', "args.fp16", True),
        ("torch.cuda.amp.autocast(args.native)", "args.fp16", True),
        ('torch.autocast("cuda", enabled=args.native)', "args.fp16 or args.native", False),  # the same is asked
        ('torch.autocast("cuda", enabled=args.native)', 'args.fp16 or torch.is_autocast_enabled("cuda")', False),
        ('torch.autocast("cuda", enabled=args.native == "yes")', 'args.fp16 == "yes"', True),
        ('torch.autocast("cuda", enabled=False)', "args.fp16", False),
        ("contextlib.nullcontext()", "args.fp16", False),
        ('torch.autocast("cuda", enabled=args.native)', "True", False),
    ],
)
def test_a_region_within_one_of_the_programs_own(outer: str, enabled: str, expected: bool) -> None:
    """Called from within a region of another switch, it would turn that region off."""
    found = [d for d in doubts(*nested(outer, enabled)) if d.code == "AMP532" and "program's own" in d.message]
    assert bool(found) is expected


@pytest.mark.parametrize(
    ("dtype", "remedy"),
    [
        ("torch.float16", "Write args.fp16 or torch.is_autocast_enabled('cuda')"),
        ("torch.bfloat16", "Enter none where that one is on"),
    ],
)
def test_a_region_of_the_programs_own_goes_on_in_the_new_one_where_both_cast_alike(dtype: str, remedy: str) -> None:
    before, after = nested(f'torch.autocast("cuda", {dtype}, enabled=args.native)', "args.fp16")
    (doubt,) = [d for d in doubts(before, after) if d.code == "AMP532"]
    assert doubt.message.endswith(remedy)


def test_a_scaler_that_is_on_in_one_of_several_branches_only() -> None:
    """Each branch set Apex up; the scaler has the condition of the first."""
    before = """
        import torch
        from apex import amp

        def set_up(model, optimizer, fp16, teacher=None):
            if fp16:
                if teacher is None:
                    model, optimizer = amp.initialize(model, optimizer)
                else:
                    (model, teacher), optimizer = amp.initialize([model, teacher], optimizer)
            return model, optimizer
        """
    after = """
        import torch

        scaler = torch.amp.GradScaler("cuda", enabled=False)

        def set_up(model, optimizer, fp16, teacher=None):
            global scaler
            scaler = torch.amp.GradScaler("cuda", enabled=SWITCH)
            return model, optimizer
        """
    (doubt,) = [d for d in doubts(before, after.replace("SWITCH", "fp16 and teacher is None")) if d.code == "AMP532"]
    assert doubt.verdict == "refuse"
    assert "where fp16 and not teacher is None" in doubt.message
    assert not told(doubts(before, after.replace("SWITCH", "fp16")), "AMP532")
    static = before.replace("amp.initialize(model, optimizer)", "amp.initialize(model, optimizer, loss_scale=1.0)")
    assert not told(doubts(static, after.replace("SWITCH", "fp16 and teacher is not None")), "AMP532")


BEGUN = """
    import torch
    from apex import amp

    class Trainer:
        def __init__(self, model):
            self.model = model
            self.name = "a"
            self.prepare()
            self.stage = 0

        def prepare(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.set_up()

        def set_up(self):
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer)

        def step(self, x):
            loss = self.model(x).mean()
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
            self.optimizer.step()
    """
BEGINS = 'self.scaler = torch.amp.GradScaler("cuda", enabled=False)'


def begun(made: str, above: str, *more: tuple[str, str]) -> list[Doubt]:
    """What is said of a constructor that makes a disabled scaler below a statement, where its methods make another one."""
    before, after = BEGUN, BEGUN.replace("    from apex import amp\n", "")
    for old, new in more:
        before, after = before.replace(old, new), after.replace(old, new)
    after = after.replace(above, f"{above}\n            {BEGINS}")
    after = after.replace(
        "self.model, self.optimizer = amp.initialize(self.model, self.optimizer)", f"self.scaler = {made}"
    )
    region = 'with torch.autocast("cuda", torch.float16):\n                loss = self.model(x).mean()'
    after = after.replace("loss = self.model(x).mean()", region)
    after = after.replace("with amp.scale_loss(loss, self.optimizer) as scaled:\n                scaled.backward()",
                          "self.scaler.scale(loss).backward()")  # fmt: skip
    after = after.replace("self.optimizer.step()", "self.scaler.step(self.optimizer)\n            self.scaler.update()")
    return [d for d in doubts(before, after) if "takes its place" in d.message]


@pytest.mark.parametrize(
    ("above", "made", "refused"),
    [
        ('self.name = "a"', 'torch.amp.GradScaler("cuda")', False),
        ("self.prepare()", 'torch.amp.GradScaler("cuda")', True),
        ("self.stage = 0", 'torch.amp.GradScaler("cuda", enabled=self.stage > 0)', True),
        ("self.stage = 0", 'torch.amp.GradScaler("cuda", enabled=False)', False),
    ],
)
def test_a_disabled_scaler_that_takes_the_place_of_one_that_the_constructor_had_made(
    above: str, made: str, refused: bool
) -> None:
    said = begun(made, above)
    assert [(d.code, d.verdict) for d in said] == ([("AMP532", "refuse")] if refused else [])


def test_a_scaler_that_several_calls_above_made_is_replaced_once() -> None:
    twice = ('self.name = "a"', "self.set_up()")
    assert len(begun('torch.amp.GradScaler("cuda")', "self.prepare()", twice)) == 1


@pytest.mark.parametrize(("made", "refused"), [('torch.amp.GradScaler("cuda")', True), ("None", False)])
def test_methods_that_call_each_other_are_looked_into(made: str, refused: bool) -> None:
    again = (
        "            self.set_up()\n",
        "            self.set_up()\n\n        def retry(self):\n            self.prepare()\n",
    )
    calls = (
        "        def set_up(self):\n",
        "        def set_up(self):\n            if self.stage:\n                self.retry()\n",
    )
    assert bool(begun(made, "self.prepare()", again, calls)) is refused
