//! A guest whose first process is this machine's own systemd, with a user manager and a session bus: the host on
//! which an unprivileged user gets a delegated scope. What runs in it stands in `tests/guest/systemd/`.

use std::path::Path;
use std::time::Duration;

use super::GuestSpec;
use crate::Result;

const SYSTEMD: &str = "/lib/systemd/systemd";
const BUS: &str = "/usr/bin/dbus-daemon";

/// The run in which `check` (the example `cgroup_guest_test`) goes through its checks in scopes, through the session bus
/// and through the manager's own socket. `Err` says what this machine lacks for it; `root` is the checkout.
pub(crate) fn scopes(kernel: &Path, root: &Path, check: &Path) -> Result<GuestSpec> {
    for (file, package) in
        [(SYSTEMD, "systemd"), (BUS, "dbus-daemon"), ("/usr/lib/systemd/user/dbus.socket", "dbus-user-session")]
    {
        if !Path::new(file).exists() {
            return Err(format!("the systemd guest needs {file}\nhint: apt-get install {package}"));
        }
    }
    let units = root.join("tests/guest/systemd");
    let quiet = ["--log-target=console", "--log-level=warning", "--show-status=0"];
    let mut spec = GuestSpec::new(kernel, &[&[SYSTEMD], &quiet[..]].concat())
        .program(Path::new(SYSTEMD), SYSTEMD)?
        .program(Path::new(BUS), BUS)?
        .program(check, "/cgroup_guest_test")?
        .file(units.join("default.target"), "/etc/systemd/system/default.target")
        .file(units.join("manager.service"), "/etc/systemd/system/manager.service")
        .file(units.join("check.service"), "/etc/systemd/user/check.service")
        .file(units.join("systemd.sh"), "/systemd.sh")
        .file("/usr/share/dbus-1/session.conf", "/usr/share/dbus-1/session.conf")
        .file("/usr/lib/systemd/user/dbus.socket", "/etc/systemd/user/dbus.socket")
        .file("/usr/lib/systemd/user/dbus.service", "/etc/systemd/user/dbus.service");
    spec.as_init = true;
    spec.timeout = Duration::from_secs(240);
    Ok(spec)
}
