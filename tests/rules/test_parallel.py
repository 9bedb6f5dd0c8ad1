from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from amp_migrate.rules.parts import parallel
from tests.rules.helpers import (
    check_manual,
    check_rewrite,
    check_untouched,
    rewrite,
    rewrite_files,
    run_alone,
    texts_of,
)


@pytest.mark.parametrize("example", [e for c in parallel.CODES for e in c.examples])
def test_the_documented_examples_hold(example: Any) -> None:
    check_rewrite(example.before, example.after)


@pytest.mark.parametrize(
    "call",
    [
        "DDP(model)",
        "DDP(model, delay_allreduce=True)",
        "DDP(model, 10000000, True)",
        "DDP(model, message_size=2**20, num_allreduce_streams=2, retain_allreduce_buffers=True)",
        "DDP(model, allreduce_always_fp32=True, gradient_predivide_factor=2.0, gradient_average=True)",
        "DDP(module=model, prof=False, allreduce_trigger_params=[model.weight], allreduce_communicators=None)",
    ],
)
def test_apex_settings_go(call: str) -> None:
    kept = "module=model" if "module=" in call else "model"
    check_rewrite(
        f"""
        from apex.parallel import DistributedDataParallel as DDP

        def wrap(model):
            return {call}
        """,
        f"""
        from torch.nn.parallel import DistributedDataParallel as DDP

        def wrap(model):
            return DDP({kept})
        """,
    )


def test_arguments_that_torch_takes_stay() -> None:
    check_rewrite(
        """
        from apex.parallel import DistributedDataParallel

        def wrap(model, rank):
            return DistributedDataParallel(model, delay_allreduce=True, device_ids=[rank])
        """,
        """
        from torch.nn.parallel import DistributedDataParallel

        def wrap(model, rank):
            return DistributedDataParallel(model, device_ids=[rank])
        """,
    )


def test_an_argument_that_neither_takes_is_pointed_at() -> None:
    result = rewrite(
        """
        from apex.parallel import DistributedDataParallel as DDP

        def wrap(model):
            return DDP(model, deay_allreduce=True)
        """
    )
    (finding,) = [f for f in result.findings if f.code == "AMP601"]
    assert finding.review == "review"
    assert "deay_allreduce" in finding.message


def test_delay_allreduce_is_said_to_tolerate_unused_parameters() -> None:
    result = rewrite(
        """
        from apex.parallel import DistributedDataParallel as DDP

        def wrap(model):
            return DDP(model, delay_allreduce=True)
        """
    )
    (finding,) = [f for f in result.findings if f.code == "AMP601"]
    assert finding.status == "done"
    assert finding.review == "look"
    assert "find_unused_parameters=True" in finding.message


# -- the device ------------------------------------------------------------------------------------------------------


def test_the_device_is_the_one_the_program_sets() -> None:
    check_rewrite(
        """
        import torch
        from apex.parallel import DistributedDataParallel as DDP

        class Trainer:
            def __init__(self, args, model):
                self.args = args
                torch.cuda.set_device(self.args.gpu)
                self.model = model

            def wrap(self):
                self.model = DDP(self.model, delay_allreduce=True)
        """,
        """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP

        class Trainer:
            def __init__(self, args, model):
                self.args = args
                torch.cuda.set_device(self.args.gpu)
                self.model = model

            def wrap(self):
                self.model = DDP(self.model, device_ids=[self.args.gpu])
        """,
    )


@pytest.mark.parametrize(
    ("elsewhere", "given"), [('torch.device("cpu")', ""), ("torch.device(rank)", ", device_ids=[device]")]
)
def test_a_device_that_is_set_on_some_ways_alone(elsewhere: str, given: str) -> None:
    """Torch's class refuses a CPU in `device_ids`; without them it wraps a model wherever that is."""
    program = """
        import torch
        from apex.parallel import DistributedDataParallel as DDP

        def main(rank, model):
            if torch.cuda.is_available():
                device = torch.device("cuda", rank)
                torch.cuda.set_device(device)
            else:
                device = ELSEWHERE
            return DDP(model.to(device))
        """.replace("ELSEWHERE", elsewhere)
    after = program.replace("apex.parallel", "torch.nn.parallel").replace("to(device))", f"to(device){given})")
    check_rewrite(program, after)


@pytest.mark.parametrize(
    "setting",
    [
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",  # would have to be computed again
        "torch.cuda.set_device(rank % torch.cuda.device_count())",
        "pass",
    ],
)
def test_a_device_out_of_sight_is_left_to_the_module(setting: str) -> None:
    check_rewrite(
        f"""
        import os
        import torch
        from apex.parallel import DistributedDataParallel as DDP

        def main(rank, model):
            {setting}
            print(os.getpid(), torch.__version__)
            return DDP(model)
        """,
        f"""
        import os
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP

        def main(rank, model):
            {setting}
            print(os.getpid(), torch.__version__)
            return DDP(model)
        """,
    )


def test_a_name_of_another_function_is_not_taken_for_the_device() -> None:
    result = rewrite(
        """
        import torch
        from apex.parallel import DistributedDataParallel as DDP

        def setup():
            local = 3
            torch.cuda.set_device(local)

        def wrap(model):
            return DDP(model)
        """
    )
    assert result.after is not None
    assert "return DDP(model)\n" in result.after


def test_a_device_set_below_the_call_is_not_read_above_it() -> None:
    result = rewrite(
        """
        import torch
        from apex.parallel import DistributedDataParallel as DDP

        def main(model, pick):
            model = DDP(model)
            device = pick()
            torch.cuda.set_device(device)
            return model
        """
    )
    assert result.after is not None
    assert "model = DDP(model)\n" in result.after


def test_the_device_that_torchs_wrapper_is_given_beside_it_is_taken() -> None:
    check_rewrite(
        """
        import apex
        from torch import nn

        def wrap(config, model):
            if config.use_apex:
                model = model.half()
                model = apex.parallel.DistributedDataParallel(model, delay_allreduce=True)
            else:
                model = nn.parallel.DistributedDataParallel(model, device_ids=[config.local_rank])
            return model
        """,
        """
        from torch import nn

        def wrap(config, model):
            if config.use_apex:
                model = model.half()
                model = nn.parallel.DistributedDataParallel(model, device_ids=[config.local_rank])
            else:
                model = nn.parallel.DistributedDataParallel(model, device_ids=[config.local_rank])
            return model
        """,
    )


# -- names -----------------------------------------------------------------------------------------------------------


def test_the_name_torch_has_in_the_file_is_used() -> None:
    check_rewrite(
        """
        from apex.parallel import DistributedDataParallel as DDP
        from torch.nn.parallel import DistributedDataParallel as TorchDDP

        def wrap(model, plain):
            if plain:
                return model
            return DDP(model)

        def unwrap(model):
            return model.module if isinstance(model, (DDP, TorchDDP)) else model
        """,
        """
        from torch.nn.parallel import DistributedDataParallel as TorchDDP

        def wrap(model, plain):
            if plain:
                return model
            return TorchDDP(model)

        def unwrap(model):
            return model.module if isinstance(model, TorchDDP) else model
        """,
    )


@pytest.mark.parametrize("alias", ["ApexDDP", "apex_DDP", "DDP_apex", "ADDP"])
def test_a_name_that_speaks_of_apex_is_shortened(alias: str) -> None:
    check_rewrite(
        f"""
        from apex.parallel import DistributedDataParallel as {alias}

        def wrap(model):
            return {alias}(model)
        """,
        """
        from torch.nn.parallel import DistributedDataParallel as DDP

        def wrap(model):
            return DDP(model)
        """,
    )


def test_dotted_uses_follow_how_the_file_names_torch() -> None:
    check_rewrite(
        """
        import apex
        import torch.nn as nn

        def wrap(model):
            return apex.parallel.DistributedDataParallel(model)
        """,
        """
        import torch.nn as nn

        def wrap(model):
            return nn.parallel.DistributedDataParallel(model)
        """,
    )


def test_an_import_inside_a_function_for_want_of_apex_goes() -> None:
    check_rewrite(
        """
        import torch

        def wrap(args, model):
            if args.local_rank != -1:
                try:
                    from apex.parallel import DistributedDataParallel as DDP
                except ImportError:
                    raise ImportError("Please install apex to use distributed training.")
                torch.cuda.set_device(args.local_rank)
                model = DDP(model)
            return model
        """,
        """
        import torch

        def wrap(args, model):
            if args.local_rank != -1:
                torch.cuda.set_device(args.local_rank)
                model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.local_rank])
            return model
        """,
    )


# -- what is left to a person ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["DDP(model, gradient_average=False)", "DDP(model, gradient_average=args.mean)"])
def test_gradients_that_are_not_averaged_are_left_alone(call: str) -> None:
    result = check_manual(
        f"""
        from apex.parallel import DistributedDataParallel as DDP

        def wrap(model, args):
            return {call}
        """,
        "AMP601",
    )
    assert result.after is None


def test_unpacked_arguments_are_left_alone() -> None:
    result = check_manual(
        """
        from apex.parallel import DistributedDataParallel as DDP

        def wrap(model, kwargs):
            return DDP(model, **kwargs)
        """,
        "AMP601",
    )
    assert result.after is None


SWITCHING = """
    import torch
    from apex.parallel import DistributedDataParallel as DDP


    class Trainer:
        def __init__(self, model):
            self.model = DDP(model)

        def train_step(self, x, last):
            if last:
                self.model.enable_allreduce()
            else:
                self.model.disable_allreduce()
            self.model(x).sum().backward()
"""
REDUCED = """

import os, sys

torch.distributed.init_process_group("gloo", init_method=sys.argv[1], rank=int(sys.argv[2]), world_size=2)
model = torch.nn.Linear(2, 1, bias=False)
trainer = Trainer(model)
x = torch.full((1, 2), float(sys.argv[2]) + 1.0)  # the gradient of a step is 1 or 2
trainer.train_step(x, last=False)
first = model.weight.grad.flatten().tolist()
trainer.train_step(x, last=True)
print(first, model.weight.grad.flatten().tolist())
torch.distributed.destroy_process_group()
"""


def test_the_reduction_is_switched_by_the_attribute_of_no_sync(tmp_path: Path) -> None:
    result = rewrite(SWITCHING)
    assert result.after is not None
    assert "apex" not in result.after
    assert "        if last:\n            self.model.require_backward_grad_sync = True\n" in result.after
    assert "        else:\n            self.model.require_backward_grad_sync = False\n" in result.after
    switched = [f for f in result.findings if f.construct.endswith("_allreduce")]
    assert {(f.line, f.code, f.status, f.review) for f in switched} == {
        (11, "AMP601", "done", "review"),
        (13, "AMP601", "done", "review"),
    }
    script = tmp_path / "train.py"
    script.write_text(result.after + REDUCED)
    command = [sys.executable, str(script), f"file://{tmp_path}/meet"]
    runs = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
    printed = [run.communicate(timeout=120)[0].strip() for run in runs]
    assert printed == ["[1.0, 1.0] [3.0, 3.0]", "[2.0, 2.0] [3.0, 3.0]"]  # accumulated alone, then averaged whole


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.model.disable_allreduce()", "stop = self.model.disable_allreduce"),
        ("self.model.disable_allreduce()", "done = self.model.disable_allreduce()"),
        ("    def train_step", "    def disable_allreduce(self):\n            pass\n\n        def train_step"),
    ],
)
def test_a_switch_that_is_no_statement_is_left_alone(old: str, new: str) -> None:
    source = SWITCHING.replace(old, new)
    assert source != SWITCHING
    assert check_manual(source, "AMP601").after is None


def test_a_switch_in_another_program_of_the_tree_is_no_reason() -> None:
    wrap = "import torch\nfrom apex.parallel import DistributedDataParallel as DDP\n\n\ndef wrap(model):\n"
    files = {
        "one/wrap.py": wrap + "    return DDP(model)\n",
        "two/train.py": "def stop(model):\n    model.disable_allreduce()\n",
    }
    assert "torch.nn.parallel" in (rewrite_files(files)["one/wrap.py"].after or "")
    files["main.py"] = "from one.wrap import wrap\nfrom two.train import stop\n"
    assert rewrite_files(files)["one/wrap.py"].after is None


@pytest.mark.parametrize("name", ["Reducer", "distributed.flat_dist_call"])
def test_reducing_by_hand_is_reported(name: str) -> None:
    module, _, last = f"apex.parallel.{name}".rpartition(".")
    result = check_manual(
        f"""
        from {module} import {last}

        def reduce(model):
            return {last}(model)
        """,
        "AMP602",
    )
    assert result.after is None


def test_starting_processes_with_apex_is_reported() -> None:
    result = check_manual(
        """
        import subprocess
        import sys

        subprocess.check_call([sys.executable, "-m", "apex.parallel.multiproc", "train.py"])
        """,
        "AMP603",
    )
    assert result.after is None


def test_a_docstring_about_the_launcher_is_noted() -> None:
    result = rewrite('"""Run me: python -m apex.parallel.multiproc train.py"""\n')
    assert [(f.code, f.status) for f in result.findings] == [("AMP603", "note")]


def test_torchs_own_is_untouched() -> None:
    check_untouched(
        """
        from torch.nn.parallel import DistributedDataParallel as DDP

        apex = "the top"

        def wrap(model):
            return DDP(model, device_ids=[0])
        """
    )


# -- what is emitted runs --------------------------------------------------------------------------------------------


TRAINED = """

torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
model = wrap(torch.nn.Linear(2, 1))
model(torch.ones(1, 2)).sum().backward()
print(model.module.weight.grad.tolist())
torch.distributed.destroy_process_group()
"""


def test_the_migrated_model_trains(tmp_path: Path) -> None:
    """In a process of its own: what a process group waits for in vain ends with it."""
    result = rewrite(
        """
        import torch
        from apex.parallel import DistributedDataParallel as DDP

        def wrap(model):
            return DDP(model, delay_allreduce=True, message_size=10)
        """
    )
    assert result.after is not None
    printed, errors = run_alone(tmp_path, result.after + TRAINED)
    assert printed == "[[1.0, 1.0]]", errors


def test_a_native_branch_that_never_ran_loses_what_torch_does_not_take() -> None:
    check_rewrite(
        """
        import torch
        from apex.parallel import DistributedDataParallel

        def wrap(model, args):
            if args.apex:
                from apex import amp
                model = DistributedDataParallel(model, delay_allreduce=True)
            else:
                model = torch.nn.parallel.DistributedDataParallel(model, message_size=1, broadcast_buffers=False)
            return model
        """,
        """
        import torch

        def wrap(model, args):
            model = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
            return model
        """,
    )


DERIVED = """
    try:
        from apex.parallel import DistributedDataParallel

        class Reaching(DistributedDataParallel):
            {init}
            def __getattr__(self, name):
                try:
                    return super().__getattr__(name)
                except AttributeError:
                    return getattr(self.module, name)
    except ImportError:
        pass
"""
TRAINER = """
    from lib import wrappers

    def wrap(model):
        return wrappers.Reaching({arguments})
"""
FORWARDS = """
            def __init__(self, {own}*args, **kwargs):
                super().__init__({given}*args, **kwargs)
"""
NAMES_ALL = """
            def __init__(self, module, delay_allreduce=False):
                super().__init__(module, delay_allreduce=delay_allreduce)
"""


@pytest.mark.parametrize(
    ("init", "given", "kept"),
    [
        ("", "model, delay_allreduce=True", "model"),
        ("", "model, 10000000, True", "model"),
        (FORWARDS.format(own="", given=""), "model, delay_allreduce=True", "model"),
        (FORWARDS.format(own="module, ", given="module, "), "model, delay_allreduce=True", "model"),
        (NAMES_ALL, "model, delay_allreduce=True", "model, delay_allreduce=True"),
    ],
)
def test_a_class_derived_from_apexs_is_constructed_as_torchs_takes_it(init: str, given: str, kept: str) -> None:
    texts = {
        "lib/__init__.py": "",
        "lib/wrappers.py": DERIVED.replace("{init}", init.strip()),
        "train.py": TRAINER.format(arguments=given),
    }
    results = rewrite_files(texts)
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    after = texts_of(results)
    assert f"wrappers.Reaching({kept})" in after["train.py"]
    assert "delay_allreduce=delay_allreduce" not in after["lib/wrappers.py"]
    taken: list[tuple[Any, Any]] = []
    space: dict[str, Any] = {}
    wrappers = after["lib/wrappers.py"].replace("from torch.nn.parallel import DistributedDataParallel", "")

    class Torchs:
        def __init__(self, module: Any, **options: Any) -> None:
            taken.append((module, options))

    space["DistributedDataParallel"] = Torchs
    exec(wrappers, space)
    exec(after["train.py"].replace("from lib import wrappers", ""), one := {"wrappers": SimpleNamespace(**space)})
    one["wrap"](model := object())  # type: ignore[operator]
    assert taken == [(model, {})]


@pytest.mark.parametrize("given", ["model, gradient_average=False", "model, **options"])
def test_a_derived_class_given_what_torchs_cannot_do_stays_with_apex(given: str) -> None:
    texts = {"lib/wrappers.py": DERIVED.replace("{init}", ""), "train.py": TRAINER.format(arguments=given)}
    results = rewrite_files(texts)
    assert all(r.after is None for r in results.values())
    (finding,) = [f for f in results["lib/wrappers.py"].findings if f.code == "AMP601"]
    assert finding.status == "manual"


@pytest.mark.parametrize("member", ["SUM", "MAX", "AVG"])
@pytest.mark.parametrize(
    ("imports", "name"),
    [("from apex.parallel import ReduceOp", "ReduceOp"), ("import apex.parallel", "apex.parallel.ReduceOp")],
)
def test_reduce_op_is_the_class_that_torch_has(imports: str, name: str, member: str) -> None:
    before = f"import torch\n{imports}\n\ntorch.distributed.all_reduce(mean, {name}.{member}, group)\n"
    after = f"import torch\n\ntorch.distributed.all_reduce(mean, torch.distributed.ReduceOp.{member}, group)\n"
    check_rewrite(before, after)


def test_reduce_op_as_a_value() -> None:
    after = rewrite("import torch\nfrom apex.parallel import ReduceOp\n\nreduce(x, op=ReduceOp)\n").after
    assert after is not None
    assert "apex" not in after
    scope: dict[str, Any] = {"reduce": lambda x, op: op, "x": 0}
    exec(after, scope)


WRAPPED_BESIDE = """
    import torch
    from apex import amp
    from apex.parallel import DistributedDataParallel as ApexDDP

    def wrap(args, gpu, model, optimizer):
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            model = ApexDDP({given})
        else:
            {before}model = torch.nn.parallel.DistributedDataParallel({beside})
        return model, optimizer

    def train(args, gpu, model, optimizer, data):
        model, optimizer = wrap(args, gpu, model, optimizer)
        for x in data:
            optimizer.zero_grad()
            with amp.scale_loss(model(x).sum(), optimizer) as loss:
                loss.backward()
            optimizer.step()
    """


@pytest.mark.parametrize(
    ("given", "beside", "written", "before"),
    [
        (
            "model",
            "model, device_ids=[gpu], find_unused_parameters=True, broadcast_buffers=False",
            "model, device_ids=[gpu], find_unused_parameters=True, broadcast_buffers=False",
            "",
        ),
        ("model, broadcast_buffers=True", "model, broadcast_buffers=False", "model, broadcast_buffers=True", ""),
        ("model, delay_allreduce=True", "other, find_unused_parameters=True", "model", ""),  # of another model
        ("model", "model, [gpu]", "model", ""),
        ("model", "model, **options", "model", ""),
        ("model", "model, find_unused_parameters=loose", "model", "loose = args.loose; "),  # which this branch has not
    ],
)
def test_what_torchs_is_given_where_mixed_precision_is_off_it_is_given_here_too(
    given: str, beside: str, written: str, before: str
) -> None:
    result = rewrite(WRAPPED_BESIDE.format(given=given, beside=beside, before=before))
    assert result.after is not None
    assert (
        f"DistributedDataParallel({written})\n    else:" in result.after or f"DDP({written})\n    else:" in result.after
    )
    (finding,) = [f for f in result.findings if f.code == "AMP601"]
    assert ("with the arguments of line" in finding.message) is (written != given and written == beside)


FREEZING = """
from apex.parallel import DistributedDataParallel

def main(model, epochs, loader):
    model = DistributedDataParallel(model, delay_allreduce=True)
    for epoch in range(epochs):
        FREEZE
        train(model, loader)
"""


@pytest.mark.parametrize(
    ("freeze", "found"),
    [
        ("for p in model.module.encoder.parameters():\n            p.requires_grad = epoch > 0", False),
        ("for p in model.module.encoder.parameters():\n            p.requires_grad = False", True),
        ("if epoch < 1:\n            model.module.encoder.requires_grad_(False)", True),
        (
            "for n, p in model.named_parameters():\n            if 'head' in n:\n                p.requires_grad = False",
            True,
        ),
        ("for p in model.parameters():\n            p.requires_grad = False", False),  # nothing is trained
        ("for p in teacher.parameters():\n            p.requires_grad = False", False),
        ("model.module.encoder.requires_grad_(True)", False),
        ("model.module.gate.requires_grad = False", True),
        ("model.module.gate.requires_grad = True", False),
        ("teacher.gate.requires_grad = False", False),
    ],
)
def test_a_part_that_is_frozen_once_the_model_is_wrapped(freeze: str, found: bool) -> None:
    """Torch's class waits for the gradients of what asked for them when it was made, Apex's for those that come."""
    result = rewrite(FREEZING.replace("FREEZE", freeze))
    assert result.after is not None
    assert ("DistributedDataParallel(model, find_unused_parameters=True)" in result.after) is found
    (told,) = [f for f in result.findings if f.code == "AMP601"]
    assert ("freezes a part once it is wrapped" in told.message) is found


@pytest.mark.parametrize(
    "head", ["if backend == 'apex':\n{}\nelif backend == 'torch':\n{}", "try:\n{}\nexcept ImportError:\n{}"]
)
def test_a_name_is_what_the_branch_imports_that_it_stands_in(head: str) -> None:
    apex = "    from apex.parallel import DistributedDataParallel\n    net = DistributedDataParallel(net, delay_allreduce=True)"
    torch = (
        "    from torch.nn.parallel.distributed import DistributedDataParallel\n"
        "    net = DistributedDataParallel(net, device_ids=[rank])"
    )
    result = rewrite(f"import torch\n\n{head.format(apex, torch)}\n")
    assert result.after is not None
    assert torch.splitlines()[1].strip() in result.after  # as it was
    assert "apex.parallel" not in result.after
    assert not [f for f in result.findings if f.code == "AMP601" and f.line > 5]


EVALUATED = """
    import torch
    from apex.parallel import DistributedDataParallel as DDP


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
            self.aside = torch.nn.Linear(4, 4)

        def forward(self, x):
            return {forward}


    def validate(model, loader):
        model.eval()
        with torch.no_grad():
            return [model(x) for x in loader]


    def main(args, loader):
        model = Net().cuda()
        model = DDP(model)
        for x in loader:
            model(x).sum().backward()
        if {asked}:
            validate({validated}, loader)
    """
ONE_RANK, ALL_RANKS = "args.local_rank == 0", "args.validates"
USED, UNUSED = "self.aside(self.body(x))", "self.body(x)"


@pytest.mark.parametrize(
    ("forward", "asked", "validated", "wanted"),
    [
        (USED, ONE_RANK, "model", "DDP(model)\n    model.broadcast_buffers = False\n"),
        (USED, ONE_RANK, "model.module", "DDP(model)"),
        (USED, ALL_RANKS, "model", "DDP(model)"),
        (UNUSED, ALL_RANKS, "model", "DDP(model, find_unused_parameters=True)"),
        (UNUSED, ONE_RANK, "model", "DDP(model, find_unused_parameters=True)\n    model.broadcast_buffers = False\n"),
    ],
)
def test_what_the_program_shows_torchs_class_to_need_is_given_to_it(
    forward: str, asked: str, validated: str, wanted: str
) -> None:
    result = rewrite(EVALUATED.format(forward=forward, asked=asked, validated=validated))
    assert f"model = {wanted}" in (result.after or "")
    assert not [f for f in result.findings if f.code in ("AMP651", "AMP652")]
    told = next(f.message for f in result.findings if f.code == "AMP601")
    for option in ("find_unused_parameters=True", "broadcast_buffers=False"):
        assert (f"with {option}" in told) == (option in wanted.replace(" = ", "="))
    assert ("static_graph=True if all steps" in told) == ("find_unused_parameters" not in wanted)


def test_a_part_without_gradients_is_only_told_where_activations_are_recomputed() -> None:
    """torch refuses find_unused_parameters beside reentrant checkpoints."""
    text = EVALUATED.format(forward="checkpoint(self.body, x)", asked=ALL_RANKS, validated="model")
    result = rewrite(
        text.replace("    import torch\n", "    import torch\n    from torch.utils.checkpoint import checkpoint\n", 1)
    )
    assert "DDP(model)" in (result.after or "")
    assert [f.review for f in result.findings if f.code == "AMP651"] == ["review"]
    (general,) = [f.message for f in result.findings if f.code == "AMP601"]
    assert "gets no gradient" not in general  # which AMP651 says of this model


def test_what_is_needed_is_written_wherever_the_file_lies() -> None:
    text = EVALUATED.format(forward=USED, asked=ONE_RANK, validated="model")
    results = rewrite_files({"tools/train.py": text})
    assert "model.broadcast_buffers = False" in (results["tools/train.py"].after or "")


def test_buffers_are_kept_apart_without_a_warning_of_torchs(tmp_path: Path) -> None:
    """torch 2.13 calls the argument of the constructor deprecated; the attribute is older than both of its names."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(4))
            assert model.will_sync_module_buffers()
            model.broadcast_buffers = False
            assert not model.will_sync_module_buffers()
    finally:
        torch.distributed.destroy_process_group()


TESTS = """
import apex
from apex.parallel import DistributedDataParallel as ApexDDP
from torch.nn.parallel import DistributedDataParallel

TYPES = (ApexDDP, DistributedDataParallel)


def unwrap(model):
    if isinstance(model, TYPES):
        return model.module
    return model.module if isinstance(model, apex.parallel.DistributedDataParallel) else model
"""


def test_where_nothing_is_wrapped_nothing_is_said_of_gradients() -> None:
    said = [(f.review, f.message) for f in rewrite(TESTS).findings if f.code == "AMP601"]
    assert said == [("as-is", "asks for torch's DistributedDataParallel")] * 2
    kept = TESTS.replace("isinstance(model, TYPES)", "TYPES[0](model)")
    assert "find_unused_parameters" in next(f.message for f in rewrite(kept).findings if f.code == "AMP601")


SHARED = """
def wrap(model, args):
    if args.quick:
        from quicker.parallel import DistributedDataParallel as DDP
    else:
        from apex.parallel import DistributedDataParallel as DDP
    return DDP({given})
"""


def test_a_name_that_another_import_binds_in_a_branch_of_its_own() -> None:
    """What is called may be the other class: it keeps its call and its import."""
    result = check_rewrite(SHARED.format(given="model"), SHARED.format(given="model").replace("apex.", "torch.nn."))
    assert [(f.status, f.review) for f in result.findings if f.code == "AMP601"] == [("done", "look")]
    refused = check_manual(SHARED.format(given="model, delay_allreduce=True"), "AMP601")
    assert refused.after is None
    optimizers = SHARED.replace("parallel", "optimizers").replace("DistributedDataParallel as DDP", "FusedAdam")
    refused = check_manual(optimizers.replace("DDP({given})", "FusedAdam(model, lr=0.1)"), "AMP621")
    assert refused.after is None


@pytest.mark.parametrize(
    ("part", "call"),
    [
        ("from apex.parallel import DistributedDataParallel as DDP", "DDP(model, message_size=250000000)"),
        ("from apex.normalization import FusedLayerNorm as Norm", "torch.nn.Sequential(model, Norm(4))"),
    ],
)
def test_a_name_that_only_another_function_imports_failed_and_is_told(part: str, call: str) -> None:
    source = f"""
        import torch

        def setup(args):
            {part}
            torch.manual_seed(args.seed)

        def wrap(model):
            return {call}
        """
    result = rewrite(source)
    (finding,) = (f for f in result.findings if f.status == "manual")
    assert finding.code == "AMP102"
    assert "imported into setup alone" in finding.message
    assert call in str(result.after or result.before)
    assert part in str(result.after or result.before)  # which is what a hand is to move to where all see it


def test_a_name_that_a_function_makes_global_stays() -> None:
    check_rewrite(
        """
        def setup(args):
            global DDP
            from apex.parallel import DistributedDataParallel as DDP

        def wrap(model):
            return DDP(model, message_size=250000000)
        """,
        """
        def setup(args):
            global DDP
            from torch.nn.parallel import DistributedDataParallel as DDP

        def wrap(model):
            return DDP(model)
        """,
    )


FROZEN = """
    import torch
    from torch import nn
    from apex import amp
    from apex.parallel import DistributedDataParallel
    from project import args, loader

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(2, 2)
            self.norm = nn.BatchNorm1d(2)

        def forward(self, x):
            return self.norm(self.body(x))

        def train(self, mode=True):
            super().train(mode)
            if args.frozen:
                self.norm.weight.requires_grad = False

    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    if args.gpu is not None:
        model = {apex}
    else:
        model = {native}
    for x in loader:
        model.train()
        with amp.scale_loss(model(x).mean(), optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    """


@pytest.mark.parametrize(
    ("apex", "native", "wanted"),
    [
        (
            "DistributedDataParallel(model)",
            "torch.nn.parallel.DistributedDataParallel(model)",
            "model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)\n",
        ),
        (
            "DistributedDataParallel(model, delay_allreduce=True)",
            "torch.nn.DataParallel(model)",
            "    model = DistributedDataParallel(model, find_unused_parameters=True)\n",
        ),
    ],
)
def test_a_model_that_freezes_a_part_of_itself_as_it_is_trained(apex: str, native: str, wanted: str) -> None:
    result = rewrite(FROZEN.format(apex=apex, native=native))
    assert wanted in (result.after or ""), result.findings
    told = next(f.message for f in result.findings if f.code == "AMP601")
    assert re.search(r"with find_unused_parameters=True, since \S+:\d+ freezes a part of \w+ once it is wrapped", told)


CHOSEN = """
    import torch

    def main(args, model, optimizer, loader):
        if args.amp:
            try:
                global DDP, amp
                from apex.parallel import DistributedDataParallel as DDP
                from apex import amp
            except ImportError:
                raise ImportError("Please install apex")
        if not args.amp and args.distributed:
            from torch.nn.parallel import DistributedDataParallel as DDP
        if args.amp:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        if args.distributed:
            if args.amp:
                model = DDP(model, delay_allreduce=True)
            else:
                model = DDP(model, device_ids=[args.rank], output_device=args.rank)
        for x in loader:
            optimizer.zero_grad()
            if args.amp:
                with amp.scale_loss(model(x).sum(), optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                model(x).sum().backward()
            optimizer.step()
    """


def test_what_apex_takes_no_argument_of_was_torchs_wherever_it_ran() -> None:
    result = rewrite(CHOSEN)
    assert result.after is not None
    told = {f.line: f for f in result.findings if f.code == "AMP601"}
    assert told[19].message.endswith("as before wherever this ran: Apex's takes no device_ids or output_device")
    assert told[19].review == "as-is"
    assert told[17].review == "look"
    written = "torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.rank], output_device=args.rank)"
    assert f"model = {written}\n" in result.after


def test_what_declares_the_names_of_an_import_goes_with_it() -> None:
    after = rewrite(CHOSEN).after
    assert after is not None
    assert "global" not in after
    assert after.startswith("import torch\n\ndef main(args, model, optimizer, loader):\n    scaler = ")
