"""`amp.initialize(model, optimizer, **options)`: what a GradScaler needs of a mapping is read from it at run time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import apex, check_refused, found, native
from tests.rules.test_initialize import loop, scaler

PREPARE = "model, optimizer = amp.initialize(model, optimizer, **options)"
IMPORTS = "from apex import amp\nfrom settings import options"

READ = """
loss_scale = {0}.get("loss_scale")
loss_scale = None if loss_scale in (None, "dynamic") else float(loss_scale)
scaler = torch.amp.GradScaler(
    "cuda",
    init_scale=loss_scale or 2.0**16,
    enabled={0}.get("enabled", True) and {0}.get("opt_level", "O1") != "O0",
)
"""


@pytest.mark.parametrize("mapping", ["options", "options.amp", 'options["amp"]', 'options.all["amp"].training'])
def test_settings_are_read_once_where_the_scaler_is_created(mapping: str) -> None:
    source = apex(prepare=PREPARE.replace("options", mapping), imports=IMPORTS)
    after = loop(update="loss_scale", enabled="scaler.is_enabled()")
    result = check_rewrite(source, native(after, READ.format(mapping), imports="from settings import options"))
    (note,) = found(result, "AMP111")
    assert note.status == "note"
    assert note.review == "review"
    assert "cast_model_outputs" in note.message


@pytest.mark.parametrize(
    ("options", "enabled", "scale", "held"),
    [
        ({}, True, 2.0**16, None),
        ({"opt_level": "O1", "loss_scale": "dynamic"}, True, 2.0**16, None),
        ({"opt_level": "O2", "loss_scale": 128}, True, 128.0, 128.0),
        ({"opt_level": "O2", "loss_scale": "64.0"}, True, 64.0, 64.0),
        ({"opt_level": "O0"}, False, 1.0, None),
        ({"enabled": False, "loss_scale": 128.0}, False, 1.0, 128.0),
        ({"keep_batchnorm_fp32": True, "verbosity": 0}, True, 2.0**16, None),
    ],
)
def test_the_scaler_is_what_the_mapping_says(
    options: dict[str, Any], enabled: bool, scale: float, held: float | None
) -> None:
    after = rewrite(apex(prepare=PREPARE, imports=IMPORTS)).after
    assert after is not None
    created = after[after.index("loss_scale = ") : after.index("for x, y")].replace('"cuda"', '"cpu"')
    names: dict[str, Any] = {"options": options, "torch": torch}
    exec(created, names)
    assert names["scaler"].is_enabled() is enabled
    assert names["scaler"].get_scale() == scale
    assert names["loss_scale"] == held


def test_what_is_given_beside_the_mapping_is_not_looked_for_in_it() -> None:
    source = apex(prepare=PREPARE.replace("**", 'opt_level="O1", loss_scale=128.0, **'), imports=IMPORTS)
    after = 'scaler = torch.amp.GradScaler("cuda", init_scale=128.0, enabled=options.get("enabled", True))'
    text = rewrite(source).after
    assert text is not None
    assert after in text
    assert "scaler.update(128.0)" in text


@pytest.mark.parametrize("spread", ['dict(opt_level="O1", **options)', '{**options, "opt_level": "O1"}'])
def test_entries_around_a_mapping_are_known(spread: str) -> None:
    text = rewrite(apex(prepare=PREPARE.replace("options", spread), imports=IMPORTS)).after
    assert text is not None
    assert 'enabled=options.get("enabled", True))' in text
    assert "opt_level" not in text


def test_entries_put_in_on_some_paths_are_the_only_ones_read() -> None:
    prepare = 'options = {"opt_level": "O1"}\nif scale:\n    options["loss_scale"] = scale\n'
    result = check_rewrite(
        apex(prepare=prepare + PREPARE, imports="from apex import amp\nfrom settings import scale"),
        native(
            loop(update="loss_scale"),
            prepare + 'loss_scale = options.get("loss_scale")\n'
            'loss_scale = None if loss_scale in (None, "dynamic") else float(loss_scale)\n'
            + scaler("init_scale=loss_scale or 2.0**16"),
            imports="from settings import scale",
        ),
    )
    (note,) = found(result, "AMP111")
    assert note.review == "look"
    assert "no effect" not in note.message


@pytest.mark.parametrize(
    "change",
    ["options[name] = value", "options.update(read())", "adjust(options)", 'options.pop("loss_scale")'],
)
def test_a_dict_that_is_changed_beyond_reading_is_read_at_run_time(change: str) -> None:
    prepare = f'options = {{"opt_level": "O0"}}\n{change}\n'
    imports = "from settings import adjust, name, read, value"
    check_rewrite(
        apex(prepare=prepare + PREPARE, imports=f"from apex import amp\n{imports}"),
        native(
            loop(update="loss_scale", enabled="scaler.is_enabled()"),
            prepare + READ.format("options").lstrip("\n"),
            imports=imports,
        ),
    )


ENGINE = """
    import torch
    from apex import amp


    class Engine:
        def __init__(self, model, fp16, apex_kwargs=None):
            self.apex_kwargs = apex_kwargs
            self.fp16 = fp16
            self.model = model
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if fp16:
                params = self.amp_params()
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, **params)

        def amp_params(self):
            return dict(self.apex_kwargs)

        def train(self, x, y):
            self.optimizer.zero_grad()
            loss = ((self.model(x) - y) ** 2).mean()
            if self.fp16:
                with amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            self.optimizer.step()
            return loss.item()
"""


def test_a_mapping_that_only_the_switch_brings_is_read_under_it() -> None:
    after = rewrite(ENGINE).after
    assert after is not None
    created = """
        self.loss_scale = None
        self.scaler = torch.amp.GradScaler("cuda", enabled=False)
        if fp16:
            params = self.amp_params()
            self.loss_scale = params.get("loss_scale")
    """
    assert created.rstrip() in after
    names: dict[str, Any] = {}
    exec(after.replace('"cuda"', '"cpu"').replace("float16", "bfloat16"), names)
    x, y = torch.randn(8, 4), torch.randn(8, 1)

    def trained(fp16: bool, options: dict[str, Any] | None) -> tuple[list[float], torch.amp.GradScaler]:
        torch.manual_seed(0)
        engine = names["Engine"](torch.nn.Linear(4, 1), fp16, options)
        return [engine.train(x, y) for _ in range(5)], engine.scaler

    plain, disabled = trained(False, None)
    assert not disabled.is_enabled()
    static, held = trained(True, {"opt_level": "O1", "loss_scale": 128})
    assert held.get_scale() == 128.0
    assert static == pytest.approx(plain, rel=0.05)
    assert static != plain
    off, _ = trained(True, {"opt_level": "O0"})
    assert off == plain


def test_a_level_that_only_the_switch_sets_is_read_under_it() -> None:
    prepare = "if fp16:\n    level = read()\n    " + PREPARE.replace("**options", "opt_level=level")
    check_rewrite(
        apex(prepare=prepare, imports="from apex import amp\nfrom settings import fp16, read"),
        native(
            loop(enabled="scaler.is_enabled()"),
            'scaler = torch.amp.GradScaler("cuda", enabled=False)\nif fp16:\n    level = read()\n'
            '    scaler = torch.amp.GradScaler("cuda", enabled=level != "O0")',
            imports="from settings import fp16, read",
        ),
    )


@pytest.mark.parametrize(
    "arguments",
    ["**options", "model, **options", "model, optimizer, **read()", "model, optimizer, **options, **others"],
)
def test_what_cannot_be_read_is_refused(arguments: str) -> None:
    imports = "from apex import amp\nfrom settings import options, others, read"
    check_refused(apex(prepare=f"model, optimizer = amp.initialize({arguments})", imports=imports), "AMP111")


def test_without_a_scaler_the_switch_is_off_where_the_mapping_is_not_reached() -> None:
    after = rewrite(ENGINE, dtype="bfloat16").after
    assert after is not None
    names: dict[str, Any] = {}
    exec(after.replace('"cuda"', '"cpu"'), names)
    for fp16, options, on in ((False, None, False), (True, {}, True), (True, {"opt_level": "O0"}, False)):
        engine = names["Engine"](torch.nn.Linear(4, 1), fp16, options)
        engine.train(torch.randn(2, 4), torch.randn(2, 1))
        assert engine.use_amp is on
