//! The way out: a name resolved here and now, its address checked, and a connection to that very address.
