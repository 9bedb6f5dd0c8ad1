from __future__ import annotations

import sys
import textwrap
from typing import Any

import pytest
import torch

from amp_migrate.rules.parts import syncbn
from tests.rules.helpers import check_manual, check_rewrite, rewrite


@pytest.mark.parametrize("example", [e for c in syncbn.CODES for e in c.examples])
def test_the_documented_examples_hold(example: Any) -> None:
    check_rewrite(example.before, example.after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("convert_syncbn_model(model)", "convert_sync_batchnorm(model)"),
        ("convert_syncbn_model(model, channel_last=False)", "convert_sync_batchnorm(model)"),
        ("convert_syncbn_model(model, None, False)", "convert_sync_batchnorm(model, None)"),
        ("convert_syncbn_model(model, process_group=group)", "convert_sync_batchnorm(model, process_group=group)"),
        (
            "convert_syncbn_model(\n    module=model,\n    channel_last=False,\n)",
            "convert_sync_batchnorm(module=model)",
        ),
    ],
)
def test_the_conversion_keeps_what_torch_takes(before: str, after: str) -> None:
    check_rewrite(
        f"from torch import nn\nfrom apex import parallel\n\nmodel = group = nn.ReLU()\nmodel = parallel.{before}\n",
        f"from torch import nn\n\nmodel = group = nn.ReLU()\nmodel = nn.SyncBatchNorm.{after}\n",
    )


def test_a_file_that_does_not_name_torch_imports_the_class() -> None:
    check_rewrite(
        """
        from apex.parallel import convert_syncbn_model

        def prepare(model):
            return convert_syncbn_model(model)
        """,
        """
        from torch.nn import SyncBatchNorm

        def prepare(model):
            return SyncBatchNorm.convert_sync_batchnorm(model)
        """,
    )


def test_the_conversion_can_be_passed_on() -> None:
    check_rewrite(
        """
        import torch
        from apex.parallel import convert_syncbn_model

        def convert(models):
            print(torch.__version__)
            return list(map(convert_syncbn_model, models))
        """,
        """
        import torch

        def convert(models):
            print(torch.__version__)
            return list(map(torch.nn.SyncBatchNorm.convert_sync_batchnorm, models))
        """,
    )


def test_layers_lose_apexs_options() -> None:
    check_rewrite(
        """
        import torch.nn as nn
        import apex

        bn = apex.parallel.SyncBatchNorm(64, 1e-3, 0.1, True, True, None, False)
        """,
        """
        import torch.nn as nn

        bn = nn.SyncBatchNorm(64, 1e-3, 0.1, True, True, None)
        """,
    )


@pytest.mark.parametrize(
    "call",
    [
        "parallel.SyncBatchNorm(64, channel_last=True)",
        "parallel.SyncBatchNorm(64, channel_last=nhwc)",
        "parallel.SyncBatchNorm(64, 1e-3, 0.1, True, True, None, True)",
        "parallel.convert_syncbn_model(model, channel_last=True)",
        "parallel.convert_syncbn_model(model, None, True)",
    ],
)
def test_channels_in_the_last_dimension_are_left_to_a_person(call: str) -> None:
    code = "AMP611" if "convert" in call else "AMP612"
    result = check_manual(f"from apex import parallel\n\n\ndef build(model, nhwc):\n    return {call}\n", code)
    assert result.after is None


def test_a_fused_relu_is_left_to_a_person() -> None:
    result = check_manual(
        """
        from apex.parallel import SyncBatchNorm

        bn = SyncBatchNorm(64, fuse_relu=True)
        """,
        "AMP612",
    )
    assert result.after is None


def test_a_tuple_that_has_torchs_class_gets_no_second_one() -> None:
    check_rewrite(
        """
        import torch
        from torch import nn

        try:
            import apex
            has_apex = True
        except ImportError:
            has_apex = False

        NORMS = (nn.BatchNorm2d, torch.nn.modules.batchnorm.SyncBatchNorm)
        if has_apex:
            NORMS += (apex.parallel.SyncBatchNorm,)
        """,
        """
        import torch
        from torch import nn

        NORMS = (nn.BatchNorm2d, torch.nn.modules.batchnorm.SyncBatchNorm)
        """,
    )


# -- process groups --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("apex.parallel.create_syncbn_process_group(0)", "None"),
        ("apex.parallel.create_syncbn_process_group(group_size=8)", "torch.distributed.new_subgroups(group_size=8)[0]"),
        (
            "apex.parallel.create_syncbn_process_group(args.size)",
            "torch.distributed.new_subgroups(args.size)[0] if args.size else None",
        ),
    ],
)
def test_process_groups(before: str, after: str) -> None:
    check_rewrite(
        f"import apex\nimport torch\n\n\ndef group(args):\n    print(torch.__version__)\n    return {before}\n",
        f"import torch\n\n\ndef group(args):\n    print(torch.__version__)\n    return {after}\n",
    )


@pytest.mark.parametrize("test", ["size", "size > 0", "size != 0", "size and True"])
def test_a_size_known_not_to_be_zero_needs_no_test(test: str) -> None:
    result = rewrite(
        f"""
        import apex
        import torch.distributed as dist

        def group(size):
            if {test}:
                return apex.parallel.create_syncbn_process_group(size)
        """
    )
    assert result.after is not None
    assert "return dist.new_subgroups(size)[0]\n" in result.after


def test_a_computed_size_is_left_to_a_person() -> None:
    check_manual(
        """
        import apex

        def group(world):
            return apex.parallel.create_syncbn_process_group(world() // 2)
        """,
        "AMP613",
    )


# -- guards ----------------------------------------------------------------------------------------------------------


def test_the_native_branch_of_an_availability_test_stays() -> None:
    check_rewrite(
        """
        import torch
        try:
            from apex.parallel import convert_syncbn_model
            has_apex = True
        except ImportError:
            has_apex = False

        def prepare(model):
            if has_apex:
                model = convert_syncbn_model(model)
            else:
                model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
            return model
        """,
        """
        import torch

        def prepare(model):
            model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
            return model
        """,
    )


def test_a_branch_that_only_goes_without_does_not_replace_apexs() -> None:
    check_rewrite(
        """
        import torch
        try:
            from apex.parallel import convert_syncbn_model
            has_apex = True
        except ImportError:
            has_apex = False

        def prepare(model):
            if has_apex:
                model = convert_syncbn_model(model)
            else:
                print("training", torch.__version__, "without synchronized batch normalization")
            return model
        """,
        """
        import torch

        def prepare(model):
            model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
            return model
        """,
    )


def test_a_run_time_choice_between_the_two_is_none_any_more() -> None:
    check_rewrite(
        """
        import apex
        import torch

        def prepare(args, model):
            if args.sync_bn:
                if args.use_apex:
                    print("using apex")
                    model = apex.parallel.convert_syncbn_model(model)
                else:
                    # the one of torch
                    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
            return model
        """,
        """
        import torch

        def prepare(args, model):
            if args.sync_bn:
                # the one of torch
                model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
            return model
        """,
    )


def test_the_converted_model_has_torchs_layers() -> None:
    import torch

    result = rewrite(
        """
        import torch
        from apex.parallel import convert_syncbn_model

        model = convert_syncbn_model(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4)))
        """
    )
    assert result.after is not None
    space: dict[str, Any] = {}
    exec(compile(result.after, "train.py", "exec"), space)
    assert isinstance(space["model"][1], torch.nn.SyncBatchNorm)


LAZY = '''
    """Trainers of any backend."""
    import os


    class TrainerBase:
        def __init__(self, model, syncbn=False):
            self.model = model
            if syncbn:
                {first}
                self.model = {call}(self.model)
    '''


@pytest.mark.parametrize(
    ("first", "call"),
    [
        ("import apex", "apex.parallel.convert_syncbn_model"),
        ("from apex import parallel", "parallel.convert_syncbn_model"),
        ("from apex.parallel import convert_syncbn_model", "convert_syncbn_model"),
    ],
)
def test_a_file_that_did_without_torch_still_does(first: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    after = rewrite(LAZY.format(first=first, call=call)).after
    assert after is not None
    assert "apex" not in after
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "torch", None)
        space: dict[str, Any] = {}
        exec(after, space)
        assert space["TrainerBase"]("model").model == "model"
    made = space["TrainerBase"](torch.nn.Sequential(torch.nn.BatchNorm1d(3)), syncbn=True)
    assert isinstance(made.model[0], torch.nn.SyncBatchNorm)


@pytest.mark.parametrize(
    ("before", "after", "review"),
    [
        ("optimizer = torch.optim.SGD(model.parameters(), 0.1)", "pass", "review"),
        ("optimizer = make_optimizer(settings, model)", "pass", "review"),
        (
            "norms, rest = separate(model)\n            optimizer = torch.optim.SGD([*norms, *rest], 0.1)",
            "pass",
            "review",
        ),
        (
            "norms, rest = separate(head)\n            optimizer = torch.optim.SGD([*norms, *rest], 0.1)",
            "pass",
            "as-is",
        ),
        ("pass", "optimizer = torch.optim.SGD(model.parameters(), 0.1)", "as-is"),
        ("optimizer = torch.optim.SGD(head.parameters(), 0.1)", "pass", "as-is"),
        (
            "if settings.frozen:\n                return model, make_optimizer(settings, model)",
            "optimizer = None",
            "as-is",
        ),
    ],
)
def test_an_optimizer_made_before_the_conversion_stepped_orphans(before: str, after: str, review: str) -> None:
    source = f"""
        import torch
        from apex.parallel import convert_syncbn_model
        from project import make_optimizer, separate


        def build(model, head, settings):
            {before}
            model = convert_syncbn_model(model)
            {after}
            return model, optimizer
        """
    (finding,) = [f for f in rewrite(source).findings if f.code == "AMP611"]
    assert finding.review == review
    assert ("never stepped them" in finding.message) is (review == "review")


def test_of_several_that_may_be_the_optimizer_each_is_named() -> None:
    source = """
        import torch
        from apex.parallel import convert_syncbn_model


        def build(model, kind):
            if kind == "sgd":
                optimizer = torch.optim.SGD(model.parameters(), 0.1)
            elif kind == "adam":
                optimizer = torch.optim.Adam(model.parameters(), 0.1)
            else:
                optimizer = torch.optim.Adam(model.parameters(), 0.1)
                optimizer = Lookahead(optimizer)
            model = convert_syncbn_model(model)
            return model, optimizer
        """
    (finding,) = [f for f in rewrite(source).findings if f.code == "AMP611"]
    assert finding.review == "review"
    assert "the optimizer of line 7, 9 or 11, made before, never stepped them" in finding.message


def test_what_is_given_the_optimizer_has_not_made_it() -> None:
    source = """
        import torch
        from apex import amp
        from apex.parallel import convert_syncbn_model


        def build(model):
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            model = convert_syncbn_model(model)
            with amp.scale_loss(model(1).mean(), optimizer) as scaled:
                scaled.backward()
            optimizer.step()
        """
    (finding,) = [f for f in rewrite(source).findings if f.code == "AMP611"]
    assert "the optimizer of line 7, made before, never stepped them" in finding.message


LATE = {
    "handed in by a caller that made one before": (
        """
        def synchronize(net):
            return convert_syncbn_model(net)

        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model = synchronize(model)
        """,
        "review",
        "line 10",
    ),
    "of groups of its parameters": (
        """
        model = Net()
        groups = [{"params": model.parameters()}]
        optimizer = torch.optim.SGD(groups, 0.1)
        model = convert_syncbn_model(model)
        """,
        "review",
        "line 8",
    ),
    "made together with the model": (
        """
        model, optimizer = project.build()
        model = convert_syncbn_model(model)
        """,
        "review",
        "line 6",
    ),
    "handed in by a caller that makes it after": (
        """
        def synchronize(net):
            return convert_syncbn_model(net)

        model = Net()
        model = synchronize(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        """,
        "as-is",
        "",
    ),
    "made by the caller on the way": (
        """
        def synchronize(net):
            return convert_syncbn_model(net)

        model = synchronize(Net())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        """,
        "as-is",
        "",
    ),
    "of an object that holds an optimizer since it was made": (
        """
        class Trainer:
            def __init__(self, model, optimizer):
                self.model, self.optimizer = model, optimizer

            def prepare(self):
                self.model = convert_syncbn_model(self.model)
        """,
        "look",
        "held since line 8",
    ),
    "of an object that is handed to whoever calls": (
        """
        class Synchronized(Hook):
            def before_run(self, runner):
                runner.model = convert_syncbn_model(runner.model)
        """,
        "look",
        "out of sight",
    ),
    "handed in beside an optimizer by callers out of sight": (
        """
        def prepare(net, optimizer):
            return convert_syncbn_model(net), optimizer
        """,
        "look",
        "out of sight",
    ),
    "handed in alone by callers out of sight": (
        """
        def prepare(net):
            return convert_syncbn_model(net)
        """,
        "as-is",
        "",
    ),
    "kept for somebody else to call": (
        """
        class Synchronized(Hook):
            def __init__(self):
                super().__init__(convert_syncbn_model)
        """,
        "look",
        "out of sight",
    ),
    "of the network that a constructor makes": (
        """
        class Trainer:
            def __init__(self, settings):
                self.model = Net()
                self.model = convert_syncbn_model(self.model)
                self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        """,
        "as-is",
        "",
    ),
}


@pytest.mark.parametrize("case", LATE)
def test_a_conversion_that_comes_after_an_optimizer_made_elsewhere(case: str) -> None:
    body, review, said = LATE[case]
    source = (
        "import project\nimport torch\nfrom apex.parallel import convert_syncbn_model\nfrom project import Hook, Net\n"
    )
    (finding,) = [f for f in rewrite(source + textwrap.dedent(body)).findings if f.code == "AMP611"]
    assert finding.review == review
    assert ("never stepped them" in finding.message) is (review != "as-is")
    assert said in finding.message


@pytest.mark.parametrize(
    "call", ["convert_syncbn_model(model, **options)", "partial(convert_syncbn_model, **options)(model)"]
)
def test_what_is_unpacked_for_the_converter_must_not_be_apexs_own(call: str) -> None:
    source = f"""
        from functools import partial
        from apex.parallel import convert_syncbn_model
        from project import Net


        def build(options):
            model = Net()
            return {call}
        """
    (finding,) = [f for f in rewrite(source).findings if f.code == "AMP611"]
    assert finding.review == "review"
    assert "it takes no channel_last" in finding.message


@pytest.mark.parametrize(
    ("before", "review"), [("optimizer = torch.optim.SGD(model.parameters(), 0.1)", "review"), ("pass", "as-is")]
)
def test_a_conversion_that_goes_where_torchs_stands_beside_it(before: str, review: str) -> None:
    source = f"""
        import torch
        import apex


        def wrap(make, args):
            model = make().cuda()
            {before}
            if args.apex:
                model = apex.parallel.DistributedDataParallel(model)
                if args.sync:
                    model = apex.parallel.convert_syncbn_model(model)
            else:
                model = torch.nn.parallel.DistributedDataParallel(model)
                if args.sync:
                    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
            return model
        """
    (finding,) = [f for f in rewrite(source).findings if f.code == "AMP611"]
    assert finding.review == review
    assert ("never stepped them" in finding.message) is (review == "review")


@pytest.mark.parametrize(("layer", "told"), [("nn.LayerNorm(4)", False), ("nn.BatchNorm1d(4)", True)])
def test_a_network_without_such_layers_is_not_converted(layer: str, told: bool) -> None:
    source = f"""
        import torch
        from torch import nn
        from apex.parallel import convert_syncbn_model


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = {layer}

            def forward(self, x):
                return self.norm(x)


        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model = convert_syncbn_model(model)
        """
    (finding,) = [f for f in rewrite(source).findings if f.code == "AMP611"]
    assert (finding.review == "review") is told
    assert ("never stepped them" in finding.message) is told
