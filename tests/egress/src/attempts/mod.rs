//! The table of attempts, in the order of their classes. Only data.

use crate::attempt::Attempt;

mod dns;
mod hosts;
mod http;
mod http_rules;
mod inside;
mod limits;
mod names;
mod protocols;
mod proxies;
mod tls;
mod upstream;

/// All of them.
pub fn all() -> Vec<Attempt> {
    [
        hosts::ATTEMPTS,
        names::ATTEMPTS,
        dns::ATTEMPTS,
        tls::ATTEMPTS,
        http::ATTEMPTS,
        http_rules::ATTEMPTS,
        proxies::ATTEMPTS,
        upstream::ATTEMPTS,
        protocols::ATTEMPTS,
        inside::ATTEMPTS,
        limits::ATTEMPTS,
    ]
    .concat()
}
