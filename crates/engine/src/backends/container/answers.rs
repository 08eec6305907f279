//! Per field, what a container holds of a policy: the one place where it is written down. Pure.
