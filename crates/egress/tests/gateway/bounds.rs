//! Limits and the end.
