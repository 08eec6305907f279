//! The gateway end to end, between programs and servers of the test: what is allowed goes through byte for byte, what is not
//! does not begin.

mod attack;
mod bounds;
mod flows;
mod proxied;
mod world;
