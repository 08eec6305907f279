//! The policy's rules, compiled: may this name, address, port, method, path go out? Pure.
