"""Says how many words a text has: arguments in, a line out. Reads nothing but its own files."""

import pathlib
import sys

common = set(pathlib.Path("common.txt").read_text().split())
words = [word.strip(".,;:!?").lower() for argument in sys.argv[1:] for word in argument.split()]
print(f"{len(words)} words, {len([word for word in words if word not in common])} of them not common")
