//! Where this user's containers keep files on the host.
