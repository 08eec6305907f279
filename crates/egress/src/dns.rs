//! The resolver inside a sandbox: one query in, one answer out. Pure; never forwards anything.
