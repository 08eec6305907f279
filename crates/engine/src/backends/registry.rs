//! The backends of this program, by the names that a policy calls them by. Plans and runs nothing.

use cofferdam_policy::BackendName;

use super::backend::{Backend, Capabilities};
#[cfg(feature = "containers")]
use super::containers::Containers;
use super::external::External;
use super::external::tool::Tool;
use super::jail::Jail;
use super::landlock::LandlockBackend;
use crate::failure::{FailedStep, Failure};

/// Every backend by the name that a policy calls it by. A further one is a folder beside this file and a line in this list.
static REGISTERED: &[(BackendName, &dyn Backend)] = &[
    (BackendName::Jail, &Jail),
    (BackendName::Landlock, &LandlockBackend),
    (BackendName::Bubblewrap, &External(Tool::Bubblewrap)),
    (BackendName::Nsjail, &External(Tool::Nsjail)),
    (BackendName::Seatbelt, &External(Tool::Seatbelt)),
    #[cfg(feature = "containers")]
    (BackendName::Docker, &Containers(BackendName::Docker)),
    #[cfg(feature = "containers")]
    (BackendName::Podman, &Containers(BackendName::Podman)),
    #[cfg(feature = "containers")]
    (BackendName::Oci, &Containers(BackendName::Oci)),
    #[cfg(feature = "containers")]
    (BackendName::OciCrun, &Containers(BackendName::OciCrun)),
    #[cfg(feature = "containers")]
    (BackendName::OciRunc, &Containers(BackendName::OciRunc)),
    #[cfg(feature = "containers")]
    (BackendName::OciYouki, &Containers(BackendName::OciYouki)),
    #[cfg(feature = "containers")]
    (BackendName::OciRunsc, &Containers(BackendName::OciRunsc)),
];

/// What `auto` tries, the strongest first.
const AUTOMATIC: &[BackendName] = &[BackendName::Jail, BackendName::Landlock];

/// The backends that may run a policy that names this one, the preferred one first.
pub(crate) fn candidates(name: &BackendName) -> &[BackendName] {
    if *name == BackendName::Auto { AUTOMATIC } else { std::slice::from_ref(name) }
}

/// Every backend that is a mechanism of its own: `oci` is one of the others, whichever is installed.
pub(crate) fn each() -> impl Iterator<Item = &'static dyn Backend> {
    REGISTERED.iter().filter(|(name, _)| *name != BackendName::Oci).map(|(_, backend)| *backend)
}

/// What the backend can do that a policy names; where it names none, the first that is tried.
pub fn capabilities(name: BackendName) -> Capabilities {
    let first = candidates(&name).first();
    first.and_then(|name| of(*name).ok()).map(Backend::capabilities).unwrap_or_default()
}

/// The backend of this name.
///
/// # Errors
/// None is registered.
pub(crate) fn of(name: BackendName) -> Result<&'static dyn Backend, Failure> {
    let registered = REGISTERED.iter().find(|(registered, _)| *registered == name);
    registered.map(|(_, backend)| *backend).ok_or_else(|| {
        Failure::new(FailedStep::Backend, format!("the {} backend is not built into this program", name.name()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_policy_but_auto_has_one_backend() {
        let named = BackendName::NAMES.iter().filter(|(_, name)| *name != BackendName::Auto);
        assert_eq!(named.clone().count(), REGISTERED.len());
        for (text, name) in named {
            assert_eq!(of(*name).unwrap().name(), *text);
        }
        assert!(of(BackendName::Auto).is_err());
    }

    #[test]
    fn capabilities_of_auto_are_those_of_the_first_that_is_tried() {
        assert_eq!(capabilities(BackendName::Auto), Jail.capabilities());
        assert!(!capabilities(BackendName::Landlock).hides_paths, "the host's sockets would be denied in vain");
    }
}
