"""An evaluation of which only a part could be put in a region stays without: what the part gives would be half, and the rest
takes float32 alone."""

from __future__ import annotations

from tests.rules.helpers import rewrite_files
from tests.rules.programs import found

FILES = {
    "search.py": """
        class Search:
            def __init__(self, model):
                self.model = model

            def greedy(self, context):
                return self.model.generate(context).argmax(-1)

            def wide(self, context):
                return self.model.generate(context).topk(2)
        """,
    "nets.py": """
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.decoder = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

            def encode(self, x):
                return self.encoder(x)

            def generate(self, context):
                return self.decoder(context)

            def forward(self, x):
                return self.decoder(self.encoder(x))
        """,
    "translate.py": """
        import torch
        from search import Search

        class Translator:
            def __init__(self, model, width):
                self.model, self.width = model, width
                self.search = Search(model)

            def run(self, loader):
                return self.evaluate(loader)

            def evaluate(self, loader):
                generator = self.search.greedy if self.width == 1 else self.search.wide
                found = []
                for x in loader:
                    with torch.no_grad():
                        context = self.model.encode(x)
                    found.append(generator(context))
                return found
        """,
    "train.py": """
        import torch
        from apex import amp
        from nets import Net
        from translate import Translator

        def main(args, loader):
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if args.fp16:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x in loader:
                loss = model(x).pow(2).mean()
                if args.fp16:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            return Translator(model, args.width).run(loader)
        """,
}


def test_what_the_other_part_cannot_take_is_not_made() -> None:
    results = rewrite_files(FILES)
    assert results["train.py"].after is not None
    assert "torch.autocast" not in (results["translate.py"].after or "")
    assert results["search.py"].after is None
    told = [f.message for r in results.values() for f in found(r, "AMP502")]
    assert any("what self.model.encode gives" in message for message in told)


def test_what_goes_nowhere_else_has_its_region() -> None:
    files = {**FILES, "translate.py": FILES["translate.py"].replace("generator(context)", "context.sum()")}
    assert "torch.autocast" in (rewrite_files(files)["translate.py"].after or "")
