"""Harmony's agent: a Score interpreter that keeps one device as its manifests say.

Where things are is told by ``adr/0005-layout.md``; the arrows between layers are held by
``tests/arch``.
"""

import os

# Nothing is to load code of others because it is installed beside us, and looking for it takes time
# at each start.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

__version__ = "0.1.0"
