//! What a client gets of a call: the result's text, data and files, their size bounds, and the blobs that it links to.

pub(crate) mod blobs;
pub(crate) mod call_result;
pub(crate) mod truncate;
