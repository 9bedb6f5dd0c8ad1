"""Networks and optimizers that a mapping holds under computed keys, and that are read there under written ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.reading.program import computed_keys
from tests.rules.helpers import check_files, rewrite, run_files

HEADS = """
    import json

    import torch
    from apex import amp

    def train(nets, optimizer, loader, count):
        for x in loader:
            hidden = nets["base"](x)
            loss = sum(nets[KEY](hidden).mean() for i in range(count))
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    def validate(nets, loader):
        found = []
        with torch.no_grad():
            for x in loader:
                hidden = nets["base"](x)
                scores = nets["head0"](hidden)
                found.append(scores.mean().item())
        return found

    def main(loader):
        nets = {"base": torch.nn.Linear(4, 4)}
        for i in range(2):
            nets[KEY] = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD([p for net in nets.values() for p in net.parameters()], lr=0.1)
        models, optimizer = amp.initialize(list(nets.values()), optimizer, opt_level="O1")
        for key, model in zip(nets, models):
            nets[key] = model
        train(nets, optimizer, loader, 2)
        return validate(nets, loader)

    if __name__ == "__main__":
        print(json.dumps(main([torch.randn(2, 4)])))
    """
REGION = """\
            with torch.autocast("cuda", dtype=torch.float16):
                hidden = nets["base"](x)
                scores = nets["head0"](hidden)
            found.append(scores.mean().item())
"""


@pytest.mark.parametrize("key", ['"head%d" % i', 'f"head{i}"', '"head{}".format(i)', '"head" + str(i)'])
def test_what_is_stored_under_a_computed_key_runs_under_a_written_one(key: str, tmp_path: Path) -> None:
    texts = check_files({"train.py": HEADS.replace("KEY", key)})
    assert REGION in texts["train.py"]
    assert len(run_files(tmp_path, texts, "train.py")) == 1


def test_the_audit_sees_such_a_forward_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computed_keys, "link", lambda project: None)
    assert REGION in check_files({"train.py": HEADS.replace("KEY", 'f"head{i}"')})["train.py"]


@pytest.mark.parametrize("models", ["list(nets.values())", "tuple(nets.values())", "[net for net in nets.values()]"])
def test_what_the_values_of_a_mapping_are_listed_from_is_set_up(models: str) -> None:
    assert (
        REGION
        in check_files({"train.py": HEADS.replace("KEY", 'f"head{i}"').replace("list(nets.values())", models)})[
            "train.py"
        ]
    )


STEPS = """
    import torch
    from apex import amp

    def train(nets, optimizers, loader):
        for x in loader:
            for key in nets:
                loss = nets[key](x).mean()
                with amp.scale_loss(loss, optimizers[key]) as scaled_loss:
                    scaled_loss.backward()
            optimizers["part0"].step()
            optimizers["part0"].zero_grad()

    def main(loader):
        nets, optimizers = {}, {}
        for i in range(2):
            net = torch.nn.Linear(4, 1)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            nets[f"part{i}"], optimizers[f"part{i}"] = amp.initialize(net, optimizer, opt_level="O1")
        train(nets, optimizers, loader)
    """


def test_an_optimizer_is_found_there_too() -> None:
    after = rewrite(STEPS).after
    assert after is not None
    assert 'scaler.step(optimizers["part0"])' in after


def test_a_key_that_begins_otherwise_or_is_written_is_another_entry() -> None:
    assert rewrite(STEPS.replace('optimizers["part0"].step()', 'optimizers["other"].step()')).after is None
    other = STEPS.replace("nets, optimizers = {}, {}", 'nets, optimizers = {}, {"part0": Other()}')
    assert rewrite(other).after is None
