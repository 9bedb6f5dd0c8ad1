"""Settings that only told how or whether Apex is set up: they stay where they are set, and that nothing reads them is said."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import found

TRAIN = """
    import torch
    from apex import amp
    {imports}


    def train(model, optimizer, batches):
        if {switch}:
            model, optimizer = amp.initialize(model, optimizer, {arguments})
        for x in batches:
            optimizer.zero_grad()
            loss = model(x).sum()
            if {switch}:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
        {more}
"""
CLASS = "class config:\n    fp16 = True\n    level = 'O2'\n    keep = True\n"
CONSTANTS = "fp16 = True\nlevel = 'O2'\nkeep = True\n"
MAPPING = "config = {'fp16': True, 'level': 'O2', 'keep': True}\n"
CALL = "config = dict(fp16=True, level='O2', keep=True)\n"
DEFAULTS = (
    "@dataclass\nclass Config:\n    fp16: bool = field(default=True)\n    level: str = field(default='O2')\n"
    "    keep: bool = field(default=True)\n\n\nconfig = Config()\n"
)
FIELDS = "config = make()\nconfig.fp16 = True\nconfig.level = 'O2'\nconfig.keep = True\n"


def told(settings: str, imports: str, read: str, more: str = "pass") -> dict[str, list[str]]:
    """What is said to have no effect, by file."""
    switch, level, keep = (read.replace("NAME", name) for name in ("fp16", "level", "keep"))
    text = TRAIN.format(
        imports=imports, switch=switch, arguments=f"opt_level={level}, keep_batchnorm_fp32={keep}", more=more
    )
    results = rewrite_files({"train.py": text, "settings.py": settings})
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    return {path: [f.construct for f in r.findings if f.code == "AMP119"] for path, r in results.items()}


@pytest.mark.parametrize(
    ("settings", "imports", "read", "idle"),
    [
        (CLASS, "from settings import config", "config.NAME", ["keep"]),
        (CONSTANTS, "from settings import fp16, keep, level", "NAME", ["level", "keep"]),
        (CONSTANTS, "import settings", "settings.NAME", ["level", "keep"]),
        (MAPPING, "from settings import config", "config['NAME']", ["'keep'"]),
        (MAPPING, "from settings import config", "config.get('NAME')", ["'keep'"]),
        (CALL, "from settings import config", "config['NAME']", ["keep"]),
        (FIELDS, "from settings import config", "config.NAME", ["config.keep"]),
        (
            f"from dataclasses import dataclass, field\n\n\n{DEFAULTS}",
            "from settings import config",
            "config.NAME",
            ["keep"],
        ),
    ],
)
def test_a_setting_that_nothing_reads_any_more_is_told_where_it_is_set(
    settings: str, imports: str, read: str, idle: list[str]
) -> None:
    assert told(settings, imports, read).get("settings.py", []) == idle


@pytest.mark.parametrize(
    "more",
    ["print(config.keep)", "print(getattr(config, 'keep'))", "print(vars(config)['keep'])"],
)
def test_nothing_is_said_of_one_that_something_else_reads(more: str) -> None:
    assert not told(CLASS, "from settings import config", "config.NAME", more).get("settings.py")


def test_all_names_of_an_import_go_that_nothing_uses_any_more() -> None:
    text = TRAIN.format(
        imports="from settings import fp16, keep, level, lr",
        switch="fp16",
        arguments="opt_level=level, keep_batchnorm_fp32=keep",
        more="print(lr)",
    )
    after = rewrite_files({"train.py": text, "settings.py": CONSTANTS + "lr = 0.1\n"})["train.py"].after
    assert after is not None
    assert "from settings import fp16, lr\n" in after


def test_what_is_set_out_of_sight_is_told_where_it_was_read() -> None:
    text = TRAIN.format(
        imports="from outside import config",
        switch="config.fp16",
        arguments="opt_level='O2', verbosity=config.verbosity",
        more="pass",
    )
    (finding,) = found(rewrite(text), "AMP119")
    assert finding.message == "config.verbosity was read here alone: where it is set, it has no effect any more"


BUILD = """
    import torch
    from apex import amp


    def build(lr, use_apex=True):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        if use_apex:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        return model, optimizer


    def main(args):
        model, optimizer = {call}
        for x in args.batches:
            optimizer.zero_grad()
            loss = model(x).sum()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("call", "says"),
    [("build(0.1)", True), ("build(0.1, use_apex=True)", True), ("build(0.1, args.apex)", False)],
)
def test_a_parameter_that_said_whether_to_initialize(call: str, says: bool) -> None:
    result = rewrite(BUILD.replace("{call}", call))
    assert result.after is not None
    assert ("enabled=bool(args.apex)" in result.after) is not says
    assert [f.construct for f in found(result, "AMP119")] == (["use_apex"] if says else [])


def test_a_default_that_is_a_constant_of_the_file_says_something_too() -> None:
    text = """
        import torch
        from apex import amp

        OPT_LEVEL = "O0"


        class Trainer:
            def __init__(self, model, optimizer, level=OPT_LEVEL):
                self.model, self.optimizer = amp.initialize(model, optimizer, opt_level=level)

            def step(self, x):
                with amp.scale_loss(self.model(x).sum(), self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()


        def main(model, optimizer, x):
            Trainer(model, optimizer).step(x)
    """
    (finding,) = found(rewrite(text), "AMP119")
    assert finding.message == "__init__ takes level still, and reads it no more: no effect"


def test_a_variable_that_only_told_an_if_whose_body_went_goes_too() -> None:
    text = BUILD.replace("lr, use_apex=True", "lr").replace(
        "        model = torch", "        use_apex = True\n        model = torch"
    )
    result = rewrite(text.replace("{call}", "build(0.1)"))
    assert result.after is not None
    assert "use_apex" not in result.after
    assert not found(result, "AMP119")


LOADED = """
    import torch
    from apex import amp

    class Learner:
        def __init__(self, model, optimizer, fp16):
            self.model, self.optimizer, self.fp16 = model, optimizer, fp16
            if fp16:
                self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

        def load(self, path):
            saved = torch.load(path)
            if "amp" in saved.kinds():
                amp.initialize(self.model, self.optimizer, opt_level="O1")
                amp.load_state_dict(saved["amp"])

        def train(self, batches):
            for x in batches:
                loss = self.model(x).sum()
                self.optimizer.zero_grad()
                if self.fp16:
                    with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                self.optimizer.step()

        def save(self, path):
            torch.save({"amp": amp.state_dict()}, path)
"""


def test_a_method_that_a_test_calls_is_no_setting() -> None:
    result = rewrite(LOADED)
    assert result.after is not None, result.findings
    assert not [f for f in result.findings if f.code == "AMP119"]


@pytest.mark.parametrize("asked", ["config.scaled", "config.fp16"])
def test_a_setting_that_chose_whether_the_loss_is_scaled_is_told_of_where_nothing_reads_it(asked: str) -> None:
    """Apex was set up in any case: both arms are one path now, which asks for nothing."""
    text = TRAIN.format(
        imports="from settings import config", switch="config.fp16", arguments="opt_level='O1'", more="pass"
    )
    text = text.replace("if config.fp16:\n            model,", "with torch.enable_grad():\n            model,")
    assert text.count("config.fp16") == 1
    settings = "config = make()\nconfig.fp16 = True\nconfig.scaled = True\n"
    results = rewrite_files({"train.py": text.replace("config.fp16", asked), "settings.py": settings})
    after = results["train.py"].after
    assert after is not None
    assert asked not in after
    assert [f.construct for r in results.values() for f in r.findings if f.code == "AMP119"] == [asked]
