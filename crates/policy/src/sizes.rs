//! Sizes as people write them: `512m`, `2g`. One reader for options and configuration files. Pure.

/// A size in bytes: a whole number with an optional unit `b`, `k`, `m`, `g` or `t`, all powers of 1024, as docker parses
/// them. `KiB`, `MB` and the like mean the same.
///
/// # Errors
/// It is no size; what would be accepted.
pub fn bytes(text: &str) -> Result<u64, String> {
    size(text, "512m, 2g or 65536")
}

/// A size in bytes. `like` is the example in the error.
fn size(text: &str, like: &str) -> Result<u64, String> {
    let accepted = || format!("`{text}` is not a size; write it like {like}");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| accepted())?;
    let shift = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(accepted()),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is more bytes than fit in 64 bits"))
}

/// A size in MiB. 0 is accepted, because the validation of the policy refuses it where it is wrong.
///
/// # Errors
/// It is no whole number of MiB; what would be accepted.
pub fn mebibytes(text: &str) -> Result<u64, String> {
    let like = "512m or 2g";
    let bytes = size(text, like)?;
    if bytes % (1 << 20) != 0 {
        return Err(format!("`{text}` is not a whole number of MiB; write it like {like}"));
    }
    Ok(bytes >> 20)
}
