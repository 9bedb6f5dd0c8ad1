"""A model that an object keeps in a private field, or that a method gives, is one: its forwards stay in half precision."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.helpers import doubts_of
from tests.rules.helpers import check_files, run_files

AGENT = """
import json

import torch
from apex import amp


class Agent:
    def __init__(self, net):
        self._net = net
        self._optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self._net, self._optimizer = amp.initialize(self._net, self._optimizer, opt_level="O1")

    def _get_net(self):
        return self._net

    @property
    def _kept(self):
        return self._net

    def _log(self, value):
        return value

    def act(self, state):
        with torch.no_grad():
            return CALL(state)

    def train(self, batches):
        for state, target in batches:
            loss = torch.nn.functional.mse_loss(self._net(state), target)
            self._optimizer.zero_grad()
            with amp.scale_loss(loss, self._optimizer) as scaled_loss:
                scaled_loss.backward()
            self._optimizer.step()


batches = [(torch.ones(2, 3), torch.ones(2, 2)) for _ in range(2)]
agent = Agent(torch.nn.Linear(3, 2))
agent.train(batches)
for state, _ in batches:
    out = agent.act(state)
print(json.dumps(str(out.dtype)))
"""
REGION = ', torch.autocast("cpu", dtype=torch.float16):'
MODELS = ["self._net", "self._get_net()", "Agent._get_net(self)", "(self._get_net() if state.any() else self._net)"]


@pytest.mark.parametrize("call", MODELS)
def test_its_evaluation_is_in_half_precision(call: str, tmp_path: Path) -> None:
    texts = check_files({"agent.py": AGENT.replace("CALL", call)}, device="cpu")
    assert f"        with torch.no_grad(){REGION}\n            return {call}(state)" in texts["agent.py"]
    assert run_files(tmp_path, texts, "agent.py") == "torch.float16"


@pytest.mark.parametrize("call", [*MODELS[:2], "self._kept"])
def test_the_audit_tells_of_one_that_lost_it(call: str) -> None:
    before = AGENT.replace("CALL", call)
    after = check_files({"agent.py": before}, device="cpu")["agent.py"]
    assert REGION in after
    (told,) = doubts_of({"agent.py": before}, {"agent.py": after.replace(REGION, ":")})
    assert (told.code, told.verdict) == ("AMP531", "review")
    assert told.message.startswith(f"{call} ran in half precision under Apex")


def test_a_private_method_that_runs_nothing_is_none() -> None:
    text = check_files({"agent.py": AGENT.replace("CALL", "self._log")}, device="cpu")["agent.py"]
    assert "        with torch.no_grad():\n            return self._log(state)" in text
