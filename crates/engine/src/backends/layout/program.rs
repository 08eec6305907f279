//! Where a layout has its program: found before anything is started, so that a missing one is reported as that.

use cofferdam_policy::Policy;

use crate::backends::layout::MountLayout;
use crate::failure::{FailedStep, Failure};
use crate::plan::facts::{Facts, FileKind, ResolvedPath, resolve};
use crate::plan::mount_table::{below, join};

impl MountLayout {
    /// The program's path inside, where that can be told: `Ok(None)` when it cannot.
    ///
    /// # Errors
    /// It is nowhere on the sandbox's PATH (127), or is no program (126).
    pub fn program(&self, policy: &Policy, facts: &dyn Facts) -> Result<Option<String>, Failure> {
        let name = policy.command.argv.first().map_or("", String::as_str);
        let mut doubtful = false;
        for candidate in crate::plan::payload::candidates_of(policy) {
            if !candidate.starts_with('/') {
                return Ok(None); // relative to the working directory
            }
            match self.look(&candidate, facts) {
                Some(FileKind::File { executable: true, .. }) => return Ok(Some(candidate)),
                Some(FileKind::File { .. } | FileKind::Directory | FileKind::Special) if name.contains('/') => {
                    return Err(Failure::new(
                        FailedStep::Exec,
                        format!(
                            "{}: not executable inside the sandbox",
                            cofferdam_policy::text::escape(name.as_bytes())
                        ),
                    )
                    .code(126)
                    .hint("chmod +x it, or name its interpreter"));
                }
                Some(_) => {}
                None => doubtful = true,
            }
        }
        if doubtful {
            return Ok(None);
        }
        Err(Failure::new(
            FailedStep::Exec,
            format!("{}: not found inside the sandbox", cofferdam_policy::text::escape(name.as_bytes())),
        )
        .code(127)
        .hint("name its path, set PATH with -e PATH=..., or mount the directory that holds it with -v"))
    }

    /// What a path inside is; `None` when it cannot be told.
    fn look(&self, path: &str, facts: &dyn Facts) -> Option<FileKind> {
        let mut inside = path.to_owned();
        for _ in 0..8 {
            // Links of the sandbox's own root first, then the host's.
            if let Some((target, says)) = self.links.iter().find(|(target, _)| below(&inside, target).is_some()) {
                let rest = below(&inside, target)?.to_owned();
                let base = if says.starts_with('/') { says.clone() } else { join("/", says) };
                inside = join(&base, &rest);
                continue;
            }
            let Some(host) = self.view.host_path(&inside) else {
                let own = self.view.covering(&inside)?;
                // In a root of the sandbox's own nothing is but what was put there.
                return (own.target == "/").then_some(FileKind::Missing);
            };
            return match resolve(facts, &host).0 {
                ResolvedPath::There(canonical, kind) => {
                    // Where the host's links lead must show as well.
                    if self.view.appearances(&canonical).is_empty() { Some(FileKind::Missing) } else { Some(kind) }
                }
                ResolvedPath::Missing(..) => Some(FileKind::Missing),
                ResolvedPath::Unknown => None,
            };
        }
        None
    }
}
