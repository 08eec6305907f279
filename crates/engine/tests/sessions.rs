//! Sessions of every language in the jail and behind Landlock: what is kept, what is reported, and what reaches the channel.

mod session;
