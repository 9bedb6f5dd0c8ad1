"""Several losses, several optimizers, accumulated losses: which scaler each has, what is said of it."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import APEX_LOOP, MODEL, apex, check_refused, found, initialize, native

GAN_MODEL = """
netG, netD = build(), build()
optG = torch.optim.Adam(netG.parameters())
optD = torch.optim.Adam(netD.parameters())
"""
GAN_INITIALIZE = '[netG, netD], [optG, optD] = amp.initialize([netG, netD], [optG, optD], opt_level="O1"{})'
GAN_LOOP = """
loss_D = criterion(netD(netG(x).detach()), y)
optD.zero_grad()
with amp.scale_loss(loss_D, optD{}) as scaled:
    scaled.backward()
optD.step()
loss_G = criterion(netD(netG(x)), y)
optG.zero_grad()
with amp.scale_loss(loss_G, optG{}) as scaled:
    scaled.backward()
optG.step()
"""


def gan_loop(one: str, two: str) -> str:
    """Discriminator and generator steps, each with a scaler of that name."""
    update = f"\n{one}.update()" if one != two else ""
    return f"""
with torch.autocast("cuda", dtype=torch.float16):
    loss_D = criterion(netD(netG(x).detach()), y)
optD.zero_grad()
{one}.scale(loss_D).backward()
{one}.step(optD){update}
with torch.autocast("cuda", dtype=torch.float16):
    loss_G = criterion(netD(netG(x)), y)
optG.zero_grad()
{two}.scale(loss_G).backward()
{two}.step(optG)
{two}.update()
"""


@pytest.mark.parametrize("delayed", ["True", "not last", "i % 4 != 3"])
def test_delay_unscale_needs_nothing_native(delayed: str) -> None:
    source = apex(APEX_LOOP.replace("(loss, optimizer)", f"(loss, optimizer, delay_unscale={delayed})"))
    result = check_rewrite(source, native())
    (finding,) = found(result, "AMP204")
    # Where no loss is ever unscaled Apex stepped with scaled gradients, which is no matter of course.
    assert ("never unscaled" if delayed == "True" else "until the step now") in finding.message
    assert finding.review == ("look" if delayed == "True" else "as-is")


def test_delay_unscale_false_is_the_default_and_nothing_is_said() -> None:
    source = apex(APEX_LOOP.replace("(loss, optimizer)", "(loss, optimizer, delay_unscale=False)"))
    assert not found(check_rewrite(source, native()), "AMP204")


def test_one_loss_is_scaled_by_itself_however_many_apex_was_told_of() -> None:
    scaled = """
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer, loss_id=0) as scaled:
            scaled.backward()
        optimizer.step()
        """
    result = rewrite(apex(scaled, initialize('opt_level="O1", num_losses=2')))
    assert "GradScaler" in (result.after or "")
    assert not found(result, "AMP205")


def test_losses_into_the_same_optimizer_share_one_scaler_and_it_is_said() -> None:
    before = apex(
        """
        out = model(x)
        loss_a, loss_b = criterion(out, y), criterion(out, -y)
        with amp.scale_loss(loss_a, optimizer, loss_id=0) as scaled:
            scaled.backward(retain_graph=True)
        with amp.scale_loss(loss_b, optimizer, loss_id=1) as scaled:
            scaled.backward()
        optimizer.step()
        """,
        initialize('opt_level="O1", num_losses=2'),
    )
    after = native(
        """
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            loss_a, loss_b = criterion(out, y), criterion(out, -y)
        scaler.scale(loss_a).backward(retain_graph=True)
        scaler.scale(loss_b).backward()
        scaler.step(optimizer)
        scaler.update()
        """
    )
    assert found(check_rewrite(before, after), "AMP205")


def test_losses_of_different_optimizers_with_ids_of_their_own_get_a_scaler_each() -> None:
    before = apex(
        GAN_LOOP.format(", loss_id=0", ", loss_id=1"), GAN_INITIALIZE.format(", num_losses=2"), model=GAN_MODEL
    )
    scalers = 'scalerD = torch.amp.GradScaler("cuda")\nscalerG = torch.amp.GradScaler("cuda")'
    check_rewrite(before, native(gan_loop("scalerD", "scalerG"), scalers, model=GAN_MODEL))


def test_a_loss_id_left_out_means_scaler_0_so_both_losses_use_one() -> None:
    before = apex(GAN_LOOP.format(", loss_id=0", ""), GAN_INITIALIZE.format(", num_losses=2"), model=GAN_MODEL)
    result = check_rewrite(before, native(gan_loop("scaler", "scaler"), model=GAN_MODEL))
    assert found(result, "AMP205")


def test_optimizers_without_loss_ids_share_one_scaler_updated_once_and_last() -> None:
    before = apex(GAN_LOOP.format("", ""), GAN_INITIALIZE.format(""), model=GAN_MODEL)
    check_rewrite(before, native(gan_loop("scaler", "scaler"), model=GAN_MODEL))


def test_one_loss_for_two_optimizers_scales_once_and_steps_both() -> None:
    before = apex(
        """
        loss = criterion(netD(netG(x)), y)
        with amp.scale_loss(loss, [optG, optD]) as scaled:
            scaled.backward()
        optG.step()
        optD.step()
        """,
        GAN_INITIALIZE.format(""),
        model=GAN_MODEL,
    )
    after = native(
        """
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(netD(netG(x)), y)
        scaler.scale(loss).backward()
        scaler.step(optG)
        scaler.step(optD)
        scaler.update()
        """,
        model=GAN_MODEL,
    )
    check_rewrite(before, after)


def test_a_scaler_per_optimizer_skips_one_without_the_other_which_apex_did_not_for_a_shared_loss() -> None:
    before = apex(
        """
        loss = criterion(netD(netG(x)), y)
        with amp.scale_loss(loss, [optG, optD], loss_id=1) as scaled:
            scaled.backward()
        optG.step()
        optD.step()
        """,
        GAN_INITIALIZE.format(", num_losses=2"),
        model=GAN_MODEL,
    )
    after = rewrite(before).after
    assert after is not None
    assert after.count("GradScaler") == 1


def test_it_is_not_said_that_scalers_are_shared_where_they_are_not() -> None:
    before = apex(
        GAN_LOOP.format(", loss_id=0", ", loss_id=1"), GAN_INITIALIZE.format(", num_losses=2"), model=GAN_MODEL
    )
    assert not found(rewrite(before), "AMP205")


def two_scalers(line: str, tail: str = "") -> str:
    after = rewrite(
        apex(
            GAN_LOOP.format(", loss_id=0", ", loss_id=1"),
            GAN_INITIALIZE.format(", num_losses=2") + f"\n{line}",
            model=GAN_MODEL,
            tail=tail,
        )
    ).after
    assert after is not None
    return after


def test_a_setting_of_one_loss_scaler_goes_to_the_grad_scaler_of_that_loss_alone() -> None:
    after = two_scalers("amp._amp_state.loss_scalers[1]._loss_scale = 1024.0")
    assert (
        'scalerD = torch.amp.GradScaler("cuda")\nscalerG = torch.amp.GradScaler("cuda", init_scale=1024.0)\n' in after
    )


@pytest.mark.parametrize(
    "read", ["amp._amp_state.loss_scalers[{}].loss_scale()", 'amp.state_dict()["loss_scaler{}"]["loss_scale"]']
)
@pytest.mark.parametrize(("number", "scaler"), [(0, "scalerD"), (1, "scalerG")])
def test_the_scale_of_one_loss_is_read_from_its_scaler(read: str, number: int, scaler: str) -> None:
    assert f"print({scaler}.get_scale())" in two_scalers("", f"print({read.format(number)})")


def test_the_scale_of_a_loss_chosen_at_run_time_is_that_of_the_scaler_which_stands_there() -> None:
    after = two_scalers("", "for i in range(2):\n    print(amp._amp_state.loss_scalers[i].loss_scale())")
    assert "    print([scalerD, scalerG][i].get_scale())\n" in after
    assert rewrite(after).after is None


@pytest.mark.parametrize(
    ("losses", "read"),
    [
        (3, "print(amp._amp_state.loss_scalers[i].loss_scale())"),  # one of them has no loss
        (2, "print(amp._amp_state.loss_scalers[i]._unskipped)"),
        (2, "amp._amp_state.loss_scalers[i]._loss_scale = 2.0"),
        (2, "scaler = amp._amp_state.loss_scalers[i]; print(scaler)"),
    ],
)
def test_one_chosen_at_run_time_is_refused_where_it_is_more_than_read_or_has_no_loss(losses: int, read: str) -> None:
    tail = f"for i in range(2):\n    {read}"
    prepare = GAN_INITIALIZE.format(f", num_losses={losses}")
    source = apex(GAN_LOOP.format(", loss_id=0", ", loss_id=1"), prepare, model=GAN_MODEL, tail=tail)
    result = check_refused(source, "AMP404")
    assert any(f.message.startswith("which scaler i means") for f in result.findings)


def test_an_overflow_of_a_loss_for_two_optimizers_skipped_both_steps_which_is_announced() -> None:
    loop = (
        "loss = criterion(netD(netG(x)), y)\nwith amp.scale_loss(loss, [optG, optD]) as scaled:\n    scaled.backward()\n"
        "optG.step()\noptD.step()\n"
    )
    result = rewrite(apex(loop, GAN_INITIALIZE.format(""), model=GAN_MODEL))
    assert any("skip" in f.message for f in result.findings if f.review in ("look", "review"))


@pytest.mark.parametrize(
    ("called", "inside"),
    [
        ("model", True),
        ("max([model], key=id)", True),
        ("max([model], key=id).forward", True),
        ("[build(), model][i]", True),
        ('{"one": model}["one"]', True),
        ("(model if i else model)", True),
        ("(model or build())", True),
        ("copy.copy(model)", True),
        ("keep(network=model)", True),
        ("(kept := model)", True),
        ("measures[model]", False),  # chosen by the model, and something else
        ('getattr(model, "eval")', False),
    ],
)
def test_the_forward_of_a_second_loss_may_run_one_of_some_models(called: str, inside: bool) -> None:
    loop = f"""
    output = model(x)
    loss = criterion(output, y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    output = {called}(x + i)
    loss = criterion(output, y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    """
    result = rewrite(apex(loop, model=f"from project import copy, i, keep, measures\n{MODEL}"))
    assert result.after is not None
    assert (f"        output = {called}(x + i)\n" in result.after) == inside


def test_a_function_that_reads_the_scale_of_any_loss_asks_the_scalers_of_the_program() -> None:
    program = apex(
        GAN_LOOP.format(", loss_id=0", ", loss_id=1"), GAN_INITIALIZE.format(", num_losses=2"), model=GAN_MODEL
    )
    program += "\ndef scale_of(number):\n    return amp._amp_state.loss_scalers[number].loss_scale()\n"
    after = rewrite(program).after
    assert after is not None
    assert "    return [scalerD, scalerG][number].get_scale()\n" in after


SKIPPED = """
import torch
from apex import amp
from project import build, criterion, loader

body, head = build(), build()
one, two = torch.optim.SGD(body.parameters(), lr=0.1), torch.optim.SGD(head.parameters(), lr=0.1)
[body, head], [one, two] = amp.initialize([body, head], [one, two], opt_level="O1")
{held}
for x, y in loader:
    loss = criterion(head(body(x)), y)
    with amp.scale_loss(loss, {given}) as scaled_loss:
        scaled_loss.backward()
    {step}
"""
EACH = "for optimizer in both:\n        optimizer.step()"


@pytest.mark.parametrize(
    ("held", "given", "step", "which"),
    [
        ("", "[one, two]", "one.step()\n    two.step()", "all these optimizers"),
        ("both = [one, two]", "both", EACH, "all optimizers in both"),
        ("both = [o for o in (one, two)]", "both", EACH, "all optimizers in both"),
        ("", "[o for o in (one, two)]", "one.step()\n    two.step()", "all optimizers in [o for o in (one, two)]"),
        ("", "[o for o in (one,)]", "one.step()", None),
        (
            'both = {"one": one, "two": two}',
            "[both[name] for name in both]",
            "one.step()\n    two.step()",
            "all optimizers in [both[name] for name in both]",
        ),
        (
            'both = {"one": one, "two": two}',
            "list(both.values())",
            "one.step()\n    two.step()",
            "all optimizers in list(both.values())",
        ),
        ("", "one", "one.step()", None),
    ],
)
def test_an_overflow_skips_one_optimizer_where_it_skipped_all(
    held: str, given: str, step: str, which: str | None
) -> None:
    told = found(rewrite(SKIPPED.format(held=held, given=given, step=step)), "AMP221")
    assert [f.message.partition(" with Apex")[0] for f in told] == (
        [f"an overflow skipped the steps of {which}"] if which else []
    )


HELD = """
import torch
from apex import amp
from project import build, criterion, loader


class Trainer:
    def __init__(self):
        self.model = build()
        self.head = build()
        self.optimizers = {{}}
        {kept}
        names = sorted(self.optimizers.keys())
        self.model, optimizers = amp.initialize(self.model, [self.optimizers[k] for k in names], opt_level="O1")
        self.optimizers = {{k: optimizer for k, optimizer in zip(names, optimizers)}}

    def optimize(self, x, y, number):
        names = self.optimizers.keys()
        optimizers = [self.optimizers[k] for k in names]
        loss = criterion(self.model(x), y)
        if number % 4 == 0:
            with amp.scale_loss(loss, optimizers) as scaled_loss:
                scaled_loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        else:
            with amp.scale_loss(loss, optimizers, delay_unscale={delayed}) as scaled_loss:
                scaled_loss.backward()


trainer = Trainer()
for i, (x, y) in enumerate(loader):
    trainer.optimize(x, y, i)
"""
BODY = 'self.optimizers["model"] = torch.optim.SGD(self.model.parameters(), lr=0.1)'
HEAD = 'self.optimizers["head"] = torch.optim.SGD(self.head.parameters(), lr=0.1)'


@pytest.mark.parametrize(
    ("kept", "delayed", "times"),
    [
        (BODY, "True", 0),
        (f"{BODY}\n        {HEAD}", "True", 1),
        (f"{BODY}\n        {HEAD}", "number % 2 == 0", 2),
        (f"{BODY}\n        {BODY}", "False", 0),
        (f"for name in self.names:\n            {BODY}".replace('"model"', "name"), "True", 1),
        (f"{BODY}\n        fill(self.optimizers)", "True", 1),
        ('self.optimizers = {"model": torch.optim.SGD(self.model.parameters(), lr=0.1)}', "False", 0),
        ("self.optimizers.update(model=torch.optim.SGD(self.model.parameters(), lr=0.1))", "True", 1),
    ],
)
def test_one_optimizer_in_a_mapping_is_skipped_as_it_was_and_a_delayed_loss_was_not_looked_at(
    kept: str, delayed: str, times: int
) -> None:
    result = rewrite(HELD.format(kept=kept, delayed=delayed))
    assert result.after is not None
    assert len(found(result, "AMP221")) == times


@pytest.mark.parametrize(
    ("named", "told"),
    [("optG", True), ("[optG, optD]", False), ("both", False)],
    ids=["one is left out", "both are named", "a list that is not followed"],
)
def test_an_optimizer_that_no_scaled_loss_names_is_told_to_train_now(named: str, told: bool) -> None:
    loop = (
        f"loss = criterion(netD(netG(x)), y)\nwith amp.scale_loss(loss, {named}) as scaled:\n    scaled.backward()\n"
        "optG.step()\noptD.step()\n"
    )
    prepare = f"{GAN_INITIALIZE.format('')}\nboth = pick(optG, optD)"
    source = apex(loop, prepare, model=GAN_MODEL)
    notes = found(rewrite(source), "AMP214")
    assert [f.review for f in notes] == (["review"] if told else [])
    for note in notes:
        assert "no scale_loss names this optimizer" in note.message
        assert source.split("\n")[note.line - 1] == "    optD.step()"


def test_a_method_that_appends_what_it_is_given_may_do_so_several_times() -> None:
    source = """
        import torch
        from apex import amp
        from project import SGD

        class Trainer:
            def __init__(self, a, b):
                self.model = a
                self.optimizers = []
                FILLED
                amp.initialize(self.model, self.optimizers, opt_level="O1")

            def add(self, optimizer):
                self.optimizers.append(optimizer)

            def step(self, x):
                with amp.scale_loss(self.model(x).sum(), self.optimizers) as scaled_loss:
                    scaled_loss.backward()
                for optimizer in self.optimizers:
                    optimizer.step()
        """
    several = rewrite(source.replace("FILLED", "self.add(SGD(a)); self.add(SGD(b))"))
    assert several.after is not None
    assert found(several, "AMP221")
    own = source.replace("FILLED", "self.optimizers.append(SGD(a))")
    one = rewrite(
        own.replace("    def add(self, optimizer):\n                self.optimizers.append(optimizer)\n\n        ", "")
    )
    assert one.after is not None
    assert not found(one, "AMP221")
