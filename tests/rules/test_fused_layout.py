"""A program that knows itself how FusedAdam keeps its state: torch's Adam keeps it otherwise."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files

MADE = """
    from apex.optimizers import FusedAdam as Adam

    def make(model):
        return Adam(model.parameters(), lr=0.1)
    """
# A store that leaves the moments of the parameters to another file, and loads a state that it puts together.
STORE = """
    import torch
    from made import make

    class Store:
        def __init__(self, model):
            self.model = model
            self.optimizer = make(model)

        def load(self, groups):
            entries = {}
            for index, weight in enumerate(self.model.parameters()):
                entries[index] = {"exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}
            self.optimizer.load_state_dict({"state": entries, "param_groups": groups})
    """


def kept(source: str) -> bool:
    """Whether FusedAdam stays, and why is told."""
    result = rewrite(source)
    told = [f for f in result.findings if f.code == "AMP621"]
    assert all(f.status == "note" and "Apex stays installed" in f.message for f in told) == (result.after is None)
    return result.after is None


def test_a_state_put_together_without_a_step_keeps_the_optimizer() -> None:
    results = rewrite_files({"made.py": MADE, "store.py": STORE})
    assert results["made.py"].after is None
    (told,) = [f for f in results["made.py"].findings if f.code == "AMP621"]
    assert (told.status, told.review) == ("note", "review")
    assert "store.py:12 puts the state of a parameter together without a step count" in told.message
    assert not [f for r in results.values() for f in r.findings if f.code == "AMP431"]


@pytest.mark.parametrize(
    "store",
    [
        STORE.replace("torch.zeros_like(weight)}", 'torch.zeros_like(weight), "step": torch.tensor(0.0)}'),
        STORE.replace(
            "zeros_like(weight)}", 'zeros_like(weight)}\n                entries[index]["step"] = torch.tensor(0.0)'
        ),
        STORE.replace("class Store:", "class Store(torch.optim.Optimizer):"),
        STORE.replace("torch.zeros_like(weight)", '"moment"'),
    ],
    ids=["a step beside", "a step added", "an optimizer of its own", "names alone"],
)
def test_what_says_nothing_of_the_layout_keeps_nothing(store: str) -> None:
    assert "return torch.optim.Adam(" in check_files({"made.py": MADE, "store.py": store})["made.py"]


def test_what_never_runs_with_the_optimizer_keeps_nothing() -> None:
    apart = STORE.replace(
        "from made import make", "def make(model):\n        return torch.optim.Adam(model.parameters())"
    )
    script = apart + "\n    if __name__ == '__main__':\n        Store(torch.nn.Linear(1, 1)).load([])\n"
    train = "import torch\nfrom made import make\n\nif __name__ == '__main__':\n    make(torch.nn.Linear(1, 1))\n"
    assert (
        "return torch.optim.Adam(" in check_files({"made.py": MADE, "store.py": script, "train.py": train})["made.py"]
    )


PROGRAM = """
    import torch
    from apex.optimizers import FusedAdam

    class Warmup:
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def step(self):
            {body}

    model = torch.nn.Linear(2, 2)
    warmup = Warmup(FusedAdam(model.parameters(), lr=0.1, weight_decay=0.1))
    """


@pytest.mark.parametrize(
    "body",
    [
        "return self.optimizer.param_groups[0]['step'] / 100",
        "return self.optimizer.param_groups[0].get('step', 0) / 100",
        "return [g['step'] for g in self.optimizer.param_groups]",
        "group = self.optimizer.param_groups[0]; self.last = group['step'] if 'step' in group else 0",
        "\n            for i, group in enumerate(self.optimizer.param_groups):\n                group['step'] = i",
    ],
)
def test_the_step_count_of_a_group_keeps_the_optimizer(body: str) -> None:
    assert kept(PROGRAM.format(body=body))


@pytest.mark.parametrize(
    "body",
    [
        "return [g['lr'] for g in self.optimizer.param_groups]",
        "return [s['step'] for s in self.optimizer.state.values()]",
        "return self.settings['step']",
        "self.param_groups = [{'step': 1}]; return self.param_groups[0]['step']",
    ],
)
def test_other_step_counts_do_not(body: str) -> None:
    assert not kept(PROGRAM.format(body=body))


def test_a_class_of_its_own_upon_the_fused_one_knows_it() -> None:
    source = """
        from apex.optimizers import FusedAdam

        class Counted(FusedAdam):
            def __init__(self, params):
                super().__init__(params, lr=0.1, weight_decay=0.1)

            def steps(self):
                return self.param_groups[0]["step"]
        """
    assert kept(source)
    assert "torch" in (rewrite(source.replace('["step"]', '["lr"]')).after or "")


LOADED = """
    import torch
    from made import make

    def resume(model, path):
        optimizer = make(model)
        checkpoint = torch.load(path)
        {loads}
        return optimizer
    """


@pytest.mark.parametrize(
    ("loads", "says"),
    [
        ('optimizer.load_state_dict(checkpoint["optimizer"])', True),
        ("optimizer.load_state_dict(torch.load(path))", True),
        ('model.load_state_dict(checkpoint["model"])', False),
        ("optimizer.load_state_dict(make(model).state_dict())", False),
    ],
    ids=["of a checkpoint", "of a file of its own", "only the model's", "of another optimizer"],
)
def test_old_files_are_to_be_converted_where_a_state_is_loaded(loads: str, says: bool) -> None:
    results = rewrite_files({"made.py": MADE, "resume.py": LOADED.format(loads=loads)})
    (made,) = [f for f in results["made.py"].findings if f.code == "AMP621"]
    assert (made.status, made.review) == ("done", "as-is")
    told = [f for f in results["made.py"].findings if "amp-migrate checkpoint" in f.message]
    assert [(f.code, f.line, f.review, "(resume.py:7)" in f.message) for f in told] == (
        [("AMP431", made.line, "review", True)] if says else []
    )


def test_so_they_are_of_a_class_made_from_it() -> None:
    derived = "from apex.optimizers import FusedAdam\n\nclass Adam(FusedAdam):\n    pass\n\ndef make(model):\n"
    derived += "    return Adam(model.parameters(), lr=0.1, weight_decay=0.1)\n"
    loads = LOADED.format(loads='optimizer.load_state_dict(checkpoint["optimizer"])')
    results = rewrite_files({"made.py": derived, "resume.py": loads})
    (told,) = [f for f in results["made.py"].findings if "amp-migrate checkpoint" in f.message]
    assert (told.code, told.line) == ("AMP431", 3)


@pytest.mark.parametrize(
    "making",
    [
        "functools.partial(FusedAdam, lr=0.1, weight_decay=0.1)(model.parameters())",
        'KINDS["fused"](model.parameters(), lr=0.1, weight_decay=0.1)',
    ],
    ids=["in a partial", "kept in a table"],
)
def test_so_they_are_of_a_class_that_is_kept(making: str) -> None:
    source = f"""
        import functools
        import torch
        from apex.optimizers import FusedAdam

        KINDS = {{"fused": {"FusedAdam" if "KINDS" in making else "None"}}}

        def resume(model, path):
            optimizer = {making}
            assert isinstance(optimizer, FusedAdam)
            optimizer.load_state_dict(torch.load(path))
            return optimizer
        """
    told = [f for f in rewrite(source).findings if "amp-migrate checkpoint" in f.message]
    assert [(f.code, f.line) for f in told] == [("AMP431", 5 if "KINDS" in making else 8)]
