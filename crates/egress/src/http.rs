//! HTTP/1.1 in the clear: requests looked into one by one, the HTTP proxy, and the API that is passed through.
