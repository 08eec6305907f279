//! What a sandbox's files say of users and groups: the program's own, root, and the one for all others (65534).

use cofferdam_policy::{OWN_HOME, Policy};

/// The files of /etc that say it, by name, with their texts.
pub(crate) fn files(policy: &Policy) -> [(&'static str, String); 2] {
    let home = policy.command.variables.get("HOME").map_or(OWN_HOME, String::as_str);
    let users = format!(
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nsandbox:x:1000:1000::{home}:/bin/sh\n\
         nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"
    );
    [("passwd", users), ("group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n".to_owned())]
}
