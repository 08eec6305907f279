//! Filters as Kafel text, held against files under `golden/`; `COFFERDAM_UPDATE=1` writes them anew.

use std::path::Path;

use cofferdam_confine::seccomp::{Arch, SeccompRequest, SyscallLevel, kafel};

#[test]
fn the_text_of_a_level_is_what_its_golden_file_says() {
    let mut bad = Vec::new();
    for (name, level, arch) in [
        ("standard-x86_64", SyscallLevel::Standard, Arch::X86_64),
        ("strict-aarch64", SyscallLevel::Strict, Arch::Aarch64),
        ("disabled-aarch64", SyscallLevel::Disabled, Arch::Aarch64),
    ] {
        let request = SeccompRequest { limited_exec: level == SyscallLevel::Strict, ..SeccompRequest::of(level) };
        let text = kafel::policy(&request, arch).unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.kafel"));
        if std::env::var_os("COFFERDAM_UPDATE").is_some_and(|v| v == "1") {
            std::fs::write(&file, &text).unwrap();
        } else if std::fs::read_to_string(&file).unwrap_or_default() != text {
            bad.push(name);
        }
    }
    assert!(bad.is_empty(), "{bad:?} are out of date\nhint: COFFERDAM_UPDATE=1 cargo test -p cofferdam-confine");
}
