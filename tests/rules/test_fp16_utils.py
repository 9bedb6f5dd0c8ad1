"""`apex.fp16_utils`: models stay float32, small helpers become torch's own, loops written by hand are reported."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, check_rewrite, rewrite, rewrite_files
from tests.rules.programs import apex, check_refused, found, native

IMPORT = "from apex.fp16_utils import *"
LOOP = "loss = criterion(model(x), y)\noptimizer.backward(loss)\noptimizer.step()"
SCALED = """
with torch.autocast("cuda", dtype=torch.float16{}):
    loss = criterion(model(x), y)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
"""
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
WRAP = "optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)"


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        ("model = network_to_half(build())", "model = build()"),
        ("model = build()\nmodel = network_to_half(model)", "model = build()"),
        ("model = build()\nmodel = BN_convert_float(model.half())", "model = build()"),
        ("model = convert_network(build(), torch.half)", "model = build()"),
        ("model = FP16Model(build())", "model = build()"),
        ("model = torch.nn.Sequential(tofp16(), build())", "model = build()"),
        ("model = build()\nmodel.half()", "model = build()"),
        ("model = build()\nmodel = model.half()", "model = build()"),
        ("model = build()\nmo𝐝el = network_to_half( model )", "model = build()"),
        ("model = build()\nmodel = network_to_half(mode𝐥)", "model = build()"),
        ("model = build().cuda().half()", "model = build().cuda()"),
        ("model = build().half().cuda()", "model = build().cuda()"),
        ("model = build()\nmodel.type(torch.cuda.HalfTensor)", "model = build()\nmodel.cuda()"),
        ("model = build()\nmodel.to(torch.float16)", "model = build()"),
        ('model = build()\nmodel.to("cuda", torch.half)', 'model = build()\nmodel.to("cuda")'),
    ],
)
def test_models_stay_float32(model: str, kept: str) -> None:
    source = apex(LOOP, WRAP, imports=IMPORT, model=f"{model}\n{SGD}")
    result = check_rewrite(source, native(SCALED.format(""), model=f"{kept}\n{SGD}"))
    assert found(result, "AMP720")


def test_an_optimizer_that_is_wrapped_in_other_letters_is_the_same() -> None:
    source = apex(LOOP, WRAP.replace("optimizer =", "𝐨ptimizer ="), imports=IMPORT)
    check_rewrite(source, native(SCALED.format("")))


def test_the_branch_that_only_made_the_model_half_goes() -> None:
    model = f"model = build()\nif args.fp16:\n    model = network_to_half(model)\n{SGD}"
    wrap = f"if args.fp16:\n    {WRAP}\n"
    expected = native(
        SCALED.format(", enabled=bool(args.fp16)"),
        'scaler = torch.amp.GradScaler("cuda", enabled=bool(args.fp16))',
        model=f"model = build()\n{SGD}",
    )
    check_rewrite(
        apex(
            LOOP.replace(
                "optimizer.backward(loss)", "if args.fp16:\n    optimizer.backward(loss)\nelse:\n    loss.backward()"
            ),
            wrap,
            imports=IMPORT,
            model=model,
        ),
        expected,
    )


def test_a_copy_of_the_helper_is_known_by_its_name() -> None:
    imports = "from apex.fp16_utils import FP16_Optimizer\nfrom project.fp16 import network_to_half"
    model = f"model = build()\nmodel = network_to_half(model)\n{SGD}"
    check_rewrite(
        apex(LOOP, WRAP, imports=imports, model=model), native(SCALED.format(""), model=f"model = build()\n{SGD}")
    )


def test_halves_under_another_switch_are_refused() -> None:
    model = f"model = build()\nif args.half:\n    model.half()\n{SGD}"
    check_refused(apex(LOOP, f"if args.fp16:\n    {WRAP}\n", imports=IMPORT, model=model), "AMP720")


@pytest.mark.parametrize(
    "half",
    [
        "if args.fp16 and args.cuda:\n    model.half()",
        "if args.fp16:\n    if args.save:\n        model.float()\n        model.half()",
    ],
)
def test_halves_under_the_same_switch_and_another_condition_stay_float32(half: str) -> None:
    model = f"model = build()\n{half}\n{SGD}"
    after = rewrite(apex(LOOP, f"if args.fp16:\n    {WRAP}\n", imports=IMPORT, model=model)).after
    assert after is not None
    assert "half()" not in after
    assert "enabled=bool(args.fp16)" in after


WRAPPING = """
from apex.fp16_utils import FP16_Optimizer
import torch

def wrapped(model, fp16):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if fp16:
        optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
    return optimizer
"""


@pytest.mark.parametrize(("given", "same"), [("args.fp16", True), ("fp16=args.fp16", True), ("args.wrap", False)])
def test_the_switch_of_a_function_that_wraps_is_what_it_is_given(given: str, same: bool) -> None:
    model = "model = build()\nif args.fp16:\n    model.half()"
    train = apex(
        LOOP.replace(
            "optimizer.backward(loss)", "if args.fp16:\n    optimizer.backward(loss)\nelse:\n    loss.backward()"
        ),
        f"optimizer = wrapped(model, {given})",
        imports="from wrapping import wrapped",
        model=model,
    )
    results = rewrite_files({"wrapping.py": WRAPPING, "train.py": train})
    manual = {f.code for r in results.values() for f in r.findings if f.status == "manual"}
    assert ("AMP720" in manual) is not same
    if same:
        after = results["train.py"].after
        assert after is not None
        assert "half()" not in after


def test_inputs_cast_by_the_program_are_pointed_out() -> None:
    result = rewrite(apex(f"x = x.half()\n{LOOP}", WRAP, imports=IMPORT))
    assert result.after is not None
    assert "    x = x.half()\n" in result.after
    assert [f.line for f in found(result, "AMP720")] == [11]


@pytest.mark.parametrize(
    ("call", "plain"),
    [
        ("losses.update(to_python_float(loss))", "losses.update(loss.item())"),
        ("print(to_python_float(loss.data))", "print(loss.data.item())"),
        ("print(to_python_float(loss / 2))", "print((loss / 2).item())"),
        ("values = list(map(to_python_float, losses))", "values = list(map(lambda t: t.item(), losses))"),
        ("clip_grad_norm(model.parameters(), 1.0)", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
    ],
)
def test_small_helpers(call: str, plain: str) -> None:
    check_rewrite(f"import torch\nfrom apex.fp16_utils import *\n\n{call}\n", f"import torch\n\n{plain}\n")


def test_torch_is_imported_where_a_helper_needs_it() -> None:
    result = rewrite("from apex.fp16_utils import clip_grad_norm\n\nclip_grad_norm(parameters, 1.0)\n")
    assert result.after is not None
    assert result.after.startswith("import torch\n")
    assert "torch.nn.utils.clip_grad_norm_(parameters, 1.0)" in result.after


MANUAL = """
import torch
from apex.fp16_utils import *
from project import build, loader

model = network_to_half(build())
model_params, master_params = prep_param_lists(model)
optimizer = torch.optim.SGD(master_params, lr=0.1)
for x, y in loader:
    loss = model(x).mean() * 128.0
    model.zero_grad()
    loss.backward()
    model_grads_to_master_grads(model_params, master_params)
    for param in master_params:
        param.grad.data.div_(128.0)
    optimizer.step()
    master_params_to_model_params(model_params, master_params)
    print(to_python_float(loss))
"""


def test_a_loop_that_keeps_master_weights_by_hand_is_reported() -> None:
    result = check_manual(MANUAL, "AMP723")
    assert [f.line for f in found(result, "AMP723")] == [6, 12, 16]
    assert [f.line for f in found(result, "AMP724")] == [5]
    assert result.after is not None
    changed = set(result.after.splitlines()) - set(MANUAL.splitlines())
    assert changed == {"    print(loss.item())"}


@pytest.mark.parametrize("name", ["LossScaler", "DynamicLossScaler"])
def test_scalers_written_into_a_loop_are_reported(name: str) -> None:
    check_refused(f"from apex.fp16_utils import {name}\n\nscaler = {name}()\n", "AMP723")


def test_half_precision_without_an_optimizer_is_reported() -> None:
    check_refused("from apex.fp16_utils import network_to_half\n\nmodel = network_to_half(model)\n", "AMP502")


def test_helpers_of_the_programs_own_are_left_alone() -> None:
    result = rewrite("from project.fp16_utils import network_to_half\n\nmodel = network_to_half(model)\n")
    assert result.after is None
    assert not result.findings


INFERENCE = """
import torch
from apex.fp16_utils import network_to_half


def prepare(path):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    model.load_state_dict(torch.load(path))
    model = network_to_half(model)
    return model.eval()


def main(path, images):
    model = prepare(path)
    scores = model(torch.tensor(images).half())
    return scores.float().numpy()
"""


def test_a_model_that_is_only_run_stays_float32_and_runs_under_autocast() -> None:
    result = rewrite(INFERENCE)
    assert result.after is not None
    assert not [f for f in result.findings if f.status == "manual"]
    assert "network_to_half" not in result.after
    assert '    with torch.autocast("cuda", dtype=torch.float16):\n        scores = model(' in result.after
    assert [f.construct for f in found(result, "AMP720")] == ["fp16_utils.network_to_half"]


def test_a_state_that_is_loaded_into_what_it_made_is_told() -> None:
    load = "    model.load_state_dict(torch.load(path))\n"
    late = INFERENCE.replace(load, "").replace("    return model.eval()", f"{load}    return model.eval()")
    messages = [f.message for f in found(rewrite(late), "AMP720")]
    assert any("began with `1.`" in text for text in messages)


def test_a_program_that_trains_by_hand_is_no_inference() -> None:
    check_refused(INFERENCE + "\n\ndef train(model, x):\n    model(x).sum().backward()\n", "AMP724")


TRAINED = """
from apex.fp16_utils import FP16_Optimizer
import torch

def load(model, kind, args):
    if HALF:
        model.half()
    return model

def main(args, loader):
    model = torch.nn.Linear(2, 1)
    if args.kind == "small":
        model = load(model, args.kind, args)
    elif args.kind == "large":
        model = load(model, args.kind, args)
    else:
        raise ValueError(args.kind)
    if args.do_train:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.fp16:
            optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
    if TRAINS:
        for x in loader:
            loss = model(x).sum()
            if args.fp16:
                optimizer.backward(loss)
            else:
                loss.backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("half", "trains", "written"),
    [
        ("args.fp16", "args.do_train", True),
        ("args.half", "args.do_train", False),
        ("args.fp16", "loader", False),  # the optimizer is wrapped in fewer cases than it trains
    ],
)
def test_what_all_training_stands_under_is_no_other_switch(half: str, trains: str, written: bool) -> None:
    result = rewrite(TRAINED.replace("HALF", half).replace("TRAINS", trains))
    assert ("GradScaler" in (result.after or "")) is written
    assert ("AMP720" in {f.code for f in result.findings if f.status == "manual"}) is not written
