"""An evaluation in two parts, of which the second takes what the first gives: both are put in regions, or none."""

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


def test_what_takes_the_half_of_a_part_is_put_in_a_region_too() -> None:
    """What calls the search by a variable: it runs with the region around the call."""
    results = rewrite_files(FILES)
    assert results["train.py"].after is not None
    assert results["search.py"].after is None
    after = results["translate.py"].after or ""
    region = 'torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):'
    assert f"with torch.no_grad(), {region}\n                context = self.model.encode(x)" in after
    assert f"with {region}\n                found.append(generator(context))" in after
    told = [f.message for f in found(results["search.py"], "AMP502")]
    assert len(told) == 2
    assert all("in float32 but where what calls it is under autocast" in message for message in told)
