"""URLs of database servers as they may be shown: passwords stay with who gave them."""

from __future__ import annotations

import re

_SECRET = "***"  # noqa: S105 - what is shown in its place
_USER = re.compile(r"(?<=://)([^/?#@:]*):[^/?#]*@")
_OPTION = re.compile(r"(?i)([?&][^=&]*(?:password|passwd|secret)[^=&]*=)[^&#]*")


def shown(url: str) -> str:
    """The URL with `***` in the place of each password."""
    return _OPTION.sub(rf"\1{_SECRET}", _USER.sub(rf"\1:{_SECRET}@", url))
