//! What a client gets of a call: the result's text, data and files, their size bounds, and the blobs that it links to.

pub mod blobs;
pub mod call_result;
pub mod truncate;
