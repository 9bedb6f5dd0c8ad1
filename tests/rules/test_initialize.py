"""`amp.initialize`: the scaler that takes its place, its flags, what happens to the names it rebound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from amp_migrate.engine import Program, migrate
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile
from tests.rules.helpers import check_rewrite, check_untouched, rewrite
from tests.rules.programs import (
    APEX_LOOP,
    NATIVE_LOOP,
    SCALER,
    UNSCALED_LOOP,
    apex,
    check_refused,
    found,
    initialize,
    native,
)

SWITCH = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--opt-level", type=str, default="O1")
args = parser.parse_args()
"""


def loop(enabled: str | None = None, update: str = "") -> str:
    """The native loop with a switch in its autocast region, and with an argument to update."""
    text = NATIVE_LOOP.replace("update()", f"update({update})")
    return text if enabled is None else text.replace("float16)", f"float16, enabled={enabled})")


def scaler(*arguments: str) -> str:
    return SCALER.replace('"cuda"', ", ".join(['"cuda"', *arguments]))


# -- switches --------------------------------------------------------------------------------------------------------


def test_the_scaler_is_created_where_initialize_stood() -> None:
    check_rewrite(apex(), native())


@pytest.mark.parametrize("off", ['opt_level="O1", enabled=False', 'opt_level="O0"', 'opt_level="O0", loss_scale=1.0'])
def test_what_is_written_as_off_leaves_plain_float32_code(off: str) -> None:
    loop = "loss = criterion(model(x), y)\noptimizer.zero_grad()\nloss.backward()\noptimizer.step()\n"
    result = check_rewrite(apex(prepare=initialize(off)), native(loop, prepare=""))
    (finding,) = found(result, "AMP110")
    assert finding.review == "look"
    assert "written as off" in finding.message
    assert not [f for f in result.findings if f.code.startswith("AMP5")]


def test_o0_that_scales_its_loss_or_casts_is_switched_off_where_it_is_read() -> None:
    scaled = rewrite(apex(prepare=initialize('opt_level="O0", loss_scale=128.0')))
    assert "GradScaler" in str(scaled.after)
    assert "autocast" not in str(scaled.after)
    assert not [f for f in scaled.findings if f.code.startswith("AMP5")]
    cast = "@amp.half_function\ndef mix(a, b):\n    return a @ b\n\n\n"
    kept = rewrite(apex(prepare=cast + initialize('opt_level="O0"')))
    assert "enabled=False" in str(kept.after)


def test_a_run_time_enabled_flag_reaches_scaler_and_autocast() -> None:
    before = apex(prepare=initialize('opt_level="O1", enabled=args.fp16'), imports="from apex import amp\n" + SWITCH)
    check_rewrite(before, native(loop("args.fp16"), scaler("enabled=args.fp16"), imports=SWITCH))


def test_a_run_time_opt_level_is_on_unless_it_is_o0() -> None:
    before = apex(prepare=initialize("opt_level=args.opt_level"), imports="from apex import amp\n" + SWITCH)
    after = native(loop('args.opt_level != "O0"'), scaler('enabled=args.opt_level != "O0"'), imports=SWITCH)
    result = check_rewrite(before, after)
    assert "O2 and O3" in found(result, "AMP112")[0].message


def test_the_if_around_initialize_becomes_enabled() -> None:
    before = apex(
        APEX_LOOP.replace(
            "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()",
            "if args.fp16:\n    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n"
            "else:\n    loss.backward()",
        ),
        "if args.fp16:\n    " + initialize('opt_level="O1"'),
        imports="from apex import amp\n" + SWITCH,
    )
    check_rewrite(before, native(loop("args.fp16"), scaler("enabled=args.fp16"), imports=SWITCH))


@pytest.mark.parametrize(
    "declared", ['"--fp16", type=int, default=0', '"--fp16", default=None', '"--fp16", type=str, default=None']
)
def test_a_flag_that_is_no_bool_is_made_one_because_autocast_rejects_none(declared: str) -> None:
    options = SWITCH.replace('"--fp16", action="store_true"', declared)
    before = apex(prepare=initialize('opt_level="O1", enabled=args.fp16'), imports="from apex import amp\n" + options)
    check_rewrite(before, native(loop("bool(args.fp16)"), scaler("enabled=bool(args.fp16)"), imports=options))


def test_a_flag_assigned_none_is_made_a_bool() -> None:
    before = apex(prepare=initialize('opt_level="O1", enabled=use_amp'), imports="from apex import amp\nuse_amp = None")
    check_rewrite(before, native(loop("bool(use_amp)"), scaler("enabled=bool(use_amp)"), imports="use_amp = None"))


def test_fp16_asked_for_without_a_gpu_leaves_a_disabled_scaler_not_none() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader


        def main(args):
            model, optimizer = build()
            use_fp16 = args.fp16 and torch.cuda.is_available()
            if use_fp16:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                loss = criterion(model(x), y)
                if use_fp16:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
        """
    expected = """
        import torch

        from project import build, criterion, loader


        def main(args):
            model, optimizer = build()
            use_fp16 = args.fp16 and torch.cuda.is_available()
            scaler = torch.amp.GradScaler("cuda", enabled=bool(use_fp16))
            for x, y in loader:
                with torch.autocast("cuda", dtype=torch.float16, enabled=bool(use_fp16)):
                    loss = criterion(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """
    check_rewrite(source, expected)


def test_a_value_is_not_used_above_its_definition() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader


        def main(args):
            model, optimizer = build()
            if args.distributed:
                level = "O1" if args.fp16 else "O0"
                model, optimizer = amp.initialize(model, optimizer, opt_level=level)
            for x, y in loader:
                loss = criterion(model(x), y)
                if args.distributed:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=bool(args.distributed and args.fp16))' in after
    assert "level" not in after


# -- opt levels ------------------------------------------------------------------------------------------------------


def test_o2_becomes_autocast_over_float32_weights_and_the_difference_is_said_once() -> None:
    result = check_rewrite(apex(prepare=initialize('opt_level="O2"')), native())
    (finding,) = found(result, "AMP112")
    assert (finding.status, finding.review) == ("note", "look")
    assert "float32 weights" in finding.message
    assert "memory and speed" in finding.message


def test_o3_has_a_static_scale_of_one_so_it_needs_no_scaler_but_autocast() -> None:
    result = check_rewrite(apex(prepare=initialize('opt_level="O3"')), native(UNSCALED_LOOP, prepare=""))
    assert found(result, "AMP112")


def test_o1_is_not_announced_as_a_change_of_weights() -> None:
    assert not found(rewrite(apex()), "AMP112")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ('opt_level="O1", patch_torch_functions=False', "left O1 without its casts"),
        ("opt_level=args.level, patch_torch_functions=False", "left O1 without its casts"),
        ('opt_level="O0", cast_model_type=torch.half', "cast the model at O0 too"),
        ('opt_level="O2", cast_model_type=torch.float32', "kept all of the model in float32"),
        ('opt_level="O2", cast_model_type=torch.float16', ""),
        ('opt_level="O2", patch_torch_functions=False', ""),
        ('opt_level="O0", cast_model_type=torch.float32', ""),
    ],
)
def test_an_option_that_took_apex_out_of_the_precision_of_its_level_is_told(options: str, said: str) -> None:
    result = rewrite(apex(prepare=initialize(options)))
    told = [f for f in found(result, "AMP112") if "O2 kept" not in f.message and "O2 and O3" not in f.message]
    assert [said in f.message for f in told] == ([True] if said else [])
    assert all(f.review == "look" for f in told)


def test_a_name_that_a_nested_function_calls_its_own_stays_one_of_the_function() -> None:
    source = """
        from apex import amp


        def main(args):
            def build():
                nonlocal optimizer
                optimizer = make(model)

            model = network()
            build()
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    compile(after, "train.py", "exec")
    assert "optimizer = optimizer" in after
    assert "model = model" not in after


def test_settings_of_o2_that_only_concern_its_half_weights_go() -> None:
    arguments = 'opt_level="O2", keep_batchnorm_fp32=True, master_weights=True, cast_model_type=None, verbosity=0'
    check_rewrite(apex(prepare=initialize(arguments)), native())


# -- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "amp.initialize(model, optimizer)",
        'amp.initialize(model, optimizer, True, "O1")',
        'amp.initialize(models=model, optimizers=optimizer, opt_level="O1")',
        'amp.initialize(model, optimizer, opt_level="O" "1")',
        'amp.initialize(model, optimizer, opt_level="O1",)',
        'amp.initialize((model), (optimizer), opt_level=("O1"))',
        'amp.initialize(model, optimizer, **{"opt_level": "O1"})',
    ],
)
def test_arguments_are_read_however_they_are_given(call: str) -> None:
    check_rewrite(apex(prepare=f"model, optimizer = {call}"), native())


@pytest.mark.parametrize("options", ['dict(opt_level="O1")', '{"opt_level": "O1"}'])
def test_arguments_from_a_literal_dict_are_read_and_the_dict_goes(options: str) -> None:
    prepare = f"options = {options}\nmodel, optimizer = amp.initialize(model, optimizer, **options)"
    check_rewrite(apex(prepare=prepare), native())


def test_a_scale_from_a_literal_dict_is_not_lost() -> None:
    prepare = 'options = {"loss_scale": 64.0}\nmodel, optimizer = amp.initialize(model, optimizer, **options)'
    check_rewrite(apex(prepare=prepare), native(loop(update="64.0"), scaler("init_scale=64.0")))


@pytest.mark.parametrize("arguments", ["*everything", "**config.amp"])
def test_arguments_out_of_sight_are_a_manual_finding(arguments: str) -> None:
    result = check_refused(apex(prepare=f"model, optimizer = amp.initialize({arguments})"), "AMP111")
    assert {f.status for f in result.findings} == {"manual"}


def test_a_loss_beside_an_unreadable_initialize_waits_for_it() -> None:
    result = check_refused(apex(prepare="model, optimizer = amp.initialize(*everything)"), "AMP111")
    (loss,) = [f for f in result.findings if f.construct == "amp.scale_loss"]
    assert "waits for" in loss.message


# -- what it returned ------------------------------------------------------------------------------------------------


def test_a_discarded_result_leaves_nothing_behind() -> None:
    check_rewrite(apex(prepare='amp.initialize(model, optimizer, opt_level="O1")'), native())


def test_renamed_results_keep_their_names() -> None:
    before = apex(
        APEX_LOOP.replace("model", "net").replace("optimizer", "opt"),
        'net, opt = amp.initialize(model, optimizer, opt_level="O1")',
    )
    after = native(
        NATIVE_LOOP.replace("model", "net").replace("optimizer", "opt"), SCALER + "\nnet, opt = model, optimizer"
    )
    check_rewrite(before, after)


def test_only_the_renamed_result_is_rebound() -> None:
    before = apex(
        APEX_LOOP.replace("model(", "net("), 'net, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    )
    check_rewrite(before, native(NATIVE_LOOP.replace("model(", "net("), SCALER + "\nnet = model"))


def test_lists_of_models_and_optimizers_keep_their_shape() -> None:
    model = "nets = [build(), build()]\noptims = [torch.optim.SGD(n.parameters(), lr=0.1) for n in nets]"
    before = apex(
        """
        loss = criterion(nets[1](nets[0](x)), y)
        with amp.scale_loss(loss, optims) as scaled_loss:
            scaled_loss.backward()
        for optim in optims:
            optim.step()
        """,
        'models, optims = amp.initialize(nets, optims, opt_level="O1")',
        model=model,
    ).replace("nets[1](nets[0](x))", "models[1](models[0](x))")
    after = native(
        """
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(models[1](models[0](x)), y)
        scaler.scale(loss).backward()
        for optim in optims:
            scaler.step(optim)
        scaler.update()
        """,
        SCALER + "\nmodels = nets",
        model=model,
    )
    check_rewrite(before, after)


def test_a_list_display_is_taken_apart() -> None:
    check_rewrite(apex(prepare='[model], [optimizer] = amp.initialize([model], [optimizer], opt_level="O1")'), native())


def test_an_expression_that_initialize_was_given_is_kept() -> None:
    before = apex(prepare='model, optimizer = amp.initialize(model.cuda(), optimizer, opt_level="O1")')
    check_rewrite(before, native(prepare=SCALER + "\nmodel = model.cuda()"))


@pytest.mark.parametrize("arguments", ["", ", optimizers=None", ", None"])
def test_without_an_optimizer_there_is_no_scaler_only_autocast(arguments: str) -> None:
    source = f"""
        import torch
        from apex import amp

        from project import build, images

        model = build()
        model = amp.initialize(model{arguments}, opt_level="O1")
        with torch.no_grad():
            for image in images:
                print(model(image).argmax())
        """
    if ", None" in arguments:
        source = source.replace("(model, None, opt_level", "(model, None, True, opt_level").replace(
            'opt_level="O1"', '"O1"'
        )
    expected = """
        import torch

        from project import build, images

        model = build()
        with torch.no_grad():
            for image in images:
                with torch.autocast("cuda", dtype=torch.float16):
                    print(model(image).argmax())
        """
    result = check_rewrite(source, expected)
    assert found(result, "AMP115")


def test_a_block_left_empty_gets_a_pass() -> None:
    source = """
        import torch
        from apex import amp


        def prepare(model):
            if torch.cuda.is_available():
                amp.initialize(model, opt_level="O1")


        def run(model, x):
            with torch.no_grad():
                return model(x).argmax()
        """
    after = rewrite(source).after
    assert after is not None
    compile(after, "train.py", "exec")
    assert "def prepare(model):\n    pass\n" in after


# -- where it lives --------------------------------------------------------------------------------------------------


def test_initialize_in_a_loop_over_folds_makes_a_scaler_per_fold() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, folds

        for fold in folds:
            model, optimizer = build()
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in fold:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    expected = """
        import torch

        from project import build, criterion, folds

        for fold in folds:
            model, optimizer = build()
            scaler = torch.amp.GradScaler("cuda")
            for x, y in fold:
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = criterion(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """
    check_rewrite(source, expected)


def test_a_scaler_is_not_created_in_the_function_of_one_epoch() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader


        def train_epoch(model, optimizer):
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()


        def main():
            model, optimizer = build()
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for epoch in range(10):
                train_epoch(model, optimizer)
        """
    expected = """
        import torch

        from project import build, criterion, loader


        def train_epoch(model, optimizer, scaler):
            for x, y in loader:
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = criterion(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()


        def main():
            model, optimizer = build()
            scaler = torch.amp.GradScaler("cuda")
            for epoch in range(10):
                train_epoch(model, optimizer, scaler)
        """
    check_rewrite(source, expected)


def test_a_name_in_use_is_not_taken_for_the_scaler() -> None:
    taken = "from sklearn.preprocessing import StandardScaler\nscaler = StandardScaler()"
    before = apex(imports=f"from apex import amp\n{taken}")
    after = native(NATIVE_LOOP.replace("scaler.", "grad_scaler."), "grad_" + SCALER, imports=taken)
    check_rewrite(before, after)


def test_the_device_type_is_a_string_also_where_the_program_has_a_torch_device() -> None:
    model = (
        'device = torch.device("cuda")\nmodel = build().to(device)\n'
        + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    )
    check_rewrite(apex(model=model), native(model=model))


def test_another_device_is_named_in_scaler_and_autocast() -> None:
    check_rewrite(apex(), native().replace('"cuda"', '"xpu"'), device="xpu")


def test_bfloat16_has_no_scaler_and_plain_steps() -> None:
    after = native(
        """
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        """,
        "",
    )
    check_rewrite(apex(), after, dtype="bfloat16")


def test_quotes_follow_the_file() -> None:
    before = apex().replace('"', "'") + "print('done')\n"
    check_rewrite(before, native().replace('"', "'") + "print('done')\n")


# -- what is not migrated --------------------------------------------------------------------------------------------


def test_initialize_without_a_loss_in_sight_is_reported() -> None:
    source = """
        from apex import amp


        def prepare(model, optimizer):
            return amp.initialize(model, optimizer, opt_level="O1")
        """
    check_refused(source, "AMP116")


@pytest.mark.parametrize(
    "source",
    [
        "import mylib.amp as amp\nmodel, optimizer = amp.initialize(model, optimizer)  # apex\n",
        "class Net:\n    def initialize(self):\n        return 'apex'\nnet = Net()\nnet.initialize()\n",
        "def initialize(model, optimizer):\n    return model, optimizer\ninitialize(1, 2)  # apex\n",
    ],
)
def test_other_initialize_calls_are_left_alone(source: str) -> None:
    check_untouched(source)


def test_losses_wait_for_an_initialize_in_sight_whose_arguments_are_not() -> None:
    prepare = "from apex import amp\n\n\ndef prepare(*things):\n    return amp.initialize(*things)\n"
    train = "from apex import amp\n\n\ndef {0}(loss, {1}):\n    with amp.scale_loss(loss, {1}) as scaled:\n"
    train += "        scaled.backward()\n    {1}.step()\n"
    sources = [
        SourceFile(Path(name), name, text)
        for name, text in (
            ("prepare.py", prepare),
            ("one.py", train.format("one", "a")),
            ("two.py", train.format("two", "b")),
        )
    ]
    first, *others = migrate(Program(sources), Options())
    assert [f.code for f in first.findings] == ["AMP111"]
    for result in others:
        (finding,) = result.findings
        assert "waits for prepare.py:5 (AMP111)" in finding.message


EVALUATE = """
    import torch
    from apex import amp

    from project import build, loader

    model, optimizer = build()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    with torch.no_grad():
        for x in loader:
            print(model(x))
"""


def test_an_optimizer_that_nothing_steps_needs_no_scaler() -> None:
    after = rewrite(EVALUATE).after
    assert after is not None
    assert "GradScaler" not in after
    assert "apex" not in after
    assert after.count("torch.autocast(") == 1


@pytest.mark.parametrize("use", ["trainer = Trainer(model, optimizer)", "optimizer.step()"])
def test_an_optimizer_that_something_may_step_needs_its_losses_in_sight(use: str) -> None:
    source = EVALUATE.replace("build, loader", "Trainer, build, loader") + f"    {use}\n"
    assert [f.code for f in rewrite(source).findings if f.status == "manual"][:1] == ["AMP116"]


def test_names_that_only_carried_the_result_back_go() -> None:
    result = rewrite(
        """
        import torch
        from apex import amp

        class Trainer:
            def __init__(self, network, optimizer, fp16):
                self.network = network
                self.optimizer = optimizer
                if fp16:
                    model, optim = amp.initialize(self.network, self.optimizer, opt_level="O1")
                    self.network = model
                    self.optimizer = optim

            def step(self, x):
                loss = self.network(x).sum()
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
        """
    )
    assert result.after is not None
    assert (
        "        self.optimizer = optimizer\n"
        '        self.scaler = torch.amp.GradScaler("cuda", enabled=bool(fp16))\n'
        "\n"
        "    def step(self, x):\n" in result.after
    )


def test_names_that_are_used_again_stay() -> None:
    result = rewrite(
        """
        import torch
        from apex import amp

        class Trainer:
            def __init__(self, network, optimizer):
                self.network = network
                self.optimizer = optimizer
                model, optim = amp.initialize(self.network, self.optimizer, opt_level="O1")
                self.network = model
                self.optimizer = optim
                self.scheduler = torch.optim.lr_scheduler.StepLR(optim, 1)

            def step(self, x):
                loss = self.network(x).sum()
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
        """
    )
    assert result.after is not None
    assert "        optim = self.optimizer\n        self.optimizer = optim\n" in result.after
    assert "StepLR(optim, 1)" in result.after
    assert "model = " not in result.after


@pytest.mark.parametrize("signature", ["model, steps, optimizer=None", "model, steps"])
def test_an_optimizer_that_may_be_none_leaves_the_model_alone(signature: str) -> None:
    body = "" if "None" in signature else "    optimizer, scheduler = None, None\n"
    source = (
        f"import torch\nfrom apex import amp\n\n\ndef prepare({signature}):\n{body}"
        "    if steps is not None:\n        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        '    prepared = amp.initialize(model, optimizers=optimizer, opt_level="O1")\n'
        "    model, optimizer = prepared if steps is not None else (prepared, None)\n    return model, optimizer\n\n\n"
        "def train(model, x):\n    model, optimizer = prepare(model, 1)\n    loss = model(x).sum()\n"
        "    with amp.scale_loss(loss, optimizer) as scaled:\n        scaled.backward()\n    optimizer.step()\n"
    )
    after = rewrite(source).after
    assert after is not None
    assert "prepared = (model, optimizer) if optimizer is not None else model\n" in after
    names: dict[str, Any] = {}
    exec(after, names)
    model = object()
    assert names["prepare"](model, None) == (model, None)


def test_a_scaler_made_in_one_turn_of_a_loop_is_the_one_of_all_turns() -> None:
    source = """
        import torch
        from apex import amp
        from project import args, build, criterion, loader


        def main():
            for epoch in range(args.first, args.epochs):
                if epoch == args.first:
                    model = build()
                    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                    if args.half:
                        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
                for x, y in loader:
                    loss = criterion(model(x), y)
                    if args.half:
                        with amp.scale_loss(loss, optimizer) as scaled_loss:
                            scaled_loss.backward()
                    else:
                        loss.backward()
                    optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    assert (
        "            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        '            scaler = torch.amp.GradScaler("cuda", enabled=bool(args.half))\n'
    ) in after
    assert after.count("GradScaler(") == 1


def test_a_parameter_that_is_none_by_default_is_made_a_bool() -> None:
    """`is_enabled()` gives back what the scaler was given, and autocast refuses None."""
    result = rewrite(
        """
        import torch
        from apex import amp


        def main(model, optimizer, loader, criterion, level=None):
            if level:
                model, optimizer = amp.initialize(model, optimizer, opt_level=level)
            for x, y in loader:
                loss = criterion(model(x), y)
                optimizer.zero_grad()
                if level:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
        """,
        device="cpu",
    )
    assert result.after is not None, result.findings
    names: dict[str, Any] = {}
    exec(result.after, names)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.clone()
    names["main"](model, optimizer, [(torch.ones(3, 2), torch.ones(3, 1))], torch.nn.functional.mse_loss)
    assert not torch.equal(before, model.weight)


@pytest.mark.parametrize(
    ("option", "asked"),
    [
        ('default="O2", choices=["O1", "O2"]', False),
        ('required=True, choices=["O1", "O2", "O3"]', False),
        ('default="O2", choices=["O0", "O1", "O2"]', True),
        ('default="O2"', True),
    ],
)
def test_a_level_that_cannot_be_o0_is_not_asked_for(option: str, asked: bool) -> None:
    parser = f'parser = argparse.ArgumentParser()\nparser.add_argument("--level", {option})\nargs = parser.parse_args()'
    imports = f"import argparse\nfrom apex import amp\n{parser}"
    after = rewrite(apex(prepare=initialize("opt_level=args.level"), imports=imports)).after
    assert after is not None
    assert ("O0" in after.replace(option, "")) is asked


OPTION = """
import argparse
import torch
from apex import amp
from zoo import loader, Net

parser = argparse.ArgumentParser()
parser.add_argument("--opt-level", type=strGIVEN)
args = parser.parse_args()
SET
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level)
for x, y in loader:
    optimizer.zero_grad()
    loss = model(x, y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("given", "set_", "said"),
    [
        ("", "", True),
        (', default="O1"', "", False),
        (", required=True", "", False),
        ("", 'args.opt_level = args.opt_level or "O1"', False),
    ],
)
def test_a_level_that_a_run_may_leave_out_is_told(given: str, set_: str, said: bool) -> None:
    (finding,) = found(rewrite(OPTION.replace("GIVEN", given).replace("SET", set_)), "AMP110")
    assert ("without --opt-level, which has no default, Apex raised" in finding.message) is said


@pytest.mark.parametrize(
    ("flag", "raised"),
    [
        ("bool(args.opt_level)", False),
        ("args.opt_level is not None", False),
        ("args.opt_level", False),
        ("torch.cuda.is_available()", True),
    ],
)
def test_a_level_is_not_left_out_where_a_name_made_of_it_is_asked(flag: str, raised: bool) -> None:
    text = OPTION.replace("GIVEN", "").replace("SET", f"fp16 = {flag}")
    text = text.replace("model, optimizer = amp", "if fp16:\n    model, optimizer = amp")
    text = text.replace(
        "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()", BRANCH
    )
    (finding,) = found(rewrite(text), "AMP110")
    assert ("which has no default, Apex raised" in finding.message) is raised


BRANCH = """    if fp16:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()"""
