//! Files of a sandbox's workspace, accessed by descriptor from outside. Nothing in a workspace is trusted.

pub mod media_type;
pub mod output;
pub mod transfer;
