//! The option that names the configuration of environments. Reads nothing.

use clap::Arg;

/// `--config FILE`.
pub(crate) fn config_option() -> Arg {
    Arg::new("config").long("config").value_name("FILE").help("The configuration that defines environments").long_help(
        "The configuration that defines environments. Default: $COFFERDAM_CONFIG, $NIX_SANDBOX_CONFIG, \
             ~/.config/cofferdam/config.toml, or /etc/cofferdam/config.toml",
    )
}
