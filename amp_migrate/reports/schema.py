"""The JSON report as a JSON Schema: what `--format json` prints, and what may be relied on."""

from __future__ import annotations

from typing import Any

from amp_migrate.reports.inventory import STATES

_COUNT = {"type": "integer", "minimum": 0}
_COUNTS = ("files", "apex_files", "migrated", "partial", "blocked", "failed", "sites", "sites_done", "sites_manual")


def _object(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_SUMMARY = _object(dict.fromkeys(_COUNTS, _COUNT))
_FINDING = _object(
    {
        "code": {"type": "string", "pattern": "^AMP[0-9]{3}$"},
        "line": {"type": "integer", "minimum": 1},
        "column": {"type": "integer", "minimum": 1},
        "construct": {"type": "string"},
        "status": {"enum": ["done", "manual", "note"]},
        "review": {"enum": ["as-is", "look", "review"]},
        "message": {"type": "string"},
    }
)
_FILE = _object(
    {
        "path": {"type": "string"},
        "status": {"enum": ["migrated", "partial", "blocked", "unchanged", "failed"]},
        "findings": {"type": "array", "items": _FINDING},
    }
)
_REPOSITORY = _object(
    {
        "path": {"type": "string"},
        "state": {"enum": list(STATES)},
        "summary": _SUMMARY,
        "codes": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {"done": _COUNT, "manual": _COUNT},
                "additionalProperties": False,
            },
        },
    }
)
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_object(
        {
            "version": {"const": 1},
            "files": {"type": "array", "items": _FILE},
            "summary": _SUMMARY,
            "repositories": {"type": "array", "items": _REPOSITORY},
        },
        "repositories",
    ),
}
