//! Generates docs/egress-table.md from the tables. Pure.

use crate::attempt::{Attempt, Control, Evidence};
use crate::clients::Client;

const HEAD: &str = "\
<!-- Generated from tests/egress by `COFFERDAM_UPDATE=1 cargo test -p cofferdam-egress-tests`; do not edit it. -->

# Getting round the egress gateway

What the test suite tries against `--network allow=…`, as root and as an unprivileged user, in a world of network
namespaces in which every address answers and from which nothing leads out. A row holds when a record of every packet
that left the host has nothing of the attempt, when the outcome says why (or the kernel's error did), and when its
allowed twin arrives at the same victim. The exact calls stand in `tests/egress/src`. What the gateway cannot hold
stands in [network.md](network.md).
";

/// The page.
pub fn table(clients: &[Client], attempts: &[Attempt]) -> String {
    let mut page = format!(
        "{HEAD}\n## Programs\n\n{} clients, unmodified, each at a host that is allowed and at one that is not.\n\n",
        clients.len()
    );
    page.push_str("| client | how it finds its way |\n|---|---|\n");
    for client in clients {
        page.push_str(&format!("| {} | {} |\n", client.what, client.way));
    }
    page.push_str(&format!("\n## Attempts\n\n{} of them.\n", attempts.len()));
    let mut class = None;
    for attempt in attempts {
        if class != Some(attempt.class) {
            class = Some(attempt.class);
            page.push_str(&format!(
                "\n### {}\n\n| attempt | refused by | allowed twin |\n|---|---|---|\n",
                attempt.class.title()
            ));
        }
        let by = match attempt.evidence {
            Evidence::Event(reasons) => format!("event: {}", reasons.join(", ")),
            Evidence::Error(errors) => format!("error: {}", errors.join(", ")),
            Evidence::Nothing => "nothing of it leaves".to_owned(),
            Evidence::Any(reasons, errors) => format!("event: {}; or error: {}", reasons.join(", "), errors.join(", ")),
        };
        let control = match attempt.control {
            Control::Options(_) | Control::Policy(_) => "the same, where it is allowed",
            Control::Call(_) => "the same way to what is allowed",
            Control::Both(..) => "the same victim in the way that is allowed",
            Control::Outside => "the same outside of a sandbox",
            Control::OutsideCall(_) => "the same outside, with the rights it needs",
        };
        page.push_str(&format!("| {} | {by} | {control} |\n", attempt.what.replace('|', "\\|")));
    }
    page
}
