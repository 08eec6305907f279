//! What the first bytes of a connection are: TLS, HTTP, or neither. Pure.
