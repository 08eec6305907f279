//! The tools that clients call: their names and schemas, what each accepts, and how each is carried out.

pub(crate) mod files;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod sessions;

mod arguments;
mod reply;
