"""`FP16_Optimizer`: unwrapped, scaled, clipped; what only it could do is answered or refused."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from amp_migrate.engine import Program, migrate
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile
from tests.rules.helpers import check_rewrite, rewrite, rewrite_files
from tests.rules.programs import apex, check_refused, found, native

IMPORT = "from apex.fp16_utils import FP16_Optimizer"
WRAP = "optimizer = FP16_Optimizer(optimizer{})"
LOOP = """
loss = criterion(model(x), y)
optimizer.zero_grad()
optimizer.backward(loss)
{}optimizer.step()
"""
SCALED = """
with torch.autocast("cuda", dtype=torch.float16{enabled}):
    loss = criterion(model(x), y)
optimizer.zero_grad()
scaler.scale(loss).backward()
{extra}scaler.step(optimizer)
scaler.update({value})
"""


def before(loop: str = LOOP.format(""), wrap: str = ", dynamic_loss_scale=True", **parts: str) -> str:
    parts = {"imports": IMPORT, **parts}
    return apex(loop, WRAP.format(wrap) if not wrap.count("\n") else wrap, **parts)


def after(scaler: str = "", extra: str = "", value: str = "", enabled: str = "", **parts: str) -> str:
    loop = SCALED.format(extra=extra, value=value, enabled=enabled)
    return native(loop, f'scaler = torch.amp.GradScaler("cuda"{scaler})', **parts)


ONCE = "before Apex had amp.initialize, that was "


@pytest.mark.parametrize(
    ("wrap", "imports", "said"),
    [
        (
            ", dynamic_loss_scale=True",
            IMPORT,
            f"doubles after 2000 clean steps, as in the last Apex; {ONCE}at 2**32 and after 1000",
        ),
        (", dynamic_loss_scale=ask", IMPORT, f"{ONCE}at 2**32 and after 1000"),
        (
            ', dynamic_loss_scale=True, dynamic_loss_args={"init_scale": 2**16}',
            IMPORT,
            f"clean steps, as in the last Apex; {ONCE}after 1000",
        ),
        (
            ', dynamic_loss_scale=True, dynamic_loss_args={"scale_window": 500}',
            IMPORT,
            f"at 65536, as in the last Apex; {ONCE}at 2**32",
        ),
        (', dynamic_loss_scale=True, dynamic_loss_args={"scale_window": 500, "init_scale": 8}', IMPORT, ""),
        (", static_loss_scale=128.0", IMPORT, ""),
        ("", IMPORT, ""),
        (", dynamic_loss_scale=True", "from apex.optimizers import FP16_Optimizer", ""),
    ],
)
def test_how_a_scale_moves_that_was_left_to_apex_is_said(wrap: str, imports: str, said: str) -> None:
    source = before(wrap=wrap, imports=imports)
    (finding,) = found(rewrite(source), "AMP701")
    assert ("; the scale " in finding.message) == bool(said)
    assert finding.message.endswith(said)
    assert "; the scale " not in found(rewrite(source, dtype="bfloat16"), "AMP701")[0].message


# -- the scale -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrap", "scaler", "value"),
    [
        (", dynamic_loss_scale=True", "", ""),
        (", dynamic_loss_scale=True, verbose=False", "", ""),
        (", static_loss_scale=128.0, dynamic_loss_scale=True", "", ""),
        (", static_loss_scale=128.", ", init_scale=128.", "128."),
        (", static_loss_scale=512", ", init_scale=512.0", "512.0"),
        (", 512.0", ", init_scale=512.0", "512.0"),
        (", static_loss_scale=2.0**7", ", init_scale=2.0**7", "2.0**7"),
        ("", ", enabled=False", ""),
        (", static_loss_scale=1.0", ", enabled=False", ""),
        (
            ', dynamic_loss_scale=True, dynamic_loss_args={"init_scale": 2 ** 14, "scale_window": 500}',
            ", init_scale=2 ** 14, growth_interval=500",
            "",
        ),
        (", dynamic_loss_scale=True, dynamic_loss_args=dict(scale_window=200)", ", growth_interval=200", ""),
    ],
)
def test_static_and_dynamic_scales(wrap: str, scaler: str, value: str) -> None:
    check_rewrite(before(wrap=wrap), after(scaler, value=value))


def test_lower_bound_of_a_dynamic_scale_is_kept() -> None:
    result = rewrite(before(wrap=', dynamic_loss_scale=True, dynamic_loss_args={"min_loss_scale": 128.0}'))
    assert result.after is not None
    assert "    if scaler.get_scale() < 128.0:\n        scaler.update(128.0)\n" in result.after


def test_the_wrapper_of_apex_optimizers_doubles_after_a_thousand_steps() -> None:
    source = before(imports="from apex.optimizers import FP16_Optimizer")
    check_rewrite(source, after(", growth_interval=1000"))


ARGUMENTS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--loss_scale", type=float, default=0)
parser.add_argument("--dynamic", action="store_true")
parser.add_argument("--steps", type=int, default=0)
args = parser.parse_args()
"""
MODEL = f"{ARGUMENTS}model = build()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


def test_the_two_branches_of_a_loss_scale_flag_become_one_expression() -> None:
    wrap = """
    if args.loss_scale == 0:
        optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
    else:
        optimizer = FP16_Optimizer(optimizer, static_loss_scale=args.loss_scale)
    """
    check_rewrite(
        before(wrap=wrap, model=MODEL),
        after(", init_scale=args.loss_scale or 2.0**16", value="args.loss_scale or None", model=MODEL),
    )


def test_the_branches_may_bind_another_name() -> None:
    wrap = """
    if args.dynamic:
        wrapped = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
    else:
        wrapped = FP16_Optimizer(optimizer, static_loss_scale=args.steps)
    """
    loop = "loss = criterion(model(x), y)\nwrapped.backward(loss)\nwrapped.step()"
    result = rewrite(before(loop, wrap, model=MODEL))
    assert result.after is not None
    assert "init_scale=2.0**16 if args.dynamic else float(args.steps)" in result.after
    assert "scaler.update(None if args.dynamic else float(args.steps))" in result.after
    assert "\nwrapped = optimizer\n" in result.after
    assert "if args.dynamic:" not in result.after


def test_both_settings_decided_at_run_time() -> None:
    wrap = ", static_loss_scale=args.loss_scale, dynamic_loss_scale=args.dynamic"
    check_rewrite(
        before(wrap=wrap, model=MODEL),
        after(
            ", init_scale=2.0**16 if args.dynamic else args.loss_scale",
            value="None if args.dynamic else args.loss_scale",
            model=MODEL,
        ),
    )


def test_a_default_that_is_whole_is_no_float_whatever_the_type_of_its_option() -> None:
    model = MODEL.replace("type=float, default=0", "type=float, default=1")
    check_rewrite(
        before(wrap=", static_loss_scale=args.loss_scale", model=model),
        after(", init_scale=float(args.loss_scale)", value="float(args.loss_scale)", model=model),
    )


def test_a_scale_that_the_step_cannot_see_is_handed_to_it() -> None:
    source = """
    import torch
    from apex.fp16_utils import FP16_Optimizer
    from project import model, optimizer, loader, settings

    def train(model, optimizer):
        for x, y in loader:
            loss = model(x)
            optimizer.backward(loss)
            optimizer.step()

    def main():
        config = settings()
        wrapped = FP16_Optimizer(optimizer, static_loss_scale=config.scale)
        train(model, wrapped)
    """
    text = rewrite(source).after or ""
    assert "    loss_scale = float(config.scale)\n" in text
    assert "    train(model, wrapped, scaler, loss_scale)\n" in text
    assert "        scaler.update(loss_scale)\n" in text


# -- the loop --------------------------------------------------------------------------------------------------------


def test_a_switch_folds_into_one_path() -> None:
    source = before(
        """
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        if args.fp16:
            optimizer.backward(loss)
            optimizer.clip_master_grads(1.0)
        else:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        """,
        "if args.fp16:\n    optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)\n",
        model=MODEL,
    )
    clip = "scaler.unscale_(optimizer)\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    check_rewrite(source, after(", enabled=args.fp16", clip, enabled=", enabled=args.fp16", model=MODEL))


def test_clip_without_a_plain_counterpart_names_the_model() -> None:
    clip = "scaler.unscale_(optimizer)\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n"
    check_rewrite(before(LOOP.format("optimizer.clip_master_grads(0.5)\n")), after(extra=clip))


def test_clip_of_an_unknown_optimizer_names_its_groups() -> None:
    model = "model = build()\noptimizer = make_optimizer(model)"
    result = rewrite(before(LOOP.format("norm = optimizer.clip_master_grads(0.5, norm_type=1)\n"), model=model))
    assert result.after is not None
    assert (
        'norm = torch.nn.utils.clip_grad_norm_((p for group in optimizer.param_groups for p in group["params"]), 0.5, 1)'
        in result.after
    )
    assert any("-1" in f.message for f in found(result, "AMP703"))


def test_clip_uses_the_name_that_the_file_imports() -> None:
    source = before(
        LOOP.format("optimizer.clip_master_grads(0.5)\n"),
        imports=f"from torch.nn.utils import clip_grad_norm_\n{IMPORT}",
    )
    result = rewrite(source)
    assert result.after is not None
    assert "    clip_grad_norm_(model.parameters(), 0.5)\n" in result.after


def test_accumulation_drops_the_copying_of_gradients() -> None:
    source = before(
        """
        loss = criterion(model(x), y)
        optimizer.backward(loss, update_master_grads=False)
        if done(x):
            optimizer.update_master_grads()
            optimizer.clip_master_grads(1.0)
            optimizer.step()
            optimizer.zero_grad()
        """
    )
    expected = native(
        """
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        if done(x):
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        """
    )
    check_rewrite(source, expected)


def test_a_branch_that_only_copied_gradients_goes() -> None:
    source = before(LOOP.format("if args.fp16:\n    optimizer.update_master_grads()\n"), model=MODEL)
    check_rewrite(source, after(model=MODEL))


def test_backward_keeps_its_other_arguments() -> None:
    source = before(LOOP.format("").replace("backward(loss)", "backward(loss / 2, retain_graph=True)"))
    result = rewrite(source)
    assert result.after is not None
    assert "scaler.scale(loss / 2).backward(retain_graph=True)" in result.after


def test_zero_grad_takes_the_plain_keyword() -> None:
    source = before(LOOP.format("").replace("zero_grad()", "zero_grad(set_grads_to_None=True)"))
    result = rewrite(source)
    assert result.after is not None
    assert "optimizer.zero_grad(set_to_none=True)" in result.after


def test_a_clip_of_the_models_own_gradients_is_announced() -> None:
    source = before(LOOP.format("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"))
    result = rewrite(source)
    assert result.after is not None
    assert (
        "    scaler.unscale_(optimizer)\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" in result.after
    )
    assert [f.review for f in found(result, "AMP703")] == ["review"]


def test_a_clip_in_the_branch_beside_was_of_gradients_that_nobody_scaled() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    backward = f"if args.fp16:\n    optimizer.backward(loss)\nelse:\n    loss.backward()\n    {clip}\n"
    loop = LOOP.format("").replace("optimizer.backward(loss)\n", backward)
    result = rewrite(apex(loop, f"if args.fp16:\n    {WRAP.format(', dynamic_loss_scale=True')}\n", imports=IMPORT))
    assert result.after is not None
    assert clip in result.after
    assert not found(result, "AMP703")


def test_bfloat16_needs_no_scaler() -> None:
    result = rewrite(
        before(LOOP.format("optimizer.clip_master_grads(1.0)\nprint(optimizer.loss_scale)\n")), dtype="bfloat16"
    )
    assert result.after is not None
    assert "scaler" not in result.after
    assert "    loss.backward()\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" in result.after
    assert "print(1.0)" in result.after


def test_several_optimizers_in_one_program() -> None:
    source = """
    import torch
    from apex.fp16_utils import FP16_Optimizer
    from project import build, loader

    netG, netD = build(), build()
    optG = FP16_Optimizer(torch.optim.Adam(netG.parameters()), dynamic_loss_scale=True)
    optD = FP16_Optimizer(torch.optim.Adam(netD.parameters()), dynamic_loss_scale=True)

    for x, y in loader:
        lossD = netD(netG(x).detach()).mean()
        optD.backward(lossD)
        optD.step()
        lossG = netD(netG(x)).mean()
        optG.backward(lossG)
        optG.step()
    """
    result = rewrite(source)
    assert result.after is not None
    assert "optG = torch.optim.Adam(netG.parameters())" in result.after
    assert "scalerD.step(optD)" in result.after
    assert "scalerG.step(optG)" in result.after
    assert result.after.count("GradScaler(") == 2
    assert "FP16_Optimizer" not in result.after


# -- state and scale -------------------------------------------------------------------------------------------------


def test_reads_of_the_scale() -> None:
    loop = LOOP.format("print(optimizer.loss_scale, optimizer.loss_scaler.loss_scale, optimizer.cur_scale)\n")
    result = rewrite(before(loop))
    assert result.after is not None
    assert "print(scaler.get_scale(), scaler.get_scale(), scaler.get_scale())" in result.after


def test_the_scale_is_set() -> None:
    result = rewrite(before(LOOP.format("").rstrip() + "\noptimizer.loss_scale = 64"))
    assert result.after is not None
    assert "scaler.update(float(64))" in result.after


def test_overflow_is_a_scale_that_dropped() -> None:
    loop = (
        LOOP.format("").rstrip() + "\nif not optimizer.overflow:\n    scheduler.step()\nskipped += optimizer.overflow"
    )
    result = rewrite(before(loop))
    assert result.after is not None
    assert (
        "    scale = scaler.get_scale()\n    scaler.step(optimizer)\n    scaler.update()\n"
        "    if scaler.get_scale() >= scale:\n        scheduler.step()\n"
        "    skipped += scaler.get_scale() < scale\n"
    ) in result.after


def test_overflow_without_a_step_before_it_is_refused() -> None:
    loop = "loss = criterion(model(x), y)\noptimizer.backward(loss)\nif not optimizer.overflow:\n    optimizer.step()"
    check_refused(before(loop), "AMP707")


@pytest.mark.parametrize(
    ("save", "saved"),
    [
        (
            'torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)',
            'torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, path)',
        ),
        (
            'state = {\n    "optimizer": optimizer.state_dict(),\n    "step": 3,\n}',
            'state = {\n    "optimizer": optimizer.state_dict(),\n    "scaler": scaler.state_dict(),\n    "step": 3,\n}',
        ),
        (
            'state["optimizer"] = optimizer.state_dict()',
            'state["optimizer"] = optimizer.state_dict()\nstate["scaler"] = scaler.state_dict()',
        ),
        (
            "save(optimizer=optimizer.state_dict())",
            "save(optimizer=optimizer.state_dict(), scaler=scaler.state_dict())",
        ),
    ],
)
def test_the_scaler_is_saved_beside_the_optimizer(save: str, saved: str) -> None:
    check_rewrite(before(tail=save), after(tail=saved))


def test_the_scaler_is_loaded_where_there_is_one() -> None:
    load = 'optimizer.load_state_dict(checkpoint["optimizer"])'
    wrap = f"optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)\n{load}"
    result = rewrite(before(wrap=wrap))
    assert result.after is not None
    assert f'{load}\nif "scaler" in checkpoint:\n    scaler.load_state_dict(checkpoint["scaler"])\n' in result.after
    assert [f.review for f in found(result, "AMP706")] == ["review"]


@pytest.mark.parametrize(
    ("given", "loaded"),
    [
        ('optimizer, checkpoint["optimizer"]', True),
        ('state=checkpoint["optimizer"], holder=optimizer', True),
        ('model, checkpoint["model"]', False),
    ],
)
def test_a_function_that_loads_what_it_is_given_loads_no_scale(given: str, loaded: bool) -> None:
    helper = "\ndef load_partly(holder, state):\n    if state:\n        holder.load_state_dict(state)\n"
    source = before(
        tail=f'{helper}\nload_partly({given})\ntorch.save({{"optimizer": optimizer.state_dict()}}, "last.pt")'
    )
    result = rewrite(source)
    assert result.after is not None
    line = f'load_partly({given})\nif "scaler" in checkpoint:\n    scaler.load_state_dict(checkpoint["scaler"])\n'
    assert (line in result.after) is loaded
    assert [f.review for f in found(result, "AMP706") if "layout of their own" in f.message] == ["review"] * loaded


def test_a_state_loaded_before_wrapping_was_never_the_wrappers() -> None:
    model = 'model = build()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\noptimizer.load_state_dict(old["optimizer"])'
    check_rewrite(before(model=model), after(model=model))


def test_a_static_scale_needs_no_state() -> None:
    save = 'torch.save({"optimizer": optimizer.state_dict()}, path)'
    check_rewrite(
        before(wrap=", static_loss_scale=128.0", tail=save), after(", init_scale=128.0", value="128.0", tail=save)
    )


def test_a_state_saved_alone_is_announced() -> None:
    result = rewrite(before(tail="torch.save(optimizer.state_dict(), path)"))
    assert any("save scaler.state_dict() as well" in f.message for f in found(result, "AMP706"))


def test_the_inner_optimizer_is_the_optimizer() -> None:
    tail = "schedule(optimizer.optimizer)\ngroups = optimizer.optimizer.param_groups if args.fp16 else optimizer.param_groups"
    expected = "schedule(optimizer)\ngroups = optimizer.param_groups"
    check_rewrite(before(tail=tail, model=MODEL), after(tail=expected, model=MODEL))


def test_a_class_asked_for_to_reach_the_inner_optimizer_leaves_no_question() -> None:
    tail = "inner = optimizer.optimizer if isinstance(optimizer, FP16_Optimizer) else optimizer"
    result = check_rewrite(before(tail=tail, model=MODEL), after(tail="inner = optimizer", model=MODEL))
    assert not [f for f in result.findings if f.status == "manual"]


def test_a_class_asked_for_of_anything_else_is_reported() -> None:
    tail = "inner = optimizer.optimizer if isinstance(other, FP16_Optimizer) else optimizer"
    assert [f.code for f in rewrite(before(tail=tail)).findings if f.status == "manual"] == ["AMP707"]


# -- refused, left alone ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loop", "code"),
    [
        (LOOP.format("optimizer.inspect_master_grad_data()\n"), "AMP707"),
        (LOOP.format("show(optimizer.fp32_from_fp16_groups)\n"), "AMP707"),
        (LOOP.format("show(optimizer.loss_scaler.scale_window)\n"), "AMP707"),
        (LOOP.format("").replace("step()", "step(closure)"), "AMP212"),
        ("optimizer.step()", "AMP707"),
    ],
)
def test_what_has_no_counterpart_is_refused(loop: str, code: str) -> None:
    check_refused(before(loop), code)


@pytest.mark.parametrize(
    "wrap",
    [", **settings", ", dynamic_loss_scale=True, dynamic_loss_args=settings"],
)
def test_settings_out_of_sight_are_refused(wrap: str) -> None:
    check_refused(before(wrap=wrap), "AMP707")


def test_a_subclass_is_reported() -> None:
    source = """
    from apex.fp16_utils import FP16_Optimizer

    class Mine(FP16_Optimizer):
        pass
    """
    check_refused(source, "AMP707")


def test_a_program_of_which_the_forward_is_out_of_sight_is_refused() -> None:
    source = """
    from apex.fp16_utils import FP16_Optimizer

    class Agent:
        def __init__(self, optimizer):
            self.optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)

        def update(self, loss):
            self.optimizer.backward(loss)
            self.optimizer.step()
    """
    check_refused(source, "AMP502")


def test_an_fp16_optimizer_of_the_programs_own_is_left_alone() -> None:
    source = before(imports="from project.fp16 import FP16_Optimizer")
    result = rewrite(source)
    assert result.after is None
    assert not result.findings


# -- across functions and files --------------------------------------------------------------------------------------


def migrate_all(files: dict[str, str], **options: Any) -> dict[str, str | None]:
    sources = [SourceFile(Path(name), name, textwrap.dedent(text).lstrip("\n")) for name, text in files.items()]
    return {r.path: r.after for r in migrate(Program(sources), Options(**options))}


def test_the_scaler_is_handed_to_the_functions_that_train() -> None:
    result = migrate_all(
        {
            "main.py": """
            from apex.fp16_utils import FP16_Optimizer
            from engine import train
            from project import build, loader, sgd

            def main(args):
                model = build()
                optimizer = sgd(model.parameters())
                if args.fp16:
                    optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
                train(model, optimizer, args)
            """,
            "engine.py": """
            import torch

            def train(model, optimizer, args):
                for x, y in args.loader:
                    loss = model(x, y)
                    if args.fp16:
                        optimizer.backward(loss)
                    else:
                        loss.backward()
                    optimizer.step()
            """,
        }
    )
    assert result["main.py"] is not None
    assert '    scaler = torch.amp.GradScaler("cuda", enabled=bool(args.fp16))\n' in result["main.py"]
    assert "train(model, optimizer, scaler, args)" in result["main.py"]
    assert result["engine.py"] is not None
    assert "def train(model, optimizer, scaler, args):" in result["engine.py"]
    assert "scaler.scale(loss).backward()" in result["engine.py"]


def test_a_model_made_half_in_another_file_stays_float32() -> None:
    result = migrate_all(
        {
            "main.py": """
            from apex.fp16_utils import network_to_half
            from trainer import Trainer
            from project import build

            def main(args):
                model = build()
                if args.fp16:
                    model = network_to_half(model)
                Trainer(model, args).train()
            """,
            "trainer.py": """
            import torch
            from apex.fp16_utils import FP16_Optimizer

            class Trainer:
                def __init__(self, model, args):
                    self.model = model
                    self.args = args
                    self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                    if args.fp16:
                        self.optimizer = FP16_Optimizer(self.optimizer, dynamic_loss_scale=True)

                def train(self):
                    for x in self.args.loader:
                        loss = self.model(x)
                        if self.args.fp16:
                            self.optimizer.backward(loss)
                        else:
                            loss.backward()
                        self.optimizer.step()
            """,
        }
    )
    assert result["main.py"] is not None
    assert "half" not in result["main.py"]
    assert "if args.fp16:" not in result["main.py"]
    assert result["trainer.py"] is not None
    assert 'self.scaler = torch.amp.GradScaler("cuda", enabled=bool(args.fp16))' in result["trainer.py"]


BESIDE = {
    "train.py": """
    import torch
    from apex.fp16_utils import FP16_Optimizer, network_to_half
    from net import Net

    def main(args):
        model = Net().cuda()
        if args.fp16:
            model = network_to_half(model)
        optimizer = torch.optim.Adam(model.parameters())
        if args.fp16:
            optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
        for x, y in args.loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            if args.fp16:
                optimizer.backward(loss)
            else:
                loss.backward()
            optimizer.step()

    if __name__ == "__main__":
        main(parse())
    """,
    "net.py": """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x):
            return self.layer(x)

    def build(path):
        net = Net()
        net.load_state_dict(torch.load(path))
        return net
    """,
    "serve.py": """
    import torch
    from net import build

    def main(args):
        model = build(args.path).cuda()
        if args.precision == "half":
            model = HALF
        model.eval()
        with torch.no_grad():
            print(model(torch.ones(1, 4).cuda()))

    if __name__ == "__main__":
        main(parse())
    """,
}


@pytest.mark.parametrize("half", ["model.half()", "network_to_half(model)"])
def test_a_program_that_wraps_nothing_makes_models_of_its_own_half(half: str) -> None:
    files = {name: text.replace("HALF", half) for name, text in BESIDE.items()}
    if "network" in half:
        files["serve.py"] = files["serve.py"].replace(
            "from net", "from apex.fp16_utils import network_to_half\n    from net"
        )
    results = {r.path: r for r in rewrite_files(files).values()}
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    train, serve = results["train.py"].after, results["serve.py"].after
    assert train is not None
    assert "half" not in train
    assert "scaler.scale(loss).backward()" in train
    if "network" in half:
        assert serve is not None
        assert 'torch.autocast("cuda", dtype=torch.float16, enabled=args.precision == "half")' in serve
    else:
        assert serve is None


HANDED = {
    "main.py": """
    import torch
    from engine import Net

    def main(args):
        net = Net().cuda()
        if args.HALF:
            net = net.half()
        optimizer = torch.optim.Adam(net.parameters())
        net.fit(optimizer, args.loader, args.fp16)

    if __name__ == "__main__":
        main(parse())
    """,
    "engine.py": """
    import torch
    from apex.fp16_utils import FP16_Optimizer

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x):
            return self.layer(x)

        def fit(self, optimizer, loader, fp16):
            if fp16:
                optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(self(x), y)
                optimizer.zero_grad()
                if fp16:
                    optimizer.backward(loss)
                else:
                    loss.backward()
                optimizer.step()
    """,
}


@pytest.mark.parametrize(("half", "same"), [("fp16", True), ("half", False)])
def test_a_model_made_half_where_its_optimizer_is_made_is_the_one_that_is_trained(half: str, same: bool) -> None:
    results = rewrite_files({name: text.replace("HALF", half) for name, text in HANDED.items()})
    manual = {f.code for r in results.values() for f in r.findings if f.status == "manual"}
    told = {f.code for r in results.values() for f in r.findings if f.status == "note"}
    after = results["main.py"].after
    if same:
        assert after is not None
        assert "half" not in after
        assert "AMP531" not in told  # its method has a region of its own
        assert not manual
    else:
        assert after is None
        assert "AMP720" in manual


# -- executed --------------------------------------------------------------------------------------------------------

PROGRAM = """
import torch
from apex.fp16_utils import FP16_Optimizer, network_to_half

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
model = network_to_half(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = FP16_Optimizer(optimizer, {scale})
x, y = torch.randn(16, 4), torch.randn(16, 1)
losses, scales = [], []
for step in range(12):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x).float(), y)
    optimizer.backward(loss)
    norm = optimizer.clip_master_grads(1e-3)
    optimizer.step()
    losses.append(loss.item())
    scales.append(optimizer.loss_scale)
"""


@pytest.mark.parametrize(
    ("scale", "scales"),
    [
        ("static_loss_scale=128.0", [128.0] * 12),
        (
            'dynamic_loss_scale=True, dynamic_loss_args={"init_scale": 64.0, "scale_window": 5}',
            [64.0] * 4 + [128.0] * 5,
        ),
    ],
)
def test_the_migrated_program_trains(scale: str, scales: list[float]) -> None:
    result = rewrite(PROGRAM.format(scale=scale), device="cpu")
    assert result.after is not None
    assert result.status == "migrated"
    space: dict[str, Any] = {}
    exec(compile(result.after, "train.py", "exec"), space)
    assert space["losses"][-1] < space["losses"][0]
    assert space["scales"][: len(scales)] == scales
    # Clipped after unscaling: each step moves the weights by no more than lr times the norm asked for.
    gradients = [p.grad for p in space["model"].parameters()]
    assert torch_norm(gradients) <= 1.01e-3


def torch_norm(gradients: list[Any]) -> float:
    return float(sum(g.float().pow(2).sum() for g in gradients) ** 0.5)
