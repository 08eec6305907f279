//! Files of a sandbox's workspace, accessed by descriptor from outside. Nothing in a workspace is trusted.

pub(crate) mod media_type;
pub(crate) mod output;
pub(crate) mod transfer;
