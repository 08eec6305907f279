//! The words of every kind of mistake: what a person reads, pinned.

use cofferdam_policy::*;

/// The errors of a text, one per line, against the expected ones.
#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    let errors = Policy::from_json(text.as_bytes()).expect_err("must be refused").to_string();
    assert_eq!(errors.lines().collect::<Vec<_>>(), expected);
}

/// The members of a policy that has a program and these groups besides.
fn with(groups: &str) -> String {
    format!(r#"{{"version":1,"command":{{"argv":["true"]}},{groups}}}"#)
}

#[track_caller]
fn accepted(text: &str) -> Policy {
    Policy::from_json(text.as_bytes()).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn invalid_json_is_one_error_with_its_position() {
    refused(
        "{\"version\": 1,\n \"id\" 5}",
        &[r#"$ = " \"id\" 5": not readable as JSON at 2:7: expected `:`; accepted: one JSON object, UTF-8"#],
    );
    let errors = Policy::from_json(b"{\"id\": \"\xff\"}").unwrap_err();
    assert_eq!(errors.to_string(), "$: not UTF-8: byte 0xff at offset 8; accepted: one JSON object, UTF-8");
    assert_eq!(
        PolicyErrors::too_large(100_000_000).to_string(),
        "$: the policy has 100000000 bytes; accepted: at most 16777216 bytes",
    );
    refused("[]", &["$ = []: not an object; accepted: a policy: an object"]);
}

#[test]
fn mistakes_of_form_and_of_rule_come_all_at_once() {
    let text = r#"{
        "version": 2,
        "comand": {},
        "command": {"argv": ["sh", 5], "cwd": "work", "env": {}, "cwd": "/"},
        "filesystem": {"root": "hots", "deny": ["/a/../b"], "mounts": [{"type": "bind", "source": "/x"}]},
        "network": {"mode": "none", "allow": ["x.org"]},
        "limits": {"memory": 512, "cpu_seconds": "60s", "wall_ms": 0, "open_files": 1.5, "processes": -1},
        "enforcement": {"best_effort": ["limits.memory", "network.mode", "network.mode"]}
    }"#;
    refused(
        text,
        &[
            r#"$.command.cwd = "/": the same key stands there before; accepted: each key once"#,
            "$.comand = {}: a policy has no such key; did you mean `command`?",
            "$.limits.memory = 512: limits has no such key; did you mean `memory_mb`?",
            "$.command.env = {}: a command has no such key; did you mean `variables`?",
            "$.command.argv[1] = 5: not a text; accepted: a text in quotes",
            r#"$.filesystem.root = "hots": not a root view; accepted: "host", "minimal", "interpreter", {"directory": "/…"} or {"image": "…"}"#,
            "$.filesystem.mounts[0].target: missing; accepted: a bind mount: `target` cannot be left out",
            r#"$.limits.cpu_seconds = "60s": a text, not a number; accepted: a whole number of seconds of CPU time, without quotes, unit or fraction"#,
            "$.limits.open_files = 1.5: not written as a whole number; accepted: a whole number of open files, without quotes, unit or fraction",
            "$.limits.processes = -1: negative; accepted: a whole number of processes and threads, without quotes, unit or fraction",
            r#"$.enforcement.best_effort[0] = "limits.memory": not a field that can be best effort; accepted: a field of the policy; did you mean `limits.memory_mb`?"#,
            r#"$.enforcement.best_effort[2] = "network.mode": listed twice; accepted: each field once"#,
            "$.version = 2: not a known version; accepted: 1",
            r#"$.filesystem.deny[0] = "/a/../b": the path has a `..` component; accepted: an absolute path without `.`, `..`, `//`, final `/` or NUL, at most 4095 bytes"#,
            "$.network.allow = [… 1 items]: only mode `allowlist` has an effect on it; accepted: no entries in this mode",
            "$.limits.wall_ms = 0: out of range; accepted: a whole number of milliseconds from 1 to 31622400000",
        ],
    );
}

#[test]
fn errors_serialize_as_an_array_of_objects() {
    let errors = Policy::from_json(br#"{"version":1,"command":{"argv":[]}}"#).unwrap_err();
    let expected = r#"[{"path":"$.command.argv","value":"[]","problem":"no program to run","accepted":"the program and its arguments"}]"#;
    assert_eq!(serde_json::to_string(&errors).unwrap(), expected);
}

#[test]
fn keys_of_other_tools_are_translated_in_hints() {
    refused(
        &with(r#""limits":{"timeout_seconds":5,"memory_bytes":1,"pids":3,"zzz":1}"#),
        &[
            "$.limits.timeout_seconds = 5: limits has no such key; did you mean `wall_ms`, in milliseconds?",
            "$.limits.memory_bytes = 1: limits has no such key; did you mean `memory_mb`, in MiB?",
            "$.limits.pids = 3: limits has no such key; did you mean `processes`?",
            "$.limits.zzz = 1: limits has no such key; accepted: `memory_mb`, `cpu_seconds`, `cpu_millis`, `wall_ms`, \
         `file_size_mb`, `open_files`, `processes`, `tmpfs_mb`, `output_bytes`, `layer_mb`, `layer_inodes`",
        ],
    );
    refused(
        &with(r#""network":{"mode":"loopbak"},"id":null"#),
        &[
            "$.id = null: not a text; accepted: a text in quotes; leave the key out for the built-in value",
            r#"$.network.mode = "loopbak": not one of the known words; accepted: one of `none`, `loopback`, `allowlist`, `host`; did you mean `loopback`?"#,
        ],
    );
}

#[test]
fn commands_have_a_program_and_no_nul() {
    refused(r#"{"version":1}"#, &["$.command.argv = []: no program to run; accepted: the program and its arguments"]);
    refused(
        r#"{"version":1,"command":{"argv":["","a\u0000b"],"variables":{"1A":"x","OK":"\u0000"},"cwd":"x"}}"#,
        &[
            r#"$.command.argv[0] = "": the program's name is empty; accepted: a program's name or path"#,
            r#"$.command.argv[1] = "a\0b": contains a NUL character; accepted: text without NUL"#,
            r#"$.command.variables.1A = "1A": not a variable's name; accepted: ^[A-Za-z_][A-Za-z0-9_]*$"#,
            r#"$.command.variables.OK = "\0": contains a NUL character; accepted: text without NUL"#,
            r#"$.command.cwd = "x": the path is not absolute; accepted: an absolute path without `.`, `..`, `//`, final `/` or NUL, at most 4095 bytes"#,
        ],
    );
    let long = "x".repeat(131_072);
    let errors = Policy::from_json(format!(r#"{{"version":1,"command":{{"argv":["a","{long}"]}}}}"#).as_bytes());
    assert!(errors.unwrap_err().to_string().contains("131072 bytes are too long"));
}

#[test]
fn contradictions_between_paths_are_named() {
    let rw = r#"{"type":"bind","source":"/srv/p","target":"/work/p","access":"read_write"}"#;
    let text = format!(
        r#"{{"version":1,"command":{{"argv":["true"],"cwd":"/work/p/src"}},"filesystem":{{"mounts":[{rw}],
            "deny":["/work","/work/p/src","/work/p/secret","/"],"protected":["/work","/work/p",".x","../y"]}}}}"#
    );
    refused(
        &text,
        &[
            r#"$.filesystem.deny[0] = "/work": command.cwd "/work/p/src" is a working directory that is denied; accepted: paths that do not cover the working directory"#,
            r#"$.filesystem.deny[0] = "/work": something is mounted at "/work/p", which this denies; accepted: paths that cover no mount's target"#,
            r#"$.filesystem.deny[1] = "/work/p/src": command.cwd "/work/p/src" is a working directory that is denied; accepted: paths that do not cover the working directory"#,
            r#"$.filesystem.deny[3] = "/": nothing could run with everything denied; accepted: paths below `/`"#,
            r#"$.filesystem.protected[0] = "/work": "/work/p" is mounted to be written, and this forbids it; accepted: paths inside a writable mount or outside of all"#,
            r#"$.filesystem.protected[1] = "/work/p": "/work/p" is mounted to be written, and this forbids it; accepted: paths inside a writable mount or outside of all"#,
            r#"$.filesystem.protected[3] = "../y": the path has a `..` component; accepted: an absolute path without `.`, `..`, `//`, final `/` or NUL, at most 4095 bytes; or such a relative one, for every writable mount"#,
        ],
    );
    let host = with(
        r#""filesystem":{"root":"host","deny":["/home/u"],
        "mounts":[{"type":"bind","source":"/home/u/x","target":"/x"}]}"#,
    );
    refused(
        &host,
        &[
            r#"$.filesystem.deny[0] = "/home/u": "/home/u/x" is mounted elsewhere, and this denies it; accepted: paths that cover no mount's source"#,
        ],
    );
}

#[test]
fn mounts_have_places_of_their_own() {
    let tmpfs = |target: &str| format!(r#"{{"type":"tmpfs","target":"{target}","size_mb":1}}"#);
    let mounts = ["/", "/proc", "/dev/shm/x", "/a/b", "/a", "/a/b", "/devices"].map(tmpfs).join(",");
    refused(
        &with(&format!(
            r#""filesystem":{{"mounts":[{mounts},{{"type":"overlay"}},{{"type":"tmpfs","target":"/t","size_mb":0}}]}}"#
        )),
        &[
            r#"$.filesystem.mounts[7] = {… 1 keys}: not a mount; accepted: an object with "type": "bind" or "tmpfs""#,
            r#"$.filesystem.mounts[0].target = "/": a mount cannot replace the root; accepted: a path below `/`; what `/` is says `filesystem.root`"#,
            r#"$.filesystem.mounts[1].target = "/proc": /proc is the sandbox's own; accepted: a path outside /dev, /proc and /sys"#,
            r#"$.filesystem.mounts[2].target = "/dev/shm/x": /dev is the sandbox's own; accepted: a path outside /dev, /proc and /sys"#,
            r#"$.filesystem.mounts[4].target = "/a": would hide mounts[3] at "/a/b"; accepted: outer mounts before those inside them"#,
            r#"$.filesystem.mounts[5].target = "/a/b": mounts[3] (a tmpfs) has the same target as this one (a tmpfs); accepted: each target once"#,
            "$.filesystem.mounts[8].size_mb = 0: out of range; accepted: a whole number of MiB from 1 to 16777216",
        ],
    );
    refused(
        &with(
            r#""filesystem":{"root":{"directory":"/proc/1/root"},"mounts":[{"type":"bind","source":"/proc","target":"/p"}]}"#,
        ),
        &[
            r#"$.filesystem.root.directory = "/proc/1/root": the host's /proc cannot be given; accepted: a path outside /proc; the sandbox has its own"#,
            r#"$.filesystem.mounts[0].source = "/proc": the host's /proc cannot be given; accepted: a path outside /proc; the sandbox has its own"#,
        ],
    );
}

#[test]
fn only_binds_are_optional() {
    refused(
        &with(
            r#""filesystem":{"mounts":[{"type":"bind","source":"/a","target":"/a","optional":"yes"},
            {"type":"bind","source":"/b","target":"/b","mandatory":false},
            {"type":"tmpfs","target":"/t","size_mb":1,"optional":true}]}"#,
        ),
        &[
            r#"$.filesystem.mounts[0].optional = "yes": not a truth value; accepted: true or false"#,
            "$.filesystem.mounts[1].mandatory = false: a bind mount has no such key; did you mean `optional`, the other way round?",
            "$.filesystem.mounts[2].optional = true: a tmpfs mount has no such key; accepted: `type`, `target`, `size_mb`, `exec`",
        ],
    );
    let policy = accepted(&with(
        r#""filesystem":{"mounts":[{"type":"bind","source":"/a","target":"/a","optional":true},
        {"type":"bind","source":"/b","target":"/b"}]}"#,
    ));
    let optional = |m: &Mount| matches!(m, Mount::Bind { optional: true, .. });
    assert_eq!(policy.filesystem.mounts.iter().map(optional).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn networks_say_what_they_mean() {
    refused(
        &with(r#""network":{"mode":"allowlist"}"#),
        &["$.network.allow = []: mode `allowlist` allows nothing; accepted: at least one entry, or mode `none`"],
    );
    refused(
        &with(r#""network":{"mode":"allowlist","allow":["x.org","*"]}"#),
        &[
            r#"$.network.allow[1] = "*": a lone `*` means everything: that is no list; accepted: HOST[:PORTS], *.SUFFIX[:PORTS], ADDRESS[/PREFIX][:PORTS] or [IPV6[/PREFIX]]:PORTS, PORTS such as `443`, `80,8000-8010` or `*`"#,
        ],
    );
    refused(
        &with(
            r#""network":{"mode":"loopback"},"process":{"seccomp":{"level":"strict"},"unix_sockets":true,"hostname":"-x"}"#,
        ),
        &[
            r#"$.process.hostname = "-x": not a host name; accepted: ^[A-Za-z0-9]([A-Za-z0-9-]{0,62})$"#,
            r#"$.process.seccomp.level = "strict": lets no socket be made, but network.mode is not `none`; accepted: network.mode `none`, or level `standard`"#,
            r#"$.process.seccomp.level = "strict": lets no socket be made, but process.unix_sockets is true; accepted: unix_sockets false, or level `standard`"#,
        ],
    );
}

#[test]
fn bundle_of_hosts_is_expanded_where_it_is_read() {
    let allow = |list: &str| with(&format!(r#""network":{{"mode":"allowlist","allow":{list}}}"#));
    let text = allow(r#"["@crates", {"to":"@debian","methods":["GET"]}, "a.example"]"#);
    let policy = serde_json::to_value(Policy::from_json(text.as_bytes()).unwrap()).unwrap();
    let debian = |to: &str| serde_json::json!({"to": to, "methods": ["GET"], "encrypted_hello": false});
    assert_eq!(
        policy["network"]["allow"],
        serde_json::json!([
            "index.crates.io:443",
            "static.crates.io:443",
            debian("deb.debian.org"),
            debian("security.debian.org"),
            "a.example"
        ])
    );
    refused(
        &allow(r#"["a.example","@pipy"]"#),
        &[r#"$.network.allow[1] = "@pipy": no bundle of hosts has this name; did you mean `@pypi`?"#],
    );
    refused(
        &with(r#""network":{"mode":"allowlist","allow":["a.example"],"deny":["@pypi"]}"#),
        &[
            r#"$.network.deny[0] = "@pypi": a bundle of hosts is no single host, and belongs into what is allowed alone; accepted: HOST[:PORTS], *.SUFFIX[:PORTS], ADDRESS[/PREFIX][:PORTS] or [IPV6[/PREFIX]]:PORTS, PORTS such as `443`, `80,8000-8010` or `*`"#,
        ],
    );
}

#[test]
fn private_addresses_are_opened_to_one_name() {
    let allow = |rule: &str| with(&format!(r#""network":{{"mode":"allowlist","allow":[{rule}]}}"#));
    let written = |rule: &str| {
        serde_json::to_value(Policy::from_json(allow(rule).as_bytes()).unwrap()).unwrap()["network"]["allow"].clone()
    };
    let rule = serde_json::json!([{"to": "db.example:5432", "encrypted_hello": false, "private": true}]);
    assert_eq!(written(r#"{"to":"db.example:5432","private":true}"#), rule);
    assert_eq!(written(r#"{"to":"db.example:5432","private":false}"#), serde_json::json!(["db.example:5432"]));
    for (rule, part) in [
        (r#"{"to":"*.example","private":true}"#, "the owner of the suffix"),
        (r#"{"to":"10.1.2.3","private":true}"#, "leads nowhere else"),
        (r#"{"to":"db.example","private":true,"methods":["GET"]}"#, "other rules about the name"),
        (r#"{"to":"metadata.google.internal","private":true}"#, "metadata service"),
        (r#"{"to":"localhost","private":true}"#, "the sandbox itself"),
    ] {
        let errors = Policy::from_json(allow(rule).as_bytes()).unwrap_err().to_string();
        assert!(errors.lines().count() == 1 && errors.contains(part), "{rule}: {errors}");
    }
}

#[test]
fn network_urls_are_parsed_strictly_and_normalised() {
    let network = |fields: &str| with(&format!(r#""network":{{"mode":"allowlist",{fields}}}"#));
    let entry = "HOST[:PORTS], *.SUFFIX[:PORTS], ADDRESS[/PREFIX][:PORTS] or [IPV6[/PREFIX]]:PORTS, PORTS such as `443`, \
                 `80,8000-8010` or `*`";
    let policy = accepted(&network(
        r#""allow":["B\u00fccher.Example.:443,80",{"to":"*.x.org:22"},{"to":"y.org:80","methods":["GET"],"paths":["/v1/*"]}],
           "deny":["a.x.org","10.0.0.0/8:*"],"api":{"url":"http://localhost:8000/"},"limits":{"up_mb":1}"#,
    ));
    assert_eq!(
        serde_json::to_value(&policy.network).unwrap(),
        serde_json::json!({
            "mode": "allowlist",
            "allow": [
                "xn--bcher-kva.example",
                "*.x.org:22",
                {"to": "y.org:80", "methods": ["GET"], "paths": ["/v1/*"], "encrypted_hello": false},
            ],
            "deny": ["a.x.org", "10.0.0.0/8"],
            "api": {"url": "http://localhost:8000", "variable": "ISCL_API_URL"},
            "limits": {"connections": 256, "connections_per_host": 64, "up_mb": 1, "down_mb": 10240, "names": 512},
        })
    );
    let text = network(
        r#""allow":[5,{"to":"https://x.org/"},{"paths":["/a/../b","/a*","/a","/a"],"methods":[]},{"to":null},{"to":"x.org","zz":1}],
           "deny":["x y",{}],"api":{"url":"ftp://u:secret@x"},"upstream_proxy":"http://u:secret@""#,
    );
    let path = "a path as requests have it, such as `/v1/models`, or all below one, such as `/v1/*`";
    refused(
        &text,
        &[
            &format!(
                r#"$.network.allow[0] = 5: neither a text nor an object; accepted: {entry}; or an object, {{"to": …}} with more"#
            ),
            &format!(
                r#"$.network.allow[1].to = "https://x.org/": a URL: only its host and port belong here; accepted: {entry}"#
            ),
            "$.network.allow[2].to: missing; accepted: a rule of the network: `to` cannot be left out",
            "$.network.allow[3].to = null: not a text; accepted: a text in quotes; leave the key out for the built-in value",
            "$.network.allow[4].zz = 1: a rule of the network has no such key; accepted: `to`, `methods`, `paths`, `encrypted_hello`, `private`",
            &format!(
                r#"$.network.deny[0] = "x y": not a host name: labels of letters, digits, `-` and `_`, joined by single dots; accepted: {entry}"#
            ),
            "$.network.deny[1] = {}: not a text; accepted: a text in quotes",
            "$.network.api.url: only `http://` and `https://` are known; accepted: http(s)://HOST[:PORT][/PREFIX]",
            "$.network.upstream_proxy: a host name has 1 to 253 characters; accepted: http://[USER:PASSWORD@]HOST:PORT",
            "$.network.allow[2].methods = []: no request could be made; accepted: at least one method; leave the key out for all, or mode `none` for no request",
            &format!(r#"$.network.allow[2].paths[0] = "/a/../b": a dot segment (`.` or `..`); accepted: {path}"#),
            &format!(
                r#"$.network.allow[2].paths[1] = "/a*": `*` may stand only at the end, after a `/`; accepted: {path}"#
            ),
            r#"$.network.allow[2].paths[3] = "/a": listed twice; accepted: each path once"#,
        ],
    );
}

#[test]
fn a_rule_that_a_wider_one_makes_pointless_is_refused() {
    let network = |allow: &str| with(&format!(r#""network":{{"mode":"allowlist","allow":[{allow}]}}"#));
    let narrow = r#"{"to":"a.x.org:80","methods":["GET"],"paths":["/public/*"]}"#;
    for (wide, index) in [("a.x.org", "`a.x.org`"), ("*.x.org:*", "`*.x.org:*`"), ("a.x.org:80", "`a.x.org:80`")] {
        let expected = |narrow: usize, wide: usize| {
            format!(
                "$.network.allow[{narrow}] = \"a.x.org:80\": its methods and paths forbid nothing: rules add up, and network.allow[{wide}] ({index}) \
                 allows every request there; accepted: one of both rules, or the wider one for other hosts or ports"
            )
        };
        refused(&network(&format!(r#"{narrow},"{wide}""#)), &[&expected(0, 1)]);
        refused(&network(&format!(r#""{wide}",{narrow}"#)), &[&expected(1, 0)]);
    }
    refused(
        &network(r#"{"to":"10.1.2.3:80","paths":["/a"]},"10.0.0.0/8:80""#),
        &[
            r#"$.network.allow[0] = "10.1.2.3:80": its methods and paths forbid nothing: rules add up, and network.allow[1] (`10.0.0.0/8:80`) allows every request there; accepted: one of both rules, or the wider one for other hosts or ports"#,
        ],
    );
    // Another host, other ports, two narrow rules, and a wide rule beside a wide one.
    for beside in [
        r#""b.x.org""#,
        r#""*.a.x.org""#,
        r#""a.x.org:443""#,
        r#"{"to":"a.x.org:80","methods":["POST"],"paths":["/up"]}"#,
        r#""x.org","*.x.org:443","a.x.org:22""#,
    ] {
        accepted(&network(&format!("{narrow},{beside}")));
    }
    accepted(&network(r#""a.x.org","*.x.org:*",{"to":"a.x.org","encrypted_hello":true}"#));
}

#[test]
fn allowlist_only_fields_are_refused_in_other_modes() {
    refused(
        &with(
            r#""network":{"mode":"loopback","allow":["x.org"],"deny":["y.org"],"api":{"url":"http://x.org"},
               "upstream_proxy":"http://u:secret@proxy:3128","limits":{"names":1}}"#,
        ),
        &[
            "$.network.allow = [… 1 items]: only mode `allowlist` has an effect on it; accepted: no entries in this mode",
            "$.network.deny = [… 1 items]: only mode `allowlist` has an effect on it; accepted: no entries in this mode",
            "$.network.api = {…}: only mode `allowlist` has an effect on it; accepted: no API in this mode",
            "$.network.upstream_proxy: only mode `allowlist` has an effect on it; accepted: no proxy in this mode",
            "$.network.limits = {…}: only mode `allowlist` has an effect on it; accepted: no limits in this mode",
        ],
    );
    let network = |fields: &str| with(&format!(r#""network":{{"mode":"allowlist",{fields}}}"#));
    refused(
        &network(
            r#""allow":["a.x.org","x.org","10.1.0.0/16:22"],"deny":["*.x.org","10.0.0.0/8","x.org:80"],
               "api":{"url":"http://u:secret@x.org","variable":"1"},"upstream_proxy":"https://u:secret@proxy:1",
               "limits":{"connections":2,"connections_per_host":3,"up_mb":0}"#,
        ),
        &[
            r#"$.network.allow[0] = "a.x.org": network.deny[0] (`*.x.org`) denies all of it; accepted: what no entry of network.deny covers, or neither of both"#,
            r#"$.network.allow[2] = "10.1.0.0/16:22": network.deny[1] (`10.0.0.0/8`) denies all of it; accepted: what no entry of network.deny covers, or neither of both"#,
            r#"$.network.api.url = "http://***@x.org": a user or a password; accepted: http(s)://HOST[:PORT][/PREFIX]; what the API asks for, the program sends"#,
            r#"$.network.api.variable = "1": not a variable's name; accepted: ^[A-Za-z_][A-Za-z0-9_]*$"#,
            r#"$.network.upstream_proxy = "https://***@proxy:1": a proxy that itself speaks TLS is not supported; accepted: http://[USER:PASSWORD@]HOST:PORT"#,
            "$.network.limits.up_mb = 0: out of range; accepted: a whole number of MiB from 1 to 16777216",
            "$.network.limits.connections_per_host = 3: never reached; accepted: at most `connections`, which hosts have together",
        ],
    );
    assert_eq!(
        accepted(&network(r#""api":{"url":"http://127.0.0.1:1"}"#)).network.allow.len(),
        0,
        "an API alone is enough"
    );
}

#[test]
fn methods_are_those_of_http_and_belong_to_an_allowlist() {
    let network = |methods: &str| with(&format!(r#""network":{{"mode":"allowlist","allow":["x.org"],{methods}}}"#));
    let policy = accepted(&network(r#""methods":["GET","HEAD"]"#));
    assert_eq!(policy.network.methods.as_deref(), Some(["GET".to_owned(), "HEAD".to_owned()].as_slice()));
    assert!(policy.is_required(Field::Methods));
    assert_eq!(accepted(&network(r#""methods":["DELETE"]"#)).network.methods.unwrap().len(), 1);
    let any = accepted(&with(r#""network":{"mode":"allowlist","allow":["x.org"]}"#));
    assert_eq!(any.network.methods, None, "left out, any method passes");
    let all = "one of `GET`, `HEAD`, `OPTIONS`, `TRACE`, `POST`, `PUT`, `PATCH`, `DELETE`";
    refused(
        &network(r#""methods":["get","CONNECT","GET","FETCH","GET",""]"#),
        &[
            &format!(r#"$.network.methods[0] = "get": not a method of HTTP; accepted: {all}; did you mean `GET`?"#),
            r#"$.network.methods[1] = "CONNECT": opens a tunnel, in which any method passes; accepted: where it leads to, in `allow`"#,
            &format!(r#"$.network.methods[3] = "FETCH": not a method of HTTP; accepted: {all}"#),
            r#"$.network.methods[4] = "GET": listed twice; accepted: each method once"#,
            &format!(r#"$.network.methods[5] = "": not a method of HTTP; accepted: {all}"#),
        ],
    );
    refused(
        &network(r#""methods":[]"#),
        &[
            "$.network.methods = []: no request could be made; accepted: at least one method; leave the key out for all, or mode `none` for no request",
        ],
    );
    refused(
        &network(r#""methods":"GET""#),
        &[r#"$.network.methods = "GET": not an array; accepted: an array, also for a single element"#],
    );
    for mode in ["none", "loopback", "host"] {
        refused(
            &with(&format!(r#""network":{{"mode":"{mode}","methods":["GET","HEAD"]}}"#)),
            &[
                "$.network.methods = [… 2 items]: only mode `allowlist` has an effect on it; accepted: no methods in this mode",
            ],
        );
    }
}

#[test]
fn strict_lets_nothing_be_written_but_in_tmpfs() {
    let mounts = ["read_only", "read_write", "copy_on_write"]
        .map(|access| format!(r#"{{"type":"bind","source":"/s","target":"/{access}","access":"{access}"}}"#));
    let mounts = mounts.join(",");
    let groups = |level: &str| {
        with(&format!(
            r#""process":{{"seccomp":{{"level":"{level}"}}}},"filesystem":{{"mounts":[{mounts},
                {{"type":"tmpfs","target":"/t","size_mb":1}}]}}"#
        ))
    };
    accepted(&groups("standard"));
    refused(
        &groups("strict"),
        &[
            r#"$.filesystem.mounts[1].access = "read_write": level `strict` lets nothing be written but in tmpfs; accepted: `read_only`, or level `standard`"#,
            r#"$.filesystem.mounts[2].access = "copy_on_write": level `strict` lets nothing be written but in tmpfs; accepted: `read_only`, or level `standard`"#,
        ],
    );
}

#[test]
fn an_audit_says_what_it_records_and_a_trace_needs_that() {
    let policy = accepted(&with(r#""audit":{}"#));
    assert_eq!(policy.audit, Audit { enabled: true, level: AuditLevel::Info, trace: false });
    let policy = accepted(&with(r#""audit":{"enabled":false,"level":"error"}"#));
    assert_eq!(policy.audit, Audit { enabled: false, level: AuditLevel::Error, trace: false });
    for level in ["info", "debug"] {
        assert!(accepted(&with(&format!(r#""audit":{{"level":"{level}","trace":true}}"#))).audit.trace);
    }
    refused(
        &with(r#""audit":{"enabled":1,"level":"verbose"}"#),
        &[
            "$.audit.enabled = 1: not a truth value; accepted: true or false",
            r#"$.audit.level = "verbose": not one of the known words; accepted: one of `error`, `warning`, `info`, `debug`"#,
        ],
    );
    refused(
        &with(r#""audit":{"level":"warning","trace":true}"#),
        &[
            "$.audit.trace = true: audit.level records no refusal, and a trace sees nothing else; accepted: false, or level `info` or `debug`",
        ],
    );
    refused(
        &with(r#""audit":{"enabled":false,"trace":true}"#),
        &[
            "$.audit.trace = true: audit.enabled is false, so nothing that a trace sees is recorded; accepted: false, or enabled true",
        ],
    );
}

#[test]
fn each_level_records_what_the_one_before_it_does() {
    use AuditLevel::{Debug, Error, Info, Warning};
    let all = [Error, Warning, Info, Debug];
    for (i, level) in all.into_iter().enumerate() {
        let audit = Audit { enabled: true, level, trace: false };
        assert_eq!(all.map(|grave| audit.records(grave)), [0, 1, 2, 3].map(|n| n <= i), "{level:?}");
        let off = Audit { enabled: false, ..audit };
        assert!(!all.into_iter().any(|grave| off.records(grave)));
    }
}

#[test]
fn system_call_rules_can_hold() {
    let rules = r#"{"syscalls":[],"action":"kill"},
        {"syscalls":["openat","Open","openat"],"action":{"errno":"EWHAT"},
         "when":[{"index":6,"op":"eq","value":4,"mask":3},{"index":300,"op":"eq","value":0,"mask":0}]},
        {"syscalls":["x"],"action":"allow"}"#;
    refused(
        &with(&format!(r#""process":{{"seccomp":{{"rules":[{rules}]}}}}"#)),
        &[
            r#"$.process.seccomp.rules[2].action = "allow": not an action; accepted: "kill" or {"errno": "EPERM"}"#,
            "$.process.seccomp.rules[0].syscalls = []: the rule is about no system call; accepted: at least one name",
            r#"$.process.seccomp.rules[1].syscalls[1] = "Open": not the name of a system call; accepted: the kernel's name, such as `openat`"#,
            r#"$.process.seccomp.rules[1].syscalls[2] = "openat": listed twice; accepted: each name once"#,
            r#"$.process.seccomp.rules[1].action.errno = "EWHAT": not the name of an error; accepted: a name of errno(3), such as `EPERM`"#,
            "$.process.seccomp.rules[1].when[0].index = 6: system calls have six arguments; accepted: 0 to 5",
            "$.process.seccomp.rules[1].when[0].value = 4: can never be equal: it has bits outside mask; accepted: bits of mask only",
            "$.process.seccomp.rules[1].when[1].index = 255: system calls have six arguments; accepted: 0 to 5",
            "$.process.seccomp.rules[1].when[1].mask = 0: leaves nothing to compare; accepted: the bits that count, at least one",
        ],
    );
}

#[test]
fn limits_named_are_required_and_others_best_effort() {
    let policy = accepted(&with(
        r#""limits":{"memory_mb":64,"layer_inodes":5,"cpu_seconds":5},
        "enforcement":{"best_effort":["limits.cpu_seconds","network.mode"]}"#,
    ));
    for field in Field::ALL {
        let best_effort = match field {
            Field::Memory | Field::Layer => false,
            Field::Network => true,
            other => other.name().starts_with("limits."),
        };
        assert_eq!(policy.is_required(*field), !best_effort, "{field}");
    }
    assert_eq!(policy.limits, Limits { memory_mb: 64, layer_inodes: 5, cpu_seconds: 5, ..Policy::base().limits });
}

#[test]
fn left_out_is_built_in_and_given_replaces_it() {
    let policy = accepted(&with(
        r#""filesystem":{"protected":[],
        "mounts":[{"type":"bind","source":"/a","target":"/a"}]}"#,
    ));
    assert!(policy.filesystem.protected.is_empty());
    let (source, target) = ("/a".to_owned(), "/a".to_owned());
    let bind = Mount::Bind { source, target, access: Access::ReadOnly, exec: false, optional: false };
    assert_eq!(policy.filesystem.mounts, [bind]);
    assert_eq!(policy.command.variables, Policy::base().command.variables);
    let policy = accepted(r#"{"version":1,"command":{"argv":["a"],"variables":{}}}"#);
    assert!(policy.command.variables.is_empty());
    assert_eq!(policy.filesystem.protected, PROTECTED_DEFAULT);
}

#[test]
fn the_example_of_the_docs_is_a_policy() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/network.md");
    let Ok(page) = std::fs::read_to_string(page) else {
        eprintln!("docs/network.md is not read: the sources are not on this machine");
        return;
    };
    let example =
        page.split("```json").nth(1).and_then(|rest| rest.split("```").next()).expect("the page has an example");
    let mut policy: serde_json::Value = serde_json::from_str(example).unwrap();
    policy["version"] = 1.into();
    policy["command"] = serde_json::json!({"argv": ["true"]});
    let read = accepted(&policy.to_string());
    assert_eq!((read.network.allow.len(), read.network.deny.len(), read.network.limits.down_mb), (4, 2, 500));
}

#[test]
fn images_are_references_or_tarballs_and_backends_have_names() {
    for good in ["alpine:3.20", "localhost:5000/a/b_c@sha256:0a", "/srv/rootfs.tar.gz"] {
        let policy = accepted(&with(&format!(r#""filesystem":{{"root":{{"image":"{good}"}}}}"#)));
        assert_eq!(policy.filesystem.root, Root::Image(good.into()));
    }
    for bad in ["", "-v", "a b", "a\\nb", "../x.tar", "/srv/../x.tar", "a?b"] {
        let text = with(&format!(r#""filesystem":{{"root":{{"image":"{bad}"}}}}"#));
        let errors = Policy::from_json(text.as_bytes()).err().map(|errors| errors.to_string());
        assert!(errors.is_some_and(|errors| errors.contains("$.filesystem.root.image")), "{bad}");
    }
    for (name, backend) in BackendName::NAMES {
        assert_eq!(accepted(&with(&format!(r#""backend":"{name}""#))).backend, *backend);
        assert_eq!((backend.name(), serde_json::to_value(backend).unwrap()), (*name, (*name).into()));
    }
}
