//! The environments in which code runs: their definitions, the policies and sandboxes prepared from them, and the reload
//! when definitions change.

pub mod environment;
pub mod fixed_places;
pub mod registry;
pub mod warm_pool;
pub mod watch;

pub use environment::{Host, OUTPUT, PreparedEnvironment, ServedEnvironment, failure};
pub use registry::EnvironmentRegistry;
