//! Hostile programs and servers.
