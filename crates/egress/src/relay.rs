//! Bytes between a program and upstream: spliced where they need not be looked at, counted, and bounded.
