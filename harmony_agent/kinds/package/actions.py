"""Package: there is no step. A package is looked for, and somebody else installs it."""

from __future__ import annotations

from typing import Never

PackageAction = Never
