"""Models made half beside `amp.initialize`: a GradScaler refuses the gradients of float16 weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_rewrite, rewrite, rewrite_files, run_files, texts_of
from tests.rules.programs import MODEL, apex, found, initialize, native
from tests.rules.test_initialize import SWITCH, loop, scaler

SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        ("model = build().half()", "model = build()"),
        ("model = build()\nmodel.half()", "model = build()"),
        ("model = build()\nmodel.cuda().half()", "model = build()\nmodel.cuda()"),
        ("model = build()\nmodel = model.to(torch.float16)", "model = build()"),
        ('model = build()\nmodel.to("cuda", torch.half)', 'model = build()\nmodel.to("cuda")'),
        (
            "def make():\n    return build().half()\n\n\nmodel = make()",
            "def make():\n    return build()\n\n\nmodel = make()",
        ),
    ],
)
def test_weights_that_are_trained_stay_float32(model: str, kept: str) -> None:
    before = apex(prepare=initialize('opt_level="O3", loss_scale=128.0'), model=f"{model}\n{SGD}")
    after = native(loop(update="128.0"), scaler("init_scale=128.0"), model=f"{kept}\n{SGD}")
    assert found(check_rewrite(before, after), "AMP720")


def test_half_weights_after_initialize_stay_float32_too() -> None:
    before = apex(prepare=initialize('opt_level="O1"') + "\nmodel.half()")
    check_rewrite(before, native())


def test_the_level_that_asks_for_half_weights_is_a_switch_that_goes_with_them() -> None:
    model = f'model = build()\nif args.level == "O3":\n    model.half()\n{SGD}'
    imports = "from apex import amp\n" + SWITCH.replace("--opt-level", "--level")
    before = apex(prepare=initialize("opt_level=args.level"), model=model, imports=imports)
    after = rewrite(before).after
    assert after is not None
    assert ".half()" not in after
    assert "if args.level" not in after


def test_half_weights_under_another_switch_stay_and_are_pointed_out() -> None:
    model = f"model = build()\nif args.half:\n    model.half()\n{SGD}"
    result = rewrite(
        apex(prepare=initialize("opt_level=args.opt_level"), model=model, imports="from apex import amp\n" + SWITCH)
    )
    assert result.after is not None
    assert "if args.half:\n    model.half()\n" in result.after
    (finding,) = found(result, "AMP118")
    assert finding.review == "review"


@pytest.mark.parametrize("export", ["torch.save(model.half().state_dict(), 'half.pt')", "model.half()\nsave(model)"])
def test_an_export_in_half_precision_stays(export: str) -> None:
    result = rewrite(apex(tail=export))
    assert result.after is not None
    assert result.after.endswith(f"{export}\n")
    assert found(result, "AMP118")


def test_half_inputs_are_left_alone() -> None:
    source = apex(model=MODEL + "\nfirst = torch.zeros(1).half()")
    assert not found(rewrite(source), "AMP118")


COPY = "import copy\n\nsaved = copy.deepcopy(model)\n"


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        (f"{COPY}saved = saved.half()\nstore(saved)", False),
        (f"{COPY}saved.half()\nstore(saved)", False),
        (f"{COPY}saved = model\nsaved.half()\nstore(saved)", True),  # or the model itself
        ("saved = model\nsaved.half()\nstore(saved)", True),
    ],
)
def test_a_variable_that_holds_a_copy_alone_may_be_half(tail: str, told: bool) -> None:
    assert bool(found(rewrite(apex(tail=tail)), "AMP118")) is told


EVALUATE = """
def evaluate(model, half):
    model.eval()
    if half:
        model.half()
    for x, y in loader:
        print(model(x))
{back}
    model.train()


"""


@pytest.mark.parametrize(
    ("back", "told"),
    [
        ("    if half:\n        model.float()", False),
        ("    model.float()", False),
        ("    if type(model) != list:\n        model.float()", False),  # which has no half()
        ("    if type(model) == list:\n        model.float()", True),
        ("    if other:\n        model.float()", True),
        ("    for x, y in loader:\n        model.float()", True),
        ("    if y is None:\n        return\n    model.float()", True),
        ("    half = False\n    if half:\n        model.float()", True),
        ("    pass", True),
    ],
)
def test_what_is_float32_again_after_an_evaluation_is_trained_as_that(back: str, told: bool) -> None:
    source = apex(
        "for x, y in loader:\n    loss = criterion(model(x), y)\n    optimizer.zero_grad()\n"
        "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n    optimizer.step()\n"
        "    evaluate(model, args.half)",
        imports="from apex import amp\n" + SWITCH + EVALUATE.format(back=back),
    )
    result = rewrite(source)
    assert result.status == "migrated"
    assert bool(found(result, "AMP118") or found(result, "AMP534")) is told


@pytest.mark.parametrize(("back", "told"), [("model.float()", False), ("pass", True)])
def test_a_list_of_models_is_no_model_that_is_trained_on(back: str, told: bool) -> None:
    evaluate = EVALUATE.replace("        model.half()", "        model = [m.half() for m in model]")
    evaluate = evaluate.format(back=f"    {back}") + "evaluate([model], True)\n"
    result = rewrite(apex(tail=evaluate))
    assert bool(found(result, "AMP118")) is told


HALVES = """
    from torch import nn


    def make_half(network):
        return nn.Sequential(network.half())
    """
TWO_MODES = """
    import argparse
    import json

    import torch
    from apex import amp

    from halves import make_half


    def run(args):
        half = args.half
        mixed = args.mixed
        model = torch.nn.Linear(2, 2)
        if {test}:
            model = make_half(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if mixed:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
        x = torch.ones(1, 2)
        if half:
            x = x.half()
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(x).sum()
            if mixed:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
        print(json.dumps(str(next(model.parameters()).dtype)))


    parser = argparse.ArgumentParser()
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--mixed", action="store_true")
    run(parser.parse_args(["--half"]))
    """


def test_a_mode_that_apex_has_no_part_in_keeps_its_half_weights(tmp_path: Path) -> None:
    files = {"halves.py": HALVES, "train.py": TWO_MODES.format(test="half")}
    results = rewrite_files(files)
    assert results["halves.py"].after is None
    assert not {f.code for r in results.values() for f in r.findings} & {"AMP531", "AMP532", "AMP720"}
    after = texts_of(results)
    assert run_files(tmp_path, after, "train.py") == "torch.float16"


@pytest.mark.parametrize(
    ("test", "kept"),
    [("mixed", False), ("args.mixed", False), ("not mixed", True), ("half or mixed", True), ("True", True)],
)
def test_what_a_helper_makes_half_is_asked_where_it_is_called(test: str, kept: bool) -> None:
    halves = rewrite_files({"halves.py": HALVES, "train.py": TWO_MODES.format(test=test)})["halves.py"]
    assert (halves.after is None) is kept


def test_a_helper_that_two_calls_make_half_by_keeps_doing_so_for_either() -> None:
    train = TWO_MODES.format(test="mixed").replace("x = x.half()", "make_half(torch.nn.Linear(2, 2))")
    files = {"halves.py": HALVES, "train.py": train.replace("make_half(torch.nn.Linear(2, 2))", "make_half(model)")}
    assert rewrite_files(files)["halves.py"].after is None


def test_half_weights_of_every_run_are_not_those_of_mixed_precision_alone() -> None:
    model = f"model = build()\nmodel.half()\n{SGD}"
    prepare = "if args.mixed:\n    " + initialize('opt_level="O2"')
    result = rewrite(apex(prepare=prepare, model=model, imports="from apex import amp\n" + SWITCH))
    assert not found(result, "AMP720")


OLDER = (
    TWO_MODES.replace("from apex import amp", "from apex.fp16_utils import FP16_Optimizer")
    .replace(
        'model, optimizer = amp.initialize(model, optimizer, opt_level="O2")', "optimizer = FP16_Optimizer(optimizer)"
    )
    .replace(
        "with amp.scale_loss(loss, optimizer) as scaled_loss:\n                    scaled_loss.backward()",
        "optimizer.backward(loss)",
    )
)


@pytest.mark.parametrize(
    ("test", "done"), [("mixed", True), ("args.mixed", True), ("half", False), ("half or mixed", False)]
)
def test_what_a_helper_makes_half_for_an_fp16_optimizer_stays_float32(test: str, done: bool) -> None:
    halves = rewrite_files({"halves.py": HALVES, "train.py": OLDER.format(test=test)})["halves.py"]
    assert ("nn.Sequential(network)" in (halves.after or "")) is done
    assert [f.status for f in halves.findings if f.code == "AMP720"] == ["done" if done else "manual"]


def test_the_mode_without_an_fp16_optimizer_keeps_what_a_helper_makes_half() -> None:
    results = rewrite_files({"halves.py": HALVES, "train.py": OLDER.format(test="not mixed")})
    assert results["train.py"].status == "migrated"
    assert results["halves.py"].after is None


EPOCHS = """
import torch
from apex import amp
from project import build, criterion, loader, save, flags

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

def train():
    for x, y in loader:
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        optimizer.zero_grad()

for epoch in range(9):
    FIRST
    train()
    if epoch % 3 == 0:
        LAST
    END
"""


@pytest.mark.parametrize(
    ("parts", "again"),
    [
        ({"LAST": "model = model.half()"}, True),
        ({"LAST": "model.half()"}, True),
        ({"LAST": "save(model.float())\n        model.half()"}, True),
        ({"LAST": "model.half()\n        break"}, False),
        ({"LAST": "model.half()", "FIRST": "model.float()"}, False),
        ({"LAST": "model.half()", "FIRST": "model = build()"}, False),
        ({"LAST": "model.half()", "END": "break"}, False),
        ({"LAST": "pass", "END": "break\nmodel.half()"}, False),
        ({"LAST": "pass", "FIRST": "model.half()"}, True),
    ],
)
def test_a_loop_that_comes_back_to_the_training(parts: dict[str, str], again: bool) -> None:
    source = EPOCHS.lstrip()
    for place in ("FIRST", "LAST", "END"):
        source = source.replace(place, parts.get(place, "pass"))
    told = found(rewrite(source), "AMP118")
    assert [f.review for f in told] == ["review"]
    line = source.splitlines().index("    train()") + 1
    assert (f"comes to line {line}, which trains it" in told[0].message) is again


BATCHES = """
import torch
from wrapper import Wrapper


def to_half(batch):
    for key in batch:
        if isinstance(batch[key], torch.FloatTensor):
            batch[key] = CAST


wrapper = Wrapper(torch.nn.Linear(4, 2))
for batch in wrapper.batches():
    to_half(batch)
    wrapper.step(batch)
"""
WRAPPER = """
import torch
from apex.fp16_utils import FP16_Optimizer


class Wrapper:
    def __init__(self, model):
        self.model = model.half()
        self.optimizer = FP16_Optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1), dynamic_loss_scale=True)

    def step(self, batch):
        loss = self.model(batch["x"]).float().sum()
        self.optimizer.zero_grad()
        self.optimizer.backward(loss)
        self.optimizer.step()
"""


@pytest.mark.parametrize(
    ("cast", "told"),
    [
        ("batch[key].to(dtype=torch.float16)", True),
        ("batch[key].half()", True),
        ("batch[key].to(torch.float32)", False),
    ],
)
def test_items_of_a_batch_that_another_file_makes_half_may_stay_float32(cast: str, told: bool) -> None:
    results = rewrite_files({"main.py": BATCHES.replace("CAST", cast), "wrapper.py": WRAPPER})
    assert results["wrapper.py"].after is not None
    assert any("inputs may stay float32" in f.message for f in results["main.py"].findings) is told


RESTARTED = """
import json
import torch
from apex.fp16_utils import FP16_Optimizer
from nets import Net

if RESTART:
    model = torch.load("model.pt", weights_only=False)
else:
    model = Net()
HALF
optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), static_loss_scale=128.0)
seen = []
for _ in range(2):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 4)).float().pow(2).mean()
    optimizer.backward(loss)
    optimizer.step()
    seen.append(loss.item())
torch.save(model, "model.pt")
print(json.dumps([str(next(model.parameters()).dtype), *seen]))
"""
NETS = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.body(x)
"""
OLD = 'import torch\nfrom nets import Net\n\ntorch.save(Net().half(), "model.pt")\nprint(0)\n'


@pytest.mark.parametrize(
    ("half", "written"),
    [
        ("model = model.half()", "model = model.float()"),
        ("model.half()", "model.float()"),
        ("model = network_to_half(model)", "model = model.float()"),
    ],
)
def test_a_network_out_of_an_old_file_is_made_float32(tmp_path: Path, half: str, written: str) -> None:
    train = RESTARTED.replace("HALF", half).replace("RESTART", "True")
    if "network" in half:
        train = train.replace("import FP16_Optimizer", "import FP16_Optimizer, network_to_half")
    texts = texts_of(rewrite_files({"train.py": train, "nets.py": NETS}, device="cpu"))
    assert f"\n{written}\n" in texts["train.py"]
    files = {**texts, "old.py": OLD}
    run_files(tmp_path, files, "old.py")
    for _ in range(2):  # from a file with half weights, then from one that it wrote itself
        dtype, *seen = run_files(tmp_path, files, "train.py")
        assert dtype == "torch.float32"
        assert len(seen) == 2


def test_what_is_no_network_out_of_a_file_is_not_cast() -> None:
    train = RESTARTED.replace("HALF", "model = model.half()").replace("if RESTART:", "if False:")
    train = train.replace('model = torch.load("model.pt", weights_only=False)', "model = Net()")
    texts = texts_of(rewrite_files({"train.py": train, "nets.py": NETS}))
    assert "model.float()" not in texts["train.py"]
    assert "half" not in texts["train.py"]
