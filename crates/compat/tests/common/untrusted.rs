//! What must hold of any bytes that come as a configuration. Shared by the properties of this crate and the fuzz
//! targets; panics where something does not hold.

use std::path::Path;

use cofferdam_compat::Form;
use cofferdam_compat::config::decode;
use cofferdam_policy::{NetworkMode, Root};

/// A name beside which no policy lies.
const NAME: &str = "/nowhere/nsjail.json";

/// Configurations of any form: a refusal that names the file, or a policy that is one. An older one never gets more than
/// its writers can have meant.
pub(crate) fn configuration(bytes: &[u8]) {
    match decode(bytes, Path::new(NAME)) {
        Err(error) => assert!(error.starts_with(NAME), "{error}"),
        Ok(loaded) => {
            let mut complete = loaded.policy.clone();
            if complete.command.argv.is_empty() {
                complete.command.argv.push("true".into());
            }
            assert_eq!(complete.validate(), Ok(()));
            if loaded.form == Form::Legacy {
                assert_ne!(loaded.policy.network.mode, NetworkMode::Host, "the network is private");
                assert_ne!(loaded.policy.filesystem.root, Root::Host, "the root is at least minimal");
            }
        }
    }
}
