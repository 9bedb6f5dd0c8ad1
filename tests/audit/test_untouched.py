"""Nothing beside mixed precision moves."""

from __future__ import annotations

import textwrap

import pytest

from tests.audit.helpers import doubts, sides, told

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    def train(args, model, optimizer, loader, log):
  -     if args.fp16:
  -         model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=args.loss_scale)
  +     scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
        for step, batch in enumerate(loader):
  -         loss = model(batch).mean()
  -         if args.fp16:
  -             with amp.scale_loss(loss, optimizer) as scaled_loss:
  -                 scaled_loss.backward()
  -         else:
  -             loss.backward()
  -         optimizer.step()
  +         with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
  +             loss = model(batch).mean()
  +         scaler.scale(loss).backward()
  +         scaler.step(optimizer)
  +         scaler.update()
            # keep an eye on the learning rate
            if step % 10 == 0:
                log.write(loss)
            loader.shuffle()
        torch.save(model, "run_%s.pt" % args.loss_scale)
    """)


def test_a_right_migration() -> None:
    assert not told(doubts(BEFORE, AFTER), "AMP134")


SECOND_SETUP = """            if args.policy:
                other, second = amp.initialize(other, second, opt_level="O1")
            if args.dist:
                model = ApexDDP(model)
                if args.policy:
                    other = ApexDDP(other)
"""
DDP, OTHER = "model = DDP(model, device_ids=[0])", "other = DDP(other, device_ids=[0])"


@pytest.mark.parametrize(
    ("left", "wanted"),
    [
        (f"    if args.dist:\n        {DDP}\n        if args.policy:\n            {OTHER}", []),
        (f"    if args.dist:\n        {DDP}\nif args.policy:\n    {OTHER}", ["refuse"]),
        (f"    if args.policy:\n        if args.dist:\n            {DDP}\n        {OTHER}", ["refuse"]),
    ],
    ids=["the other went", "it moved out", "it was the other and dist stands under it"],
)
def test_of_two_tests_that_are_alike_the_one_that_went_is_that_of_apex(left: str, wanted: list[str]) -> None:
    loop = "        for step, batch"
    before = BEFORE.replace(loop, SECOND_SETUP + loop, 1)
    after = AFTER.replace(loop, f"        if args.fp16:\n{textwrap.indent(left, ' ' * 8)}\n{loop}", 1)
    assert [v for _, v in told(doubts(before, after), "AMP134")][:1] == wanted


def test_a_statement_that_went() -> None:
    after = AFTER.replace("            loader.shuffle()\n", "")
    assert told(doubts(BEFORE, after), "AMP134") == [(18, "refuse")]


OTHER_FUNCTION = """

    def show(number):
        wait = number + 1
        return wait
    """


@pytest.mark.parametrize(("read", "gone"), [("", False), ("            log.write(wait)\n", True)])
def test_a_variable_of_a_function_is_read_in_that_function_alone(read: str, gone: bool) -> None:
    place = "            # keep an eye on the learning rate\n"
    before = BEFORE.replace(place, f"{place}            wait = batch is None\n{read}")
    after = AFTER.replace(place, place + read)
    found = doubts(before + OTHER_FUNCTION, after + OTHER_FUNCTION)
    assert (
        bool([d for d in found if d.verdict == "refuse" and d.code != "AMP240"]) is gone
    )  # the scale is not held here


NET = """

    class Net(torch.nn.Module):
        def forward(self, x, y):
            {}
    """
WHOLE = "return torch.nn.BCELoss()(self.top(x), y), x"
APART = """with torch.autocast("cuda", enabled=False):
                bce_loss = torch.nn.BCELoss()(self.top(x).float(), y.float())
            return {}"""


@pytest.mark.parametrize(
    ("returned", "gone"),
    [
        ("bce_loss, x", False),
        ("bce_loss.float(), x", False),
        ("bce_loss.detach(), x", True),
        ("bce_loss", True),
        ("bce_loss, y", True),
        ("x, bce_loss", True),
    ],
)
def test_a_statement_of_which_a_part_is_computed_before_it(returned: str, gone: bool) -> None:
    found = doubts(BEFORE + NET.format(WHOLE), AFTER + NET.format(APART.format(returned)))
    assert bool(told(found, "AMP134")) is gone


def test_a_statement_under_another_test() -> None:
    after = AFTER.replace("            loader.shuffle()\n", "                loader.shuffle()\n")
    assert told(doubts(BEFORE, after), "AMP134") == [(18, "refuse")]


def test_a_value_that_is_read_for_something_else() -> None:
    line = "        args.loss_scale = None if args.loss_scale is None else float(args.loss_scale)\n"
    after = AFTER.replace("        scaler = ", f"{line}        scaler = ")
    found = [d for d in doubts(BEFORE, after) if d.code == "AMP134"]
    assert [d.verdict for d in found] == ["refuse"]
    assert "line 19 reads it" in found[0].message


def test_a_value_that_is_read_before_it_is_given_another() -> None:
    show = "        print(args.loss_scale)\n        if args.fp16:\n            model, optimizer"
    before = BEFORE.replace("        if args.fp16:\n            model, optimizer", show).replace(
        " % args.loss_scale", ""
    )
    line = "        print(args.loss_scale)\n        args.loss_scale = float(args.loss_scale)\n"
    after = AFTER.replace("        scaler = ", f"{line}        scaler = ").replace(" % args.loss_scale", "")
    assert not told(doubts(before, after), "AMP134")


def test_a_comment_that_went() -> None:
    after = AFTER.replace("            # keep an eye on the learning rate\n", "")
    assert told(doubts(BEFORE, after), "AMP134") == [(15, "review")]


def test_comments_about_apex_may_go() -> None:
    before = BEFORE.replace("# keep an eye", "# Apex: keep an eye")
    after = AFTER.replace("            # keep an eye on the learning rate\n", "")
    assert not told(doubts(before, after), "AMP134")


def test_a_guard_whose_class_is_now_torchs() -> None:
    before = """
        from apex.normalization import FusedLayerNorm

        def init(module):
            if isinstance(module, FusedLayerNorm):
                module.bias.data.fill_(0)
        """
    after = """
        from torch.nn import LayerNorm

        def init(module):
            if isinstance(module, LayerNorm):
                module.bias.data.fill_(0)
        """
    assert not told(doubts(before, after), "AMP134")


SHUFFLE = "            loader.shuffle()\n"


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("loader.reset()", True),
        ("log.flush()", False),
        ("count += 1", True),
        ("args.seen = step", False),  # nothing reads it
        ("loss = loss / 2", True),
        ("unread = step", False),
        ("del batch", True),
        ("return loss", True),
        ("for _ in range(2):\n                loader.reset()", True),
        ("import os", False),
        ("pass", False),
        ("'a note'", False),
        ("print(loss)", False),
        ("logger.info(loss)", False),
        ("log.info(loss)", False),
        ("assert loss > 0", False),
        ("raise ValueError", False),
        ("loader.fp16_shuffle()", False),
        ("amp.state_dict()", False),
        ("clip_grad_norm_(model.parameters(), 1)", False),
        ("optimizer.zero_grad()", False),
        ("if args.fp16:\n                loader.reset()", False),
        ("if args.verbose:\n                loader.reset()", True),
        ("if not args.fp16 and args.verbose:\n                loader.reset()", False),
        ("with autocast():\n                loader.reset()", False),
        ("with lock:\n                loader.reset()", True),
        (
            "try:\n                from apex import amp\n            except ImportError:\n                loader.reset()",
            False,
        ),
        ("try:\n                import other\n            except ImportError:\n                loader.reset()", True),
    ],
)
def test_which_statements_may_go(statement: str, wanted: bool) -> None:
    before = BEFORE.replace(SHUFFLE, f"            {statement}\n")
    found = told(doubts(before, AFTER.replace(SHUFFLE, "")), "AMP134")
    assert [v for _, v in found[:1]] == (["refuse"] if wanted else [])


def test_a_statement_that_calls_a_part_of_the_step_may_go() -> None:
    helper = "\n    def tidy(optimizer):\n        optimizer.zero_grad()\n\n    def note(log):\n        loader.reset()\n"
    for call, wanted in (("tidy(optimizer)", []), ("note(log)", ["refuse"])):
        before = BEFORE.replace(SHUFFLE, f"            {call}\n") + helper
        found = told(doubts(before, AFTER.replace(SHUFFLE, "") + helper), "AMP134")
        assert [v for _, v in found] == wanted


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("if args.a:\n                loader.reset()", "loader.reset()", "stood under `args.a`, and does not any more"),
        (
            "loader.reset()",
            "if args.a:\n                loader.reset()",
            "stands now under `args.a`, and did not before",
        ),
        (
            "if args.a:\n                pass\n            else:\n                loader.reset()",
            "loader.reset()",
            "stood in the else of `args.a`",
        ),
        (
            "if args.a:\n                loader.reset()",
            "if not args.a:\n                loader.reset()",
            "stood under `args.a`",
        ),
        (
            "if args.a and args.b:\n                loader.reset()",
            "if args.b and args.a:\n                loader.reset()",
            "",
        ),
        (
            "if args.a and args.b:\n                loader.reset()",
            "if args.a:\n                if args.b:\n                    loader.reset()",
            "",
        ),
        (
            "if not args.a:\n                loader.reset()",
            "if args.a:\n                pass\n            else:\n                loader.reset()",
            "",
        ),
        ("if args.fp16:\n                loader.reset()", "loader.reset()", ""),
        ("loader.reset()", "if scaler.is_enabled():\n                loader.reset()", ""),
        ("while args.a:\n                loader.reset()", "loader.reset()", "stood under `args.a`"),
        ("if args.a:\n                optimizer.zero_grad()", "optimizer.zero_grad()", ""),
        ("if args.a:\n                import os", "import os", ""),
    ],
)
def test_under_which_tests_a_statement_stands(was: str, now: str, said: str) -> None:
    before = BEFORE.replace(SHUFFLE, f"            {was}\n")
    found = [d for d in doubts(before, AFTER.replace(SHUFFLE, f"            {now}\n")) if d.code == "AMP134"]
    assert bool(found) == bool(said), found
    assert not found or (said in found[-1].message and found[-1].verdict == "refuse")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("args.loss_scale = 1.0", ["refuse"]),
        ("args.loss_scale *= 2", ["refuse"]),
        ("args.loss_scale, other = 1.0, 2.0", ["refuse"]),
        ("args.other_scale = 1.0", []),
        ("loss_scale = 1.0", []),
    ],
)
def test_values_that_other_code_reads(line: str, wanted: list[str]) -> None:
    after = AFTER.replace("        scaler = ", f"        {line}\n        scaler = ")
    assert [v for _, v in told(doubts(BEFORE, after), "AMP134")] == wanted


def test_a_value_that_apex_gave_before() -> None:
    setup = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=args.loss_scale)'
    shown = "        print(self.opt)\n        torch.save("
    before = BEFORE.replace(setup, "model, self.opt = amp.initialize(model, optimizer)").replace(
        "        torch.save(", shown
    )
    after = AFTER.replace("        scaler = ", "        self.opt = optimizer\n        scaler = ")
    after = after.replace("        torch.save(", shown)
    assert not told(doubts(before, after), "AMP134")
    assert told(doubts(before, after.replace("self.opt = optimizer", "self.optim = optimizer")), "AMP134") == []


def test_a_name_for_what_apex_gave_may_go() -> None:
    setup = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=args.loss_scale)'
    watch = "        loader.watch(loader.optimizer)\n        torch.save("
    before = BEFORE.replace(setup, "model, other = amp.initialize(model, optimizer)")
    before = before.replace("        torch.save(", f"        loader.optimizer = other\n{watch}")
    after = AFTER.replace("        torch.save(", watch)
    assert not told(doubts(before, after), "AMP134")
    assert told(doubts(before.replace(" = other", " = optimizer"), after), "AMP134") == [(19, "refuse")]


def test_a_value_that_is_read_in_the_next_turn() -> None:
    before = BEFORE.replace(" % args.loss_scale", "").replace(SHUFFLE, "            print(args.loss_scale)\n")
    after = AFTER.replace(" % args.loss_scale", "").replace(
        SHUFFLE, "            print(args.loss_scale)\n            args.loss_scale = 2.0\n"
    )
    assert [v for _, v in told(doubts(before, after), "AMP134")] == ["refuse"]


@pytest.mark.parametrize(
    ("comment", "wanted"),
    [
        ("# keep an eye on it", True),
        ("# ---", False),
        ("# noqa: E501", False),
        ("#type: ignore", False),
        ("# mixed precision", False),
        ("# see apex", False),
        ("# why", False),
        ("# what", True),
    ],
)
def test_which_comments_may_go(comment: str, wanted: bool) -> None:
    before = BEFORE.replace("# keep an eye on the learning rate", comment)
    after = AFTER.replace("            # keep an eye on the learning rate\n", "")
    assert [v for _, v in told(doubts(before, after), "AMP134")] == (["review"] if wanted else [])


def test_a_comment_goes_with_the_statement_that_held_it() -> None:
    setup = "            else:\n                loss.backward()\n"
    before = BEFORE.replace(setup, "            else:\n                loss.backward()  # plain and simple\n")
    assert not told(doubts(before, AFTER), "AMP134")
    behind = BEFORE.replace(setup, f"{setup}                # plain and simple\n")
    assert not told(doubts(behind, AFTER), "AMP134")


def test_a_comment_that_stands_twice_may_not_go_once() -> None:
    line = "            # keep an eye on the learning rate\n"
    assert told(doubts(BEFORE.replace(line, line + line), AFTER), "AMP134")
    assert not told(doubts(BEFORE.replace(line, line + line), AFTER.replace(line, line + line)), "AMP134")


COMMENT = "            # keep an eye on the learning rate\n"


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (f"{COMMENT}            loader.keep()\n            loader.fp16_reset()\n", "            loader.keep()\n"),
        (
            f"            for part in loader.parts(step):\n    {COMMENT}                loader.keep()\n",
            "            for part in loader.parts(scaler, step):\n                loader.keep()\n",
        ),
        (
            f"            if args.fp16:\n                loader.half()\n            for _ in y:\n    {COMMENT}"
            "                loader.keep()\n",
            "            for _ in y:\n                loader.keep()\n",
        ),
    ],
)
def test_a_comment_beside_what_went_does_not_go_with_it(was: str, now: str) -> None:
    found = doubts(BEFORE.replace(COMMENT, "").replace(SHUFFLE, was), AFTER.replace(COMMENT, "").replace(SHUFFLE, now))
    assert [(d.construct, d.verdict) for d in found if d.code == "AMP134"] == [("comment", "review")]


def test_the_last_words_of_a_branch_go_with_it() -> None:
    """They are as deep as it was, with nothing but comments and empty lines between."""
    setup = "            else:\n                loss.backward()\n"
    behind = BEFORE.replace(setup, f"{setup}                # plain\n\n                # and simple\n\n")
    assert not told(doubts(behind, AFTER), "AMP134")


APEXS = "message_size=250000000, gradient_predivide_factor=world_size()"
LOCAL = f"""
import torch

def train(args, model, loader):
    if args.rank != -1:
        model = Wrapped(model, {APEXS})
    for x in loader:
        print(model(x))

def main(args, model, loader):
    {{imported}}
    train(args, model, loader)
"""


def test_what_another_function_imports_from_apex_is_none_of_the_programs_own() -> None:
    """The name is not bound where it is read: that fails before and after."""
    for imported, gone in (("from apex.parallel import DistributedDataParallel as Wrapped", False), ("pass", True)):
        before = LOCAL.format(imported=imported)
        after = before.replace(APEXS, "device_ids=[args.rank]")
        assert bool(told(doubts(before, after), "AMP134")) is gone, imported


@pytest.mark.parametrize("given", ["args, model", ""])
def test_a_call_that_is_given_a_long_argument_is_not_gone(given: str) -> None:
    call = f"            loader.shuffle()\n        check({given})\n"
    before = BEFORE.replace("            loader.shuffle()\n", call)
    long = 'use_amp=args.fp16 and args.fp16_opt_level != "O0" and args.do_train'
    more = f"check({given}, {long})" if given else f"check({long})"
    after = AFTER.replace("            loader.shuffle()\n", call.replace(f"check({given})", more))
    assert before != BEFORE
    assert after != AFTER
    assert not told(doubts(before, after), "AMP134")
    assert told(doubts(before, after.replace(more, "log.write(loss)")), "AMP134")


@pytest.mark.parametrize(("first", "second", "gone"), [("x", "y", False), ("x", "x", True)])
def test_a_statement_of_which_two_parts_are_computed_before_it(first: str, second: str, gone: bool) -> None:
    whole = "return self.bce(self.top(x), y) + self.bce(self.top(y), y)"
    apart = f"""with torch.autocast("cuda", enabled=False):
                bce_loss = self.bce(self.top({first}).float(), y.float())
                bce_loss_2 = self.bce(self.top({second}).float(), y.float())
            return bce_loss + bce_loss_2"""
    found = doubts(BEFORE + NET.format(whole), AFTER + NET.format(apart))
    assert bool(told(found, "AMP134")) is gone


def test_a_statement_that_calls_apex_by_another_name() -> None:
    use = "    def keep(x):\n        return nms(x)\n"
    named = f"    float_function = amp.float_function\n    nms = float_function(torch.ops.nms)\n{use}"
    own = f"    def nms(x):\n        return torch.ops.nms(x.float())\n{use}"
    before, after = f"{BEFORE}\n{named}", f"{AFTER}\n{own}"
    assert not told(doubts(before, after), "AMP134")
    other = before.replace("= amp.float_function", "= torch.jit.script")
    assert told(doubts(other, after), "AMP134")
