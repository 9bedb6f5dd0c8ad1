"""Scripts that a program knows by its files alone: they read the checkpoints that it saves, and tell their entries by name.

No import ties such a script to what saves: an average over checkpoints that leaves out "amp" meets another key afterwards.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping

_SAVES = "amp.state_dict("
_KEY = re.compile(r"[\"'](\w*amp\w*)[\"']", re.IGNORECASE)  # under which a state of Apex's is kept


def readers(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """By the path of a script that reads checkpoints and names the key of Apex's state, the files nearest to it that save one
    under such a key. What saves one itself reads its own."""
    saving: defaultdict[str, set[str]] = defaultdict(set)  # by key
    for path, text in texts.items():
        if _SAVES in text:
            for key in set(_KEY.findall(text)):
                saving[key].add(path)
    found: dict[str, set[str]] = {}
    for path, text in texts.items() if saving else ():
        if "torch.load(" in text and _SAVES not in text:
            others = {other for key in set(_KEY.findall(text)) for other in saving.get(key, ())}
            # The folders above the script that hold the other one, too: the longest is the nearest.
            shared = {other: len(os.path.commonpath([path, other])) for other in others}
            nearest = max(shared.values(), default=0)
            if shared:
                found[path] = {other for other, folder in shared.items() if folder == nearest}
    return found
