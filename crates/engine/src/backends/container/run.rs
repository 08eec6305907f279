//! One run of a container.
