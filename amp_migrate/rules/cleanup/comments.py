"""Words in comments that only said what Apex wanted: `# multi-gpu training (should be after apex fp16 initialization)`.

Apex: https://nvidia.github.io/apex/amp.html (initialize must be called before DistributedDataParallel)
"""

from __future__ import annotations

import io
import re
import tokenize

from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()

ORDER = re.compile(
    r"[ \t]*\((?:should|must|has to|needs to) (?:be|come|go) (?:\w+ )?after (?:the )?apex[^()]*\)", re.IGNORECASE
)


def without_order(text: str) -> str:
    """A file without such words in its comments, once nothing is initialized there; the lines are the same."""
    if ORDER.search(text) is None:
        return text
    lines = io.StringIO(text, newline="").readlines()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT and (said := ORDER.sub("", token.string)) != token.string:
                row, column = token.start
                line = lines[row - 1]
                lines[row - 1] = line[:column] + said + line[column + len(token.string) :]
    except (tokenize.TokenError, IndentationError):
        return text
    return "".join(lines)
