"""`cfg.fp16`, which only the training needed: a function that did without asks it only where its object has it."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of
from tests.rules.helpers import rewrite_files

CONFIG = """
    class Config:
        def __init__(self):
            self.lr = 0.1
            self.epochs = 2
            {field}

        def __str__(self):
            return str(self.__dict__)

    cfg = Config()
"""
TRAIN = """
    import sys
    import torch
    from config import cfg

    class Runner:
        def __init__(self, loader):
            self.loader = loader
            self.model = torch.nn.Linear(2, 2)

        def train(self):
            optimizer = torch.optim.SGD(self.model.parameters(), lr=cfg.lr)
            if cfg.fp16:
                from apex import amp
                self.model, optimizer = amp.initialize(self.model, optimizer, opt_level="O1")
            for x in self.loader:
                optimizer.zero_grad()
                loss = self.model(x).sum()
                if cfg.fp16:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
            self.validate()

        def validate(self):
            with torch.no_grad():
                for x in self.loader:
                    print(self.model(x).argmax())

    def override(pairs):
        for pair in pairs:
            key, value = pair.split("=")
            setattr(cfg, key, value)

    def main():
        override(sys.argv[2:])
        runner = Runner([torch.ones(1, 2)])
        if sys.argv[1] == "test":
            runner.validate()
        else:
            runner.train()

    main()
"""
PLAIN = "pass"


@pytest.mark.parametrize("field", [PLAIN, "self.fp16 = False"])
def test_an_evaluation_that_also_runs_without_the_training_is_handed_the_switch(field: str) -> None:
    results = rewrite_files({"config.py": CONFIG.format(field=field), "train.py": TRAIN})
    after = results["train.py"].after or ""
    assert "enabled=self.use_amp" in after[after.index("def validate") :]
    assert not [f for r in results.values() for f in r.findings if f.code == "AMP531"]


@pytest.mark.parametrize(
    ("field", "missing"),
    [
        (PLAIN, True),
        ("self.fp16 = False", False),
        ("self.__dict__.update(fp16=False)", False),
        ("for name in ('fp16', 'amp'): setattr(self, name, False)", False),
        ("vars(self)['fp16'] = False", False),
    ],
)
@pytest.mark.parametrize("options", [False, True])
def test_a_setting_that_no_class_gives_is_told_where_it_is_newly_asked(
    field: str, missing: bool, options: bool
) -> None:
    """What is put on it by a computed name may be an option of the command line; else only the training needed it."""
    parser = "parser.add_argument('--fp16')\n        for pair in pairs:" if options else "for pair in pairs:"
    before = {"config.py": CONFIG.format(field=field), "train.py": TRAIN.replace("for pair in pairs:", parser)}
    region = "with torch.no_grad(), torch.autocast('cuda', enabled=cfg.fp16):"
    after = {**before, "train.py": before["train.py"].replace("with torch.no_grad():", region)}
    found = [d for d in doubts_of(before, after) if d.code == "AMP131"]
    assert [(d.path, d.verdict) for d in found] == ([("train.py", "refuse")] if missing and not options else [])
