//! The candidates of the cold measurement: this project's command and its peers, each found on this machine or named as
//! missing. Each is asked for the same: run the static no-op with everything that the peer can unshare.

use std::process::Command;

use super::worker::Programs;
use crate::Result;
use crate::shell::{run, succeeds, which};

/// One way to run the no-op.
pub(super) struct Candidate {
    /// As the table calls it.
    pub name: &'static str,
    /// The whole command, or why there is none.
    pub command: std::result::Result<Vec<String>, String>,
    /// Measured in one of so many rounds: slow peers take fewer turns.
    pub every: usize,
}

/// bubblewrap with everything unshared, as its own documentation puts a sandbox together.
pub(super) fn bubblewrap(programs: &Programs) -> Candidate {
    let mut words = strings(&["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/"]);
    words.extend(strings(&["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]));
    if hidden(programs) {
        let directory = programs.directory.display().to_string();
        words.extend(["--ro-bind".to_owned(), directory.clone(), directory]);
    }
    words.extend(["--".to_owned(), programs.c("noop")]);
    Candidate { name: "bubblewrap, everything unshared", command: found("bwrap", words), every: 1 }
}

/// The command, with no option but the program.
pub(super) fn cofferdam(programs: &Programs) -> Candidate {
    let mut words = vec![programs.cofferdam.display().to_string(), "run".to_owned()];
    words.extend(exposed(programs));
    words.extend(["--".to_owned(), programs.c("noop")]);
    Candidate { name: "cofferdam run", command: Ok(words), every: 1 }
}

/// The program itself, without any wall.
pub(super) fn bare(programs: &Programs) -> Candidate {
    Candidate { name: "bare", command: Ok(vec![programs.c("noop")]), every: 1 }
}

/// All candidates.
pub(super) fn all(programs: &Programs) -> Vec<Candidate> {
    let noop = programs.c("noop");
    let mut nsjail = strings(&["nsjail", "-Mo", "-Q", "--chroot", "/", "--user", "65534", "--group", "65534", "--"]);
    nsjail.push(noop.clone());
    let mut firejail =
        strings(&["firejail", "--quiet", "--noprofile", "--net=none", "--private-dev", "--ipc-namespace"]);
    firejail.extend(strings(&["--caps.drop=all", "--seccomp", "--nonewprivs", "--"]));
    firejail.push(noop);
    vec![
        bare(programs),
        cofferdam(programs),
        bubblewrap(programs),
        Candidate { name: "nsjail, chroot /", command: found("nsjail", nsjail), every: 1 },
        Candidate { name: "firejail, no profile", command: found("firejail", firejail), every: 4 },
        Candidate { name: "docker run, hardened", command: docker(programs), every: 20 },
    ]
}

/// Options that show the measured programs to `cofferdam run` where the host view would hide them.
pub(super) fn exposed(programs: &Programs) -> Vec<String> {
    let directory = programs.directory.display();
    if hidden(programs) { vec!["-v".to_owned(), format!("{directory}:{directory}:ro")] } else { Vec::new() }
}

fn hidden(programs: &Programs) -> bool {
    ["/tmp", "/var/tmp", "/run", "/dev/shm"].iter().any(|place| programs.directory.starts_with(place))
}

fn found(program: &str, words: Vec<String>) -> std::result::Result<Vec<String>, String> {
    if which(program).is_some() { Ok(words) } else { Err(format!("{program} is not on this machine")) }
}

/// An image of nothing but the no-op, where an engine answers.
fn docker(programs: &Programs) -> std::result::Result<Vec<String>, String> {
    const IMAGE: &str = "cofferdam-bench:noop";
    if !succeeds(Command::new("docker").arg("info")) {
        return Err("no docker engine answers".to_owned());
    }
    let archive = programs.directory.join("noop.tar");
    import(programs, &archive, IMAGE)?;
    let mut words = strings(&["docker", "run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL"]);
    words.extend(strings(&["--security-opt", "no-new-privileges", "--pids-limit", "64", "--memory", "256m"]));
    words.extend(strings(&[IMAGE, "/noop"]));
    Ok(words)
}

fn import(programs: &Programs, archive: &std::path::Path, image: &str) -> Result {
    run(Command::new("tar").arg("-C").arg(&programs.directory).arg("-cf").arg(archive).arg("noop"))?;
    run(Command::new("docker").arg("import").arg(archive).arg(image))
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
