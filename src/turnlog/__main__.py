"""`python -m turnlog`, the same as `turnlog`."""

from __future__ import annotations

from turnlog.cli import main

if __name__ == "__main__":
    main()
