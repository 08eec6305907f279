//! The gateway end to end, between clients and servers of the test: what is allowed passes byte for byte, and what is
//! not does not begin.

mod abuse;
mod captured_connections;
mod limits_and_end;
mod proxies;
mod support;
