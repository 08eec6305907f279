//! What stands in the place of the gateway in a program that is built without it: nothing can be attached.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cofferdam_policy::Network;

use crate::decide::rules::EgressRules;
use crate::decide::socket_layout::SocketLayout;
use crate::report::event::EventSink;
use crate::traffic::Traffic;

fn absent() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this program is built without the egress gateway")
}

/// A gateway, of which there is none.
pub enum Gateway {}

impl Gateway {
    /// # Errors
    /// Always: it is not built in.
    pub fn shared() -> io::Result<Arc<Gateway>> {
        Err(absent())
    }

    /// Never called: there is no gateway to call it on.
    pub fn attach(&self, _control: OwnedFd, _job: EgressJob) -> Attached {
        match *self {}
    }
}

/// What a sandbox would be attached with.
pub enum EgressJob {}

impl EgressJob {
    /// # Errors
    /// Always: the gateway is not built in.
    pub fn new(
        _: &Network,
        _: Arc<EgressRules>,
        _: SocketLayout,
        _: EventSink,
        _init: Option<u32>,
    ) -> io::Result<EgressJob> {
        Err(absent())
    }
}

/// A sandbox that would be attached.
pub enum Attached {}

impl Attached {
    /// Never called.
    pub fn end(self) -> Traffic {
        match self {}
    }

    /// Never called.
    pub fn repeats(&self) -> Repeats {
        match *self {}
    }
}

/// The repeats of its refusals.
#[derive(Debug)]
pub enum Repeats {}

impl Repeats {
    /// Never called.
    pub fn catch_up(&self) {
        match *self {}
    }
}
