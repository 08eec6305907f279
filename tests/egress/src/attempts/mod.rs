//! The table of attempts, in the order of their classes. Only data.

use crate::attempt::Attempt;

mod dns;
mod hosts;
mod http;
mod http_rules;
mod limits;
mod name_spellings;
mod protocols;
mod proxies;
mod sandbox_network;
mod tls;
mod upstream;

/// All of them.
pub fn all() -> Vec<Attempt> {
    [
        hosts::ATTEMPTS,
        name_spellings::ATTEMPTS,
        dns::ATTEMPTS,
        tls::ATTEMPTS,
        http::ATTEMPTS,
        http_rules::ATTEMPTS,
        proxies::ATTEMPTS,
        upstream::ATTEMPTS,
        protocols::ATTEMPTS,
        sandbox_network::ATTEMPTS,
        limits::ATTEMPTS,
    ]
    .concat()
}
