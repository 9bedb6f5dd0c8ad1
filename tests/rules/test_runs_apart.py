"""Programs that share a trainer and never run together: the one optimizer of each is the trainer's only one."""

from __future__ import annotations

from tests.rules.helpers import check_files

TRAINER = """
    import torch
    from apex import amp

    class Trainer:
        def __init__(self, model, optimizer):
            self.model, self.optimizer, self.clip = model, optimizer, True

        def train(self, loader, every):
            for number, x in enumerate(loader):
                loss = self.model(x).mean()
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                if number % every == 0:
                    if self.clip:
                        torch.nn.utils.clip_grad_norm_(amp.master_params(self.optimizer), 1.0)
                    self.optimizer.step()
                    self.optimizer.zero_grad()
    """
SCRIPT = """
    from apex import amp
    from library import loader, network, {kind}
    from trainer import Trainer

    model = network()
    optimizer = {kind}(model.parameters())
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    Trainer(model, optimizer).train(loader, 2)
    """


def test_each_program_has_one_optimizer() -> None:
    files = {f"{kind}.py": SCRIPT.format(kind=kind.title()) for kind in ("adam", "sgd")}
    texts = check_files({"trainer.py": TRAINER, **files})
    assert texts["trainer.py"].count("scaler.update()") == 1
    assert texts["trainer.py"].count("unscale_(self.optimizer)") == 1


def test_each_object_steps_its_own_optimizer_by_the_one_scaler() -> None:
    script = SCRIPT.format(kind="Adam")
    again = """
    other, second = amp.initialize(network(), Adam([]), opt_level="O1")
    Trainer(other, second).train(loader, 2)
    """
    together = {"adam.py": script, "sgd.py": SCRIPT.format(kind="SGD"), "all.py": "import adam, sgd\n"}
    for files in ({"both.py": script + again}, together):
        texts = check_files({"trainer.py": TRAINER, **files})
        assert texts["trainer.py"].count("scaler.step(self.optimizer)") == 1
        assert "Trainer(model, optimizer, scaler)" in texts[next(iter(files))]
    assert (
        "Trainer(other, second, scaler)" in check_files({"trainer.py": TRAINER, "both.py": script + again})["both.py"]
    )
