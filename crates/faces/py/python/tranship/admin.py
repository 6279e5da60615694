"""An operator's questions: figures, leaks, quotas. An ordinary program asks none of them."""

from __future__ import annotations

from ._native import Admin

__all__ = ["Admin"]
