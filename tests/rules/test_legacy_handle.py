"""`amp.init`: the scaler takes the handle's place, wherever that was kept or passed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import apex, check_refused, found, native

INIT = "amp_handle = amp.init({})"
LOOP = """
loss = criterion(model(x), y)
optimizer.zero_grad()
with amp_handle.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
{}optimizer.step()
"""


def before(arguments: str = "", extra: str = "", **parts: str) -> str:
    return apex(LOOP.format(extra), INIT.format(arguments), **parts)


def after(enabled: str = "", extra: str = "", region: str | None = None, **parts: str) -> str:
    loop = f"""
with torch.autocast("cuda", dtype=torch.float16{region if region is not None else enabled}):
    loss = criterion(model(x), y)
optimizer.zero_grad()
scaler.scale(loss).backward()
{extra}scaler.step(optimizer)
scaler.update()
"""
    return native(loop, f'scaler = torch.amp.GradScaler("cuda"{enabled})', **parts)


@pytest.mark.parametrize(
    ("arguments", "enabled"),
    [
        ("", ""),
        ("enabled=True, verbose=False", ""),
        ("enable_caching=True", ""),
        ("enabled=use_amp", ", enabled=bool(use_amp)"),
        ("use_amp", ", enabled=bool(use_amp)"),
    ],
)
def test_the_handle_becomes_a_scaler(arguments: str, enabled: str) -> None:
    check_rewrite(before(arguments), after(enabled))


def test_a_handle_that_is_off_leaves_plain_code() -> None:
    result = rewrite(before("enabled=False"))
    assert result.after is not None
    assert "torch.autocast" not in result.after
    assert "scaler" not in result.after
    assert "\n    loss.backward()\n" in result.after


def test_a_static_scale_is_kept() -> None:
    result = rewrite(before("loss_scale=128.0"))
    assert result.after is not None
    assert 'GradScaler("cuda", init_scale=128.0)' in result.after
    assert "scaler.update(128.0)" in result.after


def test_dotted_apex() -> None:
    source = before(imports="import apex").replace("amp.init(", "apex.amp.init(")
    check_rewrite(source, after())


def test_clip_after_the_with_is_unscaled_first() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    check_rewrite(before(extra=clip), after(extra=f"scaler.unscale_(optimizer)\n{clip}"))


def test_a_test_for_the_handle_folds_into_one_path() -> None:
    loop = """
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    if amp_handle is not None:
        with amp_handle.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()
    optimizer.step()
    """
    check_rewrite(apex(loop, "amp_handle = amp.init(enabled=use_amp)"), after(", enabled=bool(use_amp)"))


def test_a_handle_that_may_be_none() -> None:
    check_rewrite(
        apex(LOOP.format(""), "amp_handle = amp.init() if use_amp else None"), after(", enabled=bool(use_amp)")
    )


def test_availability_guards_go() -> None:
    imports = """
    try:
        import apex
        has_apex = True
    except ImportError:
        has_apex = False
    """
    source = apex(LOOP.format(""), "amp_handle = apex.amp.init(enabled=use_amp) if has_apex else None", imports=imports)
    check_rewrite(source, after(", enabled=bool(use_amp)"))


def test_other_tests_ask_the_scaler() -> None:
    extra = "if amp_handle is None:\n    plain()\nif amp_handle:\n    amp_handle._clear_cache()\n    scaled()\n"
    result = rewrite(before(extra=extra))
    assert result.after is not None
    assert "    if not scaler.is_enabled():\n        plain()\n" in result.after
    assert "    if scaler.is_enabled():\n        scaled()\n" in result.after
    assert "amp_handle" not in result.after


def test_what_else_the_handle_did() -> None:
    extra = "print(amp_handle.is_active())\nwith amp_handle._disable_casts():\n    check(model)\namp_handle._clear_cache()\n"
    result = rewrite(before(extra=extra))
    assert result.after is not None
    assert "print(scaler.is_enabled())" in result.after
    assert 'with torch.autocast("cuda", enabled=False):\n        check(model)' in result.after
    assert "_clear_cache" not in result.after


def test_wrapped_optimizers() -> None:
    loop = """
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    with optimizer.scale_loss(loss) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    """
    prepare = "amp_handle = amp.init()\noptimizer = amp_handle.wrap_optimizer(optimizer, num_loss=2)"
    for spelled in (prepare, prepare.replace("(optimizer", "(o𝐩timizer")):
        result = check_rewrite(apex(loop, spelled), after())
        assert found(result, "AMP205")


def test_a_wrapped_optimizer_has_a_scaler_for_each_of_its_losses() -> None:
    prepare = "amp_handle = amp.init()\none = amp_handle.wrap_optimizer(one, num_loss=2)\ntwo = amp_handle.wrap_optimizer(two)"
    loop = """
    one.zero_grad()
    for_one, also = criterion(model(x), y), criterion(model(y), x)
    with one.scale_loss(for_one) as scaled_loss:
        scaled_loss.backward()
    with one.scale_loss(also) as scaled_loss:
        scaled_loss.backward()
    one.step()
    two.zero_grad()
    for_two = criterion(model(x), y)
    with {} as scaled_loss:
        scaled_loss.backward()
    two.step()
    """
    head = "one = torch.optim.SGD(model.parameters(), lr=0.1)\ntwo = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    result = rewrite(apex(loop.format("two.scale_loss(for_two)"), head + prepare))
    assert result.after is not None
    assert found(result, "AMP210")
    assert not found(result, "AMP207")
    by_handle = loop.replace("one.scale_loss(", "amp_handle.scale_loss(").replace(") as", ", one) as")
    by_handle = by_handle.replace("{}, one)", "amp_handle.scale_loss(for_two, two)").replace(
        "{}", "amp_handle.scale_loss(for_two, two)"
    )
    assert found(rewrite(apex(by_handle, head + "amp_handle = amp.init()")), "AMP207")  # which has one for all


def test_the_handle_as_an_argument() -> None:
    source = """
    import torch
    from apex import amp
    from project import build, criterion, loader

    def train(model, optimizer, config, amp_handle):
        for x, y in loader:
            loss = criterion(model(x), y)
            with amp_handle.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()

    def main(config):
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        amp_handle = amp.init(enabled=config["amp"])
        train(model, optimizer, config, amp_handle=amp_handle)
    """
    expected = """
    import torch
    from project import build, criterion, loader

    def train(model, optimizer, config, scaler):
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.float16, enabled=bool(config["amp"])):
                loss = criterion(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    def main(config):
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda", enabled=bool(config["amp"]))
        train(model, optimizer, config, scaler=scaler)
    """
    check_rewrite(source, expected)


def test_the_handle_on_an_object() -> None:
    source = """
    import torch
    from apex import amp

    class Trainer:
        def __init__(self, model):
            self.model = model
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.amp_handle = amp.init(enabled=True)

        def step(self, x):
            loss = self.model(x).mean()
            with self.amp_handle.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
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
                loss = self.model(x).float().mean()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
    """
    check_rewrite(source, expected)


def test_inference_needs_no_scaler() -> None:
    source = """
    import torch
    from apex import amp
    from project import build, loader

    amp_handle = amp.init(enabled=use_amp)
    model = build()
    model.eval()
    with torch.no_grad():
        for x in loader:
            output = model(x)
    """
    expected = """
    import torch
    from project import build, loader

    model = build()
    model.eval()
    with torch.no_grad():
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16, enabled=bool(use_amp)):
                output = model(x)
    """
    check_rewrite(source, expected)


def test_bfloat16_needs_no_scaler() -> None:
    result = rewrite(before("enabled=use_amp"), dtype="bfloat16")
    assert result.after is not None
    assert "scaler" not in result.after
    assert "enabled=bool(use_amp)" in result.after
    assert "    loss.backward()\n    optimizer.step()\n" in result.after


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("from apex import amp\nhandles = [amp.init()]\n", "AMP711"),
        (before(extra="amp_handle.cache.clear()\n"), "AMP711"),
        (before(extra="registry[amp_handle] = 1\n"), "AMP711"),
        (apex("loss = criterion(model(x), y)\nloss.backward()\noptimizer.step()", "amp_handle = amp.init()"), "AMP711"),
        (apex("scaled = amp_handle.scale_loss(model(x), optimizer)", "amp_handle = amp.init()"), "AMP202"),
        ("from apex import amp\nfrom project import run\namp_handle = amp.init()\nrun()\n", "AMP502"),
        (apex(LOOP.format(""), "amp_handle = amp.init(enabled=a) if b else None"), "AMP711"),
    ],
)
def test_what_cannot_be_decided_is_refused(source: str, code: str) -> None:
    check_refused(source, code)


def test_a_handle_of_something_else_is_left_alone() -> None:
    source = """
    from project import handles

    amp_handle = handles.init(enabled=True)
    with amp_handle.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    """
    result = rewrite(source)
    assert result.after is None
    assert not result.findings


PROGRAM = """
import torch
from apex import amp

torch.manual_seed(0)


def train(model, optimizer, batches, amp_handle):
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        with amp_handle.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
amp_handle = amp.init(enabled=True)
x, y = torch.randn(16, 4), torch.randn(16, 1)
losses = train(model, optimizer, [(x, y)] * 12, amp_handle)
"""


def test_the_migrated_program_trains() -> None:
    result = rewrite(PROGRAM, device="cpu")
    assert result.after is not None
    space: dict[str, Any] = {}
    exec(compile(result.after, "train.py", "exec"), space)
    assert space["losses"][-1] < space["losses"][0]
    assert space["scaler"].get_scale() == 65536.0


def test_a_handle_beside_initialize_that_nothing_asks_goes() -> None:
    """`amp.initialize` patches torch by itself: what a second `amp.init` did is gone with it."""
    result = rewrite(
        apex(prepare='model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\nhandle = amp.init()')
    )
    assert result.after is not None, result.findings
    assert "handle" not in result.after
    assert "apex" not in result.after
    assert "scaler.step(optimizer)" in result.after


def test_a_handle_beside_initialize_that_is_asked_is_refused() -> None:
    prepare = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\nhandle = amp.init()\nhandle.foo()'
    result = rewrite(apex(prepare=prepare))
    assert result.after is None
    assert any(f.status == "manual" for f in result.findings)


RESET = """
import torch
from apex import amp
from project import args, build, criterion, loader

def train():
    if args.fp16:
        RESET
    model, optimizer = build()
    if args.fp16:
        loss_scale = float(args.loss_scale) if args.loss_scale != "dynamic" else args.loss_scale
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=loss_scale)
    for x, y in loader:
        loss = criterion(model(x), y)
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()

train()
"""


@pytest.mark.parametrize("reset", ["amp.init(False)", "amp.init(enabled=False)", "handle = amp.init(enabled=False)"])
def test_a_handle_that_is_off_beside_initialize_sets_nothing_up(reset: str) -> None:
    """It was a second set-up, of a scale of its own: `several calls of initialize ask for different loss scales`."""
    result = rewrite(RESET.replace("RESET", reset))
    assert result.after is not None, result.findings
    assert "amp.init" not in result.after
    assert result.after.count("GradScaler") == 2  # where it is made, and the disabled one above
    (told,) = found(result, "AMP710")
    assert (told.status, told.review, told.message) == ("done", "as-is", "taken out: it is off, and did nothing")


def test_a_handle_that_may_be_on_beside_initialize_is_another_set_up() -> None:
    result = rewrite(RESET.replace("RESET", "amp.init(args.old)"))
    assert not any("it is off" in f.message for f in result.findings)


BESIDE = """
import torch
from apex import amp
from project import build, criterion, loader

class Scheduler:
    def __call__(self, optimizer, settings):
        return settings.make(optimizer)

def build_optimizer(model, settings):
    return settings.kind(model.parameters())

if __name__ == "__main__":
    model, settings = build()
    optimizer = build_optimizer(model, settings)
    model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
    scheduler = Scheduler()(optimizer, settings)
    handle = amp.init(enabled=True)
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("level", "units"), [("O1", 1), ("O2", 2)])
def test_a_handle_beside_a_set_up_that_patches_torch_adds_nothing(level: str, units: int) -> None:
    """It was a set-up of its own, with regions and a switch that its callers had to tell."""
    result = rewrite(BESIDE.replace("LEVEL", level))
    assert result.after is not None, result.findings
    assert "amp.init" not in result.after
    assert len(result.units) == units
    (told,) = found(result, "AMP710")
    assert (told.status, told.review) == ("done", "look")
