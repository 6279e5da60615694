"""Which of the modules that systems need can be imported, and their versions, as JSON; a Python that is too old is an error."""

import importlib
import importlib.metadata
import json
import platform
import sys

if sys.version_info < (3, 11):
    sys.exit(f"Python {platform.python_version()} is older than 3.11")
found = {"python": platform.python_version()}
for module, package in [*((name,) * 2 for name in ("numpy", "tranship", "iceoryx2", "joblib", "pyarrow", "torch")), ("zmq", "pyzmq")]:
    try:
        importlib.import_module(module)
    except ImportError:
        continue
    try:
        found[module] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        found[module] = ""
print(json.dumps(found))
