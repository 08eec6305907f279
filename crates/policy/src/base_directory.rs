//! The base directories of a user, by the XDG Base Directory Specification. Pure: callers say what the variables hold.

use std::path::{Path, PathBuf};

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseDirectory {
    /// What can be made again.
    Cache,
    /// Configuration.
    Config,
    /// What is to be kept.
    Data,
    /// What is to be kept between runs, and is no data.
    State,
}

impl BaseDirectory {
    /// All of them.
    pub const ALL: [BaseDirectory; 4] =
        [BaseDirectory::Cache, BaseDirectory::Config, BaseDirectory::Data, BaseDirectory::State];

    /// The variable that moves it.
    pub const fn variable(self) -> &'static str {
        match self {
            BaseDirectory::Cache => "XDG_CACHE_HOME",
            BaseDirectory::Config => "XDG_CONFIG_HOME",
            BaseDirectory::Data => "XDG_DATA_HOME",
            BaseDirectory::State => "XDG_STATE_HOME",
        }
    }

    /// Where it is below a home unless the variable moves it.
    pub const fn usual(self) -> &'static str {
        match self {
            BaseDirectory::Cache => ".cache",
            BaseDirectory::Config => ".config",
            BaseDirectory::Data => ".local/share",
            BaseDirectory::State => ".local/state",
        }
    }

    /// Where it is, by the value of its variable and the home. A path that is not absolute counts as none, as the specification
    /// says of the variables.
    pub fn of(self, variable: Option<impl AsRef<Path>>, home: Option<impl AsRef<Path>>) -> Option<PathBuf> {
        let absolute = |path: &Path| path.is_absolute().then(|| path.to_owned());
        let moved = variable.and_then(|path| absolute(path.as_ref()));
        moved.or_else(|| Some(absolute(home?.as_ref())?.join(self.usual())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_moves_one_where_its_path_is_absolute() {
        let of = |variable: Option<&str>, home: Option<&str>| BaseDirectory::State.of(variable, home);
        assert_eq!(of(Some("/x"), Some("/home/u")), Some("/x".into()));
        for none in [None, Some(""), Some("relative")] {
            assert_eq!(of(none, Some("/home/u")), Some("/home/u/.local/state".into()));
            assert_eq!(of(none, None), None);
            assert_eq!(of(none, Some("")), None);
        }
    }
}
