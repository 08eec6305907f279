//! The gateway of this process: its threads, and the sandboxes that it serves.
