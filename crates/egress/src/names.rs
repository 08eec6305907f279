//! The names that one sandbox has asked for, and the synthetic address of each.
