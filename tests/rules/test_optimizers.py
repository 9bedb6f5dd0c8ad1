from __future__ import annotations

from typing import Any

import pytest
import torch

from amp_migrate.rules.parts import optimizers
from tests.rules.helpers import check_files, check_manual, check_rewrite, rewrite, rewrite_files


@pytest.mark.parametrize("example", [e for c in optimizers.CODES for e in c.examples])
def test_the_documented_examples_hold(example: Any) -> None:
    check_rewrite(example.before, example.after)


def program(call: str, imports: str = "") -> str:
    return f"import torch\n{imports}\nmodel = torch.nn.Linear(2, 2)\nargs = model\noptimizer = {call}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FusedAdam(model.parameters())", "torch.optim.Adam(model.parameters())"),
        ("FusedAdam(model.parameters(), 1e-4)", "torch.optim.Adam(model.parameters(), 1e-4)"),
        (
            "FusedAdam(model.parameters(), 1e-4, True, (0.9, 0.95), 1e-6)",
            "torch.optim.Adam(model.parameters(), 1e-4, betas=(0.9, 0.95), eps=1e-6)",
        ),
        (
            "FusedAdam(params=model.parameters(), lr=1e-4, weight_decay=0.1, adam_w_mode=True)",
            "torch.optim.AdamW(params=model.parameters(), lr=1e-4, weight_decay=0.1)",
        ),
        (
            "FusedAdam(model.parameters(), adam_w_mode=False, weight_decay=0.1)",
            "torch.optim.Adam(model.parameters(), weight_decay=0.1)",
        ),
        (
            "FusedAdam(model.parameters(), bias_correction=True, eps_inside_sqrt=False, max_grad_norm=0.0)",
            "torch.optim.Adam(model.parameters())",
        ),
        (
            "FusedAdam(model.parameters(), set_grad_none=True, capturable=False, master_weights=False)",
            "torch.optim.Adam(model.parameters(), capturable=False)",
        ),
        (
            "FusedAdam([{'params': model.parameters(), 'weight_decay': 0.1}], lr=1e-4)",
            "torch.optim.AdamW([{'params': model.parameters(), 'weight_decay': 0.1}], lr=1e-4)",
        ),
        (
            "FusedSGD(model.parameters(), 0.1, 0.9, 0, 1e-4, True, False, True, False)",
            "torch.optim.SGD(model.parameters(), 0.1, 0.9, 0, 1e-4, True)",
        ),
        (
            "FusedSGD(model.parameters(), lr=0.1, wd_after_momentum=False)",
            "torch.optim.SGD(model.parameters(), lr=0.1)",
        ),
        (
            "FusedAdagrad(model.parameters(), 0.1, 1e-8, 0.01)",
            "torch.optim.Adagrad(model.parameters(), 0.1, eps=1e-8, weight_decay=0.01)",
        ),
        (
            "FusedAdagrad(model.parameters(), adagrad_w_mode=False)",
            "torch.optim.Adagrad(model.parameters())",
        ),
    ],
)
def test_calls(before: str, after: str) -> None:
    name = before.partition("(")[0]
    result = check_rewrite(program(before, f"from apex.optimizers import {name}\n"), program(after))
    assert result.after is not None
    space: dict[str, Any] = {}
    exec(compile(result.after, "train.py", "exec"), space)
    group = space["optimizer"].param_groups[0]
    assert group["weight_decay"] == (0.1 if "0.1" in before and "Adam(" in before else group["weight_decay"])
    if "weight_decay" not in before and "Adam(" in before:
        assert group["weight_decay"] == 0.0


def test_a_mode_known_only_at_run_time_chooses_the_class() -> None:
    result = check_rewrite(
        """
        import torch
        from apex.optimizers import FusedAdam

        def build(model, decoupled):
            return FusedAdam(model.parameters(), lr=1e-3, adam_w_mode=decoupled, weight_decay=0.1)
        """,
        """
        import torch

        def build(model, decoupled):
            return (torch.optim.AdamW if decoupled else torch.optim.Adam)(model.parameters(), lr=1e-3, weight_decay=0.1)
        """,
    )
    import torch

    space: dict[str, Any] = {}
    assert result.after is not None
    exec(compile(result.after, "train.py", "exec"), space)
    assert type(space["build"](torch.nn.Linear(1, 1), False)) is torch.optim.Adam
    assert type(space["build"](torch.nn.Linear(1, 1), True)) is torch.optim.AdamW


@pytest.mark.parametrize(
    "call",
    [
        "FusedAdam(p, eps_inside_sqrt=True)",
        "FusedAdam(p, max_grad_norm=1.0)",
        "FusedAdam(p, bias_correction=False, max_grad_norm=1.0)",
    ],
)
def test_what_torch_does_not_compute_is_left_alone(call: str) -> None:
    name = call.partition("(")[0]
    result = rewrite(f"from apex.optimizers import {name}\n\n\ndef build(p, args):\n    return {call}\n")
    assert result.after is None
    (finding,) = [f for f in result.findings if f.status == "manual"]
    assert finding.code == optimizers.OPTIMIZERS[f"apex.optimizers.{name}"].code
    assert finding.line == 5


@pytest.mark.parametrize(
    "call",
    [
        "FusedAdam(p, bias_correction=False)",
        "FusedAdam(p, 1e-3, False)",
        "FusedAdam(p, bias_correction=args.correct)",
        "FusedSGD(p, lr=0.1, wd_after_momentum=True)",
        "FusedAdagrad(p, adagrad_w_mode=True)",
    ],
)
def test_what_apex_alone_computes_stays_with_apex(call: str) -> None:
    """Apex still ships the optimizer, and GradScaler steps it: the program runs, with a note of what stays."""
    name = call.partition("(")[0]
    result = rewrite(f"from apex.optimizers import {name}\n\n\ndef build(p, args):\n    return {call}\n")
    assert result.after is None
    (finding,) = result.findings
    assert (finding.line, finding.status, finding.review) == (5, "note", "review")
    assert finding.code == optimizers.OPTIMIZERS[f"apex.optimizers.{name}"].code
    assert finding.message.startswith("kept: ")


def test_one_call_left_alone_keeps_the_import_and_no_other_call() -> None:
    result = check_manual(
        """
        import torch
        from apex.optimizers import FusedAdam

        def build(p, bert):
            if bert:
                return FusedAdam(p, max_grad_norm=1.0)
            return FusedAdam(p, weight_decay=torch.pi)
        """,
        "AMP621",
    )
    assert result.status == "partial"
    assert result.after is not None
    assert "from apex.optimizers import FusedAdam\n" in result.after
    assert "return FusedAdam(p, max_grad_norm=1.0)\n" in result.after
    assert "return torch.optim.AdamW(p, weight_decay=torch.pi)\n" in result.after


# -- unpacked arguments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ("dict(lr=args.lr, weight_decay=args.decay)", "torch.optim.AdamW(p, **options)"),
        ("{'lr': args.lr, 'weight_decay': args.decay}", "torch.optim.AdamW(p, **options)"),
        ("dict(lr=args.lr)", "torch.optim.AdamW(p, **options, weight_decay=0.0)"),
        ("dict(args.options)", "torch.optim.AdamW(p, **{'weight_decay': 0.0, **options})"),
        ("args.options", "torch.optim.AdamW(p, **{'weight_decay': 0.0, **options})"),
    ],
)
def test_weight_decay_is_looked_for_in_unpacked_options(options: str, call: str) -> None:
    check_rewrite(
        f"""
        import torch
        from apex.optimizers import FusedAdam

        def build(p, args):
            print('building', torch.__version__)
            options = {options}
            return FusedAdam(p, **options)
        """,
        f"""
        import torch

        def build(p, args):
            print('building', torch.__version__)
            options = {options}
            return {call}
        """,
    )


@pytest.mark.parametrize(
    ("change", "call"),
    [
        ("options['eps'] = 1e-6", "torch.optim.AdamW(p, **options)"),
        ("options.setdefault('eps', 1e-6)", "torch.optim.AdamW(p, **options)"),
        ("options.pop('eps', None)", "torch.optim.AdamW(p, **options)"),
        ("options.update(args.more)", "torch.optim.AdamW(p, **options)"),
        ("options.pop('weight_decay')", "torch.optim.AdamW(p, **{'weight_decay': 0.0, **options})"),
        ("del options['weight_decay']", "torch.optim.AdamW(p, **{'weight_decay': 0.0, **options})"),
    ],
)
def test_what_is_done_to_the_options_counts(change: str, call: str) -> None:
    result = rewrite(
        f"""
        import torch
        from apex.optimizers import FusedAdam

        def build(p, args):
            print('building', torch.__version__)
            options = dict(weight_decay=args.decay)
            if args.odd:
                {change}
            return FusedAdam(p, **options)
        """
    )
    assert result.after is not None
    assert f"return {call}\n" in result.after


def test_options_of_apexs_own_among_the_unpacked_are_left_alone() -> None:
    check_manual(
        """
        from apex.optimizers import FusedAdam

        def build(p):
            options = dict(lr=1e-3, adam_w_mode=False)
            return FusedAdam(p, **options)
        """,
        "AMP621",
    )


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("imports", "name"),
    [
        ("import torch", "torch.optim.SGD"),
        ("from torch import optim", "optim.SGD"),
        ("import torch.optim as optim", "optim.SGD"),
        ("from torch.optim import SGD, AdamW", "SGD"),
        ("from torch.optim import SGD as Momentum", "Momentum"),
    ],
)
def test_the_name_follows_the_file(imports: str, name: str) -> None:
    result = rewrite(
        f"""
        {imports}
        from apex.optimizers import FusedSGD

        def build(p):
            return FusedSGD(p, lr=0.1)
        """
    )
    assert result.after is not None
    assert f"return {name}(p, lr=0.1)\n" in result.after
    assert "apex" not in result.after


def test_a_file_that_does_not_name_torch_imports_the_class() -> None:
    check_rewrite(
        """
        from apex.optimizers import FusedAdam, FusedSGD

        def build(p, name):
            return FusedSGD(p, lr=0.1) if name == "sgd" else FusedAdam(p, weight_decay=0.1)
        """,
        """
        from torch.optim import AdamW, SGD

        def build(p, name):
            return SGD(p, lr=0.1) if name == "sgd" else AdamW(p, weight_decay=0.1)
        """,
    )


def test_neutral_names_stay() -> None:
    check_rewrite(
        """
        import torch
        from apex.optimizers import FusedAdam as Adam
        from apex.optimizers import FusedSGD as SGD

        def build(p, name):
            print(torch.__version__)
            return SGD(p, lr=0.1) if name == "sgd" else Adam(p, weight_decay=0.1)
        """,
        """
        import torch
        from torch.optim import AdamW as Adam
        from torch.optim import SGD

        def build(p, name):
            print(torch.__version__)
            return SGD(p, lr=0.1) if name == "sgd" else Adam(p, weight_decay=0.1)
        """,
    )


def test_a_type_test_asks_for_the_counterpart() -> None:
    check_rewrite(
        """
        import torch
        from apex.optimizers import FusedSGD

        def is_sgd(optimizer):
            return isinstance(optimizer, (FusedSGD, torch.optim.SGD))
        """,
        """
        import torch

        def is_sgd(optimizer):
            return isinstance(optimizer, torch.optim.SGD)
        """,
    )


# -- layout ----------------------------------------------------------------------------------------------------------


def test_the_layout_of_a_call_stays() -> None:
    check_rewrite(
        """
        import torch
        from apex.optimizers import FusedAdam

        def build(model, groups, args):
            a = FusedAdam(groups,  # all of them
                          lr=args.lr,  # see the paper
                          bias_correction=True,  # as Adam does
                          betas=(0.9, 0.98))
            b = FusedAdam(
                (model.parameters()),
                args.lr,
                True,
                (0.9, 0.98),
                weight_decay=args.decay,
            )
            return a, b, torch.pi
        """,
        """
        import torch

        def build(model, groups, args):
            a = torch.optim.AdamW(groups,  # all of them
                                  lr=args.lr,  # see the paper
                                  betas=(0.9, 0.98),
                                  weight_decay=0.0)
            b = torch.optim.AdamW(
                (model.parameters()),
                args.lr,
                betas=(0.9, 0.98),
                weight_decay=args.decay,
            )
            return a, b, torch.pi
        """,
    )


@pytest.mark.parametrize(
    "params",
    [
        "net.parameters()",
        "list(net.parameters())",
        "filter(lambda p: p.requires_grad, net.parameters())",
        "[p for p in net.parameters() if p.requires_grad]",
        "trained",
    ],
)
def test_without_weight_decay_it_is_adam(params: str) -> None:
    program = (
        "import torch\n{}\n\n\ndef build(net):\n    trained = [p for p in net.parameters() if p.requires_grad]\n"
        "    return {}\n"
    )
    before = program.format("from apex.optimizers import FusedAdam", f"FusedAdam({params}, lr=0.1)")
    check_rewrite(
        before, program.format("", f"torch.optim.Adam({params}, lr=0.1)").replace("torch\n\n\n\n", "torch\n\n\n")
    )


@pytest.mark.parametrize(
    ("params", "later"),
    [
        ("groups", ""),
        ("[{'params': net.parameters()}]", ""),
        ("[{'params': p} for p in net.parameters()]", ""),
        ("net.parameters()", "for group in optimizer.param_groups:\n    group['weight_decay'] = 0.1\n"),
        ("net.parameters()", "optimizer.add_param_group(dict(params=more, weight_decay=0.1))\n"),
        ("net.parameters()", "for group in optimizer.param_groups:\n    group.update(weight_decay=0.1)\n"),
        ("net.parameters()", "for group in optimizer.param_groups:\n    group[key] = 0.1\n"),
        ("net.parameters()", "print(isinstance(optimizer, FusedAdam))\n"),
        ("net.parameters()", "print(type(optimizer) is FusedAdam)\n"),
    ],
)
def test_where_a_decay_may_be_set_or_the_class_is_asked_for_it_is_adamw(params: str, later: str) -> None:
    source = f"import torch\nfrom apex.optimizers import FusedAdam\n\noptimizer = FusedAdam({params}, lr=0.1)\n{later}"
    after = rewrite(source).after or ""
    assert f"torch.optim.AdamW({params}, lr=0.1, weight_decay=0.0)" in after
    assert "Adam(" not in after
    assert "Adam)" not in after


@pytest.mark.parametrize("value", ["True", "args.masters"])
def test_float32_copies_of_half_weights_are_left_to_apex(value: str) -> None:
    source = "from apex.optimizers import FusedAdam\n\n\ndef build(args, params):\n"
    source += f"    return FusedAdam(params, capturable=True, master_weights={value}, weight_decay=0.1)\n"
    assert check_manual(source, "AMP621").after is None


HAND_MADE = """
    from apex.optimizers import FusedAdam

    def average(optimizer, grads, world):
        if isinstance(optimizer, FusedAdam):
            return grads / world
        return grads
"""
MAKES = """
    from apex.optimizers import FusedAdam
    from helpers import average

    def make(params):
        return FusedAdam(params, lr=0.1{options})
"""


def test_a_type_test_goes_with_what_makes_the_objects() -> None:
    texts = check_files({"helpers.py": HAND_MADE, "make.py": MAKES.format(options=", weight_decay=0.0")})
    assert "isinstance(optimizer, AdamW)" in texts["helpers.py"]
    assert "AdamW(params" in texts["make.py"]


@pytest.mark.parametrize("options", [", max_grad_norm=1.0", ", bias_correction=False"])
def test_a_type_test_stays_with_apex_as_long_as_its_objects_are_made(options: str) -> None:
    """Nothing of `apex.optimizers` can be told from the test alone: torch's AdamW is no FusedAdam, nor the other way."""
    results = rewrite_files({"helpers.py": HAND_MADE, "make.py": MAKES.format(options=options)})
    assert all(r.after is None for r in results.values())
    (finding,) = results["helpers.py"].findings
    assert "Apex's FusedAdam is still made" in finding.message


def test_where_some_of_the_objects_stay_all_do() -> None:
    other = MAKES.format(options=", weight_decay=0.0")
    results = rewrite_files(
        {"helpers.py": HAND_MADE, "make.py": MAKES.format(options=", max_grad_norm=1.0"), "other.py": other}
    )
    assert all(r.after is None for r in results.values())
    (finding,) = results["other.py"].findings
    assert "tells it by Apex's FusedAdam" in finding.message


# -- classes that are not called where they stand --------------------------------------------------------------------

VALUES = """
    import torch
    {imports}from apex.optimizers import FusedAdam


    {body}
"""


@pytest.mark.parametrize(
    ("body", "after"),
    [
        (
            "kinds = {'adam': FusedAdam, 'plain': torch.optim.Adam}",
            "kinds = {'adam': partial(torch.optim.AdamW, weight_decay=0.0), 'plain': torch.optim.Adam}",
        ),
        ("kinds = {'adam': FusedAdam}", "kinds = {'adam': partial(torch.optim.AdamW, weight_decay=0.0)}"),
        ("register('adam', FusedAdam)", "register('adam', partial(torch.optim.AdamW, weight_decay=0.0))"),
        ("kind = FusedAdam\noptimizer = kind(params)", "kind = partial(torch.optim.AdamW, weight_decay=0.0)"),
        (
            "if kind == 'adam':\n    kind = FusedAdam\nkind(params)",
            "kind = partial(torch.optim.AdamW, weight_decay=0.0)",
        ),
    ],
)
def test_a_class_that_is_kept_decays_by_nothing_unless_told(body: str, after: str) -> None:
    source = VALUES.format(imports="", body=body.replace("\n", "\n    "))
    result = rewrite(source)
    assert result.after is not None
    assert result.after.startswith("from functools import partial\nimport torch\n\n\n")
    assert after in result.after
    assert rewrite(result.after).after is None


@pytest.mark.parametrize(
    ("given", "after"),
    [
        ("eps=1e-6", "partial(torch.optim.AdamW, eps=1e-6, weight_decay=0.0)"),
        ("weight_decay=0.1, set_grad_none=True", "partial(torch.optim.AdamW, weight_decay=0.1)"),
        ("adam_w_mode=False", "partial(torch.optim.Adam)"),
    ],
)
def test_what_partial_binds_is_read_like_a_call(given: str, after: str) -> None:
    source = VALUES.format(imports="from functools import partial\n    ", body=f"make = partial(FusedAdam, {given})")
    result = rewrite(source)
    assert result.after == f"import torch\nfrom functools import partial\n\n\nmake = {after}\n"


@pytest.mark.parametrize(
    ("given", "then"),
    [
        ("params, lr=lr", "params, lr=lr, weight_decay=0.0"),
        ("params, lr, **rest", 'params, lr, **{"weight_decay": 0.0, **rest}'),
    ],
)
def test_a_class_that_derives_from_it_gives_torchs_what_it_had(given: str, then: str) -> None:
    body = f"""class Warm(FusedAdam):
        '''Warms up.'''

        def __init__(self, params, lr=0.1, **rest):
            super().__init__({given})
            self.warm = 0


    optimizer = Warm(params)"""
    result = rewrite(VALUES.format(imports="", body=body))
    assert result.after is not None
    assert "class Warm(torch.optim.AdamW):\n" in result.after
    assert f"super().__init__({then})" in result.after
    space: dict[str, Any] = {"params": [torch.nn.Parameter(torch.ones(2))]}
    exec(result.after, space)
    assert space["optimizer"].param_groups[0]["weight_decay"] == 0.0


def test_in_another_file_than_the_import_and_the_calls() -> None:
    files = {
        "fused.py": "from apex.optimizers import FusedAdam\n",
        "own.py": "from fused import FusedAdam\n\n\nclass Own(FusedAdam):\n    pass\n",
        "train.py": "from own import Own\n\noptimizer = Own(model.parameters(), lr=0.1)\n",
    }
    after = check_files(files)
    assert after["own.py"] == "import torch\n\n\nclass Own(torch.optim.AdamW):\n    pass\n"
    assert "Own(model.parameters(), lr=0.1, weight_decay=0.0)" in after["train.py"]


def test_without_an_init_of_its_own_the_calls_give_it() -> None:
    body = "class Named(FusedAdam):\n        pass\n\n\n    optimizer = Named(params, 1e-3)"
    result = rewrite(VALUES.format(imports="", body=body))
    assert result.after is not None
    assert (
        "class Named(torch.optim.AdamW):\n    pass\n\n\noptimizer = Named(params, 1e-3, weight_decay=0.0)\n"
        in result.after
    )


@pytest.mark.parametrize(
    "body",
    [
        "kind = FusedAdam\n    print(isinstance(optimizer, (kind, SGD)))",
        "kind = FusedAdam\n\n\n    class Mine(kind):\n        pass",
        "class Mine(FusedAdam):\n        def note(self):\n            return self.adam_w_mode\n\n\n    optimizer = Mine(params)",
        "class Mine(FusedAdam):\n        def note(self, group):\n            return group['bias_correction']\n\n\n    Mine([])",
        "class Mine(FusedAdam):\n        pass",
    ],
)
def test_a_class_of_which_more_is_asked_is_left_to_a_person(body: str) -> None:
    assert check_manual(VALUES.format(imports="", body=body), "AMP621").after is None


@pytest.mark.parametrize(
    "calls",
    ["kind(params, lr=0.1, weight_decay=decay)", "kind(params, weight_decay=0)\nkind(more, weight_decay=decay)"],
)
def test_a_class_whose_calls_all_say_their_decay_is_the_class(calls: str) -> None:
    body = f"if kind == 'apex':\n    kind = FusedAdam\nelif kind is None:\n    kind = torch.optim.Adam\n{calls}"
    result = rewrite(VALUES.format(imports="", body=body.replace("\n", "\n    ")))
    assert "    kind = torch.optim.AdamW\n" in (result.after or "")
    assert [f.review for f in result.findings if f.code == "AMP621"] == ["as-is"]
