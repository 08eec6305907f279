//! The SOCKS5 proxy's requests (RFC 1928), read as they come. Pure.
