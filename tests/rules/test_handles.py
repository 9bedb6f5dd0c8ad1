"""A field that holds Apex goes where all that was reached through it has gone; else it is told of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

WRAPPING = """
    import json
    import torch

    class Processes:
        engine = None

        def __init__(self, fast):
            self.fast = fast
            if fast:
                import apex

                self.engine = apex

        def wrap(self, module, several=False):
            if several:
                return self.engine.parallel.DistributedDataParallel(module)
            return module

        MORE

    if __name__ == "__main__":
        print(json.dumps(str(Processes(True).wrap(torch.nn.Linear(3, 1)))))
    """


def test_a_field_that_holds_apex_goes_with_what_is_reached_through_it(tmp_path: Path) -> None:
    text = check_files({"run.py": WRAPPING.replace("        MORE\n", "")})["run.py"]
    assert "apex" not in text
    assert "engine" not in text
    assert "torch.nn.parallel.DistributedDataParallel(module)" in text
    assert "Linear" in run_files(tmp_path, {"run.py": text}, "run.py")


@pytest.mark.parametrize(
    "more",
    [
        "def there(self):\n            return self.engine is not None",
        "def other(self, x):\n            return self.engine.contrib.xentropy.SoftmaxCrossEntropyLoss.apply(x)",
        'def field(self):\n            return getattr(self, "engine")',
    ],
)
def test_a_field_that_something_still_reads_stays(more: str) -> None:
    results = rewrite_files({"run.py": WRAPPING.replace("MORE", more)})
    text = results["run.py"].after or results["run.py"].before
    assert "self.engine = apex" in text, json.dumps(text)
    assert "engine = None" in text


def test_a_field_in_one_file_that_another_file_reads() -> None:
    use = """
        from run import Processes

        def wrap(processes, model):
            return processes.engine.parallel.DistributedDataParallel(model)
        """
    texts = check_files({"run.py": WRAPPING.replace("        MORE\n", ""), "use.py": use})
    assert "apex" not in texts["run.py"]
    assert "torch.nn.parallel.DistributedDataParallel(model)" in texts["use.py"]
