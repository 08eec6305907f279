"""Caches prepared policies by the content that they were made from. Does not decide whether something may run."""

from __future__ import annotations

import os
import threading
import warnings
from collections import OrderedDict
from typing import Callable, Hashable

from . import _native

_LIMIT = 64
"""Most cached policies."""

_STAGED = 2
"""Staged sandboxes for a policy that is run again; unused ones end after two seconds."""

_lock = threading.Lock()
_cached: OrderedDict[Hashable, tuple[_native.Prepared, bool]] = OrderedDict()


def _clear() -> None:
    """Clears the cache after a fork, since its entries, and possibly the lock, belong to the parent process."""
    global _lock
    _lock = threading.Lock()
    _cached.clear()


os.register_at_fork(after_in_child=_clear)


def prepared(key: Hashable, build: Callable[[int], _native.Prepared]) -> _native.Prepared:
    """The policy of this key, built by `build` with the given number of staged sandboxes: none until its second run."""
    with _lock:
        known = _cached.get(key)
        if known is not None:
            _cached.move_to_end(key)
            if known[1]:
                return known[0]
    reused = known is not None
    built = build(_STAGED if reused else 0)
    if not reused:
        for note in built.notes:
            warnings.warn(note, stacklevel=4)
    with _lock:
        _cached[key] = (built, reused)
        _cached.move_to_end(key)
        old = [_cached.popitem(last=False) for _ in range(len(_cached) - _LIMIT)]
    del old  # outside the lock: staged sandboxes end here
    return built
