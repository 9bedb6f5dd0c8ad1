"""An object that only one branch of a helper makes: where the other one is taken, no method of it runs. AMP531."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import rewrite_files

AGENT = """
    import torch
    from apex import amp


    class Agent:
        def __init__(self, mode):
            self.model = torch.nn.Linear(4, 2)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            if mode == "train":
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O2")

        def train(self, loader):
            for x in loader:
                self.optimizer.zero_grad()
                loss = self.model(x).pow(2).mean()
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()

        def predict(self, loader):
            with torch.no_grad():
                return [self.model(x).tolist() for x in loader]
"""
MAIN = """
    import argparse

    import torch
    from agent import Agent


    def load(args):
        {made}


    def main(**args):
        loader = [torch.randn(3, 4)]
        if args["mode"] == "train":
            agent = load(args)
            agent.train(loader)
        elif args["mode"] == "predict":
            agent = load(args)
            agent.predict(loader)


    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--mode", default="train")
        parser.add_argument("--kind")
        main(**vars(parser.parse_args()))
"""


@pytest.mark.parametrize(
    "made",
    [
        'if args["kind"] == "net":\n    agent = Agent(args["mode"])\nelse:\n    pass\nreturn agent',
        'if args["kind"] == "net":\n    return Agent(args["mode"])',
        'if args["kind"] != "net":\n    raise ValueError(args["kind"])\nreturn Agent(args["mode"])',
        'return Agent(args["mode"])',
    ],
)
def test_what_no_run_makes_is_not_said_to_run(made: str) -> None:
    main = MAIN.format(made=made.replace("\n", "\n        "))
    results = rewrite_files({"agent.py": textwrap.dedent(AGENT), "main.py": textwrap.dedent(main)})
    agent = results["agent.py"]
    assert agent.after is not None
    assert "autocast" in agent.after
    assert not [f.message for f in agent.findings if f.code == "AMP531"]
