//! Images made on the spot, for no registry is asked: a root file system with busybox and what a test adds, as a
//! directory, as a tarball, and as an archive with settings of its own that engines load.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The programs that busybox stands for.
const APPLETS: &[&str] = &[
    "sh", "cat", "ls", "id", "echo", "env", "sleep", "true", "false", "kill", "ps", "dd", "head", "tail", "wc",
    "touch", "mkdir", "rm", "ln", "mount", "umount", "wget", "nc", "printf", "seq", "test", "stat", "hostname", "df",
    "yes", "tr", "grep", "sed", "awk", "xargs", "od", "chmod", "cp", "mv", "timeout", "uname", "readlink", "find",
];

/// Makes a root file system in the empty directory `at`: busybox and its names in `/bin`, a few files in `/etc`, and
/// `programs`, each with its path inside. Everything can be read by everybody.
///
/// # Errors
/// Names what could not be made, or that busybox is missing or not static.
pub fn root(at: &Path, programs: &[(&Path, &str)]) -> Result<(), String> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].iter().map(Path::new).find(|path| path.exists());
    let busybox = busybox.ok_or("busybox is missing\nhint: apt-get install busybox-static")?;
    for (name, bits) in [
        ("bin", 0o755),
        ("etc", 0o755),
        ("home", 0o755),
        ("root", 0o700),
        ("data", 0o755),
        ("dev", 0o755),
        ("proc", 0o755),
        ("sys", 0o755),
        ("tmp", 0o1777),
    ] {
        let path = at.join(name);
        fs::create_dir_all(&path).map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        chmod(&path, bits)?;
    }
    chmod(at, 0o755)?;
    copy(busybox, &at.join("bin/busybox"))?;
    for name in APPLETS {
        let link = at.join("bin").join(name);
        std::os::unix::fs::symlink("busybox", &link).map_err(|e| format!("cannot link {}: {e}", link.display()))?;
    }
    for (name, text) in [
        ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nimage:x:1234:1234:image:/home:/bin/sh\n"),
        ("etc/group", "root:x:0:\nimage:x:1234:\n"),
        ("etc/of-the-image", "made for a test\n"),
        ("bin/script", "#!/bin/sh\necho script \"$@\"\n"),
    ] {
        let path = at.join(name);
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        chmod(&path, if name.starts_with("bin/") { 0o755 } else { 0o644 })?;
    }
    for (program, inside) in programs {
        let to = at.join(inside.trim_start_matches('/'));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(|e| format!("cannot make {}: {e}", parent.display()))?;
        }
        copy(program, &to)?;
    }
    Ok(())
}

/// Compiles the probe (`probe.c` says what it can do), static, to the file `to`.
///
/// # Errors
/// There is no C compiler, or what it says.
pub fn probe(to: &Path) -> Result<(), String> {
    let source = PathBuf::from(format!("{}.c", to.display()));
    fs::write(&source, include_str!("../probe.c")).map_err(|e| format!("cannot write {}: {e}", source.display()))?;
    let output = Command::new("gcc")
        .args(["-static", "-O1", "-pthread", "-Wall", "-Wextra", "-o"])
        .arg(to)
        .arg(&source)
        .output()
        .map_err(|e| format!("cannot run gcc: {e}\nhint: apt-get install gcc libc6-dev"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("the probe does not compile: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Packs the directory `root` as a tarball at `to`, all of it root's.
///
/// # Errors
/// Names what could not be written.
pub fn tarball(root: &Path, to: &Path) -> Result<(), String> {
    tar(root, to, &["."])
}

/// Packs the directory `root` at `to` as an archive that engines load, named `reference` (`name:tag`). `settings` is
/// the image's own configuration (`Entrypoint`, `Cmd`, `Env`, `User`, `Volumes`, `Healthcheck`, `Labels`, …).
///
/// # Errors
/// Names what could not be written.
pub fn archive(root: &Path, to: &Path, reference: &str, settings: &Value) -> Result<(), String> {
    let work = PathBuf::from(format!("{}.parts", to.display()));
    fs::create_dir_all(&work).map_err(|e| format!("cannot make {}: {e}", work.display()))?;
    let result = pack(root, &work, to, reference, settings);
    fs::remove_dir_all(&work).map_err(|e| format!("cannot remove {}: {e}", work.display()))?;
    result
}

fn pack(root: &Path, work: &Path, to: &Path, reference: &str, settings: &Value) -> Result<(), String> {
    let layer = work.join("layer.tar");
    tarball(root, &layer)?;
    let bytes = fs::read(&layer).map_err(|e| format!("cannot read {}: {e}", layer.display()))?;
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": settings,
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", hex(&bytes))] },
        "history": [{ "created_by": "a test" }],
    })
    .to_string();
    let name = format!("{}.json", hex(config.as_bytes()));
    let manifest = json!([{ "Config": name, "RepoTags": [reference], "Layers": ["layer.tar"] }]).to_string();
    for (file, text) in [(&name, &config), (&"manifest.json".to_owned(), &manifest)] {
        fs::write(work.join(file), text).map_err(|e| format!("cannot write {file}: {e}"))?;
    }
    tar(work, to, &[&name, "manifest.json", "layer.tar"])
}

/// Packs the directory `root` at `to` as an OCI layout named `reference` (`localhost/name:tag`), with these annotations in
/// its manifest: Podman loads it with them.
///
/// # Errors
/// Names what could not be written.
pub fn layout(root: &Path, to: &Path, reference: &str, annotations: &Value) -> Result<(), String> {
    let work = PathBuf::from(format!("{}.parts", to.display()));
    let blobs = work.join("blobs/sha256");
    fs::create_dir_all(&blobs).map_err(|e| format!("cannot make {}: {e}", blobs.display()))?;
    let layer = work.join("layer.tar");
    tarball(root, &layer)?;
    let bytes = fs::read(&layer).map_err(|e| format!("cannot read {}: {e}", layer.display()))?;
    let blob = |kind: &str, bytes: &[u8]| {
        let (name, media) = (hex(bytes), format!("application/vnd.oci.image.{kind}"));
        let written = fs::write(blobs.join(&name), bytes).map_err(|e| format!("cannot write the {kind}: {e}"));
        written.map(|()| json!({ "mediaType": media, "digest": format!("sha256:{name}"), "size": bytes.len() }))
    };
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {},
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", hex(&bytes))] },
        "history": [{ "created_by": "a test" }],
    });
    let (config, layer) = (blob("config.v1+json", config.to_string().as_bytes())?, blob("layer.v1.tar", &bytes)?);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
        "annotations": annotations,
    });
    let mut manifest = blob("manifest.v1+json", manifest.to_string().as_bytes())?;
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": reference });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] }).to_string();
    for (file, text) in [("index.json", index.as_str()), ("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#)] {
        fs::write(work.join(file), text).map_err(|e| format!("cannot write {file}: {e}"))?;
    }
    let packed = tar(&work, to, &["oci-layout", "index.json", "blobs"]);
    fs::remove_dir_all(&work).map_err(|e| format!("cannot remove {}: {e}", work.display()))?;
    packed
}

fn tar(directory: &Path, to: &Path, what: &[&str]) -> Result<(), String> {
    let output = Command::new("tar")
        .args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--file"])
        .arg(to)
        .arg("--directory")
        .arg(directory)
        .args(what)
        .output()
        .map_err(|e| format!("cannot run tar: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("tar of {}: {}", directory.display(), String::from_utf8_lossy(&output.stderr)))
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map_err(|e| format!("cannot copy {}: {e}", from.display()))?;
    chmod(to, 0o755)
}

fn chmod(path: &Path, bits: u32) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(bits))
        .map_err(|e| format!("cannot chmod {}: {e}", path.display()))
}
