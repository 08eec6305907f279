//! The TLS greeting (ClientHello): the name in it, and whether it hides one. Pure.
