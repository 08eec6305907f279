"""Prepared policies, kept by the content of what they were made from. Never decides whether something may run."""

from __future__ import annotations

import os
import threading
import warnings
from collections import OrderedDict
from typing import Callable, Hashable

from . import _native

_MOST = 64
"""Policies kept."""

_READY = 2
"""Sandboxes staged ahead for a policy that is run again; unused ones end after two seconds."""

_lock = threading.Lock()
_kept: OrderedDict[Hashable, tuple[_native.Prepared, bool]] = OrderedDict()


def _forget() -> None:
    """After a fork, what is kept is the other process's, and so may be the lock."""
    global _lock
    _lock = threading.Lock()
    _kept.clear()


os.register_at_fork(after_in_child=_forget)


def prepared(key: Hashable, make: Callable[[int], _native.Prepared]) -> _native.Prepared:
    """The policy of this key, made by `make` with so many sandboxes staged ahead: none as long as it ran only once."""
    with _lock:
        known = _kept.get(key)
        if known is not None:
            _kept.move_to_end(key)
            if known[1]:
                return known[0]
    ready = known is not None
    made = make(_READY if ready else 0)
    if not ready:
        for note in made.notes:
            warnings.warn(note, stacklevel=4)
    with _lock:
        _kept[key] = (made, ready)
        _kept.move_to_end(key)
        old = [_kept.popitem(last=False) for _ in range(len(_kept) - _MOST)]
    del old  # outside the lock: what was staged ends here
    return made
