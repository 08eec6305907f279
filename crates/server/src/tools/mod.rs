//! The tools that clients call: their names and schemas, what each accepts, and how each is carried out.

pub mod files;
pub mod run;
pub mod schema;
pub mod sessions;

mod arguments;
mod reply;
