"""Functions that only run before `initialize`: Apex prepared nothing for them, and nothing of them ran in half."""

from __future__ import annotations

from pathlib import Path

from tests.rules.helpers import rewrite_files, run_files, texts_of

FINDER = """
    import torch
    try:
        from apex import amp
        IS_AMP_AVAILABLE = True
    except ImportError:
        IS_AMP_AVAILABLE = False


    class RateFinder:
        def __init__(self, model, optimizer):
            self.model = model
            self.optimizer = optimizer
            self.seen = []

        def search(self, loader, steps=1):
            for x, y in loader:
                self._train(x, y, steps)
            return self.seen

        def _train(self, x, y, steps):
            out = self.model(x)
            self.seen.append(str(out.dtype))
            loss = torch.nn.functional.mse_loss(out, y) / steps
            if IS_AMP_AVAILABLE and hasattr(self.optimizer, "_amp_stash"):
                delay_unscale = steps > 1
                with amp.scale_loss(loss, self.optimizer, delay_unscale=delay_unscale) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()
    """
TRAIN = """
    import json
    import torch
    from finder import RateFinder
    from settings import args, loader


    def train(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        finder = RateFinder(model, optimizer)
        seen = finder.search(loader)
        if args.fp16:
            from apex import amp
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
        print(json.dumps({"seen": seen, "scaled": SCALER_STATE["scale"] > 1}))


    train(torch.nn.Linear(3, 2))
    """
SETTINGS = """
    import torch
    from types import SimpleNamespace

    args = SimpleNamespace(fp16=True)
    loader = [(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(3)]
    """


def migrated(train: str) -> dict[str, str]:
    results = rewrite_files({"train.py": train, "finder.py": FINDER, "settings.py": SETTINGS}, device="cpu")
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    return texts_of(results)


def test_a_search_before_initialize_keeps_its_plain_branch(tmp_path: Path) -> None:
    texts = migrated(TRAIN)
    assert "_amp_stash" not in texts["finder.py"]
    assert "autocast" not in texts["finder.py"]
    assert run_files(tmp_path, texts, "train.py") == {"seen": ["torch.float32"] * 3, "scaled": True}


def test_a_search_after_initialize_is_no_such_thing() -> None:
    search = "        seen = finder.search(loader)\n"
    later = TRAIN.replace(search, "").replace("        print(json", f"{search}        print(json")
    results = rewrite_files({"train.py": later, "finder.py": FINDER, "settings.py": SETTINGS}, device="cpu")
    findings = [f for r in results.values() for f in r.findings]
    assert not [f for f in findings if f.code == "AMP404" and f.status == "done"]
