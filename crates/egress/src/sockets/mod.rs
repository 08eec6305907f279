//! The sockets of a sandbox's network namespace, as descriptors in this process: how they are received, waited for, and
//! asked which process a connection belongs to. What each socket is for says `decide::socket_layout`.

#[cfg(feature = "gateway")]
pub(crate) mod async_fd;
#[cfg(feature = "gateway")]
pub(crate) mod receive;
pub mod socket_owner;
