"""How large the numbers of a test are: as large as is cheap in the suite; the full ones with `make
test-soak`.
"""

from __future__ import annotations

import os
from typing import Final

FULL: Final = bool(os.environ.get("HARMONY_SOAK"))
"""Whether this is the long run: hours of a device, nothing that any single change has to wait
for.
"""


def scaled(cheap: int, full: int) -> int:
    """The number that is right for this run."""
    return full if FULL else cheap
