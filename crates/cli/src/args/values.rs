//! The syntax of option values: sizes, times, mounts, variables, hosts and system call rules.
//!
//! Parses text into data and never looks at the host. Each error names the value and what would be accepted.

use cofferdam_engine::network_address::{is_this_machine, not_offered};
use cofferdam_policy::bundles::{self, AllowFault};
use cofferdam_policy::network_limits::NETWORK_LIMITS;
pub use cofferdam_policy::sizes::bytes;
use cofferdam_policy::{
    API_VARIABLE_DEFAULT, Access, AllowEntry, AllowRule, ArgCondition, ArgOp, BackendName, DenyEntry, HttpUrl,
    NetworkApi, SyscallAction, SyscallRule, To, sizes,
};

/// The syntax of `--allow` and `--deny-host`, for errors.
const NETWORK_ENTRY: &str = "write it like api.example.org, api.example.org:443, *.example.org:8000-8010, 192.0.2.0/24 or \
                             [2001:db8::1]:443";

/// The values of `--audit`.
pub(crate) const AUDIT_LEVELS: &[&str] = &["off", "error", "warning", "info", "debug"];

/// The names of the backends.
pub(crate) const BACKENDS: &[&str] = &{
    let mut names = [""; BackendName::NAMES.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = BackendName::NAMES[i].0;
        i += 1;
    }
    names
};

/// The error for `-e NAME` where the caller has no such variable. `-e` is an option for code in some interpreters, so NAME
/// may be code.
pub(crate) fn no_variable(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.chars().all(plain) {
        return format!("the caller has no variable `{name}`; write --env {name}=VALUE");
    }
    format!(
        "`{}` is no name of a variable\nhint: --env NAME=VALUE; code is no option: cofferdam eval ENVIRONMENT CODE",
        cofferdam_policy::text::one_line(name)
    )
}

/// Stands for the option in the hint of a value.
pub(crate) const OPTION: &str = "{option}";

/// A size in MiB. A number without a unit, which was meant as MiB, gets a hint.
pub(crate) fn mebibytes(text: &str) -> Result<u64, String> {
    let unit_missing = text.bytes().all(|byte| byte.is_ascii_digit());
    let hint = if unit_missing { format!("\nhint: {OPTION} {text}m") } else { String::new() };
    sizes::mebibytes(text).map_err(|why| format!("{why}{hint}"))
}

/// A time in milliseconds: numbers with at most three decimals, each with a unit, as in `1.5s` or `1m30s`. One number without a
/// unit is in seconds.
pub fn milliseconds(text: &str) -> Result<u64, String> {
    let no_time = || format!("`{text}` is not a time; write it like 30s, 1.5s, 500ms, 10m, 1m30s, 2h or 1d");
    let too_long = || format!("`{text}` is too long a time");
    let (mut rest, mut total) = (text, 0_u64);
    while !rest.is_empty() || text.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        let end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(end);
        let unit = match unit {
            "ms" => 1,
            "s" | "sec" | "secs" | "second" | "seconds" => 1_000,
            "" if number.len() == text.len() => 1_000,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000,
            "d" | "day" | "days" => 86_400_000,
            _ => return Err(no_time()),
        };
        let part = thousandths(number).ok_or_else(no_time)?.checked_mul(unit).ok_or_else(too_long)?;
        total = total.checked_add(part).ok_or_else(too_long)?;
        rest = next;
    }
    if total % 1_000 != 0 {
        return Err(format!("`{text}` is not a whole number of milliseconds"));
    }
    Ok(total / 1_000)
}

/// A time in whole seconds.
pub fn seconds(text: &str) -> Result<u64, String> {
    let ms = milliseconds(text)?;
    if ms % 1_000 != 0 {
        return Err(format!("`{text}` is not a whole number of seconds; write it like 10s or 2m"));
    }
    Ok(ms / 1_000)
}

/// CPUs in thousandths: `1.5` is 1500.
pub fn cpu_millis(text: &str) -> Result<u64, String> {
    thousandths(text).ok_or_else(|| format!("`{text}` is not a number of CPUs; write it like 2, 1.5 or 0.25"))
}

/// A plain whole number.
pub fn count(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number; write it like 64"))
}

fn thousandths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(fraction)
}

/// The value of `--volume`, `SRC:DST[:OPTION[,OPTION…]]`, with paths as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeArgument {
    /// Path on the host.
    pub source: String,
    /// Path inside.
    pub target: String,
    /// Read-only by default.
    pub access: Access,
    /// Whether programs may be executed, where the value says so.
    pub exec: Option<bool>,
    /// Whether the mount is left out where the source does not exist.
    pub optional: bool,
}

/// What stands behind the second colon of a volume.
const VOLUME_OPTIONS: [&str; 6] = ["ro", "rw", "cow", "exec", "noexec", "optional"];

/// Parses the value of `--volume`.
pub fn volume(text: &str) -> Result<VolumeArgument, String> {
    let accepted = "write it like ./src:/src, ./src:/src:rw or ./src:/src:cow,exec";
    let mut parts = text.split(':');
    let (source, target, options) = (parts.next(), parts.next(), parts.next());
    // A path in the place of the mode: one of the colons was meant as part of a file name.
    if parts.next().is_some() || options.is_some_and(|options| options.contains('/')) {
        return Err(format!(
            "`{text}` has too many colons: they separate SRC, DST and MODE, and no path can have one\n\
             hint: name the path through a symbolic link without a colon, or write it into a policy: --policy FILE"
        ));
    }
    let (Some(source), Some(target)) = (source, target) else {
        return Err(format!("`{text}` is not SRC:DST[:ro|rw|cow[,exec]]; {accepted}\nhint: -v {text}:{text}"));
    };
    if source.is_empty() || target.is_empty() {
        return Err(format!("`{text}` has an empty path; {accepted}"));
    }
    if options.is_none() && target.split(',').all(|word| VOLUME_OPTIONS.contains(&word)) {
        return Err(format!(
            "`{text}` names no path inside: `{target}` is a mode\n\
             hint: -v {source}:{source}:{target}, or a directory inside of that name: -v {source}:./{target}"
        ));
    }
    let (mut access, mut exec, mut optional) = (None, None, false);
    for option in options.into_iter().flat_map(|o| o.split(',')) {
        match option {
            "ro" => once(&mut access, Access::ReadOnly, text, "ro, rw and cow")?,
            "rw" => once(&mut access, Access::ReadWrite, text, "ro, rw and cow")?,
            "cow" => once(&mut access, Access::CopyOnWrite, text, "ro, rw and cow")?,
            "exec" => once(&mut exec, true, text, "exec and noexec")?,
            "noexec" => once(&mut exec, false, text, "exec and noexec")?,
            "optional" => optional = true,
            _ => {
                return Err(format!(
                    "`{option}` in `{text}` is none of ro, rw, cow, exec, noexec, optional; {accepted}"
                ));
            }
        }
    }
    let access = access.unwrap_or(Access::ReadOnly);
    Ok(VolumeArgument { source: source.into(), target: target.into(), access, exec, optional })
}

/// Sets a value that may not be set twice to different values. `of` names the alternatives.
fn once<T: PartialEq>(slot: &mut Option<T>, value: T, text: &str, of: &str) -> Result<(), String> {
    if slot.as_ref().is_some_and(|before| *before != value) {
        return Err(format!("`{text}` contradicts itself; write one of {of}"));
    }
    *slot = Some(value);
    Ok(())
}

/// Refuses a value of `--deny` or `--protect` that is not a literal path: an empty one, `~`, or a pattern that the shell did
/// not expand. `option` is the option's name, for the hints.
pub(crate) fn literal_path(option: &str, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err(format!("an empty path; write it like --{option} ./secrets"));
    }
    if let Some(rest) = text.strip_prefix('~') {
        return Err(format!(
            "`{text}` begins with `~`, which the shell did not replace: it does not behind `=` or in quotes\n\
             hint: --{option} \"$HOME{}\"",
            if rest.starts_with('/') { rest } else { "/…" }
        ));
    }
    if text.contains(['*', '?']) {
        let directory = text.rsplit_once('/').map(|(directory, _)| directory);
        let whole = match directory.filter(|d| !d.is_empty() && !d.contains(['*', '?'])) {
            Some(directory) => format!("the directory: --{option} {directory}"),
            None => "the directory they are in".to_owned(),
        };
        return Err(format!(
            "`{text}` has a `*` or `?`, and names are taken as they are, so it would match nothing\n\
             hint: name {whole}; or each path with an option of its own"
        ));
    }
    Ok(())
}

/// The value of `--tmpfs`, `DST[:OPTION[,OPTION…]]`, with the path as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tmpfs {
    /// Path inside.
    pub target: String,
    /// Size, MiB.
    pub size_mb: u64,
    /// Whether programs on it may be executed.
    pub exec: bool,
}

/// Default size of a `--tmpfs`, MiB.
pub(crate) const TMPFS_DEFAULT_MB: u64 = 64;

/// Parses the value of `--tmpfs`.
pub fn tmpfs(text: &str) -> Result<Tmpfs, String> {
    let accepted = "write it like /work or /work:size=64m,exec";
    let (target, options) = text.split_once(':').map_or((text, None), |(t, o)| (t, Some(o)));
    if target.is_empty() {
        return Err(format!("`{text}` has an empty path; {accepted}"));
    }
    let mut mount = Tmpfs { target: target.into(), size_mb: TMPFS_DEFAULT_MB, exec: false };
    for option in options.into_iter().flat_map(|o| o.split([',', ':'])) {
        match option.split_once('=') {
            Some(("size", size)) => mount.size_mb = mebibytes(size)?,
            None if option == "exec" => mount.exec = true,
            None if option == "noexec" => mount.exec = false,
            _ => return Err(format!("`{option}` in `{text}` is none of size=SIZE, exec, noexec; {accepted}")),
        }
    }
    Ok(mount)
}

/// `NAME=VALUE`, or `NAME` for the caller's own value.
pub fn variable(text: &str) -> Result<(&str, Option<&str>), String> {
    match text.split_once('=') {
        Some(("", _)) | None if text.is_empty() || text.starts_with('=') => {
            Err(format!("`{text}` has no variable name; write it like NAME=VALUE"))
        }
        Some((name, value)) => Ok((name, Some(value))),
        None => Ok((text, None)),
    }
}

/// `CALL[,CALL…]:ACTION[:CONDITION[,CONDITION…]]`: the action is `kill` or an errno name, a condition is
/// `N OP VALUE` or `N&MASK OP VALUE` without spaces, N being the argument's number from 0.
pub(crate) fn syscall_rule(text: &str) -> Result<SyscallRule, String> {
    let accepted = "write it like ptrace:kill, socket:EPERM:0==16 or mmap,mprotect:EACCES:2&4!=0";
    let mut parts = text.split(':');
    let (Some(calls), Some(action), when, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(format!("`{text}` is not CALLS:ACTION[:CONDITIONS]; {accepted}"));
    };
    let action = match action {
        "kill" => SyscallAction::Kill,
        name if name.len() > 1 && name.starts_with('E') => SyscallAction::Errno(name.into()),
        _ => return Err(format!("`{action}` is neither `kill` nor an errno name such as EPERM; {accepted}")),
    };
    let when = when.into_iter().flat_map(|w| w.split(','));
    Ok(SyscallRule {
        syscalls: calls.split(',').map(String::from).collect(),
        action,
        when: when
            .map(|c| condition(c).ok_or_else(|| format!("`{c}` is not a condition; {accepted}")))
            .collect::<Result<_, _>>()?,
    })
}

fn condition(text: &str) -> Option<ArgCondition> {
    const OPS: [(&str, ArgOp); 6] = [
        ("==", ArgOp::Eq),
        ("!=", ArgOp::Ne),
        ("<=", ArgOp::Le),
        (">=", ArgOp::Ge),
        ("<", ArgOp::Lt),
        (">", ArgOp::Gt),
    ];
    let (left, op, value) = OPS.iter().find_map(|(sign, op)| text.split_once(sign).map(|(l, v)| (l, *op, v)))?;
    let (index, mask) = match left.split_once('&') {
        Some((index, mask)) => (index, number(mask)?),
        None => (left, u64::MAX),
    };
    Some(ArgCondition { index: index.parse().ok()?, mask, op, value: number(value)? })
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The entries of a comma list, in which the ports of an entry may be a comma list as well. A part that is only ports belongs
/// to the entry before it, because no host has such a name.
pub(crate) fn network_list(text: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for part in text.split(',') {
        let only_ports = part == "*" || (!part.is_empty() && part.bytes().all(|b| b.is_ascii_digit() || b == b'-'));
        match entries.last_mut() {
            Some(entry) if only_ports => {
                entry.push(',');
                entry.push_str(part);
            }
            _ => entries.push(part.to_owned()),
        }
    }
    entries
}

/// The rules of `network.allow` that an entry or a bundle of hosts stands for. `option` makes the hint out of what was meant.
pub(crate) fn allow_rules(text: &str, option: impl Fn(&str) -> String) -> Result<Vec<AllowRule>, String> {
    bundles::allow_rules(text).map_err(|fault| match (fault, fault.meant()) {
        (_, Some(meant)) => format!("`{text}`: {fault}; did you mean `{meant}`?\nhint: {}", option(&meant)),
        (AllowFault::Bundle(_), None) => {
            format!("`{text}`: {fault}\nhint: {}, one of {}", option("@NAME"), bundles::bundle_names())
        }
        (AllowFault::Entry(why), None) => format!("`{text}`: {why}; {NETWORK_ENTRY}"),
    })
}

/// The rule of `--allow-private`: a name that may lead to private addresses, or such an address itself.
pub(crate) fn private_rule(text: &str) -> Result<AllowRule, String> {
    // Refused below as well, with a hint that is of less use.
    let host = text.split(':').next().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    let own = |host: &str| {
        let port = text.rsplit_once(':').map(|(_, port)| port).filter(|port| port.parse::<u16>().is_ok());
        format!(
            "`{text}`: {host} is this machine, whose own services no name leads to\nhint: --api http://127.0.0.1:{}, for a \
             server on this machine's loopback",
            port.unwrap_or("PORT")
        )
    };
    if is_this_machine(&host) {
        return Err(own(&host));
    }
    let entry: AllowEntry =
        text.parse().map_err(|why| format!("`{text}`: {why}; write it like db.example.org:5432"))?;
    let rule = AllowRule { private: true, ..AllowRule::from(entry) };
    let To::Net { address, prefix } = rule.entry.to else {
        return match rule.private_fault() {
            Some((problem, accepted)) => Err(format!("`{text}`: {problem}; {accepted}")),
            None => Ok(rule),
        };
    };
    if address.is_loopback() || address.is_unspecified() {
        return Err(own(&address.to_string()));
    }
    if prefix != if address.is_ipv4() { 32 } else { 128 } {
        return Err(format!("`{text}`: a net is no name\nhint: --allow {text}"));
    }
    match not_offered(address) {
        Some(why) => Err(format!("`{text}`: {why}")),
        None => Ok(rule.entry.into()),
    }
}

/// An entry of `network.deny`.
pub(crate) fn deny_entry(text: &str) -> Result<DenyEntry, String> {
    text.parse().map_err(|why| format!("`{text}`: {why}; {NETWORK_ENTRY}"))
}

/// The error for a value of `option` that is not one entry: where it is a comma list of valid entries, the hint repeats the
/// option for each.
pub(crate) fn not_one_entry(option: &str, text: &str, why: String) -> String {
    if option == "allow" && text == "*" {
        return format!("{why}\nhint: --network host");
    }
    let entries = network_list(text);
    if entries.len() < 2 || entries.iter().any(|entry| bundles::allow_rules(entry).is_err()) {
        return why;
    }
    let each: Vec<String> = entries.iter().map(|entry| format!("--{option} {entry}")).collect();
    // A hint of the entry's own is about something else.
    let why = why.split("\nhint:").next().unwrap_or_default();
    format!("{why}\nhint: {}", each.join(" "))
}

/// The value of `--api`, `[VARIABLE=]URL`.
pub fn api(text: &str) -> Result<NetworkApi, String> {
    let (variable, url) = match text.split_once('=') {
        // A URL may contain `=` too, but not before its first colon.
        Some((variable, url)) if !variable.contains(':') => (variable, url),
        _ => (API_VARIABLE_DEFAULT, text),
    };
    let url: HttpUrl =
        url.parse().map_err(|why| format!("{why}; write it like ISCL_API_URL=http://127.0.0.1:8000/v1"))?;
    Ok(NetworkApi { url, variable: variable.to_owned() })
}

/// The URL of a proxy. Errors do not show it, because it may contain a password.
pub fn proxy(text: &str) -> Result<HttpUrl, String> {
    text.parse().map_err(|why| format!("{why}; write it like http://proxy.example.org:3128"))
}

/// The value of `--network-limit`, `NAME=NUMBER`. The validation of the policy checks the range.
pub(crate) fn network_limit(text: &str) -> Result<(&'static str, u64), String> {
    let names = || NETWORK_LIMITS.iter().map(|limit| limit.key).collect::<Vec<_>>().join(", ");
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("`{text}` is not NAME=NUMBER; names are {}", names()))?;
    let limit = NETWORK_LIMITS.iter().find(|limit| limit.key == name);
    let limit = limit.ok_or_else(|| format!("`{name}` is no limit of the network: {}", names()))?;
    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    let value = digits.then(|| value.parse().ok()).flatten();
    Ok((limit.key, value.ok_or_else(|| format!("`{text}`: write {}", limit.accepted()))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_units_are_powers_of_1024_and_mib_are_whole() {
        assert_eq!(bytes("65536"), Ok(65536));
        assert_eq!(bytes("1K"), Ok(1024));
        assert_eq!(mebibytes("512m"), Ok(512));
        assert_eq!(mebibytes("2GiB"), Ok(2048));
        assert_eq!(mebibytes("0"), Ok(0));
        for bad in ["", "m", "-1m", "1.5g", "12x", "99999999999t", "512"] {
            assert!(mebibytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn time_takes_units_and_decimals() {
        assert_eq!(milliseconds("30"), Ok(30_000));
        assert_eq!(milliseconds("1.5s"), Ok(1_500));
        assert_eq!(milliseconds("500ms"), Ok(500));
        assert_eq!(milliseconds("0.25m"), Ok(15_000));
        assert_eq!(milliseconds("10sec"), Ok(10_000));
        assert_eq!(milliseconds("2hours"), Ok(7_200_000));
        assert_eq!(milliseconds("1m30s"), Ok(90_000));
        assert_eq!(seconds("2h"), Ok(7_200));
        assert_eq!(cpu_millis("0.25"), Ok(250));
        assert_eq!(cpu_millis("2"), Ok(2_000));
        assert_eq!(seconds("1d"), Ok(86_400));
        for bad in ["", "s", "-1", "1w", "1m30", "s5", "5s1x", "1.", ".5", "1.5.1", "0.0005s", "99999999999999999h"] {
            assert!(milliseconds(bad).is_err(), "{bad}");
        }
        assert!(seconds("1.5s").is_err());
    }

    #[test]
    fn volumes_default_to_ro_and_say_whether_programs_may_be_executed() {
        let read = |t| volume(t).map(|v| (v.access, v.exec));
        assert_eq!(read("a:/b"), Ok((Access::ReadOnly, None)));
        assert_eq!(read("a:/b:ro,noexec"), Ok((Access::ReadOnly, Some(false))));
        assert_eq!(read("a:/b:rw"), Ok((Access::ReadWrite, None)));
        assert_eq!(read("a:/b:cow,exec"), Ok((Access::CopyOnWrite, Some(true))));
        for bad in ["", "a", ":/b", "a:", "a:/b:rx", "a:/b:rw:exec", "a:/b:"] {
            assert!(volume(bad).is_err(), "{bad}");
        }
        for bad in ["a:/b:ro,rw", "a:/b:rw,cow", "a:/b:cow,ro", "a:/b:exec,rw,noexec"] {
            assert!(volume(bad).unwrap_err().contains("contradicts"), "{bad}");
        }
        assert_eq!(read("a:/b:rw,rw"), Ok((Access::ReadWrite, None)));
        for (mistyped, hint) in [(".:rw", "hint: -v .:.:rw,"), ("src:cow,exec", "hint: -v src:src:cow,exec,")] {
            assert!(volume(mistyped).unwrap_err().contains(hint), "{mistyped}");
        }
        assert_eq!(volume("a:./rw").map(|volume| volume.target), Ok("./rw".into()));
        assert_eq!(volume("~x:/y").map(|volume| volume.source), Ok("~x".into()));
        assert!(volume("a:/b:rw,optional").unwrap().optional && !volume("a:/b:rw").unwrap().optional);
        for bad in ["a:b:/c", "a:b:/c:rw", "/x:y/z:/c"] {
            let error = volume(bad).unwrap_err();
            assert!(error.contains("too many colons") && error.contains("symbolic link"), "{bad}: {error}");
        }
    }

    #[test]
    fn denied_path_must_be_literal() {
        for good in ["a", "./a", "/a b", ".git/hooks", "a~", "a[1]", "a,b"] {
            assert_eq!(literal_path("deny", good), Ok(()), "{good}");
        }
        for (bad, part) in [
            ("", "empty"),
            ("~/.x", "hint: --deny \"$HOME/.x\""),
            ("~", "$HOME"),
            ("~you/x", "begins with `~`"),
            ("/a/*.key", "--deny /a"),
            ("*.key", "the directory they are in"),
            ("/a/?/b", "as they are"),
        ] {
            assert!(literal_path("deny", bad).unwrap_err().contains(part), "{bad}");
        }
    }

    #[test]
    fn tmpfs_takes_size_and_exec() {
        assert_eq!(tmpfs("/w"), Ok(Tmpfs { target: "/w".into(), size_mb: 64, exec: false }));
        assert_eq!(tmpfs("/w:size=1g,exec"), Ok(Tmpfs { target: "/w".into(), size_mb: 1024, exec: true }));
        for bad in ["", ":exec", "/w:size=x", "/w:mode=7", "/w:"] {
            assert!(tmpfs(bad).is_err(), "{bad}");
        }
    }

    fn allow(text: &str) -> Result<Vec<AllowRule>, String> {
        allow_rules(text, |meant| format!("--allow {meant}"))
    }

    #[test]
    fn bundle_stands_for_its_hosts_and_a_misspelt_one_is_corrected() {
        let hosts = allow("@crates").unwrap();
        let hosts: Vec<String> = hosts.iter().map(|rule| rule.entry.to_string()).collect();
        assert_eq!(hosts, ["index.crates.io:443", "static.crates.io:443"]);
        assert!(allow("@pipy").unwrap_err().ends_with("did you mean `@pypi`?\nhint: --allow @pypi"));
        let unknown = allow("@nowhere").unwrap_err();
        assert!(unknown.contains("\nhint: --allow @NAME, one of @pypi, @npm"), "{unknown}");
        assert!(deny_entry("@pypi").unwrap_err().contains("bundle"));
    }

    #[test]
    fn private_rule_is_one_name_and_never_this_machine() {
        let rule = private_rule("db.example.org:5432").unwrap();
        assert!(rule.private && rule.entry.to_string() == "db.example.org:5432");
        let address = private_rule("10.1.2.3").unwrap();
        assert!(!address.private && address.entry.to_string() == "10.1.2.3");
        for (text, part) in [
            ("localhost", "\nhint: --api http://127.0.0.1:PORT,"),
            ("LOCALHOST.:8080", "\nhint: --api http://127.0.0.1:8080,"),
            ("a.localhost", "--api"),
            ("127.0.0.1:8080", "\nhint: --api http://127.0.0.1:8080,"),
            ("::1", "--api"),
            ("0.0.0.0", "--api"),
            ("host.docker.internal", "--api"),
            ("169.254.169.254", "metadata service"),
            ("[fd00:ec2::254]:80", "metadata service"),
            ("168.63.129.16", "metadata service"),
            ("metadata.google.internal", "metadata service"),
            ("Metadata", "metadata service"),
            ("169.254.1.2", "link-local"),
            ("224.0.0.1", "multicast"),
            ("10.0.0.0/8", "\nhint: --allow 10.0.0.0/8"),
            ("*.example.org", "one name"),
            ("@pypi", "bundle"),
            ("http://a.example", "a URL"),
        ] {
            let error = private_rule(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn hint_for_a_comma_list_of_hosts_repeats_the_option() {
        let error = |text: &str| not_one_entry("allow", text, allow(text).unwrap_err());
        assert!(error("a.example,b.example").ends_with("\nhint: --allow a.example --allow b.example"));
        assert!(error("a.example:80,443,b.example").ends_with("\nhint: --allow a.example:80,443 --allow b.example"));
        let bundles = not_one_entry("allow", "@pypi,b.example", allow("@pypi,b.example").unwrap_err());
        assert!(bundles.ends_with("\nhint: --allow @pypi --allow b.example"), "{bundles}");
        for one in ["a.example:", "a.example,", "a.example,b..example"] {
            assert!(!error(one).contains("hint"), "{one}: {}", error(one));
        }
    }

    #[test]
    fn variable_requires_a_name() {
        assert_eq!(variable("A=b=c"), Ok(("A", Some("b=c"))));
        assert_eq!(variable("A="), Ok(("A", Some(""))));
        assert_eq!(variable("A"), Ok(("A", None)));
        assert!(variable("").is_err());
        assert!(variable("=x").is_err());
    }

    #[test]
    fn syscall_rule_has_calls_action_and_conditions() {
        let rule = syscall_rule("mmap,mprotect:EACCES:2&0x4!=0,0>=10").unwrap();
        assert_eq!(rule.syscalls, ["mmap", "mprotect"]);
        assert_eq!(rule.action, SyscallAction::Errno("EACCES".into()));
        assert_eq!(rule.when[0], ArgCondition { index: 2, mask: 4, op: ArgOp::Ne, value: 0 });
        assert_eq!(rule.when[1], ArgCondition { index: 0, mask: u64::MAX, op: ArgOp::Ge, value: 10 });
        assert_eq!(syscall_rule("ptrace:kill").unwrap().action, SyscallAction::Kill);
        for bad in ["", "ptrace", "ptrace:allow", "ptrace:kill:0", "ptrace:kill:x==1", "a:kill:0==1:b"] {
            assert!(syscall_rule(bad).is_err(), "{bad}");
        }
    }
}
