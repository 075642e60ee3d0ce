"""Strict validators of what turnlog would send to a provider.

They share no code with the views and encoders that they judge: they import nothing else of turnlog
and see plain JSON values only. Each rule has a name in `Rule`; each violation carries the name of
the rule it breaks and the path to the value. `require_valid` turns violations into an error.
"""

from __future__ import annotations

from turnlog.testing.providers.anthropic import check_anthropic
from turnlog.testing.providers.neutral import check_neutral
from turnlog.testing.providers.openai import check_openai
from turnlog.testing.providers.report import ProviderRuleError, Violation, require_valid
from turnlog.testing.providers.rules import Rule

__all__ = [
    "ProviderRuleError",
    "Rule",
    "Violation",
    "check_anthropic",
    "check_neutral",
    "check_openai",
    "require_valid",
]
