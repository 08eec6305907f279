//! One sandbox's side of the gateway: its listeners, its connections, its limits, and their end.
