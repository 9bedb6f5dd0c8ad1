"""`amp.master_params`: the model's parameters where they are provably the same, else the optimizer's groups."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite, check_untouched, rewrite
from tests.rules.programs import APEX_LOOP, apex, check_refused, found
from tests.rules.trained import check_trained

CLIP = "torch.nn.utils.clip_grad_norm_({}, 1.0)"
GROUPS = 'p for group in optimizer.param_groups for p in group["params"]'


def chosen(after: str) -> list[str]:
    """When others than the model's parameters are clipped, which, and to what norm: chosen above a line that would be long."""
    lines = [line.strip() for line in after.splitlines()]
    at = lines.index("clipped_parameters = model.parameters()")
    test, other, clip = lines[at + 1 : at + 4]
    return [test, other.partition("clipped_parameters = ")[2], clip.partition("clipped_parameters, ")[2].rstrip(")")]


def clipped(parameters: str, model: str, reader: str = CLIP) -> str:
    """The line that a reader of `parameters` becomes, for an optimizer built in `model`."""
    loop = APEX_LOOP.replace("optimizer.step()", f"{reader.format(parameters)}\noptimizer.step()")
    result = rewrite(apex(loop, model=model))
    assert result.after is not None
    assert found(result, "AMP304")
    lines = result.after.splitlines()
    return lines[lines.index("    scaler.unscale_(optimizer)") + 1].strip()


def optimizer(argument: str) -> str:
    return f"model = build()\noptimizer = torch.optim.SGD({argument}, lr=0.1)"


@pytest.mark.parametrize(
    ("argument", "parameters"),
    [
        ("model.parameters()", "model.parameters()"),
        ("params=model.parameters()", "model.parameters()"),
        ("model.head.parameters()", "model.head.parameters()"),
    ],
)
def test_the_models_parameters_where_the_optimizer_has_exactly_these(argument: str, parameters: str) -> None:
    assert clipped("amp.master_params(optimizer)", optimizer(argument)) == CLIP.format(parameters)


def test_weight_decay_groups_that_divide_all_parameters_are_all_parameters() -> None:
    groups = (
        '[{"params": [p for n, p in model.named_parameters() if not any(k in n for k in no_decay)]}, '
        '{"params": [p for n, p in model.named_parameters() if any(k in n for k in no_decay)], "weight_decay": 0.0}]'
    )
    model = 'no_decay = ["bias"]\n' + optimizer(groups)
    assert clipped("amp.master_params(optimizer)", model) == CLIP.format("model.parameters()")


@pytest.mark.parametrize(
    "argument",
    [
        '[{"params": model.a.parameters()}, {"params": model.b.parameters()}]',
        "get_parameters(model)",
        "[p for n, p in model.named_parameters() if 'bias' not in n]",
        "filter(lambda p: p.dim() > 1, model.parameters())",
        "list(model.a.parameters()) + list(model.b.parameters())",
    ],
)
def test_the_optimizers_groups_where_the_parameters_may_be_others(argument: str) -> None:
    assert clipped("amp.master_params(optimizer)", optimizer(argument)) == CLIP.format(f"({GROUPS})")


NAMED = "[p for n, p in {} if {}]"


@pytest.mark.parametrize(
    "argument",
    [
        "[p for p in model.parameters() if p.requires_grad]",
        "filter(lambda p: p.requires_grad, model.parameters())",
        "list(model.parameters())",
    ],
)
def test_what_is_frozen_has_nothing_to_clip(argument: str) -> None:
    assert clipped("amp.master_params(optimizer)", optimizer(argument)) == CLIP.format("model.parameters()")


@pytest.mark.parametrize("later", ["model.body.requires_grad_(True)", "model.extra = Head(2)"])
def test_a_model_that_has_more_to_train_later_is_more_than_its_optimizer(later: str) -> None:
    model = f"{optimizer('filter(lambda p: p.requires_grad, model.parameters())')}\n{later}"
    assert clipped("amp.master_params(optimizer)", model) == CLIP.format(f"({GROUPS})")


def test_what_is_frozen_has_no_gradient_that_a_loop_could_read() -> None:
    reader = "for p in {}:\n    p.grad.clamp_(-1, 1)"
    argument = "filter(lambda p: p.requires_grad, model.parameters())"
    line = clipped("amp.master_params(optimizer)", optimizer(argument), reader)
    assert line == f"for p in ({GROUPS}):"


@pytest.mark.parametrize(
    ("tests", "whole"),
    [
        (("not any(k in n for k in no_decay)", "any(k in n for k in no_decay)"), True),
        (("p.requires_grad and 'bias' in n", "'bias' not in n and p.requires_grad"), True),
        (("p.dim() == 1", "p.dim() != 1"), True),
        (("a(n) and b(n)", "a(n) and not b(n)", "not a(n) and b(n)", "not a(n) and not b(n)"), True),
        (("not (a(n) or b(n))", "a(n)", "b(n) and not a(n)"), True),
        (("a(n) and b(n)", "not a(n) and not b(n)"), False),
        (("p.requires_grad and 'bias' in n",), False),
        (("'bias' in n", "'weight' in n"), False),
    ],
)
@pytest.mark.parametrize("source", ["model.named_parameters()", "list(model.named_parameters())", "named"])
def test_groups_are_the_model_where_their_conditions_leave_nothing_out(
    source: str, tests: tuple[str, ...], whole: bool
) -> None:
    groups = ", ".join(f'{{"params": {NAMED.format(source, test)}}}' for test in tests)
    model = f"model = build()\nnamed = list(model.named_parameters())\ngroups = [{groups}]\n"
    line = clipped("amp.master_params(optimizer)", f"{model}optimizer = torch.optim.AdamW(groups, lr=0.1)")
    assert line == CLIP.format("model.parameters()" if whole else f"({GROUPS})")


def test_what_a_list_of_names_and_parameters_leaves_out_no_group_of_it_holds() -> None:
    groups = ", ".join(f'{{"params": {NAMED.format("named", test)}}}' for test in ("'bias' in n", "'bias' not in n"))
    for kept, whole in (("p.requires_grad", True), ("'pooler' not in n", False)):
        named = f"named = [(n, p) for n, p in model.named_parameters() if {kept}]"
        model = f"model = build()\n{named}\noptimizer = torch.optim.AdamW([{groups}], lr=0.1)"
        line = clipped("amp.master_params(optimizer)", model)
        assert line == CLIP.format("model.parameters()" if whole else f"({GROUPS})")


def test_a_generator_alone_in_a_call_needs_no_parentheses() -> None:
    line = clipped("amp.master_params(optimizer)", optimizer("get_parameters(model)"), "norm = grad_norm({})")
    assert line == f"norm = grad_norm({GROUPS})"


def test_a_loop_over_the_masters_is_a_loop_over_the_parameters() -> None:
    reader = "for p in {}:\n    p.grad.clamp_(-1, 1)"
    line = clipped("amp.master_params(optimizer)", optimizer("model.parameters()"), reader)
    assert line == "for p in model.parameters():"


@pytest.mark.parametrize("call", ["amp.master_params(optimizer=optimizer)", "amp.master_params((optimizer))"])
def test_the_optimizer_is_read_however_it_is_given(call: str) -> None:
    assert clipped(call, optimizer("model.parameters()")) == CLIP.format("model.parameters()")


def test_a_conditional_between_masters_and_parameters_becomes_the_parameters() -> None:
    before = APEX_LOOP.replace(
        "optimizer.step()",
        "if args.fp16:\n    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)\n"
        "else:\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()",
    )
    after = rewrite(apex(before, imports="from apex import amp\nfrom options import args")).after
    assert after is not None
    assert after.count("clip_grad_norm_(model.parameters(), 1.0)") == 1
    assert "args.fp16" not in after


def test_the_plain_branch_of_a_pair_says_which_parameters_are_meant() -> None:
    before = APEX_LOOP.replace(
        "optimizer.step()",
        "if args.fp16:\n    clip_grad_norm_(amp.master_params(optimizer), 1.0)\n"
        "else:\n    clip_grad_norm_(net.parameters(), 1.0)\noptimizer.step()",
    )
    model = "net = build()\nmodel = net\noptimizer = make_optimizer(model)"
    after = rewrite(apex(before, imports="from apex import amp\nfrom options import args", model=model)).after
    assert after is not None
    assert "clip_grad_norm_(net.parameters(), 1.0)" in after
    assert "if " not in after


def test_the_model_is_named_as_it_is_where_the_clip_stands() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion


        def train(net, optimizer, loader):
            for x, y in loader:
                loss = criterion(net(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
                optimizer.step()


        def main(loader):
            model = build()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            train(model, optimizer, loader)
        """
    after = rewrite(source).after
    assert after is not None
    assert "clip_grad_norm_(net.parameters(), 1.0)" in after


def test_masters_of_an_optimizer_on_self() -> None:
    source = """
        import torch
        from apex import amp


        class Trainer:
            def __init__(self, model):
                self.model = model
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

            def step(self, x):
                loss = self.model(x).sum()
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                torch.nn.utils.clip_grad_norm_(amp.master_params(self.optimizer), 1.0)
                self.optimizer.step()
        """
    expected = """
        import torch


        class Trainer:
            def __init__(self, model):
                self.model = model
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                self.scaler = torch.amp.GradScaler("cuda")

            def step(self, x):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = self.model(x).sum()
                self.scaler.scale(loss).backward()
                self.scaler.unscale_(self.optimizer)
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.scaler.step(self.optimizer)
                self.scaler.update()
        """
    check_rewrite(source, expected)


def test_other_functions_called_master_params_are_left_alone() -> None:
    check_untouched("from mylib import amp\nfor p in amp.master_params(optimizer):  # apex\n    print(p)\n")


def test_masters_without_initialize_in_sight_are_reported_once() -> None:
    source = """
        from apex import amp


        def clip(optimizer):
            for p in amp.master_params(optimizer):
                p.grad.clamp_(-1, 1)
        """
    result = check_refused(source, "AMP116")
    assert [f.line for f in result.findings] == [5]


def test_masters_without_initialize_in_sight_are_reported() -> None:
    source = """
        from apex import amp


        def clip(optimizer):
            for p in amp.master_params(optimizer):
                p.grad.clamp_(-1, 1)
        """
    result = check_refused(source, "AMP116")
    assert [f.line for f in result.findings] == [5]


def test_one_of_several_optimizers_has_the_parameters_of_its_own_groups() -> None:
    result = rewrite(
        """
        import torch
        from apex import amp
        a, b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        opt_a = torch.optim.SGD(a.parameters(), lr=0.1)
        opt_b = torch.optim.SGD(b.parameters(), lr=0.1)
        [a, b], [opt_a, opt_b] = amp.initialize([a, b], [opt_a, opt_b], opt_level="O1")
        for x in data:
            loss = b(a(x)).mean()
            with amp.scale_loss(loss, [opt_a, opt_b]) as scaled_loss:
                scaled_loss.backward()
            for optimizer in (opt_a, opt_b):
                torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
            for optimizer in (opt_a, opt_b):
                optimizer.step()
        """
    )
    assert result.after is not None
    assert 'for group in optimizer.param_groups for p in group["params"]' in result.after


def test_what_is_handed_on_to_code_out_of_sight_is_unscaled_before() -> None:
    result = rewrite(
        """
        import torch
        from apex import amp
        from helpers import check_update

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in data:
            loss = model(x).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            wanted = list(amp.master_params(optimizer))
            print(len(wanted))
            norm = check_update(model, 1.0, params=wanted)
            optimizer.step()
        """
    )
    assert result.after is not None
    assert (
        "    print(len(wanted))\n"
        "    scaler.unscale_(optimizer)\n"
        "    norm = check_update(model, 1.0, params=wanted)\n"
        "    scaler.step(optimizer)\n" in result.after
    )


def test_a_norm_of_master_params_is_no_gradient() -> None:
    result = rewrite(
        """
        import torch
        from apex import amp

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in data:
            loss = model(x).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
            optimizer.step()
            meter.update(norm)
        """
    )
    assert result.status == "migrated"
    assert result.after is not None
    assert result.after.count("unscale_(") == 1


PART = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def train(fp16, several, model):
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
    if fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
    if several:
        model = torch.nn.DataParallel(model)
    for x, y in loader:
        loss = criterion(model(x), y)
        if fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        if fp16:
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 0.01)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
        model.zero_grad()


net = Net()
"""


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("fp16", [False, True])
def test_a_part_with_mixed_precision_and_the_whole_model_without_it_stay_two(fp16: bool, several: bool) -> None:
    """What the optimizer lacks was never unscaled; a wrapper has no such part."""
    after = check_trained(f"{PART}train({fp16}, {several}, net)\n")
    assert chosen(after) == ["if fp16:", f"({GROUPS})", "0.01"]


@pytest.mark.parametrize("assigned", ["", "norm = "])
@pytest.mark.parametrize("fp16", [False, True])
def test_what_would_be_a_long_line_is_chosen_above_it(fp16: bool, assigned: str) -> None:
    clip = "torch.nn.utils.clip_grad_norm_"
    program = PART.replace(", 0.01)", ", 0.01, norm_type=2.0, error_if_nonfinite=False)").replace(clip, assigned + clip)
    after = check_trained(f"{program}train({fp16}, False, net)\n")
    chosen = f"""
        scaler.unscale_(optimizer)
        clipped_parameters = model.parameters()
        if fp16:
            clipped_parameters = ({GROUPS})
        {assigned}{clip}(clipped_parameters, 0.01, norm_type=2.0, error_if_nonfinite=False)
"""
    assert chosen in after


CHOSEN = (
    PART.replace("model.head.parameters()", "groups")
    .replace("    optimizer =", "{}\n    optimizer =")
    .replace("model.zero_grad()", "optimizer.zero_grad()")
)


@pytest.mark.parametrize("fp16", [False, True])
@pytest.mark.parametrize(
    "groups",
    [
        'groups = [{"params": [p for n, p in model.named_parameters() if p.requires_grad and "head" in n]}]',
        "groups = filter(lambda p: len(p) == 1, model.parameters())",
        'named = list(model.named_parameters())\n    groups = [p for n, p in named if n.startswith("head")]',
    ],
)
def test_parameters_that_were_chosen_are_not_the_model_that_is_clipped_without_mixed_precision(
    groups: str, fp16: bool
) -> None:
    """The others have gradients that stay scaled and are never zeroed."""
    after = check_trained(f"{CHOSEN.format('    ' + groups)}train({fp16}, False, net)\n")
    assert chosen(after) == ["if fp16:", f"({GROUPS})", "0.01"]


def test_a_part_is_named_where_its_model_is_not_wrapped() -> None:
    program = PART.replace("        model = torch.nn.DataParallel(model)", "        print(model)")
    after = check_trained(f"{program}train(True, False, net)\n")
    assert "clip_grad_norm_(model.head.parameters() if fp16 else model.parameters(), 0.01)" in after


@pytest.mark.parametrize(("resized", "renewed"), [("model.resize_token_embeddings(100)", True), ("model.tie()", False)])
def test_a_model_that_is_given_other_parameters_later_has_more_than_the_optimizer(resized: str, renewed: bool) -> None:
    """The new ones get scaled gradients, which nothing unscales."""
    line = clipped("amp.master_params(optimizer)", f"{optimizer('model.parameters()')}\n{resized}")
    assert line == CLIP.format(f"({GROUPS})" if renewed else "model.parameters()")


@pytest.mark.parametrize("fp16", [False, True])
def test_parameters_that_a_model_is_given_by_another_name_count_where_they_did(fp16: bool) -> None:
    """Without mixed precision the whole model was clipped, the new parameters too: they belong to the norm there alone."""
    program = PART.replace(
        "        return self.head(torch.tanh(self.body(x)))\n",
        "        return self.head(torch.tanh(self.body(x)))\n\n"
        "    def resize_token_embeddings(self, size):\n"
        "        self.head = torch.nn.Linear(8, size)\n",
    )
    program = program.replace("model.head.parameters()", "model.parameters()")
    program = program.replace(
        "    for x, y in loader:\n",
        '    inner = model.module if hasattr(model, "module") else model\n'
        "    inner.resize_token_embeddings(1)\n    for x, y in loader:\n",
    )
    after = check_trained(f"{program}train({fp16}, False, net)\n")
    assert chosen(after) == ["if fp16:", f"({GROUPS})", "0.01"]


OTHERS = {
    "given to a function": """
        def step(net, opt):
            with amp.scale_loss(criterion(net(x), y), opt) as scaled_loss:
                scaled_loss.backward()
            seen.append(clip_grad_norm_(amp.master_params(opt), 0.01).item())
            opt.step()
            opt.zero_grad()

        other = build()
        optimizers = []
        optimizers.append(torch.optim.SGD(other.parameters(), lr=0.1))
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
        other, optimizers[0] = amp.initialize(other, optimizers[0], opt_level="O1", verbosity=0)
        for x, y in loader:
            step(model, optimizer)
            step(other, optimizers[0])
    """,
    "taken out of a dictionary under the name of another": """
        other = build()
        named = {"other": torch.optim.SGD(other.parameters(), lr=0.1)}
        other, named["other"] = amp.initialize(other, named["other"], opt_level="O1", verbosity=0)
        optimizer = named.get("other")
        for x, y in loader:
            with amp.scale_loss(criterion(other(x), y), optimizer) as scaled_loss:
                scaled_loss.backward()
            seen.append(clip_grad_norm_(amp.master_params(optimizer), 0.01).item())
            optimizer.step()
            optimizer.zero_grad()
    """,
    "gone through in pairs": """
        other = build()
        second = torch.optim.SGD(other.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
        other, second = amp.initialize(other, second, opt_level="O1", verbosity=0)
        pairs = [(other, second)]
        for x, y in loader:
            for net, optimizer in pairs:
                with amp.scale_loss(criterion(net(x), y), optimizer) as scaled_loss:
                    scaled_loss.backward()
                seen.append(clip_grad_norm_(amp.master_params(optimizer), 0.01).item())
                optimizer.step()
                optimizer.zero_grad()
    """,
}


@pytest.mark.parametrize("case", OTHERS)
def test_an_optimizer_that_may_be_another_by_the_time_has_its_own_groups(case: str) -> None:
    """A model of that name there is not the one it steps: clipping its parameters would leave those as they are."""
    after = check_trained(OTHERS[case])
    assert "model.parameters(), 0.01" not in after
    assert "param_groups for p in group['params']" in after.replace('"', "'")


FLAGGED = """
    import torch
    from apex import amp

    def train(args, model, loader):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
        model.resize_token_embeddings(100)
        for x in loader:
            loss = model(x).sum()
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            if {test}:
                torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
            else:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    """


@pytest.mark.parametrize(
    ("test", "asked"),
    [("args.fp16", "args.fp16"), ("args.fp16 and amp is not None", "args.fp16")],
)
def test_which_parameters_are_clipped_is_asked_as_the_program_asked_it(test: str, asked: str) -> None:
    """At O0 mixed precision is off, and what the optimizer steps was clipped all the same."""
    after = rewrite(FLAGGED.format(test=test)).after or ""
    assert chosen(after) == [f"if {asked}:", f"({GROUPS})", "1.0"]
    assert 'enabled=bool(args.fp16) and args.level != "O0"' in after or 'args.level != "O0"' in after
