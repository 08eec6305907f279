//! The environments in which code runs: their definitions, the policies and sandboxes prepared from them, and the reload
//! when definitions change.

pub(crate) mod environment;
pub(crate) mod fixed_places;
pub(crate) mod registry;
pub(crate) mod warm_pool;
pub(crate) mod watch;

pub(crate) use environment::{EnvironmentHost, OUTPUT, PreparedEnvironment, ServedEnvironment, failure};
pub(crate) use registry::EnvironmentRegistry;
