//! Compiles init: a static program without libc, by plain rustc, because it is another kind of program than its crate.
//!
//! The result is embedded in the library, so that one binary carries everything it needs.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The flags of init's build; the lint step of the repository reads them from this text.
const FLAGS: &[&str] = &[
    "--edition=2024",
    "--crate-type=bin",
    "--crate-name=cofferdam_init",
    "-Cpanic=abort",
    "-Copt-level=s",
    "-Crelocation-model=static",
    "-Coverflow-checks=off",
    "-Cdebug-assertions=off",
    "-Ccodegen-units=1",
    "-Cstrip=symbols",
    "-Clink-arg=-nostartfiles",
    "-Clink-arg=-nostdlib",
    "-Clink-arg=-static",
    "-Clink-arg=-no-pie",
    "-Clink-arg=-Wl,--build-id=none",
];

fn main() {
    let source = PathBuf::from("init");
    println!("cargo:rerun-if-changed=init");
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_JAIL").is_none() {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("init");
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let mut command = Command::new(rustc);
    command.args(FLAGS).arg("--target").arg(&target).arg(source.join("main.rs")).arg("-o").arg(&out);
    let status = command.status().expect("rustc starts");
    assert!(status.success(), "init does not compile for {target}");
}
