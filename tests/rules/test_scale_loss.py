"""`with amp.scale_loss(...)`: the scaled backward, whatever the statement looks like."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite, check_untouched, rewrite
from tests.rules.programs import APEX_LOOP, INITIALIZE, NATIVE_LOOP, apex, check_refused, found, initialize, native
from tests.rules.trained import check_trained

WITH = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()"
SCALED = "scaler.scale(loss).backward()"


def replaced(before: str, after: str) -> tuple[str, str]:
    """A program whose `with` statement is written in another way, and what becomes of it."""
    return apex(APEX_LOOP.replace(WITH, before)), native(NATIVE_LOOP.replace(SCALED, after))


# -- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", ["retain_graph=True", "retain_graph=True, create_graph=True", "*more, **options", "inputs=[x]"]
)
def test_arguments_of_backward_pass_through(arguments: str) -> None:
    body = WITH.replace("backward()", f"backward({arguments})")
    check_rewrite(*replaced(body, SCALED.replace("backward()", f"backward({arguments})")))


def test_torch_autograd_backward_gets_the_scaled_loss() -> None:
    body = WITH.replace("scaled_loss.backward()", "torch.autograd.backward(scaled_loss)")
    check_rewrite(*replaced(body, "torch.autograd.backward(scaler.scale(loss))"))


def test_a_gradient_argument_may_name_the_scaled_loss() -> None:
    body = WITH.replace("backward()", "backward(gradient=torch.ones_like(scaled_loss))")
    after = "scaled_loss = scaler.scale(loss)\nscaled_loss.backward(gradient=torch.ones_like(scaled_loss))"
    result = rewrite(replaced(body, after)[0]).after
    assert result is not None
    assert "gradient=torch.ones_like(scaled_loss)" in result


def test_a_body_of_several_statements_keeps_them_in_order() -> None:
    body = WITH.replace("scaled_loss.backward()", "before()\n    scaled_loss.backward()\n    after()")
    check_rewrite(*replaced(body, f"before()\n{SCALED}\nafter()"))


def test_a_scaled_loss_that_is_used_afterwards_keeps_its_name() -> None:
    body = f"{WITH}\nprint(scaled_loss.item())"
    after = "scaled_loss = scaler.scale(loss)\nscaled_loss.backward()\nprint(scaled_loss.item())"
    result = check_rewrite(*replaced(body, after))
    assert found(result, "AMP201")[0].review == "look"


def test_statements_inside_an_inner_if_stay_there() -> None:
    body = WITH.replace("scaled_loss.backward()", "if ready:\n        scaled_loss.backward()")
    check_rewrite(*replaced(body, f"if ready:\n    {SCALED}"))


@pytest.mark.parametrize(
    ("expression", "scaled"),
    [
        ("loss / 4", "scaler.scale(loss / 4)"),
        ("(loss / 4)", "scaler.scale(loss / 4)"),
        ("loss_a + loss_b", "scaler.scale(loss_a + loss_b)"),
        ("sum(losses)", "scaler.scale(sum(losses))"),
        ("losses['total']", "scaler.scale(losses['total'])"),
        ("loss.float()", "scaler.scale(loss.float())"),
    ],
)
def test_the_scaled_expression_is_kept(expression: str, scaled: str) -> None:
    after = rewrite(apex(APEX_LOOP.replace("scale_loss(loss,", f"scale_loss({expression},"))).after
    assert after is not None
    assert f"    {scaled}.backward()\n" in after


def test_a_sum_is_parenthesised_where_no_call_holds_it() -> None:
    source = apex(APEX_LOOP.replace("scale_loss(loss,", "scale_loss(loss + loss,"))
    after = rewrite(source, dtype="bfloat16").after
    assert after is not None
    assert "    (loss + loss).backward()\n" in after


def test_a_scalar_loss_is_not_cast() -> None:
    after = rewrite(apex()).after
    assert after is not None
    assert ".float()" not in after


# -- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "amp.scale_loss(loss=loss, optimizers=optimizer)",
        "amp.scale_loss((loss), (optimizer))",
        "amp.scale_loss(loss, optimizer,)",
        "amp.scale_loss(loss, [optimizer])",
        "amp.scale_loss(\n        loss,\n        optimizer,\n    )",
        "(amp.scale_loss)(loss, optimizer)",
    ],
)
def test_arguments_are_read_however_they_are_given(call: str) -> None:
    check_rewrite(*replaced(WITH.replace("amp.scale_loss(loss, optimizer)", call), SCALED))


def test_a_one_line_with_is_taken_apart() -> None:
    check_rewrite(*replaced(WITH.replace("\n    ", " "), SCALED))


def test_comments_in_and_around_the_body_stay() -> None:
    body = (
        "# above\nwith amp.scale_loss(loss, optimizer) as scaled_loss:  # beside\n    # inside\n"
        "    scaled_loss.backward()  # at the end\n    # after\n# below"
    )
    after = f"# above\n# beside\n# inside\n{SCALED}  # at the end\n# after\n# below"
    check_rewrite(*replaced(body, after))


@pytest.mark.parametrize("test", ["args.fp16", "args.fp16 is True", "(args.fp16)"])
def test_the_pair_with_a_plain_backward_becomes_one_path(test: str) -> None:
    pair = f"if {test}:\n    {WITH.replace(chr(10), chr(10) + '    ')}\nelse:\n    loss.backward()"
    source = apex(APEX_LOOP.replace(WITH, pair), f"if {test}:\n    {initialize('opt_level=' + repr('O1'))}")
    after = rewrite("from options import args\n" + source).after
    assert after is not None
    assert after.count("backward()") == 1
    assert f"    {SCALED}\n" in after


def test_the_pair_may_test_for_the_plain_side_first() -> None:
    pair = f"if not args.fp16:\n    loss.backward()\nelse:\n    {WITH.replace(chr(10), chr(10) + '    ')}"
    source = apex(APEX_LOOP.replace(WITH, pair), "if args.fp16:\n    " + initialize("opt_level='O1'"))
    after = rewrite("from options import args\n" + source).after
    assert after is not None
    assert after.count("backward()") == 1
    assert "if " not in after


def test_the_plain_side_with_a_line_more_is_not_dropped() -> None:
    pair = f"if args.fp16:\n    {WITH.replace(chr(10), chr(10) + '    ')}\nelse:\n    loss.backward()\n    extra(model)"
    source = apex(APEX_LOOP.replace(WITH, pair), "if args.fp16:\n    " + initialize("opt_level='O1'"))
    after = rewrite("from options import args\n" + source).after
    assert after is not None
    assert "    else:\n        loss.backward()\n        extra(model)\n" in after


# -- helpers and the whole -------------------------------------------------------------------------------------------


def test_a_backward_in_a_closure_sees_the_scaler_around_it() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader


        def main():
            model, optimizer = build()
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

            def train_step(x, y):
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()

            for x, y in loader:
                train_step(x, y)
        """
    expected = """
        import torch

        from project import build, criterion, loader


        def main():
            model, optimizer = build()
            scaler = torch.amp.GradScaler("cuda")

            def train_step(x, y):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = criterion(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()

            for x, y in loader:
                train_step(x, y)
        """
    check_rewrite(source, expected)


def test_horovod_synchronizes_before_the_step_that_skips_it() -> None:
    horovod = "import horovod.torch as hvd"
    model = (
        "model = build()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "optimizer = hvd.DistributedOptimizer(optimizer)"
    )
    before = apex(
        """
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
            optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()
        """,
        imports=f"{horovod}\nfrom apex import amp",
        model=model,
    )
    after = native(
        """
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        """,
        imports=horovod,
        model=model,
    )
    result = rewrite(before).after
    assert result is not None
    order = ["scaler.scale(loss)", "optimizer.synchronize()", "scaler.unscale_(", "clip_grad_norm_", "scaler.step("]
    assert [result.index(part) for part in order] == sorted(result.index(part) for part in order)
    assert result.count("scaler.update()") == after.count("scaler.update()")


# -- what is not migrated --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "with_statement",
    [
        "with timer(), amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()",
        "with amp.scale_loss(loss, optimizer):\n    loss.backward()",
        "with amp.scale_loss(loss, optimizer) as state.loss:\n    state.loss.backward()",
    ],
)
def test_with_statements_that_cannot_be_taken_apart_are_reported(with_statement: str) -> None:
    result = check_refused(apex(APEX_LOOP.replace(WITH, with_statement)), "AMP202")
    (first,) = [f for f in result.findings if f.construct == "amp.initialize"]
    assert "waits for" in first.message


def test_a_context_manager_kept_in_a_variable_is_reported() -> None:
    manager = "manager = amp.scale_loss(loss, optimizer)\nwith manager as scaled_loss:\n    scaled_loss.backward()"
    result = rewrite(apex(APEX_LOOP.replace(WITH, manager)))
    assert result.after is None
    assert result.status == "blocked"
    assert len([f for f in result.findings if f.status == "manual"]) == 2


def test_a_loss_without_initialize_in_sight_is_reported() -> None:
    source = """
        from apex import amp


        def step(model, optimizer, loss):
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        """
    check_refused(source, "AMP116")


def test_a_subclass_that_overrides_the_backward_belongs_to_the_unit() -> None:
    source = """
        import torch
        from apex import amp


        class Trainer:
            def __init__(self, model, optimizer):
                self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

            def backward(self, loss):
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()

            def step(self, x):
                loss = self.model(x).sum()
                self.backward(loss)
                self.optimizer.step()


        class Weighted(Trainer):
            def backward(self, loss):
                with amp.scale_loss(loss * 2, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
        """
    after = rewrite(source).after
    assert after is not None
    assert "        self.scaler.scale(loss).backward()\n" in after
    assert "        self.scaler.scale(loss * 2).backward()\n" in after


@pytest.mark.parametrize(
    "source",
    [
        "from mylib import scale_loss\nwith scale_loss(loss, optimizer) as scaled:\n    scaled.backward()  # apex\n",
        "def scale_loss(loss):\n    return loss * 2  # apex\nscale_loss(3).backward()\n",
        "class Loss:\n    def scale_loss(self, loss):\n        return loss  # apex\nLoss().scale_loss(1)\n",
        "amp = Amplifier()  # apex\nwith amp.scale_loss(1, 2) as louder:\n    louder.play()\n",
    ],
)
def test_other_things_called_scale_loss_or_amp_are_left_alone(source: str) -> None:
    check_untouched(source)


def test_a_scaled_loss_under_the_name_of_the_loss() -> None:
    body = WITH.replace("scaled_loss", "loss")
    check_rewrite(*replaced(body, SCALED))


def test_a_forward_inside_the_call_gets_a_region() -> None:
    before = apex(
        """
        with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        """
    )
    after = native(
        """
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        """
    )
    check_rewrite(before, after)


def test_an_assignment_expression_inside_the_call_is_no_syntax_error() -> None:
    source = apex(
        """
        with amp.scale_loss((loss := criterion(model(x), y)), optimizer) as scaled_loss:
            scaled_loss.backward()
        print(loss.item())
        optimizer.step()
        """
    )
    result = rewrite(source)
    if result.after is None:
        assert any(f.status == "manual" for f in result.findings)
    else:
        compile(result.after, "train.py", "exec")
        assert "scaler.scale(" in result.after


def test_a_one_line_with_of_two_statements_is_taken_apart() -> None:
    after = rewrite(replaced(WITH.replace("\n    ", " ") + "; n += 1", "")[0]).after
    assert after is not None
    compile(after, "train.py", "exec")
    assert after.index("scaler.scale(loss)") < after.index("n += 1") < after.index("scaler.step")
    assert "\n    n += 1\n" in after or "backward(); n += 1\n" in after


def test_a_plain_copy_of_the_loop_keeps_its_own_lines() -> None:
    source = """
        import torch
        from apex import amp

        from project import args, build, criterion, loader

        model, optimizer = build()
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

        for x, y in loader:
            if args.fp16:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
            else:
                loss = criterion(model(x), y)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    plain = """\
    else:
        loss = criterion(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
"""
    assert after.endswith(plain)


def test_a_second_plain_backward_before_the_step_is_scaled_too_or_reported() -> None:
    source = apex(
        """
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        attack(model)
        adversarial = criterion(model(x), y)
        adversarial.backward()
        optimizer.step()
        """
    )
    result = rewrite(source)
    if result.after is None:
        assert [f for f in result.findings if f.status == "manual"]
    else:
        assert "scaler.scale(adversarial).backward()" in result.after


@pytest.mark.parametrize(
    "use",
    [
        "scaled_loss.mean().backward()",
        "scaled_loss.backward(torch.ones_like(loss))",
        "scaled_loss.backward(gradient=weights)",
    ],
)
def test_a_loss_vector_is_made_float32_before_65536_overflows_it(use: str) -> None:
    body = WITH.replace("scaled_loss.backward()", use)
    after = SCALED.replace("scaler.scale(loss).backward()", use.replace("scaled_loss", "scaler.scale(loss.float())"))
    check_rewrite(*replaced(body, after))


@pytest.mark.parametrize("reader", ["torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "log_grad_norm(model)"])
def test_what_read_gradients_inside_the_with_statement_saw_scaled_ones_which_is_said(reader: str) -> None:
    (finding,) = found(rewrite(replaced(f"{WITH.rstrip()}\n    {reader}\n", "")[0]), "AMP203")
    assert finding.review == "review"


def test_what_reads_gradients_after_the_with_statement_saw_the_true_ones() -> None:
    before = replaced(f"{WITH.rstrip()}\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", "")[0]
    assert not found(rewrite(before), "AMP203")


@pytest.mark.parametrize("change", ["scaled_loss /= 4", "scaled_loss = scaled_loss / 4"])
def test_a_scaled_loss_that_is_changed_keeps_its_name(change: str) -> None:
    body = WITH.replace("scaled_loss.backward()", f"{change}\n    scaled_loss.backward()")
    check_rewrite(*replaced(body, f"scaled_loss = scaler.scale(loss)\n{change}\nscaled_loss.backward()"))


def test_a_scaled_loss_that_is_deleted_keeps_its_name() -> None:
    body = WITH.replace("scaled_loss.backward()", "scaled_loss.backward()\n    del scaled_loss")
    check_rewrite(*replaced(body, "scaled_loss = scaler.scale(loss)\nscaled_loss.backward()\ndel scaled_loss"))


def test_a_loss_is_never_scaled_twice() -> None:
    nested = (
        "with amp.scale_loss(loss, one) as first:\n    with amp.scale_loss(first, two) as second:\n"
        "        second.backward()\none.step()\ntwo.step()"
    )
    model = "a, b = build(), build()\none, two = optimizers(a, b)"
    prepare = '[a, b], [one, two] = amp.initialize([a, b], [one, two], opt_level="O1")'
    imports = "from apex import amp\nfrom project import optimizers"
    result = rewrite(apex("loss = criterion(b(a(x)), y)\n" + nested, prepare, model=model, imports=imports))
    (finding,) = found(result, "AMP202")
    assert finding.status == "manual"
    assert result.after is None


def test_a_criterion_in_the_argument_is_computed_under_autocast() -> None:
    """A float16 loss would have the scale itself as its gradient: 65536 overflows, and the scale is pinned at 32768."""
    body = WITH.replace("(loss,", "(criterion(output, y),")
    after = rewrite(apex("output = model(x)\n" + body + "\noptimizer.step()\n")).after
    assert after is not None
    assert '    with torch.autocast("cuda", dtype=torch.float16):\n        loss = criterion(output, y)\n' in after
    assert "scaler.scale(loss).backward()" in after


def test_a_loss_without_a_name_does_not_take_one_that_is_used() -> None:
    body = WITH.replace("(loss,", "(loss + criterion(output, y),")
    after = rewrite(apex("output = model(x)\nloss = 0\n" + body + "\noptimizer.step()\nprint(loss)\n")).after
    assert after is not None
    assert "batch_loss = loss + criterion(output, y)\n" in after
    assert "scaler.scale(batch_loss).backward()" in after


def test_a_loss_that_autocast_refuses_in_the_argument_is_refused() -> None:
    body = WITH.replace("(loss,", "(torch.nn.functional.binary_cross_entropy(output, y),")
    check_refused(apex("output = torch.sigmoid(model(x))\n" + body + "\noptimizer.step()\n"), "AMP505")


def test_a_vector_given_to_autograd_is_float32_before_it_is_scaled() -> None:
    body = WITH.replace("scaled_loss.backward()", "torch.autograd.backward(scaled_loss, torch.ones_like(scaled_loss))")
    after = rewrite(apex("loss = criterion(model(x), y)\n" + body + "\noptimizer.step()\n")).after
    assert after is not None
    assert "scaled_loss = scaler.scale(loss.float())\n" in after


SEVERAL = """
def train(model, optimizer, several):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
    for x, y in loader:
        delta = torch.zeros_like(x).requires_grad_()
        loss = criterion(model(x + delta), y)
        if several:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            with amp.scale_loss(2 * loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        shift = delta.grad / (scaled_loss.item() / loss.item())
        optimizer.zero_grad()
        loss = criterion(model(x + shift), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 0.5)
        optimizer.step()
        optimizer.zero_grad()


train(model, optimizer, SEVERAL)
"""


@pytest.mark.parametrize("several", [False, True])
def test_a_scaled_loss_that_is_read_after_its_branch_keeps_its_name_there_and_only_there(several: bool) -> None:
    """The same name is bound three times: what is read belongs to the two branches before it, not to the last."""
    after = check_trained(SEVERAL.replace("SEVERAL", str(several)))
    assert "scaled_loss = scaler.scale(loss)" in after
    assert "scaled_loss = scaler.scale((2 * loss))" in after or "scaled_loss = scaler.scale(2 * loss)" in after
    assert after.count("scaler.scale(loss).backward()") == 1


def test_a_condition_beside_the_switch_that_goes_with_the_pair_is_told() -> None:
    loop = """
    loss = criterion(model(x), y)
    if distributed and args.fp16:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()
    optimizer.step()
    """
    imports = "from apex import amp\nfrom options import args, distributed"
    result = rewrite(apex(loop, f"if args.fp16:\n    {INITIALIZE}", imports=imports))
    assert result.after is not None
    assert "scaler.scale(loss).backward()" in result.after
    (told,) = [f for f in found(result, "AMP201") if f.status == "note"]
    assert told.message.endswith("it was not where distributed is false")
    for test in ("args.fp16", "args.fp16 and args.fp16"):
        same = rewrite(
            apex(loop.replace("distributed and args.fp16", test), f"if args.fp16:\n    {INITIALIZE}", imports=imports)
        )
        assert not [f for f in found(same, "AMP201") if f.status == "note"]
    both = rewrite(apex(loop, f"if distributed and args.fp16:\n    {INITIALIZE}", imports=imports))
    assert not [f for f in found(both, "AMP201") if f.status == "note"]


def test_a_misspelt_backward_is_told_where_it_stands() -> None:
    result = check_refused(apex(APEX_LOOP.replace("scaled_loss.backward()", "scaled_loss.backwward()")), "AMP202")
    (finding,) = found(result, "AMP202")
    assert "a tensor has no backwward" in finding.message
    assert result.before.splitlines()[finding.line - 1].strip() == "scaled_loss.backwward()"


@pytest.mark.parametrize(
    ("given", "read", "told"),
    [
        ("loss / n", "print(loss.item())", True),
        ("loss", "print(loss.item())", False),
        ("loss / n", "pass", False),
        ("loss / n", "if self.args.fp16:\n            print(loss.item())", False),
        ("loss / n", "if n > 1 and self.args.fp16:\n            print(loss.item())", False),
        ("loss / n", "if not self.args.fp16:\n            print(loss.item())", True),
        ("loss / n", "if n > 1:\n            print(loss.item())", True),
    ],
    ids=["divided", "itself", "read no more", "under the switch", "and more", "where it is off", "under another"],
)
def test_a_name_that_has_another_value_than_without_apex_is_told_of(given: str, read: str, told: bool) -> None:
    source = f"""
import torch
from apex import amp

class Runner:
    def __init__(self, args):
        self.args, self.model = args, torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        if args.fp16:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def step(self, x, y, n):
        loss = (self.model(x) - y).pow(2).mean()
        self.optimizer.zero_grad()
        if self.args.fp16:
            with amp.scale_loss({given}, self.optimizer) as loss:
                loss.backward()
        else:
            ({given}).backward()
        self.optimizer.step()
        {read}
"""
    result = rewrite(source)
    assert result.after is not None, result.findings
    assert any("in all runs now" in f.message for f in found(result, "AMP201")) is told
