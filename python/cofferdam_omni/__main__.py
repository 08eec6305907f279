"""`python -m cofferdam_omni enable|disable [DIRECTORY]`: for this environment, by a `.pth` file in site-packages."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import List

_FILE = "cofferdam-omni.pth"


_USAGE = "usage: python -m cofferdam_omni enable|disable [DIRECTORY]"


def main(arguments: List[str]) -> int:
    if any(argument in ("-h", "--help") for argument in arguments):
        print(_USAGE)
        print("Lets `omni.core.skills.sandbox` and `omni.core.skills.executor` be imported in this environment, or no more,")
        print(f"by {_FILE} in DIRECTORY: its site-packages unless one is named.")
        return 0
    if not 1 <= len(arguments) <= 2 or arguments[0] not in ("enable", "disable"):
        print(_USAGE, file=sys.stderr)
        return 2
    directory = Path(arguments[1] if len(arguments) == 2 else sysconfig.get_paths()["purelib"])
    file = directory / _FILE
    if arguments[0] == "enable":
        file.write_text("import cofferdam_omni\n")
    else:
        file.unlink(missing_ok=True)
    print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
