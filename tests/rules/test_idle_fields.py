"""A field that only told whether the loss is scaled: that nothing reads it any more is said, whatever else has its name."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

TRAINER = """
    import torch
    from apex import amp


    class Trainer:
        def __init__(self, options):
            self.net = torch.nn.Linear(2, 1).cuda()
            self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
            self.use_apex = options["use_apex"]
            if options["use_apex"]:
                self.net, self.opt = amp.initialize(self.net, self.opt, opt_level="O1")

        def run(self, loader):
            for x in loader:
                loss = self.net(x).sum()
                self.opt.zero_grad()
                if self.use_apex:
                    with amp.scale_loss(loss, self.opt) as scaled:
                        scaled.backward()
                else:
                    loss.backward()
                self.opt.step()

        def more(self):
            MORE
    """
MAIN = """
    from trainer import Trainer

    trainer = Trainer({"use_apex": True})
    trainer.run([])
    MORE
    """


@pytest.mark.parametrize(
    ("more", "outside", "told"),
    [
        ("pass", "pass", True),
        ("return self.options['use_apex']", "print('use_apex')", True),
        ("return self.use_apex", "pass", False),
        ("pass", "print(trainer.use_apex)", False),
        ("pass", "print(getattr(trainer, 'use_apex'))", False),
        ("return vars(self)", "pass", False),
        ("return dict(self.__dict__)", "pass", False),
    ],
)
def test_a_field_that_nothing_reads_is_told(more: str, outside: str, told: bool) -> None:
    results = rewrite_files({"trainer.py": TRAINER.replace("MORE", more), "main.py": MAIN.replace("MORE", outside)})
    assert "GradScaler" in (results["trainer.py"].after or "")
    found = [(f.line, f.review, f.message) for f in results["trainer.py"].findings if f.code == "AMP119"]
    assert found == [(9, "look", "self.use_apex is kept, but nothing reads it any more: no effect")] * told


def test_what_held_the_flag_is_none() -> None:
    """An object of settings is kept for whatever else it has."""
    text = TRAINER.replace('self.use_apex = options["use_apex"]', "self.options = options").replace("MORE", "pass")
    text = text.replace("if self.use_apex:", 'if self.options["use_apex"]:')
    result = rewrite_files({"trainer.py": text, "main.py": MAIN.replace("MORE", "pass")})["trainer.py"]
    assert "GradScaler" in (result.after or "")
    assert not [f for f in result.findings if f.construct == "self.options"]
